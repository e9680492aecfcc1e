//! PyTorch's checkpoints, `.pth` and `.th`, in every layout that `torch.save` has had.
//!
//! From 1.6 on a ZIP archive ([`zip`]), from 0.1.10 on pickles with the storages behind them, before that a tar archive
//! ([`tar`]). A [`pickle`] describes the saved object; the values of its tensors lie in the file as they are.
//!
//! A stranger's file is read with nothing but checks of its own. What it takes in memory while it is open:
//!
//! - its descriptions (pickles of at most 128 MiB, directory), which are in the file as they are, and four times the
//!   directory, of at most 64 MiB, for its entries;
//! - up to 128 bytes for each pickle opcode, of which there may be 2 097 152, so 256 MiB at worst;
//! - names and shapes of the tensors that are asked for, of which there may be 65 536, so 96 MiB at worst;
//! - one tensor at a time in the precision of the file, where it does not lie there row by row; else 64 KiB.
//!
//! Nothing is compressed, no two entries share a byte, and the tensors together may not declare more than the file has:
//! in f32 they are at most twice the file, when it is all f16. Strided tensors may reach over eight times its length,
//! which bounds the time.

mod pickle;
mod tar;
mod zip;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use self::pickle::{Fault, Ids, Kind, LONGEST, MOST_OPCODES, Pickle};
use super::shown;
use super::tensors::{Source, append_f32};
use crate::{Error, Result};

const EXPECTED: &str = "a checkpoint written by torch.save";
/// The number that a file of pickles and storages begins with, as protocol 2 writes it.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// Version of that layout.
const LAYOUT: i64 = 1001;
const TAR_MAGIC_AT: usize = 257;
const TAR_MAGIC: &[u8] = b"ustar";
/// Lengths of the file that its tensors may reach over together.
const MOST_REACH: u64 = 8;

/// Bytes that [`is_pytorch`] wants to see.
pub(super) const START: u64 = TAR_MAGIC_AT as u64 + 5;

/// Tells a PyTorch file by its first bytes: a zip archive, a pickle or a tar archive.
pub(super) fn is_pytorch(start: &[u8]) -> bool {
    let is_pickle = matches!(start, [0x80, 2..=5, ..]);
    // A safetensors file begins with a length and `{`; with a length of 640 it would look like a pickle.
    let is_json = start.get(8) == Some(&b'{');
    is_zip(start) || (is_pickle && !is_json) || is_tar(start)
}

fn is_zip(start: &[u8]) -> bool {
    start.starts_with(b"PK\x03\x04")
}

fn is_tar(start: &[u8]) -> bool {
    start.get(TAR_MAGIC_AT..) == Some(TAR_MAGIC)
}

/// Where the values of a tensor lie. They are within the file.
#[derive(Clone, Debug)]
pub(super) struct View {
    kind: Kind,
    shape: Vec<usize>,
    strides: Vec<u64>,
    /// Offset of the first value.
    begin: u64,
    count: u64,
    /// Bytes from the first value to the end of the one that lies last.
    window: u64,
}

impl View {
    /// Checks that a tensor lies within its storage, which has `reach` elements from byte `storage` on.
    fn new(
        kind: Kind,
        shape: Vec<u64>,
        strides: Vec<u64>,
        offset: u64,
        storage: u64,
        reach: u64,
    ) -> Result<Self, String> {
        if shape.len() != strides.len() {
            return Err("its shape and strides are of different lengths".into());
        }
        let count = shape
            .iter()
            .try_fold(1_u64, |n, &extent| n.checked_mul(extent));
        let count = count.filter(|&n| n.checked_mul(kind.size).is_some());
        let shape_of_host: Option<Vec<usize>> = shape
            .iter()
            .map(|&extent| usize::try_from(extent).ok())
            .collect();
        let too_large = || format!("its shape {shape:?} overflows");
        let (Some(count), Some(shape_of_host)) = (count, shape_of_host) else {
            return Err(too_large());
        };
        // One past the last element that it touches.
        let mut end = offset;
        if count > 0 {
            let mut steps = shape.iter().zip(&strides);
            let last = steps.try_fold(offset, |last, (&extent, &stride)| {
                last.checked_add((extent - 1).checked_mul(stride)?)
            });
            end = last
                .and_then(|last| last.checked_add(1))
                .ok_or_else(too_large)?;
        }
        if end > reach {
            return Err(format!(
                "its shape {shape:?} ends at element {end} of a storage of {reach}"
            ));
        }
        Ok(Self {
            kind,
            shape: shape_of_host,
            strides,
            begin: storage + offset * kind.size,
            count,
            window: (end - offset) * kind.size,
        })
    }

