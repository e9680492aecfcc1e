//! Amnesiac unlearning: fine-tuning with random wrong labels for the forgotten rows, drawn once.

use muso_models::FeatureNet;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, descend, settings_of, short};
use crate::error::Result;
use crate::features::Batches;
use crate::seeds::Purpose;
use crate::train::{Recipe, Rule, Watch};

/// Gives each forgotten row one of the other classes, drawn once and uniformly, and trains on everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Amnesiac {
    /// Training recipe for all rows, with the forgotten ones relabelled.
    pub recipe: Recipe,
}

impl Default for Amnesiac {
    fn default() -> Self {
        Self {
            recipe: short(Rule::Adam, 3, 1e-4, 128),
        }
    }
}

impl Settings for Amnesiac {
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

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Amnesiac {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let mut random = ChaCha8Rng::seed_from_u64(Purpose::AmnesiacClasses.seed(task.seed));
        let mut targets = task.targets();
        for &row in task.forget {
            let own = task.feed.data.labels()[row];
            let drawn = random.random_range(0..task.classes as i64 - 1);
            targets.set_class(row, drawn + i64::from(drawn >= own));
        }
        let start = task.original.clone();
        descend(
            task,
            start,
            self.recipe.clone(),
            &task.all_rows(),
            &targets,
            watch,
        )
    }
}
