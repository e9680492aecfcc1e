//! Wall time of a run by phase.

use std::time::Instant;

use crate::outcome::Phase;

/// Measures one phase after the other.
pub(super) struct Clock {
    started: Instant,
    last: Instant,
    pub(super) phases: Vec<Phase>,
}

impl Clock {
    pub(super) fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            phases: Vec::new(),
        }
    }

    /// Ends the phase of this name, which began when the one before ended.
    pub(super) fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.push(Phase {
            name: name.into(),
            seconds: (now - self.last).as_secs_f64(),
        });
        self.last = now;
    }

    pub(super) fn total(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
