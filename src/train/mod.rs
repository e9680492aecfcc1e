//! Stage 6, after `labels`: training by stochastic gradient descent.
//!
//! [`sgd`] trains the linear model as the paper does, one sample a step. Networks are trained by a [`Session`], after a
//! [`Recipe`], on batches; a [`Watch`] listens to it.

#[cfg(feature = "nn")]
mod network;
#[cfg(feature = "nn")]
mod optimizer;
#[cfg(feature = "nn")]
mod saved;
#[cfg(feature = "nn")]
mod schedule;
mod sgd;
#[cfg(feature = "nn")]
mod watch;

#[cfg(feature = "nn")]
pub(crate) use network::differentiate;
#[cfg(feature = "nn")]
pub use network::{AfterStep, Loss, RowTargets, Session, Step, cross_entropy};
#[cfg(feature = "nn")]
pub use optimizer::Optimizer;
#[cfg(feature = "nn")]
pub use schedule::{Recipe, Rule, Schedule};
pub use sgd::{Epoch, Observer, Outcome, SgdParams, sgd};
#[cfg(feature = "nn")]
pub use watch::{Beside, InPhase, Watch};
