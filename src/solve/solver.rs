//! Factor once, solve many, know how well.

use super::Eigen;
use crate::engine::{Engine, Matrix};
use crate::error::{Error, Result};

/// How to solve.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// λ ≥ 0, added to the diagonal.
    pub ridge: f64,
    /// One step of iterative refinement.
    pub refine: bool,
    /// Fall back to the eigendecomposition where Cholesky fails.
    pub fallback: bool,
}

impl Params {
    /// The defaults with the given λ.
    pub fn ridge(ridge: f64) -> Self {
        Self {
            ridge,
            refine: true,
            fallback: true,
        }
    }
}

/// Which factorisation was used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Cholesky, with its smallest and largest pivot.
    Cholesky {
        /// Smallest pivot.
        min_pivot: f64,
        /// Largest pivot.
        max_pivot: f64,
    },
    /// Eigendecomposition, after Cholesky failed at `pivot`.
    Eigen {
        /// The pivot at which Cholesky failed.
        pivot: usize,
        /// Directions kept.
        rank: usize,
    },
}

/// How a solve went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Order of the system.
    pub order: usize,
    /// λ.
    pub ridge: f64,
    /// ‖A‖₂ estimated from below by power iteration.
    pub norm: f64,
    /// The factorisation.
    pub method: Method,
    /// ‖B − (A + λI)X‖ / ‖B‖ before the refinement step, over the directions kept.
    pub residual_before: f64,
    /// The same after it.
    pub residual_after: f64,
}

impl Info {
    /// ‖A‖/λ, or nothing without a ridge.
    pub fn ridge_ratio(&self) -> Option<f64> {
        (self.ridge > 0.0).then(|| self.norm / self.ridge)
    }

    /// A sentence for the user when rounding may reach the third digit: eps·‖A‖/λ > 1e-3.
    pub fn warning(&self) -> Option<String> {
        match (self.method, self.ridge_ratio()) {
            (Method::Eigen { pivot, rank }, _) => Some(format!(
                "Cholesky failed at pivot {pivot}; an eigendecomposition of rank {rank} of {} was used",
                self.order
            )),
            (_, Some(ratio)) if f64::EPSILON * ratio > 1e-3 => Some(format!(
                "the ridge is {:.0e} of the matrix's norm: rounding may reach the third digit",
                1.0 / ratio
            )),
            _ => None,
        }
    }
}

/// A factored symmetric system A + λI.
pub struct Solver<'e, E: Engine> {
    engine: &'e E,
    matrix: Matrix,
    params: Params,
    norm: f64,
    factorisation: Factorisation<E::Factor>,
}

enum Factorisation<F> {
    Cholesky(F),
    Eigen {
        eigen: Eigen,
        pivot: usize,
        rank: usize,
    },
}

impl<'e, E: Engine> Solver<'e, E> {
    /// Factors `matrix` (symmetric, both triangles) with the parameters' ridge.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a ridge that is negative or not finite; [`Error::NotPositiveDefinite`] when Cholesky
    /// fails and no fallback is allowed; [`Error::NoConvergence`] when the fallback fails as well.
    pub fn new(engine: &'e E, matrix: Matrix, params: Params) -> Result<Self> {
        if !(params.ridge >= 0.0 && params.ridge.is_finite()) {
            return Err(Error::Parameter {
                name: "ridge",
                value: params.ridge.to_string(),
                expected: "a finite number that is not negative".into(),
            });
        }
        let norm = largest_eigenvalue(engine, &matrix)?;
        let factorisation = match engine.factor(&matrix, params.ridge) {
            Ok(factor)
                if !collapsed(engine.pivots(&factor).0, matrix.rows(), norm + params.ridge) =>
            {
                Factorisation::Cholesky(factor)
            }
            outcome if params.fallback => {
                let pivot = match outcome {
                    Ok(_) => matrix.rows() - 1,
                    Err(Error::NotPositiveDefinite { pivot, .. }) => pivot,
                    Err(other) => return Err(other),
                };
                let mut shifted = matrix.clone();
                for i in 0..shifted.rows() {
                    shifted[(i, i)] += params.ridge;
                }
                let eigen = Eigen::new(&shifted)?;
                let rank = eigen.rank();
                Factorisation::Eigen { eigen, pivot, rank }
            }
            Ok(factor) => Factorisation::Cholesky(factor),
            Err(error) => return Err(error),
        };
        Ok(Self {
            engine,
            matrix,
            params,
            norm,
            factorisation,
        })
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &'e E {
        self.engine
    }

    /// A, without the ridge.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// λ.
    pub fn ridge(&self) -> f64 {
        self.params.ridge
    }

    /// X with (A + λI) X = B; the least-norm one over the kept directions after a fallback.
    pub fn solve(&self, rhs: &Matrix) -> Result<(Matrix, Info)> {
        let (mut x, mut info) = (self.solve_once(rhs)?, self.info());
        let residual = self.residual(rhs, &x)?;
        let scale = rhs.norm().max(f64::MIN_POSITIVE);
        info.residual_before = residual.norm() / scale;
        info.residual_after = info.residual_before;
        if self.params.refine {
            let refined = x.zip(&self.solve_once(&residual)?, |a, b| a + b);
            let after = self.residual(rhs, &refined)?.norm() / scale;
            // At the limit of the arithmetic a step may only shuffle the last digits; keep the better one.
            if after < info.residual_before {
                (x, info.residual_after) = (refined, after);
            }
        }
        Ok((x, info))
    }

