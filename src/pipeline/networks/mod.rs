//! Runs on networks: training, unlearning, measuring and the comparisons of the paper's Tables 2 to 4.
//!
//! What a run is asked for and where it happens:
//!
//! - [`config`] and [`data`]: a run as a file, and its images;
//! - [`Workplace`] and [`Workbench`]: where it computes, and there the data and the network.
//!
//! One model at a time, each from request to result:
//!
//! - [`Train`], [`Unlearn`] and [`Evaluate`]: `muso train`, `unlearn` and `evaluate`;
//! - [`folder`]: a training run on disk, which can be stopped and resumed; [`checkpoint`]: a network in a file;
//! - [`scores`]: what models are worth, and how far they are from others.
//!
//! Many models:
//!
//! - [`plan`], on [`trained`] networks: every method against retraining, over scenarios and seeds;
//! - [`compare`], [`demo`] and [`tables`]: the table of it, and ready-made ones.

mod cases;
pub mod checkpoint;
pub mod compare;
pub mod config;
pub mod data;
pub mod demo;
mod evaluate;
pub mod folder;
mod jobs;
pub mod plan;
pub mod scores;
mod settings;
mod start;
pub mod tables;
mod train;
pub mod trained;
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

/// The lanes of a run in the order of its flow, for tables and pictures.
pub const LANES: [&str; 7] = [
    "decode", "copy", "features", "gram", "solve", "labels", "train",
];
