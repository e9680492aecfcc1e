//! Stage 3, after `features`: what is kept of a set of rows.
//!
//! With N rows of D features (bias included) everything downstream needs either G = ZᵀZ and ZᵀY (`primal`, N ≥ D) or
//! Z, Y and K = ZZᵀ (`dual`, N < D). Either way O(min(N, D)·D) memory, so N may be anything: the primal sums stream.
//! [`shard`] keeps primal sums as files that add up, for rows that are summed in several places.
//!
//! ```
//! use muso::engine::{CpuEngine, Matrix, SumsSpec, Targets};
//! use muso::gram::{Gram, GramBuilder, Route};
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let z = Matrix::from_fn(2, 5, |i, j| (i + j) as f64);
//! let spec = SumsSpec { features: 5, bias: false, targets: 0 };
//! let mut builder = GramBuilder::new(&engine, Route::choose(2, spec.order()), spec)?;
//! builder.push(z.as_rows(), Targets::None)?;
//! assert!(matches!(builder.finish()?, Gram::Dual(_)));
//! # Ok(())
//! # }
//! ```

pub mod shard;
mod stream;

use crate::engine::{Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::Result;

pub use stream::SUMS_LANE;
pub(crate) use stream::split_sums;

/// Which of the two equal formulas is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// D×D systems from streamed sums.
    Primal,
    /// N×N systems from rows held in memory.
    Dual,
}

impl Route {
    /// The cheaper one: dual when there are fewer rows than features.
    pub fn choose(rows: u64, order: usize) -> Self {
        if rows < order as u64 {
            Self::Dual
        } else {
            Self::Primal
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primal => "primal",
            Self::Dual => "dual",
        }
    }
}

/// Rows held for the dual route.
#[derive(Clone, Debug)]
pub struct DualGram {
    /// Z, N×D without the bias column.
    pub rows: Matrix,
    /// Whether a feature that is always 1 is meant as well.
    pub bias: bool,
    /// Y, N×C.
    pub targets: Matrix,
    /// K = ZZᵀ (+ 1 with a bias), N×N.
    pub kernel: Matrix,
}

impl DualGram {
    /// Computes K from rows at hand.
    pub fn new<E: Engine>(engine: &E, rows: Matrix, targets: Matrix, bias: bool) -> Result<Self> {
        let kernel = engine.kernel_matrix(rows.as_rows(), rows.as_rows(), bias)?;
        Ok(Self {
            rows,
            bias,
            targets,
            kernel,
        })
    }

    /// D, bias included.
    pub fn order(&self) -> usize {
        self.rows.cols() + usize::from(self.bias)
    }
}

/// What is kept of a set of rows.
#[derive(Clone, Debug)]
pub enum Gram {
    /// Sums over the rows.
    Primal(Sums),
    /// The rows themselves and their kernel matrix.
    Dual(DualGram),
}

impl Gram {
    /// The symmetric matrix to be factored: G or K.
    pub fn system(&self) -> &Matrix {
        match self {
            Self::Primal(sums) => &sums.gram,
            Self::Dual(dual) => &dual.kernel,
        }
    }

    /// About how many roundings an entry of [`Gram::system`] has been through: engines add blocks of rows, then the
    /// blocks, and inner products over the features in one chain.
    pub fn roundings(&self) -> f64 {
        match self {
            Self::Primal(sums) => 256.0 + sums.rows as f64 / 256.0,
            Self::Dual(dual) => dual.order() as f64,
        }
    }

    /// D, bias included.
    pub fn order(&self) -> usize {
        match self {
            Self::Primal(sums) => sums.gram.rows(),
            Self::Dual(dual) => dual.order(),
        }
    }
}

/// Collects batches of rows into a [`Gram`].
pub struct GramBuilder<'e, E: Engine> {
    engine: &'e E,
    state: State<E>,
}

enum State<E: Engine> {
    Primal(E::Accumulator),
    Dual {
        spec: SumsSpec,
        rows: Vec<f64>,
        targets: Vec<f64>,
        count: usize,
    },
}

impl<'e, E: Engine> GramBuilder<'e, E> {
    /// Starts with no rows.
    pub fn new(engine: &'e E, route: Route, spec: SumsSpec) -> Result<Self> {
        let state = match route {
            Route::Primal => State::Primal(engine.accumulator(spec)?),
            Route::Dual => State::Dual {
                spec,
                rows: Vec::new(),
                targets: Vec::new(),
                count: 0,
            },
        };
        Ok(Self { engine, state })
    }

    /// Adds a batch.
    ///
    /// # Panics
    /// As [`Engine::accumulate`].
    pub fn push(&mut self, batch: Rows<'_>, batch_targets: Targets<'_>) -> Result<()> {
        match &mut self.state {
            State::Primal(sums) => self.engine.accumulate(sums, batch, batch_targets),
            State::Dual {
                spec,
                rows,
                targets,
                count,
            } => {
                assert_eq!(batch.cols(), spec.features, "rows of other width");
                rows.extend_from_slice(batch.to_matrix().as_slice());
                let values = batch_targets.to_matrix(batch.rows(), spec.targets);
                targets.extend_from_slice(values.as_slice());
                *count += batch.rows();
                Ok(())
            }
        }
    }

    /// Adds a batch of features that a network made, [N, D], from where they lie.
    ///
    /// ```
    /// # use muso::engine::{CpuEngine, SumsSpec, Targets};
    /// # use muso::gram::{GramBuilder, Route};
    /// # use muso::models::burn::tensor::{Device, Tensor};
    /// # fn main() -> muso::Result<()> {
    /// # let engine = CpuEngine::ambient();
    /// # let spec = SumsSpec { features: 5, bias: true, targets: 0 };
    /// let mut gram = GramBuilder::new(&engine, Route::Primal, spec)?;
    /// let features = Tensor::<2>::ones([7, 5], &Device::flex());
    /// gram.update(&features, Targets::None)?;
    /// assert_eq!(gram.finish()?.system()[(0, 1)], 7.0);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "nn")]
    pub fn update(
        &mut self,
        features: &muso_models::burn::tensor::Tensor<2>,
        targets: Targets<'_>,
    ) -> Result<()> {
        match &mut self.state {
            State::Primal(sums) => self.engine.accumulate_tensor(sums, features, targets),
            State::Dual { .. } => {
                crate::engine::with_rows(features, |rows| self.push(rows, targets))
            }
        }
    }

    /// Completes it as sums over rows.
    ///
    /// # Panics
    /// If it was made for the dual route, which keeps rows and has no sums.
    pub fn into_sums(self) -> Result<Sums> {
        match self.state {
            State::Primal(sums) => self.engine.finish(sums),
            State::Dual { .. } => panic!("the dual route has no sums"),
        }
    }

    /// Completes it.
    pub fn finish(self) -> Result<Gram> {
        match self.state {
            State::Primal(sums) => Ok(Gram::Primal(self.engine.finish(sums)?)),
            State::Dual {
                spec,
                rows,
                targets,
                count,
            } => {
                let rows = Matrix::from_vec(count, spec.features, rows);
                let targets = Matrix::from_vec(count, spec.targets, targets);
                Ok(Gram::Dual(DualGram::new(
                    self.engine,
                    rows,
                    targets,
                    spec.bias,
                )?))
            }
        }
    }
}
