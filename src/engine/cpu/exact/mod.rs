//! Exact sums on f64 units: products of integers are exact in f64 as long as a sum of them stays below 2^53.
//!
//! Rows are rounded to the grid while they are packed, and from there on go the way of [`gram`](super::gram): blocks of
//! packed columns, one task for each band of rows of G, the same micro-kernel at the same speed. What differs is where sums
//! go. Three levels, each an exact integer:
//!
//! 1. **f64**, for as many rows as stay below 2^53 ([`Digits::rows`]: 8,192 at 20 bits, 512 at 22);
//! 2. **i64**, for [`DRAINS`] of those;
//! 3. **i128**, for good.
//!
//! Integers of more than 22 bits are split into two digits, and G is made of three products of the same kind
//! ([`Digits`]). A row with a value beyond the width is taken out of its block, which a row of zeros is as good as, and
//! summed by an accumulator of the same kind with three digits and six products.
//!
//! Where they are faster, [`int8`] units take the place of f64 units, but for rows beyond the width ([`Int8::wins`]).

mod int8;
#[cfg(target_arch = "x86_64")]
mod intrinsics;
mod tiles;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use self::tiles::Int8;
use super::CpuEngine;
use super::gram::{BLOCK, Band, HEIGHT, STRIP, WIDE, staged_blocks};
use super::kernel::{Into, Isa, Kernel, Line, PANEL, Part, Work};
use super::work_queue::drain;
use crate::engine::exact::{
    Digits, ExactAccumulator, ExactSpec, ExactSums, REACH, Seen, nearest, power_of_two, quantise,
    refuse, too_many,
};
use crate::engine::{Matrix, Rows, Targets};
use crate::error::{Error, Result};

/// Sums below 2^53 that an i64 holds.
const DRAINS: usize = 1 << 10;
/// Columns that a task packs.
const COLUMNS: usize = WIDE * PANEL;
/// Digits that there are at most.
const DIGITS: usize = Digits::MOST;

/// What reports call the way that every processor has.
const F64_UNITS: &str = "f64 units";

/// Returns the int8 units for integers of so many bits, where they are faster than f64 units.
fn int8_units(isa: Isa, bits: u32) -> Option<Int8> {
    let mut all = Int8::all().into_iter();
    all.find(|units| units.wins(isa, bits))
}

/// Names the units that sums of integers of so many bits are made with.
pub(super) fn units(isa: Isa, bits: u32) -> &'static str {
    int8_units(isa, bits).map_or(F64_UNITS, Int8::name)
}

/// Exact sums in progress on the processor.
pub(super) struct Accumulator {
    engine: CpuEngine,
    spec: ExactSpec,
    rows: u64,
    class_rows: Vec<u64>,
    found: Found,
    /// The rows within the width.
    near: Near,
    /// The rows beyond it, once there is one.
    far: Option<Packed>,
    /// Number of those.
    beyond: u64,
}

/// The rows within the width, by one way or the other.
enum Near {
    F64(Packed),
    Int8(int8::Packed),
}

impl Accumulator {
    pub(super) fn new(engine: &CpuEngine, spec: &ExactSpec) -> Result<Self> {
        Self::on(engine, spec, int8_units(engine.isa, spec.grid.bits()))
    }

    /// Starts on these int8 units, or else on f64 units.
    fn on(engine: &CpuEngine, spec: &ExactSpec, units: Option<Int8>) -> Result<Self> {
        spec.check()?;
        let none = ExactSums::none(spec);
        Ok(Self {
            engine: engine.clone(),
            spec: spec.clone(),
            rows: 0,
            class_rows: none.class_rows,
            found: Found::new(none.setters.len()),
            near: match units {
                Some(units) => Near::Int8(int8::Packed::new(units, spec)),
                None => Near::F64(Packed::new(engine, spec, Digits::of_grid(spec.grid.bits()))),
            },
            far: None,
            beyond: 0,
        })
    }

    /// Adds the rows that the width does not hold.
    fn push_far(&mut self, rows: Rows<'_>, targets: Targets<'_>, far: &[usize]) -> Result<()> {
        let gathered = |rows: Rows<'_>| {
            let mut out = Matrix::zeros(far.len(), rows.cols());
            for (to, &from) in far.iter().enumerate() {
                rows.widen_row(from, out.row_mut(to));
            }
            out
        };
        let (engine, spec) = (&self.engine, &self.spec);
        let packed = self
            .far
            .get_or_insert_with(|| Packed::new(engine, spec, Digits::beyond()));
        let z = gathered(rows);
        let (y, classes);
        let wanted = match targets {
            Targets::None => Targets::None,
            Targets::Classes(all) => {
                classes = far.iter().map(|&row| all[row]).collect::<Vec<i64>>();
                Targets::Classes(&classes)
            }
            Targets::Values(values) => {
                y = gathered(values);
                Targets::Values(y.as_rows())
            }
        };
        // What was moved is known of these rows already.
        let refused = packed.push(self.engine.isa, z.as_rows(), wanted, None);
        let Some(&row) = refused.first() else {
            self.beyond += far.len() as u64;
            return Ok(());
        };
        let find = |tensor: &str, values: &Matrix, units: &[i32]| {
            let mut columns = values.row(row).iter().zip(units).enumerate();
            let (column, (&value, &unit)) =
                columns.find(|(_, (z, e))| quantise(**z, **e).is_none())?;
            Some(refuse(tensor, far[row], column, value, unit))
        };
        let grid = &self.spec.grid;
        let in_targets = || match wanted {
            Targets::Values(values) => find("targets", &values.to_matrix(), grid.targets()),
            _ => None,
        };
        let fault = find("features", &z, grid.features()).or_else(in_targets);
        Err(fault.unwrap_or(Error::Overflow))
    }
}

