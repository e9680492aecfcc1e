//! Reports for people: outcomes as text for a terminal and as pages for a browser.
//!
//! The last stage of the flow, and the only one that renders. It takes the plain data of [`outcome`](crate::outcome)
//! and turns it into strings; no earlier stage knows it. It opens no file: the caller writes the string under a
//! temporary name and renames it, so a killed run never leaves half a report.
//!
//! - [`Render`] is the way in: the text and the page of an outcome;
//! - [`terminal`] lays out tables for a terminal;
//! - [`svg`] draws the charts and [`html`] sets them into one self-contained page;
//! - [`charts`] is the page of a bench.
//!
//! ```
//! use muso::outcome::{Metric, Row, ScenarioTable, Stat, Table, paper};
//! use muso::report::{Render, Style};
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
//! assert!(table.text(Style { colour: false }).contains("1.0e-14 ± 2.8e-15"));
//! assert!(table.page().starts_with("<!doctype html>"));
//! ```

mod audit;
pub mod charts;
mod exact;
mod format;
mod head;
pub mod html;
mod run;
mod sums;
pub mod svg;
mod table;
pub mod terminal;

pub use charts::{ChartPage, PageTable};
pub use terminal::Style;

use crate::outcome::{AuditReport, HeadReport, NetworkReport, RunReport, Table, TrainReport};
use run::Sheet;

/// An outcome that people can read, on a terminal and in a browser.
pub trait Render {
    /// Returns the text for a terminal, ending in a line break.
    fn text(&self, style: Style) -> String;

    /// Returns one self-contained HTML page.
    fn page(&self) -> String;
}

impl Render for Table {
    fn text(&self, style: Style) -> String {
        terminal::table(self, style)
    }

    fn page(&self) -> String {
        html::table_page(self)
    }
}

impl Render for NetworkReport {
    fn text(&self, style: Style) -> String {
        terminal::network(self, style)
    }

    fn page(&self) -> String {
        html::network_page(self)
    }
}

impl Render for RunReport {
    fn text(&self, _: Style) -> String {
        terminal::run(&Sheet::of_run(self))
    }

    fn page(&self) -> String {
        html::run_page(&Sheet::of_run(self))
    }
}

impl Render for TrainReport {
    fn text(&self, _: Style) -> String {
        run::training_lines(self)
    }

    fn page(&self) -> String {
        html::run_page(&Sheet::of_training(self))
    }
}

impl Render for HeadReport {
    fn text(&self, _: Style) -> String {
        self.lines()
    }

    fn page(&self) -> String {
        html::head_page(self)
    }
}

impl Render for AuditReport {
    fn text(&self, _: Style) -> String {
        self.to_text()
    }

    fn page(&self) -> String {
        html::audit_page(self)
    }
}
