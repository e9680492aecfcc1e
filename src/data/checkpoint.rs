//! Checkpoints of networks: what a file holds of one, read from PyTorch or safetensors and written as safetensors.
//!
//! A checkpoint is the data of the network stages. [`read_state`] gives its arrays with their PyTorch names;
//! [`Network::load`](muso_models::Network::load) puts them into a network and says what does not fit. A training script's
//! file that holds more, `{"state_dict": …, "optimizer": …}`, is searched for the weights.
//! Files are hostile: a bad one is an error that names it, no pickle is ever executed, and no more memory is asked for
//! than the file has bytes.
//!
//! ```
//! use std::collections::BTreeMap;
//! use muso::data::{OutputFile, read_checkpoint, write_state};
//! use muso_models::StateDict;
//! let mut state = StateDict::new();
//! state.push("fc.weight", vec![2, 1], vec![0.5, -1.0]);
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("model.safetensors");
//! let about = BTreeMap::from([("architecture".to_owned(), "resnet18".to_owned())]);
//! let mut file = OutputFile::create(&path)?;
//! write_state(&mut file, &state, &about)?;
//! file.commit()?;
//! assert_eq!(read_checkpoint(&path)?, (state, about));
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use half::{bf16, f16};
use muso_models::StateDict;
use pytorch_reader::{DType, PytorchError, PytorchReader, Tensor};

use super::output::OutputFile;
use super::shown;
use super::tensors::{OutTensor, TensorFile, to_safetensors_with};
use crate::{Error, Result};

/// Keys under which training scripts keep the weights.
const KEYS: [&str; 5] = ["state_dict", "model_state_dict", "model", "net", "weights"];
/// Counters of PyTorch's batch normalisation; integers, and of no use here.
const COUNTER: &str = "num_batches_tracked";

/// The arrays of a checkpoint, in f32, whatever precision it has.
///
/// # Errors
/// If it is neither a PyTorch nor a safetensors file, is damaged, or has an array of integers or a value that is not
/// finite.
pub fn read_state(path: impl AsRef<Path>) -> Result<StateDict> {
    Ok(read_checkpoint(path)?.0)
}

/// As [`read_state`], with the texts that a safetensors file carries beside its arrays.
///
/// # Errors
/// As [`read_state`].
pub fn read_checkpoint(path: impl AsRef<Path>) -> Result<(StateDict, BTreeMap<String, String>)> {
    let path = path.as_ref();
    if is_pytorch(path)? {
        return Ok((read_pytorch(path)?, BTreeMap::new()));
    }
    let file = TensorFile::open(path)?;
    if !file.is_named() {
        return Err(Error::format(
            path,
            "this is one array without a name",
            "a checkpoint: safetensors or PyTorch",
        ));
    }
    let mut state = StateDict::new();
    for name in file.tensor_names() {
        if name.ends_with(COUNTER) {
            continue;
        }
        let (shape, values) = file.array(name)?;
        push(path, &mut state, name, shape, values.into_iter())?;
    }
    file.unchanged()?;
    Ok((state, file.metadata().clone()))
}

/// Writes a safetensors file with the arrays and some texts; the caller commits it.
///
/// # Errors
/// If a value is not finite, or if the system refuses.
pub fn write_state(
    file: &mut OutputFile,
    state: &StateDict,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let tensors: Vec<_> = state
        .iter()
        .map(|tensor| {
            let array = OutTensor::Array {
                shape: &tensor.shape,
                values: &tensor.values,
            };
            (tensor.name.as_str(), array)
        })
        .collect();
    file.put(&to_safetensors_with(&tensors, metadata)?)
}

/// By content: a zip archive, a pickle or a tar archive.
fn is_pytorch(path: &Path) -> Result<bool> {
    const TAR_MAGIC_AT: usize = 257;
    let mut start = Vec::new();
    let fault = |e| Error::io(path, "open", e);
    let file = File::open(path).map_err(fault)?;
    if file.metadata().map_err(fault)?.is_dir() {
        return Err(fault(ErrorKind::IsADirectory.into()));
    }
    file.take(TAR_MAGIC_AT as u64 + 5)
        .read_to_end(&mut start)
        .map_err(|e| Error::io(path, "read", e))?;
    let is_pickle = matches!(start[..], [0x80, 2..=5, ..]);
    // A safetensors file begins with a length and `{`; with a length of 640 it would look like a pickle.
    let is_json = start.get(8) == Some(&b'{');
    Ok(start.starts_with(b"PK\x03\x04")
        || (is_pickle && !is_json)
        || start.get(TAR_MAGIC_AT..) == Some(b"ustar"))
}

