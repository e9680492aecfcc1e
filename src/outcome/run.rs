//! One run on one network: what `muso train`, `unlearn` and `evaluate` found.
//!
//! The pipeline fills these and `report` renders them. The JSON forms hold what was measured; the fields that are not
//! in them say how the run came about, for a page.
//!
//! ```
//! use muso::outcome::{RunReport, Scored};
//!
//! let model = Scored { name: "MUSO".into(), ra: 99.5, ta: 86.0, ..Default::default() };
//! let report = RunReport { kind: "evaluate", models: vec![model], ..Default::default() };
//! assert!(report.to_json().starts_with("{\n  \"kind\": \"evaluate\",\n  \"models\": ["));
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::json;
use crate::evaluate::Mia;
use crate::labels::LabelUpdate;
use crate::scheduler::Summary;

/// The name of the model that unlearning starts from.
pub const BEFORE: &str = "before";

/// A model and what it is worth; metrics in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Scored {
    /// The name in tables.
    pub name: String,
    /// RA, the accuracy on retained rows.
    pub ra: f64,
    /// TA, the accuracy on test rows.
    pub ta: f64,
    /// FA, the accuracy on forgotten rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fa: Option<f64>,
    /// MIA, the membership attack on forgotten rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mia: Option<f64>,
    /// The mean distance to the reference model over these four, points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_gap: Option<f64>,
    /// Percent of the forgotten rows on which it says the same as the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<f64>,
    /// Seconds that it took to make the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// What only the caller of a run knows about it, for a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunNotes {
    /// The command that gives the run again.
    pub command: String,
    /// The machine that it ran on.
    pub machine: String,
    /// How the run used its lanes.
    pub lanes: Summary,
}

/// What `muso unlearn` or `evaluate` found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunReport {
    /// The kind of report, `unlearn` or `evaluate`.
    pub kind: &'static str,
    /// The models, one a row. The last is the one that the run is about; where models are compared, the first is the
    /// reference.
    pub models: Vec<Scored>,
    /// Over which rows each metric is.
    pub over: BTreeMap<&'static str, String>,
    /// The settings of the method, by path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Label updates of the method, where it has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub label_updates: Vec<LabelUpdate>,
    /// What the vital signs of those updates warn of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Which membership attack, where rows were forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mia: Option<Mia>,
    /// The name of the data set.
    #[serde(skip)]
    pub data: String,
    /// The configuration of the run, as TOML.
    #[serde(skip)]
    pub config: String,
    /// What the caller knows.
    #[serde(skip)]
    pub notes: RunNotes,
}

/// How a training run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainReport {
    /// The kind of report, `train`.
    pub kind: &'static str,
    /// Percent of the test images that are classified rightly.
    pub test_accuracy: f64,
    /// How many test images there are.
    pub test_images: usize,
    /// The file of the trained network.
    pub model: PathBuf,
    /// The name of the architecture.
    #[serde(skip)]
    pub network: String,
    /// The name of the data set.
    #[serde(skip)]
    pub data: String,
    /// The configuration of the run, as TOML.
    #[serde(skip)]
    pub config: String,
    /// What the caller knows.
    #[serde(skip)]
    pub notes: RunNotes,
}

impl RunReport {
    /// Returns the report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}

impl TrainReport {
    /// Returns the report as pretty-printed JSON with a fixed key order.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}
