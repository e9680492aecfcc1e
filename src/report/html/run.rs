//! The page of one run on one network.

use maud::{Markup, html};

use super::{
    Figure, Page, figures, is_own, label_updates, plain_table, repeat, settings, text_pairs,
};
use crate::report::format;
use crate::report::run::Sheet;
use crate::report::svg::{Timeline, TimelineLane};
use crate::scheduler::Summary;

/// Returns the page of training, unlearning or evaluating one network.
pub(in crate::report) fn run_page(report: &Sheet) -> String {
    let seconds = report.lanes.seconds;
    let time = match seconds > 0.0 {
        true => format!("{} in lanes", format::seconds(seconds)),
        false => String::new(),
    };
    let page = Page {
        title: &report.title,
        eyebrow: &[&report.title],
        headline: &report.headline,
        version: &report.version,
        footer: &[&report.machine, &time],
    };
    let cards = report.figures.iter().map(|[name, big, sub]| Figure {
        name: name.clone(),
        big: big.clone(),
        sub: sub.clone(),
    });
    page.around(html! {
        (figures(&cards.collect::<Vec<_>>()))
        @for warning in &report.warnings { p.warning { b { "Warning." } " " (warning) } }
        @if !report.models.is_empty() { (models(report)) }
        (label_updates(&[("", &report.updates)]))
        (timeline(&report.lanes))
        (settings("The settings", &report.settings))
        (repeat([&report.command, &report.config], ""))
    })
}

fn models(report: &Sheet) -> Markup {
    let columns = std::iter::once("model").chain(report.columns.iter().map(String::as_str));
    let rows = report.models.iter();
    let rows = rows.map(|(name, values)| (name.as_str(), is_own(name), values.as_slice()));
    html! {
        h2 { "Results" }
        (plain_table(columns, rows))
        @if !report.meanings.is_empty() { (text_pairs(&report.meanings)) }
    }
}

fn timeline(lanes: &Summary) -> Markup {
    let drawn = lanes.bound().map(|bound| Timeline {
        title: "What ran when".into(),
        seconds: lanes.seconds,
        lanes: lanes
            .lanes
            .iter()
            .map(|lane| TimelineLane {
                name: lane.name.clone(),
                share: lanes.share(lane),
                items: lane.items,
                spans: lane.spans.clone(),
                emphasis: lane.name == bound.name,
            })
            .collect(),
    });
    html! {
        h2 { "What ran when" }
        p { (lanes.verdict()) }
        @if let Some(timeline) = drawn {
            p.aside {
                "Each line is a lane. It is drawn where the lane was at work, and left empty where it waited for the "
                "lanes that it takes from or for room in its queue."
            }
            div.scroll { figure.timeline { (timeline.render()) } }
        }
    }
}
