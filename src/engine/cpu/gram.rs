//! Sums over rows: G = ZᵀZ and ZᵀY, streamed.
//!
//! Rows are gathered into blocks of [`BLOCK`] rows, widened and packed once in both operand formats, some columns a
//! task. When [`Accumulator::capacity`] blocks are full they are folded into G: one task for each strip of rows of G,
//! which takes the blocks in order. A block's contribution is summed from zero and then added, so each entry of G is a
//! two-level sum whose shape depends on the row numbers only: not on the batches, not on the threads. (Sums by class are
//! plain chains over the rows.)
//!
//! Only the lower triangle is computed; the mirror image is written at the end.

use rayon::prelude::*;

use super::kernel::{Isa, Kernel, MR, NR, Work};
use crate::engine::{Matrix, Rows, Sums, SumsSpec, Targets};

/// Rows in a block: packed, 6 columns and 8 fit the first-level cache together, and a strip of 48 the second.
const BLOCK: usize = 256;
/// Columns that a task packs; a multiple of both tile sides.
const PIECE: usize = 48;
/// Packed rows are folded when they take about this many bytes.
const STAGING_BYTES: usize = 6 << 20;

/// Rows of G that a task owns: few enough that there are tasks for all threads, many enough that what they share is
/// read seldom. Divides [`PIECE`].
fn strip_height(order: usize) -> usize {
    if order <= 256 { PIECE / 2 } else { PIECE }
}

/// Sums in progress.
#[derive(Debug)]
pub struct Accumulator {
    spec: SumsSpec,
    rows: u64,
    /// Rows packed and not yet folded.
    pending: usize,
    /// Blocks that can be pending.
    capacity: usize,
    blocks: Vec<Block>,
    strips: Vec<Strip>,
}

/// Up to [`BLOCK`] rows in operand format.
#[derive(Debug, Default)]
struct Block {
    rows: usize,
    /// `[column / 6][row][6]`.
    left: Vec<f64>,
    /// `[column / 8][row][8]`.
    right: Vec<f64>,
    /// Targets as `[column / 8][row][8]`, when they are values.
    values: Vec<f64>,
    /// Targets, when they are classes.
    classes: Vec<u32>,
}

/// Rows `first..first + height` of G's lower triangle, and the same rows of ZᵀY.
#[derive(Debug)]
struct Strip {
    first: usize,
    height: usize,
    /// height × (first + height), row-major: the columns up to and including the diagonal.
    gram: Vec<f64>,
    /// `[target][height]`: a row of features is added to its class in one go.
    cross: Vec<f64>,
}

impl Strip {
    fn new(first: usize, height: usize, targets: usize) -> Self {
        Self {
            first,
            height,
            gram: vec![0.0; height * (first + height)],
            cross: vec![0.0; height * targets],
        }
    }

    fn width(&self) -> usize {
        self.first + self.height
    }
}

impl Accumulator {
    pub(super) fn new(spec: SumsSpec) -> Self {
        let order = spec.order();
        let block_bytes = BLOCK * order.next_multiple_of(PIECE) * 2 * size_of::<f64>();
        let capacity = (STAGING_BYTES / block_bytes.max(1)).clamp(1, 64);
        let height = strip_height(order);
        let strips = (0..order)
            .step_by(height)
            .map(|first| Strip::new(first, height, spec.targets))
            .collect();
        let blocks = (0..capacity).map(|_| Block::default()).collect();
        Self {
            spec,
            rows: 0,
            pending: 0,
            capacity,
            blocks,
            strips,
        }
    }

    pub(super) fn push(&mut self, isa: Isa, rows: Rows<'_>, targets: Targets<'_>) {
        let spec = self.spec;
        targets.check((rows.rows(), rows.cols()), &spec);
        let of_one_kind = match targets {
            Targets::None => true,
            Targets::Classes(_) => self.blocks.iter().all(|b| b.values.is_empty()),
            Targets::Values(_) => self.blocks.iter().all(|b| b.classes.is_empty()),
        };
        assert!(of_one_kind, "classes after values, or values after classes");

        let mut done = 0;
        while done < rows.rows() {
            let room = self.capacity * BLOCK - self.pending;
            let take = room.min(rows.rows() - done);
            let (start, first_pending) = (done, self.pending);
            self.blocks
                .par_iter_mut()
                .enumerate()
                .for_each(|(b, block)| {
                    // The part of this batch that falls into block `b`.
                    let from = (b * BLOCK).max(first_pending);
                    let to = ((b + 1) * BLOCK).min(first_pending + take);
                    if from < to {
                        let offset = start + (from - first_pending);
                        block.fill(spec, rows, targets, offset..offset + (to - from));
                    }
                });
            self.pending += take;
            done += take;
            if self.pending == self.capacity * BLOCK {
                self.fold(isa);
            }
        }
        self.rows += rows.rows() as u64;
    }

    fn fold(&mut self, isa: Isa) {
        let blocks = &self.blocks[..self.pending.div_ceil(BLOCK)];
        let targets = self.spec.targets;
        // The longest strips first, so that no thread is left with one at the end.
        self.strips
            .par_iter_mut()
            .rev()
            .with_max_len(1)
            .for_each(|strip| {
                isa.run(FoldStrip {
                    strip,
                    blocks,
                    targets,
                });
            });
        for block in &mut self.blocks {
            block.rows = 0;
            block.classes.clear();
        }
        self.pending = 0;
    }

