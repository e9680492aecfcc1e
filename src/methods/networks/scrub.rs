//! SCRUB: distillation from the original on the retained rows and away from it on the forgotten ones.

use muso_models::FeatureNet;
use muso_models::burn::tensor::Tensor;
use muso_models::burn::tensor::activation::softmax;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::error::Result;
use crate::features::Batches;
use crate::seeds::Purpose;
use crate::train::{Recipe, Rule, Session, Step, Watch, cross_entropy};

/// SCRUB: alternates epochs that ascend T²·KL(original ‖ student) on the forgotten rows with epochs that descend
/// γ·CE + α·T²·KL on the retained ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Scrub {
    /// Number of epochs, the first ones, that begin with an ascending pass over the forgotten rows.
    pub ascents: usize,
    /// Weight γ of the cross-entropy with the labels in the descending passes.
    pub label_weight: f64,
    /// Weight α of the divergence from the original network in the descending passes.
    pub teacher_weight: f64,
    /// Softmax temperature T of teacher and student in the divergence.
    pub temperature: f64,
    /// Batch size of the ascending passes.
    pub forget_batch: usize,
    /// Training recipe of the descending passes; the ascending ones differ in the batch size only.
    pub recipe: Recipe,
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            ascents: 3,
            label_weight: 1.0,
            teacher_weight: 0.5,
            temperature: 2.0,
            forget_batch: 128,
            recipe: short(Rule::Adam, 5, 1e-4, 128),
        }
    }
}

impl Settings for Scrub {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("temperature", self.temperature, 1e-3, 1e6)?;
        within("label-weight", self.label_weight, 0.0, 1e6)?;
        within("teacher-weight", self.teacher_weight, 0.0, 1e6)?;
        within("forget-batch", self.forget_batch as f64, 1.0, f64::INFINITY)?;
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Scrub {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let teacher = task.original.extractor();
        let targets = task.targets();
        let heat = self.temperature;
        // KL up to the teacher's own entropy, which the student cannot change.
        let divergence = |step: &Step<'_, N>, logits: Tensor<2>| {
            let answers = teacher.logits(step.input.clone());
            let wanted = softmax(answers / heat, 1).autodiff();
            cross_entropy(logits / heat, wanted) * (heat * heat)
        };
        let up = Recipe {
            batch: self.forget_batch,
            ..self.recipe.clone()
        };
        let mut away = Session::new(
            task.original.clone(),
            up,
            Purpose::ScrubAscentOrder.seed(task.seed),
        );
        let mut back = Session::new(
            task.original.clone(),
            self.recipe.clone(),
            Purpose::ScrubDescentOrder.seed(task.seed),
        );
        while !back.is_finished() {
            if back.epoch < self.ascents {
                let mut ascend = |step: &Step<'_, N>| -divergence(step, step.logits());
                // One optimiser for both, as published: its memory of the ascent keeps the descent from undoing it.
                away.network = back.network.clone();
                away.optimizer = back.optimizer.clone();
                away.advance(task.feed, task.forget, None, &mut ascend, None, &mut ())?;
                back.network = away.network.clone();
                back.optimizer = away.optimizer.clone();
            }
            let mut descend = |step: &Step<'_, N>| {
                let logits = step.logits();
                let wanted = targets.of(step.rows, &logits.device());
                cross_entropy(logits.clone(), wanted) * self.label_weight
                    + divergence(step, logits) * self.teacher_weight
            };
            back.advance(task.feed, task.retain, None, &mut descend, None, watch)?;
            watch.epoch(&back)?;
        }
        Ok(back.network)
    }
}