impl ExactAccumulator for Accumulator {
    fn way(&self) -> &'static str {
        match &self.near {
            Near::F64(_) => F64_UNITS,
            Near::Int8(packed) => packed.way(),
        }
    }

    fn push(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> Result<()> {
        targets.check((rows.rows(), rows.cols()), &self.spec.sums);
        too_many(self.rows, rows.rows() as u64)?;
        self.rows += rows.rows() as u64;
        if let Targets::Classes(classes) = targets {
            for &class in classes {
                self.class_rows[class as usize] += 1;
            }
        }
        let engine = self.engine.clone();
        engine.compute(|| {
            let far = match &mut self.near {
                Near::F64(packed) => packed.push(engine.isa, rows, targets, Some(&self.found)),
                Near::Int8(packed) => packed.push(engine.isa, rows, targets, &self.found),
            };
            match far.is_empty() {
                true => Ok(()),
                false => self.push_far(rows, targets, &far),
            }
        })
    }

    fn finish(mut self: Box<Self>) -> Result<(ExactSums, Seen)> {
        let engine = self.engine.clone();
        let mut sums = ExactSums::none(&self.spec);
        engine.compute(|| {
            match &mut self.near {
                Near::F64(packed) => packed.finish(engine.isa, &mut sums)?,
                Near::Int8(packed) => packed.finish(engine.isa, &mut sums)?,
            }
            match &mut self.far {
                None => Ok(()),
                Some(far) => far.finish(engine.isa, &mut sums),
            }
        })?;
        sums.rows = self.rows;
        sums.class_rows = std::mem::take(&mut self.class_rows);
        sums.beyond = self.beyond;
        let seen = self.found.take(&mut sums);
        Ok((sums, seen))
    }
}

/// What rounding to the grid did. Sums and maxima of integers, so that threads need no order.
struct Found {
    moved: AtomicU64,
    /// Bits of the largest relative move; those of numbers that are not negative are in their order.
    largest: AtomicU64,
    setters: Vec<AtomicU64>,
}

