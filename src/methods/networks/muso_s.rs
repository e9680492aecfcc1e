//! MUSO-S: MUSO in the target form of its lemma, on features that were trained without the forgotten rows.

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, descend, settings_of, short, within};
use crate::engine::{AnyEngine, with_rows};
use crate::error::Result;
use crate::features::Batches;
use crate::labels::{TargetFit, TargetForm, TargetParams};
use crate::softmax::{entropy, softmax};
use crate::train::{Beside, Recipe, Rule, Schedule, Session, Watch};

/// MUSO-S: relabels the forgotten rows by a ridge regression of the retained ones, on features that have not memorised
/// them.
///
/// 1. Features: the initial weights of the training run, trained for a while on the retained rows only. With `snapshot`
///    above 0, and where there are snapshots, an early one takes their place, from before the network memorised much.
/// 2. Labels: the target form ỹ_u = Z_u W_r on those features, W_r fitted to the retained labels alone, small classes
///    counting for more.
/// 3. Sharpness: softmax(k·τ·ỹ_u), where τ is the leave-one-out temperature and k makes the left-out retained rows as
///    uncertain as the original network is of images that it has *not* memorised: the retained ones moved by a pixel
///    (times `sharpen`: what is forgotten is often further from the retained rows than they are from one another, and a
///    network is surer out there than least squares). Rows that have no variants, unlike images, take the leave-one-out
///    temperature as it is (k = 1).
/// 4. Descent on the retained rows with their labels and the forgotten ones with these.
///
/// Neither a retrained model nor any data beyond the training rows is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct MusoS {
    /// Part of the training run, from 0 to 1, whose nearest snapshot gives the features; 0 takes the initial weights.
    pub snapshot: f64,
    /// Part of the training run's epochs for which that snapshot is then trained on the retained rows.
    pub refresh: f64,
    /// Ridge λ of the fit, as a multiple of tr(G)/D, the mean diagonal entry of the Gram matrix.
    pub relative_ridge: f64,
    /// Class balance of the fit, from 0 (every row counts alike) to 1 (every class does, however few rows it has left).
    pub balance: f64,
    /// Factor on the sharpness k that is found.
    pub sharpen: f64,
    /// Times that an epoch of the descent sees each forgotten row.
    pub repeat: usize,
    /// Training recipe of the descent on all rows with the new labels.
    pub recipe: Recipe,
}

impl Default for MusoS {
    fn default() -> Self {
        Self {
            snapshot: 0.0,
            refresh: 0.3,
            relative_ridge: 1e-3,
            balance: 0.5,
            sharpen: 1.25,
            repeat: 3,
            recipe: Recipe {
                schedule: Schedule::Cosine,
                ..short(Rule::Adam, 3, 1e-3, 32)
            },
        }
    }
}

