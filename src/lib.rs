//! Exact machine unlearning by optimal relabelling.
//!
//! `muso` makes a trained model behave as if chosen samples had never been in its training set, and says how close it
//! came. It implements MUSO (machine unlearning by setting optimal labels): for a linear model on fixed features there
//! are labels for the forgotten rows that make further training end exactly at the model trained without them, and
//! those labels have a closed form.
//!
//! Rows are samples: Z is N×D, weights are D×C, G = ZᵀZ, K = ZZᵀ. Data flows one way through the stages, each a module:
//!
//! [`data`] → [`features`] → [`gram`] → [`solve`] → [`labels`] → [`train`] → [`methods`] → [`evaluate`] → [`report`]
//!
//! A stage knows only the stages before it and the [`engine`], which does the heavy linear algebra; [`pipeline`] puts
//! stages together into whole runs, and the [`scheduler`] lets them overlap.
//!
//! The shortest way to an exact model, forgetting the last of three rows:
//!
//! ```
//! use muso::engine::{CpuEngine, Matrix};
//! use muso::gram::{DualGram, Gram};
//! use muso::labels::Projector;
//! use muso::solve::fit;
//!
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let z = Matrix::from_fn(3, 8, |i, j| (((i * 8 + j) as f64).powi(2)).sin());
//! let y = Matrix::from_vec(3, 1, vec![1.0, -1.0, 1.0]);
//! let init = Matrix::zeros(8, 1);
//!
//! // A model trained on all rows, and the truth: one that never saw the last.
//! let all = Gram::Dual(DualGram::new(&engine, z.clone(), y.clone(), false)?);
//! let trained = fit(&engine, &all, &init, 0.0)?.weights;
//! let (kept, kept_y) = (z.select_rows(&[0, 1]), y.select_rows(&[0, 1]));
//! let retained = Gram::Dual(DualGram::new(&engine, kept, kept_y, false)?);
//! let retrained = fit(&engine, &retained, &init, 0.0)?.weights;
//!
//! // Unlearning: from the trained weights and the retained features alone.
//! let (unlearned, _) = Projector::new(&engine, retained, 0.0)?.optimal_weights(&trained, &init)?;
//! assert!(unlearned.zip(&retrained, |a, b| a - b).norm() < 1e-12);
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features: `cli` (the `muso` program) and `nn` (networks, re-exported as `models`) are on by default; without
//! them this is a small linear-algebra core. `cuda` adds the `gpu` module and the engine that runs on it.

pub mod data;
pub mod engine;
mod error;
pub mod evaluate;
pub mod features;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod gram;
pub mod labels;
pub mod methods;
pub mod pipeline;
pub mod progress;
pub mod report;
pub mod scheduler;
mod softmax;
pub mod solve;
pub mod train;

pub use error::{Error, Result};
#[cfg(feature = "nn")]
pub use muso_models as models;

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
