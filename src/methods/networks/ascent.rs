//! Training in reverse on the forgotten rows.

use muso_models::Network;
use serde::{Deserialize, Serialize};

use super::{Method, Task, settings_of, short};
use crate::error::Result;
use crate::train::{Recipe, Rule, Session, Watch, stream};

/// Ascends the cross-entropy of the forgotten rows. Nothing holds the rest in place but a small rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Ascent {
    /// How.
    pub recipe: Recipe,
}

impl Default for Ascent {
    fn default() -> Self {
        Self {
            recipe: short(Rule::Sgd, 5, 1e-4, 128),
        }
    }
}

impl Method for Ascent {
    fn name(&self) -> &'static str {
        "Gradient ascent"
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        self.recipe.check()
    }

    fn unlearn(&self, task: &Task<'_>, watch: &mut dyn Watch) -> Result<Network> {
        let targets = task.targets();
        let seed = stream(task.seed, 0xA5C);
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
