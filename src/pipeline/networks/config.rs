//! Configuration of a run on networks (TOML): data, network, training recipe, what to forget, methods and metrics.
//!
//! Every field has a default, and [`Config::to_toml`] writes all of them, so that the file beside an outcome gives the
//! outcome again. A file has at most 1 MiB, and reading it takes at most 100 times its bytes.
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
use super::plan::Arm;
use crate::data::images::Dataset;
use crate::data::whole::{parse_toml, read_text};
use crate::data::{Forget, LONGEST_CONFIG};
use crate::error::{Error, Result};
use crate::evaluate::Mia;
use crate::methods::networks::{METHODS, find};
use crate::train::Recipe;

/// Name of the configuration file in the folder of a run.
pub(super) const CONFIG_FILE: &str = "config.toml";

/// Configuration of a whole run, read from TOML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    /// Seeds of the run, which is repeated once for each.
    pub seeds: Vec<u64>,
    /// Membership inference attack behind the metric MIA.
    pub mia: Mia,
    /// Number of models to retrain, each in its own order of the rows; Retrain is their mean.
    pub retrains: usize,
    /// Parts of the training run, above 0 and below 1, at which a snapshot of the network is kept.
    pub snapshots: Vec<f64>,
    /// Data set of the run: which images, and how many of them.
    pub data: Data,
    /// Architecture and width of the network.
    pub network: Net,
    /// Training recipe of the original and of the retrained networks.
    pub train: Recipe,
    /// Early stopping of `muso train`; `None` trains to the last epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<EarlyStop>,
    /// Rows to forget, one entry a scenario.
    pub forget: Vec<Forget>,
    /// Methods to run by key, with the settings of their arms; an empty map means all with their defaults.
    pub methods: BTreeMap<String, ArmSettings>,
}

/// Settings of the arms of one method: `[methods.muso]` is one arm, `[[methods.muso]]` with a `name` in each are several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArmSettings {
    /// A single arm.
    One(toml::Table),
    /// Several arms of one method, told apart by their names.
    Several(Vec<toml::Table>),
}

impl ArmSettings {
    /// Returns the settings of every arm, each with its name where it has one.
    pub fn tables(&self) -> &[toml::Table] {
        match self {
            Self::One(table) => std::slice::from_ref(table),
            Self::Several(tables) => tables,
        }
    }
}

impl ArmSettings {
    /// Adds arms after those that are there.
    pub fn add(&mut self, arms: impl IntoIterator<Item = toml::Table>) {
        let before = self.tables().to_vec();
        *self = Self::Several(before.into_iter().chain(arms).collect());
    }
}

impl From<toml::Table> for ArmSettings {
    fn from(table: toml::Table) -> Self {
        Self::One(table)
    }
}

/// Early stopping: training ends when the accuracy on held-out rows has not risen for a while, and the best network is
/// kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EarlyStop {
    /// Epochs without a rise after which training ends.
    pub patience: usize,
    /// Share of the training rows that is held out for validation.
    pub hold_out: f64,
}

