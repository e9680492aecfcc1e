//! Sums over rows: G = ZᵀZ (SYRK) and ZᵀY (GEMM), streamed.
//!
//! Rows are gathered into blocks of [`BLOCK`] rows, widened and packed once, some columns a task. When
//! [`Accumulator::capacity`] blocks are full they are folded into G: one task for each strip of rows of G, which takes the
//! blocks in order. A block's contribution is summed from zero and then added, so each entry of G is a two-level sum whose
//! shape depends on the row numbers only: not on the batches, not on the threads. (Sums by class are plain chains over the
//! rows.)
//!
//! Only the lower triangle is computed, tile by tile, and kept so; the matrix with its mirror image is written at the end.

use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::kernel::{Into, Isa, Kernel, Line, PANEL, Part, Work};
use super::work_queue::drain;
use crate::engine::{Matrix, Rows, Sums, SumsSpec, Targets};

/// Rows in a block: enough that adding a block's sums to G does not show, few enough that a panel stays near.
pub(super) const BLOCK: usize = 320;
/// Panels of G's rows that a strip owns.
pub(super) const HEIGHT: usize = 2;
/// Rows of G that a strip owns.
pub(super) const STRIP: usize = HEIGHT * PANEL;
/// Panels that a task packs, so that it reads a good part of a row in one go.
pub(super) const WIDE: usize = 8;
/// Packed rows are folded when they take about this many bytes.
const STAGING_BYTES: usize = 4 << 20;

/// Returns the number of blocks to pack before they are folded, for so many panels of packed columns.
pub(super) fn staged_blocks(panels: usize) -> usize {
    let block_bytes = BLOCK * panels * size_of::<Line>();
    (STAGING_BYTES / block_bytes.max(1)).clamp(1, 64)
}

/// Recycles the memory of packed blocks: getting pages back from the system costs more than packing the rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare(Arc<Mutex<Vec<Vec<Line>>>>);

impl Spare {
    /// Returns `count` lines with arbitrary contents.
    pub(super) fn take(&self, count: usize) -> Vec<Line> {
        let kept = self.0.lock().ok().and_then(|mut kept| kept.pop());
        let mut lines = kept.unwrap_or_default();
        lines.resize(count, Line::ZERO);
        lines
    }

    /// Takes lines back, up to as many as one accumulator needs.
    pub(super) fn give(&self, lines: Vec<Line>) {
        if let Ok(mut kept) = self.0.lock() {
            let held: usize = kept.iter().map(Vec::capacity).sum();
            if (held + lines.capacity()) * size_of::<Line>() <= STAGING_BYTES {
                kept.push(lines);
            }
        }
    }
}

/// Sums in progress on the processor.
#[derive(Debug)]
pub struct Accumulator {
    spec: SumsSpec,
    spare: Spare,
    rows: u64,
    /// Rows packed and not yet folded.
    pending: usize,
    /// Blocks that can be pending.
    capacity: usize,
    blocks: Vec<Block>,
    strips: Vec<Strip>,
}

/// Up to [`BLOCK`] rows, packed.
#[derive(Debug, Default)]
struct Block {
    rows: usize,
    /// Packed rows, `[panel][row]`.
    panels: Vec<Line>,
    /// Targets as `[panel][row]`, when they are values.
    values: Vec<Line>,
    /// Targets, when they are classes.
    classes: Vec<u32>,
}

/// Rows of G's lower triangle that are summed together: `[column panel][row]`, the columns up to and including the
/// diagonal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    /// The first row.
    pub(super) first: usize,
    /// Number of rows, at most [`STRIP`].
    pub(super) count: usize,
}

impl Band {
    pub(super) fn new(first: usize, order: usize) -> Self {
        let count = STRIP.min(order - first);
        Self { first, count }
    }

    /// Returns the row after the last.
    pub(super) fn end(self) -> usize {
        self.first + self.count
    }

    /// Returns the range of panels that hold the rows.
    pub(super) fn panels(self) -> std::ops::Range<usize> {
        self.first / PANEL..self.end().div_ceil(PANEL)
    }

