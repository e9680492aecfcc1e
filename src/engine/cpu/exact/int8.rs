//! Exact sums on int8 units: integers in balanced digits of seven bits, G as a sum over planes of int8 products.
//!
//! With s digits of −64 to 63 (the last one to 64, where rounding carries into it) integers have b = 7s − 1 bits. Digits and
//! sums of two of them fit a byte, and G = Σ c_p PᵀP over s(s + 1)/2 planes P of such bytes ([`Digits`]): 10 at 27 bits.
//! Numeric targets are columns like the features, so that ZᵀY is a part of the same product, and so is a bias, after them.
//!
//! Rows are rounded as for f64 units, and their planes packed in tiles ([`tiles`](super::tiles)). When enough rows are
//! there, each plane's products are added up, a task for each plane and [`Strip`]. Sums go through three levels:
//!
//! 1. **i32**, for [`LIMIT`] rows: a product is at most 2^14;
//! 2. **i64**, where the planes come together in limbs of 28 bits;
//! 3. **i128**, for good.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::tiles::{DEPTH, Int8, LANES, Left, QUAD, SIDE, Square, Tile};
use super::{COLUMNS, Found, Rounding, Units};
use crate::engine::cpu::kernel::{Isa, Kernel, Work};
use crate::engine::cpu::work_queue::drain;
use crate::engine::exact::{Digits, ExactSpec, ExactSums};
use crate::engine::{Rows, Targets};
use crate::error::{Error, Result};

/// Rows in a block: enough that reading and writing the sums does not show, few enough that a panel stays near.
pub(super) const BLOCK: usize = 1024;
/// Tiles that a panel has in a block, and one more between panels: at a power of two all would fall into a few sets of the
/// caches when rows are packed.
const TILES: usize = BLOCK / DEPTH + 1;
/// Pairs of panels of G's rows that a strip owns.
const HEIGHT: usize = 4;
/// Rows of G that a strip owns.
#[cfg(test)]
pub(super) const STRIP: usize = HEIGHT * SIDE;
/// Rows whose products a sum of 32 bits takes: each is at most 2^14, and 2^16 of them leave a bit to spare.
pub(super) const LIMIT: usize = 1 << 16;
/// Rows whose integers a sum of 64 bits takes: each is below 2^41.
const VALUES: usize = 1 << 21;
/// Bits of a limb, and the limbs of what a plane counts: 4 digits of 7 bits.
const LIMB: u32 = 28;
const LIMBS: usize = 3;
/// Panels that a task packs.
const WIDE: usize = COLUMNS / LANES;
/// Digits that there are at most.
const DIGITS: usize = 6;

/// Sums of integers in digits of seven bits.
pub(super) struct Packed {
    unit: Int8,
    spec: ExactSpec,
    digits: Digits,
    units: Units,
    columns: Columns,
    /// Rows packed and not yet folded.
    pending: usize,
    /// Rows in sums of 32 bits, and in those of 64 bits over classes.
    rows: usize,
    rows_of_classes: usize,
    blocks: Vec<Block>,
    strips: Vec<Strip>,
}

/// What the columns of the product are: features, targets that are values, and a bias.
#[derive(Clone, Copy)]
struct Columns {
    features: usize,
    values: usize,
    bias: bool,
}

impl Columns {
    fn count(self) -> usize {
        self.features + self.values + usize::from(self.bias)
    }

    /// Returns the number of panels, which come in pairs.
    fn panels(self) -> usize {
        2 * self.count().div_ceil(SIDE)
    }

    /// Returns the row of G that a column is; `None` for targets.
    fn order(self, column: usize) -> Option<usize> {
        match column {
            _ if column < self.features => Some(column),
            _ if column < self.features + self.values => None,
            _ => Some(self.features),
        }
    }
}

/// Up to [`BLOCK`] rows, packed.
#[derive(Default)]
struct Block {
    rows: usize,
    /// `[task][plane][panel of the task][tile]`.
    tiles: Vec<Tile>,
    /// Targets, when they are classes.
    classes: Vec<u32>,
}

