//! Blocked Cholesky factor A + λI = LLᵀ and the solve with it.
//!
//! Left-looking over block columns of [`NB`]: the block column is updated with everything to its left, its diagonal
//! block is factored, and the rows below are divided by it, by substitution: multiplying by its inverse would cost as
//! many digits as the block's condition has. Rows are the unit of parallelism, each with its own part of the matrix, and
//! the inner products run over k in order. The solve does use inverses of the diagonal blocks, one panel of eight
//! right-hand sides a task, and leaves what that costs to the refinement step.

use rayon::prelude::*;

use super::kernel::{Isa, Kernel, MR, NR, Work, pack_transposed};
use crate::engine::Matrix;
use crate::error::{Error, Result};

/// Columns of a block; a multiple of both tile sides.
const NB: usize = 48;
/// Rows of L that a task updates.
const TASK_ROWS: usize = 4 * MR;

/// L, with the inverses of its diagonal blocks.
#[derive(Debug)]
pub struct Factor {
    order: usize,
    /// L row-major; above the diagonal is zero.
    lower: Vec<f64>,
    /// Inverse of each diagonal block, NB × NB row-major.
    inverses: Vec<Vec<f64>>,
}

impl Factor {
    pub(super) fn new(isa: Isa, matrix: &Matrix, ridge: f64) -> Result<Self> {
        let n = matrix.rows();
        let mut lower = vec![0.0; n * n];
        for i in 0..n {
            lower[i * n..][..=i].copy_from_slice(&matrix.row(i)[..=i]);
            lower[i * n + i] += ridge;
        }
        let mut inverses = Vec::with_capacity(n.div_ceil(NB));
        for first in (0..n).step_by(NB) {
            let width = NB.min(n - first);
            subtract_left_part(isa, &mut lower, n, first, width);
            let inverse = factor_diagonal(&mut lower, n, first, width)?;
            divide_below(isa, &mut lower, n, first, width);
            inverses.push(inverse);
        }
        Ok(Self {
            order: n,
            lower,
            inverses,
        })
    }

    pub(super) fn order(&self) -> usize {
        self.order
    }

    pub(super) fn pivots(&self) -> (f64, f64) {
        let n = self.order;
        (0..n)
            .map(|i| self.lower[i * n + i].powi(2))
            .fold((f64::INFINITY, 0.0), |(low, high), p| {
                (low.min(p), p.max(high))
            })
    }

    pub(super) fn solve(&self, isa: Isa, rhs: &Matrix) -> Matrix {
        let (n, columns) = (self.order, rhs.cols());
        let mut panels: Vec<Vec<f64>> = (0..columns)
            .step_by(NR)
            .map(|first| {
                let count = NR.min(columns - first);
                let mut panel = vec![0.0; n * NR];
                for k in 0..n {
                    panel[k * NR..][..count].copy_from_slice(&rhs.row(k)[first..first + count]);
                }
                panel
            })
            .collect();
        for block in 0..self.inverses.len() {
            self.forward(isa, block, &mut panels, |_| true);
        }
        for block in (0..self.inverses.len()).rev() {
            self.backward(isa, block, &mut panels);
        }
        Matrix::from_fn(n, columns, |k, j| panels[j / NR][k * NR + j % NR])
    }

