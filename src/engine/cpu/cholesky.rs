//! Blocked Cholesky factor A + λI = LLᵀ (POTRF) and the triangular solves with it (TRSM).
//!
//! Left-looking over block columns of [`NB`]: each strip of as many rows takes what lies to the left off its block of the
//! column, and divides that by the diagonal block, by substitution: multiplying by the inverse would cost as many digits
//! as the block's condition has. L is never stored row by row. A strip keeps its rows as panels, which is what later steps
//! read, and works on them in place. Strips are the unit of parallelism; the one below the diagonal comes first and factors
//! its own diagonal block as well, so that the next column can begin at once.
//!
//! The order is rounded up to whole blocks, with ones on the diagonal beyond the end, which changes nothing.
//!
//! The solve does use inverses of the diagonal blocks, and leaves what that costs to the refinement step. Right-hand sides
//! are independent: a task takes some of them through all blocks, with no waiting for others.

use std::ops::Range;

use rayon::prelude::*;

use super::kernel::{Into, Isa, Kernel, Line, PANEL, Part, STEP, Work};
use super::work_queue::drain;
use crate::engine::Matrix;
use crate::error::{Error, Result};

/// Panels of a block.
const SIDE: usize = 2;
/// Rows and columns of a block.
pub(super) const NB: usize = SIDE * PANEL;
/// Steps over k at a time, so that operands stay in the caches; whole blocks.
const DEPTH: usize = 8 * NB;
/// Right-hand sides that a task takes at most.
const SHARE: usize = 3 * PANEL;

/// Selects the whole product of two panels.
const WHOLE: Part = Part {
    rows: 0..PANEL,
    columns: PANEL,
    lower: false,
};

/// L, with the inverses of its diagonal blocks.
#[derive(Debug)]
pub struct Factor {
    order: usize,
    strips: Vec<Strip>,
    columns: Vec<Column>,
    /// Smallest and largest pivot.
    pivots: (f64, f64),
}

/// Rows `index * NB..` of L, up to and including the diagonal block.
#[derive(Debug)]
struct Strip {
    index: usize,
    /// `[row panel][column]`: a line is a column of L in 24 rows.
    panels: Vec<Line>,
    /// Why the diagonal block could not be factored: the pivot within it, and its value.
    failed: Option<(usize, f64)>,
}

/// Columns `index * NB..` of L, for the solve.
#[derive(Debug)]
struct Column {
    /// Below the diagonal block, `[column panel][row]`: a line is a row of L in 24 columns.
    panels: Vec<Line>,
    /// The inverse of the diagonal block, `[row panel][column]`.
    inverse: Vec<Line>,
    /// Transpose of the inverse.
    transposed: Vec<Line>,
}

