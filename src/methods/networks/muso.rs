//! The paper's algorithm: labels from the projector, recomputed as the network changes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use muso_models::Network;
use muso_models::burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::{Method, Task, head_matrix, settings_of, short, within};
use crate::data::images::{Batch, shuffled};
use crate::engine::{AnyEngine, Engine, Matrix, SumsSpec, Targets, with_rows};
use crate::error::{Error, Result};
use crate::features::{Feed, Passing, host};
use crate::gram::{Gram, GramBuilder, Route};
use crate::labels::{Projector, argmax, column_select, leverage_scores, softmax};
use crate::progress::{Progress, check};
use crate::scheduler::Lane;
use crate::solve::Eigen;
use crate::train::{Beside, Recipe, RowTargets, Rule, Session, Step, Watch, stream};

/// Which retained rows the projector is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Every one: G is a sum over rows, so this costs a pass and no memory.
    All,
    /// A share, uniformly and without replacement, drawn anew for each update.
    Random(f64),
    /// A share, drawn by leverage score with replacement.
    ColumnSelect(f64),
}

/// How the forgotten rows' optimal outputs become training targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// The class of the largest output, as the authors' code has it.
    Hard,
    /// The softmax of the outputs.
    Soft,
}

/// What is subtracted from Z_u(W* + w_p).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// One-hot labels, as the paper writes it.
    Labels,
    /// The original network's logits, as the authors' code has it.
    Logits,
}

/// λ over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RidgePath {
    /// Always this.
    Constant(f64),
    /// From the first to the second by half a cosine, as the authors' code has it.
    Cosine(f64, f64),
}

impl RidgePath {
    /// λ at a part of the run in 0 … 1.
    pub fn at(self, part: f64) -> f64 {
        match self {
            Self::Constant(ridge) => ridge,
            Self::Cosine(first, last) => {
                let rise = 0.5 * (1.0 - (std::f64::consts::PI * part.clamp(0.0, 1.0)).cos());
                first + (last - first) * rise
            }
        }
    }
}

/// MUSO as published: ỹ_u = Z_u(W* + w_p) − y_ref with W* = w_init + Π_r(w_p − w_init), then descent on everything,
/// and again.
///
/// In a network with more retained rows than features Π_r is nearly the identity, and ỹ_u is nearly what the original
/// network says; [`MusoS`](super::MusoS) is the form that does not depend on that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Muso {
    /// Rows of the projector.
    pub sampling: Sampling,
    /// Targets.
    pub labels: LabelKind,
    /// y_ref.
    pub reference: Reference,
    /// λ.
    pub ridge: RidgePath,
    /// Steps between label updates; none updates once an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<usize>,
    /// How many updates late new labels are put to use, 0 or 1. With 1 they are computed while training goes on with
    /// those of the update before; with 0 only batches without forgotten rows are trained on meanwhile, which changes
    /// nothing in the outcome.
    pub staleness: usize,
    /// How.
    pub recipe: Recipe,
}

impl Default for Muso {
    fn default() -> Self {
        Self {
            sampling: Sampling::Random(0.2),
            labels: LabelKind::Hard,
            reference: Reference::Logits,
            ridge: RidgePath::Cosine(1e-6, 1e-2),
            every: None,
            staleness: 0,
            recipe: short(Rule::Adam, 2, 3e-5, 128),
        }
    }
}

impl Muso {
    /// ⌈share·N⌉ of the rows, uniformly and without replacement, ascending.
    pub fn sampled(rows: &[usize], share: f64, seed: u64) -> Result<Vec<usize>> {
        let mut rows = shuffled(rows, seed);
        rows.truncate(count(share, rows.len())?);
        rows.sort_unstable();
        Ok(rows)
    }
}

/// All that the labels of an update are made from but the network, owned: a lane works on it.
struct Labels {
    settings: Muso,
    feed: Feed,
    retain: Vec<usize>,
    forget: Vec<usize>,
    /// w_p.
    trained: Matrix,
    /// w_init.
    initial: Matrix,
    /// y_ref.
    reference: Matrix,
    engine: AnyEngine,
    seed: u64,
}

impl Labels {
    /// The retained rows of one update.
    fn sample(
        &self,
        network: &Network,
        update: u64,
        progress: &mut dyn Progress,
    ) -> Result<Vec<usize>> {
        let seed = stream(stream(self.seed, 0x3501), update);
        match self.settings.sampling {
            Sampling::All => Ok(self.retain.clone()),
            Sampling::Random(share) => Muso::sampled(&self.retain, share, seed),
            Sampling::ColumnSelect(share) => {
                let all = self.feed.extract(network, &self.retain, progress)?;
                let spec = spec(all.width);
                let mut builder = GramBuilder::new(&self.engine, Route::Primal, spec)?;
                builder.push(all.feature_rows(), Targets::None)?;
                let eigen = Eigen::new(builder.finish()?.system())?;
                let scores = leverage_scores(&self.engine, &eigen, all.feature_rows(), None)?;
                let drawn = column_select(&scores, count(share, self.retain.len())?, seed);
                Ok(drawn.into_iter().map(|i| self.retain[i]).collect())
            }
        }
    }

