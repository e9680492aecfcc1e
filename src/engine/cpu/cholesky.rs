//! Blocked Cholesky factor A + λI = LLᵀ and the solve with it.
//!
//! Left-looking over block columns of [`NB`]: each strip of as many rows takes what lies to the left off its block of the
//! column, and divides that by the diagonal block, by substitution: multiplying by the inverse would cost as many digits
//! as the block's condition has. L is never stored row by row. A finished block goes straight into the operand formats
//! that later steps read ([`Strip`]), so nothing is packed twice. Strips are the unit of parallelism; the one below the
//! diagonal comes first and factors its own diagonal block as well, so that the next column can begin at once.
//!
//! The order is rounded up to whole blocks, with ones on the diagonal beyond the end, which changes nothing.
//!
//! The solve does use inverses of the diagonal blocks, and leaves what that costs to the refinement step. Right-hand sides
//! are independent: a task takes some panels of eight through all blocks, with no waiting for others.

use rayon::prelude::*;

use super::kernel::{Aligned, Isa, Kernel, MR, NR, Panels, Work};
use super::turns::in_turn;
use crate::engine::Matrix;
use crate::error::{Error, Result};

/// Rows and columns of a block; a multiple of both tile sides.
const NB: usize = 48;
/// Steps over k at a time, so that operands stay in the caches; whole blocks.
const DEPTH: usize = 8 * NB;
/// Panels of right-hand sides that a task takes at most.
const PANELS: usize = 8;

/// A block, row by row or column by column.
type Block = [[f64; NB]; NB];

/// L, with the inverses of its diagonal blocks.
#[derive(Debug)]
pub struct Factor {
    order: usize,
    strips: Vec<Strip>,
    /// Smallest and largest pivot.
    pivots: (f64, f64),
}

/// Rows `index * NB..` of L, up to and including the diagonal block.
#[derive(Debug)]
struct Strip {
    index: usize,
    /// As left operand: `[row / 6][k][6]`.
    left: Aligned,
    /// As right operand, `[row / 8][k][8]`; only while factoring.
    right: Aligned,
    /// Lᵀ as left operand, block by block: `[block][column / 6][row][6]`, without the diagonal block.
    down: Aligned,
    /// The inverse of the diagonal block as left operand, and its transpose.
    inverse: [Aligned; 2],
    /// Why the diagonal block could not be factored: the pivot within it, and its value.
    failed: Option<(usize, f64)>,
}

impl Factor {
    pub(super) fn new(isa: Isa, matrix: &Matrix, ridge: f64) -> Result<Self> {
        let n = matrix.rows();
        let system = System { matrix, ridge };
        let count = n.div_ceil(NB);
        let mut strips: Vec<Strip> = (0..count).map(Strip::new).collect();
        if let Some(first) = strips.first_mut() {
            isa.run(Diagonal {
                system,
                strip: first,
            });
        }
        for column in 0..count {
            let (done, below) = strips.split_at_mut(column + 1);
            let pivot = &done[column];
            if let Some((row, value)) = pivot.failed {
                return Err(Error::NotPositiveDefinite {
                    pivot: column * NB + row,
                    value,
                    size: n,
                });
            }
            in_turn(below.iter_mut(), |strip| {
                isa.run(Column {
                    system,
                    pivot,
                    strip,
                });
            });
        }
        let diagonal = (0..n).map(|i| strips[i / NB].entry(i % NB, i).powi(2));
        let pivots = diagonal.fold((f64::INFINITY, 0.0_f64), |(low, high), p| {
            (low.min(p), high.max(p))
        });
        for strip in &mut strips {
            strip.right = Aligned::default();
        }
        Ok(Self {
            order: n,
            strips,
            pivots,
        })
    }

    pub(super) fn order(&self) -> usize {
        self.order
    }

    pub(super) fn pivots(&self) -> (f64, f64) {
        self.pivots
    }

