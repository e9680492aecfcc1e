//! Labels of the forgotten rows while a network trains: set by updates or batch by batch, and what changed.

use std::cell::RefCell;
use std::collections::HashMap;

use muso_models::FeatureNet;
use muso_models::burn::tensor::Tensor;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{LabelKind, Muso, Relabel, Task};
use crate::engine::{AnyEngine, Matrix};
use crate::error::{Error, Result};
use crate::features::Batches;
use crate::labels::LabelUpdate;
use crate::scheduler::{LabelUpdates, append_product};
use crate::softmax::{argmax, softmax};
use crate::train::{RowTargets, Step, Watch};

/// Training targets of a run, in which label updates replace those of the forgotten rows.
pub(super) struct Relabelled<'a> {
    kind: LabelKind,
    relabel: Relabel,
    forget: &'a [usize],
    /// Place of each forgotten row among them.
    place: HashMap<usize, usize>,
    state: RefCell<State>,
}

struct State {
    targets: RowTargets,
    /// W* + w_p of the update in use.
    weights: Option<Matrix>,
    /// Class of every forgotten row, its own before the first update.
    classes: Vec<i64>,
    /// Forgotten rows whose class has changed since the last update began to be used.
    changed: Vec<bool>,
    /// The update in use, until it is told of.
    update: Option<LabelUpdate>,
    /// The first error of a batch, which has no other way out of a loss.
    failed: Option<Error>,
}

impl State {
    fn set(&mut self, kind: LabelKind, place: usize, row: usize, outputs: &[f64]) {
        let class = argmax(outputs) as i64;
        match kind {
            LabelKind::Hard => self.targets.set_class(row, class),
            LabelKind::Soft => self.targets.set_distribution(row, softmax(outputs, 1.0)),
        }
        self.changed[place] |= class != self.classes[place];
        self.classes[place] = class;
    }
}

impl<'a> Relabelled<'a> {
    pub(super) fn new<N: FeatureNet, B: Batches<Input = N::Input>>(
        method: &Muso,
        task: &Task<'a, N, B>,
    ) -> Self {
        let forget = task.forget;
        Self {
            kind: method.labels,
            relabel: method.relabel,
            forget,
            place: forget
                .iter()
                .enumerate()
                .map(|(i, &row)| (row, i))
                .collect(),
            state: RefCell::new(State {
                targets: task.targets(),
                weights: None,
                classes: task.feed.labels(forget),
                changed: vec![false; forget.len()],
                update: None,
                failed: None,
            }),
        }
    }

    /// Puts labels to use when they are due.
    pub(super) fn set_when_due(&self, labels: &mut LabelUpdates<AnyEngine>) -> Result<()> {
        let Some(outputs) = labels.wait()? else {
            return Ok(());
        };
        let mut state = self.state.borrow_mut();
        let signs = labels.vital_signs();
        state.update = Some(LabelUpdate {
            trace_ratio: signs.map(|signs| signs.trace_ratio),
            rounding: signs.and_then(|signs| signs.rounding),
            changed: 0.0,
        });
        match self.relabel {
            Relabel::Update => self.set_all(&mut state, &outputs),
            Relabel::Batch => state.weights = labels.weights().cloned(),
        }
        Ok(())
    }

    fn set_all(&self, state: &mut State, outputs: &Matrix) {
        for (i, &row) in self.forget.iter().enumerate() {
            state.set(self.kind, i, row, outputs.row(i));
        }
    }

    /// Gives every forgotten row a class drawn from all of them.
    pub(super) fn set_at_random(&self, classes: usize, seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut outputs = Matrix::zeros(self.forget.len(), classes);
        for i in 0..self.forget.len() {
            outputs[(i, rng.random_range(0..classes))] = 1.0;
        }
        let mut state = self.state.borrow_mut();
        state.update = Some(LabelUpdate::default());
        self.set_all(&mut state, &outputs);
    }

    /// Recomputes the labels of a batch's forgotten rows from the network as it is.
    pub(super) fn set_batch<N: FeatureNet, B: Batches<Input = N::Input>>(
        &self,
        task: &Task<'_, N, B>,
        reference: &Matrix,
        step: &Step<'_, N>,
    ) -> Result<()> {
        let rows = step.rows.iter().copied();
        let rows: Vec<usize> = rows.filter(|row| self.place.contains_key(row)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut state = self.state.borrow_mut();
        let Some(weights) = state.weights.take() else {
            return Ok(());
        };
        let input = task.feed.data.inputs(&rows, &task.feed.device)?;
        let features = step.network.valid().extractor().features(input);
        let mut outputs = Vec::new();
        append_product(task.engine, &features, &weights, &mut outputs)?;
        for (row, outputs) in rows.into_iter().zip(outputs.chunks_exact(weights.cols())) {
            let place = self.place[&row];
            let known = reference.row(place).iter();
            let outputs: Vec<f64> = outputs.iter().zip(known).map(|(a, b)| a - b).collect();
            state.set(self.kind, place, row, &outputs);
        }
        state.weights = Some(weights);
        Ok(())
    }

    /// Returns the loss of a step on the labels as they are.
    pub(super) fn loss<N: FeatureNet>(&self, step: &Step<'_, N>) -> Tensor<1> {
        self.state.borrow().targets.loss(step)
    }

    /// Notes the error of a batch, which ends the run after its stretch.
    pub(super) fn fail(&self, error: Error) {
        self.state.borrow_mut().failed.get_or_insert(error);
    }

    /// Tells of the update that was in use: how many labels changed with it is known now.
    pub(super) fn tell<N: FeatureNet>(&self, watch: &mut dyn Watch<N>) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        if let Some(mut update) = state.update.take() {
            let changed = state.changed.iter().filter(|changed| **changed).count();
            update.changed = changed as f64 / self.forget.len().max(1) as f64;
            state.changed.fill(false);
            watch.label_update(&update);
        }
        Ok(())
    }
}

/// Lets a step begin when the labels of its batch are there.
pub(super) struct Gate<'a, N: FeatureNet> {
    pub(super) watch: &'a mut dyn Watch<N>,
    pub(super) relabelled: &'a Relabelled<'a>,
    pub(super) labels: &'a mut LabelUpdates<AnyEngine>,
}

impl<N: FeatureNet> Watch<N> for Gate<'_, N> {
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        Some(self.watch)
    }

    fn before_step(&mut self, rows: &[usize]) -> Result<()> {
        // There is no use in going on without labels that will never be there.
        self.labels.check()?;
        if rows
            .iter()
            .any(|row| self.relabelled.place.contains_key(row))
        {
            self.relabelled.set_when_due(self.labels)?;
        }
        self.watch.before_step(rows)
    }
}