    /// Squared column norms of L⁻¹, column panel by column panel of the identity; a panel starts at its own block.
    pub(super) fn inverse_diagonal(&self, isa: Isa) -> Vec<f64> {
        // A few panels at a time bounds the memory to a strip of the inverse.
        const PANELS: usize = 32;
        let n = self.order;
        let mut diagonal = Vec::with_capacity(n);
        for group in (0..n).step_by(PANELS * NR) {
            let end = n.min(group + PANELS * NR);
            let mut panels: Vec<Vec<f64>> = (group..end)
                .step_by(NR)
                .map(|first| {
                    let mut panel = vec![0.0; n * NR];
                    for j in 0..NR.min(n - first) {
                        panel[(first + j) * NR + j] = 1.0;
                    }
                    panel
                })
                .collect();
            for block in group / NB..self.inverses.len() {
                let below = |panel: usize| (block + 1) * NB > group + panel * NR;
                self.forward(isa, block, &mut panels, below);
            }
            for (panel, first) in panels.iter().zip((group..end).step_by(NR)) {
                let mut sums = [0.0; NR];
                for row in panel.as_chunks::<NR>().0 {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum += x * x;
                    }
                }
                diagonal.extend_from_slice(&sums[..NR.min(n - first)]);
            }
        }
        diagonal
    }

    fn block(&self, block: usize) -> (usize, usize) {
        let first = block * NB;
        (first, NB.min(self.order - first))
    }

    /// X_J ← L_JJ⁻¹ (X_J − L_J,left X_left) for the panels that `take` selects.
    fn forward(
        &self,
        isa: Isa,
        block: usize,
        panels: &mut [Vec<f64>],
        take: impl Fn(usize) -> bool + Sync,
    ) {
        let n = self.order;
        let (first, width) = self.block(block);
        let left = pack_groups(width, first, |i| &self.lower[(first + i) * n..]);
        let inverse = pack_groups(width, width, |i| &self.inverses[block][i * NB..]);
        panels.par_iter_mut().enumerate().for_each(|(p, panel)| {
            if take(p) {
                let (solved, rest) = panel.split_at_mut(first * NR);
                isa.run(SolveBlock {
                    coupling: &left,
                    known: solved,
                    inverse: &inverse,
                    unknown: &mut rest[..width * NR],
                });
            }
        });
    }

    /// X_J ← L_JJ⁻ᵀ (X_J − (L_below,J)ᵀ X_below).
    fn backward(&self, isa: Isa, block: usize, panels: &mut [Vec<f64>]) {
        let n = self.order;
        let (first, width) = self.block(block);
        let below = n - first - width;
        // Rows of Lᵀ and of the transposed inverse, gathered once for all panels.
        let mut columns = vec![0.0; width * below];
        for k in 0..below {
            let row = &self.lower[(first + width + k) * n + first..][..width];
            for (i, &value) in row.iter().enumerate() {
                columns[i * below + k] = value;
            }
        }
        let inverse = &self.inverses[block];
        let transposed: Vec<f64> = (0..width * width)
            .map(|k| inverse[k % width * NB + k / width])
            .collect();
        let coupling = pack_groups(width, below, |i| &columns[i * below..]);
        let inverse = pack_groups(width, width, |i| &transposed[i * width..]);
        panels.par_iter_mut().for_each(|panel| {
            let (rest, solved) = panel.split_at_mut((first + width) * NR);
            isa.run(SolveBlock {
                coupling: &coupling,
                known: solved,
                inverse: &inverse,
                unknown: &mut rest[first * NR..],
            });
        });
    }
}

/// Packs `count` rows of `depth` values as left operands, six rows a group.
fn pack_groups<'a>(count: usize, depth: usize, row: impl Fn(usize) -> &'a [f64]) -> Vec<f64> {
    let mut out = vec![0.0; count.next_multiple_of(MR) * depth];
    for group in (0..count).step_by(MR) {
        let out = &mut out[group * depth..][..MR * depth];
        pack_transposed::<MR>(out, depth, MR.min(count - group), |i| row(group + i));
    }
    out
}

/// unknown ← inverse · (unknown − coupling · known), eight right-hand sides.
struct SolveBlock<'a> {
    coupling: &'a [f64],
    known: &'a [f64],
    inverse: &'a [f64],
    unknown: &'a mut [f64],
}

