//! A block's shared memory and what is known of each granule.
//!
//! Time is the number of barriers that the block has passed. A granule remembers the warp that wrote it last and when,
//! and the warps that read it and since when. Two accesses of different warps are in order when a barrier that both
//! took part in lies between. The warps of a block run one at a time here, so nothing in this file is shared between
//! host threads.

use super::{
    lanes::LANES,
    report::{Reports, Who},
};
use crate::check::Kind;

/// The writer used an atomic.
const ATOMIC: u32 = 1;
/// The write is a `cp.async` that was not waited for.
const PENDING: u32 = 2;
/// The write was made by `cp.async`.
const COPIED: u32 = 4;

/// Greatest time that fits beside the warp and the flags.
const LAST_TIME: u32 = (1 << 24) - 1;

/// How an access counts for races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Plain,
    /// Atomics, volatile and strong accesses.
    Atomic,
    /// The issue of a `cp.async`.
    Pending,
    /// Its arrival.
    Landing,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hazard {
    pub kind: Kind,
    /// The other warp, where there is one.
    pub other: u32,
    pub other_wrote: bool,
    pub offset: u32,
}

/// The shared memory of a block.
#[derive(Debug)]
pub(super) struct Shared {
    words: Box<[u64]>,
    pub bytes: u32,
    shift: u32,
    /// Time, warp and flags of the last write; 0 for none.
    writers: Box<[u32]>,
    /// The warps that have read since `read_since`.
    readers: Box<[u32]>,
    read_since: Box<[u32]>,
    now: u32,
    /// Time of the last barrier of all warps.
    joined: u32,
    /// When each warp (row) last met each other (column) at a barrier.
    met: Box<[[u32; LANES]; LANES]>,
    /// Reads of what was never written, since the last barrier.
    suspects: Vec<Suspect>,
}

/// A read of shared memory that nothing had written. Whether that is all depends on what comes before the next
/// barrier: a write by another warp makes it a race, in which this reader came first by chance.
#[derive(Debug)]
struct Suspect {
    pc: u32,
    who: Who,
    offset: u32,
    bytes: u32,
}

