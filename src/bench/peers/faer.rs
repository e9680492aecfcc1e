//! faer, with a pool of as many threads as ours has.

use anyhow::Result;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, MatMut, MatRef, Par};
use muso::engine::Matrix;

use super::super::failed;

/// faer, with a pool of threads of its own.
pub(crate) struct Faer {
    pool: rayon::ThreadPool,
}

fn view(matrix: &Matrix) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(matrix.as_slice(), matrix.rows(), matrix.cols())
}

impl Faer {
    /// The version that the program is built with.
    pub(crate) const VERSION: &'static str = "0.24";

    /// Starts a pool of `threads` threads.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| failed("faer", e))?;
        Ok(Self { pool })
    }

    fn parallel(&self) -> Par {
        Par::rayon(self.pool.current_num_threads())
    }

    /// Computes the lower triangle of ZᵀZ.
    pub(crate) fn gram(&self, z: &Matrix) -> Matrix {
        let z = view(z);
        let order = z.ncols();
        let mut out = Matrix::zeros(order, order);
        let target = MatMut::from_row_major_slice_mut(out.as_mut_slice(), order, order);
        self.pool.install(|| {
            triangular::matmul(
                target,
                BlockStructure::TriangularLower,
                Accum::Replace,
                z.transpose(),
                BlockStructure::Rectangular,
                z,
                BlockStructure::Rectangular,
                1.0,
                self.parallel(),
            );
        });
        out
    }

    /// Solves A X = B by a Cholesky factor, A symmetric.
    pub(crate) fn solve(&self, a: &Matrix, b: &Matrix) -> Result<Matrix> {
        // Column by column, as it likes them; the same matrix.
        let mut factor = view(a).transpose().to_owned();
        let mut x = view(b).to_owned();
        let (n, par) = (a.rows(), self.parallel());
        self.pool.install(|| {
            let scratch = llt::factor::cholesky_in_place_scratch::<f64>(n, par, Default::default());
            let mut memory = MemBuffer::new(scratch);
            llt::factor::cholesky_in_place(
                factor.as_mut(),
                Default::default(),
                par,
                MemStack::new(&mut memory),
                Default::default(),
            )
            .map_err(|e| failed("faer", format!("{e:?}")))?;
            let scratch = llt::solve::solve_in_place_scratch::<f64>(n, x.ncols(), par);
            let mut memory = MemBuffer::new(scratch);
            llt::solve::solve_in_place(
                factor.as_ref(),
                x.as_mut(),
                par,
                MemStack::new(&mut memory),
            );
            Ok(Matrix::from_fn(n, x.ncols(), |i, j| x[(i, j)]))
        })
    }
}
