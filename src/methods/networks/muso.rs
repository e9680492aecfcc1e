//! MUSO, the paper's algorithm: optimal labels from the projector onto retained features, recomputed as these change.

use std::cell::RefCell;
use std::collections::HashSet;

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::data::images::shuffled;
use crate::engine::{AnyEngine, Matrix, SumsSpec, Targets, with_rows};
use crate::error::{Error, Result};
use crate::features::{Batches, Passed};
use crate::gram::{GramBuilder, Route};
use crate::labels::{column_select, leverage_scores};
use crate::progress::{Progress, check};
use crate::scheduler::LabelUpdates;
use crate::seeds::Purpose;
use crate::softmax::{argmax, softmax};
use crate::solve::Eigen;
use crate::train::{Beside, Recipe, RowTargets, Rule, Session, Step, Watch};

/// Selection of the retained rows that the projector is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Takes every retained row: G is a sum over rows, so this costs a pass and no memory.
    All,
    /// Draws a share uniformly and without replacement, anew for each update.
    Random(f64),
    /// Draws a share by leverage score with replacement (column subset selection).
    ColumnSelect(f64),
}

/// Conversion of the forgotten rows' optimal outputs into training targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// Hard labels: the class of the largest output, as the authors' code has it.
    Hard,
    /// Soft labels: the softmax of the outputs.
    Soft,
}

/// Reference outputs y_ref that are subtracted from Z_u(W* + w_p).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// One-hot labels, as the paper writes it.
    Labels,
    /// The original network's logits, as the authors' code has it.
    Logits,
}

/// Schedule of the ridge λ over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RidgePath {
    /// A constant λ for all updates.
    Constant(f64),
    /// λ from the first value to the second along half a cosine, as the authors' code has it.
    Cosine(f64, f64),
}

impl RidgePath {
    /// Returns λ at `part` of the run, from 0 at its start to 1 at its end.
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

/// MUSO as published: alternates label updates ỹ_u = Z_u(W* + w_p) − y_ref, W* = w_init + Π_r(w_p − w_init), with
/// training on all rows.
///
/// Π_r is nearly the identity in a network with more retained rows than features, and ỹ_u is nearly what the original
/// network says; [`MusoS`](super::MusoS) is the form that does not depend on that.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Muso {
    /// Retained rows that the projector is made of.
    pub sampling: Sampling,
    /// Kind of training targets, hard or soft, that the optimal outputs become.
    pub labels: LabelKind,
    /// Reference outputs y_ref of the label formula.
    pub reference: Reference,
    /// Ridge λ of the projector, constant or scheduled.
    pub ridge: RidgePath,
    /// Steps between label updates; `None` updates once an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<usize>,
    /// Number of updates, 0 or 1, by which new labels are late. With 1 they are computed while training goes on with
    /// those of the update before; with 0 only batches without forgotten rows are trained on meanwhile, which changes
    /// nothing in the outcome.
    pub staleness: usize,
    /// Training recipe for all rows, between and after label updates.
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
    /// Draws ⌈share·N⌉ of the rows uniformly and without replacement, and returns them ascending.
    ///
    /// # Errors
    /// If `share` is not above 0 and at most 1.
    pub fn sampled(rows: &[usize], share: f64, seed: u64) -> Result<Vec<usize>> {
        let mut rows = shuffled(rows, seed);
        rows.truncate(count(share, rows.len())?);
        rows.sort_unstable();
        Ok(rows)
    }

    /// Chooses the retained rows of one update.
    fn sample<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        network: &N,
        update: u64,
        progress: &mut dyn Progress,
    ) -> Result<Vec<usize>> {
        let seed = Purpose::MusoProjectorRows.nth(task.seed, update);
        match self.sampling {
            Sampling::All => Ok(task.retain.to_vec()),
            Sampling::Random(share) => Self::sampled(task.retain, share, seed),
            Sampling::ColumnSelect(share) => {
                let scores = leverages(task, network, progress)?;
                let drawn = column_select(&scores, count(share, task.retain.len())?, seed);
                Ok(drawn.into_iter().map(|i| task.retain[i]).collect())
            }
        }
    }

    /// Starts an update of the labels from the network as it is, or computes it now where there are no lanes.
    fn update<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        network: &N,
        update: u64,
        labels: &mut LabelUpdates<AnyEngine>,
        watch: &mut dyn Watch<N>,
    ) -> Result<()> {
        let sample = self.sample(task, network, update, &mut Beside(watch))?;
        let retained = task.feed.deferred_pass(network, &sample);
        let forgotten = task.feed.deferred_pass(network, task.forget);
        if task.feed.scheduler.depth > 0 {
            return labels.start(retained, forgotten);
        }
        let all = (sample.len() + task.forget.len()) as u64;
        let heard = RefCell::new((0, watch));
        let hear = |passed: Result<Passed>| {
            let passed = passed?;
            let (done, watch) = &mut *heard.borrow_mut();
            *done += passed.rows.len() as u64;
            check(&mut Beside(*watch), "extracting features", *done, all)?;
            Ok(passed)
        };
        let [retained, forgotten] = [retained, forgotten].map(|pass| pass.into_iter().map(hear));
        labels.compute(retained, forgotten)
    }
}

