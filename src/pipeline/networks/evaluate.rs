//! `muso evaluate`: accuracies, membership attack and AvgGap of a checkpoint, alone or beside a reference.

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

/// Request of `muso evaluate`: a checkpoint to measure, and a reference to compare it with.
#[derive(Clone, Debug)]
pub struct Evaluate {
    /// Configuration, of which the data, the network's width, the first seed and the membership attack count.
    pub config: Config,
    /// File of the checkpoint to measure.
    pub model: PathBuf,
    /// File of a reference checkpoint, usually a retrained model; needs `forget`.
    pub reference: Option<PathBuf>,
    /// Architecture of the checkpoint, where neither its metadata nor its weights tell.
    pub architecture: Option<Architecture>,
    /// Rows that the checkpoint was made to forget, if any.
    pub forget: Option<Forget>,
}

impl Evaluate {
    /// Measures the checkpoint and, where there is one, the reference before it.
    ///
    /// # Errors
    /// If the data or a checkpoint cannot be read or do not fit, or if `progress` asks to stop
    /// ([`Error::Interrupted`]).
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
