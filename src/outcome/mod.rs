//! What runs found, as plain data for programs: the types that reports are made of, without any rendering.
//!
//! The stage after `evaluate`. A pipeline fills these types with numbers that the earlier stages have worked out; each
//! has a JSON form with a fixed order of keys (`to_json`). What people see (terminal text, HTML, SVG) is made of them
//! by the `report` stage, which nothing here knows.
//!
//! - [`head`] and [`sums`]: a linear head that forgot rows, and sums over rows;
//! - [`table`] and [`network`]: methods against metrics for linear models and for networks; [`run`]: one network;
//! - `audit` (feature `report`): unlearned models against retrained ones;
//! - [`updates`]: label updates of a method, and what their vital signs warn of;
//! - [`paper`]: the published values that stand beside ours;
//! - [`words`]: phrases that name rows and counts, the same in JSON, on a terminal and on a page.
//!
//! ```
//! use muso::outcome::{Metric, Row, ScenarioTable, Stat, Table, paper};
//!
//! let row = Row {
//!     method: "MUSO".into(),
//!     values: [(Metric::DeltaW, Stat::of(&[1.2e-14, 0.8e-14]))].into(),
//!     paper: paper::table1("full-class", "MUSO"),
//!     ..Default::default()
//! };
//! let scenario = ScenarioTable { name: "full-class".into(), rows: vec![row], ..Default::default() };
//! let table = Table { seeds: vec![0, 1], scenarios: vec![scenario], ..Default::default() };
//! assert!(table.to_json().contains("\"delta_w\": 1e-14"));
//! ```

#[cfg(feature = "report")]
pub mod audit;
mod exact;
pub mod head;
mod json;
#[cfg(feature = "datasets")]
pub mod network;
#[cfg(feature = "datasets")]
pub mod paper;
#[cfg(feature = "datasets")]
pub mod run;
pub mod sums;
#[cfg(feature = "datasets")]
pub mod table;
#[cfg(feature = "datasets")]
pub mod updates;
pub mod words;

#[cfg(all(test, feature = "datasets"))]
pub(crate) mod sample;

#[cfg(feature = "report")]
pub use audit::{
    AuditMetric, AuditModels, AuditNumber, AuditReport, AuditRows, AuditVerdict, HeldOut,
    NamedCurves, OriginalMetric,
};
pub use exact::ExactReport;
pub use head::{
    Accuracy, Change, Conditioning, HeadReport, Phase, Premise, RowCounts, Verification,
};
#[cfg(feature = "datasets")]
pub use network::{AccuracyCurve, Detail, Entropies, NetworkReport, Tuning};
#[cfg(feature = "datasets")]
pub use run::{BEFORE, RunNotes, RunReport, Scored, TrainReport};
pub use sums::{PartReport, SumsReport};
#[cfg(feature = "datasets")]
pub use table::{
    ABOUT_NOISE_FLOOR, ABOUT_PRETRAINED, Curve, Metric, NOISE_FLOOR, PRETRAINED, RETRAIN, Row,
    ScenarioTable, Stat, Table,
};
#[cfg(feature = "datasets")]
pub use updates::MethodUpdates;