    /// What is known before any right-hand side.
    pub fn info(&self) -> Info {
        let method = match &self.factorisation {
            Factorisation::Cholesky(factor) => {
                let (min_pivot, max_pivot) = self.engine.pivots(factor);
                Method::Cholesky {
                    min_pivot,
                    max_pivot,
                }
            }
            Factorisation::Eigen { pivot, rank, .. } => Method::Eigen {
                pivot: *pivot,
                rank: *rank,
            },
        };
        Info {
            order: self.matrix.rows(),
            ridge: self.params.ridge,
            norm: self.norm,
            method,
            residual_before: 0.0,
            residual_after: 0.0,
        }
    }

    /// tr(A (A + λI)⁻¹): how many directions of the space the rows take up, N to the last digit when λ = 0 and they
    /// are independent.
    pub fn projector_trace(&self) -> Result<f64> {
        let order = self.matrix.rows() as f64;
        match &self.factorisation {
            Factorisation::Cholesky(_) if self.params.ridge == 0.0 => Ok(order),
            Factorisation::Cholesky(factor) => {
                Ok(order - self.params.ridge * self.engine.inverse_trace(factor)?)
            }
            Factorisation::Eigen { eigen, rank, .. } => {
                let kept = eigen.values.iter().take(*rank);
                Ok(kept.map(|s| (s - self.params.ridge) / s).sum())
            }
        }
    }

    /// 2-norm condition number of A + λI over the directions kept, estimated from below.
    pub fn condition(&self) -> Result<f64> {
        let largest = self.norm + self.params.ridge;
        match &self.factorisation {
            Factorisation::Cholesky(factor) => {
                let inverse =
                    power_iteration(self.matrix.rows(), |x| self.engine.solve(factor, x))?;
                Ok(largest * inverse)
            }
            Factorisation::Eigen { eigen, rank, .. } => {
                Ok(largest / eigen.values[rank.saturating_sub(1)])
            }
        }
    }

    /// A (A + λI)⁻¹ V: the projector onto the span of the rows, damped by λ, for A = G.
    ///
    /// As V − λ (A + λI)⁻¹ V, which only touches what the data does not span.
    pub fn project_onto_span(&self, v: &Matrix) -> Result<(Matrix, Info)> {
        match &self.factorisation {
            Factorisation::Cholesky(_) => {
                let (x, info) = self.solve(v)?;
                let ridge = self.params.ridge;
                Ok((v.zip(&x, |v, x| v - ridge * x), info))
            }
            Factorisation::Eigen { eigen, rank, .. } => {
                let ridge = self.params.ridge;
                let out = eigen.apply(self.engine, *rank, v, |s| (s - ridge) / s)?;
                Ok((out, self.info()))
            }
        }
    }

    /// The part of V in the directions that the fallback dropped; nothing when all were kept.
    pub fn dropped_part(&self, v: &Matrix) -> Result<Option<Matrix>> {
        match &self.factorisation {
            Factorisation::Cholesky(_) => Ok(None),
            Factorisation::Eigen { eigen, rank, .. } => {
                let kept = eigen.apply(self.engine, *rank, v, |_| 1.0)?;
                Ok(Some(v.zip(&kept, |v, k| v - k)))
            }
        }
    }

    fn solve_once(&self, rhs: &Matrix) -> Result<Matrix> {
        match &self.factorisation {
            Factorisation::Cholesky(factor) => self.engine.solve(factor, rhs),
            Factorisation::Eigen { eigen, rank, .. } => {
                eigen.apply(self.engine, *rank, rhs, |s| 1.0 / s)
            }
        }
    }

    /// B − (A + λI) X, over the kept directions after a fallback.
    fn residual(&self, rhs: &Matrix, x: &Matrix) -> Result<Matrix> {
        let ridge = self.params.ridge;
        let ax = self.engine.project(self.matrix.as_rows(), x)?;
        let mut residual = rhs.zip(&ax, |b, ax| b - ax);
        residual = residual.zip(x, |r, x| r - ridge * x);
        match &self.factorisation {
            Factorisation::Cholesky(_) => Ok(residual),
            Factorisation::Eigen { eigen, rank, .. } => {
                eigen.apply(self.engine, *rank, &residual, |_| 1.0)
            }
        }
    }
}

/// A smallest pivot within rounding of zero: the factor exists by luck and would amplify noise.
fn collapsed(smallest: f64, order: usize, norm: f64) -> bool {
    smallest <= order as f64 * f64::EPSILON * norm
}

fn largest_eigenvalue<E: Engine>(engine: &E, matrix: &Matrix) -> Result<f64> {
    power_iteration(matrix.rows(), |x| engine.project(matrix.as_rows(), x))
}

/// Largest eigenvalue of a positive semi-definite operator, from below; a handful of steps gives its magnitude.
fn power_iteration(order: usize, apply: impl Fn(&Matrix) -> Result<Matrix>) -> Result<f64> {
    const STEPS: usize = 16;
    // A fixed start without symmetries that could make it orthogonal to the top direction.
    let mut x = Matrix::from_fn(order, 1, |i, _| 1.0 + (i as f64 * 0.754_877_666).fract());
    let mut value = 0.0;
    for _ in 0..STEPS {
        let norm = x.norm();
        if norm == 0.0 || !norm.is_finite() {
            break;
        }
        for entry in x.as_mut_slice() {
            *entry /= norm;
        }
        x = apply(&x)?;
        value = x.norm();
    }
    Ok(value)
}
