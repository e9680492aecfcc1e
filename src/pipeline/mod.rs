//! Whole runs: the only place besides the scheduler that knows all stages.
//!
//! - [`table1`]: the paper's linear experiment, every method in every scenario over several seeds;
//! - `networks` (feature `nn`): training, unlearning and comparing networks;
//! - [`head`]: the model-agnostic tool, feature file and head in, new head out;
//! - [`gram`]: the sums that a head is solved from, of a part of the rows, and adding such parts up.
//!
//! A run reports where it is through [`Progress`], which also lets the caller stop it.

mod clock;
mod exact;
pub mod gram;
pub mod head;
#[cfg(feature = "nn")]
pub mod networks;
#[cfg(feature = "datasets")]
pub mod table1;

pub use crate::progress::Progress;
use crate::progress::check;
