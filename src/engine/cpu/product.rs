//! Products with feature rows: projection Z W and what is made of its rows at once (argmax, waves, norms), kernel matrices
//! Z₁Z₂ᵀ and the pull-back ZᵀA.
//!
//! The right operand is packed once; feature rows are widened and packed six at a time by the task that uses them, so
//! that no widened copy of the features ever exists. Each entry of a result is one chain over the columns, in order.

use rayon::prelude::*;

use super::argmax;
use super::kernel::{Isa, Kernel, MR, NR, Work, pack_transposed};
use super::waves::Waves;
use crate::engine::{Dtype, Matrix, Rows};

/// Feature rows a task handles: eight tiles.
const CHUNK: usize = 8 * MR;

/// A right operand: `[column / 8][k][8]`.
struct Packed {
    depth: usize,
    columns: usize,
    data: Vec<f64>,
}

impl Packed {
    /// Packs a depth × columns matrix.
    fn from_columns(matrix: &Matrix) -> Self {
        let (depth, columns) = (matrix.rows(), matrix.cols());
        let mut data = vec![0.0; columns.next_multiple_of(NR) * depth];
        data.par_chunks_mut((depth * NR).max(1))
            .enumerate()
            .for_each(|(panel, out)| {
                let first = panel * NR;
                let count = NR.min(columns - first);
                for k in 0..depth {
                    out[k * NR..][..count].copy_from_slice(&matrix.row(k)[first..first + count]);
                }
            });
        Self {
            depth,
            columns,
            data,
        }
    }

    /// Packs the transpose of feature rows, with a 1 below each when `bias` is set.
    fn from_rows(rows: Rows<'_>, bias: bool) -> Self {
        let depth = rows.cols() + usize::from(bias);
        let columns = rows.rows();
        let mut data = vec![0.0; columns.next_multiple_of(NR) * depth];
        data.par_chunks_mut((depth * NR).max(1))
            .enumerate()
            .for_each_init(
                || vec![1.0; depth * NR],
                |wide, (panel, out)| {
                    let first = panel * NR;
                    let count = NR.min(columns - first);
                    for i in 0..count {
                        rows.widen_row(first + i, &mut wide[i * depth..]);
                    }
                    pack_transposed::<NR>(out, depth, count, |i| &wide[i * depth..]);
                },
            );
        Self {
            depth,
            columns,
            data,
        }
    }

    fn panel(&self, column: usize) -> &[f64] {
        &self.data[column * self.depth..][..self.depth * NR]
    }
}

/// Rows `first..first + count` (at most [`CHUNK`]) times a packed operand, each finished row handed to `emit`.
struct ChunkTimes<'a, F> {
    rows: Rows<'a>,
    bias: bool,
    first: usize,
    count: usize,
    right: &'a Packed,
    /// Given the row within the chunk and its products.
    emit: F,
}

impl<F: FnMut(usize, &[f64])> Work for ChunkTimes<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(mut self, kernel: K) {
        let depth = self.right.depth;
        let padded = self.right.columns.next_multiple_of(NR);
        let mut wide = vec![1.0; depth * MR];
        let mut left = vec![0.0; depth * MR];
        let mut out = vec![0.0; padded * MR];
        debug_assert_eq!(depth, self.rows.cols() + usize::from(self.bias));
        for group in (0..self.count).step_by(MR) {
            let count = MR.min(self.count - group);
            for i in 0..count {
                let row = self.first + group + i;
                self.rows.widen_row(row, &mut wide[i * depth..]);
            }
            pack_transposed::<MR>(&mut left, depth, count, |i| &wide[i * depth..]);
            for column in (0..padded).step_by(NR) {
                let tile = kernel.tile(&left, self.right.panel(column));
                for (i, sums) in tile.iter().enumerate() {
                    out[i * padded + column..][..NR].copy_from_slice(sums);
                }
            }
            for i in 0..count {
                (self.emit)(group + i, &out[i * padded..][..self.right.columns]);
            }
        }
    }
}

