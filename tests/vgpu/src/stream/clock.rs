//! Vector clocks over streams.

use std::collections::BTreeMap;

/// A stream of the device; numbers are never given out twice.
pub type StreamId = u32;

/// The position of a piece of work: its stream and its number there, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// The stream.
    pub stream: StreamId,
    /// Which piece of work of that stream.
    pub sequence: u64,
}

/// What is known to have come before: of every stream, up to which piece of work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(BTreeMap<StreamId, u64>);

impl Clock {
    /// Whether the work at `point` is known to have come before.
    pub fn covers(&self, point: Point) -> bool {
        self.0
            .get(&point.stream)
            .is_some_and(|&known| known >= point.sequence)
    }

    /// Adds that the work at `point` came before.
    pub fn advance(&mut self, point: Point) {
        let known = self.0.entry(point.stream).or_insert(0);
        *known = (*known).max(point.sequence);
    }

    /// Adds everything that `other` knows.
    pub fn join(&mut self, other: &Self) {
        for (&stream, &sequence) in &other.0 {
            self.advance(Point { stream, sequence });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_knows_what_both_knew_and_nothing_else() {
        let at = |stream, sequence| Point { stream, sequence };
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.advance(at(1, 5));
        b.advance(at(1, 3));
        b.advance(at(2, 7));
        a.join(&b);
        assert!(a.covers(at(1, 5)) && a.covers(at(2, 7)));
        assert!(!a.covers(at(1, 6)) && !a.covers(at(3, 1)));
        assert!(!b.covers(at(1, 4)));
    }
}
