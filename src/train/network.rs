//! Gradient descent on networks: one loop that every method shares.
//!
//! A [`Session`] is a run in progress: the network, the optimiser's state and how far it is. [`Session::advance`] does
//! some of its steps; what a step minimises is a closure. Everything random (the order of the rows, crops and flips)
//! is drawn from the seed and the place in the run, never from what happened before, so a session that is saved and
//! resumed at any step ends in the same bytes.

use std::collections::HashMap;

use muso_models::burn::tensor::activation::log_softmax;
use muso_models::burn::tensor::{Device, Tensor, TensorData};
use muso_models::{FeatureNet, Mode, Network, Statistics, Tape, params};

use super::optimizer::Optimizer;
use super::schedule::Recipe;
use super::watch::Watch;
use crate::data::images::shuffled;
use crate::error::{Error, Result};
use crate::features::{Batches, Feed, Order};
use crate::seeds::{Purpose, nth};

/// Inputs of a loss: the network to differentiate, the batch's rows and inputs, and the mode of its pass.
pub struct Step<'a, N: FeatureNet = Network> {
    /// The network, on the differentiating device.
    pub network: &'a N,
    /// The inputs, on the plain device.
    pub input: N::Input,
    /// The rows of the batch.
    pub rows: &'a [usize],
    /// The mode of the pass over the batch.
    pub mode: Mode<'a>,
    /// Tape that records passes for backpropagation.
    tape: &'a Tape,
}

impl<N: FeatureNet> Step<'_, N> {
    /// Computes the network's logits of the batch.
    pub fn logits(&self) -> Tensor<2> {
        self.logits_of(self.input.clone(), self.mode)
    }

    /// Computes the network's logits of other inputs.
    pub fn logits_of(&self, input: N::Input, mode: Mode<'_>) -> Tensor<2> {
        self.network.training_logits(input, mode, self.tape)
    }
}

/// The loss of a batch as a function of what a [`Step`] looks at.
pub type Loss<'a, N = Network> = dyn FnMut(&Step<'_, N>) -> Tensor<1> + 'a;

/// A training run in progress.
#[derive(Clone, Debug)]
pub struct Session<N: FeatureNet = Network> {
    /// The network as it is now.
    pub network: N,
    /// State of the optimiser.
    pub optimizer: Optimizer,
    /// Hyperparameters of the run.
    pub recipe: Recipe,
    /// Seed of the order of rows and of crops and flips.
    pub seed: u64,
    /// Number of epochs done.
    pub epoch: usize,
    /// Steps of the next epoch that are done as well.
    pub step: usize,
    /// Sum of the losses of those steps.
    pub(crate) loss_sum: f64,
    /// The losses of the last of them, which are not in the sum yet.
    pub(crate) unread: Vec<Tensor<1>>,
    /// Mean loss over the steps of the last whole epoch.
    pub loss: f64,
}

impl<N: FeatureNet> Session<N> {
    /// Starts a run, before its first step.
    pub fn new(network: N, recipe: Recipe, seed: u64) -> Self {
        Self {
            network,
            optimizer: Optimizer::new(&recipe),
            recipe,
            seed,
            epoch: 0,
            step: 0,
            loss_sum: 0.0,
            unread: Vec::new(),
            loss: f64::NAN,
        }
    }

    /// Returns whether all epochs are done.
    pub fn is_finished(&self) -> bool {
        self.epoch >= self.recipe.epochs
    }

