//! Train, retrain from the same weights, unlearn with every method, and measure how far each is from retraining.
//!
//! For every seed one network is trained on all rows; for every scenario others are trained on the retained rows alone,
//! from the same initial weights, each in its own order of the rows. Those are Retrain: what a method is measured against
//! is the mean of their metrics, because a single one says as much about its order as about the rows it never saw, and
//! the gap between two of them says how close to Retrain anything can be expected to come. Then every [`Arm`] unlearns.

use std::sync::Arc;
use std::time::Instant;

use muso_models::burn::tensor::Device;
use muso_models::{Network, NetworkConfig};

use super::Machine;
pub use super::cases::Case;
use super::jobs::{Ticker, each};
use crate::data::Split;
use crate::data::images::{Dataset, Normalisation};
use crate::engine::AnyEngine;
use crate::error::{Error, Result};
use crate::evaluate::{Judged, Mia, MiaOutputs, Outputs, RowSet, Scores, Source, avg_gap};
use crate::features::{Feed, Images};
use crate::methods::networks::{Method, Retrain, Snapshot, Task};
use crate::progress::Progress;
use crate::scheduler::Scheduler;
use crate::train::{Recipe, RowTargets, Session, Watch, stream};

/// Rows on which the accuracy after each epoch is taken.
const CURVE_ROWS: usize = 500;

/// Images, device and network of a run.
pub struct Bench {
    /// Training images.
    pub train: Feed,
    /// Test images.
    pub test: Feed,
    /// The network.
    pub network: NetworkConfig,
}

impl super::Workplace {
    /// Puts a data set and a network here.
    pub fn bench(&self, data: Dataset, network: NetworkConfig) -> Result<Bench> {
        Bench::new(data, network, &self.device, &self.scheduler)
    }
}

impl Bench {
    /// Puts a data set and a network on a device.
    pub fn new(
        data: Dataset,
        network: NetworkConfig,
        device: &Device,
        scheduler: &Scheduler,
    ) -> Result<Self> {
        network.check()?;
        let feed = |set, normalisation: &Normalisation| Feed {
            data: Images {
                set,
                normalisation: normalisation.clone(),
            },
            device: device.clone(),
            scheduler: scheduler.clone(),
        };
        Ok(Self {
            train: feed(data.train, &data.normalisation),
            test: feed(data.test, &data.normalisation),
            network,
        })
    }

    /// The network with the weights that `seed` gives.
    pub fn initial(&self, seed: u64) -> Result<Network> {
        let device = &self.train.device;
        Ok(self.network.init(stream(seed, 0x1417), device)?)
    }

    /// The task of unlearning some of the training rows, without snapshots.
    pub(super) fn task<'a>(
        &'a self,
        split: &'a Split,
        networks: [&'a Network; 2],
        recipe: &'a Recipe,
        engine: &'a AnyEngine,
    ) -> Task<'a> {
        let rows = [split.retain.as_slice(), split.forget.as_slice()];
        let mut task = Task::new(&self.train, rows, networks, recipe, engine);
        task.untrained = Some(Arc::new(|seed| {
            Ok(self.network.init(seed, &self.train.device)?)
        }));
        task
    }

    /// What a network says of some rows.
    pub fn outputs(
        &self,
        network: &Network,
        rows: &RowSet,
        progress: &mut dyn Progress,
    ) -> Result<Outputs> {
        let feed = match rows.source {
            Source::Train => &self.train,
            Source::Test => &self.test,
        };
        Outputs::of(feed, network, &rows.rows, progress)
    }

    /// Percent of `rows` of one of the feeds that a network classifies rightly.
    pub fn accuracy(
        &self,
        feed: &Feed,
        network: &Network,
        rows: &[usize],
        progress: &mut dyn Progress,
    ) -> Result<f64> {
        Ok(Outputs::of(feed, network, rows, progress)?.accuracy())
    }

    /// All metrics of a network.
    pub fn measure(
        &self,
        network: &Network,
        judged: &Judged,
        mia: Mia,
        progress: &mut dyn Progress,
    ) -> Result<Measured> {
        let mut says = |rows: &RowSet| self.outputs(network, rows, progress);
        let retained = says(&judged.ra)?;
        let tested = says(&judged.ta)?;
        let forgotten = says(&judged.forgotten)?;
        // Where a metric is over rows that were passed already, they are not passed again.
        let fa = if judged.fa == judged.forgotten {
            forgotten.accuracy()
        } else {
            says(&judged.fa)?.accuracy()
        };
        let others = match judged.non_members(mia) {
            rows if *rows == judged.ta => tested.clone(),
            rows => says(rows)?,
        };
        let mia = mia.percent(&MiaOutputs {
            retained: &retained,
            test: &others,
            forgotten: &forgotten,
        })?;
        Ok(Measured {
            scores: Scores {
                ra: retained.accuracy(),
                ta: tested.accuracy(),
                fa,
                mia,
            },
            test_entropies: tested.entropies(),
            forgotten,
        })
    }

    /// RA, TA and FA over at most [`CURVE_ROWS`] rows each.
    fn glance(&self, network: &Network, judged: &Judged) -> Result<[f64; 3]> {
        let few = |rows: &RowSet| {
            let step = rows.rows.len().div_ceil(CURVE_ROWS).max(1);
            let rows = RowSet {
                rows: rows.rows.iter().copied().step_by(step).collect(),
                ..rows.clone()
            };
            Ok::<f64, Error>(self.outputs(network, &rows, &mut ())?.accuracy())
        };
        Ok([few(&judged.ra)?, few(&judged.ta)?, few(&judged.fa)?])
    }
}

