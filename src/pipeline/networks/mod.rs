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

use muso_models::burn::tensor::Device;

use crate::engine::AnyEngine;
#[cfg(feature = "cuda")]
use crate::engine::Engine;
use crate::error::Result;
use crate::scheduler::Scheduler;

/// Where a single run computes, and how its work is spread.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// For the closed forms.
    pub engine: AnyEngine,
    /// For the networks.
    pub device: Device,
    /// The lanes.
    pub scheduler: Scheduler,
}

impl Workplace {
    /// Networks and closed forms on the device of `engine`.
    ///
    /// # Errors
    /// If networks need something there that is not installed.
    pub fn new(engine: AnyEngine, scheduler: Scheduler) -> Result<Self> {
        let device = match &engine {
            AnyEngine::Cpu(_) => Device::flex(),
            #[cfg(feature = "cuda")]
            AnyEngine::Cuda(engine) => {
                crate::gpu::compiler::prepare()?;
                Device::cuda(engine.context().ordinal())
            }
        };
        Ok(Self {
            engine,
            device,
            scheduler,
        })
    }
}

/// What a comparison runs on.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Threads in all, for the networks.
    pub threads: usize,
    /// For the closed forms.
    pub engine: &'a AnyEngine,
}

impl Machine<'_> {
    /// In a few words.
    pub fn describe(&self) -> String {
        let threads = self.threads;
        match self.engine {
            AnyEngine::Cpu(_) => format!("cpu, {threads} threads"),
            #[cfg(feature = "cuda")]
            other => format!(
                "cpu, {threads} threads; closed forms on {}",
                other.describe()
            ),
        }
    }
}
