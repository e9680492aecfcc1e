//! A network trained in memory for a comparison, with the weights that it started from and snapshots on the way.
//!
//! The first thing that a [`Plan`](super::plan::Plan) does. `muso train` does the same into a folder
//! ([`Folder::train`](super::folder::Folder::train)), from the same seeds.

use std::time::Instant;

use muso_models::Network;

use super::workbench::Workbench;
use crate::error::Result;
use crate::methods::networks::Snapshot;
use crate::seeds::Purpose;
use crate::train::{Recipe, RowTargets, Session, Watch};

/// Networks of a training run, from the initial weights to the trained ones.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The network before its first step.
    pub initial: Network,
    /// The network after its last step.
    pub network: Network,
    /// Snapshots of the training, by ascending epoch.
    pub snapshots: Vec<Snapshot>,
    /// Seconds that training took.
    pub seconds: f64,
}

/// Trains on `rows` from the weights that `seed` gives, keeping the network after the epochs in `keep`.
pub fn train(
    workbench: &Workbench,
    recipe: &Recipe,
    rows: &[usize],
    keep: &[usize],
    seed: u64,
    watch: &mut dyn Watch,
) -> Result<Trained> {
    let clock = Instant::now();
    let initial = workbench.initial(seed)?;
    let targets = RowTargets::new(workbench.train.data.set.labels(), workbench.network.classes);
    let mut session = Session::new(
        initial.clone(),
        recipe.clone(),
        Purpose::TrainingOrder.seed(seed),
    );
    let mut keeping = Keeping {
        keep,
        snapshots: Vec::new(),
        watch,
    };
    session.run(
        &workbench.train,
        rows,
        &mut |step| targets.loss(step),
        &mut keeping,
    )?;
    Ok(Trained {
        initial,
        network: session.network,
        snapshots: keeping.snapshots,
        seconds: clock.elapsed().as_secs_f64(),
    })
}

/// Keeps the network after some epochs.
struct Keeping<'a> {
    keep: &'a [usize],
    snapshots: Vec<Snapshot>,
    watch: &'a mut dyn Watch,
}

impl Watch for Keeping<'_> {
    fn inner(&mut self) -> Option<&mut dyn Watch> {
        Some(self.watch)
    }

    fn epoch(&mut self, session: &Session) -> Result<()> {
        if self.keep.contains(&session.epoch) {
            self.snapshots.push(Snapshot {
                epoch: session.epoch,
                network: session.network.clone(),
            });
        }
        self.watch.epoch(session)
    }
}
