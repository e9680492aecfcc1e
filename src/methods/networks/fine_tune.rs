//! Going on without the forgotten rows, in the hope that they fade.

use muso_models::Network;
use serde::{Deserialize, Serialize};

use super::{Method, Task, descend, settings_of, short};
use crate::error::Result;
use crate::train::{Recipe, Rule, Watch};

/// Trains the original network further on the retained rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct FineTune {
    /// How.
    pub recipe: Recipe,
}

impl Default for FineTune {
    fn default() -> Self {
        Self {
            recipe: short(Rule::Sgd, 5, 0.02, 128),
        }
    }
}

impl Method for FineTune {
    fn name(&self) -> &'static str {
        "Fine-tune"
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        self.recipe.check()
    }

    fn unlearn(&self, task: &Task<'_>, watch: &mut dyn Watch) -> Result<Network> {
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
