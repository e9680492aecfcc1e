//! Stage 6, after `labels`: training.
//!
//! [`sgd`] trains the linear model as the paper does, one sample a step. Networks bring their own loops.

mod sgd;

pub use sgd::{Epoch, Observer, Outcome, SgdParams, sgd};