impl Work for SolveBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let width = self.unknown.len() / NR;
        let depth = self.known.len() / NR;
        let mut right = [0.0; NB * NR];
        right[..width * NR].copy_from_slice(self.unknown);
        if depth > 0 {
            for group in (0..width).step_by(MR) {
                let left = &self.coupling[group * depth..][..MR * depth];
                let tile = kernel.tile(left, self.known);
                for (row, sums) in tile.iter().enumerate().take(width - group) {
                    let out = &mut right[(group + row) * NR..][..NR];
                    for (out, sum) in out.iter_mut().zip(sums) {
                        *out -= sum;
                    }
                }
            }
        }
        for group in (0..width).step_by(MR) {
            let left = &self.inverse[group * width..][..MR * width];
            let tile = kernel.tile(left, &right[..width * NR]);
            for (row, sums) in tile.iter().enumerate().take(width - group) {
                self.unknown[(group + row) * NR..][..NR].copy_from_slice(sums);
            }
        }
    }
}

/// A[first.., J] −= L[first.., left] · L[J, left]ᵀ.
fn subtract_left_part(isa: Isa, lower: &mut [f64], n: usize, first: usize, width: usize) {
    if first == 0 {
        return;
    }
    let mut right = vec![0.0; width.next_multiple_of(NR) * first];
    right
        .par_chunks_mut(first * NR)
        .enumerate()
        .for_each(|(panel, out)| {
            let j = panel * NR;
            pack_transposed::<NR>(out, first, NR.min(width - j), |i| {
                &lower[(first + j + i) * n..]
            });
        });
    lower[first * n..]
        .par_chunks_mut(TASK_ROWS * n)
        .enumerate()
        .for_each(|(task, rows)| {
            isa.run(UpdateRows {
                rows,
                stride: n,
                depth: first,
                target: first,
                width,
                right: &right,
                // Rows of the diagonal block keep zeros above the diagonal.
                diagonal: task * TASK_ROWS,
            });
        });
}

/// A[below, J] ← A[below, J] · L_JJ⁻ᵀ.
fn divide_below(isa: Isa, lower: &mut [f64], n: usize, first: usize, width: usize) {
    let (done, below) = lower.split_at_mut((first + width) * n);
    let mut block = vec![0.0; NB * NB];
    for (i, row) in done[first * n..].chunks_exact(n).enumerate() {
        for (j, &value) in row[first..=first + i].iter().enumerate() {
            block[j * NB + i] = value;
        }
    }
    below.par_chunks_mut(TASK_ROWS * n).for_each(|rows| {
        isa.run(DivideRows {
            rows,
            stride: n,
            target: first,
            width,
            block: &block,
        });
    });
}

/// For each row: row[target..][..width] ← the same · L⁻ᵀ, eight rows side by side.
struct DivideRows<'a> {
    rows: &'a mut [f64],
    stride: usize,
    target: usize,
    width: usize,
    /// L's columns, NB × NB.
    block: &'a [f64],
}

impl Work for DivideRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let (n, width) = (self.stride, self.width);
        let count = self.rows.len() / n;
        for group in (0..count).step_by(NR) {
            let height = NR.min(count - group);
            let mut part = [[0.0; NR]; NB];
            pack_transposed::<NR>(part.as_flattened_mut(), width, height, |i| {
                &self.rows[(group + i) * n + self.target..]
            });
            for c in 0..width {
                let column = &self.block[c * NB..][..width];
                let (solved, rest) = part[c..width].split_at_mut(1);
                let quotient = solved[0].map(|x| x / column[c]);
                solved[0] = quotient;
                for (part, &l) in rest.iter_mut().zip(&column[c + 1..]) {
                    for (x, q) in part.iter_mut().zip(&quotient) {
                        *x = (-l).mul_add(*q, *x);
                    }
                }
            }
            for i in 0..height {
                let out = &mut self.rows[(group + i) * n + self.target..][..width];
                for (out, part) in out.iter_mut().zip(&part) {
                    *out = part[i];
                }
            }
        }
    }
}