/// Architecture of a run's network; classes and image size come from its data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Net {
    /// Architecture of the network, such as `resnet18`.
    pub architecture: Architecture,
    /// Channels of the first convolution; `None` has those of the published network.
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
    /// Parses the text of a configuration file; errors name `path` and the line.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let config: Self =
            parse_toml(text).map_err(|said| Error::format(path, said, "a muso configuration"))?;
        config.check()?;
        Ok(config)
    }

    /// Reads and checks a configuration file.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path, LONGEST_CONFIG)?, path)
    }

    /// Reads the configuration of the training run in a folder.
    pub fn of_run(folder: &Path) -> Result<Self> {
        Self::read(&folder.join(CONFIG_FILE))
    }

    /// Returns every field as TOML, defaults and settings of all methods included.
    pub fn to_toml(&self) -> String {
        let mut full = self.clone();
        if let Ok(arms) = self.arms() {
            full.methods = spelt_out(&arms);
        }
        toml::to_string(&full).unwrap_or_else(|error| format!("# not representable: {error}\n"))
    }

    /// Refuses a configuration that cannot be run, naming the field.
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
        self.arms().map(|_| ())
    }

    /// Returns the arms that were asked for, those of a method together, in the order of tables.
    ///
    /// # Errors
    /// If a method or a setting is unknown, or if two arms have one name.
    pub fn arms(&self) -> Result<Vec<Arm>> {
        for name in self.methods.keys() {
            find(name)?;
        }
        let mut arms: Vec<Arm> = Vec::new();
        let all = ArmSettings::One(toml::Table::new());
        for entry in &METHODS {
            let settings = match self.methods.get(entry.key) {
                Some(settings) => settings.tables(),
                None if self.methods.is_empty() => all.tables(),
                None => continue,
            };
            for table in settings {
                let (name, table) = named(entry.key, table.clone())?;
                let arm = Arm::new(entry.key, name.as_deref(), table)?;
                if arms.iter().any(|other| other.name == arm.name) {
                    return Err(Error::Selection {
                        what: format!("methods.{}", entry.key),
                        problem: format!("two arms are named {:?}", arm.name),
                        expected: "a `name` of its own in each arm".into(),
                    });
                }
                arms.push(arm);
            }
        }
        Ok(arms)
    }

    /// Returns the settings of a method that is to run alone; none where none are configured.
    ///
    /// # Errors
    /// If the method has several arms.
    pub(super) fn settings_of(&self, key: &str) -> Result<toml::Table> {
        match self.methods.get(key).map(ArmSettings::tables) {
            None => Ok(toml::Table::new()),
            Some([table]) => Ok(named(key, table.clone())?.1),
            Some(tables) => Err(Error::Selection {
                what: format!("methods.{key}"),
                problem: format!("{} arms", tables.len()),
                expected: "one arm, where a single network is unlearned".into(),
            }),
        }
    }

    /// Restricts the run to methods of these names or keys, with the settings that they have.
    pub fn choose(&mut self, names: &[String]) -> Result<()> {
        let mut chosen = BTreeMap::new();
        for name in names {
            let key = find(name)?.key.to_owned();
            let settings = self.methods.get(&key).cloned();
            chosen.insert(key, settings.unwrap_or(toml::Table::new().into()));
        }
        self.methods = chosen;
        Ok(())
    }

    /// Returns the make of the network for the classes and the image size of a data set.
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

/// Takes the name out of the settings of an arm.
fn named(key: &str, mut table: toml::Table) -> Result<(Option<String>, toml::Table)> {
    match table.remove("name") {
        None => Ok((None, table)),
        Some(toml::Value::String(name)) if !name.trim().is_empty() => Ok((Some(name), table)),
        Some(other) => Err(Error::Selection {
            what: format!("methods.{key}"),
            problem: format!("name = {other}"),
            expected: "a name for the arm, in quotes".into(),
        }),
    }
}

/// Returns all settings of arms, as a configuration file has them.
fn spelt_out(arms: &[Arm]) -> BTreeMap<String, ArmSettings> {
    let mut tables: BTreeMap<String, Vec<toml::Table>> = BTreeMap::new();
    for arm in arms {
        let mut table = arm.method.settings();
        let prefix = format!("{}: ", arm.method_name());
        if let Some(name) = arm.name.strip_prefix(&prefix) {
            table.insert("name".into(), name.into());
        }
        tables.entry(arm.key.to_owned()).or_default().push(table);
    }
    let settings = |mut tables: Vec<toml::Table>| match tables.len() {
        1 => ArmSettings::One(tables.remove(0)),
        _ => ArmSettings::Several(tables),
    };
    tables
        .into_iter()
        .map(|(key, tables)| (key, settings(tables)))
        .collect()
}
