//! The paper's Tables 2 to 4 as runs: its recipes on its data, or the same protocol at a size that two cores finish.

use std::path::{Path, PathBuf};

use muso_models::{Architecture, NetworkConfig};

use super::compare::{Compared, Setting, run};
use super::config::{ArmSettings, Config, Net};
use super::cost::{SHARE, jobs, peak_of};
use super::data::Data;
use super::workplace::Workplace;
use crate::data::Forget;
use crate::data::images::{Augment, Kind};
use crate::error::{Error, Result};
use crate::methods::networks::Preset;
use crate::progress::Progress;
use crate::train::{Recipe, Rule, Schedule};

/// Table of the paper with results on networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkTable {
    /// Table 2: ResNet-18 on CIFAR-100 (classes, random rows) and CIFAR-20 (sub-classes).
    Two,
    /// Table 3: VGG16-BN on CIFAR-10 (random rows).
    Three,
    /// Table 4: ResNet-34 on Tiny ImageNet (random rows).
    Four,
}

/// Size at which a table of the paper is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Reduced size: the paper's protocol with fewer images, channels and epochs.
    Small,
    /// Full size: the data, the networks and the epochs of the paper.
    Paper,
}

/// A run for part of a table: some of its scenarios on one data set.
struct Part {
    kind: Kind,
    dataset: &'static str,
    forget: Vec<(&'static str, Forget)>,
}

impl NetworkTable {
    fn number(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
        }
    }

    fn architecture(self) -> Architecture {
        match self {
            Self::Two => Architecture::ResNet18,
            Self::Three => Architecture::Vgg16Bn,
            Self::Four => Architecture::ResNet34,
        }
    }

    fn parts(self) -> Vec<Part> {
        let random = || {
            vec![
                ("random (1%)", Forget::random(0.01)),
                ("random (10%)", Forget::random(0.1)),
            ]
        };
        let classes = |names: [&'static str; 3]| -> Vec<(&'static str, Forget)> {
            let forget = ["rocket", "sea", "cattle"].map(Forget::class);
            names.into_iter().zip(forget).collect()
        };
        match self {
            Self::Two => vec![
                Part {
                    kind: Kind::Cifar100,
                    dataset: "CIFAR-100",
                    forget: classes([
                        "full-class (rocket)",
                        "full-class (sea)",
                        "full-class (cattle)",
                    ])
                    .into_iter()
                    .chain(random())
                    .collect(),
                },
                Part {
                    kind: Kind::Cifar20,
                    dataset: "CIFAR-20",
                    forget: classes([
                        "sub-class (rocket)",
                        "sub-class (sea)",
                        "sub-class (cattle)",
                    ]),
                },
            ],
            Self::Three => vec![Part {
                kind: Kind::Cifar10,
                dataset: "CIFAR-10",
                forget: random(),
            }],
            Self::Four => vec![Part {
                kind: Kind::TinyImagenet,
                dataset: "TinyImageNet-200",
                forget: random(),
            }],
        }
    }
}

/// Returns the configuration of a part of a table.
fn config(table: NetworkTable, scale: Scale, part: &Part, path: &Path, seeds: &[u64]) -> Config {
    let paper = Recipe {
        epochs: 100,
        batch: 128,
        rule: Rule::Sgd,
        learning_rate: 0.1,
        momentum: 0.9,
        weight_decay: 5e-4,
        warmup: 2.0,
        schedule: Schedule::Steps {
            at: vec![0.8, 0.9],
            factor: vec![0.1, 0.01],
        },
        augment: Some(Augment::default()),
    };
    let mut config = Config {
        seeds: match seeds {
            [] => (0..scale.seeds()).collect(),
            _ => seeds.to_vec(),
        },
        retrains: scale.retrains(),
        data: Data {
            kind: part.kind,
            path: Some(path.to_owned()),
            ..Data::default()
        },
        network: Net {
            architecture: table.architecture(),
            width: None,
        },
        train: paper,
        forget: part
            .forget
            .iter()
            .map(|(_, forget)| forget.clone())
            .collect(),
        ..Config::default()
    };
    if scale == Scale::Small {
        config.network.width = Some(8);
        config.data.per_class = Some(match table {
            NetworkTable::Two => [30, 10],
            NetworkTable::Three => [300, 100],
            NetworkTable::Four => [6, 3],
        });
        if table == NetworkTable::Four {
            config.data.image_size = Some(32);
        }
        config.train = Recipe {
            epochs: 15,
            batch: 32,
            learning_rate: 0.05,
            warmup: 1.0,
            ..config.train
        };
    }
    for entry in &crate::methods::networks::METHODS {
        let settings = match entry.key {
            "muso" => ArmSettings::Several(muso_arms(table)),
            _ => toml::Table::new().into(),
        };
        config.methods.insert(entry.key.to_owned(), settings);
    }
    config
}

