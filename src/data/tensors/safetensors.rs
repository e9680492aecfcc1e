//! The safetensors format: eight bytes of header length, a JSON header, and the values of all tensors end to end.
//!
//! Reading: [`TensorFile`](super::TensorFile) passes the header here, and nothing but the header, so that opening a
//! file of any size costs the same: at most eight times the bytes of its header, which is no longer than the file or than
//! 100 MB. Every offset is checked against the file before a reader is made from it.
//! Writing: [`to_safetensors`] turns results into the bytes of a file; equal input gives equal bytes.
//!
//! ```
//! use muso::data::{OutTensor, to_safetensors};
//! use muso::engine::{Dtype, Matrix};
//! let weight = Matrix::from_vec(1, 2, vec![0.5, -1.0]);
//! let bytes = to_safetensors(&[("weight", OutTensor::Matrix { values: &weight, dtype: Dtype::F32 })])?;
//! let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
//! assert_eq!(file.tensor("weight").unwrap().shape(), [1, 2]);
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::source::Source;
use super::{Element, Entry, shown};
use crate::engine::{Dtype, Matrix, Rows};
use crate::{Error, Result};

/// The format's own limit.
const LONGEST_HEADER: u64 = 100_000_000;
/// Axes that a tensor can have; NumPy's limit.
const MOST_AXES: usize = 64;
const LENGTH_BYTES: u64 = 8;
const METADATA: &str = "__metadata__";

/// Element type of each name that the format knows, and its bits.
const ELEMENTS: &[(&str, Element, u64)] = &[
    ("F64", Element::F64, 64),
    ("F32", Element::F32, 32),
    ("F16", Element::F16, 16),
    ("BF16", Element::Bf16, 16),
    ("I64", Element::I64, 64),
    ("I32", Element::I32, 32),
    ("U8", Element::U8, 8),
    ("U64", Element::Other("u64"), 64),
    ("U32", Element::Other("u32"), 32),
    ("I16", Element::Other("i16"), 16),
    ("U16", Element::Other("u16"), 16),
    ("I8", Element::Other("i8"), 8),
    ("BOOL", Element::Other("bool"), 8),
    ("C64", Element::Other("c64"), 64),
    ("F8_E5M2", Element::Other("f8_e5m2"), 8),
    ("F8_E4M3", Element::Other("f8_e4m3"), 8),
    ("F8_E8M0", Element::Other("f8_e8m0"), 8),
    ("F8_E4M3FNUZ", Element::Other("f8_e4m3fnuz"), 8),
    ("F8_E5M2FNUZ", Element::Other("f8_e5m2fnuz"), 8),
    ("F6_E2M3", Element::Other("f6_e2m3"), 6),
    ("F6_E3M2", Element::Other("f6_e3m2"), 6),
    ("F4", Element::Other("f4"), 4),
];

/// The tensors of a file that is not `.npy`.
pub(super) fn entries(source: &Source) -> Result<(Vec<Entry>, Metadata)> {
    let path = source.path();
    let fault = |problem: String| Error::format(path, problem, "a whole safetensors or .npy file");
    let Some(after_length) = source.len().checked_sub(LENGTH_BYTES) else {
        return Err(fault(format!("truncated: {} bytes", source.len())));
    };
    let mut start = [0; LENGTH_BYTES as usize];
    source.read_exact_at(&mut start, 0)?;
    let mut brace = [0; 1];
    if after_length > 0 {
        source.read_exact_at(&mut brace, LENGTH_BYTES)?;
    }
    // The length of a header may have the bytes that another format begins with; no other has a brace behind them.
    if brace != *b"{"
        && let Some(kind) = other_format(&start)
    {
        return Err(fault(format!("this is {kind}")));
    }
    let header_len = u64::from_le_bytes(start);
    if header_len > LONGEST_HEADER {
        return Err(fault(format!(
            "not a safetensors file: its first 8 bytes declare a header of {header_len} bytes"
        )));
    }
    if header_len > after_length {
        return Err(fault(format!(
            "truncated, or not a safetensors file: a header of {header_len} bytes is declared and {after_length} follow"
        )));
    }
    let mut header = vec![0; header_len as usize];
    source.read_exact_at(&mut header, LENGTH_BYTES)?;
    if header.first() != Some(&b'{') {
        return Err(fault(
            "not a safetensors file: the header does not begin with `{`".to_owned(),
        ));
    }
    let header: Header = serde_json::from_slice(&header)
        .map_err(|e| fault(format!("bad header: {}", shown(&e.to_string(), 160))))?;
    let entries = layout(
        path,
        header.tensors,
        after_length - header_len,
        LENGTH_BYTES + header_len,
    )?;
    Ok((entries, header.metadata))
}

