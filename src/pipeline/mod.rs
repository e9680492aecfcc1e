//! Whole runs: the only place besides the scheduler that knows all stages.
//!
//! - [`table1`]: the paper's linear experiment, every method in every scenario over several seeds;
//! - [`head`]: the model-agnostic tool, feature file and head in, new head out.
//!
//! A run reports where it is through [`Progress`], which also lets the caller stop it.

pub mod head;
pub mod table1;

use crate::error::{Error, Result};

/// Hears how far a run is and may stop it.
pub trait Progress {
    /// `done` of `total` units of the named phase are behind it. Returning false asks the run to stop.
    fn at(&mut self, phase: &str, done: u64, total: u64) -> bool;
}

/// Hears nothing and never stops.
impl Progress for () {
    fn at(&mut self, _: &str, _: u64, _: u64) -> bool {
        true
    }
}

fn check(progress: &mut dyn Progress, phase: &str, done: u64, total: u64) -> Result<()> {
    if progress.at(phase, done, total) {
        Ok(())
    } else {
        Err(Error::Interrupted)
    }
}