    fn is_row_by_row(&self) -> bool {
        let mut expected = 1;
        let steps = self.shape.iter().zip(&self.strides).rev();
        steps.into_iter().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent as u64;
            fits
        })
    }
}

/// A named tensor of a checkpoint.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    view: View,
}

impl Tensor {
    pub(super) fn shape(&self) -> &[usize] {
        &self.view.shape
    }
}

/// An opened checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    source: Source,
    /// By ascending name.
    pub(super) tensors: Vec<Tensor>,
}

impl Checkpoint {
    /// Opens a checkpoint and finds the tensors of its state dictionary: under the first of `keys` that the saved object
    /// has such a dictionary under, or the whole object. Names that end with `skipped` are left out.
    pub(super) fn open(path: &Path, keys: &[&str], skipped: &str) -> Result<Self> {
        let source = Source::open(path)?;
        let mut reading = Reading {
            source: &source,
            opcodes_left: MOST_OPCODES,
        };
        let mut start = vec![0; START.min(source.len()) as usize];
        source.read_exact_at(&mut start, 0)?;
        let (object, locate) = if is_zip(&start) {
            reading.zip()?
        } else if is_tar(&start) {
            let (object, views) = tar::read(&mut reading)?;
            (object, Storages::Views(views))
        } else {
            reading.stream()?
        };
        let fault = |problem: String| Error::format(path, problem, EXPECTED);
        let mut named = object.state_dict(keys).map_err(fault)?;
        named.retain(|(name, _)| !name.ends_with(skipped));
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = shown(&pair[0].0, 80);
            return Err(fault(format!("two tensors are called `{name}`")));
        }
        let mut tensors = Vec::new();
        let mut used = BTreeSet::new();
        for (name, index) in named {
            let view = match &locate {
                Storages::Views(views) => views[index as usize].clone(),
                Storages::Extents(extents) => object
                    .view(index, |key| {
                        let extent = extents.get(key)?;
                        used.insert((extent.begin, extent.len, extent.crc));
                        Some((extent.begin, extent.len))
                    })
                    .map_err(|problem| {
                        fault(format!("tensor `{}`: {problem}", shown(&name, 80)))
                    })?,
            };
            tensors.push(Tensor { name, view });
        }
        // Views can declare more than is stored, and a network has no use for them.
        let sum = |bytes: &dyn Fn(&View) -> u64| {
            tensors
                .iter()
                .try_fold(0_u64, |sum, tensor| sum.checked_add(bytes(&tensor.view)))
        };
        let within = |sum: Option<u64>, lengths: u64| {
            sum.is_some_and(|sum| sum <= source.len().saturating_mul(lengths))
        };
        let declared = sum(&|view| view.count * view.kind.size);
        if !within(declared, 1) || !within(sum(&|view| view.window), MOST_REACH) {
            return Err(Error::format(
                path,
                "the tensors are larger than the file",
                "tensors that are stored whole and uncompressed, as torch.save does",
            ));
        }
        for (begin, len, crc) in used {
            reading.checksum(begin, len, crc)?;
        }
        Ok(Self { source, tensors })
    }

    /// Returns the values of a tensor of floats, row by row.
    pub(super) fn values(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let view = &tensor.view;
        let Some(dtype) = view.kind.element.float() else {
            return Err(Error::format(
                self.source.path(),
                format!(
                    "`{}` is {} {:?}",
                    shown(&tensor.name, 80),
                    view.kind.element.name(),
                    view.shape
                ),
                "a tensor of f16, bf16, f32 or f64",
            ));
        };
        let mut values = Vec::with_capacity(view.count as usize);
        if view.count == 0 {
            return Ok(values);
        }
        if view.is_row_by_row() {
            self.source.pieces(view.begin, view.window, |piece| {
                append_f32(dtype, piece, &mut values);
            })?;
            return Ok(values);
        }
        let mut window = vec![0; view.window as usize];
        self.source.read_exact_at(&mut window, view.begin)?;
        let size = view.kind.size as usize;
        let mut index = vec![0; view.shape.len()];
        let mut at = 0;
        for _ in 0..view.count {
            append_f32(dtype, &window[at..at + size], &mut values);
            // The next index, the last axis fastest.
            for axis in (0..index.len()).rev() {
                if view.shape[axis] == 1 {
                    continue;
                }
                let step = view.strides[axis] as usize * size;
                index[axis] += 1;
                at += step;
                if index[axis] < view.shape[axis] {
                    break;
                }
                at -= step * index[axis];
                index[axis] = 0;
            }
        }
        Ok(values)
    }

    /// Fails if the file changed since it was opened.
    pub(super) fn unchanged(&self) -> Result<()> {
        self.source.unchanged()
    }
}

