//! Runs on networks: training, unlearning, measuring and the comparisons of the paper's Tables 2 to 4.
//!
//! - [`config`]: a run as a file;
//! - [`folder`]: a training run on disk, which can be stopped and resumed;
//! - [`single`]: one model at a time, for `muso train`, `unlearn` and `evaluate`;
//! - [`experiment`] and [`compare`]: every method against retraining, over scenarios and seeds.

mod cases;
pub mod compare;
pub mod config;
pub mod demo;
pub mod experiment;
pub mod folder;
mod jobs;
pub mod single;
pub mod tables;

pub use config::Config;
