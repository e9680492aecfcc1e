//! What a run on exact sums says about its grid: the part that heads and sums have in common.

use crate::engine::exact::Seen;
use crate::gram::exact::{ExactState, grid_digest};
use crate::outcome::ExactReport;

/// Share of rows beyond the width of the grid that is worth a warning.
const MANY_BEYOND: f64 = 0.01;

/// Returns what the grid did to the rows, and what to heed: rows that took the long way, and units that rows had set which are
/// forgotten. `recording` is whether the run recorded the grid, `set` in how many columns the rows that it subtracted had set the
/// unit, `seen` what it knows of the rows that it read.
pub(super) fn report(
    state: &ExactState,
    recording: bool,
    set: usize,
    seen: Option<Seen>,
) -> (ExactReport, Vec<String>) {
    let grid = &state.spec.grid;
    let sides = [&state.retained, &state.forgotten];
    let rows: u64 = sides.iter().map(|sums| sums.rows).sum();
    let moved: u64 = sides.iter().map(|sums| sums.moved).sum();
    let beyond: u64 = sides.iter().map(|sums| sums.beyond).sum();
    let columns = grid.features().len() + grid.targets().len();
    let share = |part: u64, whole: f64| part as f64 / whole.max(1.0);
    let mut warnings = Vec::new();
    let share_beyond = share(beyond, rows as f64);
    if share_beyond > MANY_BEYOND {
        warnings.push(format!(
            "{:.1} % of the rows have a value beyond the {} bits of the grid: they are summed exactly too, but take \
             several times as long; a `.grid` of a larger range has room for them",
            100.0 * share_beyond,
            grid.bits()
        ));
    }
    if set > 0 {
        warnings.push(format!(
            "forgotten rows alone had set the unit of {set} of {columns} columns when the grid was recorded: the result \
             is exact on this grid, but not what it would be had they never been seen, when the grid would be finer; \
             sums made anew without them, or on a `.grid` that was stated beforehand, have no such trace"
        ));
    }
    let report = ExactReport {
        bits: grid.bits(),
        grid: if state.spec.setters {
            "recorded"
        } else {
            "given"
        }
        .into(),
        grid_digest: grid_digest(grid),
        recording,
        moved: share(moved, rows as f64 * columns as f64),
        largest_move: seen.map(|seen| seen.largest_move),
        beyond,
        solve: None,
    };
    (report, warnings)
}
