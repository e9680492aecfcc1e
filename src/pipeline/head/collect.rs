//! The pass over the rows: what the solve needs of them, in D×D sums or, dual, as the retained rows themselves.
//!
//! The second phase of a run, between the [plan](super::plan) and the solve. Rows stream through `gram`; sums that were
//! made before are taken as they are, less the rows that are to be forgotten beside.

use super::input::Input;
use super::plan::Plan;
use crate::data::rows::{RowSource, Which};
use crate::engine::exact::Seen;
use crate::engine::{Centred, Engine, Sums};
use crate::error::{Error, Result};
use crate::gram::exact::{ExactParams, ExactState, exact_spec, split_exact};
use crate::gram::shard::Shard;
use crate::gram::{DualGram, Gram, GramBuilder, Route, SUMS_LANE, split_sums};
use crate::outcome::ExactReport;
use crate::pipeline::clock::Clock;
use crate::pipeline::exact;
use crate::progress::Progress;
use crate::scheduler::Scheduler;

/// How much forgotten rows may outweigh retained ones in a feature before subtracting them is worth a warning.
const OUTWEIGHED: f64 = 1e3;

/// What the pass over the rows leaves.
pub(super) enum Collected {
    Primal {
        retained: Sums,
        forgotten: Sums,
        /// The retained sums about their means, where the bias is free of the ridge.
        centred: Option<Centred>,
    },
    Dual(DualGram),
}

/// Makes the pass over the rows, and says what to know about it.
pub(super) fn collect<E: Engine>(
    engine: &E,
    input: &Input<'_>,
    plan: &Plan,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<(Collected, Vec<String>)> {
    let sums = |rows: &RowSource<'_>, which, progress: &mut dyn Progress| {
        split_sums(engine, rows, plan.spec, which, scheduler, progress, |_| ())
    };
    let mut warnings = Vec::new();
    if let Some(shard) = &input.shard {
        let (mut retained, mut forgotten) = (shard.retained.clone(), shard.forgotten.clone());
        if let Some(rows) = &input.rows {
            let (_, gone) = sums(rows, Which::Forgotten, progress)?;
            retained = retained.subtract(&gone);
            warnings.extend(lost_digits(&retained, &gone));
            forgotten = forgotten.add(&gone);
        }
        warnings.extend(said_of_sums(shard, input));
        let collected = primal(engine, plan, retained, forgotten);
        return Ok((collected, warnings));
    }
    let rows = input.rows()?;
    let collected = match plan.route {
        Route::Primal => {
            let (retained, forgotten) = sums(rows, Which::All, progress)?;
            primal(engine, plan, retained, forgotten)
        }
        Route::Dual => {
            let mut builder = GramBuilder::new(engine, Route::Dual, plan.spec)?;
            rows.stream(scheduler, SUMS_LANE, Which::All, progress, |batch| {
                let kept = rows.retained_in(batch);
                batch.with_targets(plan.spec, &kept, |rows, targets| {
                    builder.push(rows, targets)
                })
            })?;
            match builder.finish()? {
                Gram::Dual(dual) => Collected::Dual(dual),
                Gram::Primal(_) => unreachable!("the builder was made for the dual route"),
            }
        }
    };
    Ok((collected, warnings))
}

/// Takes f64 sums, about their means as well where that is needed.
fn primal<E: Engine>(engine: &E, plan: &Plan, retained: Sums, forgotten: Sums) -> Collected {
    let roundings = engine.roundings(retained.rows);
    Collected::Primal {
        centred: plan.free_bias.then(|| retained.centred(roundings)),
        retained,
        forgotten,
    }
}

/// Makes the pass over the rows in integers, on a grid that it may have to record first; sums that were made before are taken
/// as they are. Subtracting costs nothing here.
pub(super) fn collect_exact<E: Engine>(
    engine: &E,
    input: &Input<'_>,
    plan: &Plan,
    params: Option<&ExactParams>,
    clock: &mut Clock,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<(Collected, ExactReport, Vec<String>)> {
    let (state, recording, set, seen): (ExactState, bool, usize, Option<Seen>);
    let mut warnings = Vec::new();
    match input
        .shard
        .as_ref()
        .and_then(|shard| shard.exact.as_ref().map(|exact| (shard, exact)))
    {
        Some((shard, exact)) => {
            let mut left = exact.clone();
            (recording, warnings) = (false, said_of_sums(shard, input));
            (set, seen) = match &input.rows {
                None => (0, None),
                Some(rows) => {
                    let which = Which::Forgotten;
                    let (gone, seen) = split_exact(
                        engine,
                        rows,
                        &exact.spec,
                        which,
                        scheduler,
                        progress,
                        |_| (),
                    )?;
                    let set = left.forget(&gone.forgotten).map_err(|error| match error {
                        // The rows are those of the file that the sums are of, so this is a file that was changed.
                        Error::Overflow => Error::selection(
                            rows.name(),
                            "the rows to forget are not what the sums were made of",
                            "the file that the sums were made of, unchanged",
                        ),
                        other => other,
                    })?;
                    (set, Some(seen))
                }
            };
            state = left;
        }
        None => {
            let rows = input.rows()?;
            let params = params.cloned().unwrap_or_default();
            let (spec, recorded) = exact_spec(&params, rows, plan.spec, scheduler, progress)?;
            clock.lap("grid");
            let (made, found) =
                split_exact(engine, rows, &spec, Which::All, scheduler, progress, |_| ())?;
            (state, recording, set, seen) = (made, recorded, 0, Some(found));
        }
    }
    let (report, said) = exact::report(&state, recording, set, seen);
    warnings.extend(said);
    let (retained, forgotten) = state.to_sums()?;
    let centred = match plan.free_bias {
        true => Some(state.retained.to_centred(&state.spec)?),
        false => None,
    };
    let collected = Collected::Primal {
        retained,
        forgotten,
        centred,
    };
    Ok((collected, report, warnings))
}

/// Says what to know about sums that were made before.
fn said_of_sums(shard: &Shard, input: &Input<'_>) -> Vec<String> {
    let mut warnings: Vec<String> = shard.gaps_in_words().into_iter().collect();
    if input.forgotten() == 0 {
        warnings.push(
            "no row in the sums is forgotten: the new head is the one of all rows in them".into(),
        );
    }
    warnings
}

/// Says where subtracting rows has cost digits: where they outweigh what is left.
fn lost_digits(left: &Sums, gone: &Sums) -> Option<String> {
    let share = |d: usize| gone.gram[(d, d)] / left.gram[(d, d)].abs();
    let (feature, share) = (0..left.gram.rows())
        .map(|d| (d, share(d)))
        .filter(|(_, share)| *share >= OUTWEIGHED)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let digits = share.log10().ceil().min(16.0);
    Some(format!(
        "subtracting the forgotten rows from the sums cost about {digits} of 16 digits in feature {feature}, where \
         they outweigh the retained rows; sums made with `.forget`, or `.features` without `.sums`, cost none"
    ))
}
