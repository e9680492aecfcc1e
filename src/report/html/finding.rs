//! What a table of distances shows, in the words of a headline.

use std::collections::BTreeMap;

use super::{Figure, brief, is_own, range};
use crate::outcome::{Metric, PRETRAINED, Row, ScenarioTable, Stat, Table};
use crate::report::format;

/// Returns the mean Δw, where it was measured.
fn delta(stats: &BTreeMap<Metric, Stat>) -> Option<f64> {
    stats
        .get(&Metric::DeltaW)
        .map(|s| s.mean)
        .filter(|m| m.is_finite())
}

/// Returns Δw of `method` in every scenario; none when one lacks it.
fn deltas(table: &Table, method: &str, pick: impl Fn(&Row) -> Option<f64>) -> Option<Vec<f64>> {
    let of = |scenario: &ScenarioTable| {
        scenario
            .rows
            .iter()
            .find(|r| r.method == method)
            .and_then(&pick)
    };
    let values: Option<Vec<f64>> = table.scenarios.iter().map(of).collect();
    values.filter(|v| !v.is_empty())
}

/// Finding that the headline states.
pub(super) struct Finding {
    /// The variant of MUSO whose worst scenario is best.
    method: String,
    /// Δw of the method, by scenario.
    ours: Vec<f64>,
    /// The published Δw of MUSO by scenario.
    paper: Option<Vec<f64>>,
}

impl Finding {
    pub(super) fn of(table: &Table) -> Option<Finding> {
        let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let rows = &table.scenarios.first()?.rows;
        let (method, ours) = rows
            .iter()
            .filter(|row| is_own(&row.method))
            .filter_map(|row| {
                Some((
                    row.method.clone(),
                    deltas(table, &row.method, |r| delta(&r.values))?,
                ))
            })
            .min_by(|a, b| worst(&a.1).total_cmp(&worst(&b.1)))?;
        Some(Finding {
            method,
            ours,
            paper: deltas(table, "MUSO", |r| delta(&r.paper)),
        })
    }

    pub(super) fn headline(&self) -> String {
        let worst = self.ours.iter().copied().fold(0.0, f64::max);
        let mut text = format!(
            "{} ends {} from the retrained model",
            self.method,
            brief(worst)
        );
        if let Some(paper) = &self.paper {
            text.push_str(&format!("; the paper reports {}", range(paper)));
        }
        text
    }

    pub(super) fn lede(&self, table: &Table) -> String {
        let mut text = format!(
            "The distance is Δw = ‖w − w_r‖² / D to the weights w_r that were trained without the forgotten rows: the \
             largest over {}, each the mean over {}.",
            match self.ours.len() {
                1 => "one scenario".to_owned(),
                2 => "two scenarios".to_owned(),
                3 => "three scenarios".to_owned(),
                n => format!("{n} scenarios"),
            },
            format::plural(table.seeds.len(), "seed", "seeds")
        );
        if self.method != "MUSO"
            && let Some(sgd) = deltas(table, "MUSO", |r| delta(&r.values))
        {
            text.push_str(&format!(
                " By gradient descent, the paper's own route, MUSO ends at {}.",
                range(&sgd)
            ));
        }
        if let Some(start) = deltas(table, PRETRAINED, |r| delta(&r.values)) {
            text.push_str(&format!(
                " The model before unlearning is at {}.",
                range(&start)
            ));
        }
        text
    }

    pub(super) fn figures(&self, table: &Table) -> Vec<Figure> {
        let figure = |(i, scenario): (usize, &ScenarioTable)| {
            let paper = self
                .paper
                .as_ref()
                .map(|p| format!("paper {}", brief(p[i])));
            let start = scenario.rows.iter().find(|r| r.method == PRETRAINED);
            let start = start
                .and_then(|r| delta(&r.values))
                .map(|d| format!("before unlearning {}", brief(d)));
            Figure {
                name: format!("{}, Δw", scenario.name),
                big: brief(self.ours[i]),
                sub: [paper, start]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join(" · "),
            }
        };
        table.scenarios.iter().enumerate().map(figure).collect()
    }
}

/// Returns the headline of a table without Δw: its finding is the gap to Retrain.
pub(super) fn headline_without_distances(table: &Table) -> String {
    let gap = |row: &Row| {
        row.values
            .get(&Metric::SeedGap)
            .map(|s| s.mean)
            .filter(|g| g.is_finite())
    };
    let rows = table
        .scenarios
        .iter()
        .flat_map(|s| s.rows.iter().map(move |r| (s, r)));
    let best = rows
        .filter(|(_, row)| is_own(&row.method))
        .filter_map(|(scenario, row)| Some((scenario, row, gap(row)?)))
        .min_by(|a, b| a.2.total_cmp(&b.2));
    match best {
        Some((scenario, row, gap)) => format!(
            "{} comes within {gap:.2} points of the retrained model ({})",
            row.method, scenario.name
        ),
        None if table.title.is_empty() => {
            "Unlearning methods against the retrained model".to_owned()
        }
        None => table.title.clone(),
    }
}