impl Found {
    fn new(setters: usize) -> Self {
        Self {
            moved: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            setters: (0..setters).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn take(&self, sums: &mut ExactSums) -> Seen {
        sums.moved = self.moved.load(Relaxed);
        sums.setters = self.setters.iter().map(|n| n.load(Relaxed)).collect();
        Seen {
            largest_move: f64::from_bits(self.largest.load(Relaxed)),
        }
    }
}

/// The units of some columns.
struct Units {
    /// 1/u, exactly; as many as whole tasks have columns.
    inverse: Vec<f64>,
    /// The units u.
    size: Vec<f64>,
}

impl Units {
    fn new(exponents: &[i32]) -> Self {
        // A bias is 1 in units of 1, and so is whatever fills up the last task.
        let padded = (exponents.len() + 1).next_multiple_of(COLUMNS);
        let of = |sign: i32| {
            let mut out: Vec<f64> = exponents.iter().map(|e| power_of_two(sign * e)).collect();
            out.resize(padded, 1.0);
            out
        };
        Self {
            inverse: of(-1),
            size: of(1),
        }
    }
}

/// Sums of integers with so many digits.
struct Packed {
    spec: ExactSpec,
    digits: Digits,
    spare: super::gram::Spare,
    features: Units,
    targets: Units,
    /// Rows packed and not yet folded.
    pending: usize,
    blocks: Vec<Block>,
    strips: Vec<Strip>,
}

/// Up to [`BLOCK`] rows, packed.
#[derive(Default)]
struct Block {
    rows: usize,
    /// Planes of the features: `[task][plane][panel of the task][row]`.
    panels: Vec<Line>,
    /// Digits of the targets, `[digit][panel][row]`, when they are values.
    values: Vec<Line>,
    /// Targets, when they are classes.
    classes: Vec<u32>,
}

/// Returns where a panel of a plane begins in a block.
#[inline(always)]
fn place(panel: usize, plane: usize, planes: usize, panels: usize) -> usize {
    let first = panel / WIDE * WIDE;
    let width = WIDE.min(panels - first);
    (first * planes + plane * width + panel - first) * BLOCK
}

impl Packed {
    fn new(engine: &CpuEngine, spec: &ExactSpec, digits: Digits) -> Self {
        let order = spec.sums.order();
        let panels = order.div_ceil(PANEL) * digits.plane_count();
        let blocks = (0..staged_blocks(panels)).map(|_| Block::default());
        let bands = (0..order)
            .step_by(STRIP)
            .map(|first| Band::new(first, order));
        Self {
            spec: spec.clone(),
            digits,
            spare: engine.spare.clone(),
            features: Units::new(spec.grid.features()),
            targets: Units::new(spec.grid.targets()),
            pending: 0,
            blocks: blocks.collect(),
            strips: bands.map(|band| Strip::new(band, spec, digits)).collect(),
        }
    }

    /// Adds rows but for those with a value beyond the digits, which it returns.
    fn push(
        &mut self,
        isa: Isa,
        rows: Rows<'_>,
        targets: Targets<'_>,
        found: Option<&Found>,
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
            for (b, block) in touched.clone().zip(&mut self.blocks[touched.clone()]) {
                // The part of this batch that falls into block `b`.
                let from = (b * BLOCK).max(pending);
                let to = ((b + 1) * BLOCK).min(pending + take);
                let range = start + from - pending..start + to - pending;
                if block.panels.is_empty() {
                    let panels = self.spec.sums.order().div_ceil(PANEL);
                    let lines = BLOCK * panels * self.digits.plane_count();
                    block.panels = self.spare.take(lines);
                }
                let units = (&self.features, &self.targets);
                let batch = (rows, targets);
                block.fill(
                    &self.spec,
                    self.digits,
                    units,
                    batch,
                    range,
                    (&flags, found),
                    &mut pieces,
                );
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

    fn fold(&mut self, isa: Isa) {
        let blocks = &self.blocks[..self.pending.div_ceil(BLOCK)];
        let (spec, digits) = (&self.spec, self.digits);
        // The longest strips first, so that no thread is left with one at the end.
        drain(self.strips.iter_mut().rev(), |strip| {
            isa.run(FoldStrip {
                strip,
                blocks,
                spec,
                digits,
            });
        });
        for block in &mut self.blocks {
            block.rows = 0;
            block.classes.clear();
        }
        self.pending = 0;
    }

    /// Adds everything to `sums`.
    fn finish(&mut self, isa: Isa, sums: &mut ExactSums) -> Result<()> {
        self.fold(isa);
        for block in self.blocks.drain(..) {
            self.spare.give(block.panels);
        }
        let targets = self.spec.sums.targets;
        let add = |sum: &mut i128, value: i128| {
            *sum = sum.checked_add(value).ok_or(Error::Overflow)?;
            Ok::<(), Error>(())
        };
        for strip in &mut self.strips {
            strip.gram.drain(isa);
            strip.gram.carry();
            strip.cross.drain(isa);
            strip.cross.carry();
            let Band { first, count } = strip.band;
            for r in 0..count {
                let i = first + r;
                let row = &mut sums.gram[i * (i + 1) / 2..][..=i];
                for (j, sum) in row.iter_mut().enumerate() {
                    let line = j / PANEL * STRIP + r;
                    add(sum, strip.gram.wide[line * PANEL + j % PANEL])?;
                }
                for (t, sum) in sums.cross[i * targets..][..targets].iter_mut().enumerate() {
                    let line = t * HEIGHT + r / PANEL;
                    add(sum, strip.cross.wide[line * PANEL + r % PANEL])?;
                }
            }
        }
        Ok(())
    }
}

impl Block {
    /// Appends rows `range` of the batch, and adds the pieces that remain to be packed.
    #[expect(clippy::too_many_arguments)]
    fn fill<'a>(
        &'a mut self,
        spec: &'a ExactSpec,
        digits: Digits,
        (features, targets): (&'a Units, &Units),
        (rows, wanted): (Rows<'a>, Targets<'_>),
        range: std::ops::Range<usize>,
        (flags, found): (&'a [AtomicBool], Option<&'a Found>),
        pieces: &mut Vec<PackPiece<'a>>,
    ) {
        let filled = self.rows;
        self.rows += range.len();
        match wanted {
            Targets::None => {}
            Targets::Classes(classes) => {
                let classes = classes[range.clone()].iter();
                self.classes.extend(classes.map(|&class| class as u32));
            }
            Targets::Values(values) => {
                let panels = spec.sums.targets.div_ceil(PANEL);
                self.values
                    .resize(BLOCK * panels * digits.count, Line::ZERO);
                for start in (0..spec.sums.targets).step_by(COLUMNS) {
                    let width = COLUMNS.min(spec.sums.targets - start);
                    let mut rounding = Rounding::new(digits, found, spec);
                    let mut z = [0.0; COLUMNS];
                    for (to, from) in (filled..).zip(range.clone()) {
                        values.widen_part(from, start, &mut z[..width]);
                        if rounding.round(&z, targets, start) {
                            flags[from].store(true, Relaxed);
                        }
                        digits.split(&mut rounding.digits);
                        let split = rounding.digits.iter().take(digits.count);
                        for (d, digit) in split.enumerate() {
                            let parts = digit.as_chunks::<PANEL>().0.iter().enumerate();
                            for (p, part) in parts.take(width.div_ceil(PANEL)) {
                                let panel = d * panels + start / PANEL + p;
                                self.values[panel * BLOCK + to].0 = *part;
                            }
                        }
                    }
                    rounding.tell(spec.sums.features + start, width);
                }
            }
        }
        let planes = digits.plane_count();
        for (piece, panels) in self.panels.chunks_mut(BLOCK * WIDE * planes).enumerate() {
            pieces.push(PackPiece {
                spec,
                digits,
                units: features,
                rows,
                range: range.clone(),
                filled,
                first: piece * COLUMNS,
                panels,
                flags,
                found,
            });
        }
    }

    /// Turns a row into zeros, which add nothing.
    fn clear(&mut self, row: usize) {
        for lines in [&mut self.panels, &mut self.values] {
            for panel in lines.chunks_exact_mut(BLOCK) {
                panel[row] = Line::ZERO;
            }
        }
    }
}

/// Rounds some columns to the grid, row by row. What is found is kept apart for each column of a panel, so that the loops
/// are element by element.
struct Rounding<'a> {
    /// 2^b, which integers stay below.
    width: f64,
    found: Option<&'a Found>,
    /// Units from which on a value sets the exponent of its column, where those are counted.
    setter: Option<f64>,
    /// Digits of the row's integers.
    digits: [[f64; COLUMNS]; DIGITS],
    moved: [u64; PANEL],
    largest: f64,
    /// Number of values that set the exponent of their column.
    setters: [u64; COLUMNS],
}

/// Returns the columns of a panel.
#[inline(always)]
fn of_panel(values: &[f64], panel: usize) -> &[f64; PANEL] {
    values[panel * PANEL..].first_chunk().expect("whole panels")
}

impl<'a> Rounding<'a> {
    #[inline(always)]
    fn new(digits: Digits, found: Option<&'a Found>, spec: &ExactSpec) -> Self {
        let largest = found.map_or(1.0_f64.to_bits(), |found| found.largest.load(Relaxed));
        Self {
            width: (1_i64 << digits.bits) as f64,
            found,
            setter: (spec.setters && found.is_some()).then(|| spec.grid.setter()),
            digits: [[0.0; COLUMNS]; DIGITS],
            moved: [0; PANEL],
            largest: f64::from_bits(largest),
            setters: [0; COLUMNS],
        }
    }

    /// Rounds the values of columns from `first` on, to integers in place of the first digit. Returns whether one is beyond
    /// the width.
    #[inline(always)]
    fn round(&mut self, z: &[f64; COLUMNS], units: &Units, first: usize) -> bool {
        let (inverse, size) = (&units.inverse[first..], &units.size[first..]);
        let (mut top, mut moved) = ([0_u64; PANEL], [0_u64; PANEL]);
        for panel in 0..WIDE {
            let z = of_panel(z, panel);
            let (inverse, size) = (of_panel(inverse, panel), of_panel(size, panel));
            let out = &mut self.digits[0][panel * PANEL..][..PANEL];
            for k in 0..PANEL {
                let q = nearest(z[k] * inverse[k]);
                out[k] = q;
                // Bits of magnitudes are in their order, and those of NaN above all.
                top[k] = top[k].max(q.abs().to_bits());
                moved[k] += u64::from(q * size[k] != z[k]);
            }
        }
        for (all, moved) in self.moved.iter_mut().zip(&moved) {
            *all += moved;
        }
        // What is rounded to zero is moved by as much as there is; then nothing is left to be found.
        if self.largest < 1.0 && moved.iter().any(|&n| n > 0) {
            self.look_closer(z, inverse, size);
        }
        if let Some(setter) = self.setter {
            for panel in 0..WIDE {
                let (z, inverse) = (of_panel(z, panel), of_panel(inverse, panel));
                let counts = &mut self.setters[panel * PANEL..][..PANEL];
                for k in 0..PANEL {
                    counts[k] += u64::from((z[k] * inverse[k]).abs() >= setter);
                }
            }
        }
        top.iter().any(|&top| top >= self.width.to_bits())
    }

    /// Finds the largest move.
    #[inline(always)]
    fn look_closer(&mut self, z: &[f64; COLUMNS], inverse: &[f64], size: &[f64]) {
        /// Less than 1 by more than two roundings: the largest move is found whatever came before it.
        const NEARLY: f64 = 1.0 - 4.0 * f64::EPSILON;
        let least = self.largest * NEARLY;
        let mut larger = [0_u64; PANEL];
        for panel in 0..WIDE {
            let z = of_panel(z, panel);
            let (inverse, size) = (of_panel(inverse, panel), of_panel(size, panel));
            for k in 0..PANEL {
                let away = (nearest(z[k] * inverse[k]) * size[k] - z[k]).abs();
                larger[k] |= u64::from(away > least * z[k].abs());
            }
        }
        // Seldom: a division for every value would show.
        if larger.iter().any(|&any| any != 0) {
            for (q, (z, size)) in self.digits[0].iter().zip(z.iter().zip(size)) {
                let away = (q * size - z).abs();
                if away != 0.0 {
                    self.largest = self.largest.max(away / z.abs());
                }
            }
        }
    }

    /// Adds what was found; the setters are those of `width` columns, from `first` on among all.
    fn tell(&self, first: usize, width: usize) {
        let Some(found) = self.found else { return };
        found.moved.fetch_add(self.moved.iter().sum(), Relaxed);
        found.largest.fetch_max(self.largest.to_bits(), Relaxed);
        if self.setter.is_some() {
            let columns = found.setters[first..].iter().zip(&self.setters[..width]);
            columns.for_each(|(total, count)| {
                total.fetch_add(*count, Relaxed);
            });
        }
    }
}

/// Rounds some columns of some rows to the grid, and packs their planes.
struct PackPiece<'a> {
    spec: &'a ExactSpec,
    digits: Digits,
    units: &'a Units,
    rows: Rows<'a>,
    range: std::ops::Range<usize>,
    /// Rows that the block holds already.
    filled: usize,
    /// The first of the columns.
    first: usize,
    /// `[plane][panel][row]`.
    panels: &'a mut [Line],
    flags: &'a [AtomicBool],
    found: Option<&'a Found>,
}

impl Work for PackPiece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        let features = self.spec.sums.features;
        let count = features.saturating_sub(self.first).min(COLUMNS);
        let mut z = [0.0; COLUMNS];
        if self.spec.sums.bias && self.first + count == features && count < COLUMNS {
            z[count] = 1.0;
        }
        let first = self.first.min(features);
        let planes = self.digits.plane_count();
        let width = self.panels.len() / (planes * BLOCK);
        let mut rounding = Rounding::new(self.digits, self.found, self.spec);
        for (to, from) in (self.filled..).zip(self.range) {
            self.rows.widen_part(from, first, &mut z[..count]);
            if rounding.round(&z, self.units, self.first) {
                self.flags[from].store(true, Relaxed);
            }
            self.digits.split(&mut rounding.digits);
            let chunks = self.panels.chunks_exact_mut(BLOCK * width);
            for ((a, b), plane) in self.digits.planes().zip(chunks) {
                let panels = plane.chunks_exact_mut(BLOCK).enumerate();
                for (p, panel) in panels {
                    let part = p * PANEL..(p + 1) * PANEL;
                    let out = &mut panel[to].0;
                    out.copy_from_slice(&rounding.digits[a][part.clone()]);
                    if a != b {
                        for (out, other) in out.iter_mut().zip(&rounding.digits[b][part]) {
                            *out += other;
                        }
                    }
                }
            }
        }
        rounding.tell(first, count);
    }
}

