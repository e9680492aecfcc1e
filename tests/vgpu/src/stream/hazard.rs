//! Who touched which bytes last, and whether that was ordered.
//!
//! For every byte the map holds the last write and, for each stream, the last read since. Bytes with the same history
//! share an interval. Work is recorded when it runs; a pair of accesses with at least one write is a hazard when the
//! clock of the later one does not cover the earlier one. Any order of execution that respects the program's own
//! edges finds it: the pair is unordered whichever of the two the device happens to run first.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::clock::{Clock, Point};

/// One access by a piece of work.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Position of the work.
    pub(super) point: Point,
    /// Number of the work in the order in which the device ran it.
    pub(super) order: u64,
    /// The work in words: "kernel `scale` on stream 2".
    pub(super) what: Arc<str>,
    /// Whether it frees the memory: whatever comes after that is wrong, ordered or not.
    pub(super) frees: bool,
}

/// An earlier access that nothing orders before the one being recorded, or that freed the memory.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    /// The earlier access.
    pub(super) earlier: Access,
    /// Whether the earlier one wrote.
    pub(super) earlier_wrote: bool,
    /// The bytes in question, half open.
    pub(super) bytes: (u64, u64),
}

#[derive(Clone, Debug, Default)]
struct History {
    write: Option<Access>,
    reads: Vec<Access>,
}

impl History {
    fn same(&self, other: &Self) -> bool {
        let points = |h: &Self| h.write.as_ref().map(|w| w.point);
        points(self) == points(other)
            && self.reads.len() == other.reads.len()
            && self
                .reads
                .iter()
                .zip(&other.reads)
                .all(|(a, b)| a.point == b.point)
    }
}

#[derive(Clone, Debug)]
struct Interval {
    end: u64,
    history: History,
}

/// Last accesses of every byte of one address space.
#[derive(Debug, Default)]
pub(super) struct AccessMap(BTreeMap<u64, Interval>);

