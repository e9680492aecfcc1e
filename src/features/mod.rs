//! Stage 2, after `data`: from inputs to feature rows.
//!
//! The linear world uses [`RandomFeatures`]; networks bring their own extractors. Whatever makes them, features are
//! rows of a matrix or of a feature file, and the later stages see nothing else.

mod random;

pub use random::RandomFeatures;
