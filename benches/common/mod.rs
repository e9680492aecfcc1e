//! What `head_scale` needs: seeded inputs, and a plain f64 reference that owes nothing to the engine.

use muso::engine::Matrix;
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