    /// Returns the number of lines that the sums take.
    pub(super) fn lines(self) -> usize {
        self.panels().end * STRIP
    }

    /// Adds ZᵀZ of a block (SYRK), whose packed columns `panel` gives, summed from zero.
    #[inline(always)]
    pub(super) fn add<'p, K: Kernel>(
        self,
        kernel: K,
        panel: impl Fn(usize) -> &'p [Line],
        sums: &mut [Line],
    ) {
        let (own, end) = (self.panels(), self.end());
        for column in 0..own.end {
            let right = panel(column);
            let below = (own.start.max(column)..own.end).zip(own.start.max(column) - own.start..);
            for (row, p) in below {
                let part = Part {
                    lower: row == column,
                    ..Part::first(end - row * PANEL, end - column * PANEL)
                };
                let sums = &mut sums[column * STRIP + p * PANEL..][..PANEL];
                kernel.multiply(panel(row), right, part, Into::Add, sums, 1);
            }
        }
    }
}

/// Rows `first..first + STRIP` of G's lower triangle, and the same rows of ZᵀY.
#[derive(Debug)]
struct Strip {
    band: Band,
    /// Sums of the band.
    blocks: Vec<Line>,
    /// `[target][row panel]`: a row of features is added to its class in one go.
    cross: Vec<[Line; HEIGHT]>,
}

impl Strip {
    fn new(first: usize, spec: &SumsSpec) -> Self {
        let band = Band::new(first, spec.order());
        Self {
            band,
            blocks: vec![Line::ZERO; band.lines()],
            cross: vec![[Line::ZERO; HEIGHT]; spec.targets],
        }
    }

    /// Returns a row of the strip in a panel of columns.
    fn line(&self, row: usize, panel: usize) -> &[f64; PANEL] {
        &self.blocks[panel * STRIP + row].0
    }
}

impl Accumulator {
    pub(super) fn new(spec: SumsSpec, spare: Spare) -> Self {
        let order = spec.order();
        let capacity = staged_blocks(order.div_ceil(PANEL));
        let strips = (0..order)
            .step_by(STRIP)
            .map(|first| Strip::new(first, &spec))
            .collect();
        let blocks = (0..capacity).map(|_| Block::default()).collect();
        Self {
            spec,
            spare,
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
            let touched = first_pending / BLOCK..(first_pending + take).div_ceil(BLOCK);
            let spare = &self.spare;
            let pieces = self.blocks[touched.clone()].iter_mut().zip(touched);
            let pieces = pieces.flat_map(|(block, b)| {
                // The part of this batch that falls into block `b`.
                let from = (b * BLOCK).max(first_pending);
                let to = ((b + 1) * BLOCK).min(first_pending + take);
                let offset = start + from - first_pending;
                if block.panels.is_empty() {
                    block.panels = spare.take(BLOCK * spec.order().div_ceil(PANEL));
                }
                block.fill(spec, rows, targets, offset..offset + to - from)
            });
            drain(pieces, |piece| isa.run(piece));
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
        drain(self.strips.iter_mut().rev(), |strip| {
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
        for block in self.blocks {
            self.spare.give(block.panels);
        }
        let (order, targets) = (self.spec.order(), self.spec.targets);
        let mut gram = Matrix::zeros(order, order);
        let strips = &self.strips;
        gram.as_mut_slice()
            .par_chunks_mut((STRIP * order).max(1))
            .enumerate()
            .for_each(|(strip, rows)| write_rows(strips, strip, rows, order));
        let cross = Matrix::from_fn(order, targets, |i, t| {
            let row = i % STRIP;
            strips[i / STRIP].cross[t][row / PANEL].0[row % PANEL]
        });
        Sums {
            rows: self.rows,
            gram,
            cross,
        }
    }
}

/// Writes a strip's rows of G: its own part of the lower triangle, and the mirror image of the strips below.
fn write_rows(strips: &[Strip], strip: usize, rows: &mut [f64], order: usize) {
    let own = &strips[strip];
    let first = own.band.first;
    for (r, row) in rows.chunks_exact_mut(order).enumerate() {
        let lower = row[..=first + r].chunks_mut(PANEL).enumerate();
        for (panel, to) in lower {
            to.copy_from_slice(&own.line(r, panel)[..to.len()]);
        }
    }
    for below in &strips[strip..] {
        for (r, row) in rows.chunks_exact_mut(order).enumerate() {
            let i = first + r;
            let band = below.band;
            for j in (i + 1).max(band.first)..band.end() {
                row[j] = below.line(j - band.first, i / PANEL)[i % PANEL];
            }
        }
    }
}

impl Block {
    /// Appends rows `range` of the batch, and returns the pieces that remain to be packed.
    fn fill<'a>(
        &'a mut self,
        spec: SumsSpec,
        rows: Rows<'a>,
        targets: Targets<'_>,
        range: std::ops::Range<usize>,
    ) -> impl Iterator<Item = PackPiece<'a>> {
        let filled = self.rows;
        self.rows += range.len();
        match targets {
            Targets::None => {}
            Targets::Classes(classes) => {
                let classes = classes[range.clone()].iter();
                self.classes.extend(classes.map(|&class| class as u32));
            }
            Targets::Values(values) => {
                let panels = spec.targets.div_ceil(PANEL);
                self.values.resize(BLOCK * panels, Line::ZERO);
                for (k, i) in (filled..).zip(range.clone()) {
                    for panel in 0..panels {
                        let first = panel * PANEL;
                        let width = PANEL.min(spec.targets - first);
                        let line = &mut self.values[panel * BLOCK + k].0;
                        values.widen_part(i, first, &mut line[..width]);
                    }
                }
            }
        }
        let pieces = self.panels.chunks_mut(BLOCK * WIDE).enumerate();
        pieces.map(move |(piece, panels)| PackPiece {
            spec,
            rows,
            range: range.clone(),
            filled,
            first: piece * WIDE * PANEL,
            panels,
        })
    }
}

/// Widens some columns of some rows into panels.
struct PackPiece<'a> {
    spec: SumsSpec,
    rows: Rows<'a>,
    range: std::ops::Range<usize>,
    /// Rows that the block holds already.
    filled: usize,
    /// The first of the columns.
    first: usize,
    panels: &'a mut [Line],
}

