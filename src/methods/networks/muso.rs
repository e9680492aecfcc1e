//! The paper's algorithm: labels from the projector, recomputed as the network changes.

use muso_models::Network;
use serde::{Deserialize, Serialize};

use super::{Method, Task, head_matrix, settings_of, short, within};
use crate::data::images::shuffled;
use crate::engine::{Engine, Matrix, SumsSpec, Targets};
use crate::error::{Error, Result};
use crate::features::Extracted;
use crate::gram::{Gram, GramBuilder, Route};
use crate::labels::{Projector, argmax, column_select, leverage_scores, softmax};
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

    /// The retained rows of one update.
    fn sample(
        &self,
        task: &Task<'_>,
        network: &Network,
        update: u64,
        watch: &mut dyn Watch,
    ) -> Result<Extracted> {
        let seed = stream(stream(task.seed, 0x3501), update);
        let rows = match self.sampling {
            Sampling::All => task.retain.to_vec(),
            Sampling::Random(share) => Self::sampled(task.retain, share, seed)?,
            Sampling::ColumnSelect(share) => {
                let all = task
                    .feed
                    .extract(network, task.retain, &mut Beside(watch))?;
                let gram = self.gram(task, &all, Route::Primal)?;
                let eigen = Eigen::new(gram.system())?;
                let scores = leverage_scores(task.engine, &eigen, all.feature_rows(), None)?;
                let drawn = column_select(&scores, count(share, task.retain.len())?, seed);
                drawn.into_iter().map(|i| task.retain[i]).collect()
            }
        };
        task.feed.extract(network, &rows, &mut Beside(watch))
    }

    fn gram(&self, task: &Task<'_>, rows: &Extracted, route: Route) -> Result<Gram> {
        let spec = SumsSpec {
            features: rows.width,
            bias: true,
            targets: 0,
        };
        let mut builder = GramBuilder::new(task.engine, route, spec)?;
        builder.push(rows.feature_rows(), Targets::None)?;
        builder.finish()
    }

    /// ỹ_u, N_u×C, for the network as it is.
    fn optimal_outputs(
        &self,
        task: &Task<'_>,
        network: &Network,
        reference: &Matrix,
        (update, part): (u64, f64),
        watch: &mut dyn Watch,
    ) -> Result<Matrix> {
        let sample = self.sample(task, network, update, watch)?;
        let route = Route::choose(sample.rows() as u64, sample.width + 1);
        let gram = self.gram(task, &sample, route)?;
        let trained = head_matrix(task.original);
        let projector = Projector::new(task.engine, gram, self.ridge.at(part))?;
        let (optimal, _) = projector.optimal_weights(&trained, &head_matrix(task.initial))?;
        let weights = optimal.zip(&trained, |a, b| a + b);
        let forgotten = task
            .feed
            .extract(network, task.forget, &mut Beside(watch))?;
        let outputs = task.engine.project(forgotten.feature_rows(), &weights)?;
        Ok(outputs.zip(reference, |output, known| output - known))
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
        let rows = task.all_rows();
        let steps = rows.len().div_ceil(self.recipe.batch);
        let mut targets: RowTargets = task.targets();
        let seed = stream(task.seed, 0x3502);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        let mut update = 0;
        while !session.is_finished() {
            let part = (session.epoch * steps + session.step) as f64
                / (session.recipe.epochs * steps) as f64;
            let outputs =
                self.optimal_outputs(task, &session.network, &known, (update, part), watch)?;
            update += 1;
            for (i, &row) in task.forget.iter().enumerate() {
                match self.labels {
                    LabelKind::Hard => targets.set_class(row, argmax(outputs.row(i)) as i64),
                    LabelKind::Soft => targets.set_distribution(row, softmax(outputs.row(i), 1.0)),
                }
            }
            let mut loss = |step: &Step<'_>| targets.loss(step);
            session.advance(task.feed, &rows, self.every, &mut loss, None, watch)?;
            if session.step == 0 {
                watch.epoch(&session)?;
            }
        }
        Ok(session.network)
    }
}
