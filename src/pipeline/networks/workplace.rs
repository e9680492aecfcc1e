//! Compute resources of a run: the engine of its closed forms, the device of its networks, its lanes and threads.
//!
//! The command line makes one before any run; a [`Workbench`](super::Workbench) puts data and a network on it.

use muso_models::burn::tensor::Device;

use crate::engine::AnyEngine;
use crate::error::Result;
use crate::scheduler::Scheduler;

/// Compute resources of a run: engine, device, scheduler and threads.
#[derive(Clone, Debug)]
pub struct Workplace {
    /// Engine that computes the closed forms.
    pub engine: AnyEngine,
    /// Device that holds and trains the networks.
    pub device: Device,
    /// The lanes that work ahead of each other within one run.
    pub scheduler: Scheduler,
    /// Threads in all, which the independent jobs of a comparison share.
    pub threads: usize,
}

impl Workplace {
    /// Puts networks and closed forms on the device of `engine`, for one model at a time.
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
            threads: rayon::current_num_threads(),
        })
    }

    /// Puts networks and closed forms on the processor, one job a core, for the many models of a comparison.
    ///
    /// # Errors
    /// If `engine` is not the processor's: the networks of a comparison cannot be put on another device yet.
    pub fn for_jobs(engine: AnyEngine, threads: usize) -> Result<Self> {
        match &engine {
            AnyEngine::Cpu(_) => Ok(Self {
                engine,
                device: Device::flex(),
                // Every core has a job of its own already.
                scheduler: Scheduler::in_place(),
                threads,
            }),
            #[cfg(feature = "cuda")]
            AnyEngine::Cuda(engine) => Err(crate::error::Error::Unavailable {
                device: format!("cuda:{}", engine.context().ordinal()),
                why: "comparisons train their networks on the processor only, for now".into(),
            }),
        }
    }
}
