//! Exact machine unlearning by optimal relabelling.

pub mod data;
pub mod engine;
mod error;
pub mod report;

pub use error::{Error, Result};