/// Rows of the product's lower triangle that are summed together, and the same columns of the sums over classes.
struct Strip {
    /// The first pair of panels, and how many of them.
    first: usize,
    pairs: usize,
    /// `[plane][square]`.
    near: Vec<Vec<Square>>,
    /// `[square][row][column]`.
    wide: Vec<i128>,
    /// Sums over classes, `[class][panel]`.
    classes: Vec<[i64; LANES]>,
    /// Those, for good.
    wide_classes: Vec<i128>,
}

impl Strip {
    fn new(first: usize, columns: Columns, spec: &ExactSpec, digits: Digits) -> Self {
        let pairs = HEIGHT.min(columns.panels() / 2 - first);
        let squares = base(first, pairs);
        let classes = if spec.classes { spec.sums.targets } else { 0 };
        let lines = classes * 2 * pairs;
        Self {
            first,
            pairs,
            near: vec![vec![Square::ZERO; squares]; digits.plane_count()],
            wide: vec![0; squares * SIDE * SIDE],
            classes: vec![[0; LANES]; lines],
            wide_classes: vec![0; lines * LANES],
        }
    }

    /// Returns a sum of the product's lower triangle; the row is one of the strip's.
    fn wide(&self, row: usize, column: usize) -> i128 {
        let square = base(self.first, row / SIDE - self.first) + column / SIDE;
        self.wide[(square * SIDE + row % SIDE) * SIDE + column % SIDE]
    }
}

/// Returns how many squares a strip has before those of its pair `own`: each has those up to the diagonal.
fn base(first: usize, own: usize) -> usize {
    own * (first + 1) + own * own.saturating_sub(1) / 2
}

impl Packed {
    pub(super) fn new(unit: Int8, spec: &ExactSpec) -> Self {
        let digits = Digits::of_bytes(spec.grid.bits());
        let columns = Columns {
            features: spec.sums.features,
            values: spec.values(),
            bias: spec.sums.bias,
        };
        let exponents = [spec.grid.features(), spec.grid.targets()].concat();
        // As many rows as take the room of the sums themselves: both are read from memory once they are large.
        let blocks = (2 * columns.count()).div_ceil(BLOCK).clamp(1, 4);
        let strips = (0..columns.panels() / 2).step_by(HEIGHT);
        let strips = strips.map(|first| Strip::new(first, columns, spec, digits));
        Self {
            unit,
            spec: spec.clone(),
            digits,
            units: Units::new(&exponents),
            columns,
            pending: 0,
            rows: 0,
            rows_of_classes: 0,
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            strips: strips.collect(),
        }
    }