impl Factor {
    pub(super) fn new(isa: Isa, matrix: &Matrix, ridge: f64) -> Result<Self> {
        let n = matrix.rows();
        let system = System { matrix, ridge };
        let count = n.div_ceil(NB);
        let mut strips: Vec<Strip> = (0..count).map(Strip::new).collect();
        if let Some(strip) = strips.first_mut() {
            isa.run(Diagonal { system, strip });
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
            drain(below.iter_mut(), |strip| {
                isa.run(Advance {
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
        let columns = strips.par_iter().with_max_len(1);
        let columns = columns.map(|strip| {
            isa.run(Finish {
                strips: &strips[strip.index..],
            })
        });
        Ok(Self {
            order: n,
            columns: columns.collect(),
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
        // Any share gives the same bytes.
        let share = columns.div_ceil(rayon::current_num_threads());
        let share = share.next_multiple_of(STEP).clamp(STEP, SHARE);
        let starts: Vec<usize> = (0..columns).step_by(share).collect();
        let solved: Vec<Vec<Line>> = starts
            .into_par_iter()
            .with_max_len(1)
            .map(|start| {
                let count = share.min(columns - start);
                let mut x = vec![Line::ZERO; count.div_ceil(PANEL) * padded];
                for k in 0..n {
                    let values = &rhs.row(k)[start..start + count];
                    for (panel, values) in values.chunks(PANEL).enumerate() {
                        x[panel * padded + k].0[..values.len()].copy_from_slice(values);
                    }
                }
                isa.run(Solve {
                    factor: self,
                    x: &mut x,
                    columns: count,
                    start: 0,
                    backward: true,
                });
                x
            })
            .collect();
        let mut out = Matrix::zeros(n, columns);
        for k in 0..n {
            for (out, x) in out.row_mut(k).chunks_mut(share).zip(&solved) {
                for (panel, out) in out.chunks_mut(PANEL).enumerate() {
                    out.copy_from_slice(&x[panel * padded + k].0[..out.len()]);
                }
            }
        }
        out
    }

    /// Squared column norms of L⁻¹: a block's columns of the identity at a time, from that block on.
    pub(super) fn inverse_diagonal(&self, isa: Isa) -> Vec<f64> {
        let (n, padded) = (self.order, self.padded());
        let mut diagonal = vec![0.0; n];
        drain(diagonal.chunks_mut(NB).enumerate(), |(block, diagonal)| {
            let mut x = vec![Line::ZERO; SIDE * padded];
            for j in 0..diagonal.len() {
                x[j / PANEL * padded + block * NB + j].0[j % PANEL] = 1.0;
            }
            isa.run(Solve {
                factor: self,
                x: &mut x,
                columns: diagonal.len(),
                start: block,
                backward: false,
            });
            for (diagonal, x) in diagonal.chunks_mut(PANEL).zip(x.chunks_exact(padded)) {
                for line in x {
                    for (sum, x) in diagonal.iter_mut().zip(&line.0) {
                        *sum += x * x;
                    }
                }
            }
        });
        diagonal
    }
}

impl Strip {
    fn new(index: usize) -> Self {
        Self {
            index,
            panels: vec![Line::ZERO; SIDE * NB * (index + 1)],
            failed: None,
        }
    }

    /// Returns the number of columns stored.
    fn depth(&self) -> usize {
        (self.index + 1) * NB
    }

    /// Returns L at a row of the strip and a column of the matrix.
    fn entry(&self, row: usize, column: usize) -> f64 {
        self.panels[row / PANEL * self.depth() + column].0[row % PANEL]
    }

    /// Returns some columns of a row panel.
    fn panel(&self, index: usize, columns: Range<usize>) -> &[Line] {
        &self.panels[index * self.depth()..][columns]
    }
}

/// The matrix to factor: A + λI, reading A's lower triangle.
#[derive(Clone, Copy)]
struct System<'a> {
    matrix: &'a Matrix,
    ridge: f64,
}

impl System<'_> {
    /// Writes A + λI in the rows from `row` on, a panel of them, and the columns of a block, column by column.
    #[inline(always)]
    fn load(self, row: usize, block: usize, lines: &mut [Line]) {
        let (n, first) = (self.matrix.rows(), block * NB);
        let width = NB.min(n - first);
        for r in 0..PANEL {
            let i = row + r;
            if i < n {
                let values = &self.matrix.row(i)[first..first + width];
                for (line, value) in lines.iter_mut().zip(values) {
                    line.0[r] = *value;
                }
            }
            if let Some(line) = i.checked_sub(first).and_then(|c| lines.get_mut(c)) {
                line.0[r] = if i < n { line.0[r] + self.ridge } else { 1.0 };
            }
        }
    }
}

/// Computes one block of a column: subtracts L's part to the left from A, divides by the diagonal block (TRSM), and
/// factors the strip's own diagonal block if that comes next.
struct Advance<'a> {
    system: System<'a>,
    pivot: &'a Strip,
    strip: &'a mut Strip,
}

impl Work for Advance<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            system,
            pivot,
            strip,
        } = self;
        let (row, depth) = (strip.index * NB, strip.depth());
        let first = pivot.index * NB;
        for (p, panel) in strip.panels.chunks_exact_mut(depth).enumerate() {
            let (done, rest) = panel.split_at_mut(first);
            let rest = &mut rest[..NB];
            system.load(row + p * PANEL, pivot.index, rest);
            for from in (0..first).step_by(DEPTH) {
                let steps = from..first.min(from + DEPTH);
                for (c, rest) in rest.chunks_exact_mut(PANEL).enumerate() {
                    let (left, right) = (pivot.panel(c, steps.clone()), &done[steps.clone()]);
                    kernel.multiply(left, right, WHOLE, Into::Subtract, rest, 1);
                }
            }
            for c in 0..SIDE {
                let (solved, rest) = rest.split_at_mut(c * PANEL);
                let triangle = pivot.panel(c, first..first + (c + 1) * PANEL);
                divide(kernel, triangle, solved, &mut rest[..PANEL]);
            }
        }
        if strip.index == pivot.index + 1 {
            Diagonal { system, strip }.run(kernel);
        }
    }
}

/// Divides a panel of columns by the transpose of a triangle (TRSM), eight columns at a time; the part of the columns
/// before is a product. `solved` are the columns before the panel; `triangle` has their part too.
#[inline(always)]
fn divide<K: Kernel>(kernel: K, triangle: &[Line], solved: &[Line], columns: &mut [Line]) {
    let (before, triangle) = triangle.split_at(solved.len());
    if !solved.is_empty() {
        kernel.multiply(before, solved, WHOLE, Into::Subtract, columns, 1);
    }
    for first in (0..PANEL).step_by(STEP) {
        let (solved, rest) = columns.split_at_mut(first);
        if first > 0 {
            let part = Part {
                rows: first..first + STEP,
                ..WHOLE
            };
            let mut sums = [Line::ZERO; PANEL];
            kernel.multiply(&triangle[..first], solved, part, Into::Set, &mut sums, 1);
            for (x, sums) in rest.iter_mut().zip(&sums[first..first + STEP]) {
                for (x, sum) in x.0.iter_mut().zip(&sums.0) {
                    *x -= sum;
                }
            }
        }
        for c in 0..STEP {
            let factors = &triangle[first + c].0[first..];
            let scale = 1.0 / factors[c];
            let quotient = rest[c].0.map(|x| x * scale);
            rest[c].0 = quotient;
            for d in c + 1..STEP {
                for (x, q) in rest[d].0.iter_mut().zip(&quotient) {
                    *x = (-factors[d]).mul_add(*q, *x);
                }
            }
        }
    }
}

/// Factors a diagonal block, panel by panel.
struct Diagonal<'a> {
    system: System<'a>,
    strip: &'a mut Strip,
}

