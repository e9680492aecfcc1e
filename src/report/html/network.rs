//! The page of a run on networks.
//!
//! The order is that of a reader's questions: how close does it come, what do the numbers mean, what are they, why,
//! how were the settings chosen, how can I repeat it.

use maud::{Markup, html};

use super::table::{Start, accuracies, dot, explanation, notes, results, seeds};
use super::{Figure, chart_grid, is_own, key, label_updates, repeat, settings};
use crate::outcome::network::Histogram;
use crate::outcome::{
    AccuracyCurve, Detail, Entropies, MethodUpdates, Metric, NOISE_FLOOR, NetworkReport,
    PRETRAINED, RETRAIN, Row, ScenarioTable, Table,
};
use crate::report::format::{self, Notation};
use crate::report::svg::{Dot, DotChart, Line, LineChart, Scale, Stroke};

/// Returns the page of a run on networks.
pub(in crate::report) fn network_page(report: &NetworkReport) -> String {
    let table = &report.explained_table();
    let start = match GapFinding::of(table) {
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
            (settings("The setting", &report.settings))
            (explanation(table))
            h3 { "MIA, the membership attack" span { "convention “" (report.mia) "”" } }
            p { (report.mia.explanation()) }
            p.aside {
                "Numbers of different conventions do not compare. The attack asks about the forgotten training rows in "
                "every scenario; over which rows the accuracies are stands under each table."
            }
            (results(table))
            (gaps(table))
            (accuracies(table))
            (updates(report))
            (entropies(report))
            (epochs(report))
            (tuning(report))
            (notes(table))
            (repeat([&table.command, &report.config], &seeds(table)))
        },
    )
}

/// Returns the label updates with what they warn of.
fn updates(report: &NetworkReport) -> Markup {
    let details = report.details.iter();
    let scenarios: Vec<(&str, &[MethodUpdates])> = details
        .map(|d| (d.scenario.as_str(), d.updates.as_slice()))
        .collect();
    html! {
        (label_updates(&scenarios))
        @for (scenario, methods) in &scenarios {
            @for warning in methods.iter().flat_map(MethodUpdates::warnings) {
                p.warning { b { "Warning." } " " (scenario) ", " (warning) }
            }
        }
    }
}

/// A method with its mean seed gap over the scenarios.
struct Standing {
    method: String,
    gap: f64,
}

/// Finding of the table: the closest of ours, the closest of the others, and what noise alone would give.
struct GapFinding {
    ours: Standing,
    other: Option<Standing>,
    noise: Option<f64>,
}

impl GapFinding {
    fn of(table: &Table) -> Option<GapFinding> {
        let mean = |method: &str| {
            let gaps: Option<Vec<f64>> = table
                .scenarios
                .iter()
                .map(|s| s.row(method)?.mean(Metric::SeedGap))
                .collect();
            let gaps = gaps.filter(|gaps| !gaps.is_empty())?;
            Some(gaps.iter().sum::<f64>() / gaps.len() as f64)
        };
        let closest = |eligible: &dyn Fn(&str) -> bool| {
            let rows = table.scenarios.first()?.rows.iter();
            rows.filter(|row| eligible(&row.method))
                .filter_map(|row| {
                    Some(Standing {
                        gap: mean(&row.method)?,
                        method: row.method.clone(),
                    })
                })
                .min_by(|a, b| a.gap.total_cmp(&b.gap))
        };
        Some(GapFinding {
            ours: closest(&is_own)?,
            other: closest(&is_baseline),
            noise: mean(NOISE_FLOOR),
        })
    }

    fn headline(&self) -> String {
        let Standing { method, gap } = &self.ours;
        let mut text = format!("{method} ends {gap:.2} points from the retrained model");
        if let Some(other) = &self.other {
            let verdict = if other.gap < *gap {
                format!("; {} is closer, at {:.2}", other.method, other.gap)
            } else {
                format!(
                    "; the closest other method, {}, {:.2}",
                    other.method, other.gap
                )
            };
            text.push_str(&verdict);
        }
        text
    }

    fn lede(&self, table: &Table) -> String {
        let scenarios = format::plural(table.scenarios.len(), "scenario", "scenarios");
        let mut text = format!(
            "Points are percentage points of the seed gap, the mean distance to Retrain in RA, TA, FA and MIA of each seed, \
             averaged over {scenarios} and {}.",
            format::plural(table.seeds.len(), "seed", "seeds")
        );
        if let Some(noise) = self.noise {
            text.push_str(&format!(
                " A second retrained model is itself {noise:.2} points away: that much is noise."
            ));
        }
        text
    }

