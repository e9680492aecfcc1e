//! What the grid of exact sums did to the rows.

use serde::Serialize;

/// Report of exact sums, as a part of other reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ExactReport {
    /// Width of the grid in bits.
    pub bits: u32,
    /// `given`, or `recorded` in a pass over the rows.
    pub grid: String,
    /// Digest of the grid; sums on one grid merge.
    pub grid_digest: String,
    /// Set if this run made a pass of its own to record the grid.
    pub recording: bool,
    /// Share of the values that the grid moved.
    pub moved: f64,
    /// The largest relative move of a value that this run has read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_move: Option<f64>,
    /// Number of rows with a value beyond the width, which took the long way.
    pub beyond: u64,
    /// Version of the solve that a head came by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solve: Option<String>,
}