    /// Names the units.
    pub(super) fn way(&self) -> &'static str {
        self.unit.name()
    }

    /// Adds rows but for those with a value beyond the digits, which it returns.
    pub(super) fn push(
        &mut self,
        isa: Isa,
        rows: Rows<'_>,
        targets: Targets<'_>,
        found: &Found,
    ) -> Vec<usize> {
        let flags: Vec<AtomicBool> = (0..rows.rows()).map(|_| AtomicBool::new(false)).collect();
        let mut far = Vec::new();
        let mut done = 0;
        while done < rows.rows() {
            let room = self.blocks.len() * BLOCK - self.pending;
            let take = room.min(rows.rows() - done);
            let (start, pending) = (done, self.pending);
            let touched = pending / BLOCK..(pending + take).div_ceil(BLOCK);
            let mut pieces = Vec::new();
            for (b, block) in touched.clone().zip(&mut self.blocks[touched]) {
                // The part of this batch that falls into block `b`.
                let from = (b * BLOCK).max(pending);
                let to = ((b + 1) * BLOCK).min(pending + take);
                let range = start + from - pending..start + to - pending;
                let filled = block.rows;
                block.rows += range.len();
                if let Targets::Classes(classes) = targets {
                    let classes = classes[range.clone()].iter();
                    block.classes.extend(classes.map(|&class| class as u32));
                }
                let planes = self.digits.plane_count();
                let tiles = planes * self.columns.panels() * TILES;
                block.tiles.resize(tiles, Tile::ZERO);
                let tasks = block.tiles.chunks_mut(planes * WIDE * TILES);
                pieces.extend(tasks.enumerate().map(|(task, tiles)| PackPiece {
                    spec: &self.spec,
                    digits: self.digits,
                    units: &self.units,
                    columns: self.columns,
                    batch: (rows, targets),
                    range: range.clone(),
                    filled,
                    first: task * COLUMNS,
                    tiles,
                    flags: &flags,
                    found,
                }));
            }
            drain(pieces.into_iter(), |piece| isa.run(piece));
            for row in start..start + take {
                if flags[row].load(Relaxed) {
                    let at = pending + row - start;
                    self.blocks[at / BLOCK].clear(at % BLOCK);
                    far.push(row);
                }
            }
            self.pending += take;
            done += take;
            if self.pending == self.blocks.len() * BLOCK {
                self.fold(isa);
            }
        }
        far
    }

    /// Adds the products of all pending rows to the sums.
    fn fold(&mut self, isa: Isa) {
        if self.rows + self.pending > LIMIT {
            self.empty(isa);
        }
        if self.rows_of_classes + self.pending > VALUES {
            self.carry();
        }
        self.rows += self.pending;
        self.rows_of_classes += self.pending;
        for block in &mut self.blocks {
            block.complete();
        }
        let mut tasks = Vec::new();
        for strip in &mut self.strips {
            let pairs = strip.first..strip.first + strip.pairs;
            let sums = strip.near.iter_mut().map(|all| Sums::Products(all));
            let classes = Some(&mut strip.classes).filter(|sums| !sums.is_empty());
            let sums = sums.chain(classes.map(|all| Sums::Classes(all)));
            tasks.extend(sums.enumerate().map(|(plane, sums)| Task {
                plane,
                pairs: pairs.clone(),
                sums,
            }));
        }
        // A plane after the other, so that it stays near; of each the longest strips first.
        tasks.sort_by_key(|task| (task.plane, std::cmp::Reverse(task.pairs.start)));
        let blocks = &self.blocks[..self.pending.div_ceil(BLOCK)];
        let (unit, digits, panels) = (self.unit, self.digits, self.columns.panels());
        drain(tasks.into_iter(), |task| {
            let Task { plane, pairs, sums } = task;
            let panel = |block: &Block, plane: usize, panel: usize| {
                let start = place(panel, plane, digits.plane_count(), panels);
                start..start + block.rows.div_ceil(DEPTH)
            };
            match sums {
                Sums::Products(squares) => {
                    let mut products = unit.start();
                    for block in blocks {
                        let pair = |i: usize| {
                            [2 * i, 2 * i + 1].map(|p| &block.tiles[panel(block, plane, p)])
                        };
                        let left = pairs.clone().map(|i| products.left(pair(i)));
                        let left: Vec<Left<'_>> = left.collect();
                        for column in 0..pairs.end {
                            let right = pair(column);
                            let above = column.saturating_sub(pairs.start);
                            for (own, left) in left.iter().enumerate().skip(above) {
                                let square = &mut squares[base(pairs.start, own) + column];
                                products.add(left, right, square);
                            }
                        }
                    }
                }
                Sums::Classes(sums) => {
                    let own = 2 * pairs.start..2 * pairs.end;
                    for block in blocks {
                        for (at, p) in own.clone().enumerate() {
                            let digits =
                                (0..digits.count).map(|a| &block.tiles[panel(block, a, p)]);
                            isa.run(AddClasses {
                                digits: &digits.collect::<Vec<_>>(),
                                classes: &block.classes,
                                sums: &mut sums[at..],
                                width: own.len(),
                            });
                        }
                    }
                }
            }
        });
        for block in &mut self.blocks {
            block.rows = 0;
            block.classes.clear();
        }
        self.pending = 0;
    }

    /// Adds sums of 32 bits to those of 128, through 64 bits.
    fn empty(&mut self, isa: Isa) {
        let limbs: Vec<[i64; LIMBS]> = self
            .digits
            .planes()
            .map(|plane| limbs(self.digits.gram_weight(plane)))
            .collect();
        drain(self.strips.iter_mut(), |strip| {
            isa.run(Emptying {
                strip,
                limbs: &limbs,
            });
        });
        self.rows = 0;
    }

    /// Adds sums over classes of 64 bits to those of 128.
    fn carry(&mut self) {
        for strip in &mut self.strips {
            let sums = strip.classes.as_flattened_mut();
            for (wide, sum) in strip.wide_classes.iter_mut().zip(sums) {
                *wide += i128::from(std::mem::take(sum));
            }
        }
        self.rows_of_classes = 0;
    }

    /// Adds everything to `sums`.
    pub(super) fn finish(&mut self, isa: Isa, sums: &mut ExactSums) -> Result<()> {
        self.fold(isa);
        self.empty(isa);
        self.carry();
        let (columns, targets) = (self.columns, self.spec.sums.targets);
        let add = |sum: &mut i128, value: i128| {
            *sum = sum.checked_add(value).ok_or(Error::Overflow)?;
            Ok::<(), Error>(())
        };
        for i in 0..columns.count() {
            let strip = &self.strips[i / SIDE / HEIGHT];
            let width = 2 * strip.pairs;
            for j in 0..=i {
                let value = strip.wide(i, j);
                match (columns.order(i), columns.order(j)) {
                    (Some(row), Some(column)) => {
                        add(&mut sums.gram[row * (row + 1) / 2 + column], value)?;
                    }
                    (Some(row), None) => {
                        add(&mut sums.cross[row * targets + j - columns.features], value)?;
                    }
                    (None, Some(row)) => {
                        add(&mut sums.cross[row * targets + i - columns.features], value)?;
                    }
                    (None, None) => {}
                }
            }
            if let (true, Some(row)) = (self.spec.classes, columns.order(i)) {
                for class in 0..targets {
                    let line = class * width + i / LANES - 2 * strip.first;
                    let value = strip.wide_classes[line * LANES + i % LANES];
                    add(&mut sums.cross[row * targets + class], value)?;
                }
            }
        }
        Ok(())
    }
}

