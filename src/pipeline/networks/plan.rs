//! The experiment behind a comparison: trains, retrains from the same weights, unlearns with every method, and measures
//! how far each is from retraining.
//!
//! One network per seed is trained on all rows; for every scenario others are trained on the retained rows alone,
//! from the same initial weights, each in its own order of the rows. Those are Retrain: what a method is measured against
//! is the mean of their metrics, because a single one says as much about its order as about the rows it never saw, and
//! the gap between two of them says how close to Retrain anything can be expected to come. Then every [`Arm`] unlearns.
//!
//! Every network is trained or unlearned as a job of its own (`jobs`), on one
//! [`Workbench`]; [`compare`](super::compare) makes the table of what comes out.

use std::time::Instant;

use muso_models::Network;

use super::cases::Case;
use super::jobs::{Ticker, each};
use super::kept::Kept;
use super::scores::{Distance, Measured};
use super::trained::{Trained, train};
use super::workbench::Workbench;
use crate::engine::AnyEngine;
use crate::error::{Error, Result};
use crate::evaluate::{Judged, Mia, Scores};
use crate::labels::LabelUpdate;
use crate::methods::networks::{Method, Retrain, Snapshot, Task, find};
use crate::progress::Progress;
use crate::seeds::Purpose;
use crate::train::{Recipe, Session};

/// An arm of the experiment: a method with its settings, under a name.
pub struct Arm {
    /// Name of the arm in tables.
    pub name: String,
    /// Key of its method, such as `muso-s`.
    pub key: &'static str,
    /// Method with the settings of this arm.
    pub method: Box<dyn Method>,
}

impl Arm {
    /// Makes an arm of the method with this key. Its name in tables begins with the method's: `MUSO: all rows` where the
    /// arm has a name of its own, `MUSO` or `MUSO (paper)` where it has not.
    ///
    /// # Errors
    /// If there is no such method, or it refuses a setting.
    pub fn new(key: &str, name: Option<&str>, settings: toml::Table) -> Result<Self> {
        let entry = find(key)?;
        let method = entry.with(settings)?;
        Ok(Self {
            name: match name {
                Some(name) => format!("{}: {name}", entry.name),
                None => method.name().to_owned(),
            },
            key: entry.key,
            method,
        })
    }

    /// Returns the name of the arm's method without any settings.
    pub fn method_name(&self) -> &'static str {
        find(self.key).map_or("", |entry| entry.name)
    }
}

/// Measurements of one network of a comparison: an arm's, the original or a retrained one.
#[derive(Clone, Debug)]
pub struct Run {
    /// Metrics of the network.
    pub measured: Measured,
    /// Gap to this seed's Retrain, in points.
    pub gap: f64,
    /// Percentage of the forgotten rows on which it predicts the class that Retrain predicts.
    pub agreement: f64,
    /// Seconds that unlearning or retraining took; 0 for the original.
    pub seconds: f64,
    /// RA, TA and FA after each epoch of unlearning; only arms on the first seed have them.
    pub curve: Vec<[f64; 3]>,
    /// Label updates of the method, where it has any.
    pub updates: Vec<LabelUpdate>,
}

/// Metrics of a network and the seconds that it took to make.
#[derive(Clone)]
pub(super) struct Timed {
    pub(super) measured: Measured,
    pub(super) seconds: f64,
    pub(super) curve: Vec<[f64; 3]>,
    pub(super) updates: Vec<LabelUpdate>,
}

impl Timed {
    /// Returns the run with its distance to the mean of some retrained models.
    fn against(self, references: &[&Measured]) -> Run {
        let Distance { gap, agreement } = self.measured.distance(references);
        Run {
            gap,
            agreement,
            measured: self.measured,
            seconds: self.seconds,
            curve: self.curve,
            updates: self.updates,
        }
    }
}

/// Measurements of all networks of one seed and scenario.
pub struct Comparison {
    /// Seed of the repetition.
    pub seed: u64,
    /// Index of the scenario in [`Plan::cases`].
    pub scenario: usize,
    /// Rows that each metric is over.
    pub judged: Judged,
    /// Retrained models; the gap and agreement of each are with the others of them, and NaN where there is only one.
    pub retrain: Vec<Run>,
    /// The trained network before unlearning.
    pub original: Run,
    /// Networks of the arms, in the order of [`Plan::arms`].
    pub arms: Vec<Run>,
}

/// Design of a comparison: network and data, seeds, scenarios and arms.
pub struct Plan<'a> {
    /// Devices, images and network of the comparison.
    pub workbench: &'a Workbench,
    /// Training recipe of original and retrained networks.
    pub recipe: &'a Recipe,
    /// Epochs after which a snapshot of the original's training is kept.
    pub snapshots: &'a [usize],
    /// Membership inference attack behind the metric MIA.
    pub mia: Mia,
    /// Seeds of the repetitions, one each.
    pub seeds: &'a [u64],
    /// Rows of every scenario for every seed: `cases[scenario][seed]`.
    pub cases: &'a [Vec<Case>],
    /// Methods to compare, without Retrain.
    pub arms: &'a [Arm],
    /// Number of models to retrain in each case, at least one.
    pub retrains: usize,
    /// Finished jobs of a run that was stopped, which are not done again; `None` keeps nothing.
    pub kept: Option<&'a Kept>,
}

