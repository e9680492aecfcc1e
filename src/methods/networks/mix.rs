//! Data and labels changed at once: forgotten rows blended with retained ones, towards the classes of these.
//!
//! Appendix A of the MUSO paper shows of the linear model that the share of the blend has no say in where training ends:
//! x̃_u = c·x_u + (1 − c)·x_r with the label y_r ends where x_u with y_r does. Pixels of images are blended so by He et al.
//! (2024), with partners of other classes as here; their masks, which fade over the image, are not made.

use std::cell::RefCell;
use std::collections::HashMap;

use muso_models::FeatureNet;
use serde::{Deserialize, Serialize};

use super::{Method, Settings, Task, settings_of, short, within};
use crate::data::images::shuffled;
use crate::error::{Error, Result};
use crate::features::Batches;
use crate::seeds::Purpose;
use crate::train::{Recipe, Rule, Session, Step, Watch, cross_entropy};

/// Gives each forgotten row a partner among the retained rows of other classes, and trains on everything with the forgotten
/// rows blended with their partners, towards the partners' classes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Mix {
    /// Share c of the forgotten row in its blend, above 0 and at most 1.
    pub own: f64,
    /// Training recipe for all rows.
    pub recipe: Recipe,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            own: 0.5,
            recipe: short(Rule::Adam, 3, 1e-4, 128),
        }
    }
}

impl Mix {
    /// Draws a partner for each forgotten row: retained rows in random order, each the next of another class than the
    /// row's, from the start again after the last. Where all retained rows are of its class, any is.
    pub fn partners(retain: &[usize], forget: &[usize], labels: &[i64], seed: u64) -> Vec<usize> {
        let order = shuffled(retain, Purpose::MixPartners.seed(seed));
        let mut next = 0;
        let mut draw = |row: &usize| {
            for _ in 0..order.len() {
                let partner = order[next % order.len()];
                next += 1;
                if labels[partner] != labels[*row] {
                    return partner;
                }
            }
            order.first().copied().unwrap_or(*row)
        };
        forget.iter().map(&mut draw).collect()
    }
}

impl Settings for Mix {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> toml::Table {
        settings_of(self)
    }

    fn check(&self) -> Result<()> {
        within("own", self.own, f64::MIN_POSITIVE, 1.0)?;
        self.recipe.check()
    }
}

/// Ends a run whose blends could not be made.
struct Gate<'a, N: FeatureNet> {
    failed: &'a RefCell<Option<Error>>,
    watch: &'a mut dyn Watch<N>,
}

impl<N: FeatureNet> Watch<N> for Gate<'_, N> {
    fn inner(&mut self) -> Option<&mut dyn Watch<N>> {
        Some(self.watch)
    }

    fn before_step(&mut self, rows: &[usize]) -> Result<()> {
        match self.failed.borrow_mut().take() {
            Some(error) => Err(error),
            None => self.watch.before_step(rows),
        }
    }
}

impl<N: FeatureNet, B: Batches<Input = N::Input>> Method<N, B> for Mix {
    fn unlearn(&self, task: &Task<'_, N, B>, watch: &mut dyn Watch<N>) -> Result<N> {
        let (data, device) = (&task.feed.data, &task.feed.device);
        let partners = Self::partners(task.retain, task.forget, data.labels(), task.seed);
        let mut targets = task.targets();
        let mut partner_of = HashMap::new();
        for (&row, &partner) in task.forget.iter().zip(&partners) {
            targets.set_class(row, data.labels()[partner]);
            partner_of.insert(row, partner);
        }
        // Rows that cannot be blended are refused before anything is trained.
        if let (Some(&row), Some(&partner)) = (task.forget.first(), partners.first()) {
            data.blended(&[row], &[partner], &[1.0], device)?;
        }
        let failed = RefCell::new(None);
        let mut loss = |step: &Step<'_, N>| {
            let partners = step
                .rows
                .iter()
                .map(|row| *partner_of.get(row).unwrap_or(row));
            let partners: Vec<usize> = partners.collect();
            let own = partners
                .iter()
                .zip(step.rows)
                .map(|(partner, row)| match partner == row {
                    true => 1.0,
                    false => self.own as f32,
                });
            let own: Vec<f32> = own.collect();
            let input = match own.iter().all(|share| *share == 1.0) {
                true => Ok(step.input.clone()),
                false => data.blended(step.rows, &partners, &own, device),
            };
            let input = input.unwrap_or_else(|error| {
                failed.borrow_mut().get_or_insert(error);
                step.input.clone()
            });
            let logits = step.logits_of(input, step.mode);
            let wanted = targets.of(step.rows, &logits.device());
            cross_entropy(logits, wanted)
        };
        let seed = Purpose::DescentOrder.seed(task.seed);
        let mut session = Session::new(task.original.clone(), self.recipe.clone(), seed);
        let mut gate = Gate {
            failed: &failed,
            watch,
        };
        session.run(task.feed, &task.all_rows(), &mut loss, &mut gate)?;
        match failed.take() {
            Some(error) => Err(error),
            None => Ok(session.network),
        }
    }
}