    /// The gap of our method in each scenario, with what it should be held against.
    fn figures(&self, table: &Table) -> Vec<Figure> {
        let gap = |row: Option<&Row>| row.and_then(|row| row.mean(Metric::SeedGap));
        let figure = |scenario: &ScenarioTable| {
            let ours = gap(scenario.row(&self.ours.method))?;
            let noise = gap(scenario.row(NOISE_FLOOR)).map(|g| format!("noise {g:.2}"));
            let other = scenario.closest(|row| is_baseline(&row.method));
            let other = other.and_then(|r| Some(format!("{} {:.2}", r.method, gap(Some(r))?)));
            let parts: Vec<String> = [noise, other].into_iter().flatten().collect();
            Some(Figure {
                name: format!("{}, seed gap of {}", scenario.name, self.ours.method),
                big: format!("{ours:.2}"),
                sub: parts.join(" · "),
            })
        };
        table.scenarios.iter().filter_map(figure).collect()
    }
}

/// A method of others that unlearns: neither ours nor a retrained or untouched model.
fn is_baseline(method: &str) -> bool {
    !is_own(method) && ![RETRAIN, NOISE_FLOOR, PRETRAINED].contains(&method)
}

fn gaps(table: &Table) -> Markup {
    // Published gaps are gaps of means, and stand beside no other.
    let published = table.scenarios.iter().flat_map(|s| &s.rows);
    let metric = match published
        .clone()
        .any(|row| row.paper.contains_key(&Metric::AvgGap))
    {
        true => Metric::AvgGap,
        false => Metric::SeedGap,
    };
    let dots = |scenario: &ScenarioTable| -> Vec<Dot> {
        let others = scenario.rows.iter();
        let others = others.filter(|r| r.method != RETRAIN && r.method != NOISE_FLOOR);
        others.filter_map(|row| dot(row, metric)).collect()
    };
    let all: Vec<Dot> = table.scenarios.iter().flat_map(dots).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let ends = all.iter().filter_map(|d| d.ours);
    let spread = |s: crate::outcome::Stat| if s.std.is_finite() { s.std } else { 0.0 };
    let longest = ends.map(|s| s.mean + spread(s)).filter(|x| x.is_finite());
    let longest = longest.fold(0.0, f64::max);
    let noise = |s: &ScenarioTable| s.row(NOISE_FLOOR).and_then(|r| r.mean(metric));
    let mut marks = vec![("k-own", "MUSO"), ("", "other methods")];
    marks.push(match metric {
        Metric::AvgGap => ("k-paper", "paper"),
        _ => ("k-whisker", "± one standard deviation"),
    });
    if table.scenarios.iter().any(|s| noise(s).is_some()) {
        marks.push(("k-reference", "a second retrained model: the noise floor"));
    }
    let chart = |scenario: &ScenarioTable| {
        DotChart {
            title: scenario.name.clone(),
            scale: Scale::Percent,
            include: vec![longest],
            reference: noise(scenario),
            values: true,
            bars: true,
            dots: dots(scenario),
        }
        .render()
    };
    html! {
        h2 { "Gap to the retrained model" }
        p {
            @if metric == Metric::AvgGap { "AvgGap, the gap of the means over seeds, " } @else { "Seed gap " }
            "by method in points, shorter is closer. A bar that does not reach the dashed line is as close as one "
            "retrained model is to another."
        }
        (key(&marks))
        (chart_grid(table.scenarios.iter().map(chart)))
    }
}

/// Returns the scenarios with the detail of each that `has` what is to be shown.
fn detailed<'a, T: ?Sized>(
    report: &'a NetworkReport,
    pick: impl Fn(&'a Detail) -> &'a T,
    has: impl Fn(&T) -> bool,
) -> Vec<(&'a ScenarioTable, &'a T)> {
    let details = report.details.iter();
    let detail = |s: &ScenarioTable| details.clone().find(|d| d.scenario == s.name);
    let scenarios = report.table.scenarios.iter();
    scenarios
        .filter_map(|scenario| Some((scenario, pick(detail(scenario)?))))
        .filter(|(_, detail)| has(detail))
        .collect()
}