/// Job of training a network.
enum TrainJob {
    Original {
        seed: usize,
    },
    Retrain {
        scenario: usize,
        seed: usize,
        order: usize,
    },
}

impl TrainJob {
    /// Returns the name of the job's files.
    fn name(&self) -> String {
        match self {
            Self::Original { seed } => format!("original-{seed}"),
            Self::Retrain {
                scenario,
                seed,
                order,
            } => format!("retrain-{scenario}-{seed}-{order}"),
        }
    }
}

impl Plan<'_> {
    /// Trains, retrains, unlearns with every arm and measures all networks; returns a comparison for each scenario and
    /// seed.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<Vec<Comparison>> {
        let trained = self.train_all(progress)?;
        self.unlearn_all(&trained, progress)
    }

    fn all_rows(&self) -> Vec<usize> {
        (0..self.workbench.train.data.set.len()).collect()
    }

    fn train_all(&self, progress: &mut dyn Progress) -> Result<Vec<Trained>> {
        let mut jobs: Vec<TrainJob> = (0..self.seeds.len())
            .map(|seed| TrainJob::Original { seed })
            .collect();
        for scenario in 0..self.cases.len() {
            for seed in 0..self.seeds.len() {
                for order in 0..self.retrains.max(1) {
                    jobs.push(TrainJob::Retrain {
                        scenario,
                        seed,
                        order,
                    });
                }
            }
        }
        let rows = |job: &TrainJob| match job {
            TrainJob::Original { .. } => self.all_rows(),
            TrainJob::Retrain { scenario, seed, .. } => {
                self.cases[*scenario][*seed].split.retain.clone()
            }
        };
        let total: usize = jobs
            .iter()
            .map(|job| rows(job).len() * self.recipe.epochs)
            .sum();
        each(
            self.workbench.place.threads,
            &jobs,
            "training",
            total as u64,
            progress,
            |job, ticker| {
                let (TrainJob::Original { seed } | TrainJob::Retrain { seed, .. }) = job;
                let keep = match job {
                    TrainJob::Original { .. } => self.snapshots,
                    TrainJob::Retrain { .. } => &[],
                };
                if let Some(kept) = self.kept
                    && let Some(found) =
                        kept.trained(&job.name(), self.workbench, keep, self.seeds[*seed])?
                {
                    return Ok(found);
                }
                let mut watch = ticker.watch(|_: &Session| Ok(()));
                let trained = match job {
                    TrainJob::Original { seed } => {
                        let seed = self.seeds[*seed];
                        train(
                            self.workbench,
                            self.recipe,
                            &self.all_rows(),
                            self.snapshots,
                            seed,
                            &mut watch,
                        )
                    }
                    TrainJob::Retrain {
                        scenario,
                        seed,
                        order,
                    } => {
                        let case = &self.cases[*scenario][*seed];
                        let initial = self.workbench.initial(self.seeds[*seed])?;
                        let clock = Instant::now();
                        let drawn = Purpose::RetrainOrder.nth(self.seeds[*seed], *order as u64);
                        let engine = self.workbench.place.engine.for_worker();
                        let task = self.task(case, &initial, &initial, &[], drawn, &engine);
                        let network = Retrain {}.unlearn(&task, &mut watch)?;
                        drop(task);
                        Ok(Trained {
                            initial,
                            network,
                            snapshots: Vec::new(),
                            seconds: clock.elapsed().as_secs_f64(),
                        })
                    }
                }?;
                if let Some(kept) = self.kept {
                    kept.keep_trained(&job.name(), self.workbench, &trained)?;
                }
                Ok(trained)
            },
        )
    }

    fn task<'a>(
        &'a self,
        case: &'a Case,
        original: &'a Network,
        initial: &'a Network,
        snapshots: &'a [Snapshot],
        seed: u64,
        engine: &'a AnyEngine,
    ) -> Task<'a> {
        let mut task = self
            .workbench
            .task(&case.split, [original, initial], self.recipe, engine);
        task.snapshots = snapshots;
        task.of_class = case.of_class();
        task.seed = seed;
        task
    }

    fn unlearn_all(
        &self,
        trained: &[Trained],
        progress: &mut dyn Progress,
    ) -> Result<Vec<Comparison>> {
        let seeds = self.seeds.len();
        let (originals, retrained) = trained.split_at(seeds);
        let mut jobs: Vec<(usize, usize, Option<usize>)> = Vec::new();
        for scenario in 0..self.cases.len() {
            for seed in 0..seeds {
                jobs.push((scenario, seed, None));
                jobs.extend((0..self.arms.len()).map(|arm| (scenario, seed, Some(arm))));
            }
        }
        // About five epochs of everything an arm.
        let total = jobs.len() * self.workbench.train.data.set.len() * 5;
        let found = each(
            self.workbench.place.threads,
            &jobs,
            "unlearning",
            total as u64,
            progress,
            |job, ticker| {
                let &(scenario, seed, arm) = job;
                let name = match arm {
                    None => format!("measured-{scenario}-{seed}"),
                    Some(arm) => format!("arm-{scenario}-{seed}-{arm}"),
                };
                if let Some(kept) = self.kept
                    && let Some(found) = kept.measured(&name)?
                {
                    return Ok(found);
                }
                let case = &self.cases[scenario][seed];
                let original = &originals[seed];
                let orders = self.retrains.max(1);
                let retrained = &retrained[orders * (scenario * seeds + seed)..][..orders];
                let found = match arm {
                    None => {
                        let networks = retrained
                            .iter()
                            .map(|run| (&run.network, run.seconds))
                            .chain([(&original.network, 0.0)]);
                        networks
                            .map(|(network, seconds)| {
                                Ok(Timed {
                                    measured: self.workbench.measure(
                                        network,
                                        &case.judged,
                                        self.mia,
                                        &mut (),
                                    )?,
                                    seconds,
                                    curve: Vec::new(),
                                    updates: Vec::new(),
                                })
                            })
                            .collect::<Result<Vec<_>>>()
                    }
                    Some(arm) => Ok(vec![self.unlearn(
                        &self.arms[arm],
                        case,
                        original,
                        seed,
                        ticker,
                    )?]),
                }?;
                if let Some(kept) = self.kept {
                    kept.keep_measured(&name, &found)?;
                }
                Ok(found)
            },
        )?;

        let mut found = found.into_iter().flatten();
        let mut out = Vec::new();
        for (scenario, cases) in self.cases.iter().enumerate() {
            for (seed, case) in cases.iter().enumerate() {
                let mut next = || found.next().ok_or(Error::Interrupted);
                let truth: Vec<Timed> = (0..self.retrains.max(1))
                    .map(|_| next())
                    .collect::<Result<_>>()?;
                let references: Vec<&Measured> = truth.iter().map(|one| &one.measured).collect();
                let original = next()?.against(&references);
                let arms = (0..self.arms.len())
                    .map(|_| Ok(next()?.against(&references)))
                    .collect::<Result<Vec<_>>>()?;
                let retrain = (0..truth.len())
                    .map(|k| {
                        let mut others = references.clone();
                        others.remove(k);
                        truth[k].clone().against(&others)
                    })
                    .collect();
                out.push(Comparison {
                    seed: self.seeds[seed],
                    scenario,
                    judged: case.judged.clone(),
                    retrain,
                    original,
                    arms,
                });
            }
        }
        Ok(out)
    }

    fn unlearn(
        &self,
        arm: &Arm,
        case: &Case,
        original: &Trained,
        seed: usize,
        ticker: &Ticker,
    ) -> Result<Timed> {
        let mut curve = Vec::new();
        let mut looking = 0.0;
        let mut watch = ticker.watch(|session: &Session| {
            if seed == 0 {
                let clock = Instant::now();
                curve.push(self.workbench.glance(&session.network, &case.judged)?);
                looking += clock.elapsed().as_secs_f64();
            }
            Ok(())
        });
        let clock = Instant::now();
        let drawn = Purpose::ArmDraws.seed(self.seeds[seed]);
        let engine = self.workbench.place.engine.for_worker();
        let Trained {
            initial,
            network,
            snapshots,
            ..
        } = original;
        let task = self.task(case, network, initial, snapshots, drawn, &engine);
        let unlearned = arm.method.unlearn(&task, &mut watch);
        let updates = std::mem::take(&mut watch.updates);
        let seconds = clock.elapsed().as_secs_f64() - looking;
        let measure = |network: &Network| {
            self.workbench
                .measure(network, &case.judged, self.mia, &mut ())
        };
        match unlearned.and_then(|network| measure(&network)) {
            Ok(measured) => Ok(Timed {
                measured,
                seconds,
                curve,
                updates,
            }),
            // A method that blows up has a row without numbers; the others go on.
            Err(
                Error::Diverged { .. }
                | Error::NotPositiveDefinite { .. }
                | Error::Parameter { name: "logits", .. },
            ) => {
                let mut measured = measure(&original.network)?;
                measured.scores = Scores {
                    ra: f64::NAN,
                    ta: f64::NAN,
                    fa: f64::NAN,
                    mia: f64::NAN,
                };
                Ok(Timed {
                    measured,
                    seconds: f64::NAN,
                    curve: Vec::new(),
                    updates,
                })
            }
            Err(error) => Err(error),
        }
    }
}