impl AccessMap {
    /// Records a read of `[start, end)` and returns the writes that it is not ordered after.
    pub(super) fn read(
        &mut self,
        (start, end): (u64, u64),
        access: &Access,
        clock: &Clock,
    ) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        if start >= end {
            return conflicts;
        }
        self.split(start);
        self.split(end);
        let known: Vec<(u64, u64)> = self.0.range(start..end).map(|(&s, i)| (s, i.end)).collect();
        let mut from = start;
        for (s, e) in known.into_iter().chain([(end, end)]) {
            if from < s {
                let history = History {
                    write: None,
                    reads: vec![access.clone()],
                };
                self.0.insert(from, Interval { end: s, history });
            }
            from = e;
            let Some(interval) = self.0.get_mut(&s).filter(|_| s < e) else {
                continue;
            };
            let history = &mut interval.history;
            if let Some(write) = history
                .write
                .as_ref()
                .filter(|w| w.frees || !clock.covers(w.point))
            {
                note(&mut conflicts, write, true, (s, e));
            }
            history
                .reads
                .retain(|r| r.point.stream != access.point.stream);
            history.reads.push(access.clone());
        }
        self.merge(start, end);
        conflicts
    }

    /// Records a write of `[start, end)` and returns the accesses that it is not ordered after.
    pub(super) fn write(
        &mut self,
        (start, end): (u64, u64),
        access: &Access,
        clock: &Clock,
    ) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        if start >= end {
            return conflicts;
        }
        self.split(start);
        self.split(end);
        let covered: Vec<u64> = self.0.range(start..end).map(|(&s, _)| s).collect();
        for s in covered {
            let Some(interval) = self.0.remove(&s) else {
                continue;
            };
            for (earlier, wrote) in interval
                .history
                .write
                .iter()
                .map(|w| (w, true))
                .chain(interval.history.reads.iter().map(|r| (r, false)))
            {
                if earlier.frees || !clock.covers(earlier.point) {
                    note(&mut conflicts, earlier, wrote, (s, interval.end));
                }
            }
        }
        let history = History {
            write: Some(access.clone()),
            reads: Vec::new(),
        };
        self.0.insert(start, Interval { end, history });
        self.merge(start, end);
        conflicts
    }

    /// The accesses to `[start, end)` that `clock` does not cover.
    pub(super) fn not_covered(&self, (start, end): (u64, u64), clock: &Clock) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        let first = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(&s, _)| s);
        for (&s, interval) in self.0.range(first..end).filter(|(_, i)| i.end > start) {
            let history = &interval.history;
            for (earlier, wrote) in history
                .write
                .iter()
                .map(|w| (w, true))
                .chain(history.reads.iter().map(|r| (r, false)))
            {
                if !clock.covers(earlier.point) {
                    note(
                        &mut conflicts,
                        earlier,
                        wrote,
                        (s.max(start), interval.end.min(end)),
                    );
                }
            }
        }
        conflicts
    }

    /// Whether work that ran at `order` or later wrote any byte of `[start, end)`.
    pub(super) fn written_since(&self, (start, end): (u64, u64), order: u64) -> bool {
        let first = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(&s, _)| s);
        self.0.range(first..end).any(|(_, i)| {
            i.end > start && i.history.write.as_ref().is_some_and(|w| w.order >= order)
        })
    }

    /// Forgets `[start, end)`: the memory is gone.
    pub(super) fn forget(&mut self, (start, end): (u64, u64)) {
        if start >= end {
            return;
        }
        self.split(start);
        self.split(end);
        let gone: Vec<u64> = self.0.range(start..end).map(|(&s, _)| s).collect();
        for s in gone {
            self.0.remove(&s);
        }
    }

    /// Forgets everything: the host has waited for all work, so all of it comes before whatever follows.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn split(&mut self, at: u64) {
        if let Some((_, interval)) = self.0.range_mut(..at).next_back()
            && interval.end > at
        {
            let tail = Interval {
                end: interval.end,
                history: interval.history.clone(),
            };
            interval.end = at;
            self.0.insert(at, tail);
        }
    }

    /// Joins neighbours with one history from just before `start` to just after `end`.
    fn merge(&mut self, start: u64, end: u64) {
        let first = self.0.range(..start).next_back().map_or(start, |(&s, _)| s);
        let mut keys: Vec<u64> = self
            .0
            .range((Bound::Included(first), Bound::Included(end)))
            .map(|(&s, _)| s)
            .collect();
        let mut left = match keys.first() {
            Some(&key) => key,
            None => return,
        };
        for right in keys.drain(1..) {
            let joins = match (self.0.get(&left), self.0.get(&right)) {
                (Some(l), Some(r)) => l.end == right && l.history.same(&r.history),
                _ => false,
            };
            if !joins {
                left = right;
            } else if let Some(gone) = self.0.remove(&right)
                && let Some(kept) = self.0.get_mut(&left)
            {
                kept.end = gone.end;
            }
        }
    }
}

