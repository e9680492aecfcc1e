//! A training run in a folder: what `muso train` writes and `muso unlearn` reads.
//!
//! ```text
//! config.toml             every setting, so that the run can be repeated
//! initial.safetensors     the weights that training started from
//! snapshot-0003.safetensors …   the network after that many epochs
//! log.csv                 epoch, mean loss, validation accuracy
//! session.safetensors     while it is not finished: all that the next step depends on
//! model.safetensors       the trained network, once it is
//! ```
//!
//! Every file appears whole or not at all. A run that was stopped at any step goes on to the same bytes.
//!
//! [`Folder::train`] is the training of [`Train`](super::Train); [`Folder::open`] is where [`Unlearn`](super::Unlearn)
//! takes its networks from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use muso_models::{Network, StateDict};

use super::checkpoint::{MAKE, load_into, make_text, metadata};
use super::config::{CONFIG_FILE, Config};
use super::workbench::Workbench;
use crate::data::OutputFile;
use crate::data::checkpoint::{read_checkpoint, write_state};
use crate::data::images::shuffled;
use crate::error::{Error, Result};
use crate::methods::networks::Snapshot;
use crate::progress::Progress;
use crate::seeds::Purpose;
use crate::train::{InPhase, RowTargets, Session};

const INITIAL: &str = "initial.safetensors";
const SESSION: &str = "session.safetensors";
const BEST: &str = "best.safetensors";
const MODEL: &str = "model.safetensors";
const LOG: &str = "log.csv";
/// Metadata key of the log so far.
const LOG_KEY: &str = "muso.log";

/// Folder that a training run is saved in and resumed from.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// Networks and settings of a finished training run.
pub struct Finished {
    /// Configuration of the run.
    pub config: Config,
    /// The network with its initial weights, before training.
    pub initial: Network,
    /// The trained network, with early stopping the best one.
    pub model: Network,
    /// Snapshots of the training, by ascending epoch.
    pub snapshots: Vec<Snapshot>,
}

/// A line of the log: mean loss and validation accuracy of an epoch.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    epoch: usize,
    loss: f64,
    validation: Option<f64>,
}

