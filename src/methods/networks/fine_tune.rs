//! Fine-tuning on the retained rows, in the hope that catastrophic forgetting removes the others.

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, descend, settings_of, short};
use crate::error::Result;
use crate::features::Batches;
use crate::train::{Recipe, Rule, Watch};

/// Trains the original network further on the retained rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FineTune {
    /// Training recipe for the retained rows.
    pub recipe: Recipe,
}

impl Default for FineTune {
    fn default() -> Self {
        Self {
            recipe: short(Rule::Sgd, 5, 0.02, 128),
        }
    }
}

impl Settings for FineTune {
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

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for FineTune {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let start = task.original.clone();
        descend(
            task,
            start,
            self.recipe.clone(),
            task.retain,
            &task.targets(),
            watch,
        )
    }
}
