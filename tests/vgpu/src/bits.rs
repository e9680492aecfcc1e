//! Bitmaps that several threads set at once.
//!
//! The shadows of [`crate::memory`] and the footprints of [`crate::exec`] are made of them. All accesses are relaxed:
//! what a bit says is ordered by what orders the work itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// `count` zeros that cost nothing until they are touched.
pub(crate) fn zeroed_u64(count: usize) -> Box<[AtomicU64]> {
    let plain = Box::into_raw(vec![0u64; count].into_boxed_slice());
    // SAFETY: `AtomicU64` has the size, the alignment (8 on the 64-bit hosts this runs on) and the bit validity of
    // `u64`, and the pointer comes from a box that was just given up.
    unsafe { Box::from_raw(plain as *mut [AtomicU64]) }
}

/// `count` zeros that cost nothing until they are touched.
pub(crate) fn zeroed_u32(count: usize) -> Box<[AtomicU32]> {
    let plain = Box::into_raw(vec![0u32; count].into_boxed_slice());
    // SAFETY: as above, for `AtomicU32` and `u32`.
    unsafe { Box::from_raw(plain as *mut [AtomicU32]) }
}

/// A set of numbers below a bound.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: Box<[AtomicU64]>,
}

impl Bitmap {
    pub(crate) fn new(bits: u64) -> Self {
        Self {
            words: zeroed_u64(bits.div_ceil(64) as usize),
        }
    }

    /// Adds `count` numbers (at most 64) that do not cross a multiple of 64.
    #[inline(always)]
    pub(crate) fn set_within(&self, first: u64, count: u64) {
        debug_assert!(first % 64 + count <= 64);
        let mask = (u64::MAX >> (64 - count)) << (first % 64);
        let word = &self.words[(first / 64) as usize];
        // Most bits are set many times: a load is cheaper than a locked or.
        if word.load(Relaxed) & mask != mask {
            word.fetch_or(mask, Relaxed);
        }
    }

    /// Whether `count` numbers (at most 64) that do not cross a multiple of 64 are all in the set.
    #[inline(always)]
    pub(crate) fn has_within(&self, first: u64, count: u64) -> bool {
        debug_assert!(first % 64 + count <= 64);
        let mask = (u64::MAX >> (64 - count)) << (first % 64);
        self.words[(first / 64) as usize].load(Relaxed) & mask == mask
    }

    /// Adds the numbers from `first` to `end`, exclusive.
    pub(crate) fn set(&self, first: u64, end: u64) {
        for_words(first, end, |index, mask| {
            let word = &self.words[index];
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
            true
        });
    }

    /// Removes the numbers from `first` to `end`, exclusive.
    pub(crate) fn clear(&self, first: u64, end: u64) {
        for_words(first, end, |index, mask| {
            self.words[index].fetch_and(!mask, Relaxed);
            true
        });
    }

    /// The first number from `first` to `end`, exclusive, that is not in the set.
    pub(crate) fn first_missing(&self, first: u64, end: u64) -> Option<u64> {
        let mut found = None;
        for_words(first, end, |index, mask| {
            let missing = !self.words[index].load(Relaxed) & mask;
            if missing != 0 {
                found = Some(index as u64 * 64 + u64::from(missing.trailing_zeros()));
            }
            missing == 0
        });
        found
    }

    /// Whether a number is in the set.
    pub(crate) fn has(&self, bit: u64) -> bool {
        self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1
    }

    /// The runs of numbers in the set, as half-open ranges.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut out: Vec<(u64, u64)> = Vec::new();
        let mut push = |start: u64, end: u64| match out.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => out.push((start, end)),
        };
        for (index, word) in self.words.iter().enumerate() {
            let (mut word, base) = (word.load(Relaxed), index as u64 * 64);
            let mut at = 0;
            while word != 0 {
                let skip = word.trailing_zeros();
                // A shift by 64 is no shift at all.
                word = word.checked_shr(skip).unwrap_or(0);
                at += skip;
                let run = word.trailing_ones();
                push(base + u64::from(at), base + u64::from(at + run));
                word = word.checked_shr(run).unwrap_or(0);
                at += run;
            }
        }
        out
    }

    /// How many aligned groups of eight numbers have one in the set.
    pub(crate) fn groups_of_eight(&self) -> u64 {
        let groups = |word: u64| {
            word.to_le_bytes()
                .iter()
                .map(|&b| u64::from(b != 0))
                .sum::<u64>()
        };
        self.words
            .iter()
            .map(|word| groups(word.load(Relaxed)))
            .sum()
    }
}

/// Calls with each word's index and the mask of its bits in the range, until told to stop.
fn for_words(first: u64, end: u64, mut visit: impl FnMut(usize, u64) -> bool) {
    let mut at = first;
    while at < end {
        let upto = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (upto - at))) << (at % 64);
        if !visit((at / 64) as usize, mask) {
            return;
        }
        at = upto;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_give_back_what_was_set() {
        let map = Bitmap::new(300);
        map.set(3, 70);
        map.set(128, 192);
        map.set_within(192, 4);
        map.set(299, 300);
        assert_eq!(map.ranges(), [(3, 70), (128, 196), (299, 300)]);
        assert_eq!(map.first_missing(3, 71), Some(70));
        assert_eq!(map.first_missing(128, 196), None);
        map.clear(10, 12);
        assert_eq!(map.ranges()[..2], [(3, 10), (12, 70)]);
        assert!(map.has(9) && !map.has(10) && map.has_within(64, 6) && !map.has_within(64, 7));
        assert_eq!(map.groups_of_eight(), 9 + 9 + 1);
    }
}
