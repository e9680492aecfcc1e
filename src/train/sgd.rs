//! Stochastic gradient descent on the linear model, in the coordinates of its samples.
//!
//! A step on sample t is w ← w − γ·2z_t(z_tᵀw − y_t) with γ = (t + 1)^−0.2, t counted within the epoch (paper,
//! section 4.2). Every step adds a multiple of some z_t, so w = w₀ + Zᵀa throughout and z_tᵀw = z_tᵀw₀ + (K a)_t.
//! Running the same steps on `a` and the predictions Z w costs N a step instead of 2D and stays in cache: the iterates
//! are those of plain SGD up to rounding, which a test checks, and [`Outcome::coefficients`] gives w back.
//!
//! ```
//! use muso::engine::Matrix;
//! use muso::train::{SgdParams, sgd};
//!
//! // Two orthogonal unit samples: K = I, w₀ = 0, targets 1 and −1.
//! let kernel = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
//! let outcome = sgd(&kernel, &[0.0, 0.0], &[1.0, -1.0], &SgdParams::paper(1), &mut ());
//! assert!((outcome.coefficients[0] - 1.0).abs() < 1e-6);
//! assert!(outcome.residual < 1e-6);
//! ```

use std::ops::ControlFlow;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::engine::Matrix;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct SgdParams {
    /// Maximal number of epochs.
    pub max_epochs: usize,
    /// Stop when ‖Zw − y‖ is below this at the end of an epoch.
    pub tolerance: f64,
    /// Step sizes are (t + 1)^−decay within an epoch.
    pub decay: f64,
    /// Seed of the order in which samples are taken, drawn anew each epoch.
    pub seed: u64,
}

impl SgdParams {
    /// Returns the settings of the paper.
    pub fn paper(seed: u64) -> Self {
        Self {
            max_epochs: 1_500,
            tolerance: 1e-6,
            decay: 0.2,
            seed,
        }
    }
}

/// The state at the end of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Epoch<'a> {
    /// Number of epochs done.
    pub number: usize,
    /// a, with w = w₀ + Zᵀa.
    pub coefficients: &'a [f64],
    /// ‖Zw − y‖, the residual norm.
    pub residual: f64,
}

/// Watches a run and may end it.
pub trait Observer {
    /// Runs after every step, with z_iᵀw of every sample.
    fn step(&mut self, _predictions: &[f64]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Runs after every epoch, with the state at its end.
    fn epoch(&mut self, _epoch: Epoch<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Observes nothing, and never stops a run.
impl Observer for () {}

/// State at the end of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// a, with w = w₀ + Zᵀa.
    pub coefficients: Vec<f64>,
    /// Steps done; an epoch has one a sample.
    pub steps: usize,
    /// ‖Zw − y‖, the residual norm.
    pub residual: f64,
}

/// Runs until the tolerance, the last epoch, or the observer says stop. `start` holds z_iᵀw₀. With samples of norm above
/// 1 the steps may be too long, and it ends at once when the residual is no longer finite.
///
/// # Panics
/// If the shapes do not agree.
pub fn sgd(
    kernel: &Matrix,
    start: &[f64],
    targets: &[f64],
    params: &SgdParams,
    observer: &mut impl Observer,
) -> Outcome {
    let n = kernel.rows();
    assert_eq!(kernel.cols(), n, "a square kernel matrix");
    assert_eq!(
        (start.len(), targets.len()),
        (n, n),
        "one start and target a sample"
    );
    let sizes: Vec<f64> = (0..n)
        .map(|t| 2.0 * (t as f64 + 1.0).powf(-params.decay))
        .collect();
    let mut rng = ChaCha8Rng::seed_from_u64(params.seed);
    let mut order: Vec<usize> = (0..n).collect();
    let mut coefficients = vec![0.0; n];
    let mut predictions = start.to_vec();
    let mut residual = distance(&predictions, targets);
    let mut steps = 0;
    'run: for number in 1..=params.max_epochs {
        if residual < params.tolerance || !residual.is_finite() {
            break;
        }
        for i in (1..n).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        for (&i, size) in order.iter().zip(&sizes) {
            let change = size * (predictions[i] - targets[i]);
            coefficients[i] -= change;
            for (prediction, k) in predictions.iter_mut().zip(kernel.row(i)) {
                *prediction -= change * k;
            }
            steps += 1;
            if observer.step(&predictions).is_break() {
                residual = distance(&predictions, targets);
                break 'run;
            }
        }
        // From scratch once an epoch, so that the roundings of the steps do not pile up.
        for (i, prediction) in predictions.iter_mut().enumerate() {
            *prediction = start[i] + dot(kernel.row(i), &coefficients);
        }
        residual = distance(&predictions, targets);
        let epoch = Epoch {
            number,
            coefficients: &coefficients,
            residual,
        };
        if observer.epoch(epoch).is_break() {
            break;
        }
    }
    Outcome {
        coefficients,
        steps,
        residual,
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b) * (a - b))
        .sum::<f64>()
        .sqrt()
}

/// Inner product in eight interleaved chains: a fixed order that still lets the processor overlap the additions.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
