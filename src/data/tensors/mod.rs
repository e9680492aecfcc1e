//! Matrix files of any size: safetensors and `.npy`, read a batch of rows at a time.
//!
//! The streaming side of the data stage: a [`TensorFile`] is opened and its header checked, a [`MatrixReader`] fills a
//! [`RowBuffer`] with the rows that the engine asks for, and at the end [`TensorFile::unchanged`] confirms that what was
//! read is one file and not two halves of different ones. A [`Head`] is small and is loaded whole.
//!
//! Files are read by position and **never memory-mapped**: when a mapped file is truncated by someone else, touching
//! the lost pages raises SIGBUS and kills the process, where a read returns short and becomes [`Error::Changed`]. A
//! read also keeps the resident memory at one buffer, whatever the number of rows, and costs one copy out of the page
//! cache, which is little beside the D² operations that follow for each row.
//!
//! ```
//! use muso::data::{OutTensor, RowBuffer, TensorFile, to_safetensors};
//! use muso::engine::{Dtype, Matrix};
//! let features = Matrix::from_fn(5, 2, |i, j| (10 * i + j) as f64);
//! let bytes = to_safetensors(&[
//!     ("features", OutTensor::Matrix { values: &features, dtype: Dtype::F16 }),
//!     ("labels", OutTensor::Integers(&[0, 1, 0, 1, 1])),
//! ])?;
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("features.safetensors");
//! std::fs::write(&path, bytes).unwrap();
//!
//! let file = TensorFile::open(&path)?;
//! let matrix = file.matrix("features")?;
//! let mut buffer = RowBuffer::new();
//! matrix.read(3, 2, &mut buffer)?;
//! assert_eq!(buffer.rows().to_matrix(), features.select_rows(&[3, 4]));
//! let mut labels = Vec::new();
//! file.labels("labels")?.read(3, 2, &mut labels)?;
//! assert_eq!(labels, [1, 1]);
//! file.unchanged()?;
//! # Ok::<(), muso::Error>(())
//! ```

#[cfg(not(target_endian = "little"))]
compile_error!("tensor files are little-endian and are read without conversion");

mod head;
mod npy;
mod safetensors;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};

pub use self::head::Head;
pub use self::safetensors::{OutTensor, RowsWriter, rounded, to_safetensors, to_safetensors_with};

pub(super) use self::source::Source;
use super::{Digest, shown};
use crate::engine::{Dtype, Matrix, Rows};
use crate::{Error, Result};

/// Element types, as far as they are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    Bf16,
    F32,
    F64,
    I64,
    I32,
    U8,
    /// Known and measured, but nothing here reads it.
    Other(&'static str),
}

impl Element {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U8 => "u8",
            Self::Other(name) => name,
        }
    }

    pub(super) fn float(self) -> Option<Dtype> {
        match self {
            Self::F16 => Some(Dtype::F16),
            Self::Bf16 => Some(Dtype::Bf16),
            Self::F32 => Some(Dtype::F32),
            Self::F64 => Some(Dtype::F64),
            _ => None,
        }
    }
}

impl From<Dtype> for Element {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::Bf16,
            Dtype::F32 => Self::F32,
            Dtype::F64 => Self::F64,
        }
    }
}

/// A tensor in a file. Its extent has been checked against the length of the file.
#[derive(Clone, Debug)]
struct Entry {
    name: String,
    element: Element,
    shape: Vec<u64>,
    /// Offset of its first byte from the start of the file.
    begin: u64,
}

/// Number of elements, if it fits.
fn product(shape: &[u64]) -> Option<u64> {
    shape
        .iter()
        .try_fold(1_u64, |count, &extent| count.checked_mul(extent))
}