    fn padded(&self) -> usize {
        self.strips.len() * NB
    }

    pub(super) fn solve(&self, isa: Isa, rhs: &Matrix) -> Matrix {
        let (n, columns, padded) = (self.order, rhs.cols(), self.padded());
        let panels = columns.div_ceil(NR);
        // Any share gives the same bytes.
        let share = panels
            .div_ceil(rayon::current_num_threads())
            .clamp(1, PANELS);
        let solved: Vec<Aligned> = (0..panels)
            .step_by(share)
            .collect::<Vec<_>>()
            .into_par_iter()
            .with_max_len(1)
            .map(|first| {
                let count = share.min(panels - first);
                let mut x = Aligned::zeros(count * padded * NR);
                for (panel, x) in (first..).zip(x.chunks_exact_mut(padded * NR)) {
                    let from = panel * NR;
                    let width = NR.min(columns - from);
                    for (k, x) in x.as_chunks_mut::<NR>().0[..n].iter_mut().enumerate() {
                        x[..width].copy_from_slice(&rhs.row(k)[from..from + width]);
                    }
                }
                isa.run(Solve {
                    strips: &self.strips,
                    x: &mut x,
                    start: 0,
                    backward: true,
                });
                x
            })
            .collect();
        let mut out = Matrix::zeros(n, columns);
        for (panel, from) in (0..columns).step_by(NR).enumerate() {
            let x = &solved[panel / share][panel % share * padded * NR..];
            let width = NR.min(columns - from);
            for (k, x) in x.as_chunks::<NR>().0[..n].iter().enumerate() {
                out.row_mut(k)[from..from + width].copy_from_slice(&x[..width]);
            }
        }
        out
    }

    /// Squared column norms of L⁻¹: some columns of the identity at a time, each from its own block on.
    pub(super) fn inverse_diagonal(&self, isa: Isa) -> Vec<f64> {
        const COLUMNS: usize = 4 * NR;
        let (n, padded) = (self.order, self.padded());
        let mut diagonal = vec![0.0; n];
        in_turn(
            diagonal.chunks_mut(COLUMNS).enumerate(),
            |(task, diagonal)| {
                let first = task * COLUMNS;
                let mut x = Aligned::zeros(COLUMNS / NR * padded * NR);
                for j in 0..diagonal.len() {
                    x[j / NR * padded * NR + (first + j) * NR + j % NR] = 1.0;
                }
                isa.run(Solve {
                    strips: &self.strips,
                    x: &mut x,
                    start: first / NB,
                    backward: false,
                });
                for (j, diagonal) in diagonal.iter_mut().enumerate() {
                    let panel = &x[j / NR * padded * NR..][..padded * NR];
                    let column = panel.as_chunks::<NR>().0.iter().map(|row| row[j % NR]);
                    *diagonal = column.map(|x| x * x).sum();
                }
            },
        );
        diagonal
    }
}

impl Strip {
    fn new(index: usize) -> Self {
        let depth = (index + 1) * NB;
        Self {
            index,
            left: Aligned::zeros(NB * depth),
            right: Aligned::zeros(NB * depth),
            down: Aligned::zeros(NB * NB * index),
            inverse: [Aligned::zeros(NB * NB), Aligned::zeros(NB * NB)],
            failed: None,
        }
    }

    /// Columns that it has.
    fn depth(&self) -> usize {
        (self.index + 1) * NB
    }

    /// L at a row of the strip and a column of the matrix.
    fn entry(&self, row: usize, k: usize) -> f64 {
        self.left[row / MR * self.depth() * MR + k * MR + row % MR]
    }