impl Work for PackPiece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        const COLUMNS: usize = WIDE * PANEL;
        let features = self.spec.features;
        let count = features.saturating_sub(self.first).min(COLUMNS);
        let mut wide = [0.0; COLUMNS];
        if self.spec.bias && self.first + count == features && count < COLUMNS {
            wide[count] = 1.0;
        }
        let first = self.first.min(features);
        for (to, from) in (self.filled..).zip(self.range) {
            self.rows.widen_part(from, first, &mut wide[..count]);
            let panels = self.panels.chunks_exact_mut(BLOCK);
            for (panel, values) in panels.zip(wide.as_chunks::<PANEL>().0) {
                panel[to].0 = *values;
            }
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
        let (own, end) = (strip.band.panels(), strip.band.end());
        for block in blocks {
            let panel = |index: usize| &block.panels[index * BLOCK..][..block.rows];
            strip.band.add(kernel, panel, &mut strip.blocks);
            for (row, p) in own.clone().zip(0..) {
                let left = panel(row);
                for (line, &class) in left.iter().zip(&block.classes) {
                    let sums = &mut strip.cross[class as usize][p].0;
                    for (sum, value) in sums.iter_mut().zip(&line.0) {
                        *sum += value;
                    }
                }
                for (panel, values) in block.values.chunks_exact(BLOCK).enumerate() {
                    let first = panel * PANEL;
                    let part = Part::first(end - row * PANEL, targets - first);
                    let mut sums = [Line::ZERO; PANEL];
                    kernel.multiply(left, &values[..block.rows], part, Into::Set, &mut sums, 1);
                    for (t, cross) in strip.cross[first..].iter_mut().take(PANEL).enumerate() {
                        for (sum, line) in cross[p].0.iter_mut().zip(&sums) {
                            *sum += line.0[t];
                        }
                    }
                }
            }
        }
    }
}
