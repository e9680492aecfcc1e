//! Equilibrated Cholesky with iterative refinement: factor once, solve many, know how well.
//!
//! The system is equilibrated first: with S = diag(1/√(a_ii + λ)) what is factored is S(A + λI)S, whose diagonal is 1.
//! A feature in other units than the rest then costs nothing, and "singular to working precision" is judged on a matrix
//! where it means something. Solutions are refined against the matrix itself.

use super::Eigen;
use crate::engine::{Engine, Matrix};
use crate::error::{Error, Result};

/// Parameters of a solve.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// λ ≥ 0, added to the diagonal.
    pub ridge: f64,
    /// Makes one step of iterative refinement.
    pub refine: bool,
    /// Fall back to the eigendecomposition where Cholesky fails.
    pub fallback: bool,
    /// Roundings that the entries of the matrix have been through, relative to its diagonal. Directions whose share is
    /// within as many units of rounding (and one for each row of the matrix) of zero count as absent.
    pub roundings: f64,
}

impl Params {
    /// Returns the defaults with the given λ.
    pub fn ridge(ridge: f64) -> Self {
        Self {
            ridge,
            refine: true,
            fallback: true,
            roundings: 0.0,
        }
    }
}

/// The factorisation that was used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Cholesky, with its smallest and largest pivot; all lie in (0, 1] after equilibration.
    Cholesky {
        /// Smallest pivot.
        min_pivot: f64,
        /// Largest pivot.
        max_pivot: f64,
    },
    /// Eigendecomposition, after Cholesky failed at `pivot` or left one within rounding of zero.
    Eigen {
        /// The pivot at which Cholesky failed.
        pivot: usize,
        /// Number of directions kept.
        rank: usize,
    },
}

/// Record of a solve: factorisation, conditioning and residuals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// Order of the system.
    pub order: usize,
    /// λ, the ridge on the diagonal.
    pub ridge: f64,
    /// ‖A‖∞, the largest absolute row sum: at least ‖A‖₂, and at most √n of it.
    pub norm: f64,
    /// The factorisation that was used.
    pub method: Method,
    /// ‖B − (A + λI)X‖ / ‖B‖ before the refinement step, over the directions kept.
    pub residual_before: f64,
    /// ‖B − (A + λI)X‖ / ‖B‖ after the refinement step.
    pub residual_after: f64,
}

impl Info {
    /// Returns ‖A‖/λ, or `None` without a ridge.
    pub fn ridge_ratio(&self) -> Option<f64> {
        (self.ridge > 0.0).then(|| self.norm / self.ridge)
    }
}

/// A factored symmetric system A + λI.
pub struct Solver<'e, E: Engine> {
    engine: &'e E,
    matrix: Matrix,
    params: Params,
    /// The diagonal of S.
    scale: Vec<f64>,
    factorisation: Factorisation<E::Factor>,
}

enum Factorisation<F> {
    Cholesky(F),
    Eigen {
        /// Eigendecomposition of S(A + λI)S.
        eigen: Eigen,
        pivot: usize,
        rank: usize,
        /// An orthonormal basis, as rows, of the directions that were dropped.
        dropped: Matrix,
    },
}