/// Returns an integer of magnitude below 2^53 as such. In additions and shifts, which every instruction set has vectors of.
#[inline(always)]
fn integer(x: f64) -> i64 {
    // In the binades of these, neighbours are 4 and 1 apart, and so are their bits by one.
    const FOURS: f64 = 1.5 * (1_u64 << 54) as f64;
    const ONES: f64 = 1.5 * (1_u64 << 52) as f64;
    let above = x + FOURS;
    let fours = above.to_bits().wrapping_sub(FOURS.to_bits());
    let ones = (x - (above - FOURS) + ONES)
        .to_bits()
        .wrapping_sub(ONES.to_bits());
    (fours << 2).wrapping_add(ones) as i64
}

/// Sums on their way from f64 through i64 to i128.
struct Levels {
    /// `[plane]`, each laid out as its owner likes.
    near: Vec<Line>,
    middle: Vec<[i64; PANEL]>,
    wide: Vec<i128>,
    /// What each plane counts.
    weights: Vec<i128>,
    /// Rows in `near`, and how many it may have.
    rows: usize,
    limit: usize,
    /// Times that `near` was added to `middle`.
    drains: usize,
}

impl Levels {
    fn new(lines: usize, weights: Vec<i128>, limit: usize) -> Self {
        let planes = weights.len();
        Self {
            near: vec![Line::ZERO; lines * planes],
            middle: vec![[0; PANEL]; lines * planes],
            wide: vec![0; lines * PANEL],
            weights,
            rows: 0,
            limit,
            drains: 0,
        }
    }

