//! Table 1: unlearning in the over-parameterised linear model, on real digits.
//!
//! 300 threes and 300 sevens, D = 5,000 random features, three scenarios (forget all sevens, the first 200 sevens, or
//! 200 rows at random). That the initial weights are the retained rows' optimum plus N(0, 1) noise, and that the 200
//! sevens are the first ones, follows from the paper's numbers, not from its text. Every method's weights are held
//! against the retrained ones.
//!
//! ```no_run
//! use muso::data::Digits;
//! use muso::engine::CpuEngine;
//! use muso::pipeline::table1::{Params, run};
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let digits = Digits::parse(muso_digits::TRAIN, muso_digits::TEST)?;
//! let table = run(&engine, &digits, &Params { seeds: vec![0, 1], ..Params::default() }, &mut ())?;
//! println!("{}", table.to_json());
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{Progress, check};
use crate::data::{Amount, Digits, Forget, Labelled, TestRows};
use crate::engine::{Engine, Matrix};
use crate::error::{Error, Result};
use crate::evaluate::{JudgedRows, delta_w, sign_accuracy};
use crate::features::RandomFeatures;
use crate::gram::{DualGram, Gram};
use crate::methods::{LinearProblem, ORACLE_POINTS, Path};
use crate::outcome::{
    ABOUT_PRETRAINED, Curve, Metric, PRETRAINED, RETRAIN, Row, ScenarioTable, Stat, Table, paper,
};
use crate::seeds::LinearPurpose;
use crate::solve::fit;
use crate::train::SgdParams;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Params {
    /// Seeds, one per repetition: features, initial weights, forgotten rows and orders are all drawn from it.
    pub seeds: Vec<u64>,
    /// m, the number of frequencies; D = 2m.
    pub frequencies: usize,
    /// Bandwidth of the random features.
    pub sigma: f64,
    /// The command line, for the report.
    pub command: String,
}

