//! The last layer of a network as a file: `weight` C×D, as PyTorch stores it, and an optional `bias` of length C.
//!
//! A head comes in beside the features and goes out again, changed, under the names that it came with; it is small
//! and is held in f64 whatever its file stores.
//!
//! ```
//! use muso::data::{Head, OutTensor, to_safetensors};
//! use muso::engine::{Dtype, Matrix};
//! let weight = Matrix::from_vec(2, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! let bytes = to_safetensors(&[("fc.weight", OutTensor::Matrix { values: &weight, dtype: Dtype::F32 })])?;
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("head.safetensors");
//! std::fs::write(&path, &bytes).unwrap();
//!
//! let head = Head::load(&path)?;
//! assert_eq!((head.weight.rows(), head.weight.cols(), head.prefix.as_str()), (2, 3, "fc."));
//! assert_eq!(head.to_safetensors(head.dtype)?, bytes);
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{OutTensor, TensorFile, shown, to_safetensors_with};
use crate::data::OutputFile;
use crate::engine::{Dtype, Matrix};
use crate::{Error, Result};

/// A linear layer: logits = features · weightᵀ + bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// C×D: a row for each class.
    pub weight: Matrix,
    /// Bias of each class.
    pub bias: Option<Vec<f64>>,
    /// Storage type of the weight in its file.
    pub dtype: Dtype,
    /// Prefix of `weight` and `bias` in the names of the tensors: empty, or such as `fc.`.
    pub prefix: String,
    /// Names of other tensors in that file, which are not loaded and not saved.
    pub others: Vec<String>,
    /// Texts that its file will carry beside the values; those of a file that it came from are not among them.
    pub notes: BTreeMap<String, String>,
    /// The file that it came from.
    pub(crate) file: Option<PathBuf>,
}

impl Head {
    /// Takes a C×D weight and perhaps a bias of one value a class.
    ///
    /// # Panics
    /// If the bias does not have one value a class.
    pub fn new(weight: Matrix, bias: Option<Vec<f64>>) -> Self {
        if let Some(bias) = &bias {
            assert_eq!(bias.len(), weight.rows(), "one bias a class");
        }
        Self {
            weight,
            bias,
            dtype: Dtype::F64,
            prefix: String::new(),
            others: Vec::new(),
            notes: BTreeMap::new(),
            file: None,
        }
    }

