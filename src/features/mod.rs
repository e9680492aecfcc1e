//! Stage 2, after `data`: from inputs to feature rows.
//!
//! The linear world uses [`RandomFeatures`]; networks extract theirs from inputs that a `Feed` brings: images, or any
//! rows with the trait `Batches`. Whatever makes them, features are rows of a matrix or of a feature file, and the later
//! stages see nothing else.

#[cfg(feature = "nn")]
pub mod batches;
#[cfg(feature = "nn")]
mod network;
mod random;

#[cfg(feature = "nn")]
pub use batches::{Batch, Batches, Images, Loading, Order};
#[cfg(feature = "nn")]
pub use network::{DeferredPass, Extracted, Feed, Passed, Passing, host};
pub use random::RandomFeatures;
