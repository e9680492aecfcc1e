//! What can be asked of a run: rows, head, objective and what to find out.

use crate::data::{FeatureRows, Forget, Head};
use crate::engine::Dtype;
use crate::gram::exact::ExactParams;
use crate::gram::shard::Shard;

/// Objective that the head minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Objective {
    /// Least squares with a ridge: ½‖ZW − Y‖² + ½λ‖W − w₀‖².
    Ridge,
    /// The interpolating fit that is nearest to w₀.
    Interpolate,
}

impl Objective {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ridge => "ridge",
            Self::Interpolate => "interpolate",
        }
    }
}

/// Source of the targets that the retained rows are fitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The labels or targets of the retained rows.
    Labels,
    /// The given head, trained on all rows.
    Head,
}

impl Source {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Head => "head",
        }
    }
}

/// Sums over rows, and what messages call them.
#[derive(Clone, Debug)]
pub struct NamedSums {
    /// Sums over rows.
    pub shard: Shard,
    /// The file that they are from, or what else they are called.
    pub name: String,
}

/// Parameters of a run. Start from [`Params::new`] and set what differs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Params<'a> {
    /// The head that was trained on all rows.
    pub head: Head,
    /// The rows, with labels or targets. With sums, those to be subtracted.
    pub rows: Option<FeatureRows<'a>>,
    /// Sums over the rows, in place of the rows.
    pub sums: Option<NamedSums>,
    /// The head before training; zero when not given.
    pub init: Option<Head>,
    /// The rows to forget; with sums, besides those that they have as forgotten.
    pub forget: Option<Forget>,
    /// The seed of what `forget` draws.
    pub seed: u64,
    /// `None`: ridge when λ > 0 is given or at least as many rows are retained as there are features, else interpolate.
    pub objective: Option<Objective>,
    /// `None`: labels for ridge, head for interpolate.
    pub source: Option<Source>,
    /// λ. Needed for ridge; 0 for interpolate when not given.
    pub ridge: Option<f64>,
    /// Leaves the bias out of the ridge, which then holds the weights alone.
    pub free_bias: bool,
    /// Sums in integers, where asked for; exact `sums` are exact without it.
    pub exact: Option<ExactParams>,
    /// Makes a second pass that verifies the head.
    pub verify: bool,
    /// Storage type of the new head and the labels. The report is about the head as stored; labels are those of the
    /// head before rounding, rounded once.
    pub dtype: Dtype,
}

impl<'a> Params<'a> {
    /// Returns the defaults for a head: no rows yet, nothing to forget, stored in f64.
    pub fn new(head: Head) -> Self {
        Self {
            head,
            rows: None,
            sums: None,
            init: None,
            forget: None,
            seed: 0,
            objective: None,
            source: None,
            ridge: None,
            free_bias: false,
            exact: None,
            verify: false,
            dtype: Dtype::F64,
        }
    }
}
