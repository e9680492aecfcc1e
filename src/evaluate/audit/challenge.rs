//! The score of the NeurIPS 2023 unlearning challenge.
//!
//! For each forgotten row, ε is the largest of ln((1 − δ − FPR)/FNR) and ln((1 − δ − FNR)/FPR) over all rules with one or
//! two thresholds on the margin, in either direction, that tell unlearned models from retrained ones; δ = 10⁻⁵. A rule
//! that makes no mistake gives 50, one that makes none of one kind only is left out, as published. The row gets 2^−k
//! points, k = ⌊ε/0.5⌋ and at most 12; the quality is the mean over the rows, the score that times the ratios of RA and TA
//! to the retrained models'.

use super::{Better, Metric, Needs, Over, Pair, mean};

/// δ of (ε, δ)-unlearning.
const DELTA: f64 = 1e-5;
/// ε of a rule that makes no mistake.
const CAP: f64 = 50.0;
/// Width of a bucket of ε.
const WIDTH: f64 = 0.5;
/// The last bucket.
const LAST: i32 = 12;
/// Fewest models on each side: rates are multiples of 1/n.
const FEWEST: usize = 8;

/// Returns ε of one row.
pub fn epsilon(unlearned: &[f64], retrained: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = unlearned.iter().map(|&x| (x, true)).collect();
    all.extend(retrained.iter().map(|&x| (x, false)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    // How many of each group lie below each place where a threshold may stand: not between equal margins.
    let mut below = vec![(0.0, 0.0)];
    let (mut u, mut r) = (0.0, 0.0);
    for (i, &(x, is_unlearned)) in all.iter().enumerate() {
        if is_unlearned {
            u += 1.0;
        } else {
            r += 1.0;
        }
        if all.get(i + 1).is_none_or(|next| next.0 > x) {
            below.push((u, r));
        }
    }
    // ln is monotone, so that it can wait.
    let mut largest: f64 = 1.0;
    for (i, start) in below.iter().enumerate() {
        for end in &below[i + 1..] {
            let (hits, alarms) = ((end.0 - start.0) / u, (end.1 - start.1) / r);
            // The rule calls what is within unlearned, or what is outside.
            for (fpr, fnr) in [(alarms, 1.0 - hits), (1.0 - alarms, hits)] {
                let (fpr, fnr): (f64, f64) = (clean(fpr), clean(fnr));
                if fpr == 0.0 && fnr == 0.0 {
                    return CAP;
                }
                if fpr > 0.0 && fnr > 0.0 {
                    let ratio = ((1.0 - DELTA - fpr) / fnr).max((1.0 - DELTA - fnr) / fpr);
                    largest = largest.max(ratio);
                }
            }
        }
    }
    largest.ln().min(CAP)
}

/// 1 − k/n may miss zero by rounding.
fn clean(rate: f64) -> f64 {
    if rate.abs() < 1e-12 { 0.0 } else { rate }
}

/// Returns the points of one row: 2^−⌊ε/0.5⌋, at least 2⁻¹².
pub fn points(epsilon: f64) -> f64 {
    0.5_f64.powi(((epsilon / WIDTH).floor() as i32).min(LAST))
}

fn quality(pair: &Pair<'_>, over: Over) -> f64 {
    mean(&pair.each_row(over, |u, r| points(epsilon(u, r))))
}

fn score(pair: &Pair<'_>, over: Over) -> f64 {
    let ratio = |over: Over| {
        let accuracy = |model: &&super::Model| pair.bench.accuracy(over, model);
        let of = |models: &[&super::Model]| mean(&models.iter().map(accuracy).collect::<Vec<_>>());
        of(&pair.judged) / of(&pair.retrained)
    };
    quality(pair, over) * ratio(Over::Retained) * ratio(Over::Test)
}

pub(super) fn metrics() -> Vec<Metric> {
    const GOOD: &str = "Good is what held-out retrained models have; 1 is perfect, and out of reach with few models.";
    let quality = Metric {
        key: "challenge_quality".to_owned(),
        name: "NeurIPS 2023, quality".to_owned(),
        over: Over::Forgotten,
        what: "Forgetting quality of the NeurIPS 2023 challenge: points by the best rule on each row that tells unlearned \
            models from retrained ones, mean over the rows.",
        good: GOOD,
        better: Better::Higher,
        full: 1.0,
        needs: Needs::models(FEWEST),
        decides: true,
        value: quality,
    };
    let score = Metric {
        key: "challenge_score".to_owned(),
        name: "NeurIPS 2023, score".to_owned(),
        what: "The same times RA and TA over those of the retrained models: the score of the challenge.",
        needs: Needs {
            logits: true,
            retained: true,
            test: true,
            ..Needs::models(FEWEST)
        },
        decides: false,
        value: score,
        ..quality
    };
    vec![quality, score]
}
