//! U-LiRA (Hayes et al., 2024): an attack on each row by the likelihood ratio of two normals, one fitted to the margins of
//! models unlearned of the row and one to those of models that were never trained on it.
//!
//! The attack is judged on models that it was not fitted to: pairs of an unlearned and a retrained model are left out in
//! turn. Attacks that fit one rule to all rows overestimate how well a row is protected.

use super::margins::Normal;
use super::{Better, Metric, Needs, Over, mean};

/// Fewest models on each side: three are left to fit a normal to.
const FEWEST: usize = 4;

/// Returns the share of models of one row that the attack puts into the right group, from 0 to 1; ties count as half.
///
/// Pair k is the k-th of both groups; the longer group's rest is fitted to and never asked about.
pub fn accuracy(unlearned: &[f64], retrained: &[f64]) -> f64 {
    let pairs = unlearned.len().min(retrained.len());
    let without = |values: &[f64], k: usize| -> Vec<f64> {
        let others = values.iter().enumerate().filter(|(i, _)| *i != k);
        others.map(|(_, x)| *x).collect()
    };
    let mut right = 0.0;
    for k in 0..pairs {
        let (u, r) = (
            Normal::fit(&without(unlearned, k)),
            Normal::fit(&without(retrained, k)),
        );
        let ratio = |x: f64| u.log_density(x) - r.log_density(x);
        let above = |x: f64| match ratio(x) {
            ratio if ratio > 0.0 => 1.0,
            ratio if ratio < 0.0 => 0.0,
            _ => 0.5,
        };
        right += above(unlearned[k]) + (1.0 - above(retrained[k]));
    }
    right / (2 * pairs) as f64
}

pub(super) fn metrics() -> Vec<Metric> {
    vec![Metric {
        key: "ulira".to_owned(),
        name: "U-LiRA, accuracy %".to_owned(),
        over: Over::Forgotten,
        what: "How often a likelihood ratio fitted row by row tells an unlearned model that it was not fitted to from a \
            retrained one; percent, mean over the rows.",
        good: "Good is 50, a coin; 100 is certainty.",
        better: Better::Lower,
        full: 100.0,
        needs: Needs::models(FEWEST),
        decides: true,
        value: |pair, over| 100.0 * mean(&pair.each_row(over, accuracy)),
    }]
}