/// Appends the values that a piece of a file holds.
pub(super) fn append_f32(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) {
    fn each<const SIZE: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; SIZE]> {
        bytes.as_chunks::<SIZE>().0.iter().copied()
    }
    match dtype {
        Dtype::F16 => values.extend(each(bytes).map(|b| f16::from_le_bytes(b).to_f32())),
        Dtype::Bf16 => values.extend(each(bytes).map(|b| bf16::from_le_bytes(b).to_f32())),
        Dtype::F32 => values.extend(each(bytes).map(f32::from_le_bytes)),
        Dtype::F64 => values.extend(each(bytes).map(|b| f64::from_le_bytes(b) as f32)),
    }
}

fn shape_text(shape: &[u64]) -> String {
    shown(&format!("{shape:?}"), 80)
}

/// An opened safetensors or `.npy` file.
///
/// Readers made from it share its handle; they may be used from several threads and may outlive it.
#[derive(Debug)]
pub struct TensorFile {
    source: Arc<Source>,
    /// Tensors in the order of the file.
    entries: Vec<Entry>,
    named: bool,
    metadata: BTreeMap<String, String>,
}

impl TensorFile {
    /// Opens a file and checks its header; the format is told by content, not by extension.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let source = Source::open(path.as_ref())?;
        let mut start = [0; npy::MAGIC.len()];
        let is_npy = source.len() >= start.len() as u64 && {
            source.read_exact_at(&mut start, 0)?;
            &start == npy::MAGIC
        };
        let (entries, metadata) = if is_npy {
            (vec![npy::entry(&source)?], BTreeMap::new())
        } else {
            safetensors::entries(&source)?
        };
        Ok(Self {
            source: Arc::new(source),
            entries,
            named: !is_npy,
            metadata,
        })
    }

    /// Returns the path as it was passed in.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns whether tensors have names: not in `.npy`, where any name asked for leads to the one array.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// Returns the names of the tensors in the order of the file; none for `.npy`.
    pub fn tensor_names(&self) -> Vec<&str> {
        let named = self.entries.iter().filter(|_| self.named);
        named.map(|entry| entry.name.as_str()).collect()
    }

    /// Returns the texts that a safetensors file carries beside its tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Returns the shape of a tensor of floats with any number of axes, and its values in f32, whether finite or not.
    ///
    /// # Errors
    /// If it is missing or has another element type.
    pub fn array(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let entry = self.entry(name)?;
        let count = product(&entry.shape).unwrap_or(u64::MAX);
        let shape: Option<Vec<usize>> = entry
            .shape
            .iter()
            .map(|&extent| usize::try_from(extent).ok())
            .collect();
        let (Some(dtype), Some(shape)) = (entry.element.float(), shape) else {
            return Err(self.mismatch(entry, "a tensor of f16, bf16, f32 or f64"));
        };
        // Its bytes are in the file, so that their number fits.
        let mut values = Vec::with_capacity(count as usize);
        let bytes = count * dtype.size() as u64;
        let append = |piece: &[u8]| append_f32(dtype, piece, &mut values);
        self.source.pieces(entry.begin, bytes, append)?;
        Ok((shape, values))
    }

    /// Returns whether there is a tensor of exactly this name; never for `.npy`.
    pub fn contains(&self, name: &str) -> bool {
        self.named && self.entries.iter().any(|entry| entry.name == name)
    }

    /// Opens a reader of a two-dimensional tensor of floats.
    ///
    /// # Errors
    /// If it is missing, has another rank or element type, or no rows or no columns.
    pub fn matrix(&self, name: &str) -> Result<MatrixReader> {
        let entry = self.entry(name)?;
        let expected = "a 2-dimensional tensor of f16, bf16, f32 or f64, at least 1 by 1";
        match (&entry.shape[..], entry.element.float()) {
            (&[rows, cols], Some(dtype)) if rows > 0 && cols > 0 => {
                self.reader(entry, rows, cols, dtype)
            }
            _ => Err(self.mismatch(entry, expected)),
        }
    }

    /// Opens a reader of a tensor of floats with any number of axes, whose rows go along the last one, with the shape.
    ///
    /// # Errors
    /// If it is missing, has another element type, or no axis or no value.
    #[cfg(feature = "report")]
    pub fn stack(&self, name: &str) -> Result<(Vec<usize>, MatrixReader)> {
        let entry = self.entry(name)?;
        let fault = || self.mismatch(entry, "a tensor of f16, bf16, f32 or f64, not empty");
        let extents = entry
            .shape
            .iter()
            .map(|&extent| usize::try_from(extent).ok());
        let shape: Vec<usize> = extents.collect::<Option<_>>().ok_or_else(fault)?;
        let count = product(&entry.shape).filter(|&count| count > 0);
        match (entry.shape.last(), count, entry.element.float()) {
            (Some(&cols), Some(count), Some(dtype)) => {
                Ok((shape, self.reader(entry, count / cols, cols, dtype)?))
            }
            _ => Err(fault()),
        }
    }

    /// Opens a reader of a one-dimensional tensor of i64, i32 or u8.
    ///
    /// # Errors
    /// If it is missing, or has another rank or element type.
    pub fn labels(&self, name: &str) -> Result<LabelReader> {
        let entry = self.entry(name)?;
        let width = match entry.element {
            Element::I64 => Some(Width::I64),
            Element::I32 => Some(Width::I32),
            Element::U8 => Some(Width::U8),
            _ => None,
        };
        match (&entry.shape[..], width) {
            (&[len], Some(width)) => Ok(LabelReader {
                source: Arc::clone(&self.source),
                name: self.display_name(entry),
                begin: entry.begin,
                len,
                width,
            }),
            _ => Err(self.mismatch(entry, "a 1-dimensional tensor of i64, i32 or u8")),
        }
    }

    /// Fails if the file was written to, truncated, replaced or removed since it was opened.
    ///
    /// It compares length, time of modification, device and inode, of the open handle and of what is now at the path.
    /// A writer that restores the time of modification goes unseen.
    pub fn unchanged(&self) -> Result<()> {
        self.source.unchanged()
    }

    /// Returns a fingerprint that tells this file from others wherever it lies: a digest of its length and of pieces
    /// spread evenly over it, all of it when it is small. Two files that differ in a few values only may have the same.
    pub fn fingerprint(&self) -> Result<String> {
        const PIECES: u64 = 256;
        const PIECE: u64 = 4096;
        let len = self.source.len();
        let mut digest = Digest::new();
        digest.add(&len.to_le_bytes());
        let mut bytes = vec![0; PIECE as usize];
        let mut piece = |begin: u64| {
            let count = PIECE.min(len - begin) as usize;
            self.source.read_exact_at(&mut bytes[..count], begin)?;
            digest.add(&bytes[..count]);
            Ok::<(), Error>(())
        };
        if len <= PIECES * PIECE {
            (0..len).step_by(PIECE as usize).try_for_each(&mut piece)?;
        } else {
            // The first is at the start, where the header is, and the last at the end.
            let last = u128::from(len - PIECE);
            for i in 0..PIECES {
                piece((last * u128::from(i) / u128::from(PIECES - 1)) as u64)?;
            }
        }
        Ok(digest.text())
    }

    /// A one-dimensional tensor of floats, as a matrix of one row.
    fn vector(&self, name: &str) -> Result<MatrixReader> {
        let entry = self.entry(name)?;
        match (&entry.shape[..], entry.element.float()) {
            (&[len], Some(dtype)) if len > 0 => self.reader(entry, 1, len, dtype),
            _ => Err(self.mismatch(
                entry,
                "a 1-dimensional tensor of f16, bf16, f32 or f64, not empty",
            )),
        }
    }

    fn reader(&self, entry: &Entry, rows: u64, cols: u64, dtype: Dtype) -> Result<MatrixReader> {
        let cols =
            usize::try_from(cols).map_err(|_| self.mismatch(entry, "a row that fits in memory"))?;
        Ok(MatrixReader {
            source: Arc::clone(&self.source),
            name: self.display_name(entry),
            begin: entry.begin,
            rows,
            cols,
            dtype,
        })
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let found = if self.named {
            self.entries.iter().find(|entry| entry.name == name)
        } else {
            self.entries.first()
        };
        found.ok_or_else(|| {
            // A checkpoint of a network can have thousands.
            const LISTED: usize = 12;
            let names = self.tensor_names();
            let mut list: Vec<String> = names
                .iter()
                .take(LISTED)
                .map(|name| format!("`{}`", shown(name, 80)))
                .collect();
            if names.len() > LISTED {
                list.push(format!("{} more", names.len() - LISTED));
            }
            let holds = if list.is_empty() {
                "no tensors".to_owned()
            } else {
                list.join(", ")
            };
            Error::format(
                self.path(),
                format!("no tensor `{name}`; the file has {holds}"),
                format!("a tensor `{name}`"),
            )
        })
    }

    fn display_name(&self, entry: &Entry) -> String {
        if self.named {
            entry.name.clone()
        } else {
            "array".to_owned()
        }
    }

    fn mismatch(&self, entry: &Entry, expected: &str) -> Error {
        Error::format(
            self.path(),
            format!(
                "`{}` is {} {}",
                shown(&self.display_name(entry), 80),
                entry.element.name(),
                shape_text(&entry.shape)
            ),
            expected,
        )
    }
}

