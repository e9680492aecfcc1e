//! `muso head --exact` beside `muso head` on the same file.

use anyhow::Result;
use muso::engine::Matrix;
use muso::engine::exact::DEFAULT_BITS;

use super::files::{Input, RANGE};
use super::processes::{Processes, head};
use super::{Check, Limit, PeerMeasurement, Side, Turns, mebibytes};

/// Shares of the rows, in percent, that are put beyond the grid.
pub(super) const BEYOND: [usize; 2] = [1, 50];
/// Tolerance between a head of exact sums and ours in f64, for what the grid moves: a part in 2^bits, times the
/// condition of the system.
const TOLERANCE: f64 = 1e-4;
/// Largest resident memory of a process, whatever the rows.
const MEMORY_LIMIT: u64 = 100 << 20;

/// One way to ask for exact sums, and what its runs gave.
pub(super) struct Exact {
    bits: u32,
    /// Given, or else recorded in a pass of its own.
    given: bool,
    /// Percent of the rows that are beyond it.
    beyond: usize,
    turns: Turns,
}

impl Exact {
    fn new(bits: u32, given: bool) -> Self {
        Self {
            bits,
            given,
            beyond: 0,
            turns: Turns::default(),
        }
    }

    /// Returns what runs on rows that are all on the grid.
    pub(super) fn all() -> Vec<Self> {
        let given = [20, DEFAULT_BITS, 27].map(|bits| Self::new(bits, true));
        given
            .into_iter()
            .chain([Self::new(DEFAULT_BITS, false)])
            .collect()
    }

    /// Returns the one on a grid of the default width that so many percent of the rows are beyond.
    pub(super) fn with_beyond(percent: usize) -> Self {
        Self {
            beyond: percent,
            ..Self::new(DEFAULT_BITS, true)
        }
    }

    /// Runs once more, after a run in f64 that took so long and gave that head.
    pub(super) fn add(
        &mut self,
        processes: &Processes<'_>,
        input: &Input,
        own_seconds: f64,
        own: &Matrix,
    ) -> Result<()> {
        let range = self.given.then_some(RANGE);
        let run = processes.exact_head(input, self.bits, range)?;
        let found = head(input, "exact")?;
        self.turns.add(&run, own_seconds, &found, own);
        Ok(())
    }

    /// Runs once more, after one more run in f64.
    pub(super) fn add_beside(
        &mut self,
        processes: &Processes<'_>,
        input: &Input,
        plain: &mut Side,
        limit: Limit,
    ) -> Result<()> {
        plain.add(processes.head(input)?, limit)?;
        let own = head(input, "new")?;
        self.add(processes, input, plain.last(), &own)
    }

    fn name(&self) -> String {
        let grid = if self.given { "given" } else { "recorded" };
        let beyond = match self.beyond {
            0 => String::new(),
            percent => format!(", {percent} % beyond it"),
        };
        format!("exact, {} bits, {grid} grid{beyond}", self.bits)
    }

    /// Holds its memory against the limit.
    pub(super) fn memory(&self) -> Check {
        let memory = self.turns.memory;
        Check::new(
            memory.is_none_or(|bytes| bytes < MEMORY_LIMIT),
            format!(
                "muso head, {}: peak memory {}, limit {} MiB",
                self.name(),
                mebibytes(memory),
                MEMORY_LIMIT >> 20
            ),
        )
    }

    pub(super) fn finish(self) -> PeerMeasurement {
        let name = self.name();
        self.turns.finish(name, TOLERANCE)
    }
}