impl MusoS {
    /// Trains the network whose features the labels are made of.
    fn source<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        watch: &mut dyn Watch<N>,
    ) -> Result<N> {
        let epochs = task.recipe.epochs as f64;
        let distance = |epoch: usize| (epoch as f64 - self.snapshot * epochs).abs();
        let nearest = task
            .snapshots
            .iter()
            .map(|snapshot| (snapshot.epoch, &snapshot.network))
            .min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)));
        let start = match nearest {
            Some((_, network)) if self.snapshot > 0.0 => network,
            _ => task.initial,
        };
        let recipe = Recipe {
            epochs: (self.refresh * epochs).round() as usize,
            warmup: 0.0,
            schedule: Schedule::Cosine,
            ..task.recipe.clone()
        };
        let targets = task.targets();
        descend(
            task,
            start.clone(),
            recipe,
            task.retain,
            &targets,
            &mut Quiet(watch),
        )
    }

    /// Returns the mean softmax entropy of the original network over variants of the retained rows, if they have any.
    fn entropy_beside_the_rows<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        watch: &mut dyn Watch<N>,
    ) -> Result<Option<f64>> {
        let variants = task.feed.data.variants();
        let mut total = 0.0;
        for variant in 0..variants {
            let (network, rows) = (task.original, task.retain);
            let progress = &mut Beside(watch);
            let logits = task.feed.logits(network, rows, Some(variant), progress)?;
            for row in logits.chunks(task.classes) {
                let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
                total += entropy(&softmax(&row, 1.0));
            }
        }
        Ok((variants > 0).then(|| total / (variants * task.retain.len()) as f64))
    }

    /// Fits the target form in two passes over the features of the retained rows, which are not kept.
    fn fit<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        source: &N,
        watch: &mut dyn Watch<N>,
    ) -> Result<TargetForm> {
        let params = TargetParams {
            relative_ridge: self.relative_ridge,
            balance: self.balance,
        };
        let (feed, progress) = (task.feed, &mut Beside(watch));
        let classes = feed.labels(task.retain);
        let mut fit = TargetFit::<AnyEngine>::new(task.engine, &classes, task.classes, params)?;
        let order: Vec<usize> = fit.order().into_iter().map(|i| task.retain[i]).collect();
        let mut number = 0;
        feed.each(source, &order, None, progress, |passed| {
            number += 1;
            feed.scheduler
                .step("gram", number - 1, || fit.update(&passed.features))
        })?;
        let mut model = feed.scheduler.step("solve", 0, || fit.solve())?;
        let mut number = 0;
        feed.each(source, task.retain, None, progress, |passed| {
            number += 1;
            feed.scheduler.step("solve", number, || {
                with_rows(&passed.features, |rows| model.leave_out(rows))
            })
        })?;
        model.finish()
    }

    /// Returns the soft labels of the forgotten rows, in their order.
    fn labels<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        source: &N,
        watch: &mut dyn Watch<N>,
    ) -> Result<Vec<Vec<f32>>> {
        let form = self.fit(task, source, watch)?;
        let sharpness = match self.entropy_beside_the_rows(task, watch)? {
            Some(entropy) => self.sharpen * form.sharpness_of(entropy),
            None => self.sharpen,
        };
        let mut labels = Vec::with_capacity(task.forget.len());
        let progress = &mut Beside(watch);
        task.feed
            .each(source, task.forget, None, progress, |passed| {
                labels.extend(with_rows(&passed.features, |rows| {
                    form.labels(task.engine, rows, sharpness)
                })?);
                Ok(())
            })?;
        Ok(labels)
    }
}

/// Keeps the epochs from a watch: they are not those of the network that forgets.
struct Quiet<'a, N: FeatureNet>(&'a mut dyn Watch<N>);

impl<N: FeatureNet> Watch<N> for Quiet<'_, N> {
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        Some(self.0)
    }

    fn epoch(&mut self, _: &Session<N>) -> Result<()> {
        Ok(())
    }
}

impl Settings for MusoS {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("snapshot", self.snapshot, 0.0, 1.0)?;
        within("refresh", self.refresh, 0.0, 1.0)?;
        within(
            "relative-ridge",
            self.relative_ridge,
            f64::MIN_POSITIVE,
            f64::MAX,
        )?;
        within("balance", self.balance, 0.0, 1.0)?;
        within("sharpen", self.sharpen, 1e-3, 1e3)?;
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for MusoS {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let source = self.source(task, watch)?;
        let mut targets = task.targets();
        let scheduler = &task.feed.scheduler;
        let labels = scheduler.step("labels", 0, || self.labels(task, &source, watch))?;
        for (&row, distribution) in task.forget.iter().zip(labels) {
            targets.set_distribution(row, distribution);
        }
        let mut rows = task.retain.to_vec();
        for _ in 0..self.repeat.max(1) {
            rows.extend(task.forget);
        }
        let start = task.original.clone();
        descend(task, start, self.recipe.clone(), &rows, &targets, watch)
    }
}