    /// Makes room for the products of so many rows.
    #[inline(always)]
    fn admit(&mut self, rows: usize) {
        if self.rows + rows > self.limit {
            self.empty();
            if self.drains == DRAINS {
                self.carry();
            }
        }
        self.rows += rows;
    }

    /// Adds f64 to i64.
    #[inline(always)]
    fn empty(&mut self) {
        for (middle, near) in self.middle.iter_mut().zip(&mut self.near) {
            for (middle, near) in middle.iter_mut().zip(&mut near.0) {
                *middle += integer(*near);
                *near = 0.0;
            }
        }
        self.rows = 0;
        self.drains += 1;
    }

    /// Adds what is left in f64 to i64.
    fn drain(&mut self, isa: Isa) {
        isa.run(Emptying(self));
    }

    /// Adds i64 to i128.
    #[inline(never)]
    fn carry(&mut self) {
        let lines = self.wide.len() / PANEL;
        if lines == 0 {
            return;
        }
        for (plane, &weight) in self.middle.chunks_exact_mut(lines).zip(&self.weights) {
            let sums = self.wide.chunks_exact_mut(PANEL);
            for (sums, values) in sums.zip(plane) {
                for (sum, value) in sums.iter_mut().zip(values) {
                    // Each plane by itself may leave what all of them together stay within; so may padding.
                    *sum = sum.wrapping_add(i128::from(*value).wrapping_mul(weight));
                    *value = 0;
                }
            }
        }
        self.drains = 0;
    }
}

struct Emptying<'a>(&'a mut Levels);

impl Work for Emptying<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        self.0.empty();
    }
}

/// A band of G and the same rows of ZᵀY.
struct Strip {
    band: Band,
    gram: Levels,
    /// `[digit or pair of digits][target][row panel]`.
    cross: Levels,
}

impl Strip {
    fn new(band: Band, spec: &ExactSpec, digits: Digits) -> Self {
        let of_plane = digits.planes().map(|plane| digits.gram_weight(plane));
        let gram = Levels::new(band.lines(), of_plane.collect(), digits.rows());
        let all = 0..digits.count;
        let (weights, limit) = match spec.classes {
            true => (
                all.map(|a| digits.weight(a)).collect(),
                digits.rows_of_values(),
            ),
            false => {
                let pairs = all.clone().flat_map(|a| all.clone().map(move |b| a + b));
                (pairs.map(|at| digits.weight(at)).collect(), digits.rows())
            }
        };
        let cross = Levels::new(spec.sums.targets * HEIGHT, weights, limit);
        Self { band, gram, cross }
    }
}