/// One conflict for each earlier piece of work, over all its bytes.
fn note(conflicts: &mut Vec<Conflict>, earlier: &Access, earlier_wrote: bool, bytes: (u64, u64)) {
    let known = conflicts
        .iter_mut()
        .find(|c| c.earlier.point == earlier.point && c.earlier_wrote == earlier_wrote);
    match known {
        Some(conflict) => {
            conflict.bytes = (conflict.bytes.0.min(bytes.0), conflict.bytes.1.max(bytes.1))
        }
        None => conflicts.push(Conflict {
            earlier: earlier.clone(),
            earlier_wrote,
            bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(stream: u32, sequence: u64) -> Access {
        Access {
            point: Point { stream, sequence },
            order: sequence,
            what: "work".into(),
            frees: false,
        }
    }

    fn knows(points: &[(u32, u64)]) -> Clock {
        let mut clock = Clock::default();
        for &(stream, sequence) in points {
            clock.advance(Point { stream, sequence });
        }
        clock
    }

    #[test]
    fn a_read_conflicts_with_an_unordered_write_only() {
        let mut map = AccessMap::default();
        assert!(map.write((100, 200), &access(1, 1), &knows(&[])).is_empty());
        let conflicts = map.read((150, 250), &access(2, 1), &knows(&[]));
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].bytes, (150, 200));
        assert!(
            map.read((150, 250), &access(3, 1), &knows(&[(1, 1)]))
                .is_empty()
        );
        assert!(
            map.read((200, 300), &access(4, 1), &knows(&[])).is_empty(),
            "nobody wrote there"
        );
    }

    #[test]
    fn a_write_conflicts_with_every_unordered_reader() {
        let mut map = AccessMap::default();
        map.read((0, 64), &access(1, 1), &knows(&[]));
        map.read((32, 96), &access(2, 1), &knows(&[]));
        assert_eq!(
            map.write((0, 96), &access(3, 1), &knows(&[(1, 1)])).len(),
            1
        );
        assert!(
            map.write((0, 96), &access(3, 2), &knows(&[(3, 1)]))
                .is_empty(),
            "readers before a write are history"
        );
    }

    #[test]
    fn intervals_with_one_history_are_kept_as_one() {
        let mut map = AccessMap::default();
        for k in 0..1000 {
            map.write((k * 32, k * 32 + 32), &access(1, 1), &knows(&[]));
        }
        assert_eq!(map.0.len(), 1);
        map.read((64, 128), &access(2, 1), &knows(&[(1, 1)]));
        assert_eq!(map.0.len(), 3);
        map.forget((96, 112));
        assert_eq!(map.0.len(), 4);
        assert!(map.not_covered((96, 112), &knows(&[])).is_empty());
        assert_eq!(map.not_covered((0, 4096), &knows(&[(1, 1)])).len(), 1);
    }

    #[test]
    fn whatever_follows_a_free_is_wrong() {
        let mut map = AccessMap::default();
        let free = Access {
            frees: true,
            ..access(1, 1)
        };
        map.write((0, 64), &free, &knows(&[]));
        assert_eq!(map.read((0, 4), &access(1, 2), &knows(&[(1, 1)])).len(), 1);
        assert_eq!(map.write((8, 9), &access(1, 3), &knows(&[(1, 2)])).len(), 1);
        assert!(map.read((64, 68), &access(1, 4), &knows(&[])).is_empty());
    }

    /// Against a map that keeps every byte apart.
    #[test]
    fn agrees_with_a_byte_by_byte_map() {
        let mut map = AccessMap::default();
        let mut write: Vec<Option<Point>> = vec![None; 64];
        let mut reads: Vec<Vec<Point>> = vec![Vec::new(); 64];
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for sequence in 1..2000 {
            let (start, length, stream) = (next(60), 1 + next(8), next(4) as u32);
            let end = (start + length).min(64);
            let known = sequence - next(6).min(sequence);
            let clock = knows(&[(0, known), (1, known), (2, known), (3, known)]);
            let a = access(stream, sequence);
            let range = start as usize..end as usize;
            if next(2) == 0 {
                let expected = range.clone().any(|b| {
                    write[b].is_some_and(|p| !clock.covers(p))
                        || reads[b].iter().any(|&p| !clock.covers(p))
                });
                assert_eq!(
                    !map.write((start, end), &a, &clock).is_empty(),
                    expected,
                    "write {sequence}"
                );
                for b in range {
                    write[b] = Some(a.point);
                    reads[b].clear();
                }
            } else {
                let expected = range
                    .clone()
                    .any(|b| write[b].is_some_and(|p| !clock.covers(p)));
                assert_eq!(
                    !map.read((start, end), &a, &clock).is_empty(),
                    expected,
                    "read {sequence}"
                );
                for b in range {
                    reads[b].retain(|p| p.stream != stream);
                    reads[b].push(a.point);
                }
            }
        }
    }
}
