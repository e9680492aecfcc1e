//! The page of a table run, and the parts that the page of networks shares with it.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::finding::{Finding, headline_without_distances};
use super::{
    Figure, Page, chart_grid, figures, is_own, join_words, key, pairs, repeat, sentence, subscripts,
};
use crate::outcome::{Metric, NOISE_FLOOR, RETRAIN, Row, ScenarioTable, Stat, Table};
use crate::report::format::{self, Notation};
use crate::report::svg::{Dot, DotChart, Line, LineChart, Picture, Scale};

/// Returns the page of a table run.
pub(in crate::report) fn table_page(table: &Table) -> String {
    let start = match Finding::of(table) {
        Some(found) => Start {
            headline: found.headline(),
            lede: found.lede(table),
            cards: found.figures(table),
        },
        None => Start::without_distances(table),
    };
    start.around(
        table,
        html! {
            (explanation(table))
            (results(table))
            (distances(table))
            (accuracies(table))
            (paths(table))
            (notes(table))
            (repeat([&table.command, ""], &seeds(table)))
        },
    )
}

/// Opening of a page of a table.
pub(super) struct Start {
    pub(super) headline: String,
    /// The sentences under the headline.
    pub(super) lede: String,
    pub(super) cards: Vec<Figure>,
}

impl Start {
    /// Returns the start of a page without a finding of its own.
    pub(super) fn without_distances(table: &Table) -> Start {
        Start {
            headline: headline_without_distances(table),
            lede: String::new(),
            cards: Vec::new(),
        }
    }

    /// Returns the whole page of `table`.
    pub(super) fn around(&self, table: &Table, body: Markup) -> String {
        let seeds = format::plural(table.seeds.len(), "seed", "seeds");
        let time =
            (table.seconds > 0.0).then(|| format!("{} in all", format::seconds(table.seconds)));
        let page = Page {
            title: &table.title,
            eyebrow: &[&table.title, &seeds],
            headline: &self.headline,
            version: &table.version,
            footer: &[&table.machine, &time.unwrap_or_default()],
        };
        page.around(html! {
            @if !self.lede.is_empty() { p.lede { (subscripts(&self.lede)) } }
            (figures(&self.cards))
            (body)
        })
    }
}

/// Returns what to know of the seeds when repeating a run.
pub(super) fn seeds(table: &Table) -> String {
    let list: Vec<String> = table.seeds.iter().map(u64::to_string).collect();
    match list.is_empty() {
        true => String::new(),
        false => format!(
            "Seeds {}. The same seeds give the same numbers on any number of threads.",
            list.join(", ")
        ),
    }
}

/// Returns what is forgotten in a scenario, in a phrase; nothing for names that say it themselves.
fn about_scenario(name: &str) -> &'static str {
    match name {
        "full-class" => "every training row of one class is forgotten",
        "sub-class" => "a part of one class is forgotten",
        "random" => "rows drawn at random from all classes are forgotten",
        _ => "",
    }
}

pub(super) fn explanation(table: &Table) -> Markup {
    let metrics = table.metrics();
    let (percents, distances): (Vec<Metric>, Vec<Metric>) = metrics
        .iter()
        .filter(|m| **m != Metric::Agreement)
        .partition(|m| m.is_percent());
    let titles = |metrics: &[Metric]| join_words(metrics.iter().map(|m| m.title()));
    let mut goals = Vec::new();
    if !percents.is_empty() {
        goals.push(format!(
            "{}: best when equal to Retrain's, not when highest.",
            titles(&percents)
        ));
    }
    if !distances.is_empty() {
        goals.push(format!(
            "{}: best at 0, where Retrain is.",
            titles(&distances)
        ));
    }
    if metrics.contains(&Metric::Agreement) {
        goals.push(
            "Agreement: best where a second retrained model's is; 100 is more than retraining gives."
                .to_owned(),
        );
    }
    html! {
        h2 { "What is compared" }
        p {
            "A model has been trained on all rows and must now " em { "forget" } " some of them and " em { "retain" }
            " the rest. The standard is the model trained again, from the same initial weights, on the retained rows "
            "only. An unlearning method is exact when it ends at that same model, and useful when it is cheaper."
        }
        (pairs(metrics.iter().map(|m| (m.title(), subscripts(table.meaning(*m))))))
        @if !goals.is_empty() { p.aside { (goals.join(" ")) } }
    }
}