/// Adds all pending blocks to one strip.
struct FoldStrip<'a> {
    strip: &'a mut Strip,
    blocks: &'a [Block],
    spec: &'a ExactSpec,
    digits: Digits,
}

impl Work for FoldStrip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let Self {
            strip,
            blocks,
            spec,
            digits,
        } = self;
        let panels = spec.sums.order().div_ceil(PANEL);
        let (planes, targets) = (digits.plane_count(), spec.sums.targets);
        let (own, end) = (strip.band.panels(), strip.band.end());
        for block in blocks {
            let packed = |panel: usize, plane: usize| {
                &block.panels[place(panel, plane, planes, panels)..][..block.rows]
            };
            strip.gram.admit(block.rows);
            let lines = strip.band.lines();
            for (plane, sums) in strip.gram.near.chunks_exact_mut(lines).enumerate() {
                strip.band.add(kernel, |panel| packed(panel, plane), sums);
            }
            if targets == 0 {
                continue;
            }
            strip.cross.admit(block.rows);
            let mut sums = strip.cross.near.chunks_exact_mut(targets * HEIGHT);
            for a in 0..digits.count {
                if spec.classes {
                    let Some(sums) = sums.next() else { break };
                    for (row, p) in own.clone().zip(0..) {
                        for (line, &class) in packed(row, a).iter().zip(&block.classes) {
                            let sums = &mut sums[class as usize * HEIGHT + p].0;
                            for (sum, value) in sums.iter_mut().zip(&line.0) {
                                *sum += value;
                            }
                        }
                    }
                    continue;
                }
                let wanted = block.values.chunks_exact(BLOCK * targets.div_ceil(PANEL));
                for (values, sums) in wanted.zip(&mut sums) {
                    for (row, p) in own.clone().zip(0..) {
                        for (panel, values) in values.chunks_exact(BLOCK).enumerate() {
                            let first = panel * PANEL;
                            let part = Part::first(end - row * PANEL, targets - first);
                            let values = &values[..block.rows];
                            let mut out = [Line::ZERO; PANEL];
                            kernel.multiply(packed(row, a), values, part, Into::Set, &mut out, 1);
                            let cross = sums[first * HEIGHT..].chunks_exact_mut(HEIGHT);
                            for (t, cross) in cross.take(PANEL).enumerate() {
                                for (sum, line) in cross[p].0.iter_mut().zip(&out) {
                                    *sum += line.0[t];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

const _: () = assert!(REACH == 1 << 48, "three digits of 16 bits reach it");

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::SumsSpec;
    use crate::engine::exact::{BITS, Grid, Plain};

    /// A stream of numbers that depends on nothing but its seed.
    struct Draw(u64);

    impl Draw {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = self.0;
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ x >> 31
        }

        /// An integer of so many bits with its sign, most often one at an edge.
        fn integer(&mut self, bits: u32) -> f64 {
            let top = (1_i64 << bits) - 1;
            let half = 1_i64 << bits.div_ceil(2) >> 1;
            // The digits of seven bits at their ends, all but the last one.
            let ends = |digit: i64| (1..bits.div_ceil(7)).fold(0, |q, _| (q << 7) + digit);
            let value = match self.next() % 10 {
                0 | 1 => top,
                2 => top - (self.next() % 3) as i64,
                3 => half,
                4 => half - 1,
                5 => 3 * half,
                6 => 0,
                7 => ends(64),
                8 => ends(63),
                _ => (self.next() >> (64 - bits)) as i64,
            };
            if self.next().is_multiple_of(2) {
                value as f64
            } else {
                -value as f64
            }
        }
    }

    fn spec(features: usize, bias: bool, targets: usize, classes: bool, bits: u32) -> ExactSpec {
        let values = if classes { 0 } else { targets };
        let units = |columns: usize, e: i32| (0..columns as i32).map(|j| e - j % 5).collect();
        ExactSpec {
            sums: SumsSpec {
                features,
                bias,
                targets,
            },
            classes,
            grid: Arc::new(Grid::new(bits, units(features, -3), units(values, 9)).unwrap()),
            setters: true,
        }
    }

    struct Data {
        z: Matrix,
        y: Matrix,
        classes: Vec<i64>,
    }

    impl Data {
        /// Values of so many bits in units of the grid; one row in `far` has one of up to 47.
        fn new(spec: &ExactSpec, rows: usize, bits: u32, far: usize, seed: u64) -> Self {
            let mut draw = Draw(seed);
            let mut values = |units: &[i32]| {
                let mut out = Matrix::zeros(rows, units.len());
                for i in 0..rows {
                    let wide = (draw.next() as usize).is_multiple_of(far);
                    let at = draw.next() as usize % units.len().max(1);
                    for (j, &unit) in units.iter().enumerate() {
                        let bits = if wide && j == at { 47 } else { bits };
                        // A third of a unit more, and sometimes a half.
                        let off = [0.0, 0.0, 1.0 / 3.0, 0.5][(draw.next() % 4) as usize];
                        let q = draw.integer(bits);
                        out[(i, j)] =
                            (q + if q.abs() < 1e12 { off } else { 0.0 }) * power_of_two(unit);
                    }
                }
                out
            };
            let z = values(spec.grid.features());
            let y = values(spec.grid.targets());
            let classes = (0..rows)
                .map(|i| (i * i % spec.sums.targets.max(1)) as i64)
                .collect();
            Self { z, y, classes }
        }

        fn push(
            &self,
            spec: &ExactSpec,
            sums: &mut dyn ExactAccumulator,
            rows: std::ops::Range<usize>,
        ) {
            let z = self.z.as_rows().slice(rows.start, rows.end);
            let y = self.y.as_rows().slice(rows.start, rows.end);
            let targets = match (spec.sums.targets, spec.classes) {
                (0, _) => Targets::None,
                (_, true) => Targets::Classes(&self.classes[rows]),
                (_, false) => Targets::Values(y),
            };
            sums.push(z, targets).unwrap();
        }
    }

    fn plain(spec: &ExactSpec, data: &Data) -> (ExactSums, Seen) {
        let mut sums = Box::new(Plain::new(spec).unwrap());
        data.push(spec, &mut *sums, 0..data.z.rows());
        sums.finish().unwrap()
    }

    /// Every way that this processor has, or has a stand-in of: f64 units on each instruction set, int8 units packed by the
    /// best and the plainest one, and both on three threads.
    fn ways(spec: &ExactSpec) -> Vec<Accumulator> {
        let units = || Int8::all().into_iter().map(Some);
        let one = |isa| CpuEngine {
            isa,
            ..CpuEngine::new(Some(1)).unwrap()
        };
        let mut ways: Vec<(CpuEngine, Option<Int8>)> =
            Isa::all().map(|isa| (one(isa), None)).collect();
        for isa in [Isa::detect(), Isa::Portable] {
            ways.extend(units().map(|units| (one(isa), units)));
        }
        let three = CpuEngine::new(Some(3)).unwrap();
        ways.extend(units().chain([None]).map(|units| (three.clone(), units)));
        let start = |(engine, units)| Accumulator::on(&engine, spec, units).unwrap();
        ways.into_iter().map(start).collect()
    }

    /// Everything at once: each width, edges of panels, blocks and tasks, classes and values, rows beyond the width, batches
    /// of any size in another order.
    #[test]
    fn sums_are_those_of_plain_loops() {
        let shapes = [
            (1, false, 0, true, 3),
            (23, true, 2, true, BLOCK + 1),
            (24, false, 3, false, BLOCK),
            (25, true, 25, false, BLOCK - 1),
            (2 * COLUMNS - 1, true, 1, true, 7),
            (31, true, 3, true, int8::BLOCK + 1),
            (31, true, 2, false, int8::BLOCK - 1),
            (int8::STRIP, true, 2, true, 66),
        ];
        for bits in BITS {
            for (n, (features, bias, targets, classes, rows)) in shapes.into_iter().enumerate() {
                let spec = spec(features, bias, targets, classes, bits);
                let data = Data::new(&spec, rows, bits, 5, u64::from(bits) + n as u64);
                let (wanted, seen) = plain(&spec, &data);
                assert!(
                    wanted.beyond > 0 || rows < 9,
                    "{} rows beyond",
                    wanted.beyond
                );
                let batches = [rows / 3 + 1, 7, rows, 1, 250].into_iter().cycle();
                for (mut sums, batch) in ways(&spec).into_iter().zip(batches) {
                    let way = sums.way();
                    for start in (0..rows).step_by(batch).rev() {
                        data.push(&spec, &mut sums, start..(start + batch).min(rows));
                    }
                    let isa = sums.engine.isa.name();
                    let (found, found_seen) = Box::new(sums).finish().unwrap();
                    let what = format!("{features} features, {bits} bits, {way}, {isa}");
                    assert!(found == wanted, "{what}");
                    assert_eq!(found_seen, seen, "{what}");
                }
            }
        }
    }

    /// The largest integers of one sign: where f64 or i64 would be left if they were not emptied in time.
    #[test]
    fn levels_are_emptied_in_time() {
        for bits in [20, 22, 27, 34, 41, 47] {
            let grid_bits = if bits == 47 { 13 } else { bits };
            for classes in [true, false] {
                let spec = spec(2, true, 1, classes, grid_bits);
                let digits = Digits::of_grid(bits.min(41));
                let top = ((1_i64 << bits) - 1) as f64;
                // Past the first drain or two, in whole blocks and a few rows more.
                let rows = (2 * digits.rows()).clamp(4 * BLOCK + 3, 20_000);
                let units = |units: &[i32]| {
                    Matrix::from_fn(rows, units.len(), |_, j| top * power_of_two(units[j]))
                };
                let (z, y) = (units(spec.grid.features()), units(spec.grid.targets()));
                let data = Data {
                    z,
                    y,
                    classes: vec![0; rows],
                };
                let engine = CpuEngine::ambient();
                let mut sums = Box::new(Accumulator::on(&engine, &spec, None).unwrap());
                data.push(&spec, &mut *sums, 0..rows);
                let (found, _) = sums.finish().unwrap();
                let (count, top) = (rows as i128, top as i128);
                let square = count * top * top;
                let wanted = [square, square, square, count * top, count * top, count];
                assert_eq!(found.gram, wanted, "{bits} bits");
                let y = if classes { 1 } else { top };
                assert_eq!(
                    found.cross,
                    [count * top * y, count * top * y, count * y],
                    "{bits} bits"
                );
            }
        }
    }

    /// Digits of −64 alone, whose sums of two are −128: 32 bits hold 131,071 of their squares.
    #[test]
    fn sums_of_32_bits_are_emptied_in_time() {
        let rows = 2 * int8::LIMIT + int8::BLOCK + 3;
        for (value, classes) in [(-64 * 129, true), (64 * 128 + 63, false)] {
            let spec = spec(1, false, 1, classes, 20);
            let units = |units: &[i32]| {
                Matrix::from_fn(rows, units.len(), |_, j| {
                    f64::from(value) * power_of_two(units[j])
                })
            };
            let data = Data {
                z: units(spec.grid.features()),
                y: units(spec.grid.targets()),
                classes: vec![0; rows],
            };
            for unit in Int8::all() {
                let engine = CpuEngine::ambient();
                let mut sums = Box::new(Accumulator::on(&engine, &spec, Some(unit)).unwrap());
                data.push(&spec, &mut *sums, 0..rows);
                let (found, _) = sums.finish().unwrap();
                let (count, value) = (rows as i128, i128::from(value));
                assert_eq!(found.gram, [count * value * value], "{}", unit.name());
                let y = if classes { 1 } else { value };
                assert_eq!(found.cross, [count * value * y], "{}", unit.name());
            }
        }
    }

    #[test]
    fn integers_are_what_they_were() {
        let mut draw = Draw(9);
        let edges = [
            0,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            (1 << 52) - 1,
            1 << 52,
            (1 << 53) - 1,
        ];
        for value in edges
            .into_iter()
            .chain((0..10_000).map(|_| (draw.next() >> 11) as i64))
        {
            assert_eq!(
                (integer(value as f64), integer(-value as f64)),
                (value, -value)
            );
        }
    }

    /// More drains than an i64 has room for; a row at a time is as much as a limit of one row allows.
    #[test]
    fn the_middle_level_is_carried_in_time() {
        let mut levels = Levels::new(1, vec![1], 1);
        let most = ((1_u64 << 53) - 1) as f64;
        let rounds = 3 * DRAINS + 5;
        for _ in 0..rounds {
            levels.admit(1);
            levels.near[0].0[PANEL - 1] = -most;
        }
        levels.empty();
        levels.carry();
        assert_eq!(levels.wide[PANEL - 1], -(rounds as i128) * ((1 << 53) - 1));
        assert_eq!(levels.wide[0], 0);
    }

    #[test]
    fn every_type_of_rows_is_widened_exactly() {
        use half::{bf16, f16};
        let values: Vec<f32> = (0..60).map(|i| ((i * i) as f32 - 900.0) / 64.0).collect();
        let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
        let brains: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
        let doubles: Vec<f64> = values
            .iter()
            .map(|&v| f64::from(v) * (1.0 + 1e-9))
            .collect();
        let spec = spec(6, true, 0, true, 20);
        for rows in [
            Rows::new(10, 6, values.as_slice()),
            Rows::new(10, 6, halves.as_slice()),
            Rows::new(10, 6, brains.as_slice()),
            Rows::new(10, 6, doubles.as_slice()),
        ] {
            let sum = |mut sums: Box<dyn ExactAccumulator>| {
                sums.push(rows.pick(&[7, 1, 1, 9]), Targets::None).unwrap();
                sums.push(rows, Targets::None).unwrap();
                sums.finish().unwrap()
            };
            let wanted = sum(Box::new(Plain::new(&spec).unwrap()));
            for fast in ways(&spec) {
                let way = fast.way();
                assert!(sum(Box::new(fast)) == wanted, "{:?}, {way}", rows.dtype());
            }
        }
    }

    #[test]
    fn what_no_sum_can_take_is_named() {
        for targets in [false, true] {
            for bad in [f64::NAN, f64::NEG_INFINITY, 2.0_f64.powi(49)] {
                let spec = spec(30, false, 2, false, 22);
                let mut z = Matrix::zeros(5, 30);
                let mut y = Matrix::zeros(5, 2);
                if targets {
                    y[(3, 1)] = bad * 512.0;
                } else {
                    z[(3, 29)] = bad;
                }
                z[(1, 0)] = 1e9;
                let plain: Box<dyn ExactAccumulator> = Box::new(Plain::new(&spec).unwrap());
                let fast = ways(&spec).into_iter();
                let fast = fast.map(|way| -> Box<dyn ExactAccumulator> { Box::new(way) });
                for mut way in fast.chain([plain]) {
                    let wanted = Targets::Values(y.as_rows());
                    let error = way.push(z.as_rows(), wanted).unwrap_err();
                    let (row, column) = match error {
                        Error::NotFinite { row, column, .. } if !bad.is_finite() => (row, column),
                        Error::OffGrid { row, column, .. } if bad.is_finite() => (row, column),
                        other => panic!("{}: {other}", way.way()),
                    };
                    assert_eq!(
                        (row, column),
                        (3, if targets { 1 } else { 29 }),
                        "{}",
                        way.way()
                    );
                }
            }
        }
    }
}
