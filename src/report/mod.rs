//! Reports: what a run found, for a terminal, for a browser and for another program.
//!
//! The last stage of the flow. It takes numbers that the earlier stages have already worked out, holds them in
//! plain types ([`Table`], [`NetworkReport`], [`RunReport`], [`HeadReport`]) and renders those into strings. It opens no file: the caller writes
//! the string under a temporary name and renames it, so a killed run never leaves half a report.
//!
//! - [`table`], [`network`], [`head`] and [`sums`] are the data, each with its JSON form, [`single`] that of one run and
//!   [`charts`] that of a bench;
//! - [`terminal`] and [`HeadReport::to_text`] write for a terminal;
//! - [`svg`] draws the charts and [`html`] sets them into one self-contained page;
//! - [`paper`] holds the published values that stand beside ours.
//!
//! ```
//! use muso::report::{Metric, Row, ScenarioTable, Stat, Style, Table, html, paper, terminal};
//!
//! let row = Row {
//!     method: "MUSO".into(),
//!     values: [(Metric::DeltaW, Stat::of(&[1.2e-14, 0.8e-14]))].into(),
//!     paper: paper::table1("full-class", "MUSO"),
//!     seconds: Stat::of(&[0.41, 0.43]),
//!     ..Default::default()
//! };
//! let scenario = ScenarioTable { name: "full-class".into(), rows: vec![row], ..Default::default() };
//! let table = Table { seeds: vec![0, 1], scenarios: vec![scenario], ..Default::default() };
//!
//! assert!(terminal::table(&table, Style { colour: false }).contains("1.0e-14 ± 2.8e-15"));
//! assert!(html::table_page(&table).starts_with("<!doctype html>"));
//! assert!(table.to_json().contains("\"delta_w\": 1e-14"));
//! ```

pub mod charts;
mod format;
pub mod head;
pub mod html;
pub mod network;
pub mod paper;
pub mod single;
pub mod sums;
pub mod svg;
pub mod table;
pub mod terminal;

#[cfg(test)]
mod sample;

pub use charts::{ChartPage, PageTable};
pub use head::{
    Accuracy, Change, Conditioning, HeadReport, Phase, Premise, RowCounts, Verification,
};
pub use network::{AccuracyCurve, Detail, Entropies, NetworkReport, Tuning};
pub use single::RunReport;
pub use sums::{PartReport, SumsReport};
pub use table::{Curve, Metric, NOISE_FLOOR, PRETRAINED, RETRAIN, Row, ScenarioTable, Stat, Table};
pub use terminal::Style;
