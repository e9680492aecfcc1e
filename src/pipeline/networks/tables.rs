//! The paper's Tables 2 to 4 as runs: its recipes on its data, or the same protocol at a size that two cores finish.

use std::path::{Path, PathBuf};

use muso_models::Architecture;

use super::compare::{Compared, Setting, run};
use super::config::{Config, Net};
use super::data::Data;
use super::workplace::Workplace;
use crate::data::Forget;
use crate::data::images::{Augment, Kind};
use crate::error::{Error, Result};
use crate::methods::networks::{Muso, Sampling, Settings};
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
    /// Set if the forgotten rows are a class or a sub-class, for which the paper trains MUSO otherwise.
    classes: bool,
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
        let classes = |names: [&'static str; 3]| {
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
                    ]),
                    classes: true,
                },
                Part {
                    kind: Kind::Cifar20,
                    dataset: "CIFAR-20",
                    forget: classes([
                        "sub-class (rocket)",
                        "sub-class (sea)",
                        "sub-class (cattle)",
                    ]),
                    classes: true,
                },
                Part {
                    kind: Kind::Cifar100,
                    dataset: "CIFAR-100",
                    forget: random(),
                    classes: false,
                },
            ],
            Self::Three => vec![Part {
                kind: Kind::Cifar10,
                dataset: "CIFAR-10",
                forget: random(),
                classes: false,
            }],
            Self::Four => vec![Part {
                kind: Kind::TinyImagenet,
                dataset: "TinyImageNet-200",
                forget: random(),
                classes: false,
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
    let mut muso = Muso::default();
    if part.classes {
        muso.recipe = Recipe {
            epochs: 5,
            rule: Rule::AdamW,
            learning_rate: 2.8e-4,
            schedule: Schedule::Cosine,
            ..muso.recipe
        };
    }
    if table == NetworkTable::Four {
        muso.sampling = Sampling::Random(0.1);
    }
    let mut config = Config {
        seeds: seeds.to_vec(),
        retrains: 1,
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
            "muso" => muso.settings(),
            _ => toml::Table::new(),
        };
        config.methods.insert(entry.key.to_owned(), settings);
    }
    config
}

/// Reproduces a table of the paper on `seeds`. `path` is the folder of its data; the report names `command` as
/// the command line that repeats it.
///
/// # Errors
/// If `path` is `None` or holds other data, or if `progress` asks to stop.
pub fn reproduce(
    table: NetworkTable,
    scale: Scale,
    path: Option<&PathBuf>,
    seeds: &[u64],
    command: &str,
    place: &Workplace,
    progress: &mut dyn Progress,
) -> Result<Compared> {
    let parts = table.parts();
    let path = path.ok_or_else(|| Error::Missing {
        name: "`.data_path`",
        expected: format!("the folder of {}", parts[0].dataset),
    })?;
    let mut whole: Option<Compared> = None;
    for part in &parts {
        let config = config(table, scale, part, path, seeds);
        let setting = Setting {
            title: format!("Table {} of the paper", table.number()),
            setting: format!("{} on {}", table.architecture(), part.dataset),
            command: command.to_owned(),
            notes: notes(scale),
            names: part
                .forget
                .iter()
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            paper: Some((table.number(), part.dataset)),
            ..Setting::default()
        };
        let next = run(&config, setting, place, progress)?;
        whole = Some(match whole {
            Some(before) => before.join(next),
            None => next,
        });
    }
    whole.ok_or(Error::Interrupted)
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