/// What remains to be done for pending rows: one kind of a strip's sums.
struct Task<'a> {
    /// The plane; after all of them come the sums over classes.
    plane: usize,
    /// The strip's pairs of panels.
    pairs: std::ops::Range<usize>,
    sums: Sums<'a>,
}

enum Sums<'a> {
    Products(&'a mut [Square]),
    Classes(&'a mut [[i64; LANES]]),
}

/// Returns where a panel of a plane begins in a block.
fn place(panel: usize, plane: usize, planes: usize, panels: usize) -> usize {
    let first = panel / WIDE * WIDE;
    let width = WIDE.min(panels - first);
    (first * planes + plane * width + panel - first) * TILES
}

/// Returns a weight as limbs, Σ w_g 2^(28g) with |w_g| ≤ 2^27.
fn limbs(mut weight: i128) -> [i64; LIMBS] {
    std::array::from_fn(|limb| {
        let half = 1 << (LIMB - 1);
        let low = ((weight + half) & ((1 << LIMB) - 1)) - half;
        weight = (weight - low) >> LIMB;
        debug_assert!(limb + 1 < LIMBS || weight == 0, "three limbs are enough");
        low as i64
    })
}

impl Block {
    /// Turns a row into zeros, which add nothing.
    fn clear(&mut self, row: usize) {
        let quad = row / QUAD;
        for panel in self.tiles.chunks_exact_mut(TILES) {
            for bytes in &mut panel[row / DEPTH].0[quad % (DEPTH / QUAD)] {
                *bytes &= !(0xff << (8 * (row % QUAD)));
            }
        }
    }

    /// Fills the last tile up with zeros.
    fn complete(&mut self) {
        let quads = self.rows.div_ceil(QUAD) % (DEPTH / QUAD);
        if quads > 0 {
            for panel in self.tiles.chunks_exact_mut(TILES) {
                panel[self.rows / DEPTH].0[quads..].fill([0; LANES]);
            }
        }
    }
}

/// Rounds some columns of some rows to the grid, and packs their planes.
struct PackPiece<'a> {
    spec: &'a ExactSpec,
    digits: Digits,
    units: &'a Units,
    columns: Columns,
    batch: (Rows<'a>, Targets<'a>),
    range: std::ops::Range<usize>,
    /// Rows that the block holds already.
    filled: usize,
    /// The first of the columns.
    first: usize,
    /// `[plane][panel][tile]`.
    tiles: &'a mut [Tile],
    flags: &'a [AtomicBool],
    found: &'a Found,
}

