//! The page of an audit.

use maud::{Markup, html};

use super::{Figure, Page, chart_grid, figures, key, pairs, plain_table, repeat};
use crate::outcome::{AuditMetric, AuditReport, NamedCurves, Stat};
use crate::report::svg::{Dot, DotChart, Line, LineChart, Stroke};

/// Spreads beyond which a dot is set at the edge, so that the threshold stays in sight.
const FAR: f64 = 20.0;

/// Returns the page of an audit.
pub(in crate::report) fn audit_page(report: &AuditReport) -> String {
    let page = Page {
        title: "an audit of unlearned models",
        eyebrow: &["An audit", &report.models_in_words()],
        headline: report.verdict.headline(),
        version: &report.version,
        footer: &[&report.time_in_words()],
    };
    let measured: Vec<&AuditMetric> = report.measured().collect();
    let rows: Vec<(String, bool, Vec<String>)> = measured
        .iter()
        .map(|metric| {
            let mut cells = report.cells(metric);
            (cells.remove(0), metric.decides, cells)
        })
        .collect();
    let headings: Vec<&str> = report.headings().collect();
    let explanations = report.explanations();
    page.around(html! {
        p.lede { (report.reason) }
        (figures(&cards(report)))
        @for warning in &report.warnings { p.warning { b { "Warning." } " " (warning) } }
        h2 { "How far from what retrained models show of one another" }
        (key(&[("", "Spreads beyond held-out retrained models; the dashed line is where the verdict turns.")]))
        (chart_grid(charts(report, &measured)))
        h2 { "Every number" }
        (plain_table(headings.into_iter(), rows.iter().map(|(name, decides, cells)| (name.as_str(), *decides, cells.as_slice()))))
        p.aside { "* " (report.legend()) }
        @let absent = report.absent();
        @if !absent.is_empty() {
            h2 { "What could not be computed" }
            (pairs(absent.iter().map(|(names, why)| (why.as_str(), html! { (names) }))))
        }
        h2 { "What the numbers are" }
        (pairs(explanations.iter().map(|(name, text)| (*name, html! { (text) }))))
        (repeat([&report.command, ""], ""))
    })
}

fn cards(report: &AuditReport) -> Vec<Figure> {
    let held = &report.held_out;
    let card = |name: &str, big: String, sub: String| Figure {
        name: name.into(),
        big,
        sub,
    };
    let worst = report.measured().filter(|metric| metric.decides);
    let worst = worst.filter_map(|metric| metric.number?.excess);
    let worst = worst.fold(f64::NEG_INFINITY, f64::max);
    let mut cards = vec![
        card(
            "verdict",
            report.verdict.words().to_owned(),
            report.rows_in_words(),
        ),
        card(
            "held-out retrained groups that pass",
            format!("{} of {}", held.passed, held.groups),
            format!("{} models each; judged first, as if a method", held.models),
        ),
    ];
    if worst.is_finite() {
        cards.push(card(
            "largest excess",
            format!("{worst:.1} spreads"),
            format!("of {} that still pass", report.spreads),
        ));
    }
    cards
}

fn charts(report: &AuditReport, measured: &[&AuditMetric]) -> Vec<Markup> {
    let deciding = || measured.iter().filter(|metric| metric.decides);
    let held = |excess: Option<f64>| Some(Stat::exact(excess?.clamp(-FAR, FAR)));
    let dots = |of: &dyn Fn(&AuditMetric) -> Option<Stat>, emphasis| -> Vec<Dot> {
        let each = deciding().filter_map(|metric| {
            Some(Dot {
                label: format!("{} {}", &metric.over[..1].to_uppercase(), metric.name),
                ours: Some(of(metric)?),
                emphasis,
                ..Dot::default()
            })
        });
        each.collect()
    };
    let chart = |title: &str, dots: Vec<Dot>| DotChart {
        title: title.into(),
        include: vec![0.0, report.spreads],
        reference: Some(report.spreads),
        dots,
        ..DotChart::default()
    };
    let mut charts = Vec::new();
    for (title, dots) in [
        (
            "unlearned",
            dots(&|metric| held(metric.number.and_then(|n| n.excess)), true),
        ),
        (
            "original",
            dots(
                &|metric| held(metric.original.and_then(|n| n.excess)),
                false,
            ),
        ),
    ] {
        if !dots.is_empty() {
            charts.push(chart(title, dots).render());
        }
    }
    for (title, x_label, curves, area) in [
        (
            "Margins of the forgotten rows, % of them",
            "margin",
            &report.margins,
            true,
        ),
        (
            "Smooth KLOM of the forgotten rows",
            "share of the rows, %",
            &report.klom,
            false,
        ),
    ] {
        if !curves.is_empty() {
            charts.push(lines(title, x_label, curves, area));
        }
    }
    charts
}

fn lines(title: &str, x_label: &str, curves: &NamedCurves, area: bool) -> Markup {
    let line = |(name, points): &(&'static str, Vec<(f64, f64)>)| Line {
        label: (*name).to_owned(),
        points: points.clone(),
        colour: match *name {
            "unlearned" => 0,
            "retrained" => 1,
            _ => 2,
        },
        stroke: match *name {
            "retrained" if area => Stroke::Area,
            _ => Stroke::Solid,
        },
    };
    LineChart {
        title: title.into(),
        x_label: x_label.into(),
        include: vec![0.0],
        lines: curves.iter().map(line).collect(),
        ..LineChart::default()
    }
    .render()
}
