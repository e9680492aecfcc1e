//! Checkpoints of networks: what a file holds of one, read from PyTorch or safetensors and written as safetensors.
//!
//! A checkpoint is the data of the network stages. [`read_state`] gives its arrays with their PyTorch names;
//! [`Network::load`](muso_models::Network::load) puts them into a network and says what does not fit. A training script's
//! file that holds more, `{"state_dict": …, "optimizer": …}`, is searched for the weights.
//!
//! Files are hostile: a bad one is an error that names it, and no pickle is ever executed. The arrays that come back take
//! as much memory as the file has bytes, twice that when it is all f16. Reading takes no more besides than `pytorch`,
//! where a PyTorch file is read, or [`tensors`](super::tensors) say: in both, what a file only claims costs nothing.
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
use std::io::Read;
use std::path::Path;

use muso_models::StateDict;

use super::output::OutputFile;
use super::pytorch::{self, Checkpoint};
use super::shown;
use super::tensors::{OutTensor, TensorFile, to_safetensors_with};
use crate::{Error, Result};

/// Keys under which training scripts keep the weights.
const KEYS: [&str; 5] = ["state_dict", "model_state_dict", "model", "net", "weights"];
/// Counters of PyTorch's batch normalisation; integers, and of no use here.
const COUNTER: &str = "num_batches_tracked";

/// Returns the arrays of a checkpoint, in f32, whatever precision it has.
///
/// # Errors
/// If it is neither a PyTorch nor a safetensors file, is damaged, or has an array of integers or a value that is not
/// finite.
pub fn read_state(path: impl AsRef<Path>) -> Result<StateDict> {
    Ok(read_checkpoint(path)?.0)
}

/// Reads a checkpoint as [`read_state`] does, with the texts that a safetensors file carries beside its arrays.
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
        push(path, &mut state, name, shape, values)?;
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

/// Tells a PyTorch file by its first bytes.
fn is_pytorch(path: &Path) -> Result<bool> {
    let fault = |e| Error::io(path, "open", e);
    // Asked before opening, since opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(fault)?.is_file() {
        return Err(Error::format(path, "not a regular file", "a checkpoint"));
    }
    let mut start = Vec::new();
    File::open(path)
        .map_err(fault)?
        .take(pytorch::START)
        .read_to_end(&mut start)
        .map_err(|e| Error::io(path, "read", e))?;
    Ok(pytorch::is_pytorch(&start))
}

fn read_pytorch(path: &Path) -> Result<StateDict> {
    let file = Checkpoint::open(path, &KEYS, COUNTER)?;
    if file.tensors.is_empty() {
        return Err(Error::format(
            path,
            "no tensors",
            format!("a state dictionary, by itself or under {}", KEYS.join(", ")),
        ));
    }
    let mut state = StateDict::new();
    for tensor in &file.tensors {
        let values = file.values(tensor)?;
        push(
            path,
            &mut state,
            &tensor.name,
            tensor.shape().to_vec(),
            values,
        )?;
    }
    file.unchanged()?;
    Ok(state)
}

