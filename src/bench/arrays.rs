//! Arrays that both sides of a comparison get, in memory and as files of NumPy.

use std::io::Write;
use std::path::Path;

use half::{bf16, f16};
use muso::engine::{Dtype, Matrix, Rows};
use muso::{Error, Result};

use super::inputs::{gaussian, gaussian_f32};

/// An array that both sides get.
#[derive(Clone)]
pub(super) enum Array {
    F16(usize, Vec<f16>),
    Bf16(usize, Vec<bf16>),
    /// Columns and values, row by row; as above.
    F32(usize, Vec<f32>),
    F64(Matrix),
}

impl Array {
    /// Draws normal feature rows, stored as `dtype`.
    pub(super) fn features(rows: usize, cols: usize, dtype: Dtype, seed: u64) -> Self {
        let values = gaussian_f32(rows * cols, seed);
        match dtype {
            Dtype::F16 => Self::F16(cols, values.into_iter().map(f16::from_f32).collect()),
            Dtype::Bf16 => Self::Bf16(cols, values.into_iter().map(bf16::from_f32).collect()),
            Dtype::F32 => Self::F32(cols, values),
            Dtype::F64 => Self::F64(gaussian(rows, cols, seed)),
        }
    }

    /// Returns the rows as the engine takes them.
    pub(super) fn rows(&self) -> Rows<'_> {
        match self {
            Self::F16(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::Bf16(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::F32(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::F64(matrix) => matrix.as_rows(),
        }
    }

    /// Returns an f64 array as a matrix.
    ///
    /// # Panics
    /// If it is not f64.
    pub(super) fn matrix(&self) -> &Matrix {
        match self {
            Self::F64(matrix) => matrix,
            _ => panic!("an f64 array was expected"),
        }
    }

    /// Returns the same values in f32, which holds all of the narrower types.
    pub(super) fn widened(&self) -> Self {
        match self {
            Self::F16(cols, values) => {
                Self::F32(*cols, values.iter().map(|x| x.to_f32()).collect())
            }
            Self::Bf16(cols, values) => {
                Self::F32(*cols, values.iter().map(|x| x.to_f32()).collect())
            }
            _ => self.clone(),
        }
    }

    /// Returns the same f32 rows with a last column of ones.
    ///
    /// # Panics
    /// If it is not f32.
    pub(super) fn with_ones(&self) -> Self {
        let Self::F32(cols, values) = self else {
            panic!("an f32 array was expected");
        };
        let rows = values.chunks_exact(*cols);
        let values = rows.flat_map(|row| row.iter().copied().chain([1.0]));
        Self::F32(cols + 1, values.collect())
    }

    /// Returns the bytes of its values in NumPy's format, at most.
    pub(super) fn size(&self) -> u64 {
        let each = match self {
            Self::F64(_) => 8,
            _ => 4,
        };
        (self.rows().rows() * self.rows().cols() * each) as u64
    }

    /// Writes the array in NumPy's format.
    pub(super) fn write_npy(&self, path: &Path) -> Result<()> {
        let (descr, bytes): (_, &[u8]) = match self {
            Self::F16(_, values) => ("<f2", bytemuck::cast_slice(values)),
            // NumPy has no such type; peers are given the widened values.
            Self::Bf16(..) => return self.widened().write_npy(path),
            Self::F32(_, values) => ("<f4", bytemuck::cast_slice(values)),
            Self::F64(matrix) => ("<f8", bytemuck::cast_slice(matrix.as_slice())),
        };
        let header = npy_header(descr, &[self.rows().rows(), self.rows().cols()]);
        let write = || {
            let mut file = std::fs::File::create(path)?;
            file.write_all(&header)?;
            file.write_all(bytes)
        };
        write().map_err(|e| Error::io(path, "write", e))
    }
}

/// Returns the header of a file of NumPy's format, version 1. The values follow in the order of this machine, which the
/// crate requires to be little-endian.
pub(super) fn npy_header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // Magic number, version, length, text and newline come to a multiple of 64 bytes.
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((length as u16).to_le_bytes());
    out.extend(format!("{text:<width$}\n", width = length - 1).into_bytes());
    out
}