    /// Loads a head: safetensors with `weight` and perhaps `bias`, or with exactly one matrix `….weight`; or a
    /// `.npy` matrix.
    ///
    /// # Errors
    /// If there is no such matrix, if the bias does not fit it, or if a value is not finite.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(&TensorFile::open(path)?)
    }

    /// Loads a head from the bytes of its file, which messages call `the head`.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        Self::read(&TensorFile::from_bytes("the head", bytes)?)
    }

    fn read(file: &TensorFile) -> Result<Self> {
        let prefix = prefix(file)?;
        let weight = file.matrix(&format!("{prefix}weight"))?;
        let dtype = weight.dtype();
        let weight = weight.to_matrix()?;
        let bias_name = format!("{prefix}bias");
        let bias = if file.contains(&bias_name) {
            let bias = file.vector(&bias_name)?;
            if bias.cols() != weight.rows() {
                return Err(Error::Shape {
                    what: format!("{}: `{bias_name}`", file.path().display()),
                    found: format!("{} values", bias.cols()),
                    expected: format!("{}, one for each row of the weight", weight.rows()),
                });
            }
            Some(bias.to_matrix()?.as_slice().to_vec())
        } else {
            None
        };
        file.unchanged()?;
        let mut others = Vec::new();
        if file.is_named() {
            let used = [format!("{prefix}weight"), bias_name];
            let names = file.tensor_names().into_iter().map(str::to_owned);
            others.extend(names.filter(|name| !used.contains(name)));
        }
        Ok(Self {
            weight,
            bias,
            dtype,
            prefix,
            others,
            notes: BTreeMap::new(),
            file: Some(file.path().to_owned()),
        })
    }

    /// Writes the head as a safetensors file, in f64, under the names that it was loaded with. The file appears whole
    /// or not at all.
    ///
    /// # Errors
    /// If the file cannot be written, or if a value is not finite.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut file = OutputFile::create(path)?;
        file.put(&self.to_safetensors(Dtype::F64)?)?;
        file.commit()
    }

    /// Returns the weights as the engine has them: D×C, the transpose, with the bias as one more row.
    pub fn weights(&self) -> Matrix {
        let (classes, width) = (self.weight.rows(), self.weight.cols());
        let rows = width + usize::from(self.bias.is_some());
        Matrix::from_fn(rows, classes, |d, c| match &self.bias {
            Some(bias) if d == width => bias[c],
            _ => self.weight[(c, d)],
        })
    }

    /// Returns a head of the same shape and names with other weights, which are as those of [`weights`](Self::weights).
    ///
    /// # Panics
    /// If the weights have another shape.
    pub fn with_weights(&self, weights: &Matrix) -> Self {
        let (classes, width) = (self.weight.rows(), self.weight.cols());
        let rows = width + usize::from(self.bias.is_some());
        assert_eq!(
            (weights.rows(), weights.cols()),
            (rows, classes),
            "weights of another shape"
        );
        Self {
            weight: Matrix::from_fn(classes, width, |c, d| weights[(d, c)]),
            bias: self.bias.as_ref().map(|_| weights.row(width).to_vec()),
            ..self.clone()
        }
    }

    /// Returns what messages call it: its file, or `the head`.
    pub(crate) fn name(&self) -> String {
        let file = self.file.as_ref().map(|path| path.display().to_string());
        file.unwrap_or_else(|| "the head".into())
    }

    /// Returns the other tensors of the file in a few words; nothing when there are none.
    pub fn others_in_words(&self) -> Option<String> {
        const NAMED: usize = 3;
        let names = self.others.iter().take(NAMED);
        let named: Vec<String> = names.map(|name| shown(name, 80)).collect();
        match self.others.len() {
            0 => None,
            n if n <= NAMED => Some(named.join(", ")),
            n => Some(format!("{} and {} more", named.join(", "), n - NAMED)),
        }
    }

    /// Returns the bytes of a safetensors file with this head, under the names that it was loaded with, rounded to
    /// `dtype`.
    ///
    /// # Errors
    /// If a value is not finite or too large for `dtype`.
    pub fn to_safetensors(&self, dtype: Dtype) -> Result<Vec<u8>> {
        let names = ["weight", "bias"].map(|name| format!("{}{name}", self.prefix));
        let mut tensors = vec![(
            names[0].as_str(),
            OutTensor::Matrix {
                values: &self.weight,
                dtype,
            },
        )];
        if let Some(values) = &self.bias {
            tensors.push((names[1].as_str(), OutTensor::Vector { values, dtype }));
        }
        to_safetensors_with(&tensors, &self.notes)
    }
}

fn prefix(file: &TensorFile) -> Result<String> {
    if !file.is_named() || file.contains("weight") {
        return Ok(String::new());
    }
    let candidates: Vec<&str> = file
        .entries
        .iter()
        .filter(|entry| entry.shape.len() == 2)
        .filter_map(|entry| entry.name.strip_suffix("weight"))
        .filter(|prefix| prefix.ends_with('.'))
        .collect();
    match candidates[..] {
        [prefix] => Ok(prefix.to_owned()),
        // The error for the missing `weight` lists what there is.
        [] => file.entry("weight").map(|_| String::new()),
        [first, second, ..] => Err(Error::format(
            file.path(),
            format!(
                "{} matrices could be the head: `{}weight`, `{}weight`{}",
                candidates.len(),
                shown(first, 80),
                shown(second, 80),
                if candidates.len() > 2 { ", …" } else { "" }
            ),
            "a tensor `weight`, or exactly one matrix `….weight`",
        )),
    }
}
