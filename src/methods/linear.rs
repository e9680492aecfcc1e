//! The unlearning methods for linear models.
//!
//! A [`LinearProblem`] holds what all of them start from: retained and forgotten rows, the initial weights and the
//! closed forms of the pre-trained and the retrained model. Each method is then one call that yields weights.
//!
//! | method | labels of the forgotten rows | how the weights follow |
//! |---|---|---|
//! | MUSO | Z_u W*, W* = w_init + Π_r(w_p − w_init) | SGD from w_p, its closed form, or W* itself (`direct`) |
//! | Amnesiac | random ±1 | SGD from w_p, stopped early by an oracle |
//! | BadTeacher | Z_u w_rand, w_rand ~ N(0, I) | SGD from w_p, stopped early by an oracle |
//!
//! The oracle is the paper's: training ends at the first step after which FA is within 3 points of the *retrained*
//! model's, which a user does not have. That it looks after every step, not every epoch, follows from the published
//! numbers: a Δ_w barely above the pre-trained model's and an RA below 100. It flatters the two baselines and is named
//! wherever their numbers are shown.

use std::ops::ControlFlow;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::engine::{Engine, Matrix};
use crate::error::{Error, Result};
use crate::gram::{DualGram, Gram};
use crate::labels::Projector;
use crate::solve::fit;
use crate::train::{Epoch, Observer, SgdParams, sgd};

/// Points of FA within which the oracle stops the two baselines.
pub const ORACLE_POINTS: f64 = 3.0;

/// An unlearning task for a linear model with a single ±1 output.
pub struct LinearProblem<'e, E: Engine> {
    engine: &'e E,
    /// Gram matrix of Z_r, then Z_u.
    all: DualGram,
    retained_count: usize,
    retained: DualGram,
    init: Matrix,
    pretrained: Matrix,
    retrained: Matrix,
}

/// Trajectory of an iterative method.
#[derive(Clone, Debug)]
pub struct Path {
    /// The final weights, D×1.
    pub weights: Matrix,
    /// Epochs run, with the fraction of a last one that was cut short.
    pub epochs: f64,
    /// Δ_w after so many epochs, at the epochs that were looked at; starts with (0, Δ_w of the pre-trained model).
    pub distances: Vec<(f64, f64)>,
}

impl<'e, E: Engine> LinearProblem<'e, E> {
    /// Solves for the pre-trained and the retrained model. Targets are N×1.
    pub fn new(
        engine: &'e E,
        retained: DualGram,
        (forgotten_rows, forgotten_targets): (&Matrix, &Matrix),
        init: Matrix,
    ) -> Result<Self> {
        let all = DualGram::new(
            engine,
            retained.rows.stack(forgotten_rows),
            retained.targets.stack(forgotten_targets),
            retained.bias,
        )?;
        let weights = |gram: &DualGram| -> Result<Matrix> {
            Ok(fit(engine, &Gram::Dual(gram.clone()), &init, 0.0)?.weights)
        };
        Ok(Self {
            engine,
            pretrained: weights(&all)?,
            retrained: weights(&retained)?,
            retained_count: retained.rows.rows(),
            all,
            retained,
            init,
        })
    }

    /// Returns w_p, trained on everything.
    pub fn pretrained(&self) -> &Matrix {
        &self.pretrained
    }

    /// Returns w_r, which never saw the forgotten rows: the truth that every method is held against.
    pub fn retrained(&self) -> &Matrix {
        &self.retrained
    }

    /// Solves for the retrained model afresh.
    pub fn retrain(&self) -> Result<Matrix> {
        self.fit(&self.retained, &self.init)
    }

    /// Returns W* = w_init + Π_r(w_p − w_init), in one solve and no training. Uses no label.
    pub fn muso_direct(&self) -> Result<Matrix> {
        let projector = Projector::new(self.engine, Gram::Dual(self.retained.clone()), 0.0)?;
        Ok(projector.optimal_weights(&self.pretrained, &self.init)?.0)
    }

    /// Returns ỹ_u = Z_u W*.
    pub fn muso_labels(&self) -> Result<Vec<f64>> {
        let weights = self.muso_direct()?;
        self.predict_forgotten(&weights)
    }