impl Work for PackPiece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let Columns {
            features, values, ..
        } = self.columns;
        let (rows, targets) = self.batch;
        let (first, end) = (self.first, self.first + COLUMNS);
        let of_features = first.min(features)..end.min(features);
        let of_values = first.max(features)..end.min(features + values);
        let mut z = [0.0; COLUMNS];
        let bias = features + values;
        if self.columns.bias && (first..end).contains(&bias) {
            z[bias - first] = 1.0;
        }
        let mut rounding = Rounding::new(self.digits, Some(self.found), self.spec);
        let mut quad = Quad::new(self.digits);
        let mut left = self.range.clone();
        while let Some(row) = left.next() {
            let at = self.filled + row - self.range.start;
            rows.widen_part(row, of_features.start, &mut z[..of_features.len()]);
            if let (false, Targets::Values(wanted)) = (of_values.is_empty(), targets) {
                let z = &mut z[of_values.start - first..of_values.end - first];
                wanted.widen_part(row, of_values.start - features, z);
            }
            if rounding.round(&z, self.units, first) {
                self.flags[row].store(true, Relaxed);
                quad.set(at % QUAD, &[0.0; COLUMNS]);
            } else {
                quad.set(at % QUAD, &rounding.digits[0]);
            }
            if at % QUAD == QUAD - 1 || left.is_empty() {
                let begun = (at % QUAD).min(row - self.range.start);
                quad.write(at / QUAD, at % QUAD - begun..at % QUAD + 1, self.tiles);
            }
        }
        let counted = (features + values).saturating_sub(first).min(COLUMNS);
        rounding.tell(first, counted);
    }
}

/// Four rows of integers on their way to digits. To each integer 64 is added in every digit, so that digits have no sign.
struct Quad {
    /// Number of digits.
    count: usize,
    offset: i64,
    /// The digits of each plane; for one that is alone, [`DIGITS`] as the other.
    planes: Vec<(usize, usize)>,
    /// The digits below 2^28, and the others.
    low: [[u32; COLUMNS]; QUAD],
    high: [[u32; COLUMNS]; QUAD],
}

impl Quad {
    fn new(digits: Digits) -> Self {
        let other = |(a, b)| (a, if a == b { DIGITS } else { b });
        Self {
            count: digits.count,
            offset: (0..digits.count).map(|a| 64 << (7 * a)).sum(),
            planes: digits.planes().map(other).collect(),
            low: [[0; COLUMNS]; QUAD],
            high: [[0; COLUMNS]; QUAD],
        }
    }

    /// Takes a row of integers.
    #[inline(always)]
    fn set(&mut self, row: usize, integers: &[f64; COLUMNS]) {
        /// In the binade of this, neighbours are 1 apart, and so are their bits.
        const ONES: f64 = 1.5 * (1_u64 << 52) as f64;
        let shift = self.offset.wrapping_sub(ONES.to_bits().cast_signed());
        let raised = |q: f64| (q + ONES).to_bits().cast_signed().wrapping_add(shift);
        for (low, &q) in self.low[row].iter_mut().zip(integers) {
            *low = raised(q) as u32;
        }
        if self.count > 4 {
            for (high, &q) in self.high[row].iter_mut().zip(integers) {
                *high = (raised(q) >> LIMB) as u32;
            }
        }
    }