pub(super) fn results(table: &Table) -> Markup {
    if table.scenarios.is_empty() {
        return Markup::default();
    }
    let notes = table.footnotes();
    let mut about = match table.seeds.len() {
        1 => "One seed, so every ± is 0.".to_owned(),
        n => format!(
            "Mean ± standard deviation over {}.",
            format::plural(n, "seed", "seeds")
        ),
    };
    if table.has_published() {
        about.push_str(" The line “paper” under a method is the published value.");
    }
    about.push_str(" Time is the mean wall time of the method");
    if table.scenarios.iter().any(ScenarioTable::has_ratios) {
        about.push_str(", ratio that time divided by Retrain's");
    }
    let over = |scenario: &ScenarioTable| {
        let groups = scenario.rows_by_metric().into_iter();
        let parts: Vec<String> = groups
            .map(|(titles, text)| format!("{} {text}", join_words(titles.into_iter())))
            .collect();
        parts.join("; ")
    };
    html! {
        h2 { "Results" }
        p.aside { (about) "." }
        @for scenario in &table.scenarios {
            h3 {
                (scenario.name)
                span {
                    @let about = about_scenario(&scenario.name);
                    @if !about.is_empty() { (about) ": " }
                    (format::count(scenario.retained)) " retained, "
                    (format::count(scenario.forgotten)) " forgotten, "
                    (format::count(scenario.test)) " test rows"
                }
            }
            (scenario_table(scenario, &notes))
            @let over = over(scenario);
            @if !over.is_empty() { p.aside { (over) "." } }
        }
        @if !notes.is_empty() {
            p.aside.footnotes {
                @for (i, note) in notes.iter().enumerate() {
                    @if i > 0 { br; }
                    (format::footnote(i + 1)) " " (note)
                }
            }
        }
    }
}

