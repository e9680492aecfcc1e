//! Stage 3, after `features`: the Gram matrix G = ZᵀZ or the kernel matrix K = ZZᵀ of a set of rows.
//!
//! With N rows of D features (bias included) everything downstream needs either G = ZᵀZ and ZᵀY (`primal`, N ≥ D) or
//! Z, Y and K = ZZᵀ (`dual`, N < D). Either way O(min(N, D)·D) memory, so N may be anything: the primal sums stream.
//! [`shard`] keeps primal sums as files that add up, for rows that are summed in several places; [`exact`] makes them of
//! integers.
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

pub mod exact;
pub mod shard;
mod stream;

use crate::engine::{Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use crate::error::Result;

pub use stream::SUMS_LANE;
pub(crate) use stream::split_sums;

/// Selects one of the two equal formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// D×D systems from streamed sums.
    Primal,
    /// N×N systems from rows held in memory.
    Dual,
}

impl Route {
    /// Returns the cheaper route: dual when there are fewer rows than features.
    pub fn choose(rows: u64, order: usize) -> Self {
        if rows < order as u64 {
            Self::Dual
        } else {
            Self::Primal
        }
    }

    /// Returns the name that reports print.
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
    /// Appends a feature that is always 1.
    pub bias: bool,
    /// Y, the N×C targets.
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

    /// Returns D, the number of features with the bias.
    pub fn order(&self) -> usize {
        self.rows.cols() + usize::from(self.bias)
    }
}

/// Everything that is kept of a set of rows.
#[derive(Clone, Debug)]
pub enum Gram {
    /// Sums over the rows.
    Primal(Sums),
    /// The rows themselves and their kernel matrix.
    Dual(DualGram),
}

impl Gram {
    /// Returns the symmetric matrix to factor: G or K.
    pub fn system(&self) -> &Matrix {
        match self {
            Self::Primal(sums) => &sums.gram,
            Self::Dual(dual) => &dual.kernel,
        }
    }

    /// Returns how many roundings an entry of [`Gram::system`] has been through, at most, where `engine` made it: sums
    /// over rows are the engine's own matter, and inner products over the features are one chain everywhere.
    pub fn roundings<E: Engine>(&self, engine: &E) -> f64 {
        match self {
            Self::Primal(sums) => engine.roundings(sums.rows),
            Self::Dual(dual) => dual.order() as f64,
        }
    }

    /// Returns D, the number of features with the bias.
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

    /// Completes the sums, or computes K from the rows that were held.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    const SPEC: SumsSpec = SumsSpec {
        features: 2,
        bias: true,
        targets: 2,
    };

    fn built(engine: &CpuEngine, route: Route) -> Gram {
        let mut builder = GramBuilder::new(engine, route, SPEC).unwrap();
        let rows = Matrix::from_vec(3, 2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let rows = rows.as_rows();
        builder
            .push(rows.slice(0, 1), Targets::Classes(&[1]))
            .unwrap();
        builder
            .push(rows.slice(1, 3), Targets::Classes(&[0, 1]))
            .unwrap();
        builder.finish().unwrap()
    }

    #[test]
    fn fewer_rows_than_features_go_the_dual_way() {
        assert_eq!(Route::choose(4, 5), Route::Dual);
        assert_eq!(Route::choose(5, 5), Route::Primal);
        assert_eq!(Route::choose(6, 5), Route::Primal);
        assert_eq!(Route::choose(0, 0), Route::Primal);
        assert_eq!(
            [Route::Primal, Route::Dual].map(Route::name),
            ["primal", "dual"]
        );
    }

    #[test]
    fn batches_add_up_on_either_route() {
        let engine = CpuEngine::ambient();
        let Gram::Primal(sums) = built(&engine, Route::Primal) else {
            panic!("primal")
        };
        assert_eq!(sums.rows, 3);
        let gram = [35.0, 44.0, 9.0, 44.0, 56.0, 12.0, 9.0, 12.0, 3.0];
        assert_eq!(sums.gram.as_slice(), gram);
        assert_eq!(sums.cross.as_slice(), [3.0, 6.0, 4.0, 8.0, 1.0, 2.0]);
        let Gram::Dual(dual) = built(&engine, Route::Dual) else {
            panic!("dual")
        };
        let kernel = [6.0, 12.0, 18.0, 12.0, 26.0, 40.0, 18.0, 40.0, 62.0];
        assert_eq!(dual.kernel.as_slice(), kernel);
        assert_eq!(dual.targets.as_slice(), [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(
            (dual.rows.rows(), dual.rows.cols(), dual.bias),
            (3, 2, true)
        );
    }

    #[test]
    fn the_system_is_the_one_that_is_solved() {
        let engine = CpuEngine::ambient();
        let (primal, dual) = (built(&engine, Route::Primal), built(&engine, Route::Dual));
        assert_eq!((primal.system().rows(), dual.system().rows()), (3, 3));
        assert_eq!((primal.order(), dual.order()), (3, 3));
        // Three rows and a block; an inner product over three features.
        assert_eq!(primal.roundings(&engine), 4.0);
        assert_eq!(dual.roundings(&engine), 3.0);
    }
}