    /// Writes rows of a quad to every plane of every panel. Rows before them stay, and those after them become zeros.
    #[inline(always)]
    fn write(&self, quad: usize, rows: std::ops::Range<usize>, tiles: &mut [Tile]) {
        let before = |row: usize| ((1_u64 << (8 * row)) - 1) as u32;
        let (keep, take) = (before(rows.start), before(rows.end) & !before(rows.start));
        let width = tiles.len() / (self.planes.len() * TILES);
        for panel in 0..width {
            let of = |rows: &[[u32; COLUMNS]; QUAD]| -> [[u32; LANES]; QUAD] {
                std::array::from_fn(|r| {
                    let lanes = rows[r][panel * LANES..].first_chunk();
                    *lanes.expect("whole panels")
                })
            };
            let (low, high) = (of(&self.low), of(&self.high));
            // In every byte 64 too many; as if of a plane with two digits the other were 0.
            let mut bytes = [[0x4040_4040_u32; LANES]; DIGITS + 1];
            for (a, bytes) in bytes[..self.count].iter_mut().enumerate() {
                let (rows, shift) = if a < 4 {
                    (&low, 7 * a)
                } else {
                    (&high, 7 * (a - 4))
                };
                // The last digit is 0 to 128.
                let mask = if a + 1 == self.count { 0xff } else { 0x7f };
                for (lane, bytes) in bytes.iter_mut().enumerate() {
                    let byte = |r: usize| (rows[r][lane] >> shift & mask) << (8 * r);
                    *bytes = byte(0) | byte(1) | byte(2) | byte(3);
                }
            }
            let mut first = panel * TILES + quad / (DEPTH / QUAD);
            for &(a, b) in &self.planes {
                let out = &mut tiles[first].0[quad % (DEPTH / QUAD)];
                first += width * TILES;
                // No sum of two bytes carries.
                let signed: [u32; LANES] =
                    std::array::from_fn(|lane| (bytes[a][lane] + bytes[b][lane]) ^ 0x8080_8080);
                if rows.len() == QUAD {
                    *out = signed;
                    continue;
                }
                for (out, signed) in out.iter_mut().zip(signed) {
                    *out = *out & keep | signed & take;
                }
            }
        }
    }
}

/// Adds a block's integers of a panel to their classes.
struct AddClasses<'a> {
    digits: &'a [&'a [Tile]],
    classes: &'a [u32],
    /// Every `width`th line is the panel's.
    sums: &'a mut [[i64; LANES]],
    width: usize,
}

impl Work for AddClasses<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        for (quad, classes) in self.classes.chunks(QUAD).enumerate() {
            // The digits below 2^28 of each row, and the others.
            let mut parts = [[[0_i32; LANES]; QUAD]; 2];
            for (a, digit) in self.digits.iter().enumerate() {
                let bytes = digit[quad / (DEPTH / QUAD)].0[quad % (DEPTH / QUAD)];
                for (row, part) in parts[a / 4].iter_mut().enumerate() {
                    for (part, &bytes) in part.iter_mut().zip(&bytes) {
                        let byte = (bytes << (24 - 8 * row)).cast_signed() >> 24;
                        *part += byte << (7 * (a % 4));
                    }
                }
            }
            let [low, high] = &parts;
            for ((&class, low), high) in classes.iter().zip(low).zip(high) {
                let sums = &mut self.sums[class as usize * self.width];
                for ((sum, &low), &high) in sums.iter_mut().zip(low).zip(high) {
                    *sum += i64::from(low) + (i64::from(high) << LIMB);
                }
            }
        }
    }
}

/// Adds a strip's sums of 32 bits to those of 128.
struct Emptying<'a> {
    strip: &'a mut Strip,
    /// What each plane counts.
    limbs: &'a [[i64; LIMBS]],
}

impl Work for Emptying<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let Strip { near, wide, .. } = self.strip;
        for (line, wide) in wide.as_chunks_mut::<SIDE>().0.iter_mut().enumerate() {
            let mut sums = [[0_i64; SIDE]; LIMBS];
            for (squares, limbs) in near.iter_mut().zip(self.limbs) {
                let near = &mut squares[line / SIDE].0[line % SIDE];
                for (sums, &limb) in sums.iter_mut().zip(limbs) {
                    for (sum, &near) in sums.iter_mut().zip(near.iter()) {
                        *sum += i64::from(near) * limb;
                    }
                }
                *near = [0; SIDE];
            }
            for (j, wide) in wide.iter_mut().enumerate() {
                let limb = |g: usize| i128::from(sums[g][j]) << (LIMB * g as u32);
                *wide += limb(0) + limb(1) + limb(2);
            }
        }
    }
}

