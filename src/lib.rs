//! Exact machine unlearning by optimal relabelling.

pub mod data;
pub mod engine;
mod error;
pub mod evaluate;
pub mod features;
pub mod gram;
pub mod labels;
pub mod methods;
pub mod pipeline;
pub mod report;
pub mod solve;
pub mod train;

pub use error::{Error, Result};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
