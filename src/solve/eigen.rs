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

    /// How many eigenvalues stand clear of rounding: above (n + roundings)·eps·s₁, where the entries of the matrix have
    /// been through `roundings` roundings.
    pub fn rank(&self, roundings: f64) -> usize {
        let largest = self.values.first().copied().unwrap_or(0.0);
        let units = self.values.len() as f64 + roundings;
        let floor = units * f64::EPSILON * largest.max(0.0);
        self.values.iter().take_while(|&&s| s > floor).count()
    }

    /// U f(s) Uᵀ X over the first `rank` directions.
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
