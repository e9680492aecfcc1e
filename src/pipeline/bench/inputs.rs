//! Seeded inputs, the operations that take more than one call of the engine, and arrays that peers can read.

use std::io::Write;
use std::path::Path;

use half::{bf16, f16};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::engine::{Dtype, Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::gram::Gram;
use crate::labels::Projector;

/// Standard normal values in f32.
pub(super) fn gaussian_f32(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| StandardNormal.sample(&mut rng))
        .collect()
}

/// Standard normal entries.
pub(super) fn gaussian(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Matrix::from_fn(rows, cols, |_, _| StandardNormal.sample(&mut rng))
}

/// Features whose columns shrink from 1 to `smallest`, so that a ridge of that size squared times N matters.
pub(super) fn decaying_features(rows: usize, cols: usize, smallest: f32, seed: u64) -> Vec<f32> {
    let mut values = gaussian_f32(rows * cols, seed);
    for row in values.chunks_exact_mut(cols) {
        for (j, value) in row.iter_mut().enumerate() {
            *value *= smallest.powf(j as f32 / cols as f32);
        }
    }
    values
}

/// G = ZᵀZ, through the engine.
pub(super) fn gram<E: Engine>(engine: &E, rows: Rows<'_>, bias: bool) -> Result<Sums> {
    let spec = SumsSpec {
        features: rows.cols(),
        bias,
        targets: 0,
    };
    let mut sums = engine.accumulator(spec)?;
    engine.accumulate(&mut sums, rows, Targets::None)?;
    engine.finish(sums)
}

/// The whole label update: sums over the retained rows, factor, W* = w_init + Π(w_p − w_init), labels Z_u W*.
///
/// Weights with one row more than the features have columns carry a bias.
pub(super) fn label_update<E: Engine>(
    engine: &E,
    retained: Rows<'_>,
    forgotten: Rows<'_>,
    trained: &Matrix,
    init: &Matrix,
    ridge: f64,
) -> Result<Matrix> {
    let bias = trained.rows() > retained.cols();
    let sums = gram(engine, retained, bias)?;
    let projector = Projector::new(engine, Gram::Primal(sums), ridge)?;
    let (weights, _) = projector.optimal_weights(trained, init)?;
    engine.project(forgotten, &weights)
}

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
    /// Normal feature rows, stored as `dtype`.
    pub(super) fn features(rows: usize, cols: usize, dtype: Dtype, seed: u64) -> Self {
        let values = gaussian_f32(rows * cols, seed);
        match dtype {
            Dtype::F16 => Self::F16(cols, values.into_iter().map(f16::from_f32).collect()),
            Dtype::Bf16 => Self::Bf16(cols, values.into_iter().map(bf16::from_f32).collect()),
            Dtype::F32 => Self::F32(cols, values),
            Dtype::F64 => Self::F64(gaussian(rows, cols, seed)),
        }
    }

    /// As the engine takes it.
    pub(super) fn rows(&self) -> Rows<'_> {
        match self {
            Self::F16(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::Bf16(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::F32(cols, values) => Rows::new(values.len() / cols, *cols, values.as_slice()),
            Self::F64(matrix) => matrix.as_rows(),
        }
    }

    /// # Panics
    /// If it is not f64.
    pub(super) fn matrix(&self) -> &Matrix {
        match self {
            Self::F64(matrix) => matrix,
            _ => panic!("an f64 array was expected"),
        }
    }

    /// The same values in f32, which holds all of the narrower types.
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

    /// The same f32 rows with a last column of ones.
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

    /// Bytes of its values in NumPy's format, at most.
    pub(super) fn size(&self) -> u64 {
        let each = match self {
            Self::F64(_) => 8,
            _ => 4,
        };
        (self.rows().rows() * self.rows().cols() * each) as u64
    }

    /// Writes it in NumPy's format.
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

/// What precedes the values in a file of NumPy's format, version 1. The values follow in the order of this machine,
/// which the crate requires to be little-endian.
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