/// What was measured of one network.
#[derive(Clone, Debug)]
pub struct Measured {
    /// RA, TA, FA and MIA.
    pub scores: Scores,
    /// What it says of the forgotten training rows.
    pub forgotten: Outputs,
    /// Entropies of what it says of the test rows behind TA.
    pub test_entropies: Vec<f64>,
}

/// A training run from its first weights to its last.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Before.
    pub initial: Network,
    /// After.
    pub network: Network,
    /// In between.
    pub snapshots: Vec<Snapshot>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Trains on `rows` from the weights that `seed` gives, keeping the network after the epochs in `keep`.
pub fn train(
    bench: &Bench,
    recipe: &Recipe,
    rows: &[usize],
    keep: &[usize],
    seed: u64,
    watch: &mut dyn Watch,
) -> Result<Trained> {
    struct Keeping<'a> {
        keep: &'a [usize],
        snapshots: Vec<Snapshot>,
        watch: &'a mut dyn Watch,
    }
    impl Watch for Keeping<'_> {
        fn inner(&mut self) -> Option<&mut dyn Watch> {
            Some(self.watch)
        }

        fn epoch(&mut self, session: &Session) -> Result<()> {
            if self.keep.contains(&session.epoch) {
                self.snapshots.push(Snapshot {
                    epoch: session.epoch,
                    network: session.network.clone(),
                });
            }
            self.watch.epoch(session)
        }
    }
    let clock = Instant::now();
    let initial = bench.initial(seed)?;
    let targets = RowTargets::new(bench.train.data.set.labels(), bench.network.classes);
    let mut session = Session::new(initial.clone(), recipe.clone(), stream(seed, 0x7124));
    let mut keeping = Keeping {
        keep,
        snapshots: Vec::new(),
        watch,
    };
    session.run(
        &bench.train,
        rows,
        &mut |step| targets.loss(step),
        &mut keeping,
    )?;
    Ok(Trained {
        initial,
        network: session.network,
        snapshots: keeping.snapshots,
        seconds: clock.elapsed().as_secs_f64(),
    })
}

/// A method with its settings, under a name.
pub struct Arm {
    /// In tables.
    pub name: String,
    /// The method.
    pub method: Box<dyn Method>,
}

/// What one arm did in one case.
#[derive(Clone, Debug)]
pub struct Run {
    /// The metrics.
    pub measured: Measured,
    /// Distance to Retrain.
    pub gap: f64,
    /// Percent of the forgotten rows on which it says the same as Retrain.
    pub agreement: f64,
    /// Seconds that unlearning took.
    pub seconds: f64,
    /// RA, TA and FA after each epoch, on the first seed.
    pub curve: Vec<[f64; 3]>,
}

/// A network's metrics and what it took.
#[derive(Clone)]
struct Timed {
    measured: Measured,
    seconds: f64,
    curve: Vec<[f64; 3]>,
}

impl Timed {
    /// How far it is from the mean of some retrained models.
    fn against(self, references: &[&Measured]) -> Run {
        let mean = |value: &dyn Fn(&Measured) -> f64| {
            references.iter().map(|one| value(one)).sum::<f64>() / references.len() as f64
        };
        let truth = Scores {
            ra: mean(&|one| one.scores.ra),
            ta: mean(&|one| one.scores.ta),
            fa: mean(&|one| one.scores.fa),
            mia: mean(&|one| one.scores.mia),
        };
        // What a diverged method says of a row is not known.
        let diverged = self.measured.scores.ra.is_nan();
        Run {
            gap: avg_gap(&self.measured.scores, &truth),
            agreement: if diverged {
                f64::NAN
            } else {
                mean(&|one| self.measured.forgotten.agreement(&one.forgotten))
            },
            measured: self.measured,
            seconds: self.seconds,
            curve: self.curve,
        }
    }
}

