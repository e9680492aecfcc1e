//! The projectors of the authors' released code, in f32 as there: what they compute where [`Projector`](super::Projector)
//! is meant.
//!
//! Read in `get_right_side` of `NN/full_and_sub_class/MUSO.py` and `NN/random_subset/MUSO.py` at two commits of
//! github.com/Yruikk/MUSO, and written anew from the formulas (`docs/paper.md` has the links). With Z the N×D features of
//! the sampled rows and a column of ones:
//!
//! - 2024-10 (172809c): Π = Zᵀ (ZZᵀ + λI)⁻¹ Z, the right formula. With N > D the matrix is singular but for λ, and λ = 1e-6
//!   is below what f32 resolves beside ‖ZZᵀ‖, so what is inverted is rounding.
//! - 2025-02 (da8a0db, 8c113dd): Π = Zᵀ (λ⁻¹I − λ⁻¹Z ((λI)⁻¹ + Zᵀλ⁻¹Z)⁻¹ Zᵀλ⁻¹) Z, with (λI)⁻¹ where Woodbury's identity has I.
//!   In exact arithmetic that is (1/λ)·Π(λ = 1).
//!
//! Every matrix that is formed there is formed here, an inverse too, and every number is f32; sums run from the first
//! term to the last, so the bytes are the same for any number of threads. N×N values are in memory, and the inverse takes
//! O(N³) operations: this is a form to look at, not one to use.

use rayon::prelude::*;

use super::VitalSigns;
use crate::engine::Matrix;
use crate::error::{Error, Result};

/// Version of the authors' released code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Upload of 2024-10-22, commit 172809c: the dual formula.
    October2024,
    /// Updates of 2025-02-05, commits da8a0db and 8c113dd: the Woodbury form with (λI)⁻¹ where I belongs.
    February2025,
}

/// A projector as released, formed as a matrix.
#[derive(Clone, Debug)]
pub struct ReleasedProjector {
    release: Release,
    /// Π, D×D.
    matrix: Single,
    /// ‖ZᵀZ‖∞ or ‖ZZᵀ‖∞, whichever the formula inverts.
    norm: f64,
    ridge: f64,
}

impl ReleasedProjector {
    /// Forms the projector of `rows`, N×D row-major in f32, a column of ones included where the head has a bias.
    ///
    /// # Errors
    /// [`Error::NotPositiveDefinite`] if a pivot of the inverse is zero, where the released code fails too.
    ///
    /// # Panics
    /// If `rows` are not a multiple of `width` values.
    pub fn new(release: Release, rows: &[f32], width: usize, ridge: f64) -> Result<Self> {
        assert!(
            width > 0 && rows.len().is_multiple_of(width),
            "{} values in rows of {width}",
            rows.len()
        );
        let z = Single::new(width, rows.to_vec());
        let across = z.transposed();
        let ridge_f32 = ridge as f32;
        let (inverse, norm) = match release {
            Release::October2024 => {
                let mut kernel = z.times(&across);
                let norm = kernel.largest_row_sum();
                kernel.add_to_diagonal(ridge_f32);
                (kernel.inverse()?, norm)
            }
            Release::February2025 => {
                // The inverse of a diagonal matrix is exact but for the rounding of its values.
                let of_ridge = 1.0 / ridge_f32;
                let scaled = z.scaled(of_ridge);
                let mut inner = across.scaled(of_ridge).times(&z);
                let norm = inner.largest_row_sum() * ridge;
                inner.add_to_diagonal(of_ridge);
                let mut wide = scaled.times(&inner.inverse()?).times(&across);
                // λ⁻¹I − wide·λ⁻¹
                for value in &mut wide.values {
                    *value = -(*value * of_ridge);
                }
                wide.add_to_diagonal(of_ridge);
                (wide, norm)
            }
        };
        Ok(Self {
            release,
            matrix: across.times(&inverse).times(&z),
            norm,
            ridge,
        })
    }

    /// Returns W* + w_p, the weights that the forgotten rows' labels are made of, from w_p and w_init; D×C.
    ///
    /// # Panics
    /// If the heads are not D×C.
    pub fn label_weights(&self, trained: &Matrix, initial: &Matrix) -> Matrix {
        let [p, start] = [trained, initial].map(Single::of);
        let minus = |a: f32, b: f32| a - b;
        let moved = match self.release {
            Release::October2024 => {
                let (of_p, of_start) = (self.matrix.times(&p), self.matrix.times(&start));
                of_p.zip(&of_start, minus)
            }
            Release::February2025 => self.matrix.times(&p.zip(&start, minus)),
        };
        let weights = moved.zip(&start, |a, b| a + b).zip(&p, |a, b| a + b);
        Matrix::from_vec(
            trained.rows(),
            trained.cols(),
            weights.values.into_iter().map(f64::from).collect(),
        )
    }

