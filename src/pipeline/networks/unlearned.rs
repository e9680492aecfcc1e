//! Result of unlearning: the network that has forgotten, its make and the report, and the files of all three.
//!
//! The last stop of a run of [`Unlearn`](super::Unlearn).

use muso_models::{Network, NetworkConfig};

use super::checkpoint::{make_text, metadata};
use crate::data::checkpoint::write_state;
use crate::data::{OutputFile, commit_all};
use crate::error::Result;
use crate::outcome::RunReport;

/// Result of unlearning: the network that has forgotten, its make and the report.
#[derive(Debug)]
pub struct Unlearned {
    /// The network that has forgotten.
    pub network: Network,
    /// Architecture, width, classes and image shape of the network.
    pub make: NetworkConfig,
    /// The report, complete but for what only the caller knows ([`RunReport::notes`]).
    pub report: RunReport,
}

impl Unlearned {
    /// Writes the network, the numbers as JSON, and a page that was made of them: all files appear, or none.
    pub fn write(
        &self,
        model: Option<OutputFile>,
        json: Option<OutputFile>,
        page: Option<(OutputFile, String)>,
    ) -> Result<()> {
        let mut files = Vec::new();
        if let Some((mut file, text)) = page {
            file.put(text.as_bytes())?;
            files.push(file);
        }
        if let Some(mut file) = model {
            let texts = metadata(&make_text(&self.make));
            write_state(&mut file, &self.network.state(), &texts)?;
            files.push(file);
        }
        if let Some(mut file) = json {
            file.put(self.report.to_json().as_bytes())?;
            files.push(file);
        }
        commit_all(files)
    }
}
