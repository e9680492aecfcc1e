//! Eigendecomposition of a symmetric matrix: the rank-revealing fallback, and the source of leverage scores.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd;
use faer::{Mat, Par};

use crate::engine::{Engine, Matrix};
use crate::error::{Error, Result};

/// A = U diag(s) Uᵀ, eigenvalues descending.
#[derive(Clone, Debug)]
pub struct Eigen {
    /// Eigenvalues, largest first.
    pub values: Vec<f64>,
    /// Eigenvectors as rows, in the same order.
    pub vectors: Matrix,
}

impl Eigen {
    /// Decomposes the symmetric matrix `a`, reading its lower triangle.
    pub fn new(a: &Matrix) -> Result<Self> {
        let n = a.rows();
        if !a.is_finite() {
            return Err(Error::NoConvergence { size: n });
        }
        let view = faer::MatRef::from_row_major_slice(a.as_slice(), n, n);
        let (mut u, mut s) = (Mat::zeros(n, n), Diag::zeros(n));
        // One thread whatever faer's own setting is: bytes do not depend on the number of threads.
        let par = Par::Seq;
        let wanted = evd::ComputeEigenvectors::Yes;
        let scratch = evd::self_adjoint_evd_scratch::<f64>(n, wanted, par, Default::default());
        evd::self_adjoint_evd(
            view,
            s.as_mut(),
            Some(u.as_mut()),
            par,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Default::default(),
        )
        .map_err(|_| Error::NoConvergence { size: n })?;
        let values: Vec<f64> = (0..n).rev().map(|j| s[j]).collect();
        let vectors = Matrix::from_fn(n, n, |j, i| u[(i, n - 1 - j)]);
        Ok(Self { values, vectors })
    }

    /// Returns how many eigenvalues stand clear of rounding: above (n + roundings)·eps·s₁, where the entries of the
    /// matrix have been through `roundings` roundings.
    pub fn rank(&self, roundings: f64) -> usize {
        let largest = self.values.first().copied().unwrap_or(0.0);
        let units = self.values.len() as f64 + roundings;
        let floor = units * f64::EPSILON * largest.max(0.0);
        self.values.iter().take_while(|&&s| s > floor).count()
    }

    /// Returns U f(s) Uᵀ X over the first `rank` directions.
    pub fn apply<E: Engine>(
        &self,
        engine: &E,
        rank: usize,
        x: &Matrix,
        f: impl Fn(f64) -> f64,
    ) -> Result<Matrix> {
        let rows: Vec<usize> = (0..rank).collect();
        let basis = self.vectors.select_rows(&rows);
        let mut coordinates = engine.project(basis.as_rows(), x)?;
        for (j, &s) in self.values.iter().take(rank).enumerate() {
            let factor = f(s);
            for value in coordinates.row_mut(j) {
                *value *= factor;
            }
        }
        engine.pull_back(basis.as_rows(), &coordinates, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    #[test]
    fn values_descend_and_vectors_are_their_rows() {
        // Eigenvalues 3 and 1 with (1, 1)/√2 and (1, −1)/√2; only the lower triangle is read.
        let a = Matrix::from_vec(2, 2, vec![2.0, f64::MAX, 1.0, 2.0]);
        let eigen = Eigen::new(&a).unwrap();
        for (found, wanted) in eigen.values.iter().zip([3.0, 1.0]) {
            assert!((found - wanted).abs() < 4.0 * f64::EPSILON, "{found}");
        }
        let v = &eigen.vectors;
        assert!((v[(0, 0)] - v[(0, 1)]).abs() < 4.0 * f64::EPSILON);
        assert!((v[(1, 0)] + v[(1, 1)]).abs() < 4.0 * f64::EPSILON);
        let refused = Eigen::new(&Matrix::from_vec(1, 1, vec![f64::NAN]));
        assert!(matches!(refused, Err(Error::NoConvergence { size: 1 })));
    }

    #[test]
    fn the_rank_is_what_stands_clear_of_rounding() {
        let with = |values: &[f64]| Eigen {
            values: values.to_vec(),
            vectors: Matrix::zeros(values.len(), values.len()),
        };
        let floor = |units: f64| 2.0 * units * f64::EPSILON;
        // Three values: three units, and as many as there were roundings.
        assert_eq!(with(&[2.0, 1.0, 1.01 * floor(3.0)]).rank(0.0), 3);
        assert_eq!(with(&[2.0, 1.0, floor(3.0)]).rank(0.0), 2);
        assert_eq!(with(&[2.0, 1.0, 1.01 * floor(3.0)]).rank(7.0), 2);
        assert_eq!(with(&[2.0, 1.0, 1.01 * floor(10.0)]).rank(7.0), 3);
        assert_eq!(with(&[0.0, 0.0]).rank(0.0), 0);
        assert_eq!(with(&[-1.0, -2.0]).rank(0.0), 0);
        assert_eq!(with(&[]).rank(5.0), 0);
    }

    #[test]
    fn a_function_of_the_matrix_over_some_directions() {
        let eigen = Eigen::new(&Matrix::from_vec(2, 2, vec![4.0, 0.0, 0.0, 9.0])).unwrap();
        let x = Matrix::from_vec(2, 2, vec![1.0, 2.0, 3.0, 4.0]);
        let engine = CpuEngine::ambient();
        let roots = eigen.apply(&engine, 2, &x, f64::sqrt).unwrap();
        assert_eq!(roots.as_slice(), [2.0, 4.0, 9.0, 12.0]);
        let top = eigen.apply(&engine, 1, &x, |s| 1.0 / s).unwrap();
        assert_eq!(top.as_slice(), [0.0, 0.0, 3.0 / 9.0, 4.0 / 9.0]);
    }
}
