//! Progress reports and cancellation of long work.
//!
//! ```
//! use muso::progress::{Progress, check};
//! struct StopAtHalf;
//! impl Progress for StopAtHalf {
//!     fn at(&mut self, _: &str, done: u64, total: u64) -> bool {
//!         2 * done < total
//!     }
//! }
//! assert!(check(&mut StopAtHalf, "training", 4, 10).is_ok());
//! assert!(check(&mut StopAtHalf, "training", 5, 10).is_err());
//! ```

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

/// Reports, and turns the wish to stop into [`Error::Interrupted`].
pub fn check(progress: &mut dyn Progress, phase: &str, done: u64, total: u64) -> Result<()> {
    if progress.at(phase, done, total) {
        Ok(())
    } else {
        Err(Error::Interrupted)
    }
}