fn read_pytorch(path: &Path) -> Result<StateDict> {
    let fault = |error: PytorchError| match error {
        PytorchError::Io(e)
            if e.kind() != ErrorKind::InvalidData && e.kind() != ErrorKind::UnexpectedEof =>
        {
            Error::io(path, "read", e)
        }
        other => Error::format(
            path,
            shown(&other.to_string(), 200),
            "a checkpoint written by torch.save",
        ),
    };
    let length = std::fs::metadata(path)
        .map_err(|e| Error::io(path, "open", e))?
        .len();
    let mut reader = PytorchReader::new(path).map_err(fault)?;
    for key in KEYS {
        let below = format!("{key}.");
        if !reader.keys().iter().any(|name| name.starts_with(&below)) {
            continue;
        }
        // Names with dots look the same as dictionaries within dictionaries, so that asking is the way to know.
        match PytorchReader::with_top_level_key(path, key) {
            Ok(inner) => {
                reader = inner;
                break;
            }
            Err(PytorchError::KeyNotFound(_)) => {}
            Err(other) => return Err(fault(other)),
        }
    }
    let mut tensors: Vec<(String, Tensor)> = reader
        .into_tensors()
        .into_iter()
        .filter(|(name, _)| !name.ends_with(COUNTER))
        .collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    if tensors.is_empty() {
        return Err(Error::format(
            path,
            "no tensors",
            format!("a state dictionary, by itself or under {}", KEYS.join(", ")),
        ));
    }
    // Views can declare more than is stored, and a network has no use for them.
    let declared = tensors.iter().try_fold(0_u64, |sum, (_, tensor)| {
        sum.checked_add(tensor.byte_len() as u64)
    });
    if declared.is_none_or(|declared| declared > length) {
        return Err(Error::format(
            path,
            "the tensors are larger than the file",
            "tensors that are stored whole and uncompressed, as torch.save does",
        ));
    }
    let mut state = StateDict::new();
    for (name, tensor) in tensors {
        let dtype = tensor.dtype();
        let bytes = tensor.read().map_err(|e| fault(e.into()))?;
        let shape = tensor.shape().to_vec();
        let values: Box<dyn Iterator<Item = f64>> = match dtype {
            DType::F32 => each(&bytes, |b| f32::from_le_bytes(b).into()),
            DType::F64 => each(&bytes, f64::from_le_bytes),
            DType::F16 => each(&bytes, |b| f16::from_le_bytes(b).into()),
            DType::BF16 => each(&bytes, |b| bf16::from_le_bytes(b).into()),
            other => {
                return Err(Error::format(
                    path,
                    format!("`{}` is {other:?} {shape:?}", shown(&name, 80)),
                    "a tensor of f16, bf16, f32 or f64",
                ));
            }
        };
        push(path, &mut state, &name, shape, values)?;
    }
    Ok(state)
}

fn each<'a, const SIZE: usize>(
    bytes: &'a [u8],
    value: impl Fn([u8; SIZE]) -> f64 + 'a,
) -> Box<dyn Iterator<Item = f64> + 'a> {
    Box::new(bytes.as_chunks::<SIZE>().0.iter().map(move |&b| value(b)))
}

fn push(
    path: &Path,
    state: &mut StateDict,
    name: &str,
    shape: Vec<usize>,
    values: impl Iterator<Item = f64>,
) -> Result<()> {
    let count = shape
        .iter()
        .try_fold(1_usize, |count, &extent| count.checked_mul(extent));
    let values: Vec<f32> = values.map(|value| value as f32).collect();
    if count != Some(values.len()) {
        return Err(Error::format(
            path,
            format!("`{}` has {} values", shown(name, 80), values.len()),
            format!("as many as its shape {shape:?} says"),
        ));
    }
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        let cols = shape.last().copied().unwrap_or(1);
        return Err(Error::NotFinite {
            path: path.to_owned(),
            tensor: shown(name, 80),
            row: (index / cols) as u64,
            column: index % cols,
            value: values[index].into(),
        });
    }
    state.push(name, shape, values);
    Ok(())
}