/// Returns MUSO as published, in the text and in two versions of the code, and the last of these with other projectors.
fn muso_arms(table: NetworkTable) -> Vec<toml::Table> {
    let last = Preset::February2025;
    let published = Preset::ALL.map(|preset| (None, preset, None));
    let projectors = [
        ("exact projector", "exact"),
        ("2024-10 projector", "released-2024-10"),
        ("random labels", "random-labels"),
    ];
    let varied = projectors.map(|(name, projector)| (Some(name), last, Some(projector)));
    let arms = published.into_iter().chain(varied);
    arms.map(|(name, preset, projector)| {
        let mut arm = toml::Table::from_iter([("preset".to_owned(), preset.key().into())]);
        arm.extend(name.map(|name| ("name".to_owned(), name.into())));
        arm.extend(projector.map(|projector| ("projector".to_owned(), projector.into())));
        // R is 0.1 for this data set, by the text.
        if table == NetworkTable::Four {
            let kind = match preset {
                Preset::Paper => "random",
                _ => "released",
            };
            let share = toml::Table::from_iter([(kind.to_owned(), 0.1.into())]);
            arm.insert("sampling".to_owned(), share.into());
        }
        arm
    })
    .collect()
}

/// Request of `muso reproduce` for a table with results on networks.
#[derive(Clone, Debug)]
pub struct Reproduce {
    /// Table of the paper.
    pub table: NetworkTable,
    /// Size to reproduce it at.
    pub scale: Scale,
    /// Folder of the table's data set.
    pub path: Option<PathBuf>,
    /// Seeds, one a repetition; empty has the scale's own number of them.
    pub seeds: Vec<u64>,
    /// Keys or names of the methods; empty has all.
    pub methods: Vec<String>,
    /// Scenarios by their names, or the beginning of some; empty has all.
    pub scenarios: Vec<String>,
    /// Folder that finished jobs are kept in, and taken from.
    pub resume: Option<PathBuf>,
    /// Command line that repeats the run.
    pub command: String,
}

impl Scale {
    /// Returns the number of repetitions: five as in the paper, or one.
    pub fn seeds(self) -> u64 {
        match self {
            Self::Paper => 5,
            Self::Small => 1,
        }
    }

    /// Returns the number of retrained models in each case: two tell how far one is from another.
    fn retrains(self) -> usize {
        match self {
            Self::Paper => 2,
            Self::Small => 1,
        }
    }
}

impl Reproduce {
    /// Runs the table.
    ///
    /// # Errors
    /// If the folder holds other data or a name is unknown; [`Error::Paused`] or [`Error::Interrupted`] if `progress` asks to
    /// stop.
    pub fn run(&self, place: &Workplace, progress: &mut dyn Progress) -> Result<Compared> {
        let parts = self.parts()?;
        if self.path.is_none() {
            return Err(Error::Missing {
                name: "`.data_path`",
                expected: format!("the folder of {}", parts[0].dataset),
            });
        }
        let mut whole: Option<Compared> = None;
        for part in &parts {
            let setting = Setting {
                title: format!("Table {} of the paper", self.table.number()),
                setting: format!("{} on {}", self.table.architecture(), part.dataset),
                command: self.command.clone(),
                notes: notes(self.scale),
                names: part.names(),
                paper: Some((self.table.number(), part.dataset)),
                ..Setting::default()
            };
            let folder = self
                .resume
                .as_ref()
                .map(|folder| folder.join(part.folder()));
            let config = self.config(part)?;
            let next = run(&config, setting, place, folder.as_deref(), progress)?;
            whole = Some(match whole {
                Some(before) => before.join(next),
                None => next,
            });
        }
        let mut whole = whole.ok_or(Error::Interrupted)?;
        // The paper has random rows last, whose data set comes first.
        let report = &mut whole.report;
        report
            .table
            .scenarios
            .sort_by_key(|s| s.name.starts_with("random"));
        report
            .details
            .sort_by_key(|d| d.scenario.starts_with("random"));
        Ok(whole)
    }