    /// Columns `from..to` as left operand.
    fn left(&self, from: usize, to: usize) -> Panels<'_, MR> {
        Panels {
            data: &self.left[from * MR..],
            stride: self.depth() * MR,
            count: NB / MR,
            depth: to - from,
        }
    }

    /// Columns `from..to` as right operand.
    fn right(&self, from: usize, to: usize) -> Panels<'_, NR> {
        Panels {
            data: &self.right[from * NR..],
            stride: self.depth() * NR,
            count: NB / NR,
            depth: to - from,
        }
    }

    /// Writes columns `block * NB..`, which `right` has, in the other formats.
    #[inline(always)]
    fn spread(&mut self, block: usize) {
        let (depth, first) = (self.depth(), block * NB);
        for c in 0..NB {
            let mut column = [0.0; NB];
            let panels = self.right.chunks_exact(depth * NR);
            for (rows, panel) in column.as_chunks_mut::<NR>().0.iter_mut().zip(panels) {
                rows.copy_from_slice(&panel[(first + c) * NR..][..NR]);
            }
            let groups = self.left.chunks_exact_mut(depth * MR);
            for (rows, group) in column.as_chunks::<MR>().0.iter().zip(groups) {
                group[(first + c) * MR..][..MR].copy_from_slice(rows);
            }
            if block < self.index {
                let to = &mut self.down[block * NB * NB + c / MR * NB * MR..][..NB * MR];
                for (row, value) in to.as_chunks_mut::<MR>().0.iter_mut().zip(column) {
                    row[c % MR] = value;
                }
            }
        }
    }
}

/// What is factored: A + λI, reading A's lower triangle.
#[derive(Clone, Copy)]
struct System<'a> {
    matrix: &'a Matrix,
    ridge: f64,
}

impl System<'_> {
    /// The block at (strip, column) less L's part to the left of the column, row by row. Of a diagonal block only what is
    /// on and below the diagonal means anything.
    #[inline(always)]
    fn remainder<K: Kernel>(self, kernel: K, strip: &Strip, pivot: &Strip) -> Block {
        let (n, first) = (self.matrix.rows(), pivot.index * NB);
        let width = NB.min(n - first);
        let mut block = [[0.0; NB]; NB];
        for (r, out) in block.iter_mut().enumerate() {
            let i = strip.index * NB + r;
            if i < n {
                out[..width].copy_from_slice(&self.matrix.row(i)[first..first + width]);
            }
            if strip.index == pivot.index {
                out[r] = if i < n { out[r] + self.ridge } else { 1.0 };
            }
        }
        for from in (0..first).step_by(DEPTH) {
            let to = first.min(from + DEPTH);
            let (left, right) = (strip.left(from, to), pivot.right(from, to));
            kernel.tiles(
                left,
                right,
                |_, _| true,
                |i, j, tile| {
                    for (out, sums) in block[i * MR..].iter_mut().zip(&tile) {
                        for (out, sum) in out[j * NR..][..NR].iter_mut().zip(sums) {
                            *out -= sum;
                        }
                    }
                },
            );
        }
        block
    }
}

/// One block of a column: its remainder divided by the diagonal block; and the strip's own diagonal block, if that is the
/// next.
struct Column<'a> {
    system: System<'a>,
    pivot: &'a Strip,
    strip: &'a mut Strip,
}

impl Work for Column<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            system,
            pivot,
            strip,
        } = self;
        let block = system.remainder(kernel, strip, pivot);
        let depth = strip.depth();
        for (panel, rows) in block.as_chunks::<NR>().0.iter().enumerate() {
            let out = &mut strip.right[panel * depth * NR + pivot.index * NB * NR..][..NB * NR];
            let (out, _) = out.as_chunks_mut::<NR>();
            for (i, row) in rows.iter().enumerate() {
                for (out, value) in out.iter_mut().zip(row) {
                    out[i] = *value;
                }
            }
            divide(kernel, pivot, out);
        }
        strip.spread(pivot.index);
        if strip.index == pivot.index + 1 {
            Diagonal { system, strip }.run(kernel);
        }
    }
}