    /// Returns tr(Π)/D, which is between 0 and 1 for a projector, and u‖A‖/λ with the unit roundoff u of f32.
    pub fn vital_signs(&self) -> VitalSigns {
        let width = self.matrix.width;
        let diagonal = self.matrix.values.iter().step_by(width + 1);
        let trace: f64 = diagonal.map(|&x| f64::from(x)).sum();
        VitalSigns {
            trace_ratio: trace / width as f64,
            rounding: (self.ridge > 0.0)
                .then(|| f64::from(f32::EPSILON) / 2.0 * self.norm / self.ridge),
        }
    }

    /// Returns Π in f64, D×D.
    pub fn matrix(&self) -> Matrix {
        let Single { width, values } = &self.matrix;
        Matrix::from_vec(
            *width,
            *width,
            values.iter().map(|&x| f64::from(x)).collect(),
        )
    }
}

/// A matrix of f32, row-major.
#[derive(Clone, Debug)]
struct Single {
    width: usize,
    values: Vec<f32>,
}

/// Columns of an inverse that a thread works on at a time.
const COLUMNS: usize = 64;

impl Single {
    fn new(width: usize, values: Vec<f32>) -> Self {
        Self { width, values }
    }

    fn of(matrix: &Matrix) -> Self {
        let values = matrix.as_slice().iter().map(|&x| x as f32).collect();
        Self::new(matrix.cols(), values)
    }

    fn height(&self) -> usize {
        self.values.len() / self.width
    }

    fn transposed(&self) -> Self {
        let (height, width) = (self.height(), self.width);
        let value = |k: usize| self.values[(k % height) * width + k / height];
        Self::new(height, (0..self.values.len()).map(value).collect())
    }

    fn scaled(&self, by: f32) -> Self {
        Self::new(self.width, self.values.iter().map(|x| x * by).collect())
    }

    fn zip(&self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let pairs = self.values.iter().zip(&other.values);
        Self::new(self.width, pairs.map(|(&a, &b)| f(a, b)).collect())
    }

    fn add_to_diagonal(&mut self, ridge: f32) {
        for value in self.values.iter_mut().step_by(self.width + 1) {
            *value += ridge;
        }
    }

    fn largest_row_sum(&self) -> f64 {
        let rows = self.values.chunks_exact(self.width);
        rows.map(|row| row.iter().map(|x| f64::from(x.abs())).sum::<f64>())
            .fold(0.0, f64::max)
    }

