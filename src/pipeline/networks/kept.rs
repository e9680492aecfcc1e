//! Finished jobs of a comparison in a folder, so that one that was stopped or killed goes on where it was.
//!
//! Networks are kept as files of weights, measurements to the last bit: what comes out is what would have come out without
//! a break. A job's file appears whole or not at all, and the settings of the run lie beside them; a folder of other
//! settings is refused and left as it is.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::checkpoint::{load_into, make_text, metadata};
use super::config::{CONFIG_FILE, Config};
use super::plan::Timed;
use super::scores::Measured;
use super::trained::Trained;
use super::workbench::Workbench;
use crate::data::OutputFile;
use crate::data::checkpoint::{read_checkpoint, write_state};
use crate::error::{Error, Result};
use crate::evaluate::{Outputs, Scores};
use crate::labels::LabelUpdate;
use crate::methods::networks::Snapshot;

/// Metadata key of the seconds that a network took.
const SECONDS: &str = "muso.seconds";

/// Folder of the finished jobs of one comparison.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// Opens the folder of a run with these settings, or makes it.
    ///
    /// # Errors
    /// If it holds jobs of other settings, or cannot be made.
    pub fn open(folder: &Path, config: &Config) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, "create", e))?;
        let path = folder.join(CONFIG_FILE);
        let text = config.to_toml();
        match std::fs::read_to_string(&path) {
            Ok(found) if found == text => {}
            Ok(found) => {
                let pairs = text.lines().zip(found.lines());
                let mut different = pairs.filter(|(new, old)| new != old);
                let (new, old) = different
                    .next()
                    .unwrap_or(("more settings", "fewer settings"));
                return Err(Error::format(
                    path,
                    format!("its jobs were done with other settings ({old}, now {new})"),
                    "the settings that it was made with, or another folder for `.resume`",
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                put(&path, text.as_bytes())?;
            }
            Err(error) => return Err(Error::io(path, "read", error)),
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Returns the folder of the jobs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    /// Returns the networks of a training job that is finished, with snapshots after the epochs `keep`; `seed` gave its
    /// initial weights.
    pub(super) fn trained(
        &self,
        name: &str,
        workbench: &Workbench,
        keep: &[usize],
        seed: u64,
    ) -> Result<Option<Trained>> {
        // It is written last.
        let path = self.file(name, "safetensors");
        if !path.exists() {
            return Ok(None);
        }
        let initial = workbench.initial(seed)?;
        let (_, texts) = read_checkpoint(&path)?;
        let bits = texts.get(SECONDS).and_then(|text| text.parse().ok());
        let snapshot = |&epoch: &usize| {
            let path = self.file(&format!("{name}-after-{epoch}"), "safetensors");
            let network = load_into(initial.clone(), &path)?;
            Ok(Snapshot { epoch, network })
        };
        Ok(Some(Trained {
            network: load_into(initial.clone(), &path)?,
            snapshots: keep.iter().map(snapshot).collect::<Result<_>>()?,
            seconds: f64::from_bits(bits.unwrap_or(0)),
            initial,
        }))
    }

    /// Keeps the networks of a training job.
    pub(super) fn keep_trained(
        &self,
        name: &str,
        workbench: &Workbench,
        trained: &Trained,
    ) -> Result<()> {
        let mut texts = metadata(&make_text(&workbench.network));
        texts.insert(SECONDS.into(), trained.seconds.to_bits().to_string());
        let write = |name: &str, network: &muso_models::Network| {
            let mut file = OutputFile::create(self.file(name, "safetensors"))?;
            write_state(&mut file, &network.state(), &texts)?;
            file.commit()
        };
        for Snapshot { epoch, network } in &trained.snapshots {
            write(&format!("{name}-after-{epoch}"), network)?;
        }
        write(name, &trained.network)
    }

    /// Returns the measurements of a job that is finished.
    pub(super) fn measured(&self, name: &str) -> Result<Option<Vec<Timed>>> {
        let path = self.file(name, "json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, "read", error)),
        };
        let fault = |problem: String| {
            let expected = "a job that muso wrote; without the file it is done again";
            Error::format(&path, problem, expected)
        };
        let kept: Vec<Job> = serde_json::from_slice(&text).map_err(|e| fault(e.to_string()))?;
        let jobs = kept
            .into_iter()
            .map(|job| job.timed().map_err(|e| fault(e.to_string())));
        Ok(Some(jobs.collect::<Result<_>>()?))
    }

    /// Keeps the measurements of a job.
    pub(super) fn keep_measured(&self, name: &str, runs: &[Timed]) -> Result<()> {
        let jobs: Vec<Job> = runs.iter().map(Job::of).collect();
        let text = serde_json::to_vec(&jobs).unwrap_or_default();
        put(&self.file(name, "json"), &text)
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OutputFile::create(path)?;
    file.put(bytes)?;
    file.commit()
}

/// Measurements as bits: text in decimals may lose the last.
#[derive(Serialize, Deserialize)]
struct Job {
    scores: [u64; 4],
    logits: Vec<u32>,
    classes: usize,
    labels: Vec<i64>,
    test_entropies: Vec<u64>,
    seconds: u64,
    curve: Vec<[u64; 3]>,
    updates: Vec<(Option<u64>, Option<u64>, u64)>,
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

impl Job {
    fn of(run: &Timed) -> Self {
        let Measured {
            scores,
            forgotten,
            test_entropies,
        } = &run.measured;
        let update = |update: &LabelUpdate| {
            let bits = |x: Option<f64>| x.map(f64::to_bits);
            (
                bits(update.trace_ratio),
                bits(update.rounding),
                update.changed.to_bits(),
            )
        };
        Self {
            scores: scores.values().map(f64::to_bits),
            logits: (0..forgotten.rows())
                .flat_map(|row| forgotten.row(row).iter().map(|x| x.to_bits()))
                .collect(),
            classes: forgotten.classes(),
            labels: forgotten
                .labels()
                .iter()
                .map(|&label| label as i64)
                .collect(),
            test_entropies: bits(test_entropies),
            seconds: run.seconds.to_bits(),
            curve: run.curve.iter().map(|at| at.map(f64::to_bits)).collect(),
            updates: run.updates.iter().map(update).collect(),
        }
    }

    fn timed(self) -> Result<Timed> {
        let [ra, ta, fa, mia] = self.scores.map(f64::from_bits);
        let logits = self.logits.into_iter().map(f32::from_bits).collect();
        let numbers = |bits: Vec<u64>| bits.into_iter().map(f64::from_bits).collect();
        let update = |(trace, rounding, changed): (Option<u64>, Option<u64>, u64)| LabelUpdate {
            trace_ratio: trace.map(f64::from_bits),
            rounding: rounding.map(f64::from_bits),
            changed: f64::from_bits(changed),
        };
        Ok(Timed {
            measured: Measured {
                scores: Scores { ra, ta, fa, mia },
                forgotten: Outputs::new(logits, self.classes, &self.labels)?,
                test_entropies: numbers(self.test_entropies),
            },
            seconds: f64::from_bits(self.seconds),
            curve: self
                .curve
                .into_iter()
                .map(|at| at.map(f64::from_bits))
                .collect(),
            updates: self.updates.into_iter().map(update).collect(),
        })
    }
}
