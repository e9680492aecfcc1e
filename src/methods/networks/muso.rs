//! MUSO, the paper's algorithm: optimal labels from the projector onto retained features, recomputed as these change.
//!
//! A [`Preset`] is a set of settings that somebody published: the paper's text, or one of the two versions of the authors'
//! code. `docs/paper.md` says what was read where, and what the text leaves open.

mod presets;
mod relabelled;

pub use presets::Preset;

use std::cell::RefCell;

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::data::images::shuffled;
use crate::engine::{AnyEngine, Matrix, SumsSpec, Targets, with_rows};
use crate::error::{Error, Result};
use crate::features::{Batches, Passed};
use crate::gram::{GramBuilder, Route};
use crate::labels::{Release, column_select, leverage_scores};
use crate::progress::{Progress, check};
use crate::scheduler::LabelUpdates;
use crate::seeds::{Purpose, nth};
use crate::solve::Eigen;
use crate::train::{Beside, Recipe, Rule, Session, Step, Watch};
use relabelled::{Gate, Relabelled};

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
    /// Reads the rows in order, batch by batch, and whenever more than twice the share are held keeps the share of them, as
    /// the authors' code does: up to twice the share in the end, those read last more often.
    Released(f64),
}

/// Projector that the labels are made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Projection {
    /// The projector of the paper in f64, with nothing inverted.
    #[default]
    #[serde(rename = "exact")]
    Exact,
    /// The dual formula of the authors' code of 2024-10, in f32.
    #[serde(rename = "released-2024-10")]
    October2024,
    /// The Woodbury form of the authors' code of 2025-02, with (λI)⁻¹ where I belongs, in f32.
    #[serde(rename = "released-2025-02")]
    February2025,
    /// No projector: at every update each forgotten row gets a class drawn from all of them.
    #[serde(rename = "random-labels")]
    RandomLabels,
}

impl Projection {
    /// Returns the version of the authors' code that makes the projector so, if one does.
    fn release(self) -> Option<Release> {
        match self {
            Self::Exact | Self::RandomLabels => None,
            Self::October2024 => Some(Release::October2024),
            Self::February2025 => Some(Release::February2025),
        }
    }
}

/// Moment at which a forgotten row gets its label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relabel {
    /// At each update, for all forgotten rows at once.
    #[default]
    Update,
    /// In every batch, from the features of that moment and W* of the last update, as the authors' code does.
    Batch,
}

/// Conversion of the forgotten rows' optimal outputs into training targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelKind {
    /// Hard labels: the class of the largest output, as both versions of the authors' code have it.
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
    /// The original network's logits, as both versions of the authors' code have it.
    Logits,
}

/// Schedule of the ridge λ over a run. In a run file a number alone is a constant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", from = "WrittenRidge")]
pub enum RidgePath {
    /// A constant λ for all updates.
    Constant(f64),
    /// λ from the first value to the second along half a cosine over the run.
    Cosine(f64, f64),
    /// λ along half a cosine from the first epoch to the last, one epoch late, as the authors' code has it: W* of an epoch
    /// is made with the value of the epoch before, so that the second value is never used.
    LaggedCosine(f64, f64),
}

/// [`RidgePath`] as people write it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number, or { constant = λ }, { cosine = [from, to] } or { lagged-cosine = [from, to] }"
)]
enum WrittenRidge {
    Number(f64),
    Constant {
        constant: f64,
    },
    Cosine {
        cosine: (f64, f64),
    },
    #[serde(rename_all = "kebab-case")]
    Lagged {
        lagged_cosine: (f64, f64),
    },
}

impl From<WrittenRidge> for RidgePath {
    fn from(written: WrittenRidge) -> Self {
        match written {
            WrittenRidge::Number(ridge) | WrittenRidge::Constant { constant: ridge } => {
                Self::Constant(ridge)
            }
            WrittenRidge::Cosine { cosine: (from, to) } => Self::Cosine(from, to),
            WrittenRidge::Lagged {
                lagged_cosine: (from, to),
            } => Self::LaggedCosine(from, to),
        }
    }
}

impl RidgePath {
    /// Returns λ at `part` of a run of `epochs` epochs, from 0 at its start to 1 at its end.
    pub fn at(self, part: f64, epochs: usize) -> f64 {
        let rise = |part: f64| 0.5 * (1.0 - (std::f64::consts::PI * part.clamp(0.0, 1.0)).cos());
        match self {
            Self::Constant(ridge) => ridge,
            Self::Cosine(first, last) => first + (last - first) * rise(part),
            Self::LaggedCosine(first, last) => {
                let epoch = (part * epochs as f64 + 1e-9).floor();
                let before = (epoch - 1.0).max(0.0) / epochs.saturating_sub(1).max(1) as f64;
                first + (last - first) * rise(before)
            }
        }
    }

