//! Exact unlearning, the reference of all other methods: retraining without the forgotten rows.

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, descend, settings_of};
use crate::error::Result;
use crate::features::Batches;
use crate::train::Watch;

/// Trains anew on the retained rows alone. Every parameter, not only the head, starts from the initial weights: a
/// backbone that is kept has learnt from the forgotten rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Retrain {}

impl Settings for Retrain {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Retrain {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let start = task.initial.clone();
        descend(
            task,
            start,
            task.recipe.clone(),
            task.retain,
            &task.targets(),
            watch,
        )
    }
}
