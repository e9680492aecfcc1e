//! The harness of `muso bench`: how fast the operations are on a device, how near that is to what the device can do, and
//! how it compares with others. A part of the program, and no part of the library; it uses what anybody may use.
//!
//! A [`Measurement`] is one operation at one shape: its time, and the operations and bytes that it cannot do without.
//! The limit is the time that the device would need for those at its peak, whichever of the two takes longer (the
//! roofline model). What a virtual GPU says of time is modelled, and is marked so wherever it is shown.
//!
//! On the processor ([`cpu`]) a round times ours and then every peer on the same arrays, and ratios are taken within
//! rounds: the speed of a shared machine swings, and what swings for both sides cancels. The machine's peak is measured
//! in every round for the same reason. Results are compared before anything is timed. [`exact`], [`scaling`] and
//! [`mod@head`] are further questions: what sums in integers cost, how the time of the engine's sums grows, and how the
//! whole program grows with its file and compares with a script.
//!
//! [`Baseline`] is an earlier report that a later one is held against. Errors of peers are texts, as everywhere in the
//! program; those of the library pass through as they are.

mod arrays;
mod baseline;
mod case;
pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod exact;
pub(crate) mod head;
mod inputs;
#[cfg(feature = "nn")]
pub(crate) mod lanes;
#[cfg(feature = "nn")]
mod network;
mod page;
mod peers;
mod reference;
mod report;
pub(crate) mod scaling;
mod spread;
mod temporary;
mod work;

use std::path::PathBuf;

use clap::ValueEnum;
use muso::engine::Peak;

pub(crate) use baseline::Baseline;
pub(crate) use report::{BenchReport, Check};
pub(crate) use spread::Spread;
pub(crate) use work::Work;

/// Operations that can be measured; the first line of each is its help text on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Sums over rows
    Gram,
    /// Factor and solve
    Cholesky,
    /// Products with rows, and on a GPU kernel matrices and random features
    Projection,
    /// A whole label update
    Update,
    /// Random features, on the processor
    Random,
    /// Leverage scores, on the processor
    Leverage,
    /// Features and training steps of networks, on the processor; not among all
    #[cfg(feature = "nn")]
    Networks,
    /// Exact sums at every width of the grid, on the processor; not among all
    Exact,
    /// How time grows with rows, columns and threads, on the processor; not among all
    Scaling,
    /// `muso head` from start to end, on the processor; not among all
    Head,
    /// Features and sums of images, in lanes and one after the other; alone
    #[cfg(feature = "nn")]
    Lanes,
}

impl Operation {
    /// All that the processor is measured by, in the order of the flow.
    pub(crate) const ALL: [Self; 6] = [
        Self::Gram,
        Self::Cholesky,
        Self::Projection,
        Self::Update,
        Self::Random,
        Self::Leverage,
    ];

    /// All that a GPU is measured by.
    pub(crate) const DEVICE: [Self; 4] =
        [Self::Gram, Self::Cholesky, Self::Projection, Self::Update];

    /// Returns the name that the command line has for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gram => "gram",
            Self::Cholesky => "cholesky",
            Self::Projection => "projection",
            Self::Update => "update",
            Self::Random => "random",
            Self::Leverage => "leverage",
            #[cfg(feature = "nn")]
            Self::Networks => "networks",
            Self::Exact => "exact",
            Self::Scaling => "scaling",
            Self::Head => "head",
            #[cfg(feature = "nn")]
            Self::Lanes => "lanes",
        }
    }
}

/// Says that a peer, or a process of our own, did not do its part.
fn failed(name: &str, why: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("the bench could not run {name}: {why}")
}

/// Refuses a number that is too small.
fn at_least(name: &'static str, value: usize, least: usize) -> muso::Result<()> {
    if value >= least {
        return Ok(());
    }
    Err(muso::Error::Parameter {
        name,
        value: value.to_string(),
        expected: format!("at least {least}"),
    })
}

