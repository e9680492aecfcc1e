//! SalUn: random labels for the forgotten rows, with a saliency mask on the weights that may move.

use muso_models::burn::tensor::{Tensor, TensorData};
use muso_models::{FeatureNet, Tape, params};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::error::Result;
use crate::features::{Batches, Order, host};
use crate::seeds::Purpose;
use crate::train::{Optimizer, Recipe, Rule, Session, Watch, differentiate};

/// Finds the weights with the largest gradient over the forgotten rows, then trains only those on everything, the
/// forgotten rows with classes that are drawn anew each epoch, uniformly over all. The other weights end exactly where
/// they began.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Salun {
    /// Share of all weights that may move, those with the largest gradient first.
    pub share: f64,
    /// Training recipe for all rows, with the forgotten ones relabelled.
    pub recipe: Recipe,
}

impl Default for Salun {
    fn default() -> Self {
        Self {
            share: 0.5,
            recipe: Recipe {
                weight_decay: 5e-4,
                ..short(Rule::Sgd, 10, 0.013, 256)
            },
        }
    }
}

impl Salun {
    /// Returns the saliency mask in the shape of the network's weights: 1 for those that may move, 0 for the others.
    fn mask<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
    ) -> Result<Vec<Tensor<1>>> {
        let targets = task.targets();
        let tape = Tape::default();
        let mut sums: Vec<Vec<f32>> = Vec::new();
        let rows = task.forget.to_vec();
        let batches = task.feed.batches(Order::new(rows, self.recipe.batch))?;
        for (number, batch) in (0..).zip(batches) {
            let (rows, _, input) = task.feed.upload(batch?, number)?;
            let mut loss = |step: &crate::train::Step<'_, N>| targets.loss(step);
            let found = differentiate(task.original, input, &rows, &mut loss, false, &tape);
            let found: Vec<Vec<f32>> = found.gradients.into_iter().map(host).collect();
            if sums.is_empty() {
                sums = found;
                continue;
            }
            for (sum, add) in sums.iter_mut().flatten().zip(found.iter().flatten()) {
                *sum += add;
            }
        }
        let mut sizes: Vec<f32> = sums.iter().flatten().map(|g| g.abs()).collect();
        let frozen =
            sizes.len() - ((self.share * sizes.len() as f64).round() as usize).min(sizes.len());
        let threshold = if frozen == 0 {
            0.0
        } else {
            let (_, edge, _) = sizes.select_nth_unstable_by(frozen - 1, f32::total_cmp);
            // Strictly above the largest frozen one, so that ties (all the zeros of dead units) stay frozen.
            f32::from_bits(edge.to_bits() + 1)
        };
        Ok(sums
            .iter()
            .map(|vector| {
                let mask: Vec<f32> = vector
                    .iter()
                    .map(|g| f32::from(u8::from(g.abs() >= threshold)))
                    .collect();
                let length = mask.len();
                Tensor::from_data(TensorData::new(mask, [length]), &task.feed.device)
            })
            .collect())
    }
}

impl Settings for Salun {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("share", self.share, 0.0, 1.0)?;
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Salun {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let mask = self.mask(task)?;
        let anchor = params::weights(task.original);
        let mut random = ChaCha8Rng::seed_from_u64(Purpose::SalunClasses.seed(task.seed));
        let mut targets = task.targets();
        let rows = task.all_rows();
        let seed = Purpose::SalunOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        while !session.is_finished() {
            for &row in task.forget {
                targets.set_class(row, random.random_range(0..task.classes as i64));
            }
            let mut loss = |step: &crate::train::Step<'_, N>| targets.loss(step);
            let mut hold = |optimizer: &mut Optimizer, weights: Vec<Tensor<1>>| {
                optimizer.keep(weights, &anchor, &mask)
            };
            session.advance(task.feed, &rows, None, &mut loss, Some(&mut hold), watch)?;
            watch.epoch(&session)?;
        }
        Ok(session.network)
    }
}
