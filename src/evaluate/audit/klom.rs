//! KLOM (Attribute-to-Delete, ICLR 2025): the KL divergence of a row's margins over unlearned models to those over
//! retrained ones, row by row.
//!
//! [`binned`] is the published form: margins are held to ±100, 20 equal bins span both groups, and a bin that no retrained
//! model is in counts as 1e-5 of them. Its bins are half open, so that the largest margin of the two groups is in none,
//! here as there. Built for about a hundred models on each side, it has a floor of 2 to 3 with 16 to 32. [`smooth`] takes
//! both groups as normals, and has a floor of 0.1 to 0.2 there: the verdict rests on it.

use super::margins::{Normal, percentile};
use super::{Better, Metric, Needs, Over, Pair, mean};

/// Bins over the range of both groups.
const BINS: usize = 20;
/// Margins beyond this are held to it.
const FARTHEST: f64 = 100.0;
/// What a bin without a retrained model counts as.
const LEAST: f64 = 1e-5;
/// Fewest models on each side: the variance of a normal fitted to fewer has no mean of its inverse.
const FEWEST: usize = 4;

/// Returns the binned divergence KL(unlearned ‖ retrained) of one row, as published.
pub fn binned(unlearned: &[f64], retrained: &[f64]) -> f64 {
    let held = |x: &f64| x.clamp(-FARTHEST, FARTHEST);
    let all = || unlearned.iter().chain(retrained).map(held);
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(f64::NEG_INFINITY, f64::max);
    let high = if low >= high { low + 1.0 } else { high };
    let edge = |k: usize| match k {
        BINS => high,
        _ => low + k as f64 * ((high - low) / BINS as f64),
    };
    let shares = |values: &[f64]| {
        let mut counts = [0.0; BINS];
        for x in values.iter().map(held) {
            // From the bin that it should be in by division, which may round it over an edge.
            let mut k = ((x - low) / (high - low) * BINS as f64) as usize;
            while k > 0 && x < edge(k.min(BINS)) {
                k -= 1;
            }
            while k < BINS && x >= edge(k + 1) {
                k += 1;
            }
            if k < BINS {
                counts[k] += 1.0;
            }
        }
        let total: f64 = counts.iter().sum();
        if total == 0.0 {
            // All of them are the largest margin.
            counts[BINS - 1] = 1.0;
            return counts;
        }
        counts.map(|count| count / total)
    };
    let (p, q) = (shares(unlearned), shares(retrained));
    let held_up = |p: f64, q: f64| if p > 0.0 { q.max(LEAST) } else { q };
    let total: f64 = p.iter().zip(&q).map(|(&p, &q)| held_up(p, q)).sum();
    let terms = p.iter().zip(&q).filter(|(p, _)| **p > 0.0);
    terms
        .map(|(&p, &q)| p * (p / (held_up(p, q) / total)).ln())
        .sum()
}

/// Returns the divergence KL(unlearned ‖ retrained) of one row, both taken as normals.
pub fn smooth(unlearned: &[f64], retrained: &[f64]) -> f64 {
    Normal::fit(unlearned).divergence(&Normal::fit(retrained))
}

pub(super) fn metrics() -> Vec<Metric> {
    const SMOOTH: &str = "KL divergence, row by row, of the margins of unlearned models to those of retrained ones, both \
        taken as normals; the mean over the rows.";
    const SMOOTH_HIGH: &str = "The same; the 95th percentile of the rows.";
    const BINNED: &str = "KL divergence, row by row, of the margins of unlearned models to those of retrained ones in 20 \
        bins, as published (Attribute-to-Delete); the mean over the rows.";
    const BINNED_HIGH: &str =
        "The same; the 95th percentile of the rows, which is what papers report.";
    type Form = (
        &'static str,
        &'static str,
        &'static str,
        bool,
        fn(&Pair<'_>, Over) -> f64,
    );
    let forms: [Form; 4] = [
        ("klom", "KLOM, smooth", SMOOTH, true, |pair, over| {
            mean(&pair.each_row(over, smooth))
        }),
        (
            "klom_p95",
            "KLOM, smooth, 95 %",
            SMOOTH_HIGH,
            false,
            |pair, over| percentile(&pair.each_row(over, smooth), 95.0),
        ),
        (
            "klom_binned",
            "KLOM, 20 bins",
            BINNED,
            false,
            |pair, over| mean(&pair.each_row(over, binned)),
        ),
        (
            "klom_binned_p95",
            "KLOM, 20 bins, 95 %",
            BINNED_HIGH,
            false,
            |pair, over| percentile(&pair.each_row(over, binned), 95.0),
        ),
    ];
    let of = |(key, name, what, decides, value): Form| {
        Over::KINDS.map(|over| Metric {
            key: format!("{key}_{}", over.word()),
            name: name.to_owned(),
            over,
            what,
            good: "Good is what held-out retrained models have; 0 is out of reach, the fewer models the farther.",
            better: Better::Lower,
            full: 0.0,
            needs: Needs::margins(FEWEST, over),
            decides,
            value,
        })
    };
    forms.into_iter().flat_map(of).collect()
}
