//! A run on networks as a file: data, network, training, what to forget, how, and what to measure.
//!
//! Every field has a default, and [`Config::to_toml`] writes all of them, so that the file beside an outcome gives the
//! outcome again.
//!
//! ```
//! use muso::pipeline::networks::Config;
//! let config = Config::parse("seeds = [4]\n[data]\nkind = \"fashion\"\n", "example.toml".as_ref())?;
//! let full = config.to_toml();
//! assert_eq!(Config::parse(&full, "again.toml".as_ref())?.to_toml(), full);
//! # Ok::<(), muso::Error>(())
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use muso_models::{Architecture, NetworkConfig};
use serde::{Deserialize, Serialize};

use super::data::Data;
use crate::data::Forget;
use crate::data::images::Dataset;
use crate::error::{Error, Result};
use crate::evaluate::Mia;
use crate::methods::networks::{METHODS, Method, find};
use crate::train::Recipe;

/// The name that the file has in the folder of a run.
pub(super) const CONFIG_FILE: &str = "config.toml";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    /// One repetition for each.
    pub seeds: Vec<u64>,
    /// Which membership attack.
    pub mia: Mia,
    /// How many models are retrained, each in its own order of the rows; Retrain is their mean.
    pub retrains: usize,
    /// Parts of the training run at which the network is kept.
    pub snapshots: Vec<f64>,
    /// The images.
    pub data: Data,
    /// The network.
    pub network: Net,
    /// How it is trained, and retrained.
    pub train: Recipe,
    /// Whether and when `muso train` stops before its last epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStop>,
    /// What is forgotten; a run may have several scenarios.
    pub forget: Vec<Forget>,
    /// The methods to run with their settings; none named means all with their defaults.
    pub methods: BTreeMap<String, toml::Table>,
}

/// Training stops when the accuracy on rows that it does not see has not risen for a while, and the best network wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EarlyStop {
    /// Epochs without a rise.
    pub patience: usize,
    /// Share of the training rows that is held out.
    pub hold_out: f64,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Net {
    /// Which architecture.
    pub architecture: Architecture,
    /// Channels of its first stage, if not the usual number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seeds: vec![0],
            mia: Mia::default(),
            retrains: 2,
            snapshots: vec![0.05, 0.1, 0.2, 0.4],
            data: Data::default(),
            network: Net::default(),
            train: Recipe::default(),
            early_stop: None,
            forget: vec![Forget::random(0.1)],
            methods: BTreeMap::new(),
        }
    }
}

impl Default for Net {
    fn default() -> Self {
        Self {
            architecture: Architecture::SmallCnn,
            width: None,
        }
    }
}

impl Config {
    /// Reads the text of a file that is named in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            let said = error.message().lines().collect::<Vec<_>>().join(" ");
            Error::format(path, format!("{place}{said}"), "a muso configuration")
        })?;
        config.check()?;
        Ok(config)
    }

    /// Reads a run from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        Self::parse(&text, path)
    }

    /// Reads the settings of the training run in a folder.
    pub fn of_run(folder: &Path) -> Result<Self> {
        Self::read(&folder.join(CONFIG_FILE))
    }

    /// Returns every field as TOML, defaults included.
    pub fn to_toml(&self) -> String {
        let mut full = self.clone();
        full.methods = match self.methods() {
            Ok(methods) => methods
                .iter()
                .map(|(key, method)| ((*key).to_owned(), method.settings()))
                .collect(),
            Err(_) => self.methods.clone(),
        };
        toml::to_string(&full).unwrap_or_else(|error| format!("# not representable: {error}\n"))
    }

    /// Refuses what cannot be run, naming the field.
    pub fn check(&self) -> Result<()> {
        self.train.check()?;
        if self.seeds.is_empty() {
            return Err(Error::Parameter {
                name: "seeds",
                value: "[]".into(),
                expected: "at least one seed".into(),
            });
        }
        if let Some(stop) = &self.early_stop
            && !(stop.hold_out > 0.0 && stop.hold_out < 1.0)
        {
            return Err(Error::Parameter {
                name: "early-stop.hold-out",
                value: stop.hold_out.to_string(),
                expected: "a share of the rows, above 0 and below 1".into(),
            });
        }
        if let Some(part) = self.snapshots.iter().find(|p| !(**p > 0.0 && **p < 1.0)) {
            return Err(Error::Parameter {
                name: "snapshots",
                value: part.to_string(),
                expected: "parts of the training run, above 0 and below 1".into(),
            });
        }
        self.methods().map(|_| ())
    }

    /// Returns the methods that were asked for, by key, in the order of tables.
    pub fn methods(&self) -> Result<Vec<(&'static str, Box<dyn Method>)>> {
        for name in self.methods.keys() {
            find(name)?;
        }
        METHODS
            .iter()
            .filter(|entry| self.methods.is_empty() || self.methods.contains_key(entry.key))
            .map(|entry| {
                let settings = self.methods.get(entry.key).cloned().unwrap_or_default();
                Ok((entry.key, entry.with(settings)?))
            })
            .collect()
    }

    /// Keeps only the methods of these names.
    pub fn choose(&mut self, names: &[String]) -> Result<()> {
        let mut chosen = BTreeMap::new();
        for name in names {
            let key = find(name)?.key.to_owned();
            let settings = self.methods.get(&key).cloned().unwrap_or_default();
            chosen.insert(key, settings);
        }
        self.methods = chosen;
        Ok(())
    }

    /// Returns the make of the network for a data set.
    pub fn network(&self, data: &Dataset) -> NetworkConfig {
        let classes = data.train.classes().len();
        let network = NetworkConfig::new(self.network.architecture, classes, data.train.shape());
        match self.network.width {
            Some(width) => network.with_width(width),
            None => network,
        }
    }

    /// Returns the epochs after which a snapshot is kept.
    pub fn snapshot_epochs(&self) -> Vec<usize> {
        let epochs = self.train.epochs;
        let mut list: Vec<usize> = self
            .snapshots
            .iter()
            .map(|part| ((part * epochs as f64).round() as usize).max(1))
            .filter(|&epoch| epoch < epochs)
            .collect();
        list.sort_unstable();
        list.dedup();
        list
    }
}