/// A storage of the file.
struct Extent {
    begin: u64,
    len: u64,
    /// 0 where there is none.
    crc: u32,
}

/// Where the tensors of an object are: found already, or by the keys of their storages.
enum Storages {
    Views(Vec<View>),
    Extents(HashMap<String, Extent>),
}

/// A file that is being read.
struct Reading<'a> {
    source: &'a Source,
    opcodes_left: u64,
}

impl Reading<'_> {
    fn fault(&self, problem: impl Into<String>) -> Error {
        Error::format(self.source.path(), problem, EXPECTED)
    }

    fn beyond(&self, key: &str) -> Error {
        let key = shown(key, 40);
        self.fault(format!("truncated: storage `{key}` goes beyond the file"))
    }

    fn number(&self, at: u64, end: u64) -> Result<i64> {
        if at.checked_add(8).is_none_or(|after| after > end) {
            return Err(self.fault("truncated: the file ends within a number"));
        }
        let mut bytes = [0; 8];
        self.source.read_exact_at(&mut bytes, at)?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// Reads the pickle at `at`, which ends at `end` at the latest. More and more is read until it is whole.
    fn pickle(&mut self, at: u64, end: u64, ids: &Ids<'_>) -> Result<Pickle> {
        const FIRST: u64 = 4096;
        let most = end.saturating_sub(at).min(LONGEST);
        let mut length = FIRST.min(most);
        loop {
            let mut bytes = vec![0; length as usize];
            self.source.read_exact_at(&mut bytes, at)?;
            let mut left = self.opcodes_left;
            match Pickle::read(bytes, ids, &mut left) {
                Ok(pickle) => {
                    self.opcodes_left = left;
                    return Ok(pickle);
                }
                Err(Fault::Ended) if length < most => length = length.saturating_mul(32).min(most),
                Err(Fault::Ended) if most == LONGEST => {
                    return Err(self.fault(format!("a pickle of more than {LONGEST} bytes")));
                }
                Err(Fault::Ended) => return Err(self.fault("truncated: a pickle without an end")),
                Err(Fault::Bad(problem)) => return Err(self.fault(problem)),
            }
        }
    }

    fn little_endian(&self, about: &Pickle) -> Result<()> {
        match about.truth("little_endian") {
            Some(true) => Ok(()),
            Some(false) => Err(self.fault("numbers with the most significant byte first")),
            None => Err(self.fault("it does not say how its numbers are stored")),
        }
    }

    fn checksum(&self, begin: u64, len: u64, crc: u32) -> Result<()> {
        let mut found = flate2::Crc::new();
        if crc == 0 {
            return Ok(());
        }
        self.source
            .pieces(begin, len, |piece| found.update(piece))?;
        if found.sum() == crc {
            return Ok(());
        }
        Err(self.fault(format!(
            "damaged: the checksum of bytes {begin} to {} is another",
            begin + len
        )))
    }

    /// The layout since 1.6.
    fn zip(&mut self) -> Result<(Pickle, Storages)> {
        let archive = zip::Archive::open(self.source)?;
        let root = archive.root();
        let root = root.ok_or_else(|| self.fault("no data.pkl in the ZIP archive"))?;
        if let Some(order) = archive.get(&format!("{root}byteorder")) {
            let mut text = vec![0; order.len.min(16) as usize];
            self.source.read_exact_at(&mut text, order.begin)?;
            if text.trim_ascii() != b"little" {
                return Err(self.fault("numbers with the most significant byte first"));
            }
        }
        let object = archive.get(&format!("{root}data.pkl"));
        let object = object.ok_or_else(|| self.fault("no data.pkl in the ZIP archive"))?;
        if object.len > LONGEST {
            return Err(self.fault(format!("a pickle of {} bytes", object.len)));
        }
        self.checksum(object.begin, object.len, object.crc)?;
        let object = self.pickle(object.begin, object.begin + object.len, &Ids::Storages)?;
        let mut extents = HashMap::new();
        for storage in object.storages() {
            let (key, len, _) = storage.ok_or_else(|| self.fault("a storage without a name"))?;
            let entry = archive.get(&format!("{root}data/{key}"));
            if let Some(entry) = entry {
                if len > entry.len {
                    return Err(self.beyond(&key));
                }
                let extent = Extent {
                    begin: entry.begin,
                    len: entry.len,
                    crc: entry.crc,
                };
                extents.insert(key, extent);
            }
        }
        Ok((object, Storages::Extents(extents)))
    }

    /// The layout from 0.1.10 to 1.5: magic number, version, system, object and keys as pickles, then storages.
    fn stream(&mut self) -> Result<(Pickle, Storages)> {
        let end = self.source.len();
        let mut at = 0;
        let mut next = |reading: &mut Self, ids: &Ids<'_>| {
            let pickle = reading.pickle(at, end, ids)?;
            at += pickle.length as u64;
            Ok::<_, Error>((pickle, at))
        };
        let (_, magic_end) = next(self, &Ids::None)?;
        let mut magic = vec![0; magic_end.min(64) as usize];
        self.source.read_exact_at(&mut magic, 0)?;
        if !magic.windows(MAGIC.len()).any(|bytes| bytes == MAGIC) {
            return Err(self.fault("a Python pickle, but not one of torch.save"));
        }
        if next(self, &Ids::None)?.0.integer() != Some(LAYOUT) {
            return Err(self.fault(format!("a layout of another version than {LAYOUT}")));
        }
        let about = next(self, &Ids::None)?.0;
        self.little_endian(&about)?;
        let object = next(self, &Ids::Storages)?.0;
        let (keys, mut at) = next(self, &Ids::None)?;
        let fault = || self.fault("no list of its storages");

        let mut sizes = HashMap::new();
        for storage in object.storages() {
            let (key, len, size) = storage.ok_or_else(|| self.fault("a storage without a name"))?;
            let known = sizes.entry(key).or_insert((len, size));
            if *known != (len, size) {
                return Err(self.fault("a storage of two lengths"));
            }
        }
        let mut extents = HashMap::new();
        for &key in keys.list().ok_or_else(fault)? {
            let key = keys.name(key).ok_or_else(fault)?;
            let Some(&(len, size)) = sizes.get(&key) else {
                let key = shown(&key, 40);
                return Err(self.fault(format!("storage `{key}` belongs to no tensor")));
            };
            let begin = at.checked_add(8);
            let end = begin.and_then(|begin| begin.checked_add(len));
            let (Some(begin), Some(end)) = (begin, end.filter(|&end| end <= self.source.len()))
            else {
                return Err(self.beyond(&key));
            };
            if self.number(at, end)? != (len / size) as i64 {
                let key = shown(&key, 40);
                return Err(self.fault(format!("storage `{key}` is of another length")));
            }
            at = end;
            if extents.insert(key, Extent { begin, len, crc: 0 }).is_some() {
                return Err(self.fault("a storage that is listed twice"));
            }
        }
        Ok((object, Storages::Extents(extents)))
    }
}
