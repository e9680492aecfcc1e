//! Listening to a training run: how far it is, which step comes next, what an epoch left, and whether to stop.
//!
//! A [`Session`] tells a [`Watch`]. A method or a run that wants to do something at one of these moments wraps the watch
//! that it was given (the decorator pattern): it names that watch as [`Watch::inner`] and overrides only what it changes;
//! every other event reaches the inner watch by itself. [`Beside`] and [`InPhase`] translate to and from
//! [`Progress`], which knows phases but no sessions.
//!
//! ```
//! use muso::train::Watch;
//!
//! /// Counts the steps, and lets another watch hear everything.
//! struct Counting<'a>(usize, &'a mut dyn Watch);
//!
//! impl Watch for Counting<'_> {
//!     fn inner(&mut self) -> Option<&mut dyn Watch> {
//!         Some(self.1)
//!     }
//!
//!     fn before_step(&mut self, rows: &[usize]) -> muso::Result<()> {
//!         self.0 += 1;
//!         self.1.before_step(rows)
//!     }
//! }
//!
//! let mut nobody = ();
//! let mut counting = Counting(0, &mut nobody);
//! counting.before_step(&[3, 1])?;
//! assert!(counting.rows(2, 10));
//! assert_eq!(counting.0, 1);
//! # Ok::<(), muso::Error>(())
//! ```

use muso_models::{FeatureNet, Network};

use super::network::Session;
use crate::error::Result;
use crate::labels::LabelUpdate;
use crate::progress::Progress;

/// Hears how far a session is and sees it after every epoch. Every event that an implementation does not override goes
/// to [`Watch::inner`].
pub trait Watch<N: FeatureNet = Network> {
    /// Returns the watch that hears what this one does not override. A watch that wraps no other has none.
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        None
    }

    /// Hears that `done` of the `total` rows that the run will see are behind it. Returning false asks the run to stop.
    fn rows(&mut self, done: u64, total: u64) -> bool {
        self.inner().is_none_or(|inner| inner.rows(done, total))
    }

    /// Hears that `done` of `total` units of other work, such as extracting features, are behind it. Returning false
    /// asks the run to stop.
    fn other(&mut self, phase: &str, done: u64, total: u64) -> bool {
        self.inner()
            .is_none_or(|inner| inner.other(phase, done, total))
    }

    /// Hears that a step is about to be done on these rows. An error ends the run.
    fn before_step(&mut self, rows: &[usize]) -> Result<()> {
        match self.inner() {
            Some(inner) => inner.before_step(rows),
            None => Ok(()),
        }
    }

    /// Hears of an update of the forgotten rows' labels, when what it changed is known.
    fn label_update(&mut self, update: &LabelUpdate) {
        if let Some(inner) = self.inner() {
            inner.label_update(update);
        }
    }

    /// Sees the session after an epoch. An error ends the run.
    fn epoch(&mut self, session: &Session<N>) -> Result<()> {
        match self.inner() {
            Some(inner) => inner.epoch(session),
            None => Ok(()),
        }
    }
}

/// Hears nothing and never stops a run.
impl<N: FeatureNet> Watch<N> for () {}

/// Lets a [`Watch`] hear of work that is not training.
pub struct Beside<'a, N: FeatureNet = Network>(pub &'a mut dyn Watch<N>);

impl<N: FeatureNet> Progress for Beside<'_, N> {
    fn at(&mut self, phase: &str, done: u64, total: u64) -> bool {
        self.0.other(phase, done, total)
    }
}

/// Lets a [`Progress`] hear of training, as a phase of the given name.
pub struct InPhase<'a>(pub &'static str, pub &'a mut dyn Progress);

impl<N: FeatureNet> Watch<N> for InPhase<'_> {
    fn rows(&mut self, done: u64, total: u64) -> bool {
        self.1.at(self.0, done, total)
    }

    fn other(&mut self, phase: &str, done: u64, total: u64) -> bool {
        self.1.at(phase, done, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// Notes what it hears; asks to stop at the end of any work, and refuses a step without rows.
    #[derive(Default)]
    struct Noting(Vec<String>);

    impl Watch for Noting {
        fn rows(&mut self, done: u64, total: u64) -> bool {
            self.0.push(format!("{done} of {total} rows"));
            done < total
        }

        fn other(&mut self, phase: &str, done: u64, total: u64) -> bool {
            self.0.push(format!("{phase}, {done} of {total}"));
            done < total
        }

        fn label_update(&mut self, update: &LabelUpdate) {
            self.0.push(format!("{} of the labels", update.changed));
        }

        fn before_step(&mut self, rows: &[usize]) -> Result<()> {
            self.0.push(format!("step on {rows:?}"));
            if rows.is_empty() {
                return Err(Error::Interrupted);
            }
            Ok(())
        }
    }

    /// Changes nothing.
    struct Plain<'a>(&'a mut dyn Watch);

    impl Watch for Plain<'_> {
        fn inner(&mut self) -> Option<&mut dyn Watch> {
            Some(self.0)
        }
    }

    #[test]
    fn a_decorator_forwards_every_event_once_and_its_answer() {
        let mut noting = Noting::default();
        let mut inner = Plain(&mut noting);
        let mut outer = Plain(&mut inner);
        assert!(outer.rows(1, 2) && !outer.rows(2, 2));
        assert!(outer.other("features", 1, 2) && !outer.other("features", 2, 2));
        outer.before_step(&[7]).unwrap();
        outer.before_step(&[]).unwrap_err();
        outer.label_update(&LabelUpdate {
            changed: 0.25,
            ..LabelUpdate::default()
        });
        assert!(!Beside(&mut outer).at("labels", 3, 3));
        assert_eq!(
            noting.0,
            [
                "1 of 2 rows",
                "2 of 2 rows",
                "features, 1 of 2",
                "features, 2 of 2",
                "step on [7]",
                "step on []",
                "0.25 of the labels",
                "labels, 3 of 3",
            ]
        );
    }

    #[test]
    fn a_phase_names_training_and_passes_other_work_on() {
        struct Phases(Vec<String>);
        impl Progress for Phases {
            fn at(&mut self, phase: &str, done: u64, total: u64) -> bool {
                self.0.push(format!("{phase} {done}/{total}"));
                true
            }
        }
        let mut phases = Phases(Vec::new());
        let watch: &mut dyn Watch = &mut InPhase("unlearning", &mut phases);
        assert!(watch.rows(1, 4) && watch.other("extracting features", 2, 4));
        watch.before_step(&[0]).unwrap();
        assert_eq!(phases.0, ["unlearning 1/4", "extracting features 2/4"]);
    }
}