/// Computes the leverage score of every retained row in two passes over the features.
fn leverages<N: FeatureNet, B: Batches<Input = N::Input>>(
    task: &Task<'_, N, B>,
    network: &N,
    progress: &mut dyn Progress,
) -> Result<Vec<f64>> {
    let spec = SumsSpec {
        features: network.head().weight.dims()[0],
        bias: false,
        targets: 0,
    };
    let (feed, rows) = (task.feed, task.retain);
    let mut builder = GramBuilder::new(task.engine, Route::Primal, spec)?;
    feed.each(network, rows, None, progress, |passed| {
        builder.update(&passed.features, Targets::None)
    })?;
    let eigen = Eigen::new(builder.finish()?.system())?;
    let mut scores = Vec::with_capacity(rows.len());
    feed.each(network, rows, None, progress, |passed| {
        scores.extend(with_rows(&passed.features, |rows| {
            leverage_scores(task.engine, &eigen, rows, None)
        })?);
        Ok(())
    })?;
    Ok(scores)
}

/// Training targets of a run, in which label updates replace those of the forgotten rows.
struct Relabelled<'a> {
    kind: LabelKind,
    forget: &'a [usize],
    targets: RefCell<RowTargets>,
}

impl Relabelled<'_> {
    /// Puts labels to use when they are due.
    fn set_when_due(&self, labels: &mut LabelUpdates<AnyEngine>) -> Result<()> {
        let Some(outputs) = labels.wait()? else {
            return Ok(());
        };
        let mut targets = self.targets.borrow_mut();
        for (i, &row) in self.forget.iter().enumerate() {
            match self.kind {
                LabelKind::Hard => targets.set_class(row, argmax(outputs.row(i)) as i64),
                LabelKind::Soft => targets.set_distribution(row, softmax(outputs.row(i), 1.0)),
            }
        }
        Ok(())
    }
}

/// Lets a step begin when the labels of its batch are there.
struct Gate<'a, N: FeatureNet> {
    watch: &'a mut dyn Watch<N>,
    relabelled: &'a Relabelled<'a>,
    labels: &'a mut LabelUpdates<AnyEngine>,
    forgotten: &'a HashSet<usize>,
}

impl<N: FeatureNet> Watch<N> for Gate<'_, N> {
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        Some(self.watch)
    }

    fn before_step(&mut self, rows: &[usize]) -> Result<()> {
        // There is no use in going on without labels that will never be there.
        self.labels.check()?;
        if rows.iter().any(|row| self.forgotten.contains(row)) {
            self.relabelled.set_when_due(self.labels)?;
        }
        self.watch.before_step(rows)
    }
}

/// Returns ⌈share·n⌉, at least 1.
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

impl Settings for Muso {
    fn name(&self) -> &'static str {
        Self::NAME
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
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Muso {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let known = match self.reference {
            Reference::Labels => {
                let labels = task.feed.labels(task.forget);
                Targets::Classes(&labels).to_matrix(labels.len(), task.classes)
            }
            Reference::Logits => {
                let (original, forget) = (task.original, task.forget);
                let logits = task
                    .feed
                    .logits(original, forget, None, &mut Beside(watch))?;
                let logits = logits.into_iter().map(f64::from).collect();
                Matrix::from_vec(forget.len(), task.classes, logits)
            }
        };
        let mut labels = LabelUpdates::new(task.engine, task.original.head(), task.initial.head())
            .reference(known)
            .staleness(self.staleness)
            .scheduler(task.feed.scheduler.clone());
        let relabelled = Relabelled {
            kind: self.labels,
            forget: task.forget,
            targets: RefCell::new(task.targets()),
        };
        let forgotten: HashSet<usize> = task.forget.iter().copied().collect();
        let rows = task.all_rows();
        let steps = rows.len().div_ceil(self.recipe.batch);
        let seed = Purpose::MusoOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        let mut update = 0;
        while !session.is_finished() {
            let part = (session.epoch * steps + session.step) as f64
                / (session.recipe.epochs * steps) as f64;
            let left = steps - session.step;
            let is_last = session.epoch + 1 == session.recipe.epochs
                && self.every.is_none_or(|every| every >= left);
            // Labels that are put to use an update late are of no use after the last.
            if is_last && self.staleness > 0 && update > 0 {
                labels.skip();
            } else {
                labels.set_ridge(self.ridge.at(part));
                self.update(task, &session.network, update, &mut labels, watch)?;
            }
            if self.staleness > 0 {
                relabelled.set_when_due(&mut labels)?;
            }
            update += 1;
            let mut gate = Gate {
                watch: &mut *watch,
                relabelled: &relabelled,
                labels: &mut labels,
                forgotten: &forgotten,
            };
            let mut loss = |step: &Step<'_, N>| relabelled.targets.borrow().loss(step);
            session.advance(task.feed, &rows, self.every, &mut loss, None, &mut gate)?;
            // Should no batch of this stretch have held a forgotten row.
            relabelled.set_when_due(&mut labels)?;
            if session.step == 0 {
                watch.epoch(&session)?;
            }
        }
        Ok(session.network)
    }
}