/// Eight rows, column by column, divided by the transpose of a diagonal block: six columns at a time, the others' part by
/// a tile.
#[inline(always)]
fn divide<K: Kernel>(kernel: K, pivot: &Strip, columns: &mut [[f64; NR]]) {
    let first = pivot.index * NB;
    let triangle = pivot.left(first, first + NB);
    for group in 0..NB / MR {
        let l = triangle.panel(group);
        let (solved, rest) = columns.split_at_mut(group * MR);
        if group > 0 {
            let tile = kernel.tile(&l[..group * MR * MR], solved.as_flattened());
            for (column, sums) in rest.iter_mut().zip(&tile) {
                for (x, sum) in column.iter_mut().zip(sums) {
                    *x -= sum;
                }
            }
        }
        let (l, _) = l[group * MR * MR..].as_chunks::<MR>();
        for c in 0..MR {
            let scale = 1.0 / l[c][c];
            let quotient = rest[c].map(|x| x * scale);
            rest[c] = quotient;
            for d in c + 1..MR {
                for (x, q) in rest[d].iter_mut().zip(&quotient) {
                    *x = (-l[c][d]).mul_add(*q, *x);
                }
            }
        }
    }
}

/// A diagonal block: factored and inverted.
struct Diagonal<'a> {
    system: System<'a>,
    strip: &'a mut Strip,
}

impl Work for Diagonal<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let strip = self.strip;
        let rows = self.system.remainder(kernel, strip, strip);
        let mut columns = [[0.0; NB]; NB];
        for (i, row) in rows.iter().enumerate() {
            for (j, &value) in row[..=i].iter().enumerate() {
                columns[j][i] = value;
            }
        }
        strip.failed = factor_block(&mut columns).err();
        if strip.failed.is_some() {
            return;
        }
        let (index, depth) = (strip.index, strip.depth());
        for (panel, out) in strip.right.chunks_exact_mut(depth * NR).enumerate() {
            let (out, _) = out[index * NB * NR..].as_chunks_mut::<NR>();
            for (out, column) in out.iter_mut().zip(&columns) {
                out.copy_from_slice(&column[panel * NR..][..NR]);
            }
        }
        strip.spread(index);
        let inverse = invert_block(&columns);
        for i in 0..NB {
            for k in 0..NB {
                let at = i / MR * NB * MR + k * MR + i % MR;
                strip.inverse[0][at] = inverse[i][k];
                strip.inverse[1][at] = inverse[k][i];
            }
        }
    }
}

/// Factors a block in place, column by column; an error is the pivot that is not positive, and its value.
#[inline(always)]
fn factor_block(columns: &mut Block) -> std::result::Result<(), (usize, f64)> {
    for j in 0..NB {
        let (done, rest) = columns.split_at_mut(j + 1);
        let column = &mut done[j];
        let pivot = column[j];
        // Written so that NaN fails too.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err((j, pivot));
        }
        let root = pivot.sqrt();
        let scale = 1.0 / root;
        for value in &mut column[j + 1..] {
            *value *= scale;
        }
        column[j] = root;
        for (other, k) in rest.iter_mut().zip(j + 1..) {
            let factor = -column[k];
            // From a whole vector on: what is above the diagonal is never read.
            let from = k / NR * NR;
            for (value, &x) in other[from..].iter_mut().zip(&column[from..]) {
                *value = factor.mul_add(x, *value);
            }
        }
    }
    // Above the diagonal there are leftovers.
    for (j, column) in columns.iter_mut().enumerate() {
        column[..j].fill(0.0);
    }
    Ok(())
}

/// The inverse, row by row, of a lower triangle given column by column.
#[inline(always)]
fn invert_block(columns: &Block) -> Block {
    let mut inverse = [[0.0; NB]; NB];
    for i in 0..NB {
        let (done, rest) = inverse.split_at_mut(i);
        let row = &mut rest[0];
        row[i] = 1.0;
        for (k, other) in done.iter().enumerate() {
            let factor = -columns[k][i];
            for (value, &x) in row.iter_mut().zip(other) {
                *value = factor.mul_add(x, *value);
            }
        }
        let scale = 1.0 / columns[i][i];
        for value in row.iter_mut() {
            *value *= scale;
        }
    }
    inverse
}