    fn values(self) -> [f64; 2] {
        match self {
            Self::Constant(ridge) => [ridge; 2],
            Self::Cosine(first, last) | Self::LaggedCosine(first, last) => [first, last],
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
    /// Published settings that these started from; `None` is this program's own choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Projector that the labels are made with.
    pub projector: Projection,
    /// Retained rows that the projector is made of.
    pub sampling: Sampling,
    /// Rank k of column selection: leverage scores over the top k directions; `None` takes all that the rows span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Moment at which a forgotten row gets its label.
    pub relabel: Relabel,
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
    /// Relative change of an epoch's mean loss below which the run has converged and ends; `None` goes on to the last
    /// epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged: Option<f64>,
    /// Ridge path in place of `ridge` where the forgotten rows are a class or a part of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_ridge: Option<RidgePath>,
    /// Training recipe for all rows, between and after label updates.
    pub recipe: Recipe,
    /// Recipe in place of `recipe` where the forgotten rows are a class or a part of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_recipe: Option<Recipe>,
}

impl Default for Muso {
    fn default() -> Self {
        Self {
            preset: None,
            projector: Projection::Exact,
            sampling: Sampling::Random(0.2),
            rank: None,
            relabel: Relabel::Update,
            labels: LabelKind::Hard,
            reference: Reference::Logits,
            ridge: RidgePath::Cosine(1e-6, 1e-2),
            every: None,
            staleness: 0,
            converged: None,
            class_ridge: None,
            recipe: short(Rule::Adam, 2, 3e-5, 128),
            class_recipe: None,
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

    /// Draws rows as the authors' code does ([`Sampling::Released`]), `batch` read at a time.
    ///
    /// # Errors
    /// If `share` is not above 0 and at most 1.
    pub fn sampled_as_released(
        rows: &[usize],
        share: f64,
        batch: usize,
        seed: u64,
    ) -> Result<Vec<usize>> {
        count(share, rows.len())?;
        let wanted = ((share * rows.len() as f64).floor() as usize).max(1);
        let mut held: Vec<usize> = Vec::new();
        for (number, batch) in rows.chunks(batch.max(1)).enumerate() {
            held.extend(batch);
            if held.len() > 2 * wanted {
                held = shuffled(&held, nth(seed, number as u64));
                held.truncate(wanted);
            }
        }
        Ok(held)
    }

    /// Returns the recipe and the ridge path for what a task forgets.
    fn for_task<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
    ) -> (&Recipe, RidgePath) {
        match task.of_class {
            true => (
                self.class_recipe.as_ref().unwrap_or(&self.recipe),
                self.class_ridge.unwrap_or(self.ridge),
            ),
            false => (&self.recipe, self.ridge),
        }
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
            Sampling::Released(share) => {
                let batch = self.for_task(task).0.batch;
                Self::sampled_as_released(task.retain, share, batch, seed)
            }
            Sampling::ColumnSelect(share) => {
                let scores = leverages(task, network, self.rank, progress)?;
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

/// Computes the leverage score of every retained row over the top `rank` directions, in two passes over the features: one
/// for G, whose eigenvectors are the right singular vectors of Z, one for the scores. No feature is kept.
fn leverages<N: FeatureNet, B: Batches<Input = N::Input>>(
    task: &Task<'_, N, B>,
    network: &N,
    rank: Option<usize>,
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
            leverage_scores(task.engine, &eigen, rows, rank)
        })?);
        Ok(())
    })?;
    Ok(scores)
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
        self.preset.map_or(Self::NAME, Preset::method_name)
    }

    fn preset(name: &str) -> Option<toml::Table> {
        Some(Preset::find(name)?.settings().settings())
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        let share = match self.sampling {
            Sampling::All => 1.0,
            Sampling::Random(share) | Sampling::ColumnSelect(share) | Sampling::Released(share) => {
                share
            }
        };
        count(share, 1)?;
        for ridge in self.ridge.values() {
            within("ridge", ridge, 0.0, f64::MAX)?;
        }
        for ridge in self.class_ridge.into_iter().flat_map(RidgePath::values) {
            within("class-ridge", ridge, 0.0, f64::MAX)?;
        }
        within("rank", self.rank.unwrap_or(1) as f64, 1.0, f64::INFINITY)?;
        within("converged", self.converged.unwrap_or(0.0), 0.0, 1.0)?;
        within("staleness", self.staleness as f64, 0.0, 1.0)?;
        within("every", self.every.unwrap_or(1) as f64, 1.0, f64::INFINITY)?;
        if let Some(recipe) = &self.class_recipe {
            recipe.check()?;
        }
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
        let reference = known.clone();
        let (recipe, ridge) = self.for_task(task);
        let mut labels = LabelUpdates::new(task.engine, task.original.head(), task.initial.head())
            .reference(known)
            .release(self.projector.release())
            .staleness(self.staleness)
            .scheduler(task.feed.scheduler.clone());
        let relabelled = Relabelled::new(self, task);
        let rows = task.all_rows();
        let steps = rows.len().div_ceil(recipe.batch);
        let seed = Purpose::MusoOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), recipe.clone(), seed);
        let (mut update, mut loss_before) = (0, f64::NAN);
        while !session.is_finished() {
            let part = (session.epoch * steps + session.step) as f64
                / (session.recipe.epochs * steps) as f64;
            let left = steps - session.step;
            let is_last = session.epoch + 1 == session.recipe.epochs
                && self.every.is_none_or(|every| every >= left);
            if self.projector == Projection::RandomLabels {
                let drawn = Purpose::MusoRandomLabels.nth(task.seed, update);
                relabelled.set_at_random(task.classes, drawn);
            } else if is_last && self.staleness > 0 && update > 0 {
                // Labels that are put to use an update late are of no use after the last.
                labels.skip();
            } else {
                labels.set_ridge(ridge.at(part, session.recipe.epochs));
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
            };
            let mut loss = |step: &Step<'_, N>| {
                if self.relabel == Relabel::Batch
                    && let Err(error) = relabelled.set_batch(task, &reference, step)
                {
                    relabelled.fail(error);
                }
                relabelled.loss(step)
            };
            session.advance(task.feed, &rows, self.every, &mut loss, None, &mut gate)?;
            // Should no batch of this stretch have held a forgotten row.
            relabelled.set_when_due(&mut labels)?;
            relabelled.tell(watch)?;
            if session.step == 0 {
                watch.epoch(&session)?;
                let change = (session.loss - loss_before).abs();
                if self
                    .converged
                    .is_some_and(|share| change <= share * loss_before.abs())
                {
                    break;
                }
                loss_before = session.loss;
            }
        }
        Ok(session.network)
    }
}
