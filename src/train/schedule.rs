//! Training recipes: epochs, optimiser and learning-rate schedule, as plain values that a file can hold.
//!
//! ```
//! use muso::train::{Recipe, Schedule};
//! let recipe = Recipe { epochs: 10, learning_rate: 0.1, warmup: 2.0, schedule: Schedule::Cosine, ..Recipe::default() };
//! assert!(recipe.rate(0.5) < recipe.rate(2.0), "it warms up");
//! assert!(recipe.rate(9.9) < 1e-4, "and comes down to nothing");
//! ```

use serde::{Deserialize, Serialize};

use crate::data::images::Augment;
use crate::error::{Error, Result};

/// The rule that turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Gradient descent with momentum; the decay is added to the gradient.
    Sgd,
    /// Adam; the decay is added to the gradient.
    Adam,
    /// Adam with the decay applied to the weights.
    #[serde(rename = "adamw")]
    AdamW,
}

/// Learning-rate schedule of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// The learning rate stays constant.
    Constant,
    /// Half a cosine, from the learning rate to 0.
    Cosine,
    /// The learning rate drops at given parts of the run.
    Steps {
        /// Parts of the run in (0, 1), ascending.
        at: Vec<f64>,
        /// The learning rate after each, as a multiple of the first.
        factor: Vec<f64>,
    },
}

/// A whole training run but for the data and the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Recipe {
    /// Passes over the rows.
    pub epochs: usize,
    /// Rows per step.
    pub batch: usize,
    /// Update rule of the optimiser.
    pub rule: Rule,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Momentum of [`Rule::Sgd`].
    pub momentum: f64,
    /// Multiple of the weights that every step takes away.
    pub weight_decay: f64,
    /// Epochs over which the learning rate rises from 0.
    pub warmup: f64,
    /// Schedule after the warm-up.
    pub schedule: Schedule,
    /// Random crops and flips.
    pub augment: Option<Augment>,
}

/// Recipe for a small network on a few thousand images.
impl Default for Recipe {
    fn default() -> Self {
        Self {
            epochs: 25,
            batch: 64,
            rule: Rule::Adam,
            learning_rate: 1e-3,
            momentum: 0.9,
            weight_decay: 0.0,
            warmup: 0.0,
            schedule: Schedule::Cosine,
            augment: None,
        }
    }
}

impl Recipe {
    /// Returns the learning rate after `epoch` epochs, whole ones and parts.
    pub fn rate(&self, epoch: f64) -> f64 {
        if epoch < self.warmup {
            return self.learning_rate * epoch / self.warmup;
        }
        let part = epoch / self.epochs as f64;
        let factor = match &self.schedule {
            Schedule::Constant => 1.0,
            Schedule::Cosine => {
                let part = (epoch - self.warmup) / (self.epochs as f64 - self.warmup);
                0.5 * (1.0 + (std::f64::consts::PI * part.min(1.0)).cos())
            }
            Schedule::Steps { at, factor } => {
                let passed = at.iter().filter(|&&at| part >= at).count();
                passed.checked_sub(1).map_or(1.0, |last| factor[last])
            }
        };
        self.learning_rate * factor
    }

    /// Refuses what cannot be run, naming the field.
    pub fn check(&self) -> Result<()> {
        let fault = |name, value: String, expected: &str| {
            Err(Error::Parameter {
                name,
                value,
                expected: expected.into(),
            })
        };
        if self.batch == 0 {
            return fault("batch", "0".into(), "at least 1 row a step");
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return fault(
                "learning-rate",
                self.learning_rate.to_string(),
                "a number above 0",
            );
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return fault(
                "momentum",
                self.momentum.to_string(),
                "a number in 0 … 1, without 1",
            );
        }
        if !(self.weight_decay >= 0.0 && self.weight_decay.is_finite()) {
            return fault(
                "weight-decay",
                self.weight_decay.to_string(),
                "0 or a number above it",
            );
        }
        if !(0.0..=self.epochs as f64).contains(&self.warmup) {
            return fault(
                "warmup",
                self.warmup.to_string(),
                "a number of epochs, at most all of them",
            );
        }
        if let Schedule::Steps { at, factor } = &self.schedule {
            let ascending = at.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = at.iter().all(|part| (0.0..=1.0).contains(part));
            let usable = factor.iter().all(|f| *f >= 0.0 && f.is_finite());
            if at.len() != factor.len() || !ascending || !inside || !usable {
                return fault(
                    "schedule",
                    format!("steps at {at:?} with factors {factor:?}"),
                    "as many factors as parts, the parts ascending in 0 … 1",
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_steps() {
        let recipe = Recipe {
            epochs: 100,
            learning_rate: 0.1,
            warmup: 2.0,
            schedule: Schedule::Steps {
                at: vec![0.8, 0.9],
                factor: vec![0.1, 0.01],
            },
            ..Recipe::default()
        };
        recipe.check().unwrap();
        let near = |epoch, rate: f64| {
            let got = recipe.rate(epoch);
            assert!((got - rate).abs() < 1e-12, "{epoch}: {got}, not {rate}");
        };
        near(0.0, 0.0);
        near(1.0, 0.05);
        near(2.0, 0.1);
        near(79.9, 0.1);
        near(80.0, 0.01);
        near(90.0, 0.001);
        near(99.9, 0.001);
    }

    #[test]
    fn cosine_starts_after_the_warm_up_and_ends_at_zero() {
        let recipe = Recipe {
            epochs: 12,
            warmup: 2.0,
            learning_rate: 1.0,
            schedule: Schedule::Cosine,
            ..Recipe::default()
        };
        assert_eq!(recipe.rate(2.0), 1.0);
        assert!((recipe.rate(7.0) - 0.5).abs() < 1e-12);
        assert!(recipe.rate(12.0).abs() < 1e-12);
    }

    #[test]
    fn bad_recipes_name_the_field() {
        let refused = |recipe: Recipe, field: &str| {
            let message = recipe.check().unwrap_err().to_string();
            assert!(message.starts_with(field), "{message}");
        };
        let good = Recipe::default;
        refused(Recipe { batch: 0, ..good() }, "batch");
        refused(
            Recipe {
                learning_rate: f64::NAN,
                ..good()
            },
            "learning-rate",
        );
        refused(
            Recipe {
                momentum: 1.0,
                ..good()
            },
            "momentum",
        );
        refused(
            Recipe {
                warmup: 26.0,
                ..good()
            },
            "warmup",
        );
        let schedule = Schedule::Steps {
            at: vec![0.9, 0.8],
            factor: vec![0.1, 0.01],
        };
        refused(Recipe { schedule, ..good() }, "schedule");
    }
}
