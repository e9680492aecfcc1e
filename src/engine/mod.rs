//! Engines: one trait, several devices, the same results.
//!
//! An [`Engine`] does the heavy linear algebra for every stage: sums over feature rows ([`Sums`]: G = ZᵀZ and ZᵀY),
//! the kernel matrix K = ZZᵀ, Cholesky factor and solve, and projection Y = Z W. Everything it returns is f64 on the
//! host, whatever precision the rows came in. Stages are generic over it and never know the device.
//!
//! The contract, which the tests hold every engine to:
//! - f64 products and sums throughout; f32, f16 and bf16 rows are widened first, so their products are exact;
//! - the bytes of a result do not depend on the number of threads nor on how the rows were cut into batches;
//! - a bias is one more feature that is always 1. Nothing is padded by the caller: weights with one row more than
//!   the features have columns carry a bias in that last row.
//!
//! ```
//! use muso::engine::{CpuEngine, Engine, Rows, SumsSpec, Targets};
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let z = [1.0_f32, 2.0, 3.0, 4.0];
//! let spec = SumsSpec { features: 2, bias: false, targets: 0 };
//! let mut sums = engine.accumulator(spec)?;
//! engine.accumulate(&mut sums, Rows::new(2, 2, z.as_slice()), Targets::None)?;
//! let sums = engine.finish(sums)?;
//! assert_eq!(sums.gram.as_slice(), &[10.0, 14.0, 14.0, 20.0]);
//! # Ok(())
//! # }
//! ```

mod any;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
pub mod exact;
#[cfg(feature = "nn")]
mod tensor;

pub use crate::matrix::{Dtype, Matrix, Rows, Samples};
pub use any::{AnyAccumulator, AnyEngine, AnyFactor};
pub use cpu::{Blocks, CpuEngine, Isa, Peak, Probe};
#[cfg(feature = "cuda")]
pub use cuda::CudaEngine;
#[cfg(feature = "capi")]
pub(crate) use cuda::ExactOnDevice;
#[cfg(feature = "nn")]
pub use tensor::{head_matrix, to_tensor, with_rows};

#[cfg(feature = "nn")]
use muso_models::burn::tensor::Tensor;

use self::exact::{ExactAccumulator, ExactSpec};
use crate::error::{Error, Result};

/// Shape of the sums that an accumulator collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumsSpec {
    /// Columns of the feature rows.
    pub features: usize,
    /// Appends a feature that is always 1.
    pub bias: bool,
    /// Columns of the targets; 0 for G alone.
    pub targets: usize,
}

impl SumsSpec {
    /// Returns D, the order of G, bias included.
    pub fn order(&self) -> usize {
        self.features + usize::from(self.bias)
    }
}

/// Targets that the rows of a batch should map to.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// No targets: only G is accumulated.
    None,
    /// One class per row, which stands for its one-hot row.
    Classes(&'a [i64]),
    /// One row of values per feature row.
    Values(Rows<'a>),
}

impl Targets<'_> {
    /// Returns the targets of rows `start..end`.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::None => Self::None,
            Self::Classes(classes) => Self::Classes(&classes[start..end]),
            Self::Values(values) => Self::Values(values.slice(start, end)),
        }
    }

    /// Refuses a batch that does not fit the sums.
    ///
    /// # Panics
    /// If the rows or targets do not have the shape of `spec`, or a class is outside `0..targets`.
    pub(crate) fn check(&self, (rows, cols): (usize, usize), spec: &SumsSpec) {
        assert_eq!(cols, spec.features, "rows of other width");
        match self {
            Self::None => assert_eq!(spec.targets, 0, "sums with targets need targets"),
            Self::Classes(classes) => {
                assert_eq!(classes.len(), rows, "one class a row");
                let range = 0..spec.targets as i64;
                assert!(
                    classes.iter().all(|c| range.contains(c)),
                    "class outside 0..{}",
                    spec.targets
                );
            }
            Self::Values(values) => {
                assert_eq!(
                    (values.rows(), values.cols()),
                    (rows, spec.targets),
                    "one row of targets a row"
                );
            }
        }
    }

    /// Returns Y for `rows` rows, N×`columns`, with classes as one-hot rows.
    ///
    /// # Panics
    /// If the targets do not have that shape, or a class is outside `0..columns`.
    pub fn to_matrix(&self, rows: usize, columns: usize) -> Matrix {
        match self {
            Self::None => {
                assert_eq!(columns, 0, "sums with targets need targets");
                Matrix::zeros(rows, 0)
            }
            Self::Classes(classes) => {
                assert_eq!(classes.len(), rows, "one class a row");
                let mut out = Matrix::zeros(rows, columns);
                for (i, &class) in classes.iter().enumerate() {
                    assert!((0..columns as i64).contains(&class), "class {class}");
                    out[(i, class as usize)] = 1.0;
                }
                out
            }
            Self::Values(values) => {
                let shape = (values.rows(), values.cols());
                assert_eq!(shape, (rows, columns), "one row of targets a row");
                values.to_matrix()
            }
        }
    }
}

