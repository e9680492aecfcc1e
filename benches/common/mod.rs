//! What the benches share: seeded inputs, the label update, and plain f64 references that owe nothing to the engine.
#![allow(dead_code, reason = "each bench uses a part of it")]

use muso::engine::{Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use muso::gram::Gram;
use muso::labels::Projector;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Standard normal values in f32.
pub(crate) fn gaussian_f32(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| StandardNormal.sample(&mut rng))
        .collect()
}

/// Standard normal entries.
pub(crate) fn gaussian(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Matrix::from_fn(rows, cols, |_, _| StandardNormal.sample(&mut rng))
}

/// Features whose columns shrink from 1 to `smallest`, so that a ridge of that size squared times N matters.
pub(crate) fn decaying_features(rows: usize, cols: usize, smallest: f32, seed: u64) -> Vec<f32> {
    let mut values = gaussian_f32(rows * cols, seed);
    for row in values.chunks_exact_mut(cols) {
        for (j, value) in row.iter_mut().enumerate() {
            *value *= smallest.powf(j as f32 / cols as f32);
        }
    }
    values
}

/// G = ZᵀZ, through the engine.
pub(crate) fn gram<E: Engine>(engine: &E, rows: Rows<'_>, bias: bool) -> muso::Result<Sums> {
    let spec = SumsSpec {
        features: rows.cols(),
        bias,
        targets: 0,
    };
    let mut sums = engine.accumulator(spec)?;
    engine.accumulate(&mut sums, rows, Targets::None)?;
    engine.finish(sums)
}

/// The whole label update: sums over the retained rows, factor, W* = w_init + Π(w_p − w_init), labels Z_u W*.
///
/// Weights with one row more than the features have columns carry a bias.
pub(crate) fn label_update<E: Engine>(
    engine: &E,
    retained: Rows<'_>,
    forgotten: Rows<'_>,
    trained: &Matrix,
    init: &Matrix,
    ridge: f64,
) -> muso::Result<Matrix> {
    let bias = trained.rows() > retained.cols();
    let sums = gram(engine, retained, bias)?;
    let projector = Projector::new(engine, Gram::Primal(sums), ridge)?;
    let (weights, _) = projector.optimal_weights(trained, init)?;
    engine.project(forgotten, &weights)
}

/// A widened copy of the rows, with a last column of ones when `bias` is set.
pub(crate) fn with_bias(rows: Rows<'_>, bias: bool) -> Matrix {
    let wide = rows.to_matrix();
    Matrix::from_fn(rows.rows(), rows.cols() + usize::from(bias), |i, j| {
        if j < rows.cols() { wide[(i, j)] } else { 1.0 }
    })
}

/// A·B by the definition.
pub(crate) fn matmul(a: &Matrix, b: &Matrix) -> Matrix {
    assert_eq!(a.cols(), b.rows());
    let mut out = Matrix::zeros(a.rows(), b.cols());
    for i in 0..a.rows() {
        for k in 0..a.cols() {
            let x = a[(i, k)];
            for (out, y) in out.row_mut(i).iter_mut().zip(b.row(k)) {
                *out += x * y;
            }
        }
    }
    out
}

/// (A + ridge·I)⁻¹B by an unblocked Cholesky factor.
pub(crate) fn cholesky_solve(a: &Matrix, ridge: f64, b: &Matrix) -> Matrix {
    let n = a.rows();
    let mut l = Matrix::zeros(n, n);
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = l.row(i)[..j].iter().zip(l.row(j)).map(|(x, y)| x * y).sum();
            let shift = if i == j { ridge } else { 0.0 };
            let rest = a[(i, j)] + shift - sum;
            l[(i, j)] = if i == j {
                rest.sqrt()
            } else {
                rest / l[(j, j)]
            };
        }
    }
    let mut x = b.clone();
    let upper = l.transpose();
    for forward in [true, false] {
        for step in 0..n {
            let (i, known, row) = if forward {
                (step, 0..step, l.row(step))
            } else {
                let i = n - 1 - step;
                (i, i + 1..n, upper.row(i))
            };
            for k in known {
                for j in 0..x.cols() {
                    let value = row[k] * x[(k, j)];
                    x[(i, j)] -= value;
                }
            }
            for value in x.row_mut(i) {
                *value /= row[i];
            }
        }
    }
    x
}

/// ‖a − b‖ / ‖b‖, Frobenius.
pub(crate) fn relative(a: &Matrix, b: &Matrix) -> f64 {
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}

/// The middle of some numbers.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => 0.5 * (sorted[half - 1] + sorted[half]),
    }
}

/// Smallest and largest.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}
