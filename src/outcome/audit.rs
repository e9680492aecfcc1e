//! What the referee's bench found: the outcome of `muso audit`.
//!
//! ```
//! use muso::outcome::{AuditReport, AuditRows};
//!
//! let report = AuditReport {
//!     rows: AuditRows { total: 1_000, forgotten: 10, retained: 790, test: 200 },
//!     ..Default::default()
//! };
//! assert!(report.to_json().starts_with("{\n  \"kind\": \"audit\",\n  \"verdict\": \"cannot-tell\""));
//! ```

use serde::Serialize;

use super::json;

/// What an audit says of the unlearned models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditVerdict {
    /// Nothing tells them from retrained ones.
    Pass,
    /// Something does.
    Fail,
    /// Held-out retrained models do not pass, so that nothing can be said.
    #[default]
    CannotTell,
}

impl AuditVerdict {
    /// Returns the verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// The rows that models were judged on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditRows {
    /// Rows in the outputs.
    pub total: usize,
    /// How many rows are forgotten.
    pub forgotten: usize,
    /// How many rows are retained.
    pub retained: usize,
    /// How many rows are for tests.
    pub test: usize,
}

/// How many models there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditModels {
    /// Number of unlearned models.
    pub unlearned: usize,
    /// Number of retrained models.
    pub retrained: usize,
    /// Number of original models.
    pub original: usize,
}

/// How retrained models fared that were held out and judged first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldOut {
    /// Models in each group.
    pub models: usize,
    /// Groups that were judged.
    pub groups: usize,
    /// Groups that passed.
    pub passed: usize,
}

/// A number of the original models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OriginalMetric {
    /// The number, at equal counts.
    pub value: f64,
    /// Spreads beyond the floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess: Option<f64>,
}

/// A number of the unlearned models, with what stands beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct AuditNumber {
    /// The number, at equal counts.
    pub value: f64,
    /// The same of held-out retrained models.
    pub retrained: f64,
    /// Its standard deviation over the draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Spreads beyond the floor; negative on the good side of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excess: Option<f64>,
    /// The number with all models on both sides.
    pub with_all_models: f64,
}

/// A metric of an audit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AuditMetric {
    /// The key of the metric.
    pub key: String,
    /// The name in tables.
    pub name: String,
    /// Kind of rows that it is over: forgotten, retained or test.
    pub over: &'static str,
    /// One sentence on what it is.
    pub what: &'static str,
    /// What it takes.
    pub needs: String,
    /// One sentence on what is good.
    pub good: &'static str,
    /// Set where the verdict rests on it.
    pub decides: bool,
    /// The number, where it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<AuditNumber>,
    /// What is missing where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// The original models' number, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalMetric>,
}

/// Curves for a page: each with a name and points.
pub type NamedCurves = Vec<(&'static str, Vec<(f64, f64)>)>;

/// Report of `muso audit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditReport {
    /// The kind of report, `audit`.
    pub kind: &'static str,
    /// What the audit says.
    pub verdict: AuditVerdict,
    /// The reason as a sentence.
    pub reason: String,
    /// How many spreads beyond the floor still pass.
    pub spreads: f64,
    /// The version of this crate.
    pub version: String,
    /// How many models there were.
    pub models: AuditModels,
    /// Number of rows of each kind.
    pub rows: AuditRows,
    /// How held-out retrained models fared.
    pub held_out: HeldOut,
    /// Every metric, computed or not.
    pub metrics: Vec<AuditMetric>,
    /// Outlines of the histograms of all margins on the forgotten rows, for the page.
    #[serde(skip)]
    pub margins: NamedCurves,
    /// Smooth KLOM of the forgotten rows in ascending order against the share of rows, for the page.
    #[serde(skip)]
    pub klom: NamedCurves,
    /// The command that gives the audit again, for the page.
    #[serde(skip)]
    pub command: String,
    /// Warnings to heed before relying on the result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Wall time of the whole.
    pub seconds: f64,
    /// Number of threads in use.
    pub threads: usize,
    /// Peak resident memory, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl Default for AuditReport {
    fn default() -> Self {
        Self {
            kind: "audit",
            verdict: AuditVerdict::default(),
            reason: String::new(),
            spreads: 0.0,
            version: String::new(),
            models: AuditModels::default(),
            rows: AuditRows::default(),
            held_out: HeldOut::default(),
            metrics: Vec::new(),
            margins: Vec::new(),
            klom: Vec::new(),
            command: String::new(),
            warnings: Vec::new(),
            seconds: 0.0,
            threads: 0,
            peak_memory_bytes: None,
        }
    }
}

impl AuditReport {
    /// Returns the report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}
