//! `muso evaluate`: what a checkpoint is worth, alone or beside a reference.

use std::path::{Path, PathBuf};

use muso_models::Architecture;

use super::cases::Case;
use super::checkpoint::{load_into, make_for};
use super::config::Config;
use super::scores::{Candidate, over, score};
use super::workbench::Workbench;
use super::workplace::Workplace;
use crate::data::Forget;
use crate::error::{Error, Result};
use crate::outcome::RunReport;
use crate::progress::Progress;

/// What `muso evaluate` is asked for.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// The data, and the membership attack.
    pub config: Config,
    /// The checkpoint.
    pub model: PathBuf,
    /// Another checkpoint, to compare with.
    pub reference: Option<PathBuf>,
    /// What the checkpoint is, where it cannot be seen.
    pub architecture: Option<Architecture>,
    /// What was forgotten, if anything.
    pub forget: Option<Forget>,
}

impl Evaluate {
    /// Measures the checkpoint and, where there is one, the reference before it.
    ///
    /// # Errors
    /// For a request that cannot be met, and [`Error::Interrupted`] when `progress` asks to stop.
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<RunReport> {
        if self.reference.is_some() && self.forget.is_none() {
            return Err(Error::Missing {
                name: "`.forget`",
                expected: "what was forgotten: the distance to `.reference` is measured there"
                    .into(),
            });
        }
        let data = self.config.data.open()?;
        let seed = self.config.seeds[0];
        let case = self
            .forget
            .as_ref()
            .map(|forget| Case::new(forget, &data, seed))
            .transpose()?;
        let network = make_for(&self.model, &self.config, self.architecture, &data)?;
        let workbench = Workbench::new(place, data, network)?;
        let blank = workbench.initial(0)?;
        let load = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            Ok::<_, Error>(Candidate {
                name: name.to_string_lossy().into_owned(),
                network: load_into(blank.clone(), path)?,
                seconds: None,
            })
        };
        let paths = self.reference.iter().chain([&self.model]);
        let models: Vec<Candidate> = paths.map(|path| load(path)).collect::<Result<_>>()?;
        let (case, mia) = (case.as_ref(), self.config.mia);
        let compared = self.reference.is_some();
        let models = score(&workbench, case, mia, models, compared, progress)?;
        Ok(RunReport {
            kind: "evaluate",
            models,
            over: over(&workbench, case),
            mia: case.map(|_| mia),
            data: self.config.data.kind.to_string(),
            config: self.config.to_toml(),
            ..RunReport::default()
        })
    }
}
