//! The page of a linear head that was made to forget rows.

use maud::html;

use super::{Figure, Page, brief, figures, pairs, subscripts};
use crate::outcome::HeadReport;
use crate::report::format::{self, Notation};
use crate::report::svg::TimeBar;

/// Distance from which the headline must not sound like good news.
const FAR: f64 = 1e-3;

/// Returns the page of a head report.
pub(in crate::report) fn head_page(report: &HeadReport) -> String {
    let distance = report.verify.map(|v| v.distance_relative);
    let distance = distance.filter(|d| d.is_finite());
    let page = Page {
        title: "a linear head that forgot rows",
        eyebrow: &[
            "A linear head made to forget",
            &format!("{} objective", report.objective),
        ],
        headline: &headline(report, distance),
        version: &report.version,
        footer: &[],
    };
    let phases = report.phases.iter().map(|p| (p.name.clone(), p.seconds));
    let bar = TimeBar {
        title: "Wall time by phase".into(),
        parts: phases.collect(),
    };
    page.around(html! {
        p.lede {
            @match distance {
                Some(_) => {
                    "The distance is relative (Frobenius), to a head solved from the retained rows alone in the same run."
                },
                None => {
                    "The distance to a head solved from the retained rows alone was not measured in this run."
                },
            }
        }
        (figures(&cards(report)))
        @for warning in &report.warnings { p.warning { b { "Warning." } " " (warning) } }
        h2 { "What was done and how exact it is" }
        (pairs(report.facts(Notation::Typeset).into_iter().map(|fact| (fact.name, html! {
            (fact.value)
            @if !fact.explanation.is_empty() { small { (subscripts(fact.explanation)) } }
        }))))
        @if !report.phases.is_empty() {
            h2 { "Where the time went" }
            figure.wide { (bar.render()) }
        }
    })
}

fn headline(report: &HeadReport, distance: Option<f64>) -> String {
    let forgotten = report.rows.forgotten as usize;
    let rows = match forgotten {
        1 => "1 forgotten row".to_owned(),
        n => format!("{} forgotten rows", format::count(n)),
    };
    match distance {
        Some(0.0) => format!("The new head equals the one solved without the {rows}"),
        Some(d) if d < FAR => format!(
            "The new head is within {} of one that never saw the {rows}",
            brief(d)
        ),
        Some(d) => format!(
            "The new head is still {} away from one that never saw the {rows}",
            brief(d)
        ),
        None => format!(
            "{} of {} rows forgotten in {}",
            format::count(forgotten),
            format::count(report.rows.total as usize),
            format::seconds(report.seconds)
        ),
    }
}

fn cards(report: &HeadReport) -> Vec<Figure> {
    let figure = |name: &str, big: String, sub: String| Figure {
        name: name.into(),
        big,
        sub,
    };
    let mut cards = vec![figure(
        "rows forgotten",
        format::count(report.rows.forgotten as usize),
        format!("of {}", format::count(report.rows.total as usize)),
    )];
    if let Some(accuracy) = report.accuracy.filter(|a| a.forgotten_after.is_finite()) {
        let before = match accuracy.forgotten_before.is_finite() {
            true => format!("{:.2} % before", accuracy.forgotten_before),
            false => String::new(),
        };
        let after = format!("{:.2} %", accuracy.forgotten_after);
        cards.push(figure("accuracy on them", after, before));
    }
    cards.push(figure(
        "wall time",
        format::seconds(report.seconds),
        format!("on {}", report.machine()),
    ));
    if let Some(peak) = report.peak_memory_bytes {
        cards.push(figure(
            "peak memory",
            format::bytes(peak),
            "resident".into(),
        ));
    }
    cards
}
