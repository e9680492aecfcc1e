//! Metrics of models, and their distance (AvgGap, agreement) to models that never saw the forgotten rows.
//!
//! After a run has its models, `score` measures them on the [`Workbench`] for the report of a single run; comparisons
//! keep the [`Measured`] of many seeds apart. [`Measured::distance`] is the one place where two models are compared.

use std::collections::BTreeMap;

use muso_models::Network;

use super::cases::Case;
use super::workbench::Workbench;
use crate::error::Result;
use crate::evaluate::{Mia, Outputs, Scores, avg_gap};
use crate::features::Feed;
use crate::outcome::Scored;
use crate::progress::Progress;

/// Metrics of one network, and the outputs that its distance to others is computed from.
#[derive(Clone, Debug)]
pub struct Measured {
    /// RA, TA, FA and MIA, in percent.
    pub scores: Scores,
    /// Logits of the forgotten training rows.
    pub forgotten: Outputs,
    /// Softmax entropies of the test rows behind TA.
    pub test_entropies: Vec<f64>,
}

/// Distance of a model to reference models.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// Mean absolute difference of RA, TA, FA and MIA to the references' means, in points: AvgGap of one seed.
    pub gap: f64,
    /// Percentage of the forgotten rows on which the model predicts the class of a reference, averaged over references.
    pub agreement: f64,
}

impl Measured {
    /// Returns the distance of this model to the mean of some references.
    pub fn distance(&self, references: &[&Self]) -> Distance {
        let mean = |value: &dyn Fn(&Self) -> f64| {
            references.iter().map(|one| value(one)).sum::<f64>() / references.len() as f64
        };
        let truth = Scores {
            ra: mean(&|one| one.scores.ra),
            ta: mean(&|one| one.scores.ta),
            fa: mean(&|one| one.scores.fa),
            mia: mean(&|one| one.scores.mia),
        };
        // What a diverged method says of a row is not known.
        let diverged = self.scores.ra.is_nan();
        Distance {
            gap: avg_gap(&self.scores, &truth),
            agreement: if diverged {
                f64::NAN
            } else {
                mean(&|one| self.forgotten.agreement(&one.forgotten))
            },
        }
    }
}

/// A model to be measured.
pub(super) struct Candidate {
    /// Name of the model in tables.
    pub(super) name: String,
    pub(super) network: Network,
    /// Seconds that the model took to make, where they are known.
    pub(super) seconds: Option<f64>,
}

/// Measures models; with `compared`, the first is the reference of the others. Where no rows were forgotten there is no
/// case, and the accuracies on all rows are taken.
pub(super) fn score(
    workbench: &Workbench,
    case: Option<&Case>,
    mia: Mia,
    models: Vec<Candidate>,
    compared: bool,
    progress: &mut dyn Progress,
) -> Result<Vec<Scored>> {
    let mut reference: Option<Measured> = None;
    let mut out = Vec::new();
    for model in models {
        let network = &model.network;
        let mut scored = Scored {
            name: model.name,
            ra: f64::NAN,
            ta: f64::NAN,
            fa: None,
            mia: None,
            avg_gap: None,
            agreement: None,
            seconds: model.seconds,
        };
        match case {
            Some(case) => {
                let measured = workbench.measure(network, &case.judged, mia, progress)?;
                let scores = measured.scores;
                (scored.ra, scored.ta) = (scores.ra, scores.ta);
                (scored.fa, scored.mia) = (Some(scores.fa), Some(scores.mia));
                match &reference {
                    Some(first) => {
                        let distance = measured.distance(&[first]);
                        scored.avg_gap = Some(distance.gap);
                        scored.agreement = Some(distance.agreement);
                    }
                    None if compared => reference = Some(measured),
                    None => {}
                }
            }
            None => {
                let mut accuracy = |feed: &Feed| {
                    let rows: Vec<usize> = (0..feed.data.set.len()).collect();
                    workbench.accuracy(feed, network, &rows, progress)
                };
                scored.ra = accuracy(&workbench.train)?;
                scored.ta = accuracy(&workbench.test)?;
            }
        }
        out.push(scored);
    }
    Ok(out)
}

/// Returns the phrases that say over which rows each metric of [`score`] is.
pub(super) fn over(workbench: &Workbench, case: Option<&Case>) -> BTreeMap<&'static str, String> {
    match case {
        Some(case) => BTreeMap::from([
            ("ra", case.judged.ra.phrase()),
            ("ta", case.judged.ta.phrase()),
            ("fa", case.judged.fa.phrase()),
            ("mia", case.judged.forgotten.phrase()),
        ]),
        None => BTreeMap::from([
            (
                "ra",
                format!("over all {} training rows", workbench.train.data.set.len()),
            ),
            (
                "ta",
                format!("over all {} test rows", workbench.test.data.set.len()),
            ),
        ]),
    }
}
