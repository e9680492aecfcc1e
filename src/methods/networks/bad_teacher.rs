//! BadTeacher: distillation from an untrained teacher on the forgotten rows and from the original on retained ones.

use muso_models::FeatureNet;
use muso_models::burn::tensor::Tensor;
use muso_models::burn::tensor::activation::softmax;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::data::images::shuffled;
use crate::error::Result;
use crate::features::Batches;
use crate::seeds::Purpose;
use crate::train::{Recipe, Rule, Session, Step, Watch, cross_entropy};

/// Distils two teachers into the network: a randomly initialised one on the forgotten rows, the original on a part of
/// the retained ones. Where a task cannot make an untrained network, its initial one is the first teacher. The loss is
/// averaged over rows ("batchmean"); the first publication also divides by C.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct BadTeacher {
    /// Share of the retained rows to train on, drawn once.
    pub retain_share: f64,
    /// Softmax temperature T, by which the logits of teachers and student are divided.
    pub temperature: f64,
    /// Training recipe of the distillation.
    pub recipe: Recipe,
}

impl Default for BadTeacher {
    fn default() -> Self {
        Self {
            retain_share: 0.3,
            temperature: 1.0,
            recipe: short(Rule::Adam, 1, 1e-4, 256),
        }
    }
}

impl Settings for BadTeacher {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("retain-share", self.retain_share, 0.0, 1.0)?;
        within("temperature", self.temperature, 1e-3, 1e6)?;
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for BadTeacher {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let feed = task.feed;
        let untrained = match &task.untrained {
            Some(make) => make(Purpose::BadTeacherWeights.seed(task.seed))?.extractor(),
            None => task.initial.extractor(),
        };
        let original = task.original.extractor();
        let count = (self.retain_share * task.retain.len() as f64).ceil() as usize;
        let mut rows = shuffled(task.retain, Purpose::BadTeacherRows.seed(task.seed));
        rows.truncate(count);
        rows.extend(task.forget);
        rows.sort_unstable();
        let mut forgotten = vec![false; feed.data.labels().len()];
        for &row in task.forget {
            forgotten[row] = true;
        }
        let mut loss = |step: &Step<'_, N>| {
            let bad = untrained.logits(step.input.clone());
            let good = original.logits(step.input.clone());
            let marks: Vec<f32> = step
                .rows
                .iter()
                .map(|&row| f32::from(u8::from(forgotten[row])))
                .collect();
            let forget = Tensor::<1>::from_floats(marks.as_slice(), &feed.device).reshape([-1, 1]);
            let teacher = bad * forget.clone() + good * (forget * -1.0 + 1.0);
            let wanted = softmax(teacher / self.temperature, 1);
            cross_entropy(step.logits() / self.temperature, wanted.autodiff())
        };
        let seed = Purpose::BadTeacherOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        session.run(feed, &rows, &mut loss, watch)?;
        Ok(session.network)
    }
}
