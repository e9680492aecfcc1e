//! GEMM with feature rows: projection Z W with fused epilogues (argmax, random Fourier features, row norms), kernel
//! matrices Z₁Z₂ᵀ and the pull-back ZᵀA.
//!
//! The right operand is packed once; feature rows are widened and packed 24 at a time by the task that uses them, so
//! that no widened copy of the features ever exists. Each entry of a result is one chain over the columns, in order.

use rayon::prelude::*;

use super::argmax;
use super::kernel::{Into, Isa, Kernel, Line, PANEL, Part, Work, pack_transposed};
use super::sin_cos::SinCos;
use crate::engine::{Dtype, Matrix, Rows};

/// Feature rows per task.
pub(super) const CHUNK: usize = 2 * PANEL;
/// Steps over k at a time, so that operands stay in the caches.
pub(super) const DEPTH: usize = 512;

/// A right operand: `[column panel][k]`.
struct Packed {
    depth: usize,
    columns: usize,
    lines: Vec<Line>,
}

impl Packed {
    fn new(depth: usize, columns: usize) -> Self {
        Self {
            depth,
            columns,
            lines: vec![Line::ZERO; columns.div_ceil(PANEL) * depth],
        }
    }

    /// Packs a depth × columns matrix.
    fn from_columns(matrix: &Matrix) -> Self {
        let (depth, columns) = (matrix.rows(), matrix.cols());
        let mut packed = Self::new(depth, columns);
        let panels = packed.lines.par_chunks_mut(depth.max(1)).enumerate();
        panels.for_each(|(panel, lines)| {
            let first = panel * PANEL;
            let count = PANEL.min(columns - first);
            for (k, line) in lines.iter_mut().enumerate() {
                line.0[..count].copy_from_slice(&matrix.row(k)[first..first + count]);
            }
        });
        packed
    }

    /// Packs the transpose of feature rows, with a 1 below each when `bias` is set.
    fn from_rows(rows: Rows<'_>, bias: bool) -> Self {
        let depth = rows.cols() + usize::from(bias);
        let columns = rows.rows();
        let mut packed = Self::new(depth, columns);
        let panels = packed.lines.par_chunks_mut(depth.max(1)).enumerate();
        panels.for_each_init(
            || vec![1.0; depth * PANEL],
            |wide, (panel, lines)| {
                let first = panel * PANEL;
                pack_rows(rows, first..columns.min(first + PANEL), wide, lines);
            },
        );
        packed
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }
}

/// Packs feature rows, at most a panel; `wide` has room for them, with ones where a bias is.
#[inline(always)]
fn pack_rows(rows: Rows<'_>, range: std::ops::Range<usize>, wide: &mut [f64], lines: &mut [Line]) {
    let depth = lines.len();
    for (i, wide) in range.clone().zip(wide.chunks_exact_mut(depth.max(1))) {
        rows.widen_row(i, wide);
    }
    pack_transposed(lines, range.len(), |i| &wide[i * depth..][..depth]);
}

/// Rows `first..first + count` (at most [`CHUNK`]) times a packed operand, each finished row handed to `emit`.
struct ChunkTimes<'a, F> {
    rows: Rows<'a>,
    first: usize,
    count: usize,
    right: &'a Packed,
    /// Given the row within the chunk and its products, with zeros up to a whole panel.
    emit: F,
}

impl<F: FnMut(usize, &[Line])> Work for ChunkTimes<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(mut self, kernel: K) {
        let Packed {
            depth,
            columns,
            ref lines,
        } = *self.right;
        let panels = self.right.panels();
        let mut wide = vec![1.0; depth * PANEL];
        let mut left = vec![Line::ZERO; depth];
        let mut out = vec![Line::ZERO; panels * PANEL];
        for group in (0..self.count).step_by(PANEL) {
            let first = self.first + group;
            let count = PANEL.min(self.count - group);
            pack_rows(self.rows, first..first + count, &mut wide, &mut left);
            for from in (0..depth).step_by(DEPTH) {
                let steps = from..depth.min(from + DEPTH);
                let into = if from == 0 { Into::Set } else { Into::Continue };
                for (panel, right) in lines.chunks_exact(depth).enumerate() {
                    let part = Part::first(count, columns - panel * PANEL);
                    let (left, right) = (&left[steps.clone()], &right[steps.clone()]);
                    kernel.multiply(left, right, part, into, &mut out[panel..], panels);
                }
            }
            for (i, products) in out.chunks_exact(panels).take(count).enumerate() {
                (self.emit)(group + i, products);
            }
        }
    }
}

/// Multiplies chunk by chunk in parallel; `emit` turns a row's products into the `width` values of `out` that are its own.
fn each_row<T: Send>(
    isa: Isa,
    rows: Rows<'_>,
    right: &Packed,
    (out, width): (&mut [T], usize),
    emit: impl Fn(&mut [T], &[Line]) + Sync,
) {
    if right.columns == 0 {
        return;
    }
    out.par_chunks_mut(CHUNK * width)
        .enumerate()
        .for_each(|(chunk, out)| {
            isa.run(ChunkTimes {
                rows,
                first: chunk * CHUNK,
                count: out.len() / width,
                right,
                emit: |i: usize, products: &[Line]| emit(&mut out[i * width..][..width], products),
            });
        });
}

