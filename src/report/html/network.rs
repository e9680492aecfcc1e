//! The page of a run on networks.
//!
//! The order is that of a reader's questions: how close does it come, what do the numbers mean, what are they, why,
//! how were the settings chosen, how can I repeat it.

use super::{
    Figure, charts_class, dot, end_of_table, headline_without_distances, is_own, push_accuracies,
    push_explanation, push_notes, push_repeat, push_results, start_of_table,
};
use crate::report::format::{self, Notation, escape};
use crate::report::network::{AccuracyCurve, Histogram, NetworkReport, chosen_methods};
use crate::report::svg::{Dot, DotChart, Line, LineChart, Scale, Stroke};
use crate::report::table::{Metric, NOISE_FLOOR, PRETRAINED, RETRAIN, Row, ScenarioTable, Table};

/// A page for a run on networks.
pub fn network_page(report: &NetworkReport) -> String {
    let table = &report.explained_table();
    let mut out = match GapFinding::of(table) {
        Some(found) => start_of_table(
            table,
            &found.headline(),
            &found.lede(table),
            &found.figures(table),
        ),
        None => start_of_table(table, &headline_without_distances(table), "", &[]),
    };
    push_settings(&mut out, report);
    push_explanation(&mut out, table);
    out.push_str(&format!(
        "<h3>MIA, the membership attack<span>convention “{}”</span></h3>\n<p>{}</p>\n\
         <p class=\"aside\">Numbers of different conventions do not compare. The attack asks about the forgotten \
         training rows in every scenario; over which rows the accuracies are stands under each table.</p>\n",
        report.mia,
        escape(report.mia.explanation())
    ));
    push_results(&mut out, table);
    push_gaps(&mut out, table);
    push_accuracies(&mut out, table);
    push_entropies(&mut out, report);
    push_epochs(&mut out, report);
    push_tuning(&mut out, report);
    push_notes(&mut out, table);
    push_repeat(&mut out, table, &report.config);
    out.push_str(&end_of_table(table));
    out
}

/// A method with its mean AvgGap over the scenarios.
struct Standing {
    method: String,
    gap: f64,
}

