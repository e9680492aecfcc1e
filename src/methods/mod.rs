//! Stage 7, after `train`: the unlearning methods.
//!
//! [`linear`] has those of the paper's linear experiment, where closed forms exist; [`networks`] those for networks,
//! all behind one trait.

pub mod linear;
#[cfg(feature = "nn")]
pub mod networks;

pub use linear::{LinearProblem, ORACLE_POINTS, Path, delta_w};
