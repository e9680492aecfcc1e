//! The pass over the rows: what the solve needs of them, in D×D sums or, dual, as the retained rows themselves.
//!
//! The second phase of a run, between the [plan](super::plan) and the solve. Rows stream through `gram`; sums that were
//! made before are taken as they are, less the rows that are to be forgotten beside.

use super::input::Input;
use super::plan::Plan;
use crate::data::rows::{RowSource, Which};
use crate::engine::{Engine, Sums};
use crate::error::Result;
use crate::gram::{DualGram, Gram, GramBuilder, Route, SUMS_LANE, split_sums};
use crate::progress::Progress;
use crate::scheduler::Scheduler;

/// How much forgotten rows may outweigh retained ones in a feature before subtracting them is worth a warning.
const OUTWEIGHED: f64 = 1e3;

/// What the pass over the rows leaves.
pub(super) enum Collected {
    Primal { retained: Sums, forgotten: Sums },
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
        warnings.extend(shard.gaps_in_words());
        if forgotten.rows == 0 {
            warnings.push(
                "no row in the sums is forgotten: the new head is the one of all rows in them"
                    .into(),
            );
        }
        let collected = Collected::Primal {
            retained,
            forgotten,
        };
        return Ok((collected, warnings));
    }
    let rows = input.rows()?;
    let collected = match plan.route {
        Route::Primal => {
            let (retained, forgotten) = sums(rows, Which::All, progress)?;
            Collected::Primal {
                retained,
                forgotten,
            }
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