impl<'e, E: Engine> Solver<'e, E> {
    /// Factors `matrix` (symmetric, both triangles) with the parameters' ridge.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a ridge that is negative or not finite; [`Error::Overflow`] when the matrix is not
    /// finite; [`Error::NotPositiveDefinite`] when Cholesky fails and no fallback is allowed;
    /// [`Error::NoConvergence`] when the fallback fails as well.
    pub fn new(engine: &'e E, matrix: Matrix, params: Params) -> Result<Self> {
        let n = matrix.rows();
        if !(params.ridge >= 0.0 && params.ridge.is_finite()) {
            return Err(Error::Parameter {
                name: "ridge",
                value: params.ridge.to_string(),
                expected: "a finite number that is not negative".into(),
            });
        }
        if !matrix.is_finite() {
            return Err(Error::Overflow);
        }
        let scale: Vec<f64> = (0..n)
            .map(|i| match matrix[(i, i)] + params.ridge {
                diagonal if diagonal > 0.0 => 1.0 / diagonal.sqrt(),
                // A feature that is always zero, without a ridge: the fallback will drop it.
                _ => 1.0,
            })
            .collect();
        let mut scaled = Matrix::zeros(n, n);
        for i in 0..n {
            let row = scaled.row_mut(i);
            let values = matrix.row(i).iter().zip(&scale);
            for (out, (value, scale_j)) in row.iter_mut().zip(values) {
                *out = scale[i] * value * scale_j;
            }
            row[i] = scale[i] * (matrix[(i, i)] + params.ridge) * scale[i];
        }
        // A pivot at or below this exists by luck, and solving with it would amplify noise.
        let floor = f64::EPSILON * (n as f64 + params.roundings);
        let factorisation = match engine.factor(&scaled, 0.0) {
            Ok(factor) if !params.fallback || engine.pivots(&factor).0 > floor => {
                Factorisation::Cholesky(factor)
            }
            Err(error) if !params.fallback => return Err(error),
            outcome => {
                let pivot = match outcome {
                    Ok(_) => n.saturating_sub(1),
                    Err(Error::NotPositiveDefinite { pivot, .. }) => pivot,
                    Err(other) => return Err(other),
                };
                let eigen = Eigen::new(&scaled)?;
                let rank = eigen.rank(params.roundings);
                let dropped = dropped_basis(&eigen, rank, &scale);
                Factorisation::Eigen {
                    eigen,
                    pivot,
                    rank,
                    dropped,
                }
            }
        };
        Ok(Self {
            engine,
            matrix,
            params,
            scale,
            factorisation,
        })
    }

