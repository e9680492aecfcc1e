//! The page of charts and tables.

use maud::html;

use super::{Page, chart_grid, plain_table};
use crate::report::charts::ChartPage;

/// Returns the page of `muso bench`.
pub fn chart_page(page: &ChartPage) -> String {
    let skeleton = Page {
        title: &page.title,
        eyebrow: &[&page.title],
        headline: &page.headline,
        version: &page.version,
        footer: &[&page.machine],
    };
    skeleton.around(html! {
        @for note in &page.notes { p.aside { (note) } }
        @if !page.charts.is_empty() {
            (chart_grid(page.charts.iter().map(|chart| chart.render())))
        }
        @for table in &page.tables {
            h2 { (table.caption) }
            (plain_table(
                table.columns.iter().map(String::as_str),
                table.rows.iter().map(|row| match row.split_first() {
                    Some((name, values)) => (name.as_str(), name == "ours", values),
                    None => ("", false, &[][..]),
                }),
            ))
        }
    })
}