/// Multiplies chunk by chunk in parallel; `emit` turns a row's products into the `width` values of `out` that are its own.
fn each_row<T: Send>(
    isa: Isa,
    (rows, bias): (Rows<'_>, bool),
    right: &Packed,
    (out, width): (&mut [T], usize),
    emit: impl Fn(&mut [T], &[f64]) + Sync,
) {
    if right.columns == 0 {
        return;
    }
    out.par_chunks_mut(CHUNK * width)
        .enumerate()
        .for_each(|(chunk, out)| {
            isa.run(ChunkTimes {
                rows,
                bias,
                first: chunk * CHUNK,
                count: out.len() / width,
                right,
                emit: |i: usize, products: &[f64]| emit(&mut out[i * width..][..width], products),
            });
        });
}

fn times(isa: Isa, rows: Rows<'_>, bias: bool, right: &Packed) -> Matrix {
    let mut out = Matrix::zeros(rows.rows(), right.columns);
    let values = (out.as_mut_slice(), right.columns);
    each_row(isa, (rows, bias), right, values, |out, products| {
        out.copy_from_slice(products);
    });
    out
}

pub(super) fn project(isa: Isa, rows: Rows<'_>, weights: &Matrix, bias: bool) -> Matrix {
    times(isa, rows, bias, &Packed::from_columns(weights))
}

pub(super) fn kernel_matrix(isa: Isa, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Matrix {
    times(isa, left, bias, &Packed::from_rows(right, bias))
}

pub(super) fn project_argmax(isa: Isa, rows: Rows<'_>, weights: &Matrix, bias: bool) -> Vec<u32> {
    if rows.dtype() != Dtype::F64 && weights.cols() > 0 {
        return argmax::screened(isa, rows, weights, bias);
    }
    let right = Packed::from_columns(weights);
    let mut out = vec![0_u32; rows.rows()];
    each_row(isa, (rows, bias), &right, (&mut out, 1), |out, products| {
        out[0] = argmax::largest(products);
    });
    out
}

/// cos and sin of the products with `frequencies`, times `scale`: N×2m, cosines first.
pub(super) fn waves(isa: Isa, rows: Rows<'_>, frequencies: &Matrix, scale: f64) -> Matrix {
    let right = Packed::from_columns(frequencies);
    let count = right.columns;
    let mut out = Matrix::zeros(rows.rows(), 2 * count);
    each_row(
        isa,
        (rows, false),
        &right,
        (out.as_mut_slice(), 2 * count),
        |out, phases| {
            let (cosines, sines) = out.split_at_mut(count);
            isa.run(Waves {
                phases,
                cosines,
                sines,
                scale,
            });
        },
    );
    out
}

/// Squared norms of the rows of Z W.
pub(super) fn squares(isa: Isa, rows: Rows<'_>, weights: &Matrix) -> Vec<f64> {
    let right = Packed::from_columns(weights);
    let mut out = vec![0.0; rows.rows()];
    each_row(
        isa,
        (rows, false),
        &right,
        (&mut out, 1),
        |out, products| {
            let mut sums = [0.0; NR];
            for products in products.chunks(NR) {
                for (sum, x) in sums.iter_mut().zip(products) {
                    *sum += x * x;
                }
            }
            out[0] = sums.iter().sum();
        },
    );
    out
}

/// Columns of Z that a pull-back task handles.
const COLUMNS: usize = 256;

pub(super) fn pull_back(rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Matrix {
    // Bound by reading Z once, so each task walks all rows over its own columns; no partial sums to combine.
    let (features, targets) = (rows.cols(), coefficients.cols());
    let mut out = Matrix::zeros(features + usize::from(bias), targets);
    if targets == 0 {
        return out;
    }
    let (body, last) = out.as_mut_slice().split_at_mut(features * targets);
    body.par_chunks_mut(COLUMNS * targets)
        .enumerate()
        .for_each(|(chunk, out)| {
            let first = chunk * COLUMNS;
            let count = out.len() / targets;
            let mut wide = vec![0.0; count];
            for n in 0..rows.rows() {
                rows.widen_part(n, first, &mut wide);
                let coefficients = coefficients.row(n);
                for (out, &z) in out.chunks_exact_mut(targets).zip(&wide) {
                    for (out, &a) in out.iter_mut().zip(coefficients) {
                        *out += z * a;
                    }
                }
            }
        });
    if bias {
        for n in 0..coefficients.rows() {
            for (out, &a) in last.iter_mut().zip(coefficients.row(n)) {
                *out += a;
            }
        }
    }
    out
}
