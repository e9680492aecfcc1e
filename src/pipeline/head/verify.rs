//! The second pass: the new head against one solved from the retained rows alone.

use super::input::Input;
use super::plan::Plan;
use super::relative_distance;
use crate::data::rows::Which;
use crate::engine::{Engine, Matrix, SumsSpec};
use crate::error::Result;
use crate::gram::{Gram, GramBuilder};
use crate::outcome::{Accuracy, Verification};
use crate::progress::Progress;
use crate::scheduler::Scheduler;
use crate::solve::{fit, fit_free_bias};

/// Findings of the second pass.
pub(super) struct Verified {
    pub(super) distances: Verification,
    pub(super) accuracy: Option<Accuracy>,
}

/// Goes over the rows again.
pub(super) fn verify<E: Engine>(
    engine: &E,
    input: &Input<'_>,
    plan: &Plan,
    weights: &Matrix,
    scheduler: &Scheduler,
    progress: &mut dyn Progress,
) -> Result<Verified> {
    let spec = SumsSpec {
        targets: input.classes(),
        ..plan.spec
    };
    let source = input.rows()?;
    let mut builder = GramBuilder::new(engine, plan.route, spec)?;
    let mut gradient = Matrix::zeros(weights.rows(), weights.cols());
    let mut tally = Tally::default();
    source.stream(scheduler, "verify", Which::All, progress, |batch| {
        let kept = source.retained_in(batch);
        // Backwards: in the same order the sums would agree to the last bit by construction, and say nothing.
        let backwards: Vec<usize> = kept.iter().rev().copied().collect();
        batch.with_targets(spec, &backwards, |rows, targets| {
            builder.push(rows, targets)?;
            let predicted = engine.project(rows, weights)?;
            let wanted = targets.to_matrix(rows.rows(), spec.targets);
            let missed = predicted.zip(&wanted, |p, y| p - y);
            let pulled = engine.pull_back(rows, &missed, spec.bias)?;
            gradient = gradient.zip(&pulled, |a, b| a + b);
            Ok(())
        })?;
        if source.has_classes() {
            let before = engine.project_argmax(batch.rows, &input.trained)?;
            let after = engine.project_argmax(batch.rows, weights)?;
            tally.add(&kept, batch.classes(), &before, &after);
        }
        Ok(())
    })?;
    let ridge = plan.ridge;
    let direct = match builder.finish()? {
        Gram::Primal(sums) if plan.free_bias => {
            let centred = sums.centred(engine.roundings(sums.rows));
            fit_free_bias(engine, &centred, &input.init, ridge)?
        }
        gram => fit(engine, &gram, &input.init, ridge)?,
    };
    let direct = direct.weights;
    let mut pull = weights.zip(&input.init, |w, i| ridge * (w - i));
    if plan.free_bias {
        pull.row_mut(weights.rows() - 1).fill(0.0);
    }
    let gradient = gradient.zip(&pull, |g, p| g + p).norm();
    Ok(Verified {
        distances: Verification {
            distance_relative: relative_distance(weights, &direct),
            gradient_norm: gradient,
            // No λ holds a free bias.
            distance_bound: (ridge > 0.0 && !plan.free_bias).then(|| gradient / ridge),
        },
        accuracy: tally.percentages(),
    })
}

/// Right answers before and after, retained and forgotten.
#[derive(Default)]
struct Tally {
    /// Index 0: retained, 1: forgotten.
    rows: [u64; 2],
    before: [u64; 2],
    after: [u64; 2],
}

impl Tally {
    fn add(&mut self, kept: &[usize], classes: &[i64], before: &[u32], after: &[u32]) {
        let mut side = vec![1; classes.len()];
        for &i in kept {
            side[i] = 0;
        }
        for (i, &class) in classes.iter().enumerate() {
            self.rows[side[i]] += 1;
            self.before[side[i]] += u64::from(i64::from(before[i]) == class);
            self.after[side[i]] += u64::from(i64::from(after[i]) == class);
        }
    }

    fn percentages(&self) -> Option<Accuracy> {
        let percent =
            |right: [u64; 2], side: usize| 100.0 * right[side] as f64 / self.rows[side] as f64;
        (self.rows[0] > 0 && self.rows[1] > 0).then(|| Accuracy {
            retained_before: percent(self.before, 0),
            retained_after: percent(self.after, 0),
            forgotten_before: percent(self.before, 1),
            forgotten_after: percent(self.after, 1),
        })
    }
}