/// The methods to show where there is room for few: the pre-trained model, our own, and the closest of the others.
fn chosen_methods(scenario: &ScenarioTable) -> Vec<String> {
    let mut chosen: Vec<String> = Vec::new();
    chosen.extend(scenario.row(PRETRAINED).map(|row| row.method.clone()));
    let methods = scenario.rows.iter().map(|row| &row.method);
    chosen.extend(methods.filter(|method| is_own(method)).cloned());
    let other = scenario.closest(|row| !is_own(&row.method) && row.method != PRETRAINED);
    chosen.extend(other.map(|row| row.method.clone()));
    chosen.retain(|method| method != RETRAIN);
    chosen
}

fn entropies(report: &NetworkReport) -> Markup {
    let scenarios = detailed(report, |d| &d.entropies, |e| !e.forgotten.is_empty());
    if scenarios.is_empty() {
        return Markup::default();
    }
    html! {
        h2 { "How sure the models are" }
        p {
            "Entropy of the softmax on the forgotten rows, as a histogram: percent of the rows over nats, from sure "
            "(left) to unsure. The solid line of a model that has forgotten follows the dashed one. Shown are the "
            "pre-trained model (on a scale of its own), ours, and the closest other method."
        }
        (key(&[
            ("k-line", "forgotten rows, the method named above"),
            ("k-dashed", "forgotten rows, Retrain"),
            ("k-area", "test rows, Retrain"),
        ]))
        @for (scenario, entropies) in scenarios {
            h3 { (scenario.name) }
            (chart_grid(histograms(scenario, entropies)))
        }
    }
}

impl Histogram {
    /// Returns its outline, from the axis up, in steps, and down to the axis again.
    fn outline(&self) -> Vec<(f64, f64)> {
        let width = self.end / self.shares.len() as f64;
        let mut points = vec![(0.0, 0.0)];
        for (bin, &share) in self.shares.iter().enumerate() {
            points.push((bin as f64 * width, share));
            points.push(((bin + 1) as f64 * width, share));
        }
        points.push((self.end, 0.0));
        points
    }
}

/// Returns the histogram of each chosen method, with those of Retrain behind it.
fn histograms(scenario: &ScenarioTable, entropies: &Entropies) -> Vec<Markup> {
    let line = |histogram: &Histogram, label: &str, colour, stroke| Line {
        label: label.into(),
        points: histogram.outline(),
        colour,
        stroke,
    };
    let shown: Vec<(String, Histogram)> = chosen_methods(scenario)
        .into_iter()
        .filter_map(|method| entropies.under(&method).map(|h| (method, h)))
        .collect();
    let behind = entropies.of_test_rows();
    let retrain = entropies.under(RETRAIN);
    // What the pre-trained model piles up at 0 would flatten all the others.
    let others = shown.iter().filter(|(method, _)| method != PRETRAINED);
    let all = others.map(|(_, h)| h).chain(&behind).chain(&retrain);
    let highest = all.flat_map(|h| &h.shares).copied().fold(0.0, f64::max);
    let chart = |(method, histogram): (String, Histogram)| {
        let behind = behind.iter();
        let behind = behind.map(|h| line(h, "test rows, Retrain", 1, Stroke::Area));
        let retrain = retrain.iter();
        let retrain = retrain.map(|h| line(h, "forgotten rows, Retrain", 1, Stroke::Dashed));
        let ours = line(&histogram, &method, 0, Stroke::Solid);
        LineChart {
            title: method,
            x_label: "entropy, nats".into(),
            include: vec![0.0, highest],
            unnamed: true,
            lines: behind.chain([ours]).chain(retrain).collect(),
            ..Default::default()
        }
        .render()
    };
    shown.into_iter().map(chart).collect()
}

impl AccuracyCurve {
    /// Returns the accuracies of one metric; none for what is not an accuracy.
    fn values(&self, metric: Metric) -> &[f64] {
        match metric {
            Metric::Ra => &self.ra,
            Metric::Ta => &self.ta,
            Metric::Fa => &self.fa,
            _ => &[],
        }
    }
}

/// Lines that one chart of accuracies can hold and a reader can still tell apart.
const MOST_LINES: usize = 5;

