//! The page of charts and tables.

use super::{charts_class, closing, eyebrow, opening, push_plain_table};
use crate::report::charts::{ChartPage, PageTable};
use crate::report::format::escape;

/// The page of `muso bench`.
pub fn chart_page(page: &ChartPage) -> String {
    let mut out = opening(&format!("muso: {}", page.title));
    out.push_str(&eyebrow(&[&page.title]));
    out.push_str(&format!("<h1>{}</h1>\n", escape(&page.headline)));
    for note in &page.notes {
        out.push_str(&format!("<p class=\"aside\">{}</p>\n", escape(note)));
    }
    if !page.charts.is_empty() {
        let class = charts_class(page.charts.len());
        out.push_str(&format!("<div class=\"{class}\">\n"));
        for chart in &page.charts {
            out.push_str(&format!("<figure>{}</figure>\n", chart.render()));
        }
        out.push_str("</div>\n");
    }
    for table in &page.tables {
        push_table(&mut out, table);
    }
    out.push_str(&closing(&page.version, &[&page.machine]));
    out
}

fn push_table(out: &mut String, table: &PageTable) {
    out.push_str(&format!("<h2>{}</h2>\n", escape(&table.caption)));
    let rows = table.rows.iter().map(|row| match row.split_first() {
        Some((name, values)) => (name.as_str(), name == "ours", values),
        None => ("", false, &[][..]),
    });
    push_plain_table(out, table.columns.iter().map(String::as_str), rows);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::tests::balanced;
    use crate::report::svg::{Line, LineChart, Scale};

    #[test]
    fn the_page_holds_charts_and_tables_and_escapes_them() {
        let hostile = || "<img src=x>&".to_owned();
        let page = chart_page(&ChartPage {
            title: hostile(),
            headline: hostile(),
            notes: vec![hostile()],
            charts: vec![LineChart {
                title: hostile(),
                x: Scale::Log,
                y: Scale::Log,
                lines: vec![Line {
                    label: hostile(),
                    points: vec![(1.0, 2.0), (10.0, f64::NAN), (100.0, 0.0)],
                    ..Default::default()
                }],
                ..Default::default()
            }],
            tables: vec![PageTable {
                caption: hostile(),
                columns: vec![String::new(), hostile()],
                rows: vec![vec!["ours".into(), hostile()], Vec::new()],
            }],
            machine: hostile(),
            version: "0".into(),
        });
        balanced(&page).unwrap();
        assert!(page.contains("<svg") && page.contains("<td>&lt;img"));
        for needle in ["<img", "http", "<script", "NaN"] {
            assert!(!page.contains(needle), "{needle}");
        }
    }
}
