//! ToW, the tug of war (Zhao et al., 2024): Π (1 − |Δ|) over RA, TA and FA, each Δ to the retrained models' mean.

use super::{Better, Metric, Model, Needs, Over, Pair, mean};

/// Returns ToW of one model, from 0 to 1.
pub fn tug_of_war(pair: &Pair<'_>, model: &Model) -> f64 {
    let factor = |over: Over| {
        let accuracy = |model: &Model| pair.bench.accuracy(over, model) / 100.0;
        let retrained: Vec<f64> = pair.retrained.iter().map(|model| accuracy(model)).collect();
        1.0 - (accuracy(model) - mean(&retrained)).abs()
    };
    Over::KINDS.into_iter().map(factor).product()
}

pub(super) fn metrics() -> Vec<Metric> {
    vec![Metric {
        key: "tow".to_owned(),
        name: "ToW".to_owned(),
        over: Over::All,
        what: "Tug of war: the product of 1 − |Δ| over the accuracies on retained, test and forgotten rows, Δ to the \
            retrained models' mean.",
        good: "Good is what held-out retrained models have, just below 1.",
        better: Better::Higher,
        full: 1.0,
        needs: Needs {
            logits: true,
            retained: true,
            test: true,
            ..Needs::models(1)
        },
        decides: true,
        value: |pair, _| pair.mean(|model| tug_of_war(pair, model)),
    }]
}