impl Default for Params {
    /// The paper's: five seeds, 2,500 frequencies, σ = 20.
    fn default() -> Self {
        Self {
            seeds: (0..5).collect(),
            frequencies: 2_500,
            sigma: 20.0,
            command: String::new(),
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Method {
    Retrain,
    Pretrained,
    Amnesiac,
    BadTeacher,
    Muso,
    MusoClosedForm,
    MusoDirect,
}

impl Method {
    /// In the order in which they are shown and run.
    const ALL: [Self; 7] = [
        Self::Retrain,
        Self::Pretrained,
        Self::Amnesiac,
        Self::BadTeacher,
        Self::Muso,
        Self::MusoClosedForm,
        Self::MusoDirect,
    ];

    /// Returns its name in the table, its footnote, and what it does.
    fn described(self) -> [&'static str; 3] {
        match self {
            Self::Retrain => [
                RETRAIN,
                "solved from the retained rows alone: the truth",
                "trained from the same initial weights on the retained rows only: what unlearning should reach",
            ],
            Self::Pretrained => [
                PRETRAINED,
                "trained on everything; costs nothing, forgets nothing",
                ABOUT_PRETRAINED,
            ],
            Self::Amnesiac => [
                "Amnesiac",
                "random labels, SGD, oracle stop",
                "goes on training with random labels for the forgotten rows",
            ],
            Self::BadTeacher => [
                "BadTeacher",
                "an untrained model's labels, SGD, oracle stop",
                "goes on training with the outputs of a random model as labels for the forgotten rows",
            ],
            Self::Muso => [
                "MUSO",
                "optimal labels, SGD as in the paper",
                "goes on training with the optimal labels for the forgotten rows, by gradient descent as in the paper",
            ],
            Self::MusoClosedForm => [
                "MUSO (closed form)",
                "optimal labels, the limit of SGD solved for",
                "takes the same labels and computes the limit of gradient descent by a linear solve",
            ],
            Self::MusoDirect => [
                "MUSO (direct)",
                "one solve, no training and no labels",
                "projects the pre-trained weights once onto what the retained rows span: no labels, no training",
            ],
        }
    }
}

/// The forgotten digit; also the paper's in the sub-class scenario.
const FORGOTTEN: i64 = 7;

/// Returns the three scenarios of the paper.
pub fn scenarios() -> [Forget; 3] {
    [
        Forget::class(FORGOTTEN),
        Forget::part_of_class(FORGOTTEN, Amount::First(200)),
        Forget::random(Amount::Count(200)),
    ]
}

/// Outcome of one method for one seed.
struct Measured {
    weights: Matrix,
    seconds: f64,
    epochs: Option<f64>,
}

/// Results of one method over the seeds.
#[derive(Default)]
struct Gathered {
    values: BTreeMap<Metric, Vec<f64>>,
    seconds: Vec<f64>,
}

/// Runs every method in every scenario for every seed, on threes and sevens.
pub fn run<E: Engine>(
    engine: &E,
    data: &Digits,
    params: &Params,
    progress: &mut dyn Progress,
) -> Result<Table> {
    if params.seeds.is_empty() {
        return Err(Error::Parameter {
            name: "`.seeds`",
            value: "0".into(),
            expected: "at least 1".into(),
        });
    }
    let started = Instant::now();
    let scenarios = scenarios();
    let mut tables: Vec<ScenarioTable> = Vec::new();
    let mut gathered: Vec<BTreeMap<Method, Gathered>> = Vec::new();
    let labels = Labelled::new(&data.train_labels, &data.test_labels);
    for forget in &scenarios {
        tables.push(ScenarioTable {
            name: forget.select(&labels, 0)?.scenario().into(),
            ..ScenarioTable::default()
        });
        gathered.push(BTreeMap::new());
    }

    let total = (params.seeds.len() * scenarios.len() * Method::ALL.len()) as u64;
    let mut done = 0;
    let mut muso_epochs = (f64::INFINITY, 0.0_f64);
    for (repetition, &seed) in params.seeds.iter().enumerate() {
        check(progress, "methods", done, total)?;
        let world = World::new(engine, data, params, seed)?;
        for (s, forget) in scenarios.iter().enumerate() {
            let task = world.task(forget, seed)?;
            tables[s].retained = task.retained.labels.len();
            tables[s].forgotten = task.forgotten.labels.len();
            tables[s].test = world.test.labels.len();
            for method in Method::ALL {
                check(progress, "methods", done, total)?;
                let measured = task.apply(method, seed)?;
                let entry = gathered[s].entry(method).or_default();
                for (metric, value) in task.judge(&measured.weights)? {
                    // The paper gives no Δ_w for the model that it is measured from.
                    if !(method == Method::Retrain && metric == Metric::DeltaW) {
                        entry.values.entry(metric).or_default().push(value);
                    }
                }
                entry.seconds.push(measured.seconds);
                if let (Method::Muso, Some(epochs)) = (method, measured.epochs) {
                    muso_epochs = (muso_epochs.0.min(epochs), muso_epochs.1.max(epochs));
                }
                done += 1;
            }
            if repetition == 0 {
                tables[s].curves = task.curves(seed)?;
            }
        }
    }
    check(progress, "methods", done, total)?;

    for (table, gathered) in tables.iter_mut().zip(&gathered) {
        table.rows = Method::ALL
            .iter()
            .map(|&method| row(&table.name, method, &gathered[&method]))
            .collect();
    }
    Ok(Table {
        setting: "linear".into(),
        title: format!(
            "Table 1: over-parameterised linear model, MNIST 3 against 7, {} training rows, D = {} random features",
            data.train_labels.len(),
            2 * params.frequencies
        ),
        seeds: params.seeds.clone(),
        scenarios: tables,
        meanings: BTreeMap::new(),
        notes: vec![
            format!(
                "Amnesiac and BadTeacher are stopped by an oracle, as in the paper: the first step after which FA is \
                 within {ORACLE_POINTS} points of the retrained model's. No user has that number; it flatters them."
            ),
            format!(
                "MUSO uses neither the retrained model nor an oracle; its SGD took {} to {} epochs.",
                muso_epochs.0, muso_epochs.1
            ),
        ],
        command: params.command.clone(),
        seconds: started.elapsed().as_secs_f64(),
        machine: engine.describe(),
        version: crate::VERSION.into(),
    })
}

/// Everything that one seed fixes before a scenario is chosen.
struct World<'a, E: Engine> {
    engine: &'a E,
    data: &'a Digits,
    train: Matrix,
    test: JudgedRows,
    noise: Matrix,
}

impl<'a, E: Engine> World<'a, E> {
    fn new(engine: &'a E, data: &'a Digits, params: &Params, seed: u64) -> Result<Self> {
        let map = RandomFeatures::new(
            data.train_images.cols(),
            params.frequencies,
            params.sigma,
            LinearPurpose::Features.seed(seed),
        )?;
        let mut rng = ChaCha8Rng::seed_from_u64(LinearPurpose::InitialNoise.seed(seed));
        Ok(Self {
            engine,
            data,
            train: map.apply(engine, &data.train_images)?,
            test: JudgedRows {
                features: map.apply(engine, &data.test_images)?,
                labels: data.test_labels.iter().map(|&l| sign_of(l)).collect(),
            },
            noise: Matrix::from_fn(map.width(), 1, |_, _| StandardNormal.sample(&mut rng)),
        })
    }

    fn task(&self, forget: &Forget, seed: u64) -> Result<Task<'_, E>> {
        let labels = &self.data.train_labels;
        let among = Labelled::new(labels, &self.data.test_labels);
        let split = forget.split(
            &among,
            TestRows::All,
            LinearPurpose::ForgottenRows.seed(seed),
        )?;
        let part = |rows: &[usize]| JudgedRows {
            features: self.train.select_rows(rows),
            labels: rows.iter().map(|&i| sign_of(labels[i])).collect(),
        };
        let (retained, forgotten) = (part(&split.retain), part(&split.forget));
        let column =
            |rows: &JudgedRows| Matrix::from_vec(rows.labels.len(), 1, rows.labels.clone());

        let features = retained.features.clone();
        let gram = DualGram::new(self.engine, features, column(&retained), false)?;
        let zero = Matrix::zeros(self.train.cols(), 1);
        let optimum = fit(self.engine, &Gram::Dual(gram.clone()), &zero, 0.0)?.weights;
        let init = optimum.zip(&self.noise, |w, noise| w + noise);
        let forgotten_part = (&forgotten.features, &column(&forgotten));
        let problem = LinearProblem::new(self.engine, gram, forgotten_part, init)?;
        let retrained_fa = forgotten.accuracy(self.engine, problem.retrained())?;
        Ok(Task {
            engine: self.engine,
            problem,
            retained,
            forgotten,
            test: &self.test,
            retrained_fa,
        })
    }
}

/// A scenario of one seed.
struct Task<'w, E: Engine> {
    engine: &'w E,
    problem: LinearProblem<'w, E>,
    retained: JudgedRows,
    forgotten: JudgedRows,
    test: &'w JudgedRows,
    retrained_fa: f64,
}