/// Sums over rows, from which every closed form follows. Sums over disjoint sets of rows add and subtract.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// Number of rows summed.
    pub rows: u64,
    /// G = ZᵀZ, D×D, both triangles.
    pub gram: Matrix,
    /// ZᵀY, D×C; no columns where no targets were given.
    pub cross: Matrix,
}

impl Sums {
    /// Returns the sums without the rows of `other`: a downdate.
    ///
    /// # Panics
    /// If the shapes differ or `other` has more rows.
    pub fn subtract(&self, other: &Self) -> Self {
        assert!(
            self.rows >= other.rows,
            "subtracting {} rows from {}",
            other.rows,
            self.rows
        );
        Self {
            rows: self.rows - other.rows,
            gram: self.gram.zip(&other.gram, |a, b| a - b),
            cross: self.cross.zip(&other.cross, |a, b| a - b),
        }
    }

    /// Returns the sums over both sets of rows.
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn add(&self, other: &Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            gram: self.gram.zip(&other.gram, |a, b| a + b),
            cross: self.cross.zip(&other.cross, |a, b| a + b),
        }
    }

    /// Returns the sums about the means, of sums with a bias. A feature that is constant to within so many `roundings` of its
    /// sum counts as constant.
    ///
    /// # Panics
    /// If there is nothing but a bias, or not even that.
    pub fn centred(&self, roundings: f64) -> Centred {
        let width = self.gram.rows() - 1;
        assert!(width > 0, "sums of a bias alone");
        let rows = (self.rows as f64).max(1.0);
        let (of_features, of_targets) = (self.gram.row(width), self.cross.row(width));
        let varies: Vec<bool> = (0..width)
            .map(|i| {
                let square = self.gram[(i, i)];
                let left = square - of_features[i] * of_features[i] / rows;
                left > f64::EPSILON * roundings * square
            })
            .collect();
        let gram = Matrix::from_fn(width, width, |i, j| match varies[i] && varies[j] {
            true => self.gram[(i, j)] - of_features[i] * of_features[j] / rows,
            false => 0.0,
        });
        let cross = Matrix::from_fn(width, self.cross.cols(), |i, t| match varies[i] {
            true => self.cross[(i, t)] - of_features[i] * of_targets[t] / rows,
            false => 0.0,
        });
        let means = |sums: &[f64]| sums.iter().map(|sum| sum / rows).collect();
        Centred {
            features: means(&of_features[..width]),
            targets: means(of_targets),
            sums: Sums {
                rows: self.rows,
                gram,
                cross,
            },
        }
    }
}

/// Sums over rows about their means: what is left to fit once a bias that no ridge holds has taken the means.
#[derive(Clone, Debug, PartialEq)]
pub struct Centred {
    /// Σ (z − z̄)(z − z̄)ᵀ and Σ (z − z̄)(y − ȳ)ᵀ, without the bias.
    pub sums: Sums,
    /// z̄, the mean of each feature.
    pub features: Vec<f64>,
    /// ȳ, the mean of each target.
    pub targets: Vec<f64>,
}

impl Centred {
    /// Returns weights with the best bias beside them as last row: ȳ − z̄ᵀW.
    ///
    /// # Panics
    /// If the weights have another shape than the sums.
    pub fn with_bias(&self, weights: &Matrix) -> Matrix {
        let mut bias = Matrix::from_vec(1, self.targets.len(), self.targets.clone());
        for (d, mean) in self.features.iter().enumerate() {
            for (bias, weight) in bias.row_mut(0).iter_mut().zip(weights.row(d)) {
                *bias -= mean * weight;
            }
        }
        weights.stack(&bias)
    }
}

/// Linear algebra on one device. See the module documentation for the contract.
pub trait Engine: Send + Sync {
    /// Sums in progress, on the device.
    type Accumulator: Send;
    /// A Cholesky factor, on the device.
    type Factor: Send + Sync;

    /// Describes device, instruction set and parallelism in a few words.
    fn describe(&self) -> String;

    /// Starts sums over no rows.
    fn accumulator(&self, spec: SumsSpec) -> Result<Self::Accumulator>;

    /// Adds a batch of rows.
    ///
    /// # Panics
    /// If the rows or targets do not have the accumulator's shape, or a class is outside `0..targets`.
    fn accumulate(
        &self,
        sums: &mut Self::Accumulator,
        rows: Rows<'_>,
        targets: Targets<'_>,
    ) -> Result<()>;

    /// Completes the sums and brings them to the host.
    fn finish(&self, sums: Self::Accumulator) -> Result<Sums>;

    /// Starts exact sums over no rows, which have the same bytes on every device. A device without a way of its own
    /// leaves them to the processor.
    ///
    /// # Errors
    /// As [`ExactSpec::check`].
    fn exact(&self, spec: &ExactSpec) -> Result<Box<dyn ExactAccumulator>> {
        CpuEngine::ambient().exact(spec)
    }

    /// Returns how many roundings an entry of G over `rows` rows has been through, at most. It decides which directions
    /// of a singular G count as noise of the sums.
    fn roundings(&self, rows: u64) -> f64;

