//! A page of charts and tables, for measurements of speed.
//!
//! ```
//! use muso::report::{ChartPage, html};
//!
//! let page = ChartPage { headline: "Time grows as N^1.00".into(), ..Default::default() };
//! assert!(html::chart_page(&page).contains("<h1>Time grows as N^1.00</h1>"));
//! ```

use super::svg::LineChart;

/// What the page shows, from the top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartPage {
    /// What was done.
    pub title: String,
    /// The finding, as a sentence.
    pub headline: String,
    /// One line each.
    pub notes: Vec<String>,
    /// The plots.
    pub charts: Vec<LineChart>,
    /// The numbers.
    pub tables: Vec<PageTable>,
    /// What it ran on.
    pub machine: String,
    /// Of the program.
    pub version: String,
}

/// A table; the first cell of a row is its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageTable {
    /// Above it.
    pub caption: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}
