//! Start of unlearning: the trained network, its initial weights and snapshots between, on a workbench.
//!
//! They come from the folder of a training run, or from a checkpoint whose first weights are drawn anew. With the rows
//! of a case they are the [`Task`] that a method is given.

use muso_models::Network;

use super::cases::Case;
use super::checkpoint::{load_into, make_for};
use super::folder::Folder;
use super::unlearn::Unlearn;
use super::workbench::Workbench;
use super::workplace::Workplace;
use crate::data::images::Dataset;
use crate::error::{Error, Result};
use crate::methods::networks::{Snapshot, Task};
use crate::train::Recipe;

/// Networks that unlearning starts from, on their workbench.
pub(super) struct Start {
    pub(super) workbench: Workbench,
    /// The trained network.
    pub(super) original: Network,
    /// The network before training.
    initial: Network,
    snapshots: Vec<Snapshot>,
}

impl Start {
    /// Reads the networks that a request names.
    pub(super) fn find(request: &Unlearn, data: Dataset, place: &Workplace) -> Result<Self> {
        if let Some(run) = &request.run {
            let network = request.config.network(&data);
            let workbench = Workbench::new(place, data, network)?;
            let found = Folder::new(run).open(&workbench)?;
            return Ok(Self {
                workbench,
                original: found.model,
                initial: found.initial,
                snapshots: found.snapshots,
            });
        }
        let path = request.model.as_deref().ok_or(Error::Missing {
            name: "`.run` or `.model`",
            expected: "the model that is to forget".into(),
        })?;
        let network = make_for(path, &request.config, request.architecture, &data)?;
        let workbench = Workbench::new(place, data, network)?;
        let initial = workbench.initial(request.config.seeds[0])?;
        let original = load_into(initial.clone(), path)?;
        Ok(Self {
            workbench,
            original,
            initial,
            snapshots: Vec::new(),
        })
    }

    /// Returns the task of forgetting the rows of a case; `recipe` is how the original was trained.
    pub(super) fn task<'a>(&'a self, case: &'a Case, recipe: &'a Recipe, seed: u64) -> Task<'a> {
        let networks = [&self.original, &self.initial];
        let engine = &self.workbench.place.engine;
        let mut task = self.workbench.task(&case.split, networks, recipe, engine);
        task.of_class = case.of_class();
        task.snapshots = &self.snapshots;
        task.seed = seed;
        task
    }
}
