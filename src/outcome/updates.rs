//! Label updates of a method: the vital signs of its projector, update by update, and what they warn of.
//!
//! A projector that is nearly the identity gives labels that the trained network has given already, and an update that
//! changes no label teaches nothing: either way nothing can be forgotten, whatever the accuracies say.
//!
//! ```
//! use muso::labels::LabelUpdate;
//! use muso::outcome::MethodUpdates;
//!
//! let update = LabelUpdate { trace_ratio: Some(0.9999), rounding: Some(1e-3), changed: 0.0 };
//! let updates = MethodUpdates { method: "MUSO".into(), updates: vec![update] };
//! let warnings = updates.warnings();
//! assert!(warnings[0].starts_with("MUSO: tr(Π)/D is 0.99990") && warnings[1].contains("no label changed"));
//! ```

use serde::Serialize;

use crate::labels::LabelUpdate;

/// tr(Π)/D above which the labels are what the trained model says already.
const FULL: f64 = 0.999;
/// tr(Π)/D above which Π is no projector, by more than rounding.
const BEYOND: f64 = 1.01;

/// Label updates of one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MethodUpdates {
    /// Name of the method in tables.
    pub method: String,
    /// The updates of a run in order; means over the seeds where there are several.
    pub updates: Vec<LabelUpdate>,
}

impl MethodUpdates {
    /// Takes the means over several runs, update by update. What is not finite in a run is left out.
    pub fn mean(method: &str, runs: &[&[LabelUpdate]]) -> Self {
        let longest = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let at = |k: usize| {
            let mean = |value: &dyn Fn(&LabelUpdate) -> Option<f64>| {
                let known = runs.iter().filter_map(|run| value(run.get(k)?));
                let known: Vec<f64> = known.filter(|x| x.is_finite()).collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            };
            LabelUpdate {
                trace_ratio: mean(&|update| update.trace_ratio),
                rounding: mean(&|update| update.rounding),
                changed: mean(&|update| Some(update.changed)).unwrap_or(0.0),
            }
        };
        Self {
            method: method.to_owned(),
            updates: (0..longest).map(at).collect(),
        }
    }

    /// Returns what the vital signs warn of, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let method = &self.method;
        let traces = self.updates.iter().filter_map(|update| update.trace_ratio);
        let highest = traces.fold(f64::NEG_INFINITY, f64::max);
        if highest > BEYOND {
            out.push(format!(
                "{method}: tr(Π)/D is {highest:.3e}; above 1, Π is no projector, and the labels are not those of the formula"
            ));
        } else if highest > FULL {
            out.push(format!(
                "{method}: tr(Π)/D is {highest:.5}; above {FULL}, the labels are what the trained network says already, and \
                 nothing can be forgotten"
            ));
        }
        if !self.updates.is_empty() && self.updates.iter().all(|update| update.changed == 0.0) {
            let updates = match self.updates.len() {
                1 => "the only update".to_owned(),
                n => format!("{n} updates"),
            };
            out.push(format!(
                "{method}: no label changed in {updates}, so nothing can be forgotten"
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(trace: f64, changed: f64) -> LabelUpdate {
        LabelUpdate {
            trace_ratio: Some(trace),
            rounding: Some(0.5),
            changed,
        }
    }

    fn warnings(updates: &[LabelUpdate]) -> Vec<String> {
        MethodUpdates::mean("M", &[updates]).warnings()
    }

    #[test]
    fn signs_warn_where_nothing_can_be_forgotten() {
        assert!(warnings(&[update(0.7, 0.1), update(0.8, 0.0)]).is_empty());
        assert!(warnings(&[]).is_empty());
        let said = warnings(&[update(0.7, 0.1), update(0.9991, 0.1)]);
        assert!(said.len() == 1 && said[0].contains("0.99910"), "{said:?}");
        let said = warnings(&[update(0.7, 0.0), update(0.7, 0.0)]);
        assert!(said.len() == 1 && said[0].contains("2 updates"), "{said:?}");
        let said = warnings(&[update(9.1e5, 0.4)]);
        assert!(
            said.len() == 1 && said[0].contains("no projector"),
            "{said:?}"
        );
        assert!(
            warnings(&[LabelUpdate {
                changed: 0.2,
                ..LabelUpdate::default()
            }])
            .is_empty()
        );
    }

    #[test]
    fn means_are_over_the_runs_that_have_the_update() {
        let (long, short) = (
            [update(0.5, 0.2), update(0.7, 0.4)],
            [update(f64::NAN, 0.0)],
        );
        let mean = MethodUpdates::mean("M", &[&long, &short]);
        assert_eq!(mean.updates.len(), 2);
        assert_eq!(mean.updates[0].trace_ratio, Some(0.5));
        assert_eq!(mean.updates[0].changed, 0.1);
        assert_eq!(mean.updates[1], update(0.7, 0.4));
    }
}