    /// Multiplies; each value is a sum from the first term to the last.
    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.width, other.height(), "inner dimensions");
        let mut out = vec![0.0f32; self.height() * other.width];
        out.par_chunks_mut(other.width.max(1))
            .zip(self.values.par_chunks(self.width))
            .for_each(|(out, row)| {
                for (a, terms) in row.iter().zip(other.values.chunks_exact(other.width)) {
                    for (sum, b) in out.iter_mut().zip(terms) {
                        *sum += a * b;
                    }
                }
            });
        Self::new(other.width, out)
    }

    /// Inverts by LU factorisation with partial pivoting and a solve for the columns of I, as LAPACK does.
    fn inverse(mut self) -> Result<Self> {
        let n = self.width;
        let mut order: Vec<usize> = (0..n).collect();
        for k in 0..n {
            let size = |i: &usize| self.values[i * n + k].abs();
            let pivot = (k..n).reduce(|best, i| if size(&i) > size(&best) { i } else { best });
            let pivot = pivot.unwrap_or(k);
            let value = self.values[pivot * n + k];
            if value == 0.0 || !value.is_finite() {
                return Err(Error::NotPositiveDefinite {
                    pivot: k,
                    value: f64::from(value),
                    size: n,
                });
            }
            order.swap(k, pivot);
            let (above, below) = self.values.split_at_mut((k + 1) * n);
            if pivot > k {
                let start = (pivot - k - 1) * n;
                above[k * n..].swap_with_slice(&mut below[start..start + n]);
            }
            let head = &above[k * n..];
            below.par_chunks_mut(n).with_min_len(32).for_each(|row| {
                let factor = row[k] / head[k];
                row[k] = factor;
                for (x, h) in row[k + 1..].iter_mut().zip(&head[k + 1..]) {
                    *x -= factor * h;
                }
            });
        }
        // Strips of columns of P, solved one by one for L and U, then put side by side.
        let strips: Vec<(usize, Vec<f32>)> = (0..n)
            .step_by(COLUMNS)
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|first| {
                let wide = COLUMNS.min(n - first);
                let mut x = vec![0.0f32; n * wide];
                for (i, &from) in order.iter().enumerate() {
                    if (first..first + wide).contains(&from) {
                        x[i * wide + from - first] = 1.0;
                    }
                }
                let less = |x: &mut [f32], i: usize, k: usize, factor: f32| {
                    let (low, high) = x.split_at_mut(i.max(k) * wide);
                    let (target, source) = if i > k {
                        (&mut high[..wide], &low[k * wide..][..wide])
                    } else {
                        (&mut low[i * wide..][..wide], &high[..wide])
                    };
                    for (t, s) in target.iter_mut().zip(source) {
                        *t -= factor * s;
                    }
                };
                for i in 0..n {
                    for k in 0..i {
                        less(&mut x, i, k, self.values[i * n + k]);
                    }
                }
                for i in (0..n).rev() {
                    for k in i + 1..n {
                        less(&mut x, i, k, self.values[i * n + k]);
                    }
                    let pivot = self.values[i * n + i];
                    for value in &mut x[i * wide..][..wide] {
                        *value /= pivot;
                    }
                }
                (first, x)
            })
            .collect();
        let mut out = vec![0.0f32; n * n];
        for (first, strip) in strips {
            let wide = COLUMNS.min(n - first);
            for (i, row) in strip.chunks_exact(wide).enumerate() {
                out[i * n + first..][..wide].copy_from_slice(row);
            }
        }
        Ok(Self::new(n, out))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;
    use crate::gram::{DualGram, Gram};
    use crate::labels::Projector;

    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1u32 << 24) * 2.0 - 1.0
        };
        (0..count).map(|_| next() as f32).collect()
    }

    fn ours(z: &[f32], width: usize, ridge: f64) -> Matrix {
        let engine = CpuEngine::ambient();
        let rows = Matrix::from_vec(
            z.len() / width,
            width,
            z.iter().map(|&x| x.into()).collect(),
        );
        let targets = Matrix::zeros(rows.rows(), 0);
        let gram = Gram::Dual(DualGram::new(&engine, rows, targets, false).unwrap());
        let projector = Projector::new(&engine, gram, ridge).unwrap();
        let identity = Matrix::from_fn(width, width, |i, j| f64::from(u8::from(i == j)));
        projector.apply(&identity).unwrap().0
    }

    fn apart(a: &Matrix, b: &Matrix) -> f64 {
        a.zip(b, |x, y| x - y).norm() / b.norm()
    }

    #[test]
    fn an_inverse_is_one() {
        // A strip of columns and more; a first pivot of zero, so that rows are exchanged.
        for n in [1, 2, COLUMNS - 1, COLUMNS, COLUMNS + 9] {
            let mut matrix = Single::new(n, noise(n * n, n as u32));
            matrix.add_to_diagonal(4.0 + n as f32 / 8.0);
            if n > 1 {
                matrix.values.swap(0, n);
                matrix.values[0] = 0.0;
            }
            let mut product = matrix.times(&matrix.clone().inverse().unwrap());
            product.add_to_diagonal(-1.0);
            let worst = product.values.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            assert!(worst < 1e-4, "{n}: {worst}");
        }
        let singular = Single::new(2, vec![1.0, 2.0, 2.0, 4.0]);
        assert!(singular.inverse().is_err());
    }

    /// Fewer rows than features and a large λ: nothing is lost to f32, and 2024-10 is the projector.
    #[test]
    fn the_dual_form_is_right_where_f32_resolves_it() {
        let (n, width, ridge) = (7, 12, 0.5);
        let z = noise(n * width, 5);
        let found = ReleasedProjector::new(Release::October2024, &z, width, ridge).unwrap();
        let wanted = ours(&z, width, ridge);
        assert!(apart(&found.matrix(), &wanted) < 1e-5);
        let trace: f64 = (0..width).map(|i| wanted[(i, i)]).sum();
        let signs = found.vital_signs();
        assert!((signs.trace_ratio - trace / width as f64).abs() < 1e-6);
        assert!(signs.rounding.unwrap() < 1e-4);
        let [p, start] = [1, 2].map(|seed| {
            let values = noise(width * 3, seed).into_iter().map(f64::from).collect();
            Matrix::from_vec(width, 3, values)
        });
        let weights = found.label_weights(&p, &start);
        let moved = p.zip(&start, |p, s| p - s);
        for i in 0..width {
            for k in 0..3 {
                let projected: f64 = (0..width).map(|j| wanted[(i, j)] * moved[(j, k)]).sum();
                let whole = projected + start[(i, k)] + p[(i, k)];
                assert!((weights[(i, k)] - whole).abs() < 1e-5);
            }
        }
    }

    /// More rows than features and the published λ: the kernel is singular to f32, and what comes out is no projector.
    #[test]
    fn the_dual_form_is_rounding_at_the_published_ridge() {
        let (n, width, ridge) = (60, 12, 1e-6);
        let z = noise(n * width, 6);
        let found = ReleasedProjector::new(Release::October2024, &z, width, ridge).unwrap();
        assert!(found.vital_signs().rounding.unwrap() > 1.0);
        assert!(apart(&found.matrix(), &ours(&z, width, ridge)) > 1e-3);
    }

    #[test]
    fn the_woodbury_form_is_the_projector_of_ridge_one_over_the_ridge() {
        let (n, width, ridge) = (9, 6, 0.125);
        let z = noise(n * width, 7);
        let found = ReleasedProjector::new(Release::February2025, &z, width, ridge).unwrap();
        let unit = ours(&z, width, 1.0);
        let wanted = unit.zip(&unit, |x, _| x / ridge);
        assert!(apart(&found.matrix(), &wanted) < 1e-4);
        let trace = found.vital_signs().trace_ratio;
        assert!(trace > 1.0, "{trace}");
    }
}