impl Folder {
    /// Names the folder of a run, which may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn snapshot(&self, epoch: usize) -> PathBuf {
        self.file(&format!("snapshot-{epoch:04}.safetensors"))
    }

    /// Makes the folder and writes the configuration into it.
    ///
    /// # Errors
    /// If there is a run in it already.
    pub fn create(&self, config: &Config) -> Result<()> {
        for name in [CONFIG_FILE, SESSION, MODEL] {
            if self.file(name).exists() {
                return Err(Error::format(
                    &self.path,
                    format!("the folder already has a run in it ({name})"),
                    "a new folder, or `.resume` to go on with this one",
                ));
            }
        }
        fs::create_dir_all(&self.path).map_err(|e| Error::io(&self.path, "create", e))?;
        put(&self.file(CONFIG_FILE), config.to_toml().as_bytes())
    }

    /// Removes what [`Folder::create`] and the start of training wrote, if no step was saved: a run that failed at once is
    /// not in the way of the next.
    pub(super) fn discard_unstarted(&self) {
        if self.file(SESSION).exists() || self.file(MODEL).exists() {
            return;
        }
        // What cannot be removed stays, and the next run says that it is there.
        for name in [CONFIG_FILE, INITIAL] {
            let _ = fs::remove_file(self.file(name));
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Trains to the end, from the start or from where an earlier run stopped, and writes the model.
    ///
    /// # Errors
    /// [`Error::Paused`] when `progress` asks to stop; everything up to that step is saved.
    pub fn train(
        &self,
        config: &Config,
        workbench: &Workbench,
        progress: &mut dyn Progress,
    ) -> Result<Network> {
        if self.is_finished() {
            return Err(Error::format(
                &self.path,
                "the run is finished (it has model.safetensors)",
                "a run to go on with",
            ));
        }
        let seed = config.seeds[0];
        let initial = workbench.initial(seed)?;
        let make = make_text(&workbench.network);
        let rows: Vec<usize> = (0..workbench.train.data.set.len()).collect();
        let (rows, held_out) = hold_out(rows, config, seed);
        let session_file = self.file(SESSION);
        let (mut session, mut log) = if session_file.exists() {
            let (arrays, texts) = read_checkpoint(&session_file)?;
            let like = initial;
            let device = &workbench.train.device;
            let session = Session::from_state(like, &arrays, &texts, &session_file, device)?;
            if session.recipe != config.train {
                return Err(Error::format(
                    &session_file,
                    "it was trained by another recipe than config.toml has",
                    "the config.toml that the run began with",
                ));
            }
            (
                session,
                parse_log(texts.get(LOG_KEY).map_or("", String::as_str)),
            )
        } else {
            self.write_network(INITIAL, &initial, &make)?;
            let session = Session::new(
                initial,
                config.train.clone(),
                Purpose::TrainingOrder.seed(seed),
            );
            (session, Vec::new())
        };

        let targets = RowTargets::new(workbench.train.data.set.labels(), workbench.network.classes);
        let keep = config.snapshot_epochs();
        let patience = config.early_stop.as_ref().map(|stop| stop.patience);
        let mut watch = InPhase("training", progress);
        let mut epoch = |session: &mut Session, trained: usize| {
            // A run may have been stopped between an epoch and what is measured after it.
            if session.epoch == trained {
                let mut loss = |step: &crate::train::Step<'_>| targets.loss(step);
                session.advance(&workbench.train, &rows, None, &mut loss, None, &mut watch)?;
            }
            match &held_out[..] {
                [] => Ok(None),
                rows => workbench
                    .accuracy(&workbench.train, &session.network, rows, &mut ())
                    .map(Some),
            }
        };
        while log.len() < session.epoch || !session.is_finished() && !stale(&log, patience) {
            let outcome = epoch(&mut session, log.len());
            if let Err(Error::Interrupted) = outcome {
                self.save(&session, &log, &make)?;
                return Err(Error::Paused {
                    folder: self.path.clone(),
                });
            }
            log.push(Line {
                epoch: session.epoch,
                loss: session.loss,
                validation: outcome?,
            });
            if keep.contains(&session.epoch) {
                let name = self.snapshot(session.epoch);
                self.write_network_to(&name, &session.network, &make)?;
            }
            if patience.is_some() && best(&log) == Some(log.len() - 1) {
                self.write_network(BEST, &session.network, &make)?;
            }
            self.save(&session, &log, &make)?;
        }

        let network = match patience {
            Some(_) => {
                let path = self.file(BEST);
                load_into(session.network.clone(), &path)?
            }
            None => session.network,
        };
        self.write_network(MODEL, &network, &make)?;
        self.tidy()?;
        Ok(network)
    }

    /// Returns whether the run is finished: its trained network is in the folder.
    pub fn is_finished(&self) -> bool {
        self.file(MODEL).exists()
    }

    /// Removes what only an unfinished run needs.
    fn tidy(&self) -> Result<()> {
        for done in [SESSION, BEST] {
            let path = self.file(done);
            if path.exists() {
                fs::remove_file(&path).map_err(|e| Error::io(&path, "remove", e))?;
            }
        }
        Ok(())
    }

    /// Returns the trained network of a run that may have been stopped right after it was written.
    pub(super) fn finished_model(&self, workbench: &Workbench) -> Result<Network> {
        let model = load_into(workbench.initial(0)?, &self.file(MODEL))?;
        self.tidy()?;
        Ok(model)
    }

    fn save(&self, session: &Session, log: &[Line], make: &str) -> Result<()> {
        let (arrays, mut texts) = session.state();
        let text = log_text(log);
        texts.insert(MAKE.to_owned(), make.to_owned());
        texts.insert(LOG_KEY.to_owned(), text.clone());
        write(&self.file(SESSION), &arrays, &texts)?;
        put(&self.file(LOG), text.as_bytes())
    }

    fn write_network(&self, name: &str, network: &Network, make: &str) -> Result<()> {
        self.write_network_to(&self.file(name), network, make)
    }

    fn write_network_to(&self, path: &Path, network: &Network, make: &str) -> Result<()> {
        write(path, &network.state(), &metadata(make))
    }

    /// Reads the networks and the configuration of a finished run.
    ///
    /// # Errors
    /// If the run is not finished, or if a file cannot be read or holds another network than `workbench` has.
    pub fn open(&self, workbench: &Workbench) -> Result<Finished> {
        let config = Config::of_run(&self.path)?;
        let model = self.file(MODEL);
        if !model.exists() {
            return Err(Error::format(
                &self.path,
                "the run is not finished (no model.safetensors)",
                "a finished run; training with `.resume` goes on with this one",
            ));
        }
        let blank = workbench.initial(0)?;
        let mut snapshots = Vec::new();
        for epoch in config.snapshot_epochs() {
            let path = self.snapshot(epoch);
            if path.exists() {
                snapshots.push(Snapshot {
                    epoch,
                    network: load_into(blank.clone(), &path)?,
                });
            }
        }
        Ok(Finished {
            initial: load_into(blank.clone(), &self.file(INITIAL))?,
            model: load_into(blank, &model)?,
            snapshots,
            config,
        })
    }
}

/// Splits rows into those to train on and the held-out ones that early stopping watches.
fn hold_out(rows: Vec<usize>, config: &Config, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let Some(stop) = &config.early_stop else {
        return (rows, Vec::new());
    };
    let count = ((stop.hold_out * rows.len() as f64).ceil() as usize).clamp(1, rows.len() - 1);
    let mut order = shuffled(&rows, Purpose::HoldOut.seed(seed));
    let mut kept = order.split_off(count);
    kept.sort_unstable();
    order.sort_unstable();
    (kept, order)
}

/// Returns the index of the line with the highest validation accuracy, the first where several are equal.
fn best(log: &[Line]) -> Option<usize> {
    let value = |line: &Line| line.validation.unwrap_or(f64::NEG_INFINITY);
    (0..log.len()).reduce(|best, i| {
        if value(&log[i]) > value(&log[best]) {
            i
        } else {
            best
        }
    })
}

/// Returns whether the best epoch is at least `patience` epochs back.
fn stale(log: &[Line], patience: Option<usize>) -> bool {
    match (patience, best(log)) {
        (Some(patience), Some(best)) => log.len() - 1 - best >= patience,
        _ => false,
    }
}

fn log_text(log: &[Line]) -> String {
    let mut text = String::from("epoch,loss,validation\n");
    for line in log {
        let validation = line.validation.map_or(String::new(), |v| v.to_string());
        text.push_str(&format!("{},{},{validation}\n", line.epoch, line.loss));
    }
    text
}

fn parse_log(text: &str) -> Vec<Line> {
    let parse = |line: &str| {
        let mut fields = line.split(',');
        Some(Line {
            epoch: fields.next()?.parse().ok()?,
            loss: fields.next()?.parse().ok()?,
            validation: fields.next()?.parse().ok(),
        })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

fn write(path: &Path, arrays: &StateDict, texts: &BTreeMap<String, String>) -> Result<()> {
    let mut file = OutputFile::create(path)?;
    write_state(&mut file, arrays, texts)?;
    file.commit()
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OutputFile::create(path)?;
    file.put(bytes)?;
    file.commit()
}
