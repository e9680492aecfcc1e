//! Gradient ascent on the loss of the forgotten rows.

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short};
use crate::error::Result;
use crate::features::Batches;
use crate::seeds::Purpose;
use crate::train::{Recipe, Rule, Session, Watch};

/// Ascends the cross-entropy of the forgotten rows. Nothing protects the retained rows but a small
/// learning rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Ascent {
    /// Training recipe of the ascent; an epoch is a pass over the forgotten rows.
    pub recipe: Recipe,
}

impl Default for Ascent {
    fn default() -> Self {
        Self {
            recipe: short(Rule::Sgd, 5, 1e-4, 128),
        }
    }
}

impl Settings for Ascent {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Ascent {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let targets = task.targets();
        let seed = Purpose::AscentOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        session.run(
            task.feed,
            task.forget,
            &mut |step| -targets.loss(step),
            watch,
        )?;
        Ok(session.network)
    }
}
