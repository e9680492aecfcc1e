//! RMIA (Zarifzadeh et al., 2024): a membership attack that holds a row's probability, relative to what reference models
//! give it, against that of other rows. It works with one model under attack and one or two references.
//!
//! References are retrained models, which never saw the forgotten rows: with p(x) = mean over them, the ratio is
//! p(x|θ)/p(x), and a row's score is the share of test rows z whose ratio is at least γ = 2 times smaller.

use super::margins::log_probability;
use super::{Bench, Better, Metric, Model, Needs, Over, Pair};

/// γ: by how much a row's ratio must exceed that of another row.
const GAMMA: f64 = 2.0;

/// What the references say of the rows: ln p(x) of the forgotten and the test rows.
#[derive(Clone, Debug)]
pub struct Reference {
    forgotten: Vec<f64>,
    test: Vec<f64>,
}

impl Reference {
    /// Takes the retrained models of a pair as references.
    pub fn of(pair: &Pair<'_>) -> Self {
        let mean = |row: &usize| {
            let all = pair.retrained.iter();
            let logs: Vec<f64> = all.map(|r| log_probability(r.margins[*row])).collect();
            let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logs.iter().map(|log| (log - top).exp()).sum();
            top + (sum / logs.len() as f64).ln()
        };
        Self {
            forgotten: pair.bench.forgotten.iter().map(mean).collect(),
            test: pair.bench.test.iter().map(mean).collect(),
        }
    }

    /// Returns the area under the ROC curve, from 0 to 1, of the scores of forgotten rows (members) against test rows, for
    /// one model.
    pub fn area(&self, bench: &Bench, model: &Model) -> f64 {
        let ratios = |rows: &[usize], logs: &[f64]| -> Vec<f64> {
            let each = rows.iter().zip(logs);
            each.map(|(&row, log)| log_probability(model.margins[row]) - log)
                .collect()
        };
        let forgotten = ratios(&bench.forgotten, &self.forgotten);
        let test = ratios(&bench.test, &self.test);
        let mut sorted = test.clone();
        sorted.sort_by(f64::total_cmp);
        let dominated = |ratio: f64| sorted.partition_point(|z| *z <= ratio - GAMMA.ln()) as f64;
        // A test row is no reference for itself.
        let others = (sorted.len() as f64 - 1.0).max(1.0);
        let score = |ratio: &f64, count: f64| dominated(*ratio) / count;
        let members: Vec<f64> = forgotten
            .iter()
            .map(|r| score(r, sorted.len() as f64))
            .collect();
        let rest: Vec<f64> = test.iter().map(|r| score(r, others)).collect();
        area_under_curve(&members, &rest)
    }
}

/// The share of pairs whose first is larger, with ties as half.
fn area_under_curve(members: &[f64], others: &[f64]) -> f64 {
    let mut sorted = others.to_vec();
    sorted.sort_by(f64::total_cmp);
    let won: f64 = members
        .iter()
        .map(|x| {
            let below = sorted.partition_point(|y| y < x);
            let equal = sorted.partition_point(|y| y <= x) - below;
            below as f64 + equal as f64 / 2.0
        })
        .sum();
    won / (members.len() * others.len()) as f64
}

pub(super) fn metrics() -> Vec<Metric> {
    vec![Metric {
        key: "rmia".to_owned(),
        name: "RMIA, area %".to_owned(),
        over: Over::Forgotten,
        what: "How well a membership attack with retrained models as references tells forgotten rows from test rows: area \
            under the ROC curve in percent, γ = 2.",
        good: "Good is what held-out retrained models have, about 50; above it the rows are remembered, below it they \
            are conspicuous.",
        better: Better::Same,
        full: 100.0,
        needs: Needs {
            test: true,
            ..Needs::models(1)
        },
        decides: true,
        value: |pair, _| {
            let reference = Reference::of(pair);
            100.0 * pair.mean(|model| reference.area(pair.bench, model))
        },
    }]
}
