//! A report as a page with plots.

use muso::report::svg::{Line, LineChart, Scale, Stroke};
use muso::report::{ChartPage, PageTable, html};

use super::report::used;
use super::scaling::{Point, Scaling};
use super::{BenchReport, Growth, Measurement, Operation};

impl BenchReport {
    /// Formats the report as one self-contained page with plots.
    pub(crate) fn to_html(&self) -> String {
        html::chart_page(&ChartPage {
            title: "bench".into(),
            headline: self.headline(),
            notes: self.about().into_iter().chain(self.checked()).collect(),
            charts: self.charts(),
            tables: self.tables(),
            machine: self.place(),
            version: muso::VERSION.into(),
        })
    }

    fn headline(&self) -> String {
        let shares = self.measurements.iter().map(|m| 100.0 * m.share.median);
        let low = shares.clone().fold(f64::INFINITY, f64::min);
        let high = shares.fold(f64::NEG_INFINITY, f64::max);
        match (&self.scaling, self.measurements.len()) {
            (Some(scaling), 0) => format!(
                "The time of sums over rows grows as N^{:.2}",
                scaling.rows_exponent
            ),
            (_, 1) => format!("{high:.0} % of what the device can do"),
            _ => format!("From {low:.0} to {high:.0} % of what the device can do"),
        }
    }

    fn charts(&self) -> Vec<LineChart> {
        let mut charts = Vec::new();
        if let Some(scaling) = &self.scaling {
            let fixed = format!("Seconds over N, D = {}", scaling.cols);
            charts.push(growth(fixed, "N", &scaling.over_rows, 1));
            let fixed = format!("Seconds over D, N = {}", scaling.rows);
            charts.push(growth(fixed, "D", &scaling.over_cols, 2));
        }
        charts.extend(self.growth.iter().map(over_size));
        let mut operations: Vec<Vec<&Measurement>> = Vec::new();
        // Those of exact sums have plots of their own.
        let over_work_alone = |m: &&Measurement| m.operation != Operation::Exact.name();
        for m in self.measurements.iter().filter(over_work_alone) {
            let known = |of: &&mut Vec<&Measurement>| of[0].operation == m.operation;
            match operations.iter_mut().find(known) {
                Some(of) => of.push(m),
                None => operations.push(vec![m]),
            }
        }
        charts.extend(operations.into_iter().map(over_work));
        // What was measured at one amount of work only is no line.
        charts.retain(|chart| !chart.lines.is_empty());
        charts
    }

    fn tables(&self) -> Vec<PageTable> {
        let scaling = self.scaling.iter().flat_map(Scaling::tables);
        scaling.chain(self.measurements.iter().map(table)).collect()
    }
}

fn table(m: &Measurement) -> PageTable {
    let lines = m.cells();
    let used = used(&lines);
    let pick = |line: &[String]| used.iter().map(|&j| line[j].clone()).collect();
    let mut rows = lines.iter().map(|line| pick(line));
    PageTable {
        caption: format!("{}: {}", m.operation, m.shape),
        columns: rows.next().unwrap_or_default(),
        rows: rows.collect(),
    }
}

/// Seconds over a size, beside a dashed power of it from the first point.
fn growth(title: String, x_label: &str, points: &[Point], power: i32) -> LineChart {
    let measured: Vec<(f64, f64)> = points.iter().map(|p| (p.size as f64, p.seconds)).collect();
    let law = measured.first().map(|&(x0, y0)| {
        let at = |&(x, _): &(f64, f64)| (x, y0 * (x / x0).powi(power));
        measured.iter().map(at).collect()
    });
    let law_name = match power {
        1 => x_label.to_owned(),
        _ => format!("{x_label}²"),
    };
    LineChart {
        title,
        x_label: x_label.into(),
        x: Scale::Log,
        y: Scale::Log,
        lines: vec![
            Line {
                label: law_name,
                points: law.unwrap_or_default(),
                stroke: Stroke::Dashed,
                ..Line::default()
            },
            Line {
                label: "ours".into(),
                points: measured,
                ..Line::default()
            },
        ],
        ..LineChart::default()
    }
}

fn over_size(growth: &Growth) -> LineChart {
    let lines = growth.lines.iter().zip(0..);
    let lines = lines.map(|((label, points), colour)| Line {
        label: label.clone(),
        points: points.clone(),
        colour,
        ..Line::default()
    });
    LineChart {
        title: growth.title.clone(),
        x_label: growth.size.into(),
        x: Scale::Log,
        y: Scale::Log,
        lines: lines.collect(),
        ..LineChart::default()
    }
}

/// Seconds of ours and of every peer over what there is to do.
fn over_work(mut measurements: Vec<&Measurement>) -> LineChart {
    measurements.sort_by(|a, b| a.work.flops.total_cmp(&b.work.flops));
    let point = |m: &Measurement, seconds: f64| (m.work.flops * 1e-9, seconds);
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |label: &str, point: (f64, f64)| {
        let known = lines.iter().position(|line| line.label == label);
        let k = known.unwrap_or_else(|| {
            lines.push(Line {
                label: label.into(),
                colour: lines.len(),
                ..Line::default()
            });
            lines.len() - 1
        });
        // Rows of another type are the same work again.
        if lines[k].points.last().is_none_or(|last| last.0 < point.0) {
            lines[k].points.push(point);
        }
    };
    for m in &measurements {
        add("ours", point(m, m.seconds.median));
        for peer in &m.peers {
            add(&peer.name, point(m, peer.seconds.median));
        }
    }
    lines.retain(|line| line.points.len() > 1);
    LineChart {
        title: format!("{}: seconds over work", measurements[0].operation),
        x_label: "GFLOP".into(),
        x: Scale::Log,
        y: Scale::Log,
        lines,
        ..LineChart::default()
    }
}
