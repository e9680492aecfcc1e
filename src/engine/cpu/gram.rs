//! Sums over rows: G = ZᵀZ and ZᵀY, streamed.
//!
//! Rows are gathered into blocks of [`BLOCK`] rows, widened and packed once in both operand formats, some columns a
//! task. When [`Accumulator::capacity`] blocks are full they are folded into G: one task for each strip of rows of G,
//! which takes the blocks in order. A block's contribution is summed from zero and then added, so each entry of G is a
//! two-level sum whose shape depends on the row numbers only: not on the batches, not on the threads. (Sums by class are
//! plain chains over the rows.)
//!
//! Only the lower triangle is computed, tile by tile, and kept so; the matrix with its mirror image is written at the end.

use rayon::prelude::*;

use super::kernel::{Aligned, Isa, Kernel, MR, NR, Panels, Tile, Work};
use super::turns::in_turn;
use crate::engine::{Matrix, Rows, Sums, SumsSpec, Targets};

/// Rows in a block: packed, 6 columns and 8 fit the first-level cache together, and a strip of 48 the second. Not a power
/// of two, or the panels of a block would all compete for the same lines of the caches.
const BLOCK: usize = 384;
/// Rows of G that a task owns; a multiple of both tile sides.
const PIECE: usize = 48;
/// Columns that a task packs, so that it reads a good part of a row in one go.
const WIDE: usize = 2 * PIECE;
/// Rows that are packed at a time: what goes to one panel is written in one go.
const RUN: usize = 16;
/// Packed rows are folded when they take about this many bytes.
const STAGING_BYTES: usize = 7 << 20;

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
    left: Aligned,
    /// `[column / 8][row][8]`.
    right: Aligned,
    /// Targets as `[column / 8][row][8]`, when they are values.
    values: Aligned,
    /// Targets, when they are classes.
    classes: Vec<u32>,
}

/// Rows `first..first + PIECE` of G's lower triangle, and the same rows of ZᵀY.
#[derive(Debug)]
struct Strip {
    first: usize,
    /// Groups of six rows.
    groups: usize,
    /// `[column / 8][group]`: the columns up to and including the diagonal.
    tiles: Vec<Tile>,
    /// `[target][PIECE]`: a row of features is added to its class in one go.
    cross: Vec<f64>,
}

impl Strip {
    fn new(first: usize, spec: &SumsSpec) -> Self {
        let end = spec.order().min(first + PIECE);
        let groups = (end - first).div_ceil(MR);
        Self {
            first,
            groups,
            tiles: vec![[[0.0; NR]; MR]; groups * end.div_ceil(NR)],
            cross: vec![0.0; PIECE * spec.targets],
        }
    }

    /// Entry (i, j) of G, i in the strip and j no greater.
    fn entry(&self, i: usize, j: usize) -> f64 {
        let row = i - self.first;
        self.tiles[j / NR * self.groups + row / MR][row % MR][j % NR]
    }
}

impl Accumulator {
    pub(super) fn new(spec: SumsSpec) -> Self {
        let order = spec.order();
        let block_bytes = BLOCK * order.next_multiple_of(PIECE) * 2 * size_of::<f64>();
        let capacity = (STAGING_BYTES / block_bytes.max(1)).clamp(1, 64);
        let strips = (0..order)
            .step_by(PIECE)
            .map(|first| Strip::new(first, &spec))
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
            let pieces = self.blocks.iter_mut().enumerate().flat_map(|(b, block)| {
                // The part of this batch that falls into block `b`.
                let from = (b * BLOCK).max(first_pending);
                let to = ((b + 1) * BLOCK).min(first_pending + take);
                let offset = start + from.saturating_sub(first_pending);
                let range = offset..offset + to.saturating_sub(from);
                block.fill(spec, rows, targets, range)
            });
            in_turn(pieces, |piece| isa.run(piece));
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
        in_turn(self.strips.iter_mut().rev(), |strip| {
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
        let strips = &self.strips;
        gram.as_mut_slice()
            .par_chunks_mut((PIECE * order).max(1))
            .enumerate()
            .for_each(|(piece, rows)| write_rows(strips, piece, rows, order));
        let cross = Matrix::from_fn(order, targets, |i, t| {
            strips[i / PIECE].cross[t * PIECE + i % PIECE]
        });
        Sums {
            rows: self.rows,
            gram,
            cross,
        }
    }
}

/// Rows `piece * PIECE..` of G from the lower triangle: their own strip, and the mirror image of the ones below.
fn write_rows(strips: &[Strip], piece: usize, rows: &mut [f64], order: usize) {
    let first = piece * PIECE;
    for (r, row) in rows.chunks_exact_mut(order).enumerate() {
        let i = first + r;
        for (j, value) in row[..=i].iter_mut().enumerate() {
            *value = strips[piece].entry(i, j);
        }
    }
    for (below, strip) in strips.iter().enumerate().skip(piece) {
        for (r, row) in rows.chunks_exact_mut(order).enumerate() {
            let i = first + r;
            let start = (i + 1).max(below * PIECE);
            let end = order.min((below + 1) * PIECE);
            for j in start..end {
                row[j] = strip.entry(j, i);
            }
        }
    }
}

impl Block {
    /// Appends rows `range` of the batch: what is left to do for it is packing the pieces that are returned.
    fn fill<'a>(
        &'a mut self,
        spec: SumsSpec,
        rows: Rows<'a>,
        targets: Targets<'_>,
        range: std::ops::Range<usize>,
    ) -> impl Iterator<Item = PackPiece<'a>> {
        let filled = self.rows;
        self.rows += range.len();
        if !range.is_empty() {
            let padded = spec.order().next_multiple_of(PIECE);
            // What lies beyond the last column stays zero for good.
            self.left.grow(BLOCK * padded);
            self.right.grow(BLOCK * padded);
        }
        match targets {
            Targets::None => {}
            Targets::Classes(classes) => {
                let classes = classes[range.clone()].iter();
                self.classes.extend(classes.map(|&class| class as u32));
            }
            Targets::Values(values) => {
                let mut wide = vec![0.0; spec.targets.next_multiple_of(NR)];
                self.values.grow(BLOCK * wide.len());
                for (k, i) in (filled..).zip(range.clone()) {
                    values.widen_row(i, &mut wide);
                    let panels = self.values.chunks_exact_mut(BLOCK * NR);
                    for (panel, values) in panels.zip(wide.as_chunks::<NR>().0) {
                        panel[k * NR..][..NR].copy_from_slice(values);
                    }
                }
            }
        }
        let left = self.left.chunks_mut(BLOCK * WIDE);
        let right = self.right.chunks_mut(BLOCK * WIDE);
        let pieces = left.zip(right).enumerate();
        let pieces = pieces.take(if range.is_empty() { 0 } else { usize::MAX });
        pieces.map(move |(piece, (left, right))| PackPiece {
            spec,
            rows,
            range: range.clone(),
            filled,
            first: piece * WIDE,
            left,
            right,
        })
    }
}