/// Reads rows of a matrix in a file.
#[derive(Clone, Debug)]
pub struct MatrixReader {
    source: Arc<Source>,
    name: String,
    begin: u64,
    rows: u64,
    cols: usize,
    dtype: Dtype,
}

impl MatrixReader {
    /// Returns the number of rows, at least 1.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the number of columns, at least 1.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the storage type of the values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the name of the tensor; `array` in a `.npy` file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads rows `start..start + count` into `buffer`, in the precision of the file. Values are not looked at;
    /// [`Rows::first_not_finite`] does that.
    ///
    /// # Panics
    /// If the range goes beyond the matrix.
    pub fn read(&self, start: u64, count: usize, buffer: &mut RowBuffer) -> Result<()> {
        check_range(start, count, self.rows);
        let offset = self.begin + start * self.cols as u64 * self.dtype.size() as u64;
        let bytes = buffer.prepare(self.dtype, count, self.cols);
        let read = self.source.read_exact_at(bytes, offset);
        if read.is_err() {
            // What was read so far must not be taken for rows.
            buffer.prepare(self.dtype, 0, self.cols);
        }
        read
    }

    /// Returns the error for a value of this matrix that is not finite.
    pub fn not_finite(&self, row: u64, column: usize, value: f64) -> Error {
        Error::NotFinite {
            path: self.path().to_owned(),
            tensor: self.name.clone(),
            row,
            column,
            value,
        }
    }

