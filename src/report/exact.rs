//! Exact sums in a line: what the grid moved, and which rows it was too small for.

use super::format::{self, Notation};
use crate::outcome::ExactReport;

/// Returns what the grid did, in the words of the reports of heads and sums.
pub(super) fn in_words(exact: &ExactReport, notation: Notation) -> String {
    let moved = match (exact.moved > 0.0, exact.largest_move) {
        (false, _) => "no value moved".to_owned(),
        (true, None) => format!("{:.2} % of values moved", 100.0 * exact.moved),
        (true, Some(most)) => format!(
            "{:.2} % of values moved, by up to {}",
            100.0 * exact.moved,
            format::compact(most, notation)
        ),
    };
    format!(
        "{} bits, {} grid{}; {moved}; {} beyond",
        exact.bits,
        format::one_line(&exact.grid),
        if exact.recording { ", 2 passes" } else { "" },
        format::plural(exact.beyond as usize, "row", "rows"),
    )
}