    /// Trains for the rest of the current epoch, or `limit` steps of it if that is less. `loss` gives the mean loss of
    /// a batch; `after` may change the new weights.
    pub fn advance<B: Batches<Input = N::Input>>(
        &mut self,
        feed: &Feed<B>,
        rows: &[usize],
        limit: Option<usize>,
        loss: &mut Loss<'_, N>,
        after: Option<&mut AfterStep<'_>>,
        watch: &mut dyn Watch<N>,
    ) -> Result<()> {
        let steps = rows.len().div_ceil(self.recipe.batch);
        let outcome = self.descend(feed, rows, limit, loss, after, watch);
        // Whatever ended it, the losses of the steps that were done belong to them: they may be saved.
        let numbers = self.add_up(steps);
        match outcome {
            Err(Error::Interrupted) => numbers.and(Err(Error::Interrupted))?,
            Err(error) => return Err(error),
            Ok(()) => numbers?,
        }
        if self.step == steps {
            // The loss is from before the last step, which may have been one too many.
            let sums = params::weights(&self.network).into_iter().map(Tensor::sum);
            if !sums
                .into_iter()
                .all(|sum| sum.into_scalar::<f32>().is_finite())
            {
                return Err(self.diverged(steps));
            }
            self.loss = self.loss_sum / steps as f64;
            (self.epoch, self.step, self.loss_sum) = (self.epoch + 1, 0, 0.0);
        }
        Ok(())
    }

