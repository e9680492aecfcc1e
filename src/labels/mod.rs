//! Stage 5, after `solve`: the optimal labels, by projection onto the span of the retained rows.
//!
//! For the linear model the labels that make the forgotten rows' training signal vanish are ỹ_u = Z_u W* with
//! W* = w_init + Π_r (w_p − w_init) (paper, Corollary 1); in the over-parameterised regime W* *is* the retrained
//! model. [`Projector`] applies Π_r without ever forming it; [`leverage_scores`] and [`column_select`] pick rows
//! that span the retained features. [`network_labels`] is the paper's form for networks. [`TargetForm`] is the same lemma
//! where the premise of the first form fails, which is in every network: it fits the retained labels themselves.
//!
//! ```
//! use muso::engine::{CpuEngine, Matrix};
//! use muso::gram::{DualGram, Gram};
//! use muso::labels::Projector;
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let retained = Matrix::from_vec(1, 3, vec![2.0, 0.0, 0.0]);
//! let gram = Gram::Dual(DualGram::new(&engine, retained, Matrix::zeros(1, 0), false)?);
//! let projector = Projector::new(&engine, gram, 0.0)?;
//! let (onto, _) = projector.apply(&Matrix::from_vec(3, 1, vec![5.0, 6.0, 7.0]))?;
//! assert_eq!(onto.as_slice(), &[5.0, 0.0, 0.0]);
//! # Ok(())
//! # }
//! ```

mod leverage;
mod network;
#[cfg(feature = "nn")]
mod released;
mod target;

pub use leverage::{column_select, leverage_scores};
#[cfg(feature = "nn")]
pub(crate) use network::relative_to;
pub use network::{label_weights, network_labels};
#[cfg(feature = "nn")]
pub use released::{Release, ReleasedProjector};
pub use target::{TargetFit, TargetForm, TargetModel, TargetParams};

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Matrix};
use crate::error::Result;
use crate::gram::Gram;
use crate::solve::{Info, Solver, gram_solver};

/// Vital signs of a projector: whether labels made with it can say anything new.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VitalSigns {
    /// tr(Π)/D. Near 1, Π is nearly the identity, and labels are what the trained model says already.
    pub trace_ratio: f64,
    /// u‖A‖/λ of the matrix A that is solved with, where u is the unit roundoff of the arithmetic and λ > 0. From 1
    /// upwards λ is below the rounding of A.
    pub rounding: Option<f64>,
}

/// Record of a label update of a network: the vital signs of its projector, and what it changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelUpdate {
    /// tr(Π)/D; absent where labels are made without a projector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_ratio: Option<f64>,
    /// u‖G‖/λ; absent without a projector or a ridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<f64>,
    /// Share of the forgotten rows whose class changed, from 0 to 1; before the first update they have their own.
    pub changed: f64,
}

/// Π_r, the projector onto the span of the retained rows, damped by λ.
///
/// Dual: Π V = Zᵀ(K + λI)⁻¹Z V. Primal: Π V = V − λ(G + λI)⁻¹V. The two are equal for λ > 0; neither forms Π or an
/// inverse.
pub struct Projector<'e, E: Engine> {
    solver: Solver<'e, E>,
    gram: Gram,
}

impl<'e, E: Engine> Projector<'e, E> {
    /// Factors the system of the retained rows.
    pub fn new(engine: &'e E, gram: Gram, ridge: f64) -> Result<Self> {
        let solver = gram_solver(engine, &gram, ridge)?;
        Ok(Self { solver, gram })
    }

    /// Returns Π V, V projected onto the span of the retained rows.
    pub fn apply(&self, v: &Matrix) -> Result<(Matrix, Info)> {
        match &self.gram {
            Gram::Primal(_) => self.solver.project_onto_span(v),
            Gram::Dual(dual) => {
                let engine = self.solver.engine();
                let seen = engine.project(dual.rows.as_rows(), v)?;
                let (coefficients, info) = self.solver.solve(&seen)?;
                let out = engine.pull_back(dual.rows.as_rows(), &coefficients, dual.bias)?;
                Ok((out, info))
            }
        }
    }

    /// Returns W* = w_init + Π (w_p − w_init).
    pub fn optimal_weights(&self, trained: &Matrix, init: &Matrix) -> Result<(Matrix, Info)> {
        let (projected, info) = self.apply(&trained.zip(init, |p, i| p - i))?;
        Ok((init.zip(&projected, |i, p| i + p), info))
    }

    /// Returns tr(Π)/D. Near 1 the retained rows fill the space, and λ alone decides how far labels move from
    /// predictions.
    pub fn trace_ratio(&self) -> Result<f64> {
        Ok(self.solver.projector_trace()? / self.gram.order() as f64)
    }

    /// Returns tr(Π)/D and u‖A‖/λ of the system A that it solves, in f64.
    pub fn vital_signs(&self) -> Result<VitalSigns> {
        let ratio = self.solver.info().ridge_ratio();
        Ok(VitalSigns {
            trace_ratio: self.trace_ratio()?,
            rounding: ratio.map(|ratio| f64::EPSILON / 2.0 * ratio),
        })
    }

    /// Returns the Gram matrix that it was made of.
    pub fn gram(&self) -> &Gram {
        &self.gram
    }

    /// Returns the solver of the factored system.
    pub fn solver(&self) -> &Solver<'e, E> {
        &self.solver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{CpuEngine, Sums};
    use crate::gram::DualGram;

    /// One retained row (2, 0, 0): Π keeps the first coordinate, damped by 4/(4 + λ).
    fn both(engine: &CpuEngine, ridge: f64) -> [Projector<'_, CpuEngine>; 2] {
        let row = Matrix::from_vec(1, 3, vec![2.0, 0.0, 0.0]);
        let dual = DualGram::new(engine, row, Matrix::zeros(1, 0), false).unwrap();
        let mut gram = Matrix::zeros(3, 3);
        gram[(0, 0)] = 4.0;
        let primal = Sums {
            rows: 1,
            gram,
            cross: Matrix::zeros(3, 0),
        };
        [Gram::Dual(dual), Gram::Primal(primal)]
            .map(|gram| Projector::new(engine, gram, ridge).unwrap())
    }

    #[test]
    fn the_span_is_kept_and_the_rest_is_the_start() {
        let engine = CpuEngine::ambient();
        let trained = Matrix::from_vec(3, 1, vec![5.0, 6.0, 7.0]);
        let init = Matrix::from_vec(3, 1, vec![1.0, 2.0, 3.0]);
        for (ridge, first) in [(0.0, 5.0), (4.0, 3.0)] {
            for projector in both(&engine, ridge) {
                let (best, _) = projector.optimal_weights(&trained, &init).unwrap();
                assert_eq!(best.as_slice(), [first, 2.0, 3.0], "λ = {ridge}");
                let share = (first - 1.0) / 4.0;
                let trace = projector.trace_ratio().unwrap();
                assert!((trace - share / 3.0).abs() < 1e-15, "{trace}");
                assert_eq!(projector.gram().order(), 3);
                assert_eq!(projector.solver().ridge(), ridge);
            }
        }
    }
}
