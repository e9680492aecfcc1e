//! Stage 4, after `gram`: symmetric linear systems (Cholesky, iterative refinement) and ridge regression.
//!
//! [`Solver`] factors A + λI once and solves any number of right-hand sides, with one step of iterative refinement and
//! an [`Info`] that says how well it went. Where Cholesky meets a pivot that is not positive it falls back to an
//! eigendecomposition that keeps the directions above rounding; no NaN ever leaves it. [`fit`] is the closed form of
//! what gradient descent converges to.
//!
//! ```
//! use muso::engine::{CpuEngine, Matrix};
//! use muso::solve::{Params, Solver};
//! # fn main() -> muso::Result<()> {
//! let engine = CpuEngine::new(None)?;
//! let a = Matrix::from_vec(2, 2, vec![2.0, 0.0, 0.0, 4.0]);
//! let solver = Solver::new(&engine, a, Params::ridge(0.0))?;
//! let (x, info) = solver.solve(&Matrix::from_vec(2, 1, vec![2.0, 2.0]))?;
//! assert_eq!(x.as_slice(), &[1.0, 0.5]);
//! assert!(info.residual_after < 1e-15);
//! # Ok(())
//! # }
//! ```

mod eigen;
mod fit;
mod solver;

pub use eigen::Eigen;
pub use fit::{Fit, fit, fit_free_bias, fit_with, gram_solver};
pub use solver::{Info, Method, Params, Solver};

/// Version of the solve on the processor. Its solutions have the same bytes on every machine; what changes them raises it, so
/// that a head made of exact sums says which solve its bytes are of.
pub const VERSION: u32 = 1;
