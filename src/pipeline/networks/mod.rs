//! Runs on networks: training, unlearning, measuring and the comparisons of the paper's Tables 2 to 4.
//!
//! Configuration and devices of a run:
//!
//! - [`config`] and [`data`]: the configuration file, and the data set that it names;
//! - [`Workplace`] and [`Workbench`]: engine and device of a run, and on them its data and network.
//!
//! Runs on a single model, each from request to result:
//!
//! - [`Train`], [`Unlearn`] and [`Evaluate`]: `muso train`, `unlearn` and `evaluate`;
//! - [`folder`]: a training run on disk, which can be stopped and resumed; [`checkpoint`]: a network in a file;
//! - [`scores`]: metrics of models, and their distance to retrained ones.
//!
//! Comparisons of many models:
//!
//! - [`plan`], on [`trained`] networks: every method against retraining, over scenarios and seeds;
//! - [`compare`], [`demo`] and [`tables`]: the gap table of a plan, and ready-made ones; [`tuning`] and [`ablation`]: which
//!   settings they run with; [`kept`]: finished jobs in a folder; [`cost`]: jobs and their sizes before they are run.

pub mod ablation;
mod cases;
pub mod checkpoint;
pub mod compare;
pub mod config;
pub mod cost;
pub mod data;
pub mod demo;
mod evaluate;
pub mod folder;
mod jobs;
pub mod kept;
pub mod plan;
pub mod scores;
mod settings;
mod start;
pub mod tables;
mod train;
pub mod trained;
pub mod tuning;
mod unlearn;
mod unlearned;
mod workbench;
mod workplace;

pub use cases::Case;
pub use config::Config;
pub use evaluate::Evaluate;
pub use train::Train;
pub use unlearn::Unlearn;
pub use unlearned::Unlearned;
pub use workbench::Workbench;
pub use workplace::Workplace;

/// Names of the pipeline's lanes in the order of its data flow, for tables and pictures.
pub const LANES: [&str; 7] = [
    "decode", "copy", "features", "gram", "solve", "labels", "train",
];
