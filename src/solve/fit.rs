//! Closed forms of ridge regression and of the interpolant nearest to a start.
//!
//! [`fit`] is the limit of gradient descent from w₀: the interpolant nearest to w₀,
//! w₀ + Zᵀ(K + λI)⁻¹(Y − Z w₀) (paper, Lemma 1), in whichever of its two forms is cheaper. For N ≥ D the primal form
//! (G + λI)⁻¹(ZᵀY + λw₀) is the same thing, needs only sums over rows, and subtracts nothing.

use super::{Info, Params, Solver};
use crate::engine::{Centred, Engine, Matrix, Sums};
use crate::error::Result;
use crate::gram::{DualGram, Gram};

/// Fitted weights, with a record of the solve.
#[derive(Clone, Debug)]
pub struct Fit {
    /// D×C, the bias as last row where there is one.
    pub weights: Matrix,
    /// Record of the solve.
    pub info: Info,
}

/// Fits all rows in `gram` to their targets, nearest to `start`.
///
/// # Errors
/// As [`Solver::new`].
pub fn fit<E: Engine>(engine: &E, gram: &Gram, start: &Matrix, ridge: f64) -> Result<Fit> {
    let solver = gram_solver(engine, gram, ridge)?;
    fit_with(&solver, gram, start)
}

/// Fits all rows as [`fit`] does, with a bias that the ridge leaves free: the ridge is that of the weights, and the bias is
/// what is best beside them. The bias of `start` plays no part.
///
/// # Errors
/// As [`Solver::new`].
pub fn fit_free_bias<E: Engine>(
    engine: &E,
    centred: &Centred,
    start: &Matrix,
    ridge: f64,
) -> Result<Fit> {
    let gram = Gram::Primal(centred.sums.clone());
    let width: Vec<usize> = (0..gram.order()).collect();
    let fitted = fit(engine, &gram, &start.select_rows(&width), ridge)?;
    Ok(Fit {
        weights: centred.with_bias(&fitted.weights),
        info: fitted.info,
    })
}

/// Factors G + λI or K + λI.
///
/// # Errors
/// As [`Solver::new`].
pub fn gram_solver<'e, E: Engine>(engine: &'e E, gram: &Gram, ridge: f64) -> Result<Solver<'e, E>> {
    let params = Params {
        roundings: gram.roundings(engine),
        ..Params::ridge(ridge)
    };
    Solver::new(engine, gram.system().clone(), params)
}

/// Fits as [`fit`] does, with a solver that [`gram_solver`] made.
pub fn fit_with<E: Engine>(solver: &Solver<'_, E>, gram: &Gram, start: &Matrix) -> Result<Fit> {
    match gram {
        Gram::Primal(sums) => primal_fit(solver, sums, start),
        Gram::Dual(dual) => dual_fit(solver, dual, start),
    }
}

/// Returns (G + λI)⁻¹(ZᵀY + λw₀), with `solver` made from G.
///
/// Directions that the solver had to drop keep w₀: no row pulls them anywhere.
fn primal_fit<E: Engine>(solver: &Solver<'_, E>, sums: &Sums, start: &Matrix) -> Result<Fit> {
    let ridge = solver.ridge();
    let (mut weights, info) = solver.solve(&sums.cross.zip(start, |b, w| b + ridge * w))?;
    if let Some(unseen) = solver.dropped_part(start)? {
        weights = weights.zip(&unseen, |w, u| w + u);
    }
    Ok(Fit { weights, info })
}

/// w₀ + Zᵀ(K + λI)⁻¹(Y − Z w₀), with `solver` made from K.
fn dual_fit<E: Engine>(solver: &Solver<'_, E>, dual: &DualGram, start: &Matrix) -> Result<Fit> {
    let engine = solver.engine();
    let predicted = engine.project(dual.rows.as_rows(), start)?;
    let missing = dual.targets.zip(&predicted, |y, p| y - p);
    let (coefficients, info) = solver.solve(&missing)?;
    let change = engine.pull_back(dual.rows.as_rows(), &coefficients, dual.bias)?;
    Ok(Fit {
        weights: start.zip(&change, |w, c| w + c),
        info,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    /// Rows (1, 0) → 4 and (0, 2) → 2, from w₀ = (1, 5), by hand.
    #[test]
    fn both_forms_by_hand() {
        let engine = CpuEngine::ambient();
        let rows = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 2.0]);
        let targets = Matrix::from_vec(2, 1, vec![4.0, 2.0]);
        let start = Matrix::from_vec(2, 1, vec![1.0, 5.0]);
        let primal = Gram::Primal(Sums {
            rows: 2,
            gram: Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 4.0]),
            cross: Matrix::from_vec(2, 1, vec![4.0, 4.0]),
        });
        let dual = Gram::Dual(DualGram::new(&engine, rows, targets, false).unwrap());
        for gram in [primal, dual] {
            // (zy + λw₀)/(z² + λ).
            for (ridge, wanted) in [(0.0, [4.0, 1.0]), (1.0, [2.5, 9.0 / 5.0])] {
                let found = fit(&engine, &gram, &start, ridge).unwrap();
                for (found, wanted) in found.weights.as_slice().iter().zip(wanted) {
                    assert!((found - wanted).abs() < 1e-14, "{found} against {wanted}");
                }
                assert_eq!(found.info.ridge, ridge);
            }
        }
    }
}