    /// Draws random labels ±1 for the forgotten rows.
    pub fn amnesiac_labels(&self, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let count = self.all.rows.rows() - self.retained_count;
        (0..count)
            .map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 })
            .collect()
    }

    /// Predictions of a model that was never trained.
    pub fn bad_teacher_labels(&self, seed: u64) -> Result<Vec<f64>> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let teacher = Matrix::from_fn(self.init.rows(), 1, |_, _| StandardNormal.sample(&mut rng));
        self.predict_forgotten(&teacher)
    }

    /// Returns the limit of SGD from w_p on retained rows and relabelled forgotten rows (paper, equation 2b).
    pub fn relabel_closed_form(&self, forgotten_labels: &[f64]) -> Result<Matrix> {
        let relabelled = DualGram {
            targets: self.relabelled(forgotten_labels),
            ..self.all.clone()
        };
        self.fit(&relabelled, &self.pretrained)
    }

    /// Runs SGD from w_p on retained rows and relabelled forgotten rows. `stop` sees the predictions on the forgotten
    /// rows after every step.
    pub fn relabel_sgd(
        &self,
        forgotten_labels: &[f64],
        params: &SgdParams,
        stop: impl FnMut(&[f64]) -> bool,
    ) -> Result<Path> {
        let rows = self.all.rows.as_rows();
        let start = self.engine.project(rows, &self.pretrained)?;
        let targets = self.relabelled(forgotten_labels);
        let mut watch = Watch {
            problem: self,
            stop,
            distances: vec![(0.0, delta_w(&self.pretrained, &self.retrained))],
            failure: None,
        };
        let outcome = sgd(
            &self.all.kernel,
            start.as_slice(),
            targets.as_slice(),
            params,
            &mut watch,
        );
        if let Some(error) = watch.failure {
            return Err(error);
        }
        if !outcome.residual.is_finite() {
            return Err(Error::Diverged {
                steps: outcome.steps,
                advice: "samples of norm at most 1 are safe",
            });
        }
        let weights = self.moved(&outcome.coefficients)?;
        let epochs = outcome.steps as f64 / rows.rows() as f64;
        let mut distances = watch.distances;
        if distances.last().is_none_or(|last| last.0 != epochs) {
            distances.push((epochs, delta_w(&weights, &self.retrained)));
        }
        Ok(Path {
            weights,
            epochs,
            distances,
        })
    }

    /// Returns w_p + Zᵀa.
    fn moved(&self, coefficients: &[f64]) -> Result<Matrix> {
        let a = Matrix::from_vec(coefficients.len(), 1, coefficients.to_vec());
        let rows = self.all.rows.as_rows();
        let change = self.engine.pull_back(rows, &a, self.all.bias)?;
        Ok(self.pretrained.zip(&change, |p, c| p + c))
    }

    fn predict_forgotten(&self, weights: &Matrix) -> Result<Vec<f64>> {
        let rows = self.all.rows.as_rows();
        let forgotten = rows.slice(self.retained_count, rows.rows());
        Ok(self.engine.project(forgotten, weights)?.as_slice().to_vec())
    }

    fn relabelled(&self, forgotten_labels: &[f64]) -> Matrix {
        let mut targets = self.all.targets.clone();
        targets.as_mut_slice()[self.retained_count..].copy_from_slice(forgotten_labels);
        targets
    }

    fn fit(&self, gram: &DualGram, start: &Matrix) -> Result<Matrix> {
        Ok(fit(self.engine, &Gram::Dual(gram.clone()), start, 0.0)?.weights)
    }
}

/// Records the path of a run and asks whether to stop it.
struct Watch<'a, 'e, E: Engine, S> {
    problem: &'a LinearProblem<'e, E>,
    stop: S,
    distances: Vec<(f64, f64)>,
    failure: Option<Error>,
}

impl<E: Engine, S: FnMut(&[f64]) -> bool> Observer for Watch<'_, '_, E, S> {
    fn step(&mut self, predictions: &[f64]) -> ControlFlow<()> {
        if (self.stop)(&predictions[self.problem.retained_count..]) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn epoch(&mut self, epoch: Epoch<'_>) -> ControlFlow<()> {
        if worth_a_look(epoch.number) {
            match self.problem.moved(epoch.coefficients) {
                Ok(weights) => {
                    let distance = delta_w(&weights, &self.problem.retrained);
                    self.distances.push((epoch.number as f64, distance));
                }
                Err(error) => {
                    self.failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns Δ_w = ‖w − w_r‖²/D.
///
/// # Panics
/// If the shapes differ.
pub fn delta_w(weights: &Matrix, retrained: &Matrix) -> f64 {
    weights.zip(retrained, |a, b| a - b).norm_squared() / weights.rows() as f64
}

/// Epochs at which the distance is recorded: all of the first ten, then about 12 a decade.
fn worth_a_look(epoch: usize) -> bool {
    let mark = |epoch: usize| (12.0 * (epoch as f64).log10()).floor();
    epoch <= 10 || mark(epoch) != mark(epoch - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    #[test]
    fn a_decade_is_looked_at_twelve_times() {
        let found: Vec<usize> = (1..=10_000).filter(|&epoch| worth_a_look(epoch)).collect();
        let marks = (12..=48).map(|k| 10_f64.powf(f64::from(k) / 12.0));
        // Powers of ten are whole numbers, whatever `powf` says.
        let mut expected: Vec<usize> = (1..10).collect();
        expected.extend(marks.map(|mark| (mark - 1e-9).ceil() as usize));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_path_of_a_run_has_its_distances() {
        let engine = CpuEngine::ambient();
        let rows = |first: usize, count: usize| {
            Matrix::from_fn(count, 6, |i, j| {
                0.4 * ((7 * (first + i) + 3 * j) as f64).sin()
            })
        };
        let targets = |count: usize| Matrix::from_fn(count, 1, |i, _| (i % 2) as f64 - 0.5);
        let retained = DualGram::new(&engine, rows(0, 3), targets(3), false).unwrap();
        let forgotten = (&rows(3, 2), &targets(2));
        let problem =
            LinearProblem::new(&engine, retained, forgotten, Matrix::zeros(6, 1)).unwrap();
        let labels = problem.muso_labels().unwrap();
        let params = SgdParams {
            max_epochs: 30,
            ..SgdParams::paper(1)
        };
        let path = problem.relabel_sgd(&labels, &params, |_| false).unwrap();
        let epochs: Vec<f64> = path.distances.iter().map(|point| point.0).collect();
        let looks = (1..=30).filter(|&epoch| worth_a_look(epoch) || epoch == 30);
        let expected: Vec<f64> = [0].into_iter().chain(looks).map(|e| e as f64).collect();
        assert_eq!(epochs, expected);
        let [first, .., last] = path.distances[..] else {
            panic!("more than two points")
        };
        assert_eq!(last.1, delta_w(&path.weights, problem.retrained()));
        assert!(last.1 < first.1, "{first:?} {last:?}");
    }
}