/// For each row: row[target..][..width] −= row[..depth] · right.
struct UpdateRows<'a> {
    rows: &'a mut [f64],
    stride: usize,
    depth: usize,
    target: usize,
    width: usize,
    right: &'a [f64],
    /// Index of the first row within the block column: entries right of the diagonal are left alone.
    diagonal: usize,
}

impl Work for UpdateRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let (n, depth) = (self.stride, self.depth);
        let count = self.rows.len() / n;
        let mut left = vec![0.0; depth * MR];
        for group in (0..count).step_by(MR) {
            let height = MR.min(count - group);
            pack_transposed::<MR>(&mut left, depth, height, |i| &self.rows[(group + i) * n..]);
            for column in (0..self.width).step_by(NR) {
                let tile = kernel.tile(&left, &self.right[column * depth..][..NR * depth]);
                for (i, sums) in tile.iter().enumerate().take(height) {
                    let last = (self.diagonal + group + i + 1).min(self.width);
                    let end = last.min(column + NR);
                    if column >= end {
                        continue;
                    }
                    let start = (group + i) * n + self.target + column;
                    let out = &mut self.rows[start..][..end - column];
                    for (out, sum) in out.iter_mut().zip(sums) {
                        *out -= sum;
                    }
                }
            }
        }
    }
}

/// Factors the diagonal block in place and returns its inverse.
fn factor_diagonal(lower: &mut [f64], n: usize, first: usize, width: usize) -> Result<Vec<f64>> {
    let at = |i: usize, j: usize| (first + i) * n + first + j;
    for j in 0..width {
        let mut pivot = lower[at(j, j)];
        for k in 0..j {
            pivot -= lower[at(j, k)].powi(2);
        }
        // Written so that NaN fails too.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(Error::NotPositiveDefinite {
                pivot: first + j,
                value: pivot,
                size: n,
            });
        }
        let root = pivot.sqrt();
        lower[at(j, j)] = root;
        for i in j + 1..width {
            let mut value = lower[at(i, j)];
            for k in 0..j {
                value -= lower[at(i, k)] * lower[at(j, k)];
            }
            lower[at(i, j)] = value / root;
        }
    }
    let mut inverse = vec![0.0; NB * NB];
    for j in 0..width {
        inverse[j * NB + j] = 1.0 / lower[at(j, j)];
        for i in j + 1..width {
            let mut sum = 0.0;
            for k in j..i {
                sum += lower[at(i, k)] * inverse[k * NB + j];
            }
            inverse[i * NB + j] = -sum / lower[at(i, i)];
        }
    }
    Ok(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nearly equal columns make diagonal blocks that are nearly singular.
    #[test]
    fn the_factor_is_stable_for_nearly_singular_blocks() {
        let n = 150;
        let noise = |i: usize, j: usize| ((i * 7_919 + j * 104_729 + i * j) as f64).sin();
        let z = Matrix::from_fn(400, n, |i, j| noise(i, j / 2) + 1e-6 * noise(j, i + 1_000));
        let mut a = Matrix::zeros(n, n);
        for row in 0..400 {
            for i in 0..n {
                for j in 0..n {
                    a[(i, j)] += z[(row, i)] * z[(row, j)];
                }
            }
        }
        let ridge = 1e-13 * a.norm();
        let factor = Factor::new(Isa::detect(), &a, ridge).unwrap();
        let mut residual = Matrix::zeros(n, n);
        for i in 0..n {
            for j in 0..=i {
                let product: f64 = (0..=j)
                    .map(|k| factor.lower[i * n + k] * factor.lower[j * n + k])
                    .sum();
                let shift = if i == j { ridge } else { 0.0 };
                residual[(i, j)] = product - a[(i, j)] - shift;
            }
        }
        let error = residual.norm() / a.norm();
        assert!(error < 10.0 * f64::EPSILON, "LLᵀ is {error:e} from A + λI");
    }
}