    /// The sums over `rows`, made as the network hands them on.
    fn gram(&self, network: &Network, rows: &[usize], progress: &mut dyn Progress) -> Result<Gram> {
        let spec = spec(self.trained.rows() - 1);
        let route = Route::choose(rows.len() as u64, spec.order());
        let mut builder = GramBuilder::new(&self.engine, route, spec)?;
        let mut done = 0;
        for (number, passed) in (0..).zip(self.feed.pass(network, rows, None)?) {
            let passed = passed?;
            done += passed.rows.len() as u64;
            self.feed.scheduler.step("gram", number, || {
                builder.update(&passed.features, Targets::None)
            })?;
            check(progress, "extracting features", done, rows.len() as u64)?;
        }
        builder.finish()
    }

    /// ỹ_u, N_u×C, for the network as it is.
    fn outputs(
        &self,
        network: &Network,
        (update, part): (u64, f64),
        progress: &mut dyn Progress,
    ) -> Result<Matrix> {
        let sample = self.sample(network, update, progress)?;
        let gram = self.gram(network, &sample, progress)?;
        // The lane is ahead by some batches when the weights are there.
        let forgotten = self.feed.pass(network, &self.forget, None)?;
        let ridge = self.settings.ridge.at(part);
        let (optimal, _) = self.feed.scheduler.step("solve", update, || {
            let projector = Projector::new(&self.engine, gram, ridge)?;
            projector.optimal_weights(&self.trained, &self.initial)
        })?;
        let weights = optimal.zip(&self.trained, |a, b| a + b);
        let outputs = self.project(forgotten, &weights, progress)?;
        Ok(outputs.zip(&self.reference, |output, known| output - known))
    }

    /// Z_u W. On the processor in f64; on other devices features stay there, and what comes back is f32.
    fn project(
        &self,
        forgotten: Passing,
        weights: &Matrix,
        progress: &mut dyn Progress,
    ) -> Result<Matrix> {
        let mut outputs = Vec::with_capacity(self.forget.len() * weights.cols());
        let mut done = 0;
        for passed in forgotten {
            let features = passed?.features;
            done += features.dims()[0];
            if self.feed.device == Device::flex() {
                let product = with_rows(&features, |rows| self.engine.project(rows, weights))?;
                outputs.extend_from_slice(product.as_slice());
            } else {
                let product = host(self.engine.project_tensor(&features, weights)?);
                outputs.extend(product.into_iter().map(f64::from));
            }
            let all = self.forget.len() as u64;
            check(progress, "extracting features", done as u64, all)?;
        }
        Ok(Matrix::from_vec(done, weights.cols(), outputs))
    }

    /// The outputs of an update, on a lane of their own where there are lanes.
    fn start(
        self: &Arc<Self>,
        network: &Network,
        at: (u64, f64),
        watch: &mut dyn Watch,
    ) -> Result<Pending> {
        let scheduler = &self.feed.scheduler;
        if scheduler.depth == 0 {
            let outputs = scheduler.step("labels", at.0, || {
                self.outputs(network, at, &mut Beside(watch))
            })?;
            return Ok(Pending::Here(Some(outputs)));
        }
        let (labels, network) = (self.clone(), network.clone());
        let outputs = std::iter::once_with(move || labels.outputs(&network, at, &mut ()));
        Ok(Pending::Lane(scheduler.lane("labels", outputs)?))
    }
}

/// Outputs that are being computed.
enum Pending {
    Here(Option<Matrix>),
    Lane(Lane<Matrix>),
}

impl Pending {
    /// Whether they could be computed, if that is known by now.
    fn check(&mut self) -> Result<()> {
        if let Self::Lane(lane) = self
            && let Some(outputs) = lane.ready()
        {
            *self = Self::Here(Some(outputs?));
        }
        Ok(())
    }

    /// Waits for them; there are none the second time.
    fn take(&mut self) -> Result<Option<Matrix>> {
        match self {
            Self::Here(outputs) => Ok(outputs.take()),
            Self::Lane(lane) => lane.next().transpose(),
        }
    }
}

/// The targets of a run, and the outputs that will change them.
struct Relabelled<'a> {
    kind: LabelKind,
    forget: &'a [usize],
    targets: RefCell<RowTargets>,
}

impl Relabelled<'_> {
    fn set(&self, outputs: &Matrix) {
        let mut targets = self.targets.borrow_mut();
        for (i, &row) in self.forget.iter().enumerate() {
            match self.kind {
                LabelKind::Hard => targets.set_class(row, argmax(outputs.row(i)) as i64),
                LabelKind::Soft => targets.set_distribution(row, softmax(outputs.row(i), 1.0)),
            }
        }
    }

    fn set_when_done(&self, pending: &mut Pending) -> Result<()> {
        if let Some(outputs) = pending.take()? {
            self.set(&outputs);
        }
        Ok(())
    }
}

