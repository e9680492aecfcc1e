//! Stage 2, after `data`: from inputs to feature rows.
//!
//! The linear world uses [`RandomFeatures`]; networks extract theirs from images that a [`Feed`] brings. Whatever makes
//! them, features are rows of a matrix or of a feature file, and the later stages see nothing else.

#[cfg(feature = "nn")]
mod network;
mod random;

#[cfg(feature = "nn")]
pub use network::{Change, Extracted, Feed, Passed, Passing, SHIFTS, host};
pub use random::RandomFeatures;