    /// Returns the engine it runs on.
    pub fn engine(&self) -> &'e E {
        self.engine
    }

    /// Returns λ, the ridge on the diagonal.
    pub fn ridge(&self) -> f64 {
        self.params.ridge
    }

    /// Returns X with (A + λI) X = B; the least-norm one, without any part in the dropped directions, after a fallback.
    ///
    /// # Errors
    /// [`Error::Overflow`] when the right-hand side is not finite.
    pub fn solve(&self, rhs: &Matrix) -> Result<(Matrix, Info)> {
        if !rhs.is_finite() {
            return Err(Error::Overflow);
        }
        let (mut x, mut info) = (self.solve_once(rhs)?, self.info());
        let residual = self.residual(rhs, &x)?;
        let size = rhs.norm().max(f64::MIN_POSITIVE);
        info.residual_before = residual.norm() / size;
        info.residual_after = info.residual_before;
        if self.params.refine {
            let refined = x.zip(&self.solve_once(&residual)?, |a, b| a + b);
            let after = self.residual(rhs, &refined)?.norm() / size;
            // At the limit of the arithmetic a step may only shuffle the last digits; keep the better one.
            if after < info.residual_before {
                (x, info.residual_after) = (refined, after);
            }
        }
        Ok((x, info))
    }

    /// Returns the record as it is before any right-hand side.
    pub fn info(&self) -> Info {
        let method = match &self.factorisation {
            Factorisation::Cholesky(factor) => {
                let (min_pivot, max_pivot) = self.engine.pivots(factor);
                Method::Cholesky {
                    min_pivot,
                    max_pivot,
                }
            }
            Factorisation::Eigen { pivot, rank, .. } => Method::Eigen {
                pivot: *pivot,
                rank: *rank,
            },
        };
        Info {
            order: self.matrix.rows(),
            ridge: self.params.ridge,
            norm: self.matrix.largest_row_sum(),
            method,
            residual_before: 0.0,
            residual_after: 0.0,
        }
    }

    /// Returns tr(A (A + λI)⁻¹): how many directions of the space the rows take up, N to the last digit when λ = 0 and
    /// they are independent.
    pub fn projector_trace(&self) -> Result<f64> {
        let ridge = self.params.ridge;
        match &self.factorisation {
            Factorisation::Cholesky(_) if ridge == 0.0 => Ok(self.matrix.rows() as f64),
            Factorisation::Cholesky(factor) => {
                let diagonal = self.engine.inverse_diagonal(factor)?;
                let trace: f64 = diagonal
                    .iter()
                    .zip(&self.scale)
                    .map(|(d, s)| d * s * s)
                    .sum();
                Ok(self.matrix.rows() as f64 - ridge * trace)
            }
            Factorisation::Eigen { rank, .. } if ridge == 0.0 => Ok(*rank as f64),
            Factorisation::Eigen { rank, .. } => {
                let n = self.matrix.rows();
                let unit = Matrix::from_fn(n, n, |i, j| f64::from(u8::from(i == j)));
                let inverse = self.solve_once(&unit)?;
                let trace: f64 = (0..n).map(|i| inverse[(i, i)]).sum();
                Ok(*rank as f64 - ridge * trace)
            }
        }
    }

    /// Returns the condition number of the equilibrated system over the directions kept, estimated from below: how many
    /// digits a solve can lose.
    pub fn condition(&self) -> Result<f64> {
        let order = self.matrix.rows();
        match &self.factorisation {
            Factorisation::Cholesky(factor) => {
                let largest = power_iteration(order, |x| {
                    let x = self.scaled(x);
                    let ax = self.engine.project(self.matrix.as_rows(), &x)?;
                    Ok(self.scaled(&ax.zip(&x, |ax, x| ax + self.params.ridge * x)))
                })?;
                let inverse = power_iteration(order, |x| self.engine.solve(factor, x))?;
                Ok((largest * inverse).max(1.0))
            }
            Factorisation::Eigen { eigen, rank: 0, .. } => Ok(eigen.values.len() as f64),
            Factorisation::Eigen { eigen, rank, .. } => {
                Ok(eigen.values[0] / eigen.values[*rank - 1])
            }
        }
    }

    /// Returns a sentence for the user when rounding may reach the third digit, or when directions had to be dropped.
    ///
    /// Where features are of one size the condition is ‖A‖/λ, so this speaks when eps·‖A‖/λ > 1e-3.
    pub fn warning(&self) -> Result<Option<String>> {
        if let Method::Eigen { pivot, rank } = self.info().method {
            return Ok(Some(format!(
                "Cholesky failed at pivot {pivot}; an eigendecomposition of rank {rank} of {} was used",
                self.matrix.rows()
            )));
        }
        let condition = self.condition()?;
        Ok((f64::EPSILON * condition > 1e-3).then(|| {
            format!("the system's condition number is {condition:.0e}: rounding may reach the third digit")
        }))
    }

    /// Returns A (A + λI)⁻¹ V: the projector onto the span of the rows, damped by λ, for A = G.
    ///
    /// As V − λ (A + λI)⁻¹ V, which only touches what the data does not span.
    pub fn project_onto_span(&self, v: &Matrix) -> Result<(Matrix, Info)> {
        let ridge = self.params.ridge;
        let kept = match self.dropped_part(v)? {
            None => v.clone(),
            Some(dropped) => v.zip(&dropped, |v, d| v - d),
        };
        if ridge == 0.0 {
            return Ok((kept, self.info()));
        }
        let (x, info) = self.solve(v)?;
        Ok((kept.zip(&x, |v, x| v - ridge * x), info))
    }

    /// Returns the part of V in the directions that the fallback dropped; nothing when all were kept.
    pub fn dropped_part(&self, v: &Matrix) -> Result<Option<Matrix>> {
        match &self.factorisation {
            Factorisation::Cholesky(_) => Ok(None),
            Factorisation::Eigen { dropped, .. } => {
                let coordinates = self.engine.project(dropped.as_rows(), v)?;
                let part = self
                    .engine
                    .pull_back(dropped.as_rows(), &coordinates, false)?;
                Ok(Some(part))
            }
        }
    }

    fn solve_once(&self, rhs: &Matrix) -> Result<Matrix> {
        let rhs = self.scaled(rhs);
        let x = match &self.factorisation {
            Factorisation::Cholesky(factor) => self.engine.solve(factor, &rhs)?,
            Factorisation::Eigen { eigen, rank, .. } => {
                eigen.apply(self.engine, *rank, &rhs, |s| 1.0 / s)?
            }
        };
        self.without_dropped(self.scaled(&x))
    }

    /// B − (A + λI) X, over the kept directions after a fallback.
    fn residual(&self, rhs: &Matrix, x: &Matrix) -> Result<Matrix> {
        let ridge = self.params.ridge;
        let ax = self.engine.project(self.matrix.as_rows(), x)?;
        let residual = rhs.zip(&ax, |b, ax| b - ax);
        self.without_dropped(residual.zip(x, |r, x| r - ridge * x))
    }

    fn without_dropped(&self, v: Matrix) -> Result<Matrix> {
        Ok(match self.dropped_part(&v)? {
            None => v,
            Some(dropped) => v.zip(&dropped, |v, d| v - d),
        })
    }

    /// Returns S V, the rows scaled.
    fn scaled(&self, v: &Matrix) -> Matrix {
        let mut out = v.clone();
        for (i, s) in self.scale.iter().enumerate() {
            for value in out.row_mut(i) {
                *value *= s;
            }
        }
        out
    }
}

