//! The new head in closed form, and how far its premise holds.

use super::collect::Collected;
use super::input::Input;
use super::plan::Plan;
use super::request::{Objective, Source};
use super::{PREMISE_LIMIT, relative_distance};
use crate::engine::{Centred, Engine, Matrix, Sums};
use crate::error::{Error, Result};
use crate::gram::Gram;
use crate::labels::Projector;
use crate::outcome::{Conditioning, Premise};
use crate::solve::{Info, Method, Solver, fit, fit_free_bias, fit_with};

/// tr(Π)/D from which the retained rows count as filling the space.
const FULL_SPACE: f64 = 0.999;

/// The new weights and what there is to say of them.
pub(super) struct Solved {
    /// D×C, the bias as last row.
    pub(super) weights: Matrix,
    pub(super) conditioning: Conditioning,
    pub(super) trace_ratio: f64,
    pub(super) premise: Option<Premise>,
    pub(super) warnings: Vec<String>,
}

/// Solves for the new weights.
pub(super) fn solve<E: Engine>(
    engine: &E,
    plan: &Plan,
    input: &Input<'_>,
    collected: &Collected,
) -> Result<Solved> {
    let (trained, init) = (&input.trained, &input.init);
    let retained = match collected {
        Collected::Primal {
            centred: Some(centred),
            ..
        } => Gram::Primal(centred.sums.clone()),
        Collected::Primal { retained, .. } => Gram::Primal(retained.clone()),
        Collected::Dual(dual) => Gram::Dual(dual.clone()),
    };
    let projector = Projector::new(engine, retained, plan.ridge)?;
    let solver = projector.solver();
    if plan.exact {
        has_bytes_of_its_own(&solver.info())?;
    }
    let (weights, info) = match (plan.source, collected) {
        (
            source,
            Collected::Primal {
                forgotten,
                centred: Some(centred),
                ..
            },
        ) => free_bias(solver, source, centred, forgotten, input)?,
        (Source::Head, Collected::Primal { forgotten, .. })
            if plan.objective == Objective::Ridge =>
        {
            // w_p + (G_r + λI)⁻¹(G_u w_p − Z_uᵀY_u).
            let predicted = engine.project(forgotten.gram.as_rows(), trained)?;
            let pull = predicted.zip(&forgotten.cross, |p, y| p - y);
            let (change, info) = solver.solve(&pull)?;
            let mut weights = trained.zip(&change, |w, c| w + c);
            // Directions that no retained row sees keep what they were before training.
            let back = init.zip(trained, |i, t| i - t);
            if let Some(back) = solver.dropped_part(&back)? {
                weights = weights.zip(&back, |w, b| w + b);
            }
            (weights, info)
        }
        (Source::Head, _) => projector.optimal_weights(trained, init)?,
        (Source::Labels, _) => {
            let fitted = fit_with(solver, projector.gram(), init)?;
            (fitted.weights, fitted.info)
        }
    };
    if weights.as_slice().iter().any(|w| !w.is_finite()) {
        return Err(Error::Overflow);
    }
    let trace_ratio = projector.trace_ratio()?;
    let premise = premise(engine, plan, input, collected)?;
    Ok(Solved {
        conditioning: conditioning(&info, solver.condition()?),
        warnings: warnings(plan, solver, premise.as_ref(), trace_ratio)?,
        weights,
        trace_ratio,
        premise,
    })
}

/// Solves with a bias that the ridge leaves free; `solver` is that of the sums about the means.
fn free_bias<E: Engine>(
    solver: &Solver<'_, E>,
    source: Source,
    centred: &Centred,
    forgotten: &Sums,
    input: &Input<'_>,
) -> Result<(Matrix, Info)> {
    let trained = &input.trained;
    let width: Vec<usize> = (0..centred.features.len()).collect();
    let init = input.init.select_rows(&width);
    if source == Source::Labels {
        let fitted = fit_with(solver, &Gram::Primal(centred.sums.clone()), &init)?;
        return Ok((centred.with_bias(&fitted.weights), fitted.info));
    }
    // The pull of the forgotten rows is P with q for the bias below: ΔW = (G + λI)⁻¹(P − z̄qᵀ) with the sums about the means,
    // and Δb = q/n − z̄ᵀΔW.
    let predicted = solver.engine().project(forgotten.gram.as_rows(), trained)?;
    let pull = predicted.zip(&forgotten.cross, |p, y| p - y);
    let of_bias = pull.row(width.len()).to_vec();
    let about = Matrix::from_fn(width.len(), pull.cols(), |d, c| {
        pull[(d, c)] - centred.features[d] * of_bias[c]
    });
    let (mut change, info) = solver.solve(&about)?;
    let back = init.zip(&trained.select_rows(&width), |i, t| i - t);
    if let Some(back) = solver.dropped_part(&back)? {
        change = change.zip(&back, |c, b| c + b);
    }
    let rows = centred.sums.rows as f64;
    let beside = Centred {
        targets: of_bias.iter().map(|q| q / rows).collect(),
        ..centred.clone()
    };
    let change = beside.with_bias(&change);
    Ok((trained.zip(&change, |w, c| w + c), info))
}