const _: () = assert!(LIMIT << 14 < 1 << 31 && (VALUES as i64) << 41 > 0);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::SumsSpec;
    use crate::engine::exact::{BITS, Grid};

    /// The widest integers, and digits at their ends, −64 and 63.
    fn integers(bits: u32) -> [i64; COLUMNS] {
        let top = (1_i64 << bits) - 1;
        let ends = |digit: i64| (1..Digits::of_bytes(bits).count).fold(0, |q, _| (q << 7) + digit);
        let edges = [
            0,
            1,
            63,
            64,
            65,
            127,
            128,
            top,
            top - 1,
            top / 3,
            ends(63),
            ends(64),
        ];
        std::array::from_fn(|i| {
            let value = edges[i / 2 % edges.len()] - (i as i64 / 24).min(top / 2);
            if i % 2 == 0 { value } else { -value }
        })
    }

    #[test]
    fn quads_have_the_digits_and_their_sums() {
        for bits in BITS {
            let digits = Digits::of_bytes(bits);
            let q = integers(bits);
            let mut tiles = vec![Tile([[!0; LANES]; 16]); digits.plane_count() * WIDE * TILES];
            let mut quad = Quad::new(digits);
            for row in [1, 2] {
                let sign = 2 * row as i64 - 3;
                quad.set(row, &q.map(|q| (sign * q) as f64));
            }
            quad.write(21, 1..3, &mut tiles);
            let byte = |plane: usize, row: usize, column: usize| {
                let tile = &tiles[(plane * WIDE + column / LANES) * TILES + 1];
                tile.0[5][column % LANES].to_le_bytes()[row].cast_signed()
            };
            let planes: Vec<(usize, usize)> = digits.planes().collect();
            for column in 0..COLUMNS {
                let bytes = |row: usize| -> Vec<i128> {
                    let planes = 0..planes.len();
                    planes.map(|p| byte(p, row, column).into()).collect()
                };
                assert!(bytes(0).iter().all(|&b| b == -1), "a row before is kept");
                assert!(bytes(3).iter().all(|&b| b == 0), "a row after is none");
                for (row, q) in [(1, -q[column]), (2, q[column])] {
                    let found = bytes(row);
                    let mut sum = 0;
                    let mut square = 0;
                    for ((&(a, b), &byte), p) in planes.iter().zip(&found).zip(0..) {
                        if a == b {
                            assert!((-64..=64).contains(&byte), "{byte}");
                            sum += byte * digits.weight(a);
                        } else {
                            assert_eq!(byte, found[a] + found[b], "plane {p}");
                        }
                        square += digits.gram_weight((a, b)) * byte * byte;
                    }
                    assert_eq!(sum, i128::from(q), "{bits} bits");
                    assert_eq!(square, i128::from(q).pow(2), "{bits} bits");
                }
            }
        }
    }

    #[test]
    fn limbs_make_up_the_weight() {
        for bits in BITS {
            let digits = Digits::of_bytes(bits);
            for plane in digits.planes() {
                let limbs = limbs(digits.gram_weight(plane));
                let parts = limbs.iter().zip(0..).map(|(&limb, g)| {
                    assert!(limb.abs() <= 1 << (LIMB - 1));
                    i128::from(limb) << (LIMB * g)
                });
                assert_eq!(parts.sum::<i128>(), digits.gram_weight(plane), "{bits}");
            }
        }
    }

    #[test]
    fn sums_over_classes_are_carried_in_time() {
        let spec = ExactSpec {
            sums: SumsSpec {
                features: 1,
                bias: false,
                targets: 1,
            },
            classes: true,
            grid: Arc::new(Grid::new(41, vec![0], vec![]).unwrap()),
            setters: false,
        };
        let unit = Int8::all()[0];
        let mut packed = Packed::new(unit, &spec);
        let rows = [-2.0_f64.powi(40); 5];
        for round in 1..=3 {
            let z = Rows::new(5, 1, rows.as_slice());
            packed.push(Isa::detect(), z, Targets::Classes(&[0; 5]), &Found::new(0));
            packed.rows_of_classes = VALUES - 4;
            packed.fold(Isa::detect());
            let strip = &packed.strips[0];
            assert_eq!(packed.rows_of_classes, 5);
            assert_eq!(strip.classes[0][0], -5 << 40);
            assert_eq!(strip.wide_classes[0], (-5 * (round - 1)) << 40);
        }
    }
}