    /// The steps of [`Session::advance`]. Some of their losses may be unread when it ends.
    fn descend<B: Batches<Input = N::Input>>(
        &mut self,
        feed: &Feed<B>,
        rows: &[usize],
        limit: Option<usize>,
        loss: &mut Loss<'_, N>,
        mut after: Option<&mut AfterStep<'_>>,
        watch: &mut dyn Watch<N>,
    ) -> Result<()> {
        let batch = self.recipe.batch;
        let steps = rows.len().div_ceil(batch);
        let seed = nth(self.seed, self.epoch as u64);
        let order = Order {
            augment: self.recipe.augment,
            seed: Purpose::Augmentation.seed(seed),
            skip: self.step,
            ..Order::new(shuffled(rows, seed), batch)
        };
        let last = limit.map_or(steps, |limit| steps.min(self.step + limit));
        // One for all steps: it keeps its buffers.
        let tape = Tape::default();
        for item in feed.batches(order)? {
            let item = item?;
            if self.step == last {
                break;
            }
            watch.before_step(&item.rows)?;
            let number = (self.epoch * steps + self.step) as u64;
            let value = feed.scheduler.step("train", number, || {
                let (rows, _, input) = feed.upload(item, number)?;
                let found = differentiate(&self.network, input, &rows, &mut *loss, true, &tape);
                let rate = self
                    .recipe
                    .rate(self.epoch as f64 + self.step as f64 / steps as f64);
                let old = params::weights(&self.network);
                let mut weights = self.optimizer.step(old.clone(), found.gradients, rate);
                // Neither decay nor momentum moves what the module has frozen.
                let frozen = params::frozen(&found.student).into_iter();
                for ((weight, old), _) in weights.iter_mut().zip(old).zip(frozen).filter(|x| x.1) {
                    *weight = old;
                }
                if let Some(after) = after.as_mut() {
                    weights = after(&mut self.optimizer, weights);
                }
                self.network = found.student.after_step(weights, found.statistics);
                Ok(found.loss)
            })?;
            self.unread.push(value);
            self.step += 1;
            let done = self.epoch * rows.len() + (self.step * batch).min(rows.len());
            // Reading a loss waits for the device, so several are read at a time.
            if self.unread.len() == 16 || self.step == last {
                self.add_up(steps)?;
            }
            if !watch.rows(done as u64, (self.recipe.epochs * rows.len()) as u64) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    /// Adds unread losses to the sum, one after the other, and finds out whether they are still numbers.
    fn add_up(&mut self, steps: usize) -> Result<()> {
        for loss in self.unread.drain(..) {
            self.loss_sum += f64::from(loss.into_scalar::<f32>());
        }
        if self.loss_sum.is_finite() {
            Ok(())
        } else {
            Err(self.diverged(steps))
        }
    }

    fn diverged(&self, steps: usize) -> Error {
        Error::Diverged {
            steps: self.epoch * steps + self.step,
            advice: "a smaller learning rate may help",
        }
    }

    /// Runs to the end with one loss, letting `watch` see every epoch.
    pub fn run<B: Batches<Input = N::Input>>(
        &mut self,
        feed: &Feed<B>,
        rows: &[usize],
        loss: &mut Loss<'_, N>,
        watch: &mut dyn Watch<N>,
    ) -> Result<()> {
        while !self.is_finished() {
            self.advance(feed, rows, None, loss, None, watch)?;
            watch.epoch(self)?;
        }
        Ok(())
    }
}

/// Hook that sees, and may change, the weights after a step.
pub type AfterStep<'a> = dyn FnMut(&mut Optimizer, Vec<Tensor<1>>) -> Vec<Tensor<1>> + 'a;

/// A loss that was differentiated.
pub(crate) struct Differentiated<N> {
    /// The mean loss of the batch.
    pub(crate) loss: Tensor<1>,
    /// Gradient of the loss with respect to every parameter, in the order of [`params::weights`].
    pub(crate) gradients: Vec<Tensor<1>>,
    /// The network on the differentiating device.
    student: N,
    /// Batch statistics of the normalisation layers.
    statistics: Statistics,
}

/// Differentiates the loss of one batch. In training mode the pass uses the batch's own statistics, in evaluation mode
/// the running ones. A tape may serve many calls.
pub(crate) fn differentiate<N: FeatureNet>(
    network: &N,
    input: N::Input,
    rows: &[usize],
    loss: &mut Loss<'_, N>,
    training: bool,
    tape: &Tape,
) -> Differentiated<N> {
    let statistics = Statistics::default();
    let student = network.clone().train();
    let value = loss(&Step {
        network: &student,
        input,
        rows,
        mode: if training {
            Mode::Train(&statistics)
        } else {
            Mode::Eval
        },
        tape,
    });
    Differentiated {
        gradients: student.weight_gradients(&value.backward(), tape),
        loss: value.without_autodiff(),
        student,
        statistics,
    }
}

/// Targets of the network, row by row: a class, or a distribution that stands in for it.
#[derive(Clone, Debug)]
pub struct RowTargets {
    classes: usize,
    labels: Vec<i64>,
    changed: HashMap<usize, Vec<f32>>,
}

impl RowTargets {
    /// Takes the labels of a set with `classes` classes, one for each of its rows.
    pub fn new(labels: &[i64], classes: usize) -> Self {
        Self {
            classes,
            labels: labels.to_vec(),
            changed: HashMap::new(),
        }
    }

    /// Gives `row` another class.
    pub fn set_class(&mut self, row: usize, class: i64) {
        self.labels[row] = class;
        self.changed.remove(&row);
    }

    /// Gives `row` a distribution over the classes.
    ///
    /// # Panics
    /// If it does not have one entry a class.
    pub fn set_distribution(&mut self, row: usize, distribution: Vec<f32>) {
        assert_eq!(distribution.len(), self.classes, "one entry a class");
        self.changed.insert(row, distribution);
    }

    /// Returns the targets of `rows`, [N, C].
    pub fn of(&self, rows: &[usize], device: &Device) -> Tensor<2> {
        let mut values = vec![0.0f32; rows.len() * self.classes];
        for (out, row) in values.chunks_mut(self.classes).zip(rows) {
            match self.changed.get(row) {
                Some(distribution) => out.copy_from_slice(distribution),
                None => out[self.labels[*row] as usize] = 1.0,
            }
        }
        Tensor::from_data(TensorData::new(values, [rows.len(), self.classes]), device)
    }

    /// Returns the cross-entropy of a step's logits against the targets of its rows.
    pub fn loss<N: FeatureNet>(&self, step: &Step<'_, N>) -> Tensor<1> {
        let logits = step.logits();
        let targets = self.of(step.rows, &logits.device());
        cross_entropy(logits, targets)
    }
}

/// Returns the mean over the rows of −Σ targets·log softmax(logits). Up to the targets' own entropy, which no weight
/// can change, this is KL(targets ‖ softmax), averaged over rows ("batchmean").
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
    let rows = logits.dims()[0] as f64;
    (log_softmax(logits, 1) * targets).sum() * (-1.0 / rows)
}