    /// Returns the whole matrix in f64; every value must be finite. For small matrices: heads, targets of a few rows.
    pub fn to_matrix(&self) -> Result<Matrix> {
        const BATCH_BYTES: usize = 1 << 20;
        let batch = (BATCH_BYTES / (self.cols * self.dtype.size()).max(1)).max(1);
        let mut values = Vec::new();
        let mut buffer = RowBuffer::new();
        let mut start = 0;
        while start < self.rows {
            let count = (self.rows - start).min(batch as u64) as usize;
            self.read(start, count, &mut buffer)?;
            let rows = buffer.rows();
            if let Some((row, column, value)) = rows.first_not_finite() {
                return Err(self.not_finite(start + row as u64, column, value));
            }
            let end = values.len();
            values.resize(end + count * self.cols, 0.0);
            for (i, row) in values[end..].chunks_exact_mut(self.cols).enumerate() {
                rows.widen_row(i, row);
            }
            start += count as u64;
        }
        Ok(Matrix::from_vec(self.rows as usize, self.cols, values))
    }
}

fn check_range(start: u64, count: usize, len: u64) {
    assert!(
        start
            .checked_add(count as u64)
            .is_some_and(|end| end <= len),
        "{count} rows from row {start} of {len}"
    );
}

/// A reusable batch of rows, in the precision of the file that they were read from.
#[derive(Clone, Debug)]
pub struct RowBuffer {
    rows: usize,
    cols: usize,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Default for RowBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl RowBuffer {
    /// Creates an empty buffer; it takes its type and size from what is read into it.
    pub fn new() -> Self {
        Self {
            rows: 0,
            cols: 0,
            values: Values::F32(Vec::new()),
        }
    }

    /// Returns the rows of the last read that succeeded; none after one that failed.
    pub fn rows(&self) -> Rows<'_> {
        match &self.values {
            Values::F16(values) => Rows::new(self.rows, self.cols, values.as_slice()),
            Values::Bf16(values) => Rows::new(self.rows, self.cols, values.as_slice()),
            Values::F32(values) => Rows::new(self.rows, self.cols, values.as_slice()),
            Values::F64(values) => Rows::new(self.rows, self.cols, values.as_slice()),
        }
    }