fn times(isa: Isa, rows: Rows<'_>, right: &Packed) -> Matrix {
    let mut out = Matrix::zeros(rows.rows(), right.columns);
    let values = (out.as_mut_slice(), right.columns);
    each_row(isa, rows, right, values, |out, products| {
        copy(products, out);
    });
    out
}

pub(super) fn project(isa: Isa, rows: Rows<'_>, weights: &Matrix) -> Matrix {
    times(isa, rows, &Packed::from_columns(weights))
}

pub(super) fn kernel_matrix(isa: Isa, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Matrix {
    times(isa, left, &Packed::from_rows(right, bias))
}

pub(super) fn project_argmax(isa: Isa, rows: Rows<'_>, weights: &Matrix, bias: bool) -> Vec<u32> {
    if rows.dtype() != Dtype::F64 && weights.cols() > 0 {
        return argmax::screened(isa, rows, weights, bias);
    }
    let right = Packed::from_columns(weights);
    let mut out = vec![0_u32; rows.rows()];
    each_row(isa, rows, &right, (&mut out, 1), |out, products| {
        let products = products.iter().flat_map(|line| line.0);
        out[0] = argmax::largest(products.take(weights.cols()));
    });
    out
}

/// Returns random Fourier features: cos and sin of the products with `frequencies`, times `scale`, N×2m, cosines first.
pub(super) fn fourier_features(
    isa: Isa,
    rows: Rows<'_>,
    frequencies: &Matrix,
    scale: f64,
) -> Matrix {
    let right = Packed::from_columns(frequencies);
    let count = right.columns;
    let mut out = Matrix::zeros(rows.rows(), 2 * count);
    each_row(
        isa,
        rows,
        &right,
        (out.as_mut_slice(), 2 * count),
        |out, phases| {
            let (cosines, sines) = out.split_at_mut(count);
            isa.run(SinCos {
                phases,
                cosines,
                sines,
                scale,
            });
        },
    );
    out
}

/// Returns the squared row norms of Z W.
pub(super) fn row_norms_squared(isa: Isa, rows: Rows<'_>, weights: &Matrix) -> Vec<f64> {
    let right = Packed::from_columns(weights);
    let mut out = vec![0.0; rows.rows()];
    each_row(isa, rows, &right, (&mut out, 1), |out, products| {
        let mut sums = [0.0; PANEL];
        for line in products {
            for (sum, x) in sums.iter_mut().zip(&line.0) {
                *sum += x * x;
            }
        }
        out[0] = sums.iter().sum();
    });
    out
}

/// Panels of columns of Z that a pull-back task handles, and rows that it packs at a time.
const WIDE: usize = 8;
const RUN: usize = 128;

pub(super) fn pull_back(isa: Isa, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Matrix {
    // Each task walks all rows over its own columns; no partial sums to combine.
    let (features, targets) = (rows.cols(), coefficients.cols());
    let mut out = Matrix::zeros(features + usize::from(bias), targets);
    if targets == 0 {
        return out;
    }
    let right = &Packed::from_columns(coefficients);
    let (body, last) = out.as_mut_slice().split_at_mut(features * targets);
    body.par_chunks_mut(WIDE * PANEL * targets)
        .enumerate()
        .for_each(|(chunk, out)| {
            isa.run(PullBack {
                rows,
                first: chunk * WIDE * PANEL,
                right,
                out,
            });
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

/// Some columns of Z, transposed, times a packed operand: one chain over the rows for each entry.
struct PullBack<'a> {
    rows: Rows<'a>,
    /// The first of the columns.
    first: usize,
    right: &'a Packed,
    /// A row for each of the columns.
    out: &'a mut [f64],
}

impl Work for PullBack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Packed {
            depth,
            columns: targets,
            ref lines,
        } = *self.right;
        let count = self.out.len() / targets;
        let (wide, panels) = (count.div_ceil(PANEL), self.right.panels());
        let mut packed = vec![Line::ZERO; wide * RUN];
        let mut sums = vec![Line::ZERO; wide * PANEL * panels];
        for from in (0..depth).step_by(RUN) {
            let steps = from..depth.min(from + RUN);
            for (k, n) in steps.clone().enumerate() {
                for panel in 0..wide {
                    let first = panel * PANEL;
                    let line = &mut packed[panel * RUN + k].0[..PANEL.min(count - first)];
                    self.rows.widen_part(n, self.first + first, line);
                }
            }
            for (panel, left) in packed.chunks_exact(RUN).enumerate() {
                let left = &left[..steps.len()];
                let sums = &mut sums[panel * PANEL * panels..][..PANEL * panels];
                for (p, right) in lines.chunks_exact(depth).enumerate() {
                    let part = Part::first(count - panel * PANEL, targets - p * PANEL);
                    let right = &right[steps.clone()];
                    kernel.multiply(left, right, part, Into::Continue, &mut sums[p..], panels);
                }
            }
        }
        let rows = self.out.chunks_exact_mut(targets);
        for (out, sums) in rows.zip(sums.chunks_exact(panels)) {
            copy(sums, out);
        }
    }
}

/// Copies the values of a row, without the padding of its last line.
fn copy(lines: &[Line], out: &mut [f64]) {
    for (out, line) in out.chunks_mut(PANEL).zip(lines) {
        out.copy_from_slice(&line.0[..out.len()]);
    }
}