impl Work for Diagonal<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self { system, strip } = self;
        let (index, depth) = (strip.index, strip.depth());
        let first = index * NB;
        for p in 0..SIDE {
            // The rows above are done, the ones of this panel are to come.
            let (above, panel) = strip.panels.split_at_mut(p * depth);
            let (done, rest) = panel[..depth].split_at_mut(first);
            system.load(first + p * PANEL, index, rest);
            for c in 0..=p {
                let (solved, rest) = rest.split_at_mut(c * PANEL);
                let rest = &mut rest[..PANEL];
                for from in (0..first).step_by(DEPTH) {
                    let steps = from..first.min(from + DEPTH);
                    let right = &done[steps.clone()];
                    let left = match c < p {
                        true => &above[c * depth..][steps],
                        false => right,
                    };
                    kernel.multiply(left, right, WHOLE, Into::Subtract, rest, 1);
                }
                if c < p {
                    let triangle = &above[c * depth..][first..first + (c + 1) * PANEL];
                    divide(kernel, triangle, solved, rest);
                    continue;
                }
                kernel.multiply(solved, solved, WHOLE, Into::Subtract, rest, 1);
                if let Err((pivot, value)) = factor_triangle(rest) {
                    strip.failed = Some((p * PANEL + pivot, value));
                    return;
                }
            }
            // A's upper triangle was read too.
            rest[(p + 1) * PANEL..].fill(Line::ZERO);
        }
    }
}

/// Factors a triangle in place, column by column; an error is the pivot that is not positive, and its value.
#[inline(always)]
fn factor_triangle(columns: &mut [Line]) -> std::result::Result<(), (usize, f64)> {
    for j in 0..PANEL {
        let (done, rest) = columns.split_at_mut(j + 1);
        let column = &mut done[j].0;
        let pivot = column[j];
        // Written so that NaN fails too.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err((j, pivot));
        }
        let root = pivot.sqrt();
        let scale = 1.0 / root;
        for value in column.iter_mut() {
            *value *= scale;
        }
        column[j] = root;
        for (k, other) in (j + 1..PANEL).zip(rest) {
            let factor = -column[k];
            for (value, &x) in other.0.iter_mut().zip(&*column) {
                *value = factor.mul_add(x, *value);
            }
        }
    }
    // Above the diagonal there are leftovers.
    for (j, column) in columns.iter_mut().enumerate() {
        column.0[..j].fill(0.0);
    }
    Ok(())
}

/// Builds what the solve reads of a block column: the inverse of the diagonal block, and the blocks below it.
struct Finish<'a> {
    strips: &'a [Strip],
}

impl Work for Finish<'_> {
    type Output = Column;

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) -> Column {
        let (own, below) = self.strips.split_first().expect("a strip");
        let first = own.index * NB;
        let height = below.len() * NB;
        let mut panels = vec![Line::ZERO; SIDE * height];
        for (s, strip) in below.iter().enumerate() {
            for (c, p) in (0..SIDE).flat_map(|c| (0..SIDE).map(move |p| (c, p))) {
                let from = strip.panel(p, first + c * PANEL..first + (c + 1) * PANEL);
                let to = &mut panels[c * height + s * NB + p * PANEL..][..PANEL];
                transpose(from, to);
            }
        }
        let rows = invert(own);
        let mut inverse = vec![Line::ZERO; SIDE * NB];
        for (p, q) in (0..SIDE).flat_map(|p| (0..SIDE).map(move |q| (p, q))) {
            let from = &rows[q * NB + p * PANEL..][..PANEL];
            transpose(from, &mut inverse[p * NB + q * PANEL..][..PANEL]);
        }
        Column {
            panels,
            inverse,
            transposed: rows,
        }
    }
}

