//! What was summed: the outcome of `muso gram` and `muso merge`.
//!
//! ```
//! use muso::outcome::{RowCounts, SumsReport};
//!
//! let report = SumsReport {
//!     kind: "merge".into(),
//!     rows: RowCounts { total: 1_000, retained: 990, forgotten: 10 },
//!     ..Default::default()
//! };
//! assert!(report.to_json().starts_with("{\n  \"kind\": \"merge\""));
//! ```

use serde::Serialize;

use super::exact::ExactReport;
use super::head::{Phase, RowCounts};
use super::json;

/// Consecutive rows of a feature file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PartReport {
    /// Name of the file.
    pub file: String,
    /// The first row, counted from 0.
    pub first: u64,
    /// The row after the last.
    pub end: u64,
    /// Number of forgotten rows among them.
    pub forgotten: u64,
}

/// Report of `muso gram` and `muso merge`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SumsReport {
    /// Command: `gram` or `merge`.
    pub kind: String,
    /// The version of this crate.
    pub version: String,
    /// The rows in the sums.
    pub rows: RowCounts,
    /// D, the bias not counted.
    pub features: usize,
    /// Set if a bias counts as one more feature.
    pub bias: bool,
    /// C; 0 where the rows have no labels.
    pub classes: usize,
    /// The type of the features, such as `f32`; `mixed` where files differ.
    pub dtype: String,
    /// Origin of the rows.
    pub parts: Vec<PartReport>,
    /// Digest of the sums.
    pub digest: String,
    /// What the grid did, where the sums are exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<ExactReport>,
    /// Warnings to heed before relying on the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of the whole.
    pub seconds: f64,
    /// Number of threads in use.
    pub threads: usize,
    /// The device that computed, where it was not the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Peak resident memory, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl SumsReport {
    /// Returns the report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}