    /// Lists all jobs with their sizes, and about how long a GPU of this name would take. Needs no data.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn dry_run(&self, gpu: &str) -> Result<String> {
        let peak = peak_of(gpu)?;
        let rate = SHARE * peak * 1e12;
        let mut text = format!("{:>11}  {:>9}  {:>9}  job\n", "row passes", "TFLOP", gpu);
        let (mut count, mut total) = (0, 0.0);
        for part in &self.parts()? {
            let config = self.config(part)?;
            let rows = part.rows(&config);
            let [classes, side] = part.shape(&config);
            let network = NetworkConfig::new(self.table.architecture(), classes, [3, side, side]);
            let network = match config.network.width {
                Some(width) => network.with_width(width),
                None => network,
            };
            let names: Vec<&str> = part.forget.iter().map(|(name, _)| *name).collect();
            let forgotten: Vec<usize> = names
                .iter()
                .map(|name| part.forgotten(name, rows))
                .collect();
            for job in jobs(&config, &names, &forgotten, rows)? {
                let flops = job.flops(&network);
                text.push_str(&format!(
                    "{:>11.0}  {:>9.1}  {:>9}  {}: {}\n",
                    job.passes,
                    flops / 1e12,
                    clock(flops / rate),
                    part.dataset,
                    job.name
                ));
                count += 1;
                total += flops;
            }
        }
        text.push_str(&format!(
            "{:>11}  {:>9.0}  {:>9}  all {count} jobs one after the other, at {:.0} % of the {peak} TFLOP/s that {gpu} has in \
             f32; nothing was run\n",
            "",
            total / 1e12,
            clock(total / rate),
            100.0 * SHARE,
        ));
        Ok(text)
    }

    /// Returns the parts of the table with the scenarios that were asked for.
    fn parts(&self) -> Result<Vec<Part>> {
        let mut parts = self.table.parts();
        let known: Vec<&str> = parts.iter().flat_map(Part::scenario_names).collect();
        let fits = |name: &str, wanted: &String| {
            let wanted = wanted.trim().to_ascii_lowercase();
            !wanted.is_empty() && name.starts_with(&wanted)
        };
        for wanted in &self.scenarios {
            if !known.iter().any(|name| fits(name, wanted)) {
                return Err(Error::Parameter {
                    name: "`.scenarios`",
                    value: wanted.clone(),
                    expected: known.join(", "),
                });
            }
        }
        for part in &mut parts {
            part.forget.retain(|(name, _)| {
                self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| fits(name, wanted))
            });
        }
        parts.retain(|part| !part.forget.is_empty());
        Ok(parts)
    }

    fn config(&self, part: &Part) -> Result<Config> {
        let path = self.path.clone().unwrap_or_default();
        let mut config = config(self.table, self.scale, part, &path, &self.seeds);
        if !self.methods.is_empty() {
            config.choose(&self.methods)?;
        }
        Ok(config)
    }
}

impl Part {
    fn scenario_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.forget.iter().map(|(name, _)| *name)
    }

    fn names(&self) -> Vec<String> {
        self.scenario_names().map(str::to_owned).collect()
    }

    /// Returns the name of the part's folder within that of the jobs.
    fn folder(&self) -> String {
        self.dataset.to_ascii_lowercase()
    }

    /// Returns the numbers of classes as the network has them, of finest classes, of training rows of each, and the side of
    /// the images.
    fn published(&self) -> [usize; 4] {
        match self.kind {
            Kind::Cifar10 => [10, 10, 5_000, 32],
            Kind::Cifar20 => [20, 100, 500, 32],
            Kind::TinyImagenet => [200, 200, 500, 64],
            _ => [100, 100, 500, 32],
        }
    }

    /// Returns the number of training rows.
    fn rows(&self, config: &Config) -> usize {
        let [_, classes, rows, _] = self.published();
        classes
            * config
                .data
                .per_class
                .map_or(rows, |[train, _]| train.min(rows))
    }

    /// Returns the number of classes and the side of the images.
    fn shape(&self, config: &Config) -> [usize; 2] {
        let [classes, _, _, side] = self.published();
        [classes, config.data.image_size.unwrap_or(side)]
    }

    /// Returns how many of `rows` rows a scenario forgets.
    fn forgotten(&self, scenario: &str, rows: usize) -> usize {
        match scenario {
            "random (1%)" => rows.div_ceil(100),
            "random (10%)" => rows.div_ceil(10),
            _ => rows / self.published()[1],
        }
    }
}

/// Writes a duration as hours and minutes, or seconds.
fn clock(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{s:.1} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

fn notes(scale: Scale) -> Vec<String> {
    match scale {
        Scale::Paper => Vec::new(),
        Scale::Small => vec![
            "Scale small: the paper's protocol with a narrower network, fewer images and fewer epochs. The paper's \
             numbers stand beside ours to show the pattern; they are of another size."
                .to_owned(),
        ],
    }
}