impl<E: Engine> Task<'_, E> {
    fn apply(&self, method: Method, seed: u64) -> Result<Measured> {
        let started = Instant::now();
        let problem = &self.problem;
        let (weights, epochs) = match method {
            Method::Retrain => (problem.retrain()?, None),
            Method::Pretrained => (problem.pretrained().clone(), None),
            Method::MusoClosedForm => (problem.relabel_closed_form(&problem.muso_labels()?)?, None),
            Method::MusoDirect => (problem.muso_direct()?, None),
            Method::Amnesiac | Method::BadTeacher | Method::Muso => {
                let oracle = |predictions: &[f64]| {
                    let fa = sign_accuracy(predictions, &self.forgotten.labels);
                    method != Method::Muso && (fa - self.retrained_fa).abs() < ORACLE_POINTS
                };
                let path = self.sgd_path(method, seed, oracle)?;
                (path.weights, Some(path.epochs))
            }
        };
        Ok(Measured {
            weights,
            seconds: started.elapsed().as_secs_f64(),
            epochs,
        })
    }

    fn sgd_path(
        &self,
        method: Method,
        seed: u64,
        stop: impl FnMut(&[f64]) -> bool,
    ) -> Result<Path> {
        let labels = match method {
            Method::Amnesiac => self
                .problem
                .amnesiac_labels(LinearPurpose::AmnesiacLabels.seed(seed)),
            Method::BadTeacher => self
                .problem
                .bad_teacher_labels(LinearPurpose::BadTeacherWeights.seed(seed))?,
            _ => self.problem.muso_labels()?,
        };
        let params = SgdParams::paper(LinearPurpose::SampleOrder.seed(seed));
        self.problem.relabel_sgd(&labels, &params, stop)
    }

    /// The paths of the iterative methods to their ends, without the oracle: where their labels lead.
    fn curves(&self, seed: u64) -> Result<Vec<Curve>> {
        [Method::Amnesiac, Method::BadTeacher, Method::Muso]
            .into_iter()
            .map(|method| {
                let path = self.sgd_path(method, seed, |_| false)?;
                Ok(Curve {
                    method: method.described()[0].into(),
                    epochs: path.distances.iter().map(|d| d.0).collect(),
                    delta_w: path.distances.iter().map(|d| d.1).collect(),
                })
            })
            .collect()
    }

    fn judge(&self, weights: &Matrix) -> Result<[(Metric, f64); 4]> {
        let accuracy = |rows: &JudgedRows| rows.accuracy(self.engine, weights);
        Ok([
            (Metric::Ra, accuracy(&self.retained)?),
            (Metric::Ta, accuracy(self.test)?),
            (Metric::Fa, accuracy(&self.forgotten)?),
            (Metric::DeltaW, delta_w(weights, self.problem.retrained())),
        ])
    }
}

fn row(scenario: &str, method: Method, gathered: &Gathered) -> Row {
    let [name, note, about] = method.described();
    Row {
        method: name.into(),
        values: gathered
            .values
            .iter()
            .map(|(&metric, values)| (metric, Stat::of(values)))
            .collect(),
        paper: paper::table1(scenario, name),
        seconds: Stat::of(&gathered.seconds),
        note: Some(note.into()),
        about: about.into(),
        ..Row::default()
    }
}

/// Threes are +1, sevens −1.
fn sign_of(label: i64) -> f64 {
    if label == FORGOTTEN { -1.0 } else { 1.0 }
}