/// Transposes a block of [`PANEL`] rows and columns.
#[inline(always)]
fn transpose(from: &[Line], to: &mut [Line]) {
    for (i, from) in from[..PANEL].iter().enumerate() {
        for (to, &value) in to.iter_mut().zip(&from.0) {
            to.0[i] = value;
        }
    }
}

/// Returns the inverse of a strip's diagonal block, row by row: `[column panel][row]`.
#[inline(always)]
fn invert(strip: &Strip) -> Vec<Line> {
    let first = strip.index * NB;
    let mut inverse = vec![Line::ZERO; SIDE * NB];
    for (q, inverse) in inverse.chunks_exact_mut(NB).enumerate() {
        // Above the diagonal there is nothing.
        for i in q * PANEL..NB {
            let (done, rest) = inverse.split_at_mut(i);
            let row = &mut rest[0].0;
            if i / PANEL == q {
                row[i % PANEL] = 1.0;
            }
            for (k, other) in done.iter().enumerate().skip(q * PANEL) {
                let factor = -strip.entry(i, first + k);
                for (value, &x) in row.iter_mut().zip(&other.0) {
                    *value = factor.mul_add(x, *value);
                }
            }
            let scale = 1.0 / strip.entry(i, first + i);
            for value in row.iter_mut() {
                *value *= scale;
            }
        }
    }
    inverse
}

/// Computes X ← L⁻¹X from block `start` on, above which X is zero, then X ← L⁻ᵀX if `backward` is set.
struct Solve<'a> {
    factor: &'a Factor,
    /// Right-hand sides, `[panel][k]`.
    x: &'a mut [Line],
    /// Number of right-hand sides.
    columns: usize,
    start: usize,
    backward: bool,
}

impl Work for Solve<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Factor {
            strips, columns, ..
        } = self.factor;
        let mut sides = Sides {
            padded: self.factor.padded(),
            x: self.x,
            columns: self.columns,
            rest: vec![Line::ZERO; self.columns.div_ceil(PANEL) * NB],
        };
        for (j, strip) in strips.iter().enumerate().skip(self.start) {
            let known = self.start * NB..j * NB;
            let coupling = |p: usize, steps: Range<usize>| strip.panel(p, steps);
            sides.advance(kernel, j, known, coupling, &columns[j].inverse);
        }
        if !self.backward {
            return;
        }
        for (i, column) in columns.iter().enumerate().rev() {
            let (from, to) = ((i + 1) * NB, sides.padded);
            let coupling = |p: usize, steps: Range<usize>| {
                &column.panels[p * (to - from)..][steps.start - from..steps.end - from]
            };
            sides.advance(kernel, i, from..to, coupling, &column.transposed);
        }
    }
}

/// Right-hand sides being solved in place.
struct Sides<'a> {
    x: &'a mut [Line],
    padded: usize,
    columns: usize,
    /// A block of each panel.
    rest: Vec<Line>,
}

impl Sides<'_> {
    /// Computes block ← inverse · (block − coupling · known).
    #[inline(always)]
    fn advance<'a, K: Kernel>(
        &mut self,
        kernel: K,
        block: usize,
        known: Range<usize>,
        coupling: impl Fn(usize, Range<usize>) -> &'a [Line],
        inverse: &[Line],
    ) {
        let Self {
            x,
            padded,
            columns,
            rest,
        } = self;
        let place = block * NB..(block + 1) * NB;
        let part = |panel: usize| Part::first(PANEL, *columns - panel * PANEL);
        let pairs = || x.chunks_exact(*padded).enumerate();
        for ((_, x), rest) in pairs().zip(rest.chunks_exact_mut(NB)) {
            rest.copy_from_slice(&x[place.clone()]);
        }
        for from in known.clone().step_by(DEPTH) {
            let steps = from..known.end.min(from + DEPTH);
            for p in 0..SIDE {
                let left = coupling(p, steps.clone());
                for ((q, x), rest) in pairs().zip(rest.chunks_exact_mut(NB)) {
                    let rest = &mut rest[p * PANEL..][..PANEL];
                    kernel.multiply(left, &x[steps.clone()], part(q), Into::Subtract, rest, 1);
                }
            }
        }
        let inverse = inverse.chunks_exact(NB);
        for (p, inverse) in inverse.enumerate() {
            let panels = x.chunks_exact_mut(*padded).zip(rest.chunks_exact(NB));
            for (q, (x, rest)) in panels.enumerate() {
                let x = &mut x[place.start + p * PANEL..][..PANEL];
                kernel.multiply(inverse, rest, part(q), Into::Set, x, 1);
            }
        }
    }
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