/// Whom to compare with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peers {
    /// All that are there, with this interpreter for those in Python; `MUSO_PYTHON` or `python3` where none is named.
    Installed(Option<PathBuf>),
    /// Compare with nobody.
    #[default]
    None,
}

impl Peers {
    /// Returns the interpreter to try.
    fn interpreter(&self) -> Option<PathBuf> {
        let Self::Installed(named) = self else {
            return None;
        };
        let from_environment = || std::env::var_os("MUSO_PYTHON").map(PathBuf::from);
        let found = named.clone().or_else(from_environment);
        Some(found.unwrap_or_else(|| "python3".into()))
    }
}

/// Settings of a measurement on the processor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Rounds; each measurement has its own number where none is given.
    pub(crate) rounds: Option<usize>,
    /// Reduced sizes and at most three rounds, to see that it works.
    pub(crate) quick: bool,
    /// Whom to compare with.
    pub(crate) peers: Peers,
    /// Folder for temporary files; the system's where none is given.
    pub(crate) folder: Option<PathBuf>,
}

impl Options {
    /// Returns the rounds of a measurement that has `usual` unless told otherwise.
    fn rounds(&self, usual: usize) -> muso::Result<usize> {
        const QUICK: usize = 3;
        let rounds = self.rounds.unwrap_or(usual);
        at_least("`.rounds`", rounds, 1)?;
        Ok(if self.quick {
            rounds.min(QUICK)
        } else {
            rounds
        })
    }
}

/// Roofline limits of a device, per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// f64 operations, a multiply-add counted as two.
    pub(crate) flops: f64,
    /// Bytes to and from memory.
    pub(crate) bytes: f64,
}

impl Limit {
    /// Computes the least time in which the work can be done (the roofline).
    pub(crate) fn seconds(&self, work: Work) -> f64 {
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

/// An operation at one shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    /// Name of the operation, with the kernel's technique.
    pub(crate) operation: String,
    /// The sizes of the operation.
    pub(crate) shape: String,
    /// The operations and bytes that it cannot do without.
    pub(crate) work: Work,
    /// Time of one run.
    pub(crate) seconds: Spread,
    /// The share of the limit that was reached, 0 to 1.
    pub(crate) share: Spread,
    /// Limits of the device, the median over the rounds.
    pub(crate) limit: Limit,
    /// The most memory that was resident, where it was looked at.
    pub(crate) memory: Option<u64>,
    /// Others on the same arrays.
    pub(crate) peers: Vec<PeerMeasurement>,
}

/// Seconds over a size, for a plot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Title of the plot.
    pub(crate) title: String,
    /// Name of the size.
    pub(crate) size: &'static str,
    /// Names and points.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Somebody else's time for the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerMeasurement {
    /// The library, and how it was used.
    pub(crate) name: String,
    /// Time of one run.
    pub(crate) seconds: Spread,
    /// Ratio of its time to ours in the same round: above 1, ours is the faster one.
    pub(crate) ratio: Spread,
    /// Distance of its result from ours.
    pub(crate) difference: f64,
    /// Tolerance of that distance; `None` where it is known to compute something else.
    pub(crate) tolerance: Option<f64>,
    /// The most memory that was resident, where it was looked at.
    pub(crate) memory: Option<u64>,
}

impl PeerMeasurement {
    /// Returns whether its result is ours but for rounding, as far as that was to be expected.
    pub(crate) fn agrees(&self) -> bool {
        // Written so that NaN fails.
        self.tolerance.is_none_or(|limit| self.difference <= limit)
    }
}

impl Measurement {
    /// Makes a measurement of rounds, each a time and what the device could do just then.
    pub(crate) fn new(
        operation: String,
        shape: String,
        work: Work,
        rounds: &[(f64, Limit)],
    ) -> Self {
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

    /// Says whether arithmetic or memory sets the limit.
    pub(crate) fn bound(&self) -> &'static str {
        if self.work.flops / self.limit.flops >= self.work.bytes / self.limit.bytes {
            "arithmetic"
        } else {
            "memory"
        }
    }
}