/// Checks that the tensors lie end to end and fill the file, and makes their offsets absolute.
fn layout(
    path: &Path,
    mut tensors: Vec<(String, Described)>,
    data_len: u64,
    data_start: u64,
) -> Result<Vec<Entry>> {
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(pair) = tensors.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::format(
            path,
            format!("the header names `{}` twice", shown(&pair[0].0, 80)),
            "every tensor once",
        ));
    }
    tensors.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let mut entries = Vec::with_capacity(tensors.len());
    let mut filled = 0;
    for (name, tensor) in tensors {
        let fault = |problem: String, expected: String| {
            Error::format(
                path,
                format!("tensor `{}` {problem}", shown(&name, 80)),
                expected,
            )
        };
        let (begin, end) = tensor.data_offsets;
        if begin != filled || end < begin {
            return Err(fault(
                format!("is at bytes {begin} to {end}"),
                format!("tensors end to end, this one from {filled}"),
            ));
        }
        filled = end;
        let Some(&(_, element, bits)) = ELEMENTS.iter().find(|known| known.0 == tensor.dtype)
        else {
            return Err(fault(
                format!("has the unknown dtype `{}`", shown(&tensor.dtype, 40)),
                "a dtype of the safetensors format".to_owned(),
            ));
        };
        let size = super::product(&tensor.shape.0)
            .and_then(|count| count.checked_mul(bits))
            .filter(|bits| bits % 8 == 0)
            .map(|bits| bits / 8);
        if size != Some(end - begin) {
            return Err(fault(
                format!(
                    "of {} {} has {} bytes",
                    element.name(),
                    super::shape_text(&tensor.shape.0),
                    end - begin
                ),
                match size {
                    Some(size) => format!("{size} bytes"),
                    None => "a whole number of bytes below 2^61".to_owned(),
                },
            ));
        }
        entries.push(Entry {
            name,
            element,
            shape: tensor.shape.0,
            begin,
        });
    }
    if filled != data_len {
        return Err(Error::format(
            path,
            format!(
                "{}: {data_len} bytes follow the header",
                if data_len < filled {
                    "truncated"
                } else {
                    "trailing bytes"
                }
            ),
            format!("{filled} bytes of tensors"),
        ));
    }
    for entry in &mut entries {
        entry.begin += data_start;
    }
    Ok(entries)
}

fn other_format(start: &[u8; 8]) -> Option<&'static str> {
    match start {
        [b'P', b'K', 3, 4, ..] => Some("a zip archive (.npz, or a PyTorch checkpoint)"),
        [0x80, 2..=5, ..] => Some("a Python pickle"),
        [0x1f, 0x8b, ..] => Some("gzip-compressed"),
        [0x89, b'H', b'D', b'F', ..] => Some("an HDF5 file"),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Described {
    dtype: String,
    shape: Extents,
    data_offsets: (u64, u64),
}

/// A shape, of which no more is kept than a tensor can have.
struct Extents(Vec<u64>);

impl<'de> Deserialize<'de> for Extents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Axes;
        impl<'de> Visitor<'de> for Axes {
            type Value = Extents;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MOST_AXES} extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Extents, A::Error> {
                let mut extents = Vec::new();
                while let Some(extent) = list.next_element()? {
                    if extents.len() == MOST_AXES {
                        return Err(de::Error::invalid_length(MOST_AXES + 1, &self));
                    }
                    extents.push(extent);
                }
                Ok(Extents(extents))
            }
        }
        deserializer.deserialize_seq(Axes)
    }
}