/// Refuses the rank-revealing fallback: an eigendecomposition's bytes depend on the processor.
fn has_bytes_of_its_own(info: &Info) -> Result<()> {
    match info.method {
        Method::Cholesky { .. } => Ok(()),
        Method::Eigen { pivot, rank } => Err(Error::selection(
            "`.exact`",
            format!(
                "G + λI is singular to working precision (pivot {pivot} of {}, rank {rank}), and the eigendecomposition \
                 that would take over has other bytes on other processors",
                info.order
            ),
            "a larger `.ridge`, or no `.exact`",
        )),
    }
}

/// Collects the warnings to heed before relying on the result.
fn warnings<E: Engine>(
    plan: &Plan,
    solver: &Solver<'_, E>,
    premise: Option<&Premise>,
    trace_ratio: f64,
) -> Result<Vec<String>> {
    let mut warnings: Vec<String> = solver.warning()?.into_iter().collect();
    if let Some(premise) = premise.filter(|p| p.residual > PREMISE_LIMIT) {
        warnings.push(match plan.source {
            Source::Labels => format!(
                "the given head is {:.1e} away from the ridge optimum of all rows: the new head is the ridge \
                 optimum of the retained rows, not your head with the rows removed (`.source = head` is that)",
                premise.residual
            ),
            Source::Head => format!(
                "the given head is not what this takes it to be ({} {:.1e}), and the result is only as exact as \
                 that; for a head trained with a ridge, `.objective = ridge` and its `.ridge` are exact",
                premise.meaning, premise.residual
            ),
        });
    }
    let by_projector = plan.objective == Objective::Interpolate && plan.source == Source::Head;
    if by_projector && trace_ratio > FULL_SPACE {
        warnings.push(format!(
            "the retained rows fill the feature space (tr(Π)/D = {trace_ratio:.4}): the projector is the identity \
             and the new head is nearly the old one; `.objective = ridge` forgets"
        ));
    }
    Ok(warnings)
}

/// Measures how far the given head is from what the theory takes it to be; `None` where the result does not depend on
/// it.
fn premise<E: Engine>(
    engine: &E,
    plan: &Plan,
    input: &Input<'_>,
    collected: &Collected,
) -> Result<Option<Premise>> {
    let trained = &input.trained;
    let (residual, meaning) = match (plan.objective, collected) {
        (
            Objective::Ridge,
            Collected::Primal {
                retained,
                forgotten,
                centred,
            },
        ) => {
            // Without forgotten rows the optimum of all rows is not known.
            if forgotten.rows == 0 {
                return Ok(None);
            }
            let all = retained.add(forgotten);
            let optimum = match centred {
                Some(_) => {
                    let all = all.centred(engine.roundings(all.rows));
                    fit_free_bias(engine, &all, &input.init, plan.ridge)?
                }
                None => fit(engine, &Gram::Primal(all), &input.init, plan.ridge)?,
            };
            let optimum = optimum.weights;
            let meaning = "relative distance from the ridge optimum of all rows";
            (relative_distance(trained, &optimum), meaning)
        }
        (Objective::Interpolate, _) if plan.source == Source::Labels => return Ok(None),
        (_, Collected::Primal { retained, .. }) if retained.cross.cols() > 0 => {
            let predicted = engine.project(retained.gram.as_rows(), trained)?;
            let meaning = "relative gradient on the retained rows";
            (relative_distance(&predicted, &retained.cross), meaning)
        }
        (Objective::Interpolate, Collected::Dual(dual)) if dual.targets.cols() > 0 => {
            let predicted = engine.project(dual.rows.as_rows(), trained)?;
            let meaning = "relative misfit on the retained rows";
            (relative_distance(&predicted, &dual.targets), meaning)
        }
        _ => return Ok(None),
    };
    Ok(Some(Premise {
        residual,
        meaning: meaning.into(),
    }))
}

fn conditioning(info: &Info, condition: f64) -> Conditioning {
    let (factor, rank, min_pivot, max_pivot) = match info.method {
        Method::Cholesky {
            min_pivot,
            max_pivot,
        } => ("cholesky", info.order, min_pivot, max_pivot),
        Method::Eigen { rank, .. } => ("eigen", rank, f64::NAN, f64::NAN),
    };
    Conditioning {
        ridge_ratio: info.ridge_ratio(),
        condition: Some(condition),
        min_pivot,
        max_pivot,
        factor: factor.into(),
        rank,
        residual_before: info.residual_before,
        residual_after: info.residual_after,
    }
}
