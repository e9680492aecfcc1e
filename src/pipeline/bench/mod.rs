//! `muso bench`: how fast the operations are on a device, how near that is to what the device can do, and how it
//! compares with others.
//!
//! A [`Measurement`] is one operation at one shape: its time, and the operations and bytes that it cannot do without.
//! The limit is the time that the device would need for those at its peak, whichever of the two takes longer. What a
//! virtual GPU says of time is modelled, and is marked so wherever it is shown.
//!
//! On the processor ([`cpu`]) a round times ours and then every peer on the same arrays, and ratios are taken within
//! rounds: the speed of a shared machine swings, and what swings for both sides cancels. The machine's peak is measured
//! in every round for the same reason. Results are compared before anything is timed. [`scaling`] and [`mod@head`] are
//! two further questions: how time grows with the rows, and how the whole program compares with a script.
//!
//! [`Baseline`] is an earlier report that a later one is held against.
//!
//! ```
//! use muso::engine::CpuEngine;
//! use muso::pipeline::bench::{Group, Options, Peers, cpu};
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(Some(1))?;
//! let options = Options { rounds: Some(1), quick: true, peers: Peers::None, ..Options::default() };
//! let report = cpu::run(&engine, &[Group::Leverage], &options, &mut ())?;
//! assert!(report.to_text().contains("leverage"));
//! # Ok(())
//! # }
//! ```

mod baseline;
mod case;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod head;
mod inputs;
#[cfg(feature = "nn")]
pub mod lanes;
mod page;
mod peers;
mod report;
pub mod scaling;
mod spread;
mod temporary;
mod work;

use std::path::PathBuf;

pub use baseline::{Baseline, Comparison};
pub use report::BenchReport;
pub use spread::Spread;
pub use work::{Task, Work, tasks};

use crate::engine::Peak;
use crate::error::{Error, Result};

/// Operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Sums over rows: G = ZᵀZ and ZᵀY.
    Gram,
    /// Factor and solve.
    Cholesky,
    /// Products with feature rows, kernel matrices and random features.
    Projection,
    /// A whole update: sums, factor, solve and projection.
    Update,
    /// Random features; on a GPU they are part of `Projection`.
    Random,
    /// Leverage scores; on the processor only.
    Leverage,
    /// Features and training steps of networks; on the processor only, and not among all.
    #[cfg(feature = "nn")]
    Networks,
}

impl Group {
    /// All that the processor is measured by, in the order of the flow.
    pub const ALL: [Self; 6] = [
        Self::Gram,
        Self::Cholesky,
        Self::Projection,
        Self::Update,
        Self::Random,
        Self::Leverage,
    ];

    /// All that a GPU is measured by.
    pub const DEVICE: [Self; 4] = [Self::Gram, Self::Cholesky, Self::Projection, Self::Update];

    /// As the command line spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gram => "gram",
            Self::Cholesky => "cholesky",
            Self::Projection => "projection",
            Self::Update => "update",
            Self::Random => "random",
            Self::Leverage => "leverage",
            #[cfg(feature = "nn")]
            Self::Networks => "networks",
        }
    }
}

/// Whom to compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// All that are there, with this interpreter for those in Python; `MUSO_PYTHON` or `python3` where none is named.
    Installed(Option<PathBuf>),
    /// Nobody.
    #[default]
    None,
}

impl Peers {
    /// The interpreter to try.
    pub(super) fn interpreter(&self) -> Option<PathBuf> {
        let Self::Installed(named) = self else {
            return None;
        };
        let from_environment = || std::env::var_os("MUSO_PYTHON").map(PathBuf::from);
        let found = named.clone().or_else(from_environment);
        Some(found.unwrap_or_else(|| "python3".into()))
    }
}

/// How to measure on the processor.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rounds; each measurement has its own number where none is given.
    pub rounds: Option<usize>,
    /// Reduced sizes and at most three rounds, to see that it works.
    pub quick: bool,
    /// Whom to compare with.
    pub peers: Peers,
    /// Where temporary files go; the system's place where none is given.
    pub folder: Option<PathBuf>,
}

impl Options {
    /// Rounds of a measurement that has `usual` unless told otherwise.
    fn rounds(&self, usual: usize) -> Result<usize> {
        const QUICK: usize = 3;
        let rounds = self.rounds.unwrap_or(usual);
        if rounds == 0 {
            return Err(Error::Parameter {
                name: "--rounds",
                value: "0".into(),
                expected: "at least 1".into(),
            });
        }
        Ok(if self.quick {
            rounds.min(QUICK)
        } else {
            rounds
        })
    }
}

/// What a device can do in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// f64 operations, a multiply-add counted as two.
    pub flops: f64,
    /// Bytes to and from memory.
    pub bytes: f64,
}

impl Limit {
    /// The least time in which it can be done.
    pub fn seconds(&self, work: Work) -> f64 {
        (work.flops / self.flops).max(work.bytes / self.bytes)
    }
}

impl From<Peak> for Limit {
    fn from(peak: Peak) -> Self {
        Self {
            flops: peak.flops,
            bytes: peak.bytes,
        }
    }
}

/// One operation at one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// What was done, with the kernel's technique.
    pub operation: String,
    /// Of which sizes.
    pub shape: String,
    /// What it cannot do without.
    pub work: Work,
    /// Time of one run.
    pub seconds: Spread,
    /// The share of the limit that was reached, 0 to 1.
    pub share: Spread,
    /// What the device can do, the median over the rounds.
    pub limit: Limit,
    /// The most memory that was resident, where it was looked at.
    pub memory: Option<u64>,
    /// Others on the same arrays.
    pub peers: Vec<PeerMeasurement>,
}

/// Somebody else's time for the same.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMeasurement {
    /// The library, and how it was used.
    pub name: String,
    /// Time of one run.
    pub seconds: Spread,
    /// Its time over ours in the same round: above 1, ours is the faster one.
    pub ratio: Spread,
    /// How far its result is from ours.
    pub difference: f64,
    /// How far it may be; none where it is known to compute something else.
    pub tolerance: Option<f64>,
    /// The most memory that was resident, where it was looked at.
    pub memory: Option<u64>,
}

impl PeerMeasurement {
    /// Whether its result is ours but for rounding, as far as that was to be expected.
    pub fn agrees(&self) -> bool {
        // Written so that NaN fails.
        self.tolerance.is_none_or(|limit| self.difference <= limit)
    }
}

impl Measurement {
    /// Of rounds, each a time and what the device could do just then.
    pub fn new(operation: String, shape: String, work: Work, rounds: &[(f64, Limit)]) -> Self {
        let over = |value: &dyn Fn(&(f64, Limit)) -> f64| {
            Spread::of(&rounds.iter().map(value).collect::<Vec<_>>())
        };
        Self {
            operation,
            shape,
            work,
            seconds: over(&|(seconds, _)| *seconds),
            share: over(&|(seconds, limit)| limit.seconds(work) / seconds),
            limit: Limit {
                flops: over(&|(_, limit)| limit.flops).median,
                bytes: over(&|(_, limit)| limit.bytes).median,
            },
            memory: None,
            peers: Vec::new(),
        }
    }

    /// Whether arithmetic or memory sets the limit.
    pub fn bound(&self) -> &'static str {
        if self.work.flops / self.limit.flops >= self.work.bytes / self.limit.bytes {
            "arithmetic"
        } else {
            "memory"
        }
    }
}
