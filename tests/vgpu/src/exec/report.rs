//! Findings as they are made: one for each kind and instruction, with a count.

use std::collections::HashMap;

use crate::{
    check::{Finding, Kind, Site},
    program::{Kernel, Program},
};

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    /// Number of the block in the grid.
    pub block: u64,
    /// Number of the thread in its block.
    pub thread: u32,
}

#[derive(Debug)]
struct Seen {
    who: Who,
    message: String,
    count: u64,
}

/// The findings of one host thread.
#[derive(Debug, Default)]
pub(super) struct Reports {
    seen: HashMap<(Kind, u32), Seen>,
}

impl Reports {
    /// Adds a finding at an instruction; the message of the first one is kept.
    pub(super) fn add(&mut self, kind: Kind, pc: u32, who: Who, message: impl FnOnce() -> String) {
        self.add_many(kind, pc, who, 1, message);
    }

    fn add_many(
        &mut self,
        kind: Kind,
        pc: u32,
        who: Who,
        count: u64,
        message: impl FnOnce() -> String,
    ) {
        match self.seen.get_mut(&(kind, pc)) {
            Some(seen) => {
                seen.count += count;
                if who < seen.who {
                    seen.who = who;
                    seen.message = message();
                }
            }
            None => {
                let message = message();
                self.seen.insert(
                    (kind, pc),
                    Seen {
                        who,
                        message,
                        count,
                    },
                );
            }
        }
    }

    /// Takes over the findings of another host thread.
    pub(super) fn merge(&mut self, other: Self) {
        for ((kind, pc), seen) in other.seen {
            self.add_many(kind, pc, seen.who, seen.count, || seen.message);
        }
    }

    /// All findings, in the order of the instructions.
    pub(super) fn findings(
        self,
        program: &Program,
        kernel: &Kernel,
        grid: [u32; 3],
        block: [u32; 3],
    ) -> Vec<Finding> {
        let mut list: Vec<_> = self.seen.into_iter().collect();
        list.sort_unstable_by_key(|((kind, pc), _)| (*pc, *kind));
        list.into_iter()
            .map(|((kind, pc), seen)| {
                let (ptx_line, location) = kernel.code.places[pc as usize];
                Finding {
                    kind,
                    site: Site {
                        kernel: kernel.name.clone(),
                        ptx_line,
                        source: program.source(location),
                        block: unravel(seen.who.block, grid),
                        thread: unravel(u64::from(seen.who.thread), block),
                    },
                    message: seen.message,
                    count: seen.count,
                }
            })
            .collect()
    }
}

/// The index in three dimensions of a number, x fastest.
pub(super) fn unravel(number: u64, extent: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = extent.map(|e| u64::from(e.max(1)));
    [
        (number % x) as u32,
        (number / x % y) as u32,
        (number / (x * y)) as u32,
    ]
}
