//! Plain f64 references that owe nothing to the engine. The benches of criterion include this file too.

use muso::engine::Matrix;

/// Computes (A + ridge·I)⁻¹B by an unblocked Cholesky factor.
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

/// Computes ‖a − b‖ / ‖b‖, Frobenius; infinite where the shapes differ.
pub(crate) fn relative(a: &Matrix, b: &Matrix) -> f64 {
    if (a.rows(), a.cols()) != (b.rows(), b.cols()) {
        return f64::INFINITY;
    }
    a.zip(b, |a, b| a - b).norm() / b.norm().max(f64::MIN_POSITIVE)
}
