//! The front door: a head, rows and what to forget in; a head that never saw those rows out.
//!
//! ```
//! use muso::prelude::*;
//!
//! # fn main() -> muso::Result<()> {
//! // Six rows of three features, of two classes, and a head that was fitted to all of them with a ridge of 0.1.
//! let features: Vec<f32> = (0..18).map(|i| ((i * i) as f32).sin()).collect();
//! let labels = [0, 1, 0, 1, 1, 0];
//! let rows = FeatureRows::new(Rows::new(6, 3, features.as_slice()), Targets::Classes(&labels));
//! let blank = Head::new(Matrix::zeros(2, 3), None);
//! let head = blank.refit(&blank.sum(&rows).run()?).ridge(0.1).solve()?.head;
//!
//! let forgotten = head.forget(&rows, Forget::rows([1, 4])).ridge(0.1).verify(true).solve()?;
//! assert_eq!(forgotten.labels.rows, [1, 4]);
//! assert!(forgotten.report.verify.unwrap().distance_relative < 1e-12);
//! # Ok(())
//! # }
//! ```

use crate::data::{FeatureRows, Forget, Head};
use crate::engine::{AnyEngine, CpuEngine, Dtype};
use crate::error::Result;
use crate::gram::exact::GridChoice;
use crate::gram::shard::Shard;
use crate::outcome::HeadReport;
use crate::pipeline::gram::{self, Portion};
use crate::pipeline::head::{self, LabelSink, NamedSums, Objective, OptimalLabels, Params, Source};
use crate::progress::Progress;
use crate::scheduler::Scheduler;

impl Head {
    /// Starts forgetting rows that this head was trained on.
    ///
    /// The rows are in memory or in files. What comes out is the head that would have come out had the rows never been
    /// there: exactly for heads fitted by least squares, with the ridge that they were fitted with.
    ///
    /// ```no_run
    /// use muso::prelude::*;
    /// # fn main() -> muso::Result<()> {
    /// let rows = FeatureRows::file("train.safetensors");
    /// let new = Head::load("head.safetensors")?.forget(&rows, Forget::rows([12, 907])).ridge(1e-3).solve()?;
    /// new.head.save("new-head.safetensors")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget<'a>(&self, rows: &FeatureRows<'a>, what: Forget) -> Forgetting<'a> {
        let mut forgetting = Forgetting::new(self);
        forgetting.params.rows = Some(rows.clone());
        forgetting.params.forget = Some(what);
        forgetting
    }

    /// Starts fitting the head anew from sums, without the rows that were summed apart as
    /// [forgotten](Summing::forget); no row is read again.
    pub fn refit(&self, sums: &Shard) -> Forgetting<'static> {
        Forgetting::new(self).sums(sums)
    }

    /// Starts adding rows up: sums of several parts merge, and serve any ridge and any later request to forget.
    pub fn sum<'a>(&self, rows: &FeatureRows<'a>) -> Summing<'a> {
        Summing {
            params: gram::Params::new(rows.clone(), self.clone()),
            engine: None,
            scheduler: Scheduler::default(),
        }
    }
}

/// Describes a request to forget rows; [`solve`](Self::solve) carries it out. Every setting left out has a safe
/// default.
#[derive(Clone, Debug)]
#[must_use = "nothing is forgotten before `solve`"]
pub struct Forgetting<'a> {
    params: Params<'a>,
    engine: Option<AnyEngine>,
    scheduler: Scheduler,
}

/// The head that never saw the forgotten rows, and what is known about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Forgotten {
    /// The new head, under the names of the old one.
    pub head: Head,
    /// The optimal labels of the forgotten rows: trained towards these instead of their own, the old head ends at the
    /// new one. Empty where the rows were only in sums.
    pub labels: OptimalLabels,
    /// Distances, conditioning, premise, warnings and times.
    pub report: HeadReport,
}

impl<'a> Forgetting<'a> {
    fn new(head: &Head) -> Self {
        Self {
            params: Params::new(head.clone()),
            engine: None,
            scheduler: Scheduler::default(),
        }
    }

    /// Sets λ, the ridge that the head was trained with. Needed for the ridge objective.
    pub fn ridge(mut self, ridge: f64) -> Self {
        self.params.ridge = Some(ridge);
        self
    }

    /// Leaves the bias out of the ridge: λ then holds the weights alone, as scikit-learn has it.
    pub fn free_bias(mut self, free: bool) -> Self {
        self.params.free_bias = free;
        self
    }

    /// Sets the head before training; zero by default.
    pub fn init(mut self, init: &Head) -> Self {
        self.params.init = Some(init.clone());
        self
    }

    /// Sets what the head minimises. By default ridge, unless fewer rows are retained than there are features and no
    /// λ > 0 is given.
    pub fn objective(mut self, objective: Objective) -> Self {
        self.params.objective = Some(objective);
        self
    }

    /// Sets what says how the retained rows should be fitted. By default their labels for ridge, the given head for
    /// interpolation.
    pub fn source(mut self, source: Source) -> Self {
        self.params.source = Some(source);
        self
    }