/// Everything of one seed and scenario.
pub struct Comparison {
    /// The seed.
    pub seed: u64,
    /// Its place in the list of scenarios.
    pub scenario: usize,
    /// Over which rows each metric is.
    pub judged: Judged,
    /// The retrained models; their gaps and agreements are with the others of them.
    pub retrain: Vec<Run>,
    /// Before unlearning.
    pub original: Run,
    /// The arms, in their order.
    pub arms: Vec<Run>,
}

/// What a comparison is made of.
pub struct Plan<'a> {
    /// Images and network.
    pub bench: &'a Bench,
    /// How it is trained.
    pub recipe: &'a Recipe,
    /// Epochs whose network is kept.
    pub snapshots: &'a [usize],
    /// Which attack.
    pub mia: Mia,
    /// The repetitions.
    pub seeds: &'a [u64],
    /// The rows of every scenario, for every seed: `cases[scenario][seed]`.
    pub cases: &'a [Vec<Case>],
    /// The methods but for Retrain.
    pub arms: &'a [Arm],
    /// How many models are retrained in each case.
    pub retrains: usize,
    /// What it runs on.
    pub machine: Machine<'a>,
}

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

impl Plan<'_> {
    /// Runs everything.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<Vec<Comparison>> {
        let trained = self.train_all(progress)?;
        self.unlearn_all(&trained, progress)
    }

    fn all_rows(&self) -> Vec<usize> {
        (0..self.bench.train.data.set.len()).collect()
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
            self.machine.threads,
            &jobs,
            "training",
            total as u64,
            progress,
            |job, ticker| {
                let mut watch = ticker.watch(|_: &Session| Ok(()));
                match job {
                    TrainJob::Original { seed } => {
                        let seed = self.seeds[*seed];
                        train(
                            self.bench,
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
                        let initial = self.bench.initial(self.seeds[*seed])?;
                        let clock = Instant::now();
                        let drawn = stream(stream(self.seeds[*seed], 0x12E), *order as u64);
                        let engine = self.machine.engine.for_worker();
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
                }
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
            .bench
            .task(&case.split, [original, initial], self.recipe, engine);
        task.snapshots = snapshots;
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
        let total = jobs.len() * self.bench.train.data.set.len() * 5;
        let found = each(
            self.machine.threads,
            &jobs,
            "unlearning",
            total as u64,
            progress,
            |job, ticker| {
                let &(scenario, seed, arm) = job;
                let case = &self.cases[scenario][seed];
                let original = &originals[seed];
                let orders = self.retrains.max(1);
                let retrained = &retrained[orders * (scenario * seeds + seed)..][..orders];
                match arm {
                    None => {
                        let networks = retrained
                            .iter()
                            .map(|run| (&run.network, run.seconds))
                            .chain([(&original.network, 0.0)]);
                        networks
                            .map(|(network, seconds)| {
                                Ok(Timed {
                                    measured: self.bench.measure(
                                        network,
                                        &case.judged,
                                        self.mia,
                                        &mut (),
                                    )?,
                                    seconds,
                                    curve: Vec::new(),
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
                }
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
                curve.push(self.bench.glance(&session.network, &case.judged)?);
                looking += clock.elapsed().as_secs_f64();
            }
            Ok(())
        });
        let clock = Instant::now();
        let drawn = stream(self.seeds[seed], 0x0A23);
        let engine = self.machine.engine.for_worker();
        let Trained {
            initial,
            network,
            snapshots,
            ..
        } = original;
        let task = self.task(case, network, initial, snapshots, drawn, &engine);
        let unlearned = arm.method.unlearn(&task, &mut watch);
        let seconds = clock.elapsed().as_secs_f64() - looking;
        let measure =
            |network: &Network| self.bench.measure(network, &case.judged, self.mia, &mut ());
        match unlearned.and_then(|network| measure(&network)) {
            Ok(measured) => Ok(Timed {
                measured,
                seconds,
                curve,
            }),
            // A method that blows up has a row without numbers; the others go on.
            Err(Error::Diverged { .. } | Error::Parameter { name: "logits", .. }) => {
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
                })
            }
            Err(error) => Err(error),
        }
    }
}