    /// Takes on a type and a shape, and gives the bytes to be filled. Memory is kept where it can be.
    fn prepare(&mut self, dtype: Dtype, rows: usize, cols: usize) -> &mut [u8] {
        fn resize<T: bytemuck::Pod>(values: &mut Vec<T>, len: usize) -> &mut [u8] {
            // Exact: a batch is large, and doubling it would show in the peak.
            values.reserve_exact(len.saturating_sub(values.len()));
            values.resize(len, T::zeroed());
            bytemuck::cast_slice_mut(values)
        }
        let same_type = matches!(
            (&self.values, dtype),
            (Values::F16(_), Dtype::F16)
                | (Values::Bf16(_), Dtype::Bf16)
                | (Values::F32(_), Dtype::F32)
                | (Values::F64(_), Dtype::F64)
        );
        if !same_type {
            self.values = match dtype {
                Dtype::F16 => Values::F16(Vec::new()),
                Dtype::Bf16 => Values::Bf16(Vec::new()),
                Dtype::F32 => Values::F32(Vec::new()),
                Dtype::F64 => Values::F64(Vec::new()),
            };
        }
        (self.rows, self.cols) = (rows, cols);
        let len = rows * cols;
        match &mut self.values {
            Values::F16(values) => resize(values, len),
            Values::Bf16(values) => resize(values, len),
            Values::F32(values) => resize(values, len),
            Values::F64(values) => resize(values, len),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Width {
    I64,
    I32,
    U8,
}

/// Reads class labels from a file.
#[derive(Clone, Debug)]
pub struct LabelReader {
    source: Arc<Source>,
    name: String,
    begin: u64,
    len: u64,
    width: Width,
}

impl LabelReader {
    /// Returns the number of labels.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the name of the tensor; `array` in a `.npy` file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Replaces the contents of `labels` by the labels `start..start + count`, widened to i64.
    ///
    /// # Panics
    /// If the range goes beyond the labels.
    pub fn read(&self, start: u64, count: usize, labels: &mut Vec<i64>) -> Result<()> {
        check_range(start, count, self.len);
        labels.clear();
        let read = match self.width {
            Width::I64 => {
                labels.resize(count, 0);
                let bytes = bytemuck::cast_slice_mut(labels);
                self.source.read_exact_at(bytes, self.begin + 8 * start)
            }
            Width::I32 => self.widen::<i32>(start, count, labels),
            Width::U8 => self.widen::<u8>(start, count, labels),
        };
        if read.is_err() {
            labels.clear();
        }
        read
    }

    fn widen<T: bytemuck::Pod + Into<i64>>(
        &self,
        start: u64,
        count: usize,
        labels: &mut Vec<i64>,
    ) -> Result<()> {
        let mut narrow = vec![T::zeroed(); count];
        let bytes = bytemuck::cast_slice_mut(&mut narrow);
        let offset = self.begin + size_of::<T>() as u64 * start;
        self.source.read_exact_at(bytes, offset)?;
        labels.extend(narrow.into_iter().map(Into::into));
        Ok(())
    }
}