fn scenario_table(scenario: &ScenarioTable, notes: &[String]) -> Markup {
    let metrics = scenario.metrics();
    let closest = scenario.closest(|_| true).map(|row| row.method.as_str());
    let mark = |row: &Row| {
        let note = row.note.as_ref()?;
        let place = notes.iter().position(|n| n == note)?;
        Some(format!(" {}", format::footnote(place + 1)))
    };
    let class = |row: &Row, metric: Metric| match metric {
        Metric::DeltaW => Some("delta"),
        Metric::SeedGap if closest == Some(row.method.as_str()) => Some("best"),
        _ => None,
    };
    let is_floor = |row: &Row| row.method == NOISE_FLOOR;
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "method" }
                        @for metric in &metrics { th scope="col" { (metric.title()) } }
                        th scope="col" { "time" }
                        @if scenario.has_ratios() { th scope="col" { "ratio" } }
                    }
                }
                tbody {
                    @for row in &scenario.rows {
                        tr.ours.floor[is_floor(row)].own[is_own(&row.method)].solo[row.paper.is_empty()] {
                            th scope="row" { (row.method) (mark(row).unwrap_or_default()) }
                            @for &metric in &metrics {
                                td class=[class(row, metric)] { (cell(&row.values, metric)) }
                            }
                            td.time { (format::seconds(row.seconds.mean)) }
                            @if scenario.has_ratios() { td.time { (format::ratio(row.time_ratio)) } }
                        }
                        // Right below ours and not beside it, so that the digits stand under each other and a phone
                        // needs less scrolling.
                        @if !row.paper.is_empty() {
                            tr.paper {
                                th scope="row" { "paper" }
                                @for &metric in &metrics { td { (cell(&row.paper, metric)) } }
                                td {}
                                @if scenario.has_ratios() { td {} }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(stats: &BTreeMap<Metric, Stat>, metric: Metric) -> String {
    stats.get(&metric).map_or_else(
        || format::ABSENT.to_owned(),
        |stat| format::stat(metric, *stat, Notation::Typeset),
    )
}

pub(super) fn dot(row: &Row, metric: Metric) -> Option<Dot> {
    let ours = row.values.get(&metric).copied().filter(Stat::is_finite);
    let paper = row.paper.get(&metric).copied().filter(Stat::is_finite);
    (ours.is_some() || paper.is_some()).then(|| Dot {
        label: row.method.clone(),
        ours,
        paper,
        emphasis: is_own(&row.method),
    })
}

/// Returns a chart of Δw by method for each scenario, all with the same axis; none where no distance is known.
fn distance_charts(table: &Table) -> Vec<DotChart> {
    // Retrain's distance to itself says nothing and would cost the axis a place for zero.
    let rows = |s: &'_ ScenarioTable| -> Vec<Dot> {
        let others = s.rows.iter().filter(|r| r.method != RETRAIN);
        others.filter_map(|row| dot(row, Metric::DeltaW)).collect()
    };
    let all: Vec<Dot> = table.scenarios.iter().flat_map(rows).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let stats = all.iter().flat_map(|d| [d.ours, d.paper]).flatten();
    let shared: Vec<f64> = stats.map(|s| s.mean).chain([1.0]).collect();
    let chart = |scenario: &ScenarioTable| DotChart {
        title: scenario.name.clone(),
        scale: Scale::Log,
        include: shared.clone(),
        values: true,
        dots: rows(scenario),
        ..Default::default()
    };
    table.scenarios.iter().map(chart).collect()
}

fn distances(table: &Table) -> Markup {
    let charts = distance_charts(table);
    if charts.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "Distance to the retrained model" }
        p {
            "Δw by method, on a log scale. Rounding in f64 alone leaves about 10⁻²⁸: a dot there is the retrained model "
            "as far as the arithmetic can tell."
        }
        (key(&[("k-own", "MUSO, ours"), ("", "other methods, ours"), ("k-paper", "paper")]))
        (chart_grid(charts.iter().map(DotChart::render)))
    }
}

/// Returns the distances to the retrained model as an SVG file of its own, for a place that shows no pages.
pub fn table_picture(table: &Table) -> String {
    Picture {
        title: "Distance to the model retrained without the forgotten rows",
        subtitle: "Δw = ‖w − w_r‖²/D by method, log scale. Rounding in f64 alone leaves about 10⁻²⁸.",
        key: &[
            ("f0", "MUSO, this program"),
            ("f1", "other methods, this program"),
            ("paper", "published"),
        ],
        charts: distance_charts(table).iter().map(DotChart::draw_all).collect(),
    }
    .render()
}

pub(super) fn accuracies(table: &Table) -> Markup {
    let metrics = table.metrics().into_iter();
    let metrics: Vec<Metric> = metrics.filter(|m| m.is_percent()).collect();
    if metrics.is_empty() {
        return Markup::default();
    }
    let mut marks = match table.has_published() {
        true => vec![("k-own", "MUSO, ours"), ("", "other methods, ours")],
        false => vec![("k-own", "MUSO"), ("", "other methods")],
    };
    marks.push(("k-whisker", "± one standard deviation"));
    marks.extend(match table.has_published() {
        true => vec![("k-paper", "paper"), ("k-reference", "Retrain, ours")],
        false => vec![("k-reference", "Retrain")],
    });
    let chart = |scenario: &ScenarioTable, metric: Metric| {
        let rows = match metric {
            Metric::Ra => "retained rows",
            Metric::Ta => "test rows",
            Metric::Fa => "what is forgotten",
            _ => "forgotten rows",
        };
        let retrain = scenario.row(RETRAIN);
        let dots = scenario.rows.iter().filter_map(|row| dot(row, metric));
        DotChart {
            title: format!("{}, {rows}", metric.title()),
            scale: Scale::Percent,
            reference: retrain.and_then(|r| r.values.get(&metric)).map(|s| s.mean),
            dots: dots.collect(),
            ..Default::default()
        }
        .render()
    };
    html! {
        h2 { "Accuracies against Retrain" }
        p {
            "The closer a dot is to the dashed line, the more the model behaves as one that never saw the forgotten "
            "rows. Each chart has its own scale, in percent."
        }
        (key(&marks))
        @for scenario in &table.scenarios {
            h3 { (scenario.name) }
            (chart_grid(metrics.iter().map(|&metric| chart(scenario, metric))))
        }
    }
}

fn paths(table: &Table) -> Markup {
    let curves = || table.scenarios.iter().flat_map(|s| &s.curves);
    if curves().all(|c| c.epochs.is_empty()) {
        return Markup::default();
    }
    let shared = curves().flat_map(|c| c.delta_w.iter().copied());
    let shared = shared.filter(|d| *d > 0.0);
    let low = shared.clone().fold(f64::INFINITY, f64::min);
    let high = shared.fold(f64::NEG_INFINITY, f64::max);
    let chart = |scenario: &ScenarioTable| {
        let mut others = 1;
        let lines = scenario.curves.iter().map(|curve| {
            let colour = if curve.method == "MUSO" {
                0
            } else {
                others += 1;
                others
            };
            let epochs = curve.epochs.iter().copied();
            Line {
                label: curve.method.clone(),
                points: epochs.zip(curve.delta_w.iter().copied()).collect(),
                colour,
                ..Default::default()
            }
        });
        LineChart {
            title: scenario.name.clone(),
            x_label: "epochs".into(),
            x: Scale::Log,
            y: Scale::Log,
            include: vec![low, high],
            lines: lines.collect(),
            ..Default::default()
        }
        .render()
    };
    html! {
        h2 { "The path of gradient descent" }
        p {
            "Δw over the epochs of each iterative method, both on a log scale, for the first seed and without any early "
            "stop. With optimal labels the path leads to the retrained model; with other labels it ends elsewhere."
        }
        (chart_grid(table.scenarios.iter().map(chart)))
    }
}

pub(super) fn notes(table: &Table) -> Markup {
    let mut methods: Vec<(&str, Markup)> = Vec::new();
    for row in table.scenarios.iter().flat_map(|s| &s.rows) {
        let is_new = methods.iter().all(|(method, _)| *method != row.method);
        if is_new && !row.about.is_empty() {
            methods.push((&row.method, html! { (sentence(&row.about)) }));
        }
    }
    html! {
        @if !methods.is_empty() {
            h2 { "The methods" }
            (pairs(methods))
        }
        @if !table.notes.is_empty() {
            h2 { "Notes" }
            ul { @for note in &table.notes { li { (note) } } }
        }
    }
}
