//! A pipeline of prefetching lanes with bounded queues, and a trace of what ran when.
//!
//! The work of an iteration is a short graph: decode → copy → features → sums and labels → train step. Each arrow may be
//! a [`Lane`]: an iterator whose items a thread of its own makes ahead of time (prefetch), into a bounded queue. A lane
//! takes from the lane before it, so a graph is a chain of iterators; dropping its end stops all of it, and an error in
//! any lane comes out at the end, in place of the items that would have followed. Lanes do not know what the work is; the
//! one thing here that does is `LabelUpdates`, the overlap of label updates with training.
//!
//! Lanes do not change what is computed, nor in which order: every lane has one thread and hands its items on in the order
//! in which it took them. What a lane computes with many threads (features, sums) it does in the pool that all share, so
//! lanes overlap the work that has one thread, and the ends of the work that has many, without more threads than cores
//! ever competing for long.
//!
//! What fails, fails once: the first error of a chain, or what a panic said, is what its end gets, and by then every lane
//! has been told to stop. A lane that does not stop is left to itself: it owns all that it works on. Only what the thread
//! at the end does itself, such as a step of training, cannot be left: it is the caller's own.
//!
//! ```
//! use muso::scheduler::Scheduler;
//! # fn main() -> muso::Result<()> {
//! let scheduler = Scheduler::default();
//! let squares = scheduler.lane("squares", (1..=4_u64).map(|n| Ok(n * n)))?;
//! let halves = scheduler.lane("halves", squares.map(|item| item.map(|n| n as f64 / 2.0)))?;
//! assert_eq!(halves.collect::<muso::Result<Vec<_>>>()?, [0.5, 2.0, 4.5, 8.0]);
//! # Ok(())
//! # }
//! ```

mod lane;
mod trace;
#[cfg(feature = "nn")]
pub mod updates;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use lane::Lane;
pub use trace::{LaneUse, Span, Summary, Trace};
#[cfg(feature = "nn")]
pub(crate) use updates::append_product;
#[cfg(feature = "nn")]
pub use updates::{FeatureRows, LabelUpdates};

use crate::error::{Error, Result};

/// Hook that runs before a lane makes an item, with the lane's name and the number of the item; an error fails the
/// lane.
pub type Before = dyn Fn(&str, u64) -> Result<()> + Send + Sync;

/// Cancellation check, called again and again while something waits.
pub type Cancelled = dyn Fn() -> bool + Send + Sync;

/// Settings of the lanes of a run. Clones share the trace.
#[derive(Clone)]
pub struct Scheduler {
    /// Prefetch depth: items that a lane may be ahead of its consumer. 0 starts no threads and does one thing after the
    /// other.
    pub depth: usize,
    /// Timeout for a stall: how long nothing may happen in the lanes that an item comes through. A lane that is stuck,
    /// say in a network file system, is given up after that; one that is slow is not.
    pub patience: Duration,
    /// Trace that records the spans.
    pub trace: Trace,
    before: Option<Arc<Before>>,
    cancelled: Option<Arc<Cancelled>>,
}

impl Default for Scheduler {
    /// Two items ahead, ten minutes of patience, no trace.
    fn default() -> Self {
        Self {
            depth: 2,
            patience: Duration::from_secs(600),
            trace: Trace::off(),
            before: None,
            cancelled: None,
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("depth", &self.depth)
            .field("patience", &self.patience)
            .field("trace", &self.trace)
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Returns a scheduler without threads: each item is made when it is asked for.
    pub fn in_place() -> Self {
        Self::default().with_depth(0)
    }

    /// Sets the prefetch depth: `depth` items ahead.
    pub fn with_depth(self, depth: usize) -> Self {
        Self { depth, ..self }
    }

    /// Sets the timeout after which a stalled lane is given up.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Records what ran when in `trace`.
    pub fn with_trace(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    /// Sets a hook to call before each item: to slow a lane down, to look at it, or to make it fail in a test.
    pub fn with_before(
        self,
        before: impl Fn(&str, u64) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            before: Some(Arc::new(before)),
            ..self
        }
    }

    /// Sets a cancellation check. Once it returns true, the next item of every lane is [`Error::Interrupted`], also
    /// where one is being waited for.
    pub fn with_cancelled(self, cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            cancelled: Some(Arc::new(cancelled)),
            ..self
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|f| f())
    }

    /// Makes the items of `source` ahead of time, in a thread called after the lane.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn lane<T: Send + 'static>(
        &self,
        name: &'static str,
        source: impl Iterator<Item = Result<T>> + Send + 'static,
    ) -> Result<Lane<T>> {
        Lane::new(self, name, None, source)
    }

    /// Makes something of each item of a lane ahead of time, in a thread of its own. What it takes from ends with it even
    /// if `make` is stuck.
    ///
    /// # Errors
    /// If the system has no thread to give.
    pub fn through<A: Send + 'static, B: Send + 'static>(
        &self,
        name: &'static str,
        lane: Lane<A>,
        mut make: impl FnMut(u64, A) -> Result<B> + Send + 'static,
    ) -> Result<Lane<B>> {
        let below = lane.post().clone();
        let made = (0..).zip(lane).map(move |(n, item)| make(n, item?));
        Lane::new(self, name, Some(&below), made)
    }

    /// Makes item `number` of a lane on the thread that asks for it. It is noted like the items of a [`Lane`], and a
    /// panic is an error that names the lane; what `work` was changing is then not to be relied on.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::Lane`] for a panic.
    pub fn step<T>(
        &self,
        lane: &'static str,
        number: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let _doing = lane::doing(lane);
        let made = catch_unwind(AssertUnwindSafe(|| {
            self.before(lane, number)?;
            let _span = self.trace.span(lane, number);
            work()
        }));
        made.unwrap_or_else(|panic| Err(panicked(lane, &*panic)))
    }

    fn before(&self, lane: &str, number: u64) -> Result<()> {
        self.before.as_ref().map_or(Ok(()), |f| f(lane, number))
    }
}

/// Turns a panic's message into an error that names the lane.
pub(crate) fn panicked(lane: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    let said = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Error::Lane {
        lane: lane.to_owned(),
        problem: match said {
            Some(said) => format!("panicked: {said}"),
            None => "panicked".to_owned(),
        },
    }
}
