//! Whole runs: the only place besides the scheduler that knows all stages.
//!
//! - [`table1`]: the paper's linear experiment, every method in every scenario over several seeds;
//! - `networks` (feature `nn`): training, unlearning and comparing networks;
//! - [`head`]: the model-agnostic tool, feature file and head in, new head out;
//! - [`gram`]: the sums that a head is solved from, of a part of the rows, and adding such parts up;
//! - `audit` (feature `report`): outputs of unlearned and retrained models in, verdict out.
//!
//! A run reports where it is through [`Progress`], which also lets the caller stop it.

#[cfg(feature = "report")]
pub mod audit;
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