/// X ← L⁻¹X from block `start` on, above which X is zero; then X ← L⁻ᵀX if it goes `backward` too.
struct Solve<'a> {
    strips: &'a [Strip],
    /// Panels of eight right-hand sides, `[panel][k][8]`.
    x: &'a mut [f64],
    start: usize,
    backward: bool,
}

impl Work for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            strips,
            x,
            start,
            backward,
        } = self;
        let stride = strips.len() * NB * NR;
        let count = x.len() / stride.max(1);
        let mut rest = Aligned::zeros(count * NB * NR);
        for (j, strip) in strips.iter().enumerate().skip(start) {
            gather(&mut rest, x, stride, j);
            for from in (start * NB..j * NB).step_by(DEPTH) {
                let to = (j * NB).min(from + DEPTH);
                let known = Panels {
                    data: &x[from * NR..],
                    stride,
                    count,
                    depth: to - from,
                };
                subtract(kernel, strip.left(from, to), known, &mut rest);
            }
            apply(kernel, &strip.inverse[0], &rest, x, stride, j);
        }
        if !backward {
            return;
        }
        for (i, strip) in strips.iter().enumerate().rev() {
            gather(&mut rest, x, stride, i);
            for below in &strips[i + 1..] {
                let block = &below.down[i * NB * NB..][..NB * NB];
                let known = Panels {
                    data: &x[below.index * NB * NR..],
                    stride,
                    count,
                    depth: NB,
                };
                subtract(kernel, Panels::dense(block, NB), known, &mut rest);
            }
            apply(kernel, &strip.inverse[1], &rest, x, stride, i);
        }
    }
}

/// Copies the rows of a block out of all panels.
#[inline(always)]
fn gather(rest: &mut [f64], x: &[f64], stride: usize, block: usize) {
    for (rest, x) in rest.chunks_exact_mut(NB * NR).zip(x.chunks_exact(stride)) {
        rest.copy_from_slice(&x[block * NB * NR..][..NB * NR]);
    }
}

/// rest ← rest − coupling · known.
#[inline(always)]
fn subtract<K: Kernel>(
    kernel: K,
    coupling: Panels<'_, MR>,
    known: Panels<'_, NR>,
    rest: &mut [f64],
) {
    kernel.tiles(
        coupling,
        known,
        |_, _| true,
        |i, j, tile| {
            let out = &mut rest[j * NB * NR + i * MR * NR..][..MR * NR];
            for (out, sum) in out.iter_mut().zip(tile.as_flattened()) {
                *out -= sum;
            }
        },
    );
}

/// The rows of a block of all panels ← inverse · rest.
#[inline(always)]
fn apply<K: Kernel>(
    kernel: K,
    inverse: &[f64],
    rest: &[f64],
    x: &mut [f64],
    stride: usize,
    block: usize,
) {
    let (inverse, rest) = (Panels::dense(inverse, NB), Panels::dense(rest, NB));
    kernel.tiles(
        inverse,
        rest,
        |_, _| true,
        |i, j, tile| {
            let out = &mut x[j * stride + (block * NB + i * MR) * NR..][..MR * NR];
            out.copy_from_slice(tile.as_flattened());
        },
    );
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
                    .map(|k| {
                        let entry = |i: usize| factor.strips[i / NB].entry(i % NB, k);
                        entry(i) * entry(j)
                    })
                    .sum();
                let shift = if i == j { ridge } else { 0.0 };
                residual[(i, j)] = product - a[(i, j)] - shift;
            }
        }
        let error = residual.norm() / a.norm();
        assert!(error < 10.0 * f64::EPSILON, "LLᵀ is {error:e} from A + λI");
    }
}