/// What the table shows: the closest of ours, the closest of the others, and what noise alone would give.
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
                .map(|s| s.row(method)?.mean(Metric::AvgGap))
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
            "Points are percentage points of AvgGap, the mean distance to Retrain in RA, TA, FA and MIA, averaged over \
             {scenarios} and {}.",
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
        let gap = |row: Option<&Row>| row.and_then(|row| row.mean(Metric::AvgGap));
        let figure = |scenario: &ScenarioTable| {
            let ours = gap(scenario.row(&self.ours.method))?;
            let noise = gap(scenario.row(NOISE_FLOOR)).map(|g| format!("noise {g:.2}"));
            let other = scenario.closest(|row| is_baseline(&row.method));
            let other = other.and_then(|r| Some(format!("{} {:.2}", r.method, gap(Some(r))?)));
            let parts: Vec<String> = [noise, other].into_iter().flatten().collect();
            Some(Figure {
                name: format!("{}, AvgGap of {}", scenario.name, self.ours.method),
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

fn push_settings(out: &mut String, report: &NetworkReport) {
    if report.settings.is_empty() {
        return;
    }
    out.push_str("<h2>The setting</h2>\n<dl class=\"pairs\">\n");
    for (name, value) in &report.settings {
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            escape(name),
            escape(value)
        ));
    }
    out.push_str("</dl>\n");
}

fn push_charts(out: &mut String, charts: impl Iterator<Item = String>) {
    let charts: Vec<String> = charts.collect();
    out.push_str(&format!("<div class=\"{}\">\n", charts_class(charts.len())));
    for chart in charts {
        out.push_str(&format!("<figure>{chart}</figure>\n"));
    }
    out.push_str("</div>\n");
}

fn push_gaps(out: &mut String, table: &Table) {
    let dots = |scenario: &ScenarioTable| -> Vec<Dot> {
        let others = scenario.rows.iter();
        let others = others.filter(|r| r.method != RETRAIN && r.method != NOISE_FLOOR);
        others.filter_map(|row| dot(row, Metric::AvgGap)).collect()
    };
    let all: Vec<Dot> = table.scenarios.iter().flat_map(dots).collect();
    if all.is_empty() {
        return;
    }
    let ends = all.iter().filter_map(|d| d.ours);
    let longest = ends.map(|s| s.mean + s.std).filter(|x| x.is_finite());
    let longest = longest.fold(0.0, f64::max);
    let noise = |s: &ScenarioTable| s.row(NOISE_FLOOR).and_then(|r| r.mean(Metric::AvgGap));
    let key = match table.scenarios.iter().any(|s| noise(s).is_some()) {
        true => "<span class=\"k-reference\">a second retrained model: the noise floor</span>",
        false => "",
    };
    out.push_str(&format!(
        "<h2>Gap to the retrained model</h2>\n\
         <p>AvgGap by method in points, shorter is closer. A bar that does not reach the dashed line is as close as one \
         retrained model is to another.</p>\n\
         <p class=\"key\"><span class=\"k-own\">MUSO</span><span>other methods</span>\
         <span class=\"k-whisker\">± one standard deviation</span>{key}</p>\n"
    ));
    let charts = table.scenarios.iter().map(|scenario| {
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
    });
    push_charts(out, charts);
}

fn push_entropies(out: &mut String, report: &NetworkReport) {
    let scenarios = || {
        let with_detail = |s| Some((s, &report.detail(s)?.entropies));
        let scenarios = report.table.scenarios.iter().filter_map(with_detail);
        scenarios.filter(|(_, entropies)| !entropies.forgotten.is_empty())
    };
    if scenarios().next().is_none() {
        return;
    }
    out.push_str(
        "<h2>How sure the models are</h2>\n\
         <p>Entropy of the softmax on the forgotten rows, as a histogram: percent of the rows over nats, from sure (left) \
         to unsure. The solid line of a model that has forgotten follows the dashed one. Shown are the \
         pre-trained model (on a scale of its own), ours, and the closest other method.</p>\n\
         <p class=\"key\"><span class=\"k-line\">forgotten rows, the method named above</span>\
         <span class=\"k-dashed\">forgotten rows, Retrain</span>\
         <span class=\"k-area\">test rows, Retrain</span></p>\n",
    );
    for (scenario, entropies) in scenarios() {
        let line = |histogram: Histogram, label: &str, colour, stroke| Line {
            label: label.into(),
            points: histogram.outline(),
            colour,
            stroke,
        };
        let chosen = chosen_methods(scenario, is_own);
        let shown: Vec<(String, Histogram)> = chosen
            .into_iter()
            .filter_map(|method| entropies.under(&method).map(|h| (method, h)))
            .collect();
        let behind = entropies.of_test_rows();
        let retrain = entropies.under(RETRAIN);
        // What the pre-trained model piles up at 0 would flatten all the others.
        let others = shown.iter().filter(|(method, _)| method != PRETRAINED);
        let all = others.map(|(_, h)| h).chain(&behind).chain(&retrain);
        let highest = all.flat_map(|h| &h.shares).copied().fold(0.0, f64::max);
        out.push_str(&format!("<h3>{}</h3>\n", escape(&scenario.name)));
        let charts = shown.into_iter().map(|(method, histogram)| {
            let mut lines = Vec::new();
            lines.extend(
                behind
                    .clone()
                    .map(|h| line(h, "test rows, Retrain", 1, Stroke::Area)),
            );
            lines.push(line(histogram, &method, 0, Stroke::Solid));
            lines.extend(
                retrain
                    .clone()
                    .map(|h| line(h, "forgotten rows, Retrain", 1, Stroke::Dashed)),
            );
            LineChart {
                title: method,
                x_label: "entropy, nats".into(),
                include: vec![0.0, highest],
                unnamed: true,
                lines,
                ..Default::default()
            }
            .render()
        });
        push_charts(out, charts);
    }
}

/// Lines that one chart of accuracies can hold and a reader can still tell apart.
const MOST_LINES: usize = 5;

fn push_epochs(out: &mut String, report: &NetworkReport) {
    let scenarios = || {
        let with_detail = |s| Some((s, &report.detail(s)?.curves));
        let scenarios = report.table.scenarios.iter().filter_map(with_detail);
        scenarios.filter(|(_, curves)| curves.iter().any(|c| !c.epochs.is_empty()))
    };
    if scenarios().next().is_none() {
        return;
    }
    out.push_str(&format!(
        "<h2>Epoch by epoch</h2>\n\
         <p>Accuracy after each epoch of unlearning, in percent, for one seed; epoch 0 is the pre-trained model. Ours and \
         the closest of the others, at most {MOST_LINES} lines; the JSON output has all of them.</p>\n\
         <p class=\"key\"><span class=\"k-reference\">Retrain, mean over the seeds</span></p>\n"
    ));
    let methods = methods_with_curves(report);
    for (scenario, curves) in scenarios() {
        // The neutral colour last: it is the hardest to tell from the grid.
        let coloured = methods.iter().zip([0, 2, 3, 4, 1]);
        let lines: Vec<(&AccuracyCurve, usize)> = coloured
            .filter_map(|(method, colour)| {
                Some((curves.iter().find(|c| c.method == *method)?, colour))
            })
            .collect();
        out.push_str(&format!("<h3>{}</h3>\n", escape(&scenario.name)));
        let charts = [Metric::Ra, Metric::Ta, Metric::Fa].map(|metric| {
            let points = |curve: &AccuracyCurve| {
                let epochs = curve.epochs.iter().copied();
                epochs.zip(curve.values(metric).iter().copied()).collect()
            };
            let lines = lines.iter().map(|(curve, colour)| Line {
                label: curve.method.clone(),
                points: points(curve),
                colour: *colour,
                ..Default::default()
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
        });
        push_charts(out, charts.into_iter());
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
        let gaps: Vec<f64> = rows.filter_map(|r| r.mean(Metric::AvgGap)).collect();
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

fn push_tuning(out: &mut String, report: &NetworkReport) {
    if report.details.iter().all(|d| d.tuning.is_empty()) {
        return;
    }
    out.push_str(
        "<h2>How the settings were chosen</h2>\n\
         <p>Of what was tried, the setting with the smallest AvgGap on the tuning seed was kept for all seeds. That choice \
         looks at the retrained model, which a user does not have: it flatters every method listed here.</p>\n",
    );
    for detail in report.details.iter().filter(|d| !d.tuning.is_empty()) {
        out.push_str(&format!("<h3>{}</h3>\n", escape(&detail.scenario)));
        out.push_str(
            "<div class=\"scroll\"><table class=\"prose\">\n<thead><tr><th scope=\"col\">method</th>\
             <th scope=\"col\">tried</th><th scope=\"col\">kept</th>\
             <th scope=\"col\">AvgGap, tuning seed</th></tr></thead>\n<tbody>\n",
        );
        for tuning in &detail.tuning {
            let own = if is_own(&tuning.method) { " own" } else { "" };
            out.push_str(&format!(
                "<tr class=\"ours{own} solo\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(&tuning.method),
                escape(&tuning.grid),
                escape(&tuning.chosen),
                format::value(Metric::AvgGap, tuning.avg_gap, Notation::Typeset)
            ));
        }
        out.push_str("</tbody></table></div>\n");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::balanced;
    use super::*;
    use crate::report::{Stat, sample};

    #[test]
    fn the_page_holds_every_part() {
        let report = sample::network();
        let page = network_page(&report);
        balanced(&page).unwrap();
        for needle in ["http", "<script", "@import", "url(", "NaN", ">inf"] {
            assert!(!page.contains(needle), "{needle}");
        }
        for heading in [
            "The setting",
            "What is compared",
            "Results",
            "Gap to the retrained model",
            "Accuracies against Retrain",
            "How sure the models are",
            "Epoch by epoch",
            "How the settings were chosen",
            "The methods",
            "Notes",
            "How to repeat it",
        ] {
            assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
        }
        assert!(page.contains("convention “entropy”"));
        assert!(page.contains("FA, MIA and agreement over the 200 forgotten training rows"));
        assert!(page.contains("[unlearn]") && page.contains("class=\"best\""));
        // For each of three scenarios: bars, four metrics, four histograms (pre-trained, two of ours, one other), three curves.
        assert_eq!(page.matches("<figure>").count(), 3 * (1 + 4 + 4 + 3));
        assert_eq!(page.matches("<polygon").count(), 3 * 4);
    }

    #[test]
    fn the_headline_says_who_is_closer() {
        let mut report = sample::network();
        let page = network_page(&report);
        assert!(
            page.contains("<h1>MUSO-S ends ") && page.contains("; the closest other method, "),
            "{}",
            &page[page.find("<h1>").unwrap()..][..200]
        );
        assert!(page.contains("A second retrained model is itself "));
        for row in report.table.scenarios.iter_mut().flat_map(|s| &mut s.rows) {
            if is_own(&row.method) {
                row.values.insert(Metric::AvgGap, Stat::exact(30.0));
            }
        }
        let page = network_page(&report);
        assert!(
            page.contains("ends 30.00 points from the retrained model; ")
                && page.contains(" is closer, at ")
        );
    }

    #[test]
    fn parts_without_data_are_left_out() {
        let mut report = sample::network();
        report.details.clear();
        report.settings.clear();
        report.config.clear();
        let page = network_page(&report);
        balanced(&page).unwrap();
        for heading in [
            "How sure",
            "Epoch by epoch",
            "How the settings",
            "The setting",
        ] {
            assert!(!page.contains(&format!("<h2>{heading}")), "{heading}");
        }
        balanced(&network_page(&NetworkReport::default())).unwrap();
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let hostile = "<img src=x onerror=\"alert('1')\">&";
        let mut report = sample::network();
        report.config = hostile.into();
        report.settings[0] = (hostile.into(), hostile.into());
        let scenario = &mut report.table.scenarios[0];
        scenario.name = hostile.into();
        scenario.over.insert(Metric::Fa, hostile.into());
        scenario.rows[2].method = hostile.into();
        let detail = &mut report.details[0];
        detail.scenario = hostile.into();
        detail.tuning[0].grid = hostile.into();
        detail.tuning[0].chosen = hostile.into();
        detail.curves[0].method = hostile.into();
        detail.entropies.forgotten[0].0 = hostile.into();
        let page = network_page(&report);
        assert!(!page.contains("<img") && !page.contains("alert('"));
        balanced(&page).unwrap();
    }
}