/// Widens some columns of some rows into both operand formats.
struct PackPiece<'a> {
    spec: SumsSpec,
    rows: Rows<'a>,
    range: std::ops::Range<usize>,
    /// Rows that the block holds already.
    filled: usize,
    /// The first of the columns.
    first: usize,
    left: &'a mut [f64],
    right: &'a mut [f64],
}

impl Work for PackPiece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let features = self.spec.features;
        let mut wide = [[0.0; WIDE]; RUN];
        let count = features.saturating_sub(self.first).min(WIDE);
        if self.spec.bias && self.first + count == features && count < WIDE {
            for row in &mut wide {
                row[count] = 1.0;
            }
        }
        let first = self.first.min(features);
        let mut to = self.filled;
        for from in self.range.clone().step_by(RUN) {
            let rows = RUN.min(self.range.end - from);
            for (i, wide) in wide.iter_mut().enumerate().take(rows) {
                self.rows.widen_part(from + i, first, &mut wide[..count]);
            }
            scatter::<MR>(self.left, to, &wide[..rows]);
            scatter::<NR>(self.right, to, &wide[..rows]);
            to += rows;
        }
    }
}

/// Writes rows into `[column / WIDTH][row][WIDTH]` from `first` on, panel by panel.
#[inline(always)]
fn scatter<const WIDTH: usize>(packed: &mut [f64], first: usize, rows: &[[f64; WIDE]]) {
    for (panel, packed) in packed.chunks_exact_mut(BLOCK * WIDTH).enumerate() {
        let (to, _) = packed[first * WIDTH..].as_chunks_mut::<WIDTH>();
        for (to, row) in to.iter_mut().zip(rows) {
            to.copy_from_slice(&row[panel * WIDTH..][..WIDTH]);
        }
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
        let (first, groups) = (strip.first, strip.groups);
        for block in blocks {
            let depth = block.rows;
            let left = Panels {
                data: &block.left[first * BLOCK..],
                stride: BLOCK * MR,
                count: groups,
                depth,
            };
            let right = |data, columns: usize| Panels {
                data,
                stride: BLOCK * NR,
                count: columns.div_ceil(NR),
                depth,
            };
            // Not those wholly above the diagonal.
            let wanted = |i: usize, j: usize| j * NR < first + (i + 1) * MR;
            let tiles = &mut strip.tiles;
            let columns = right(&block.right, tiles.len() / groups * NR);
            kernel.tiles(left, columns, wanted, |i, j, tile| {
                let sums = tiles[j * groups + i].as_flattened_mut();
                for (sum, value) in sums.iter_mut().zip(tile.as_flattened()) {
                    *sum += value;
                }
            });
            if !block.classes.is_empty() {
                for i in 0..groups {
                    let (rows, _) = left.panel(i).as_chunks::<MR>();
                    for (row, &class) in rows.iter().zip(&block.classes) {
                        let out = &mut strip.cross[class as usize * PIECE + i * MR..][..MR];
                        for (out, value) in out.iter_mut().zip(row) {
                            *out += value;
                        }
                    }
                }
            } else if !block.values.is_empty() {
                let cross = &mut strip.cross;
                let columns = right(&block.values, targets);
                kernel.tiles(
                    left,
                    columns,
                    |_, _| true,
                    |i, j, tile| {
                        for (r, sums) in tile.iter().enumerate() {
                            for (t, sum) in (j * NR..targets).zip(sums) {
                                cross[t * PIECE + i * MR + r] += sum;
                            }
                        }
                    },
                );
            }
        }
    }
}