/// An orthonormal basis of the null space of A + λI, from that of S(A + λI)S: x is in the one when S⁻¹x is in the other.
fn dropped_basis(eigen: &Eigen, rank: usize, scale: &[f64]) -> Matrix {
    let n = scale.len();
    let mut basis = Matrix::from_fn(n - rank, n, |j, i| eigen.vectors[(rank + j, i)] * scale[i]);
    for j in 0..basis.rows() {
        let mut row = basis.row(j).to_vec();
        // Gram–Schmidt, twice: once leaves rounding in proportion to the angle between the vectors.
        for _ in 0..2 {
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut()
                .for_each(|x| *x /= norm.max(f64::MIN_POSITIVE));
            for k in 0..j {
                let other = basis.row(k);
                let along: f64 = row.iter().zip(other).map(|(x, y)| x * y).sum();
                row.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
        }
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut()
            .for_each(|x| *x /= norm.max(f64::MIN_POSITIVE));
        basis.row_mut(j).copy_from_slice(&row);
    }
    basis
}

/// Largest eigenvalue of a positive semi-definite operator, from below; a handful of steps gives its magnitude.
fn power_iteration(order: usize, apply: impl Fn(&Matrix) -> Result<Matrix>) -> Result<f64> {
    const STEPS: usize = 16;
    // A fixed start without symmetries that could make it orthogonal to the top direction.
    let mut x = Matrix::from_fn(order, 1, |i, _| 1.0 + (i as f64 * 0.754_877_666).fract());
    let mut value = 0.0;
    for _ in 0..STEPS {
        let norm = x.norm();
        if norm == 0.0 || !norm.is_finite() {
            break;
        }
        for entry in x.as_mut_slice() {
            *entry /= norm;
        }
        x = apply(&x)?;
        value = x.norm();
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;

    fn diagonal(values: &[f64]) -> Matrix {
        let n = values.len();
        Matrix::from_fn(n, n, |i, j| if i == j { values[i] } else { 0.0 })
    }

    #[test]
    fn power_iteration_comes_from_below() {
        let a = diagonal(&[1.0, 5.0, 3.0]);
        let engine = CpuEngine::ambient();
        let top = power_iteration(3, |x| engine.project(a.as_rows(), x)).unwrap();
        assert!((4.99..=5.0 + 1e-12).contains(&top), "{top}");
        let nothing = power_iteration(3, |x| Ok(x.zip(x, |_, _| 0.0))).unwrap();
        assert_eq!(nothing, 0.0);
        let overflow = power_iteration(1, |x| Ok(x.zip(x, |_, _| f64::INFINITY))).unwrap();
        assert_eq!(overflow, f64::INFINITY);
        // What has no eigenvalue but 0 has no direction either.
        let none = power_iteration(3, |x| Ok(x.zip(x, |a, _| 0.0 * a))).unwrap();
        assert_eq!(none, 0.0);
    }

    #[test]
    fn the_dropped_basis_is_orthonormal_in_the_units_of_the_rows() {
        // Null vectors of SAS along (1, −1, 0) and (0, 1, −1); S stretches them.
        let scale = [1.0, 1e3, 1e-3];
        let third = 1.0 / 3_f64.sqrt();
        let vectors = Matrix::from_vec(
            3,
            3,
            vec![third, third, third, 1.0, -1.0, 0.0, 0.0, 1.0, -1.0],
        );
        let eigen = Eigen {
            values: vec![1.0, 0.0, 0.0],
            vectors,
        };
        let basis = dropped_basis(&eigen, 1, &scale);
        assert_eq!((basis.rows(), basis.cols()), (2, 3));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for i in 0..2 {
            for j in 0..2 {
                let wanted = f64::from(u8::from(i == j));
                let found = dot(basis.row(i), basis.row(j));
                assert!((found - wanted).abs() < 1e-14, "({i}, {j}): {found}");
            }
            // x is in the null space of A where S⁻¹x is in that of SAS: orthogonal to (1, 1, 1) there.
            let back: Vec<f64> = basis.row(i).iter().zip(scale).map(|(x, s)| x / s).collect();
            let size = dot(&back, &back).sqrt();
            assert!(back.iter().sum::<f64>().abs() < 1e-12 * size, "{back:?}");
        }
        assert_eq!(dropped_basis(&eigen, 3, &scale).rows(), 0);
    }

    #[test]
    fn condition_and_trace_count_the_ridge() {
        let engine = CpuEngine::ambient();
        // Eigenvalues 3 and 1, and one size of features, so that scaling changes no ratio.
        let a = Matrix::from_vec(2, 2, vec![2.0, 1.0, 1.0, 2.0]);
        for ridge in [0.0, 0.5, 1.0, 2.0] {
            let solver = Solver::new(&engine, a.clone(), Params::ridge(ridge)).unwrap();
            let condition = (3.0 + ridge) / (1.0 + ridge);
            let found = solver.condition().unwrap();
            assert!((found / condition - 1.0).abs() < 1e-4, "{ridge}: {found}");
            let trace = 3.0 / (3.0 + ridge) + 1.0 / (1.0 + ridge);
            let found = solver.projector_trace().unwrap();
            assert!((found - trace).abs() < 1e-14, "{ridge}: {found}");
            let Info {
                residual_before,
                residual_after,
                ..
            } = solver.info();
            assert_eq!((residual_before, residual_after), (0.0, 0.0));
        }
    }

    #[test]
    fn info_says_what_was_done() {
        let engine = CpuEngine::ambient();
        let a = Matrix::from_vec(2, 2, vec![4.0, -1.0, -1.0, 2.0]);
        let solver = Solver::new(&engine, a.clone(), Params::ridge(2.0)).unwrap();
        let info = solver.info();
        assert_eq!((info.order, info.ridge, info.norm), (2, 2.0, 5.0));
        assert_eq!(info.ridge_ratio(), Some(2.5));
        // Equilibrated, the first pivot is 1 and the second 1 − 1/(6·4).
        let Method::Cholesky {
            min_pivot,
            max_pivot,
        } = info.method
        else {
            panic!("{info:?}")
        };
        assert!((min_pivot - (1.0 - 1.0 / 24.0)).abs() < 1e-15);
        assert!((max_pivot - 1.0).abs() < 1e-15);
        let plain = Solver::new(&engine, a, Params::ridge(0.0)).unwrap();
        assert_eq!(plain.info().ridge_ratio(), None);
        for ridge in [-1.0, f64::NAN, f64::INFINITY] {
            let refused = Solver::new(&engine, diagonal(&[1.0]), Params::ridge(ridge));
            assert!(matches!(refused.err(), Some(Error::Parameter { .. })));
        }
        let broken = Solver::new(&engine, diagonal(&[f64::NAN]), Params::ridge(0.0));
        assert!(matches!(broken.err(), Some(Error::Overflow)));
    }

    #[test]
    fn a_pivot_within_the_roundings_is_noise() {
        // The second pivot is 1 − (1 − 20 eps)² ≈ 40 eps: real unless the entries have been through as many roundings.
        let engine = CpuEngine::ambient();
        let off = 1.0 - 20.0 * f64::EPSILON;
        let a = || Matrix::from_vec(2, 2, vec![1.0, off, off, 1.0]);
        let method = |roundings: f64, fallback: bool| {
            let params = Params {
                roundings,
                fallback,
                ..Params::ridge(0.0)
            };
            Solver::new(&engine, a(), params).unwrap().info().method
        };
        assert!(matches!(method(30.0, true), Method::Cholesky { .. }));
        let noise = method(50.0, true);
        assert!(
            matches!(noise, Method::Eigen { pivot: 1, rank: 1 }),
            "{noise:?}"
        );
        assert!(matches!(method(50.0, false), Method::Cholesky { .. }));
    }

    #[test]
    fn residuals_are_relative_to_the_right_hand_side() {
        let engine = CpuEngine::ambient();
        let a = Matrix::from_fn(6, 6, |i, j| 1.0 / (i + j + 1) as f64);
        let solver = Solver::new(&engine, a, Params::ridge(1e-3)).unwrap();
        let residuals = |size: f64| {
            let rhs = Matrix::from_fn(6, 2, |i, j| size * ((3 * i + j) as f64).sin());
            let info = solver.solve(&rhs).unwrap().1;
            [info.residual_before, info.residual_after]
        };
        let found = residuals(1.0);
        assert!(found[0] > 0.0 && found[0] < 1e-12, "{found:?}");
        // A power of two changes no digit.
        assert_eq!(residuals(1024.0), found);
    }

    #[test]
    fn condition_and_trace_of_what_is_known() {
        let engine = CpuEngine::ambient();
        let solver = |values: &[f64], ridge: f64| {
            Solver::new(&engine, diagonal(values), Params::ridge(ridge)).unwrap()
        };
        // Units are no ill condition: a diagonal matrix is the identity in its own units.
        assert_eq!(solver(&[1e-8, 1.0, 1e8], 0.0).condition().unwrap(), 1.0);
        assert_eq!(solver(&[2.0, 3.0], 0.0).projector_trace().unwrap(), 2.0);
        let damped = solver(&[2.0, 6.0], 2.0).projector_trace().unwrap();
        assert!((damped - (0.5 + 0.75)).abs() < 1e-15, "{damped}");
        // One feature is always zero: dropped without a ridge.
        let dropped = solver(&[2.0, 0.0], 0.0);
        assert_eq!(dropped.projector_trace().unwrap(), 1.0);
        assert_eq!(dropped.condition().unwrap(), 1.0);
        assert!(dropped.warning().unwrap().unwrap().contains("rank 1 of 2"));
        let all = solver(&[0.0, 0.0], 0.0);
        assert_eq!(all.projector_trace().unwrap(), 0.0);
        assert_eq!(all.condition().unwrap(), 2.0);
        assert_eq!(solver(&[2.0, 3.0], 0.0).warning().unwrap(), None);
        // Eigenvalues 1.9 and 0.1, the second of which is held for noise: λ damps what is kept.
        let params = Params {
            roundings: 2e15,
            ..Params::ridge(0.05)
        };
        let a = Matrix::from_vec(2, 2, vec![1.0, 0.9, 0.9, 1.0]);
        let kept = Solver::new(&engine, a, params).unwrap();
        let trace = kept.projector_trace().unwrap();
        assert!((trace - 1.9 / 1.95).abs() < 1e-14, "{trace}");
    }
}
