//! How far a model's margins lie from the retrained models' mean, in standard deviations of theirs: what KLOM asks, for
//! those who have a single unlearned model and a few retrained ones.

use super::margins::Normal;
use super::{Better, Metric, Needs, Over, Pair, mean};

/// Least standard deviation of one row's margins, as a part of what it is over the rows together. A few retrained models
/// agree by chance on some rows, which would outweigh all others.
const LEAST_SHARE: f64 = 0.2;
/// Fewest retrained models to take a standard deviation over.
const FEWEST: usize = 3;

/// Returns the root mean square over rows and models of (m − mean)/std, with mean and std of the retrained models' margins.
pub fn distance(pair: &Pair<'_>, over: Over) -> f64 {
    let fits = pair.each_row(over, |_, retrained| Normal::fit(retrained));
    let typical = mean(&fits.iter().map(|fit| fit.std * fit.std).collect::<Vec<_>>()).sqrt();
    let rows = pair.bench.over(over).iter().zip(&fits);
    let squares: Vec<f64> = rows
        .flat_map(|(&row, fit)| {
            let std = fit.std.max(LEAST_SHARE * typical);
            let off = move |m: f64| ((m - fit.mean) / std).powi(2);
            pair.judged.iter().map(move |model| off(model.margins[row]))
        })
        .collect();
    mean(&squares).sqrt()
}

pub(super) fn metrics() -> Vec<Metric> {
    let of = |over: Over| Metric {
        key: format!("distance_{}", over.word()),
        name: "margin distance".to_owned(),
        over,
        what: "Distance of each margin from the retrained models' mean, in their standard deviations; root mean square over \
            rows and models.",
        good: "Good is what a held-out retrained model has, a little above 1.",
        better: Better::Lower,
        full: 0.0,
        needs: Needs {
            judged: 1,
            ..Needs::margins(FEWEST, over)
        },
        decides: true,
        value: distance,
    };
    Over::KINDS.map(of).to_vec()
}
