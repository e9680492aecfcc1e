//! SGD, Adam and AdamW on a network's parameters as flat vectors.
//!
//! The state is a list of vectors too, so that it can be saved beside the weights and read back to the same bytes,
//! and so that a method can reach in: [`Optimizer::keep`] holds masked weights exactly where they were.

use muso_models::burn::tensor::Tensor;

use super::schedule::{Recipe, Rule};

const BETA: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

/// The state of a [`Rule`] between steps.
#[derive(Clone, Debug)]
pub struct Optimizer {
    rule: Rule,
    momentum: f64,
    weight_decay: f64,
    /// Number of steps done.
    pub(crate) steps: u64,
    /// Running mean of the gradients, or the momentum.
    pub(crate) first: Vec<Tensor<1>>,
    /// Running mean of their squares; empty for [`Rule::Sgd`].
    pub(crate) second: Vec<Tensor<1>>,
}

impl Optimizer {
    /// Creates an optimiser before its first step, with zero momentum.
    pub fn new(recipe: &Recipe) -> Self {
        Self {
            rule: recipe.rule,
            momentum: recipe.momentum,
            weight_decay: recipe.weight_decay,
            steps: 0,
            first: Vec::new(),
            second: Vec::new(),
        }
    }

    /// Returns the weights after one step.
    ///
    /// # Panics
    /// If there is not one gradient for each vector of weights.
    pub fn step(
        &mut self,
        weights: Vec<Tensor<1>>,
        gradients: Vec<Tensor<1>>,
        rate: f64,
    ) -> Vec<Tensor<1>> {
        assert_eq!(weights.len(), gradients.len(), "one gradient a parameter");
        self.steps += 1;
        let adaptive = self.rule != Rule::Sgd;
        if self.first.is_empty() {
            let zeros = || weights.iter().map(Tensor::zeros_like).collect();
            self.first = zeros();
            if adaptive {
                self.second = zeros();
            }
        }
        let old = std::mem::take(&mut self.first);
        let mut old_squares = std::mem::take(&mut self.second).into_iter();
        let mut out = Vec::with_capacity(weights.len());
        for ((mut weight, mut gradient), first) in weights.into_iter().zip(gradients).zip(old) {
            if self.weight_decay > 0.0 {
                if self.rule == Rule::AdamW {
                    weight = weight * (1.0 - rate * self.weight_decay);
                } else {
                    gradient = gradient + weight.clone() * self.weight_decay;
                }
            }
            match old_squares.next() {
                None => {
                    let velocity = first * self.momentum + gradient;
                    out.push(weight - velocity.clone() * rate);
                    self.first.push(velocity);
                }
                Some(squares) => {
                    let square = gradient.clone() * gradient.clone();
                    let first = first * BETA[0] + gradient * (1.0 - BETA[0]);
                    let second = squares * BETA[1] + square * (1.0 - BETA[1]);
                    let t = i32::try_from(self.steps).unwrap_or(i32::MAX);
                    let scale = rate / (1.0 - BETA[0].powi(t));
                    let spread = (1.0 - BETA[1].powi(t)).sqrt();
                    let root = second.clone().sqrt() / spread + EPSILON;
                    out.push(weight - first.clone() * scale / root);
                    self.first.push(first);
                    self.second.push(second);
                }
            }
        }
        out
    }

    /// Puts the weights where `mask` is 0 back to `anchor` and takes the momentum from them, so that neither momentum
    /// nor decay moves what is masked. `mask` holds 0 and 1.
    pub fn keep(
        &mut self,
        weights: Vec<Tensor<1>>,
        anchor: &[Tensor<1>],
        mask: &[Tensor<1>],
    ) -> Vec<Tensor<1>> {
        for state in [&mut self.first, &mut self.second] {
            for (vector, mask) in state.iter_mut().zip(mask) {
                *vector = vector.clone() * mask.clone();
            }
        }
        weights
            .into_iter()
            .zip(anchor)
            .zip(mask)
            // Chosen, not blended: x + 0·(y − x) need not be x.
            .map(|((weight, anchor), mask)| {
                anchor
                    .clone()
                    .mask_where(mask.clone().greater_elem(0.5), weight)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use muso_models::burn::tensor::Device;

    use super::*;

    fn vector(values: &[f32]) -> Vec<Tensor<1>> {
        vec![Tensor::from_floats(values, &Device::flex())]
    }

    fn values(tensors: &[Tensor<1>]) -> Vec<f32> {
        tensors[0].to_data().try_to_vec().unwrap()
    }

    /// Three steps on w ↦ w²/2 + w, worked in f64 by the published rules.
    fn reference(rule: Rule, rate: f64, momentum: f64, decay: f64) -> f64 {
        let (mut w, mut m, mut v) = (2.0f64, 0.0f64, 0.0f64);
        for t in 1..=3 {
            let mut g = w + 1.0;
            match rule {
                Rule::AdamW => w -= rate * decay * w,
                _ => g += decay * w,
            }
            if rule == Rule::Sgd {
                m = momentum * m + g;
                w -= rate * m;
            } else {
                m = 0.9 * m + 0.1 * g;
                v = 0.999 * v + 0.001 * g * g;
                let (m, v) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
                w -= rate * m / (v.sqrt() + 1e-8);
            }
        }
        w
    }

    #[test]
    fn every_rule_follows_its_definition() {
        for rule in [Rule::Sgd, Rule::Adam, Rule::AdamW] {
            let recipe = Recipe {
                rule,
                momentum: 0.9,
                weight_decay: 0.1,
                ..Recipe::default()
            };
            let mut optimizer = Optimizer::new(&recipe);
            let mut weights = vector(&[2.0]);
            for _ in 0..3 {
                let gradients = vec![weights[0].clone() + 1.0];
                weights = optimizer.step(weights, gradients, 0.05);
            }
            let expected = reference(rule, 0.05, 0.9, 0.1);
            let got = f64::from(values(&weights)[0]);
            assert!((got - expected).abs() < 1e-6, "{rule:?}: {got} {expected}");
        }
    }

    #[test]
    fn kept_weights_stay_to_the_bit_in_spite_of_momentum_and_decay() {
        let recipe = Recipe {
            rule: Rule::Sgd,
            weight_decay: 0.5,
            ..Recipe::default()
        };
        let mut optimizer = Optimizer::new(&recipe);
        let anchor = vector(&[0.1, 0.7, -0.3]);
        let mask = vector(&[1.0, 0.0, 1.0]);
        let mut weights = anchor.clone();
        for _ in 0..4 {
            weights = optimizer.step(weights, vector(&[1.0, 1.0, 1.0]), 0.1);
            weights = optimizer.keep(weights, &anchor, &mask);
        }
        let (got, start) = (values(&weights), values(&anchor));
        assert_eq!(got[1].to_bits(), start[1].to_bits());
        assert!(got[0] < start[0] && got[2] < start[2]);
        assert_eq!(values(&optimizer.first)[1], 0.0);
    }
}
