//! Closed forms of linear fits.
//!
//! [`fit`] is the limit of gradient descent from w₀: the interpolant nearest to w₀,
//! w₀ + Zᵀ(K + λI)⁻¹(Y − Z w₀) (paper, Lemma 1), in whichever of its two forms is cheaper. For N ≥ D the primal form
//! (G + λI)⁻¹(ZᵀY + λw₀) is the same thing, needs only sums over rows, and subtracts nothing.

use super::{Info, Params, Solver};
use crate::engine::{Engine, Matrix, Sums};
use crate::error::Result;
use crate::gram::{DualGram, Gram};

/// Fitted weights and how the solve went.
#[derive(Clone, Debug)]
pub struct Fit {
    /// D×C, the bias as last row where there is one.
    pub weights: Matrix,
    /// Of the solve.
    pub info: Info,
}

/// The fit of all rows in `gram` to its targets, nearest to `start`.
///
/// # Errors
/// As [`Solver::new`].
pub fn fit<E: Engine>(engine: &E, gram: &Gram, start: &Matrix, ridge: f64) -> Result<Fit> {
    let solver = gram_solver(engine, gram, ridge)?;
    fit_with(&solver, gram, start)
}

/// Factors G + λI or K + λI.
///
/// # Errors
/// As [`Solver::new`].
pub fn gram_solver<'e, E: Engine>(engine: &'e E, gram: &Gram, ridge: f64) -> Result<Solver<'e, E>> {
    let params = Params {
        roundings: gram.roundings(),
        ..Params::ridge(ridge)
    };
    Solver::new(engine, gram.system().clone(), params)
}

/// The same with a solver at hand, made by [`gram_solver`].
pub fn fit_with<E: Engine>(solver: &Solver<'_, E>, gram: &Gram, start: &Matrix) -> Result<Fit> {
    match gram {
        Gram::Primal(sums) => primal_fit(solver, sums, start),
        Gram::Dual(dual) => dual_fit(solver, dual, start),
    }
}

/// (G + λI)⁻¹(ZᵀY + λw₀), with `solver` made from G.
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