impl Shared {
    pub(super) fn new(bytes: u32, shift: u32) -> Self {
        let granules = (bytes as usize).div_ceil(1 << shift);
        Self {
            words: vec![0; (bytes as usize).div_ceil(8)].into_boxed_slice(),
            bytes,
            shift,
            writers: vec![0; granules].into_boxed_slice(),
            readers: vec![0; granules].into_boxed_slice(),
            read_since: vec![0; granules].into_boxed_slice(),
            now: 1,
            joined: 1,
            met: Box::new([[0; LANES]; LANES]),
            suspects: Vec::new(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.words.fill(0);
        self.writers.fill(0);
        self.readers.fill(0);
        self.read_since.fill(0);
        self.now = 1;
        self.joined = 1;
        *self.met = [[0; LANES]; LANES];
        self.suspects.clear();
    }

    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    /// The host's address of the first byte, to tell pointers into it.
    pub(super) fn base(&self) -> usize {
        self.words.as_ptr() as usize
    }

    /// Writes bytes that are in bounds.
    pub(super) fn write(&mut self, offset: u32, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            let at = offset as usize + index;
            let shift = at % 8 * 8;
            let word = &mut self.words[at / 8];
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    /// Holds a read of what was never written until it is known what it was.
    pub(super) fn suspect(&mut self, pc: u32, who: Who, offset: u32, bytes: u32) {
        self.suspects.push(Suspect {
            pc,
            who,
            offset,
            bytes,
        });
    }

    /// Reports the reads of what was never written that turned out to be nothing else.
    pub(super) fn settle(&mut self, reports: &mut Reports) {
        for Suspect {
            pc, who, offset, ..
        } in self.suspects.drain(..)
        {
            reports.add(Kind::UninitialisedShared, pc, who, || {
                format!("a read of shared address {offset:#x}, which the block never wrote")
            });
        }
    }

    /// Drops the suspicion of reads of a granule that is being written; returns whether there was any.
    #[cold]
    fn absolve(&mut self, granule: usize) -> bool {
        let (start, size) = ((granule << self.shift) as u32, 1 << self.shift);
        let before = self.suspects.len();
        self.suspects
            .retain(|s| s.offset + s.bytes <= start || start + size <= s.offset);
        self.suspects.len() != before
    }

    /// Some warps meet at a barrier: those that wait, and those that only arrive. `all`: no other warp is left.
    pub(super) fn barrier(&mut self, waiting: u32, arrived: u32, all: bool) {
        if self.now == LAST_TIME {
            // Rather forget the past than mistake it.
            self.readers.fill(0);
            self.writers
                .iter_mut()
                .filter(|w| **w != 0)
                .for_each(|w| *w = 1 << 8 | *w & 0xff);
            self.read_since.fill(0);
            self.now = 2;
        }
        self.now += 1;
        if all && arrived & !waiting == 0 {
            self.joined = self.now;
            return;
        }
        let mut together = [0; LANES];
        for warp in 0..LANES {
            if arrived >> warp & 1 == 1 {
                for other in 0..LANES {
                    together[other] = together[other].max(self.met[warp][other]);
                }
            }
        }
        for warp in 0..LANES {
            if arrived >> warp & 1 == 1 {
                together[warp] = self.now;
            }
        }
        for warp in 0..LANES {
            if waiting >> warp & 1 == 1 {
                self.met[warp] = together;
            }
        }
    }

    /// Whether what `other` did at `time` is in order before what `warp` does now.
    fn ordered(&self, warp: u32, other: u32, time: u32) -> bool {
        time < self.joined || warp == other || self.met[warp as usize][other as usize] > time
    }

    fn granules(&self, offset: u32, bytes: u32) -> std::ops::RangeInclusive<usize> {
        (offset >> self.shift) as usize..=((offset + bytes - 1) >> self.shift) as usize
    }

    /// Notes a read of bytes that are in bounds.
    #[inline(always)]
    pub(super) fn note_read(
        &mut self,
        warp: u32,
        offset: u32,
        bytes: u32,
        manner: Manner,
    ) -> Option<Hazard> {
        let mut hazard = None;
        for granule in self.granules(offset, bytes) {
            let writer = self.writers[granule];
            if writer >> 8 >= self.joined || writer == 0 || writer & PENDING != 0 {
                hazard = hazard.or(self.judge_read(warp, granule, writer, manner));
            }
            if manner == Manner::Plain {
                if self.read_since[granule] < self.joined {
                    self.read_since[granule] = self.now;
                    self.readers[granule] = 1 << warp;
                } else {
                    self.readers[granule] |= 1 << warp;
                }
            }
        }
        hazard
    }

    fn judge_read(&self, warp: u32, granule: usize, writer: u32, manner: Manner) -> Option<Hazard> {
        let (time, other) = (writer >> 8, writer >> 3 & 31);
        let kind = if writer == 0 {
            Kind::UninitialisedShared
        } else if writer & PENDING != 0 {
            Kind::AsyncNotWaited
        } else if self.ordered(warp, other, time)
            || manner == Manner::Atomic && writer & ATOMIC != 0
        {
            return None;
        } else if writer & COPIED != 0 {
            Kind::AsyncNotWaited
        } else {
            Kind::SharedRace
        };
        Some(Hazard {
            kind,
            other,
            other_wrote: true,
            offset: (granule << self.shift) as u32,
        })
    }

    /// Notes a write to bytes that are in bounds.
    #[inline(always)]
    pub(super) fn note_write(
        &mut self,
        warp: u32,
        offset: u32,
        bytes: u32,
        manner: Manner,
    ) -> Option<Hazard> {
        let flags = match manner {
            Manner::Plain => 0,
            Manner::Atomic => ATOMIC,
            Manner::Pending => PENDING | COPIED,
            Manner::Landing => COPIED,
        };
        let stamp = self.now << 8 | warp << 3 | flags;
        let mut hazard = None;
        for granule in self.granules(offset, bytes) {
            let writer = self.writers[granule];
            let fresh_reader = self.read_since[granule] >= self.joined
                && self.readers[granule] & !(1 << warp) != 0;
            if fresh_reader || writer >> 8 >= self.joined || writer & PENDING != 0 {
                let mut found = self.judge_write(warp, granule, writer, manner);
                // The reader wanted what is only now on its way.
                if let Some(found) = &mut found
                    && !self.suspects.is_empty()
                    && self.absolve(granule)
                    && manner == Manner::Pending
                {
                    found.kind = Kind::AsyncNotWaited;
                }
                hazard = hazard.or(found);
            }
            self.writers[granule] = stamp;
        }
        hazard
    }

    fn judge_write(
        &self,
        warp: u32,
        granule: usize,
        writer: u32,
        manner: Manner,
    ) -> Option<Hazard> {
        let (time, other) = (writer >> 8, writer >> 3 & 31);
        let hazard = |kind, other, other_wrote| {
            Some(Hazard {
                kind,
                other,
                other_wrote,
                offset: (granule << self.shift) as u32,
            })
        };
        if writer & PENDING != 0 {
            // The copy that lands finds its own mark; anything else is written over or in between.
            if manner == Manner::Landing && other == warp {
                return None;
            }
            return hazard(Kind::AsyncNotWaited, other, true);
        }
        let both_atomic = manner == Manner::Atomic && writer & ATOMIC != 0;
        if writer != 0 && !both_atomic && !self.ordered(warp, other, time) {
            return hazard(Kind::SharedRace, other, true);
        }
        let since = self.read_since[granule];
        if since >= self.joined {
            let readers = self.readers[granule] & !(1 << warp);
            for other in (0..LANES as u32).filter(|o| readers >> o & 1 == 1) {
                if !self.ordered(warp, other, since) {
                    return hazard(Kind::SharedRace, other, false);
                }
            }
        }
        None
    }
}

/// Passes that a warp's request to shared memory takes: in all, and the fewest possible.
///
/// The memory has 32 banks of 4 bytes. Accesses of 8 bytes are served by halves of a warp, of 16 by quarters; one pass
/// gives each bank's one word to every lane that asks for it. `near`: all words are known to lie in different banks.
pub(super) fn passes(addresses: &[u32; LANES], mask: u32, bytes: u32, near: bool) -> (u64, u64) {
    let words = bytes.div_ceil(4);
    let lanes_at_once = (LANES as u32 / words.max(1)).max(1);
    let (mut passes, mut fewest) = (0, 0);
    let mut first_lane = 0;
    while first_lane < LANES as u32 {
        let group = (u64::from(mask) >> first_lane & ((1 << lanes_at_once) - 1)) as u32;
        if group != 0 {
            passes += if near {
                1
            } else {
                group_passes(addresses, group << first_lane, words)
            };
            fewest += 1;
        }
        first_lane += lanes_at_once;
    }
    (passes, fewest)
}

fn group_passes(addresses: &[u32; LANES], group: u32, words: u32) -> u64 {
    const EMPTY: u32 = u32::MAX;
    let mut first = [EMPTY; LANES];
    let mut count = [0u8; LANES];
    // Words beyond the first of their bank; at most one for each lane and word.
    let mut others = [0u32; LANES];
    let mut beyond = 0;
    let mut most = 1;
    let mut last = EMPTY;
    let mut rest = group;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let start = addresses[lane] / 4;
        if start == last {
            continue;
        }
        last = start;
        for word in start..start + words {
            let bank = word as usize % LANES;
            if first[bank] == word || others[..beyond].contains(&word) {
                continue;
            }
            if first[bank] == EMPTY {
                first[bank] = word;
            } else {
                others[beyond] = word;
                beyond += 1;
            }
            count[bank] += 1;
            most = most.max(count[bank]);
        }
    }
    u64::from(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided(stride: u32) -> [u32; LANES] {
        std::array::from_fn(|i| i as u32 * stride)
    }

    #[test]
    fn bank_conflicts_of_strides() {
        assert_eq!(passes(&strided(4), u32::MAX, 4, false), (1, 1));
        assert_eq!(passes(&strided(8), u32::MAX, 4, false), (2, 1));
        assert_eq!(passes(&strided(128), u32::MAX, 4, false), (32, 1));
        assert_eq!(passes(&strided(132), u32::MAX, 4, false), (1, 1));
        assert_eq!(passes(&strided(0), u32::MAX, 4, false), (1, 1));
        assert_eq!(passes(&strided(8), u32::MAX, 8, false), (2, 2));
        assert_eq!(passes(&strided(16), u32::MAX, 8, false), (4, 2));
        assert_eq!(passes(&strided(16), u32::MAX, 16, false), (4, 4));
        assert_eq!(passes(&strided(16), 0xff, 16, false), (1, 1));
        assert_eq!(passes(&strided(2), u32::MAX, 2, false), (1, 1));
    }

    #[test]
    fn a_barrier_orders_and_nothing_else_does() {
        let mut shared = Shared::new(64, 2);
        assert!(shared.note_write(0, 0, 4, Manner::Plain).is_none());
        assert!(shared.note_read(0, 0, 4, Manner::Plain).is_none());
        let race = shared.note_read(1, 0, 4, Manner::Plain).unwrap();
        assert_eq!((race.kind, race.other), (Kind::SharedRace, 0));
        shared.barrier(3, 3, true);
        assert!(shared.note_read(1, 0, 4, Manner::Plain).is_none());
        let race = shared.note_write(0, 0, 4, Manner::Plain).unwrap();
        assert_eq!(
            (race.kind, race.other, race.other_wrote),
            (Kind::SharedRace, 1, false)
        );
        let cold = shared.note_read(0, 8, 4, Manner::Plain).unwrap();
        assert_eq!(cold.kind, Kind::UninitialisedShared);
    }

    #[test]
    fn named_barriers_order_those_that_take_part() {
        let mut shared = Shared::new(64, 2);
        shared.note_write(0, 0, 4, Manner::Plain);
        shared.barrier(0b010, 0b011, false);
        assert!(shared.note_read(1, 0, 4, Manner::Plain).is_none());
        assert!(shared.note_read(2, 0, 4, Manner::Plain).is_some());
        // Warp 0 only arrived, so it is not behind what warp 1 did before.
        shared.note_write(1, 4, 4, Manner::Plain);
        assert!(shared.note_read(0, 4, 4, Manner::Plain).is_some());
    }

    #[test]
    fn copies_must_be_waited_for() {
        let mut shared = Shared::new(64, 2);
        assert!(shared.note_write(0, 0, 16, Manner::Pending).is_none());
        assert_eq!(
            shared.note_read(0, 4, 4, Manner::Plain).unwrap().kind,
            Kind::AsyncNotWaited
        );
        assert!(shared.note_write(0, 0, 16, Manner::Landing).is_none());
        assert!(shared.note_read(0, 4, 4, Manner::Plain).is_none());
        assert_eq!(
            shared.note_read(1, 4, 4, Manner::Plain).unwrap().kind,
            Kind::AsyncNotWaited
        );
        shared.barrier(3, 3, true);
        assert!(shared.note_read(1, 4, 4, Manner::Plain).is_none());
    }
}
