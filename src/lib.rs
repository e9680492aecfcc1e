//! Exact machine unlearning by optimal relabelling.
//!
//! `muso` makes a trained model behave as if chosen samples had never been in its training set, and says how close it
//! came. It implements MUSO (machine unlearning by setting optimal labels): for a linear model on fixed features there
//! are labels for the forgotten rows that make further training end exactly at the model trained without them, and
//! those labels have a closed form.
//!
//! Rows are samples: Z is N×D, weights are D×C, G = ZᵀZ, K = ZZᵀ. Data flows one way through the stages, each a module:
//!
//! [`data`] → [`features`] → [`gram`] → [`solve`] → [`labels`] → [`train`] → [`methods`] → [`evaluate`] → [`outcome`] →
//! `report`
//!
//! A stage knows only the stages before it and the [`engine`], which does the heavy linear algebra; [`pipeline`] puts
//! stages together into whole runs, and the [`scheduler`] lets them overlap.
//!
//! The front door is [`Head::forget`]; [`prelude`] has what it needs. Forgetting two of six rows:
//!
//! ```
//! use muso::prelude::*;
//!
//! # fn main() -> muso::Result<()> {
//! let features: Vec<f32> = (0..18).map(|i| ((i * i) as f32).sin()).collect();
//! let labels = [0, 1, 0, 1, 1, 0];
//! let rows = FeatureRows::new(Rows::new(6, 3, features.as_slice()), Targets::Classes(&labels));
//!
//! // A head that was fitted to all rows, with a ridge of 0.1.
//! let blank = Head::new(Matrix::zeros(2, 3), None);
//! let head = blank.refit(&blank.sum(&rows).run()?).ridge(0.1).solve()?.head;
//!
//! // The head that never saw rows 1 and 4, checked by a second pass over the others.
//! let new = head.forget(&rows, Forget::rows([1, 4])).ridge(0.1).verify(true).solve()?;
//! assert!(new.report.verify.unwrap().distance_relative < 1e-12);
//! assert_eq!(new.labels.rows, [1, 4]); // and what to teach these rows instead of their labels
//! # Ok(())
//! # }
//! ```
//!
//! Cargo features: `cli` (the `muso` program, with `report`, the text and the pages that people read) and `nn` (networks, re-exported as `models`) are on by default; without
//! them this is a small linear-algebra core. `cuda` adds the `gpu` module and the engine that runs on it.

pub mod data;
pub mod engine;
mod error;
pub mod evaluate;
pub mod features;
mod forgetting;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod gram;
pub mod labels;
mod matrix;
pub mod methods;
pub mod outcome;
pub mod pipeline;
pub mod progress;
#[cfg(feature = "report")]
pub mod report;
pub mod scheduler;
pub mod seeds;
mod softmax;
pub mod solve;
pub mod system;
pub mod train;

pub use data::{Amount, FeatureRows, Forget, Head};
pub use error::{Error, Result};
pub use forgetting::{Forgetting, Forgotten, Summing};
pub use gram::shard::Shard;
#[cfg(feature = "nn")]
pub use muso_models as models;
pub use pipeline::head::{Objective, OptimalLabels, Source};

/// The version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Re-exports the types that most programs need: `use muso::prelude::*`.
pub mod prelude {
    pub use crate::data::{Amount, FeatureRows, Forget, Head};
    pub use crate::engine::{Matrix, Rows, Targets};
    pub use crate::forgetting::{Forgetting, Forgotten, Summing};
    pub use crate::gram::exact::GridChoice;
    pub use crate::gram::shard::Shard;
    pub use crate::pipeline::gram::Portion;
    pub use crate::pipeline::head::{Objective, OptimalLabels, Source};
}
