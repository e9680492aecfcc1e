//! A page of charts and tables, for measurements of speed.
//!
//! ```
//! use muso::report::{ChartPage, html};
//!
//! let page = ChartPage { headline: "Time grows as N^1.00".into(), ..Default::default() };
//! assert!(html::chart_page(&page).contains("<h1>Time grows as N^1.00</h1>"));
//! ```

use super::svg::LineChart;

/// Parts of a page of charts, from the top.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartPage {
    /// Heading of the page.
    pub title: String,
    /// The finding, as a sentence.
    pub headline: String,
    /// Notes, one line each.
    pub notes: Vec<String>,
    /// Plots of the page.
    pub charts: Vec<LineChart>,
    /// Tables of the numbers.
    pub tables: Vec<PageTable>,
    /// Description of the machine.
    pub machine: String,
    /// Version of the program.
    pub version: String,
}

/// A table; the first cell of a row is its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageTable {
    /// Caption above the table.
    pub caption: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}
