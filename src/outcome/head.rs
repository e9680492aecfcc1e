//! What happened when a linear head was made to forget rows.
//!
//! Filled by [`pipeline::head`](crate::pipeline::head); [`HeadReport::to_json`] is for programs, the `report` stage
//! renders it for people. Every claim of exactness in it is a measured number: the residual of the solve, the distance
//! to a head solved afresh, a proven bound.
//!
//! ```
//! use muso::outcome::{HeadReport, RowCounts};
//!
//! let report = HeadReport {
//!     objective: "ridge".into(),
//!     rows: RowCounts { total: 1_000, retained: 990, forgotten: 10 },
//!     seconds: 0.25,
//!     ..Default::default()
//! };
//! assert!(report.to_json().contains("\"forgotten\": 10"));
//! // What was not measured is absent, not null.
//! assert!(!report.to_json().contains("verify"));
//! ```

use serde::Serialize;

use super::exact::ExactReport;
use super::json;

/// Numbers of rows, in all, retained and forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RowCounts {
    /// Rows in the feature file.
    pub total: u64,
    /// Number of retained rows.
    pub retained: u64,
    /// Number of forgotten rows.
    pub forgotten: u64,
}

/// Conditioning of the system, and accuracy of its solution.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Conditioning {
    /// ‖G‖/λ: how far the data outweighs the ridge; absent without a ridge.
    #[serde(skip_serializing_if = "absent")]
    pub ridge_ratio: Option<f64>,
    /// An estimate of the condition number.
    #[serde(skip_serializing_if = "absent")]
    pub condition: Option<f64>,
    /// The smallest pivot (or eigenvalue) of the factor.
    #[serde(skip_serializing_if = "not_finite")]
    pub min_pivot: f64,
    /// The largest pivot (or eigenvalue) of the factor.
    #[serde(skip_serializing_if = "not_finite")]
    pub max_pivot: f64,
    /// `cholesky`, or `eigen` for the rank-revealing fallback.
    pub factor: String,
    /// Numerical rank of the system.
    pub rank: usize,
    /// Relative residual before the refinement step.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual_before: f64,
    /// Relative residual after it.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual_after: f64,
}

/// Distance between the old and the new head.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Change {
    /// ‖W_new − W_old‖ / ‖W_old‖, Frobenius.
    #[serde(skip_serializing_if = "not_finite")]
    pub relative: f64,
}

/// Fit between the given head and the premise of the method.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Premise {
    /// The size of the violation; 0 when the premise holds.
    #[serde(skip_serializing_if = "not_finite")]
    pub residual: f64,
    /// Sentence that explains the number.
    pub meaning: String,
}

/// The new head against one solved from the retained rows alone.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Verification {
    /// Relative Frobenius distance to the head solved from the retained rows directly.
    #[serde(skip_serializing_if = "not_finite")]
    pub distance_relative: f64,
    /// Norm of the objective's gradient at the new head, over the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub gradient_norm: f64,
    /// ‖gradient‖/λ: a proven bound of the distance to the exact minimiser. Absent without a ridge.
    #[serde(skip_serializing_if = "absent")]
    pub distance_bound: Option<f64>,
}

/// Accuracy in percent, of the old head and of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Accuracy {
    /// The old head on the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub retained_before: f64,
    /// The new head on the retained rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub retained_after: f64,
    /// The old head on the forgotten rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub forgotten_before: f64,
    /// The new head on the forgotten rows.
    #[serde(skip_serializing_if = "not_finite")]
    pub forgotten_after: f64,
}

/// Wall time of one phase.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Phase {
    /// Name of the phase: `read`, `gram`, `factor`, …
    pub name: String,
    /// Duration in seconds.
    #[serde(skip_serializing_if = "not_finite")]
    pub seconds: f64,
}

/// Report of `muso head`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(tag = "kind", rename = "head")]
pub struct HeadReport {
    /// The version of this crate.
    pub version: String,
    /// Objective: `ridge` or `interpolate`.
    pub objective: String,
    /// `primal` (a D×D system) or `dual` (one of the rows).
    pub route: String,
    /// Origin of the retained rows' targets: `labels`, or the given `head`.
    pub source: String,
    /// Numbers of rows.
    pub rows: RowCounts,
    /// D, the bias not counted.
    pub features: usize,
    /// Set if the head has a bias.
    pub bias: bool,
    /// C, the outputs of the head.
    pub classes: usize,
    /// The type of the features in the file, such as `f32`.
    pub dtype: String,
    /// The type in which the new head is stored; distances and accuracies are those of the stored head.
    pub stored: String,
    /// λ of the objective.
    #[serde(skip_serializing_if = "not_finite")]
    pub ridge: f64,
    /// What the grid did, where the sums are exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<ExactReport>,
    /// Conditioning of the linear system.
    pub conditioning: Conditioning,
    /// tr(Π)/D: the share of the directions that the retained rows pin down.
    #[serde(skip_serializing_if = "absent")]
    pub trace_ratio: Option<f64>,
    /// Distance between the old and the new head.
    pub change: Change,
    /// Fit between the given head and the premise of the method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub premise: Option<Premise>,
    /// The comparison with a head solved afresh, when it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
    /// Accuracies, when there are class labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Accuracy>,
    /// Warnings to heed before relying on the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of the whole.
    #[serde(skip_serializing_if = "not_finite")]
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

fn not_finite(x: &f64) -> bool {
    !x.is_finite()
}

fn absent(x: &Option<f64>) -> bool {
    !x.is_some_and(f64::is_finite)
}

impl HeadReport {
    /// Returns the report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}

// The sample reports are of images as well.
#[cfg(all(test, feature = "datasets"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::outcome::sample;

    #[test]
    fn json_omits_what_was_not_measured() {
        let mut report = sample::head();
        report.trace_ratio = None;
        report.verify = None;
        report.conditioning.condition = Some(f64::INFINITY);
        report.conditioning.min_pivot = f64::NAN;
        let text = report.to_json();
        assert!(!text.contains("null") && !text.contains("NaN"));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["kind"], "head");
        assert_eq!(json["rows"]["forgotten"], 1_000);
        for key in ["trace_ratio", "verify"] {
            assert!(json.get(key).is_none(), "{key}");
        }
        for key in ["condition", "min_pivot"] {
            assert!(json["conditioning"].get(key).is_none(), "{key}");
        }
        assert!(json["conditioning"]["max_pivot"].is_f64());
        assert_eq!(json["phases"][0]["name"], "read");
    }
}