fn push(
    path: &Path,
    state: &mut StateDict,
    name: &str,
    shape: Vec<usize>,
    values: Vec<f32>,
) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    /// A pickle, put together opcode by opcode.
    #[derive(Default)]
    struct Pickle(Vec<u8>);

    impl Pickle {
        fn new() -> Self {
            Self(vec![0x80, 2])
        }

        fn code(mut self, bytes: &[u8]) -> Self {
            self.0.extend_from_slice(bytes);
            self
        }

        fn text(self, text: &str) -> Self {
            let length = u32::try_from(text.len()).unwrap().to_le_bytes();
            self.code(b"X").code(&length).code(text.as_bytes())
        }

        fn integer(self, value: usize) -> Self {
            let value = i32::try_from(value).unwrap().to_le_bytes();
            self.code(b"J").code(&value)
        }

        fn integers(self, values: &[usize]) -> Self {
            let tuple = values.iter().fold(self.code(b"("), |p, &v| p.integer(v));
            tuple.code(b"t")
        }

        /// `torch._utils._rebuild_tensor_v2` of a whole storage.
        fn tensor(self, key: &str, storage: &str, shape: &[usize], strides: &[usize]) -> Self {
            let count = if shape.is_empty() {
                1
            } else {
                shape
                    .iter()
                    .zip(strides)
                    .map(|(n, s)| (n - 1) * s)
                    .sum::<usize>()
                    + 1
            };
            self.code(b"ctorch._utils\n_rebuild_tensor_v2\n((")
                .text("storage")
                .code(format!("ctorch\n{storage}\n").as_bytes())
                .text(key)
                .text("cpu")
                .integer(count)
                .code(b"NtQ")
                .integer(0)
                .integers(shape)
                .integers(strides)
                .code(b"\x89ccollections\nOrderedDict\n)RtR")
        }

        fn end(self) -> Vec<u8> {
            self.code(b".").0
        }
    }

    /// What torch.save wrote before version 1.6: five pickles, then the storages.
    fn legacy(object: Vec<u8>, storages: &[(&str, usize, Vec<u8>)]) -> Vec<u8> {
        let mut file = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.".to_vec();
        file.extend(b"\x80\x02M\xe9\x03.");
        let about = Pickle::new()
            .code(b"}(")
            .text("protocol_version")
            .integer(1001)
            .text("little_endian")
            .code(b"\x88u");
        file.extend(about.end());
        file.extend(object);
        let keys = Pickle::new().code(b"](");
        let keys = storages.iter().fold(keys, |p, (key, _, _)| p.text(key));
        file.extend(keys.code(b"e").end());
        for (_, count, bytes) in storages {
            file.extend((*count as u64).to_le_bytes());
            file.extend(bytes);
        }
        file
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// `{"epoch": 3, "state_dict": {"fc.weight": …, "fc.bias": …, "bn.num_batches_tracked": …}}`, the weight transposed.
    fn sample() -> Vec<u8> {
        let halves = [1.5, -2.0].map(f16::from_f32);
        let object = Pickle::new()
            .code(b"}(")
            .text("epoch")
            .integer(3)
            .text("state_dict")
            .code(b"}(")
            .text("module.fc.weight")
            .tensor("0", "FloatStorage", &[2, 3], &[1, 2])
            .text("module.fc.bias")
            .tensor("1", "HalfStorage", &[2], &[1])
            .text("module.bn.num_batches_tracked")
            .tensor("2", "LongStorage", &[], &[])
            .code(b"uu");
        legacy(
            object.end(),
            &[
                ("0", 6, bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
                (
                    "1",
                    2,
                    halves.iter().flat_map(|v| v.to_le_bytes()).collect(),
                ),
                ("2", 1, 7_i64.to_le_bytes().to_vec()),
            ],
        )
    }

    fn read(contents: &[u8]) -> Result<StateDict> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.pth");
        std::fs::write(&path, contents).unwrap();
        read_state(&path)
    }

    #[test]
    fn a_training_scripts_file_is_searched_for_the_weights() {
        let state = read(&sample()).unwrap();
        let names: Vec<&str> = state.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["module.fc.bias", "module.fc.weight"]);
        let weight = state.get("module.fc.weight").unwrap();
        assert_eq!(weight.shape, [2, 3]);
        assert_eq!(weight.values, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        assert_eq!(state.get("module.fc.bias").unwrap().values, [1.5, -2.0]);
    }

    #[test]
    fn damaged_pickles_are_errors_that_name_the_file() {
        let whole = sample();
        let mut refused = 0;
        for length in 0..whole.len() {
            let error = read(&whole[..length]).unwrap_err();
            assert!(error.is_input(), "{error}");
            assert!(error.to_string().contains("model.pth"), "{error}");
        }
        for position in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[position] ^= flip;
                // Some are still checkpoints. None may panic or ask for memory that the file does not have.
                if let Err(error) = read(&damaged) {
                    assert!(error.is_input(), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > whole.len(), "{refused} of {}", 3 * whole.len());
    }

    #[test]
    fn views_larger_than_the_file_are_refused() {
        let object = Pickle::new()
            .code(b"}(")
            .text("weight")
            .tensor("0", "FloatStorage", &[1000, 1000], &[0, 0])
            .code(b"u");
        let error = read(&legacy(object.end(), &[("0", 1, bytes(&[1.0]))])).unwrap_err();
        assert!(
            error.to_string().contains("larger than the file"),
            "{error}"
        );
    }

    #[test]
    fn values_that_no_weight_can_have_are_refused() {
        let one = |storage: &str, values: Vec<u8>| {
            let object = Pickle::new()
                .code(b"}(")
                .text("weight")
                .tensor("0", storage, &[2], &[1])
                .code(b"u");
            read(&legacy(object.end(), &[("0", 2, values)])).unwrap_err()
        };
        let error = one("FloatStorage", bytes(&[1.0, f32::NAN]));
        assert!(
            matches!(error, Error::NotFinite { column: 1, .. }),
            "{error}"
        );
        let large = [1.0, 1e300].map(f64::to_le_bytes).concat();
        let error = one("DoubleStorage", large);
        assert!(matches!(error, Error::NotFinite { .. }), "{error}");
        let error = one("LongStorage", vec![0; 16]);
        assert!(error.to_string().contains("`weight` is i64 [2]"), "{error}");
    }

    #[test]
    fn safetensors_come_back_with_their_texts() {
        let mut state = StateDict::new();
        state.push(
            "a.weight",
            vec![2, 1, 3],
            vec![0.0, -1.0, 2.5, 1e-30, 7.0, 9.0],
        );
        state.push("b", vec![], vec![4.0]);
        state.push("c", vec![0, 5], vec![]);
        let texts = BTreeMap::from([("make".to_owned(), "width = 16\n\"".to_owned())]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let mut file = OutputFile::create(&path).unwrap();
        write_state(&mut file, &state, &texts).unwrap();
        file.commit().unwrap();
        assert_eq!(read_checkpoint(&path).unwrap(), (state, texts));
        let contents = std::fs::read(&path).unwrap();
        let other = safetensors::SafeTensors::deserialize(&contents).unwrap();
        assert_eq!(other.tensor("a.weight").unwrap().shape(), [2, 1, 3]);
        let (_, header) = safetensors::SafeTensors::read_metadata(&contents).unwrap();
        assert_eq!(
            header.metadata().as_ref().unwrap()["make"],
            "width = 16\n\""
        );
    }

    #[test]
    fn values_that_cannot_be_read_back_are_not_written() {
        let mut state = StateDict::new();
        state.push("a", vec![1], vec![f32::INFINITY]);
        let dir = tempfile::tempdir().unwrap();
        let mut file = OutputFile::create(dir.path().join("model")).unwrap();
        let error = write_state(&mut file, &state, &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    }

    #[test]
    fn what_is_no_checkpoint_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_state(dir.path()).unwrap_err().is_input());
        assert!(read_state(dir.path().join("none")).unwrap_err().is_input());
        for contents in [
            &b""[..],
            b"PK\x03\x04",
            b"\x80\x02}.",
            b"hello, this is a text",
        ] {
            let error = read(contents).unwrap_err();
            assert!(
                error.is_input() && error.to_string().contains("model.pth"),
                "{error}"
            );
        }
    }
}
