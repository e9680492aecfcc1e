//! Agreement: on how many rows a model predicts what a retrained model predicts.

use super::{Better, Metric, Model, Needs, Over, Pair};

/// Returns the percentage of rows on which a model says the same as a retrained one, mean over the retrained ones.
pub fn agreement(pair: &Pair<'_>, model: &Model, over: Over) -> f64 {
    let rows = pair.bench.over(over);
    let same = |other: &Model| match (&model.predictions, &other.predictions) {
        (Some(a), Some(b)) => rows.iter().filter(|&&row| a[row] == b[row]).count() as f64,
        _ => f64::NAN,
    };
    let all: f64 = pair.retrained.iter().map(|other| same(other)).sum();
    100.0 * all / (rows.len() * pair.retrained.len()) as f64
}

pub(super) fn metrics() -> Vec<Metric> {
    let of = |over: Over| Metric {
        key: format!("agreement_{}", over.word()),
        name: "agreement %".to_owned(),
        over,
        what: "Rows on which an unlearned model predicts what a retrained one predicts; percent, mean over all pairs.",
        good: "Good is what retrained models have of one another; more is not better.",
        better: Better::Higher,
        full: 100.0,
        needs: Needs::logits(over),
        decides: matches!(over, Over::Forgotten),
        value: |pair, over| pair.mean(|model| agreement(pair, model, over)),
    };
    Over::KINDS.map(of).to_vec()
}