/// The texts among some values. The format allows no others, but a file with more is no worse for its tensors.
struct Texts(Metadata);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = Metadata::new();
                while let Some(name) = map.next_key::<String>()? {
                    if let Text(Some(text)) = map.next_value()? {
                        texts.insert(name, text);
                    }
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_map(Values)
    }
}

/// A text, or `None` where something else is, of which nothing is kept.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;
        impl<'de> Visitor<'de> for Anything {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(Some(text.to_owned())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
                Ok(Text(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Text, E> {
                Ok(Text(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Text, E> {
                Ok(Text(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Text, E> {
                Ok(Text(None))
            }

            fn visit_unit<E>(self) -> Result<Text, E> {
                Ok(Text(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Text, A::Error> {
                IgnoredAny.visit_seq(list)?;
                Ok(Text(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
                IgnoredAny.visit_map(map)?;
                Ok(Text(None))
            }
        }
        deserializer.deserialize_any(Anything)
    }
}

/// Texts that a file carries beside its tensors.
pub(super) type Metadata = BTreeMap<String, String>;

struct Header {
    /// Tensors in the order of the file and with repeated names, which a map type would hide.
    tensors: Vec<(String, Described)>,
    metadata: Metadata,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tensor names to dtype, shape and data_offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let (mut tensors, mut metadata) = (Vec::new(), Metadata::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        let Texts(texts) = map.next_value()?;
                        metadata.extend(texts);
                    } else {
                        tensors.push((name, map.next_value()?));
                    }
                }
                Ok(Header { tensors, metadata })
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

/// Values to be written as one tensor.
#[derive(Clone, Copy, Debug)]
pub enum OutTensor<'a> {
    /// Two axes, stored in the given precision.
    Matrix {
        /// Values of the matrix.
        values: &'a Matrix,
        /// Storage type of the values.
        dtype: Dtype,
    },
    /// A vector, stored in the given precision.
    Vector {
        /// Values of the vector.
        values: &'a [f64],
        /// Storage type of the values.
        dtype: Dtype,
    },
    /// A vector of i64, for class labels and row numbers.
    Integers(&'a [i64]),
    /// Any number of axes, stored as f32.
    Array {
        /// The extents; their product is the number of values.
        shape: &'a [usize],
        /// Values in row-major order.
        values: &'a [f32],
    },
}

impl OutTensor<'_> {
    fn shape(&self) -> Vec<usize> {
        match self {
            Self::Matrix { values, .. } => vec![values.rows(), values.cols()],
            Self::Vector { values, .. } => vec![values.len()],
            Self::Integers(values) => vec![values.len()],
            Self::Array { shape, .. } => shape.to_vec(),
        }
    }

    fn element(&self) -> Element {
        match self {
            Self::Matrix { dtype, .. } | Self::Vector { dtype, .. } => (*dtype).into(),
            Self::Integers(_) => Element::I64,
            Self::Array { .. } => Element::F32,
        }
    }

    fn append(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Matrix { values, dtype } => {
                append_narrowed(name, values.as_slice(), values.cols(), *dtype, out)
            }
            Self::Vector { values, dtype } => {
                append_narrowed(name, values, values.len(), *dtype, out)
            }
            Self::Integers(values) => {
                out.extend_from_slice(bytemuck::cast_slice(values));
                Ok(())
            }
            Self::Array { shape, values } => {
                assert_eq!(
                    shape.iter().product::<usize>(),
                    values.len(),
                    "values of `{name}`, shape {shape:?}"
                );
                if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                    let cols = shape.last().copied().unwrap_or(1).max(1);
                    return Err(Error::NotFinite {
                        path: PathBuf::from("output"),
                        tensor: name.to_owned(),
                        row: (index / cols) as u64,
                        column: index % cols,
                        value: values[index].into(),
                    });
                }
                out.extend_from_slice(bytemuck::cast_slice(values));
                Ok(())
            }
        }
    }
}

/// Returns the bytes of a safetensors file with these tensors. They depend on the names and values, not on the order
/// given.
///
/// # Errors
/// If a name is used twice or reserved, or if a value is not finite, or is not once stored as asked: 1e6 in f16.
pub fn to_safetensors(tensors: &[(&str, OutTensor<'_>)]) -> Result<Vec<u8>> {
    to_safetensors_with(tensors, &BTreeMap::new())
}

/// Writes tensors as [`to_safetensors`] does, with texts beside them.
///
/// # Errors
/// As [`to_safetensors`].
pub fn to_safetensors_with(
    tensors: &[(&str, OutTensor<'_>)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let mut tensors: Vec<_> = tensors
        .iter()
        .map(|&(name, tensor)| (name, tensor, storage(tensor.element())))
        .collect();
    // Wide elements first keeps every tensor aligned to its own element, which the format asks writers to do.
    tensors.sort_by_key(|&(name, _, (_, bits))| (std::cmp::Reverse(bits), name));
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.0).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    if let Some(name) = twice
        .map(|pair| pair[0])
        .or(names.iter().find(|&&name| name == METADATA).copied())
    {
        return Err(Error::Parameter {
            name: "tensor name",
            value: format!("`{name}`"),
            expected: format!("names that differ, none of them `{METADATA}`"),
        });
    }

    let mut data = Vec::new();
    for (name, tensor, _) in &tensors {
        tensor.append(name, &mut data)?;
    }
    let described: Vec<_> = tensors
        .iter()
        .map(|(name, tensor, _)| (*name, tensor.element(), tensor.shape()))
        .collect();
    let mut file = header(&described, metadata);
    file.append(&mut data);
    Ok(file)
}

/// Returns the values as they come back from a file that stores them as `dtype`; `name` is what errors call them.
///
/// # Errors
/// As [`to_safetensors`].
pub fn rounded(name: &str, values: &Matrix, dtype: Dtype) -> Result<Matrix> {
    let (rows, cols) = (values.rows(), values.cols());
    let mut bytes = Vec::new();
    append_narrowed(name, values.as_slice(), cols.max(1), dtype, &mut bytes)?;
    // Collected, since the bytes need not be aligned for a cast.
    Ok(match dtype {
        Dtype::F64 => values.clone(),
        Dtype::F32 => {
            let narrow: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            Rows::new(rows, cols, narrow.as_slice()).to_matrix()
        }
        Dtype::F16 => {
            let narrow: Vec<f16> = bytemuck::pod_collect_to_vec(&bytes);
            Rows::new(rows, cols, narrow.as_slice()).to_matrix()
        }
        Dtype::Bf16 => {
            let narrow: Vec<bf16> = bytemuck::pod_collect_to_vec(&bytes);
            Rows::new(rows, cols, narrow.as_slice()).to_matrix()
        }
    })
}

/// A safetensors file too large to hold: row numbers and a row of values for each, appended batch by batch.
///
/// The caller writes [`RowsWriter::header`], then all row numbers, then all values.
#[derive(Clone, Copy, Debug)]
pub struct RowsWriter {
    /// Number of rows to come.
    pub rows: usize,
    /// Values in a row.
    pub cols: usize,
    /// Storage type of the values.
    pub dtype: Dtype,
}

impl RowsWriter {
    /// The name of the i64 tensor of row numbers.
    pub const ROWS: &'static str = "rows";
    /// The name of the tensor of values.
    pub const VALUES: &'static str = "targets";

    /// Returns the header that the file starts with.
    pub fn header(&self) -> Vec<u8> {
        let tensors = [
            (Self::ROWS, Element::I64, vec![self.rows]),
            (Self::VALUES, self.dtype.into(), vec![self.rows, self.cols]),
        ];
        header(&tensors, &Metadata::new())
    }

    /// Returns the bytes of some of the row numbers.
    pub fn row_numbers(&self, numbers: &[i64]) -> Vec<u8> {
        bytemuck::cast_slice(numbers).to_vec()
    }

    /// Returns the bytes of some of the values.
    ///
    /// # Errors
    /// As [`to_safetensors`].
    pub fn values(&self, values: &Matrix) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        append_narrowed(
            Self::VALUES,
            values.as_slice(),
            self.cols,
            self.dtype,
            &mut out,
        )?;
        Ok(out)
    }
}

/// Length and header of a file with these tensors end to end.
fn header(tensors: &[(&str, Element, Vec<usize>)], metadata: &Metadata) -> Vec<u8> {
    let mut text = String::from("{");
    if !metadata.is_empty() {
        let texts: serde_json::Map<_, _> = metadata
            .iter()
            .map(|(key, text)| (key.clone(), text.clone().into()))
            .collect();
        let texts = serde_json::Value::Object(texts);
        text.push_str(&format!(r#""{METADATA}":{texts}"#));
    }
    let mut begin = 0;
    for (name, element, shape) in tensors {
        let (dtype, bits) = storage(*element);
        let end = begin + shape.iter().map(|&n| n as u64).product::<u64>() * bits / 8;
        if text.len() > 1 {
            text.push(',');
        }
        let described = format!(
            r#"{}:{{"dtype":"{dtype}","shape":{},"data_offsets":[{begin},{end}]}}"#,
            serde_json::Value::from(*name),
            serde_json::Value::from(shape.clone()),
        );
        text.push_str(&described);
        begin = end;
    }
    text.push('}');
    while !text.len().is_multiple_of(LENGTH_BYTES as usize) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn storage(element: Element) -> (&'static str, u64) {
    ELEMENTS
        .iter()
        .find(|known| known.1 == element)
        .map_or(("U8", 8), |&(name, _, bits)| (name, bits))
}

/// Rounds to nearest, ties to even, in one step.
fn append_narrowed(
    name: &str,
    values: &[f64],
    cols: usize,
    dtype: Dtype,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.reserve(values.len() * dtype.size());
    for (k, &value) in values.iter().enumerate() {
        let (row, column) = (k / cols, k % cols);
        if !value.is_finite() {
            return Err(Error::NotFinite {
                path: PathBuf::from("output"),
                tensor: name.to_owned(),
                row: row as u64,
                column,
                value,
            });
        }
        let fits = match dtype {
            Dtype::F64 => {
                out.extend_from_slice(&value.to_le_bytes());
                true
            }
            Dtype::F32 => {
                let narrow = value as f32;
                out.extend_from_slice(&narrow.to_le_bytes());
                narrow.is_finite()
            }
            Dtype::F16 => {
                let narrow = f16::from_f32(round_to_odd(value));
                out.extend_from_slice(&narrow.to_le_bytes());
                narrow.is_finite()
            }
            Dtype::Bf16 => {
                let narrow = bf16::from_f32(round_to_odd(value));
                out.extend_from_slice(&narrow.to_le_bytes());
                narrow.is_finite()
            }
        };
        if !fits {
            return Err(Error::Parameter {
                name: "dtype",
                value: dtype.name().to_owned(),
                expected: format!(
                    "a type that can hold {value:e}, the value of `{name}` at row {row}, column {column}"
                ),
            });
        }
    }
    Ok(())
}

/// The f32 beside a finite `value` whose last bit is set, or `value` itself if it is an f32.
///
/// Rounding to f32 and then to 16 bits rounds twice, and can land on the wrong side of a tie that the first step made.
/// A set last bit says "not exact", so the second step sees no tie where there was none.
fn round_to_odd(value: f64) -> f32 {
    let nearest = (value as f32).clamp(f32::MIN, f32::MAX);
    let back = f64::from(nearest);
    if back == value || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    if back < value {
        nearest.next_up()
    } else {
        nearest.next_down()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowing_rounds_once() {
        // Just above the tie between two neighbours of 1.0 in each type; f32 cannot tell it from the tie.
        for (step, dtype) in [(2_f64.powi(-10), Dtype::F16), (2_f64.powi(-7), Dtype::Bf16)] {
            let tie = 1.0 + step / 2.0;
            for (value, wanted) in [
                (tie, 1.0),
                (tie + 2_f64.powi(-40), 1.0 + step),
                (tie - 2_f64.powi(-40), 1.0),
                (-tie - 2_f64.powi(-40), -1.0 - step),
                (1.0 + 1.5 * step, 1.0 + 2.0 * step),
                (1.0 + 1.5 * step - 2_f64.powi(-40), 1.0 + step),
            ] {
                assert_eq!(narrowed(value, dtype).unwrap(), wanted, "{value} {dtype:?}");
            }
        }
        // Subnormal results.
        let least = 2_f64.powi(-24);
        assert_eq!(narrowed(least / 2.0, Dtype::F16).unwrap(), 0.0);
        assert_eq!(
            narrowed(least / 2.0 * (1.0 + 1e-15), Dtype::F16).unwrap(),
            least
        );
        let least = 2_f64.powi(-133);
        assert_eq!(narrowed(least / 2.0, Dtype::Bf16).unwrap(), 0.0);
        assert_eq!(
            narrowed(least / 2.0 * (1.0 + 1e-15), Dtype::Bf16).unwrap(),
            least
        );
        assert_eq!(narrowed(1e-320, Dtype::Bf16).unwrap(), 0.0);
        assert_eq!(narrowed(-65504.0, Dtype::F16).unwrap(), -65504.0);
    }

    fn narrowed(value: f64, dtype: Dtype) -> Result<f64> {
        let mut bytes = Vec::new();
        append_narrowed("weight", &[value], 1, dtype, &mut bytes)?;
        Ok(match dtype {
            Dtype::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
            Dtype::Bf16 => bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64(),
            Dtype::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
            Dtype::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        })
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for (value, dtype) in [
            (65520.0, Dtype::F16),
            (1e39, Dtype::F32),
            (3.4e38, Dtype::Bf16),
            (f64::MAX, Dtype::Bf16),
        ] {
            let message = narrowed(value, dtype).unwrap_err().to_string();
            assert!(
                message.contains(dtype.name()) && message.contains("`weight`"),
                "{message}"
            );
        }
        for dtype in [Dtype::F16, Dtype::F64] {
            assert!(matches!(
                narrowed(f64::NAN, dtype),
                Err(Error::NotFinite { .. })
            ));
        }
    }

    #[test]
    fn bytes_do_not_depend_on_the_order_given() {
        let a = ("b", OutTensor::Integers(&[1, -2]));
        let values = [0.5, 1.5, 2.5];
        let b = (
            "a\"\u{7f}ä",
            OutTensor::Vector {
                values: &values,
                dtype: Dtype::F16,
            },
        );
        let bytes = to_safetensors(&[a, b]).unwrap();
        assert_eq!(bytes, to_safetensors(&[b, a]).unwrap());
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(file.tensor(b.0).unwrap().shape(), [3]);
        assert_eq!(
            file.tensor("b").unwrap().data(),
            bytemuck::cast_slice::<i64, u8>(&[1, -2])
        );
    }

    #[test]
    fn names_are_checked() {
        let tensor = OutTensor::Integers(&[]);
        assert!(to_safetensors(&[("a", tensor), ("b", tensor), ("a", tensor)]).is_err());
        assert!(to_safetensors(&[(METADATA, tensor)]).is_err());
        assert!(to_safetensors(&[("a", tensor), ("b", tensor)]).is_ok());
        let empty = to_safetensors(&[]).unwrap();
        assert!(safetensors::SafeTensors::deserialize(&empty).is_ok());
    }
}