fn epochs(report: &NetworkReport) -> Markup {
    let scenarios = detailed(
        report,
        |d| d.curves.as_slice(),
        |curves| curves.iter().any(|c| !c.epochs.is_empty()),
    );
    if scenarios.is_empty() {
        return Markup::default();
    }
    let methods = methods_with_curves(report);
    let chart = |scenario: &ScenarioTable, curves: &[AccuracyCurve], metric: Metric| {
        // The neutral colour last: it is the hardest to tell from the grid.
        let coloured = methods.iter().zip([0, 2, 3, 4, 1]);
        let lines = coloured.filter_map(|(method, colour)| {
            let curve = curves.iter().find(|c| c.method == *method)?;
            let epochs = curve.epochs.iter().copied();
            Some(Line {
                label: curve.method.clone(),
                points: epochs.zip(curve.values(metric).iter().copied()).collect(),
                colour,
                ..Default::default()
            })
        });
        LineChart {
            title: metric.title().into(),
            x_label: "epochs".into(),
            y: Scale::Percent,
            reference: scenario.row(RETRAIN).and_then(|r| r.mean(metric)),
            lines: lines.collect(),
            ..Default::default()
        }
        .render()
    };
    html! {
        h2 { "Epoch by epoch" }
        p {
            "Accuracy after each epoch of unlearning, in percent, for one seed; epoch 0 is the pre-trained model. Ours "
            "and the closest of the others, at most " (MOST_LINES) " lines; the JSON output has all of them."
        }
        (key(&[("k-reference", "Retrain, mean over the seeds")]))
        @for (scenario, curves) in scenarios {
            h3 { (scenario.name) }
            (chart_grid([Metric::Ra, Metric::Ta, Metric::Fa].map(|m| chart(scenario, curves, m))))
        }
    }
}

/// Ours first, then the closest of the others over all scenarios, so that a method has one colour on the whole page.
fn methods_with_curves(report: &NetworkReport) -> Vec<&str> {
    let mut methods: Vec<&str> = Vec::new();
    for curve in report.details.iter().flat_map(|d| &d.curves) {
        if !curve.epochs.is_empty() && !methods.contains(&curve.method.as_str()) {
            methods.push(&curve.method);
        }
    }
    let rank = |method: &str| {
        let rows = report.table.scenarios.iter().filter_map(|s| s.row(method));
        let gaps: Vec<f64> = rows.filter_map(|r| r.mean(Metric::SeedGap)).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        (!is_own(method), mean)
    };
    methods.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    methods.truncate(MOST_LINES);
    methods
}

fn tuning(report: &NetworkReport) -> Markup {
    let details = || report.details.iter().filter(|d| !d.tuning.is_empty());
    html! {
        @if details().next().is_some() {
            h2 { "How the settings were chosen" }
            p {
                "Of what was tried, the setting with the smallest seed gap on the tuning seeds was kept for all seeds. That "
                "choice looks at the retrained model, which a user does not have: it flatters every method listed here."
            }
        }
        @for detail in details() {
            h3 { (detail.scenario) }
            div.scroll {
                table.prose {
                    thead {
                        tr {
                            @for column in ["method", "tried", "kept", "seed gap, tuning seeds"] {
                                th scope="col" { (column) }
                            }
                        }
                    }
                    tbody {
                        @for tuning in &detail.tuning {
                            tr.ours.solo.own[is_own(&tuning.method)] {
                                th scope="row" { (tuning.method) }
                                td { (tuning.grid) }
                                td { (tuning.chosen) }
                                td { (format::value(Metric::SeedGap, tuning.seed_gap, Notation::Typeset)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::outcome::{Stat, sample};

    #[test]
    fn outlines_start_and_end_on_the_axis() {
        let histogram = Histogram::of(&[0.0, 0.1, 1.0], 1.0);
        let bins = histogram.shares.len();
        let outline = histogram.outline();
        assert_eq!(outline.len(), 2 * bins + 2);
        assert_eq!(
            (outline[0], outline[2 * bins + 1]),
            ((0.0, 0.0), (1.0, 0.0))
        );
    }

    #[test]
    fn where_there_is_room_for_few_the_closest_other_is_shown() {
        let mut scenario = sample::network().table.scenarios[0].clone();
        for row in &mut scenario.rows {
            if is_own(&row.method) {
                row.values.insert(Metric::SeedGap, Stat::exact(50.0));
            }
        }
        let best = scenario.closest(|_| true).unwrap();
        let chosen = chosen_methods(&scenario);
        assert_eq!(chosen[..3], [PRETRAINED, "MUSO", "MUSO-S"]);
        assert_eq!(chosen[3], best.method);
    }
}