    /// Returns K = Z₁Z₂ᵀ (GEMM), N₁×N₂, plus 1 everywhere when `bias` is set.
    fn kernel_matrix(&self, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Result<Matrix>;

    /// Returns Y = Z W (GEMM), N×C. A last row of `weights` beyond the features' columns is the bias.
    fn project(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Matrix>;

    /// Returns the column of the largest entry of each row of Z W, the first of several equal ones.
    fn project_argmax(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<u32>>;

    /// Returns random Fourier features, [cos(Z Ω) sin(Z Ω)] · scale, N×2m; the m `frequencies` are the columns of Ω.
    fn fourier_features(&self, rows: Rows<'_>, frequencies: &Matrix, scale: f64) -> Result<Matrix> {
        fits(rows, frequencies)?;
        let phases = self.project(rows, frequencies)?;
        let mut out = Matrix::zeros(rows.rows(), 2 * phases.cols());
        for i in 0..rows.rows() {
            let (cosines, sines) = out.row_mut(i).split_at_mut(phases.cols());
            for (k, phase) in phases.row(i).iter().enumerate() {
                let (sin, cos) = phase.sin_cos();
                (cosines[k], sines[k]) = (scale * cos, scale * sin);
            }
        }
        Ok(out)
    }

    /// Returns the squared row norms of Z W, without keeping Z W as a whole.
    fn row_norms_squared(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<f64>> {
        const BATCH: usize = 4096;
        fits(rows, weights)?;
        let mut out = Vec::with_capacity(rows.rows());
        for start in (0..rows.rows()).step_by(BATCH) {
            let batch = rows.slice(start, rows.rows().min(start + BATCH));
            let products = self.project(batch, weights)?;
            let square = |i: usize| products.row(i).iter().map(|x| x * x).sum::<f64>();
            out.extend((0..batch.rows()).map(square));
        }
        Ok(out)
    }

    /// Returns ZᵀA, D×C, for A with one row per feature row; `bias` appends the sum of A's rows.
    fn pull_back(&self, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Result<Matrix>;

    /// Returns the Cholesky factor of A + ridge·I, reading A's lower triangle.
    ///
    /// # Errors
    /// [`Error::NotPositiveDefinite`] with the pivot that failed.
    fn factor(&self, matrix: &Matrix, ridge: f64) -> Result<Self::Factor>;

    /// Returns the smallest and the largest pivot (squares of the factor's diagonal).
    fn pivots(&self, factor: &Self::Factor) -> (f64, f64);

    /// Solves (A + ridge·I) X = B for X by two triangular solves (TRSM), without refinement.
    fn solve(&self, factor: &Self::Factor, rhs: &Matrix) -> Result<Matrix>;

    /// Returns the diagonal of (A + ridge·I)⁻¹, computed from the factor.
    fn inverse_diagonal(&self, factor: &Self::Factor) -> Result<Vec<f64>>;

    /// Adds a batch of rows that a network made, [N, D], as [`Self::accumulate`] does. Rows on the engine's own device
    /// stay there.
    #[cfg(feature = "nn")]
    fn accumulate_tensor(
        &self,
        sums: &mut Self::Accumulator,
        rows: &Tensor<2>,
        targets: Targets<'_>,
    ) -> Result<()> {
        tensor::with_rows(rows, |rows| self.accumulate(sums, rows, targets))
    }

    /// Returns Y = Z W as [`Self::project`] does, for rows that a network made, [N, D]: [N, C], rounded to f32, on the
    /// device of the rows.
    #[cfg(feature = "nn")]
    fn project_tensor(&self, rows: &Tensor<2>, weights: &Matrix) -> Result<Tensor<2>> {
        let product = tensor::with_rows(rows, |rows| self.project(rows, weights))?;
        Ok(tensor::to_tensor(&product, &rows.device()))
    }
}

/// Returns the roundings of a sum over `rows` rows that adds blocks of `block` rows, then the blocks.
pub(crate) fn blocked_roundings(rows: u64, block: usize) -> f64 {
    let block = block as u64;
    (rows.min(block) + rows.div_ceil(block)) as f64
}

/// Checks that a matrix has a row for each column of `rows`.
fn fits(rows: Rows<'_>, matrix: &Matrix) -> Result<()> {
    if matrix.rows() == rows.cols() {
        return Ok(());
    }
    Err(Error::Shape {
        what: "matrix".into(),
        found: format!("{} rows", matrix.rows()),
        expected: format!("{} rows", rows.cols()),
    })
}

/// Checks that weights fit the rows, with or without a bias row; returns whether there is one.
pub(crate) fn weights_have_bias(rows: Rows<'_>, weights: &Matrix) -> Result<bool> {
    match weights.rows().checked_sub(rows.cols()) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(Error::Shape {
            what: "weights".into(),
            found: format!("{} rows", weights.rows()),
            expected: format!("{0} rows, or {0} + 1 with a bias", rows.cols()),
        }),
    }
}
