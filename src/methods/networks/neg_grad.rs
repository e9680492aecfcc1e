//! NegGrad+: gradient descent on retained rows and ascent on forgotten ones in the same step.

use std::cell::RefCell;

use muso_models::{FeatureNet, Mode};
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::data::images::shuffled;
use crate::error::Result;
use crate::features::{Batches, Feed, Order};
use crate::scheduler::Scheduler;
use crate::seeds::{Purpose, nth};
use crate::train::{Recipe, Rule, Session, Watch, cross_entropy};

/// NegGrad+: descends α·CE(retained) − (1 − α)·CE(forgotten), with a batch of each in every step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NegGrad {
    /// Weight α of the retained rows' cross-entropy, from 0 to 1; the forgotten rows' has −(1 − α).
    pub retain_weight: f64,
    /// Training recipe; its epochs count passes over the retained rows, its batch is that of both.
    pub recipe: Recipe,
}

impl Default for NegGrad {
    fn default() -> Self {
        Self {
            retain_weight: 0.95,
            recipe: short(Rule::Sgd, 5, 0.01, 128),
        }
    }
}

/// An endless iterator over batches of some rows, which are shuffled anew for every round.
struct Rounds<'a, B: Batches> {
    feed: &'a Feed<B>,
    rows: &'a [usize],
    batch: usize,
    seed: u64,
    round: u64,
    rest: Vec<usize>,
}

impl<B: Batches> Rounds<'_, B> {
    fn next(&mut self) -> Result<(Vec<usize>, B::Input)> {
        if self.rest.is_empty() {
            self.rest = shuffled(self.rows, nth(self.seed, self.round));
            self.round += 1;
        }
        let now = self.rest.len().min(self.batch);
        let rows: Vec<usize> = self.rest.drain(..now).collect();
        let direct = Feed {
            scheduler: Scheduler::in_place(),
            ..self.feed.clone()
        };
        let batch = direct
            .batches(Order::new(rows, now))?
            .next()
            .expect("there is at least one row")?;
        let (rows, _, input) = direct.upload(batch, 0)?;
        Ok((rows, input))
    }
}

/// Draws the forgotten rows of a step before it: a loss cannot fail, and one that goes on without them is not this one.
struct Drawing<'a, N: FeatureNet, B: Batches> {
    watch: &'a mut dyn Watch<N>,
    rounds: &'a mut Rounds<'a, B>,
    drawn: &'a RefCell<Option<(Vec<usize>, B::Input)>>,
}

impl<N: FeatureNet, B: Batches> Watch<N> for Drawing<'_, N, B> {
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        Some(self.watch)
    }

    fn before_step(&mut self, rows: &[usize]) -> Result<()> {
        *self.drawn.borrow_mut() = Some(self.rounds.next()?);
        self.watch.before_step(rows)
    }
}

impl Settings for NegGrad {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("retain-weight", self.retain_weight, 0.0, 1.0)?;
        self.recipe.check()
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for NegGrad {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let targets = task.targets();
        let mut rounds = Rounds {
            feed: task.feed,
            rows: task.forget,
            batch: self.recipe.batch,
            seed: Purpose::NegGradRounds.seed(task.seed),
            round: 0,
            rest: Vec::new(),
        };
        let drawn = RefCell::new(None);
        let mut watch = Drawing {
            watch,
            rounds: &mut rounds,
            drawn: &drawn,
        };
        let seed = Purpose::NegGradOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        let mut loss = |step: &crate::train::Step<'_, N>| {
            let down = targets.loss(step) * self.retain_weight;
            let (rows, input) = drawn.take().expect("a batch is drawn before every step");
            // The forgotten rows pass with the running statistics: their own must not be remembered.
            let logits = step.logits_of(input, Mode::Eval);
            let wanted = targets.of(&rows, &logits.device());
            down - cross_entropy(logits, wanted) * (1.0 - self.retain_weight)
        };
        session.run(task.feed, task.retain, &mut loss, &mut watch)?;
        Ok(session.network)
    }
}
