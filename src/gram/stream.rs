//! Sums over a stream of feature rows, which a lane prefetches.

use super::{GramBuilder, Route};
use crate::data::rows::{RowBatch, RowSource, Which};
use crate::engine::{Engine, Sums, SumsSpec};
use crate::error::Result;
use crate::progress::Progress;
use crate::scheduler::Scheduler;

/// The lane that adds rows up, in traces.
pub const SUMS_LANE: &str = "sums";

/// Sums the retained and the forgotten rows, apart; only the forgotten ones where no others are asked for. `seen` is
/// shown every batch.
pub(crate) fn split_sums<E: Engine>(
    engine: &E,
    source: &RowSource<'_>,
    spec: SumsSpec,
    which: Which,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
    mut seen: impl FnMut(&RowBatch<'_>),
) -> Result<(Sums, Sums)> {
    let mut retained = GramBuilder::new(engine, Route::Primal, spec)?;
    let mut forgotten = GramBuilder::new(engine, Route::Primal, spec)?;
    source.stream(scheduler, SUMS_LANE, which, progress, |batch| {
        seen(batch);
        if which == Which::All {
            let kept = source.retained_in(batch);
            batch.with_targets(spec, &kept, |rows, targets| retained.push(rows, targets))?;
        }
        let gone = source.forgotten_in(batch);
        batch.with_targets(spec, &gone, |rows, targets| forgotten.push(rows, targets))
    })?;
    Ok((retained.into_sums()?, forgotten.into_sums()?))
}
