//! Selective synaptic dampening (SSD) by the diagonal of the Fisher information, without training.

use muso_models::burn::tensor::Tensor;
use muso_models::{FeatureNet, Tape, params};
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, within};
use crate::error::{Error, Result};
use crate::features::{Batches, Order};
use crate::train::{Step, Watch, differentiate};

/// Estimates the importance of each parameter as its mean squared gradient over batches, once for the forgotten rows
/// (F_u) and once for all (F_D); where F_u > α·F_D, multiplies the parameter by min(λ·F_D/F_u, 1).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Ssd {
    /// Threshold α on F_u/F_D, above which a parameter is dampened.
    pub selection: f64,
    /// Dampening constant λ: the larger it is, the less a selected parameter shrinks.
    pub dampening: f64,
    /// Rows per gradient that is squared.
    pub batch: usize,
}

impl Default for Ssd {
    fn default() -> Self {
        Self {
            selection: 10.0,
            dampening: 1.0,
            batch: 128,
        }
    }
}

impl Ssd {
    /// Returns the mean squared gradient of every parameter over the batches of `rows`.
    fn importance<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        rows: &[usize],
        watch: &mut dyn Watch<N>,
    ) -> Result<Vec<Tensor<1>>> {
        let targets = task.targets();
        let tape = Tape::default();
        let mut sums: Vec<Tensor<1>> = Vec::new();
        let mut batches: u64 = 0;
        let mut done = 0;
        let order = Order::new(rows.to_vec(), self.batch);
        for batch in task.feed.batches(order)? {
            let (batch, _, input) = task.feed.upload(batch?, batches)?;
            done += batch.len();
            let mut loss = |step: &Step<'_, N>| targets.loss(step);
            let found = differentiate(task.original, input, &batch, &mut loss, false, &tape);
            let squares = found.gradients.into_iter().map(|g| g.clone() * g);
            sums = if sums.is_empty() {
                squares.collect()
            } else {
                sums.into_iter()
                    .zip(squares)
                    .map(|(sum, s)| sum + s)
                    .collect()
            };
            batches += 1;
            if !watch.rows(done as u64, rows.len() as u64) {
                return Err(Error::Interrupted);
            }
        }
        Ok(sums.into_iter().map(|sum| sum / batches as f64).collect())
    }
}

impl Settings for Ssd {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("selection", self.selection, 0.0, f64::MAX)?;
        within("dampening", self.dampening, 0.0, f64::MAX)?;
        within("batch", self.batch as f64, 1.0, f64::INFINITY)
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Ssd {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let forgotten = self.importance(task, task.forget, watch)?;
        let all = self.importance(task, &task.all_rows(), watch)?;
        let weights = params::weights(task.original)
            .into_iter()
            .zip(forgotten.into_iter().zip(all))
            .map(|(weight, (forgotten, all))| {
                let chosen = forgotten.clone().greater(all.clone() * self.selection);
                // A chosen weight has F_u > 0, so the quotient is finite where it is used.
                let factor =
                    (all * self.dampening / forgotten.clamp_min(f32::MIN_POSITIVE)).clamp_max(1.0);
                weight.clone().mask_where(chosen, weight * factor)
            })
            .collect();
        Ok(params::with_weights(task.original.clone(), weights))
    }
}