    /// Makes a second pass that solves from the retained rows alone and measures the distance.
    pub fn verify(mut self, verify: bool) -> Self {
        self.params.verify = verify;
        self
    }

    /// Takes sums over all rows in place of the rows: only the rows to forget are read, and subtracted.
    pub fn sums(mut self, sums: &Shard) -> Self {
        self.params.sums = Some(NamedSums {
            shard: sums.clone(),
            name: "the sums".into(),
        });
        self
    }

    /// Sums in integers on a grid of so many bits, with `None` for the default: the head then has the bytes of one whose sums
    /// never had the forgotten rows.
    pub fn exact(mut self, bits: impl Into<Option<u32>>) -> Self {
        self.params.exact.get_or_insert_default().bits = bits.into();
        self
    }

    /// Sets the grid of exact sums, and asks for such; by default it is recorded from the retained rows.
    pub fn grid(mut self, grid: impl Into<GridChoice>) -> Self {
        self.params.exact.get_or_insert_default().grid = grid.into();
        self
    }

    /// Rounds the new head and the labels to a narrower type; what is reported is about the rounded head.
    pub fn store_as(mut self, dtype: Dtype) -> Self {
        self.params.dtype = dtype;
        self
    }

    /// Sets the seed of what a random [`Forget`] draws; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.params.seed = seed;
        self
    }

    /// Computes on this engine; by default on the processor, in rayon's current pool.
    pub fn engine(mut self, engine: impl Into<AnyEngine>) -> Self {
        self.engine = Some(engine.into());
        self
    }

    /// Sets the prefetch depth for files, and the trace that records what ran when.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Solves for the head without the forgotten rows, and for their optimal labels.
    ///
    /// # Errors
    /// If something is wrong with the input, the message naming file, field or value; or if the system cannot be
    /// solved.
    pub fn solve(&self) -> Result<Forgotten> {
        self.solve_with(&mut ())
    }

    /// Solves as [`solve`](Self::solve) does, and reports to `progress`, which may stop it.
    ///
    /// # Errors
    /// As [`solve`](Self::solve), and [`Error::Interrupted`](crate::Error::Interrupted) when asked to stop.
    pub fn solve_with(&self, progress: &mut dyn Progress) -> Result<Forgotten> {
        let engine = engine_or_default(self.engine.as_ref());
        let mut labels = OptimalLabels::default();
        // Labels need the forgotten rows, which sums may not leave.
        let sums = self.params.sums.as_ref();
        let readable = sums.is_none_or(|sums| sums.shard.forgotten.rows == 0);
        let sink = match &self.params.rows {
            Some(_) if readable => LabelSink::Memory(&mut labels),
            _ => LabelSink::Nowhere,
        };
        let outcome = head::run(&engine, &self.params, sink, &self.scheduler, progress)?;
        let mut report = outcome.report;
        report.threads = rayon::current_num_threads();
        Ok(Forgotten {
            head: outcome.head,
            labels,
            report,
        })
    }
}

/// Describes a request for sums over rows; [`run`](Self::run) carries it out.
#[derive(Clone, Debug)]
#[must_use = "nothing is summed before `run`"]
pub struct Summing<'a> {
    params: gram::Params<'a>,
    engine: Option<AnyEngine>,
    scheduler: Scheduler,
}

impl Summing<'_> {
    /// Sums only these rows; all by default.
    pub fn portion(mut self, portion: Portion) -> Self {
        self.params.portion = portion;
        self
    }

    /// Sums the rows to forget apart, so that nothing has to be subtracted later.
    pub fn forget(mut self, what: Forget) -> Self {
        self.params.forget = Some(what);
        self
    }

    /// Sets the seed of what a random [`Forget`] draws; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.params.seed = seed;
        self
    }

    /// Sums in integers on a grid of so many bits, with `None` for the default: rows that are subtracted later leave no
    /// trace.
    pub fn exact(mut self, bits: impl Into<Option<u32>>) -> Self {
        self.params.exact.get_or_insert_default().bits = bits.into();
        self
    }

    /// Sets the grid of exact sums, and asks for such; by default it is recorded in a pass of its own.
    pub fn grid(mut self, grid: impl Into<GridChoice>) -> Self {
        self.params.exact.get_or_insert_default().grid = grid.into();
        self
    }

    /// Computes on this engine; by default on the processor, in rayon's current pool.
    pub fn engine(mut self, engine: impl Into<AnyEngine>) -> Self {
        self.engine = Some(engine.into());
        self
    }

    /// Reads the rows once and returns their sums.
    ///
    /// # Errors
    /// If something is wrong with the rows, or if they change while they are read.
    pub fn run(&self) -> Result<Shard> {
        let engine = engine_or_default(self.engine.as_ref());
        let outcome = gram::run(&engine, &self.params, &self.scheduler, &mut ())?;
        Ok(outcome.shard)
    }
}

fn engine_or_default(engine: Option<&AnyEngine>) -> AnyEngine {
    engine
        .cloned()
        .unwrap_or_else(|| CpuEngine::ambient().into())
}