    pub(super) fn finish(mut self, isa: Isa) -> Sums {
        self.fold(isa);
        let (order, targets) = (self.spec.order(), self.spec.targets);
        let mut gram = Matrix::zeros(order, order);
        let mut cross = Matrix::zeros(order, targets);
        for strip in &self.strips {
            for (r, values) in strip.gram.chunks_exact(strip.width()).enumerate() {
                let i = strip.first + r;
                if i < order {
                    gram.row_mut(i)[..=i].copy_from_slice(&values[..=i]);
                    for t in 0..targets {
                        cross[(i, t)] = strip.cross[t * strip.height + r];
                    }
                }
            }
        }
        mirror(&mut gram);
        Sums {
            rows: self.rows,
            gram,
            cross,
        }
    }
}

/// Copies the lower triangle of a square matrix to the upper one, tile by tile so that both stay in the cache.
fn mirror(matrix: &mut Matrix) {
    const SIDE: usize = 32;
    let n = matrix.rows();
    for top in (0..n).step_by(SIDE) {
        for left in (top..n).step_by(SIDE) {
            for i in top..n.min(top + SIDE) {
                for j in left.max(i + 1)..n.min(left + SIDE) {
                    matrix[(i, j)] = matrix[(j, i)];
                }
            }
        }
    }
}

impl Block {
    /// Appends rows `range` of the batch.
    fn fill(
        &mut self,
        spec: SumsSpec,
        rows: Rows<'_>,
        targets: Targets<'_>,
        range: std::ops::Range<usize>,
    ) {
        let padded = spec.order().next_multiple_of(PIECE);
        // What lies beyond the last column stays zero for good.
        self.left.resize(BLOCK * padded, 0.0);
        self.right.resize(BLOCK * padded, 0.0);
        let left = self.left.par_chunks_mut(BLOCK * PIECE);
        let right = self.right.par_chunks_mut(BLOCK * PIECE);
        let filled = self.rows;
        left.zip(right)
            .enumerate()
            .for_each(|(piece, (left, right))| {
                let first = piece * PIECE;
                let mut wide = [0.0; PIECE];
                let count = spec.features.saturating_sub(first).min(PIECE);
                if spec.bias && first + count == spec.features && count < PIECE {
                    wide[count] = 1.0;
                }
                for (k, i) in (filled..).zip(range.clone()) {
                    rows.widen_part(i, first.min(spec.features), &mut wide[..count]);
                    scatter::<MR>(left, k, &wide);
                    scatter::<NR>(right, k, &wide);
                }
            });
        match targets {
            Targets::None => {}
            Targets::Classes(classes) => {
                let classes = classes[range.clone()].iter();
                self.classes.extend(classes.map(|&class| class as u32));
            }
            Targets::Values(values) => {
                let mut wide = vec![0.0; spec.targets.next_multiple_of(NR)];
                self.values.resize(BLOCK * wide.len(), 0.0);
                for (k, i) in (filled..).zip(range.clone()) {
                    values.widen_row(i, &mut wide);
                    scatter::<NR>(&mut self.values, k, &wide);
                }
            }
        }
        self.rows += range.len();
    }
}

/// Writes one row into `[column / WIDTH][row][WIDTH]`.
fn scatter<const WIDTH: usize>(packed: &mut [f64], row: usize, wide: &[f64]) {
    let (from, _) = wide.as_chunks::<WIDTH>();
    let (to, _) = packed.as_chunks_mut::<WIDTH>();
    for (panel, values) in from.iter().enumerate() {
        to[panel * BLOCK + row] = *values;
    }
}

/// Adds all pending blocks to one strip.
struct FoldStrip<'a> {
    strip: &'a mut Strip,
    blocks: &'a [Block],
    targets: usize,
}

impl Work for FoldStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            strip,
            blocks,
            targets,
        } = self;
        let (height, width) = (strip.height, strip.width());
        for block in blocks {
            let depth = block.rows;
            let left = |row: usize| &block.left[row / MR * BLOCK * MR..][..depth * MR];
            for column in (0..width).step_by(NR) {
                let right = &block.right[column * BLOCK..][..depth * NR];
                for r in (0..height).step_by(MR) {
                    let row = strip.first + r;
                    if column >= row + MR {
                        continue; // wholly above the diagonal
                    }
                    let tile = kernel.tile(left(row), right);
                    for (i, sums) in tile.iter().enumerate() {
                        let out = &mut strip.gram[(r + i) * width + column..][..NR];
                        for (out, sum) in out.iter_mut().zip(sums) {
                            *out += sum;
                        }
                    }
                }
            }
            if !block.classes.is_empty() {
                for r in (0..height).step_by(MR) {
                    let (rows, _) = left(strip.first + r).as_chunks::<MR>();
                    for (row, &class) in rows.iter().zip(&block.classes) {
                        let out = &mut strip.cross[class as usize * height + r..][..MR];
                        for (out, value) in out.iter_mut().zip(row) {
                            *out += value;
                        }
                    }
                }
            } else if !block.values.is_empty() {
                for column in (0..targets).step_by(NR) {
                    let right = &block.values[column * BLOCK..][..depth * NR];
                    for r in (0..height).step_by(MR) {
                        let tile = kernel.tile(left(strip.first + r), right);
                        for (i, sums) in tile.iter().enumerate() {
                            for (j, sum) in sums.iter().enumerate().take(targets - column) {
                                strip.cross[(column + j) * height + r + i] += sum;
                            }
                        }
                    }
                }
            }
        }
    }
}
