//! `muso train`: one network, trained into a folder and measured.
//!
//! The training itself, which can be stopped and resumed, is [`Folder::train`].

use super::config::Config;
use super::folder::Folder;
use super::workbench::Workbench;
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::outcome::TrainReport;
use crate::progress::Progress;

/// Request of `muso train`: a network to train, and the folder that the run is written to.
#[derive(Clone, Debug)]
pub struct Train {
    /// Folder that the run is written to.
    pub folder: Folder,
    /// Data, network and training recipe of the run.
    pub config: Config,
    /// Set to resume the run in the folder; otherwise the folder must not hold one.
    pub resumed: bool,
}

impl Train {
    /// Trains into the folder and measures the outcome. A resumed run that is trained already is only measured.
    ///
    /// # Errors
    /// [`Error::Paused`] when asked to stop: everything up to then is in the folder.
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<TrainReport> {
        let Self {
            folder,
            config,
            resumed,
        } = self;
        let data = config.data.open()?;
        let network = config.network(&data);
        let workbench = Workbench::new(place, data, network)?;
        if !resumed {
            folder.create(config)?;
        }
        let model = if *resumed && folder.is_finished() {
            folder.finished_model(&workbench)?
        } else {
            let trained = folder.train(config, &workbench, progress);
            trained.inspect_err(|error| {
                if !resumed && !matches!(error, Error::Paused { .. }) {
                    folder.discard_unstarted();
                }
            })?
        };
        let rows: Vec<usize> = (0..workbench.test.data.set.len()).collect();
        let test_accuracy = workbench
            .accuracy(&workbench.test, &model, &rows, progress)
            .map_err(|error| match error {
                Error::Interrupted => Error::Paused {
                    folder: folder.path().to_owned(),
                },
                other => other,
            })?;
        Ok(TrainReport {
            kind: "train",
            test_accuracy,
            test_images: rows.len(),
            model: folder.path().join("model.safetensors"),
            network: config.network.architecture.to_string(),
            data: config.data.kind.to_string(),
            config: config.to_toml(),
            ..TrainReport::default()
        })
    }
}