/// Lets a step begin when the labels of its batch are there.
struct Gate<'a> {
    watch: &'a mut dyn Watch,
    labels: &'a Relabelled<'a>,
    pending: &'a mut Pending,
    late: Option<&'a mut Pending>,
    forgotten: &'a HashSet<usize>,
}

impl Watch for Gate<'_> {
    fn rows(&mut self, done: u64, total: u64) -> bool {
        self.watch.rows(done, total)
    }

    fn other(&mut self, phase: &str, done: u64, total: u64) -> bool {
        self.watch.other(phase, done, total)
    }

    fn before_step(&mut self, batch: &Batch) -> Result<()> {
        // There is no use in going on without labels that will never be there.
        self.pending.check()?;
        self.late.as_mut().map_or(Ok(()), |late| late.check())?;
        if batch.rows.iter().any(|row| self.forgotten.contains(row)) {
            self.labels.set_when_done(self.pending)?;
        }
        self.watch.before_step(batch)
    }

    fn epoch(&mut self, session: &Session) -> Result<()> {
        self.watch.epoch(session)
    }
}

/// Sums over feature rows with a bias.
fn spec(features: usize) -> SumsSpec {
    SumsSpec {
        features,
        bias: true,
        targets: 0,
    }
}

/// ⌈share·n⌉, at least 1.
fn count(share: f64, n: usize) -> Result<usize> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(Error::Parameter {
            name: "sampling",
            value: share.to_string(),
            expected: "a share of the retained rows, above 0 and at most 1".into(),
        });
    }
    Ok(((share * n as f64).ceil() as usize).clamp(1, n))
}

impl Method for Muso {
    fn name(&self) -> &'static str {
        "MUSO"
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        let share = match self.sampling {
            Sampling::All => 1.0,
            Sampling::Random(share) | Sampling::ColumnSelect(share) => share,
        };
        count(share, 1)?;
        let ridges = match self.ridge {
            RidgePath::Constant(ridge) => [ridge; 2],
            RidgePath::Cosine(first, last) => [first, last],
        };
        for ridge in ridges {
            within("ridge", ridge, 0.0, f64::MAX)?;
        }
        within("staleness", self.staleness as f64, 0.0, 1.0)?;
        within("every", self.every.unwrap_or(1) as f64, 1.0, f64::INFINITY)?;
        self.recipe.check()
    }

    fn unlearn(&self, task: &Task<'_>, watch: &mut dyn Watch) -> Result<Network> {
        let known = match self.reference {
            Reference::Labels => {
                let labels = task.feed.labels(task.forget);
                Targets::Classes(&labels).to_matrix(labels.len(), task.classes)
            }
            Reference::Logits => {
                let original = task
                    .feed
                    .extract(task.original, task.forget, &mut Beside(watch))?;
                let logits = original.logits.iter().copied().map(f64::from).collect();
                Matrix::from_vec(task.forget.len(), task.classes, logits)
            }
        };
        let labels = Arc::new(Labels {
            settings: self.clone(),
            feed: task.feed.clone(),
            retain: task.retain.to_vec(),
            forget: task.forget.to_vec(),
            trained: head_matrix(task.original),
            initial: head_matrix(task.initial),
            reference: known,
            engine: task.engine.clone(),
            seed: task.seed,
        });
        let relabelled = Relabelled {
            kind: self.labels,
            forget: task.forget,
            targets: RefCell::new(task.targets()),
        };
        let forgotten: HashSet<usize> = task.forget.iter().copied().collect();
        let rows = task.all_rows();
        let steps = rows.len().div_ceil(self.recipe.batch);
        let seed = stream(task.seed, 0x3502);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        let mut late: Option<Pending> = None;
        let mut update = 0;
        while !session.is_finished() {
            let part = (session.epoch * steps + session.step) as f64
                / (session.recipe.epochs * steps) as f64;
            let left = steps - session.step;
            let is_last = session.epoch + 1 == session.recipe.epochs
                && self.every.is_none_or(|every| every >= left);
            // Labels that are put to use an update late are of no use after the last.
            let mut pending = if is_last && late.is_some() {
                Pending::Here(None)
            } else {
                labels.start(&session.network, (update, part), watch)?
            };
            if self.staleness > 0 {
                // The first labels have none before them to stand in.
                let mut due = match late.take() {
                    Some(due) => due,
                    None => std::mem::replace(&mut pending, Pending::Here(None)),
                };
                relabelled.set_when_done(&mut due)?;
                late = Some(std::mem::replace(&mut pending, Pending::Here(None)));
            }
            update += 1;
            let mut gate = Gate {
                watch: &mut *watch,
                labels: &relabelled,
                pending: &mut pending,
                late: late.as_mut(),
                forgotten: &forgotten,
            };
            let mut loss = |step: &Step<'_>| relabelled.targets.borrow().loss(step);
            session.advance(task.feed, &rows, self.every, &mut loss, None, &mut gate)?;
            // Should no batch of this stretch have held a forgotten row.
            relabelled.set_when_done(&mut pending)?;
            if session.step == 0 {
                watch.epoch(&session)?;
            }
        }
        Ok(session.network)
    }
}
