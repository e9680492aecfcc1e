//! `muso unlearn`: one network forgets rows, by one method, and is measured beside what it was.
//!
//! The order of work: the method with its settings, the data, the rows of the case, the networks to start from, the
//! method's own work, retraining where it is asked for, and the scores of all models.

use std::path::PathBuf;
use std::time::Instant;

use muso_models::Architecture;

use super::cases::Case;
use super::config::Config;
use super::scores::{Candidate, over, score};
use super::settings;
use super::start::Start;
use super::unlearned::Unlearned;
use super::workplace::Workplace;
use crate::error::{Error, Result};
use crate::labels::LabelUpdate;
use crate::methods::networks::{Method, Retrain, find};
use crate::outcome::{BEFORE, MethodUpdates, RETRAIN, RunReport};
use crate::progress::Progress;
use crate::train::{InPhase, Watch};

/// Notes the label updates of a run.
struct Noting<'a> {
    updates: Vec<LabelUpdate>,
    inner: &'a mut dyn Watch,
}

impl Watch for Noting<'_> {
    fn inner(&mut self) -> Option<&mut dyn Watch> {
        Some(self.inner)
    }

    fn label_update(&mut self, update: &LabelUpdate) {
        self.updates.push(*update);
    }
}

/// Request of `muso unlearn`: a network, the rows to forget and a method.
#[derive(Clone, Debug)]
pub struct Unlearn {
    /// Data, training recipe, first seed, and what to forget (its first entry).
    pub config: Config,
    /// Folder of a finished `muso train` run to start from; goes before `model`.
    pub run: Option<PathBuf>,
    /// File of a checkpoint from elsewhere to start from.
    pub model: Option<PathBuf>,
    /// Architecture of the checkpoint, where neither its metadata nor its weights tell.
    pub architecture: Option<Architecture>,
    /// Key or name of the unlearning method.
    pub method: String,
    /// Settings of the method, `key=value` each, over those of the configuration.
    pub settings: Vec<String>,
    /// Set to retrain as well, as the reference of the scores.
    pub retrain: bool,
}

impl Unlearn {
    /// Makes the network forget, and measures the outcome beside the original and, where asked for, a retrained one.
    ///
    /// # Errors
    /// If the request is incomplete or its files do not fit, if the method fails, or if `progress` asks to stop
    /// ([`Error::Interrupted`]).
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<Unlearned> {
        let method = self.method()?;
        let data = self.config.data.open()?;
        let forget = self.config.forget.first().ok_or(Error::Missing {
            name: "forget",
            expected: "what to forget".into(),
        })?;
        let seed = self.config.seeds[0];
        let case = Case::new(forget, &data, seed)?;
        let start = Start::find(self, data, place)?;
        let task = start.task(&case, &self.config.train, seed);
        let clock = Instant::now();
        let mut watch = Noting {
            updates: Vec::new(),
            inner: &mut InPhase("unlearning", progress),
        };
        let network = method.unlearn(&task, &mut watch)?;
        let updates = MethodUpdates::mean(method.name(), &[&watch.updates]);
        let seconds = clock.elapsed().as_secs_f64();
        let mut models = vec![
            Candidate {
                name: BEFORE.to_owned(),
                network: start.original.clone(),
                seconds: None,
            },
            Candidate {
                name: method.name().to_owned(),
                network: network.clone(),
                seconds: Some(seconds),
            },
        ];
        if self.retrain {
            let clock = Instant::now();
            let network = Retrain {}.unlearn(&task, &mut InPhase("retraining", progress))?;
            let retrained = Candidate {
                name: RETRAIN.to_owned(),
                network,
                seconds: Some(clock.elapsed().as_secs_f64()),
            };
            models.insert(0, retrained);
        }
        let (workbench, mia) = (&start.workbench, self.config.mia);
        let models = score(workbench, Some(&case), mia, models, self.retrain, progress)?;
        Ok(Unlearned {
            network,
            make: workbench.network.clone(),
            report: RunReport {
                kind: "unlearn",
                models,
                over: over(workbench, Some(&case)),
                settings: settings::flat(&method.settings()),
                warnings: updates.warnings(),
                label_updates: updates.updates,
                mia: Some(mia),
                data: self.config.data.kind.to_string(),
                config: self.config.to_toml(),
                ..RunReport::default()
            },
        })
    }

    /// Returns the method with the settings of the configuration and of the request.
    fn method(&self) -> Result<Box<dyn Method>> {
        let entry = find(&self.method)?;
        let mut table = self.config.settings_of(entry.key)?;
        for setting in &self.settings {
            settings::set(&mut table, setting)?;
        }
        entry.with(table)
    }
}
