//! Exact sums over rows, G = Σ q qᵀ and Σ q yᵀ in integers of 128 bits (SYRK and GEMM on int8 units). The host side of
//! `kernels/exact.cu`.
//!
//! Rows are cut into planes of 7-bit digits as they come; planes are multiplied when there are many rows of them, which is
//! what the tensor cores need, and at the end. Integers commute, so that neither how rows were cut into calls nor the grid
//! of thread blocks shows in a byte of the sums.
//!
//! Rows with a value that the width of the integers does not hold, NaN and infinity among them, are left out and named
//! ([`LeftOut`]): they are the caller's to sum or to refuse.

use super::matrix::{DeviceMatrix, Feature, Value, View};
use super::module::table::{
    ELEMENT_THREADS, EXACT_COLS, EXACT_DEPTH, EXACT_ROWS, EXACT_STAGES, EXACT_THREADS, PLAIN_SIDE,
    SLICE_COLS, SLICE_ROWS,
};
use super::module::{Arg, Geometry, Technique, launch, require, triangle};
use super::staging::Staging;
use super::stream::Stream;
use crate::error::{Error, Result};

/// Dynamic shared memory of the tensor-core kernels, the only ones that have any.
const SHARED: usize = (EXACT_ROWS + EXACT_COLS) * EXACT_DEPTH * EXACT_STAGES;
/// Planes take at most this many bytes, if so many hold [`FEWEST`] rows.
const PLANE_BYTES: usize = 512 << 20;
/// Rows that the planes can hold, at least and at most.
const FEWEST: usize = 1024;
const MOST: usize = 1 << 16;
/// Rows of different calls begin at multiples of this many in the planes: what a copy of the tensor-core kernel takes.
const ALIGN: usize = 16;
/// Rows that a thread block adds up for a class: 2¹² integers of 41 bits fit 64.
const SEGMENT: usize = 4096;
/// Rows that are sliced at once: each may be a class and so a segment of its own, of which a launch has 65,535 at most.
const PIECE: usize = 1 << 15;
/// What draining a tile costs, in stages of its main loop: where more thread blocks for a tile do not pay.
const DRAIN_COST: usize = 16;

/// Returns the bytes of dynamic shared memory that a kernel is launched with.
pub(super) fn dynamic_shared(kernel: &str) -> u32 {
    match kernel {
        "exact_syrk_s8_mma" | "exact_cross_s8_mma" => SHARED as u32,
        _ => 0,
    }
}

/// Targets of rows on the device.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// No targets.
    None,
    /// One class per row, on the host.
    Classes(&'a [i64]),
    /// One row of values per row.
    Values(View<'a, f64>),
}

/// Rows of a call that the sums leave out, since the width of the integers does not hold all of their values.
#[derive(Debug)]
pub struct LeftOut {
    flags: DeviceMatrix<u32>,
}

impl LeftOut {
    /// Returns them in order, and waits for the stream.
    pub fn fetch(&self, stream: &Stream, staging: &Staging) -> Result<Vec<usize>> {
        let mut rows = Vec::new();
        staging.download(stream, self.flags.view(), |_, flags| {
            let set = flags.iter().enumerate().filter(|(_, flag)| **flag != 0);
            rows.extend(set.map(|(row, _)| row));
        })?;
        Ok(rows)
    }
}

/// What is summed, and in which units.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Exponents of the units of the features, of which there are as many.
    pub features: Vec<i32>,
    /// Appends a feature that is always 1.
    pub bias: bool,
    /// Columns of the targets; 0 for G alone.
    pub targets: usize,
    /// Exponents of the units of the targets where they are values; none where they are classes.
    pub values: Vec<i32>,
    /// Integers of this width and more are left out.
    pub bits: u32,
    /// Number of 7-bit digits that hold them, s.
    pub digits: usize,
    /// What each plane's product counts in G: those of the digits, lowest first, then those of sums of two of them.
    pub of_planes: Vec<i128>,
    /// What each product of a digit of the features and one of the targets counts, of which the latter runs fastest.
    pub of_pairs: Vec<i128>,
    /// Counts values of 2^setter units and more for each column, if set.
    pub setter: Option<u32>,
}

impl Plan {
    fn order(&self) -> usize {
        self.features.len() + usize::from(self.bias)
    }

    /// Columns that setters are counted for.
    fn counted(&self) -> usize {
        match self.setter {
            None => 0,
            Some(_) => self.features.len() + self.values.len(),
        }
    }
}

/// Exact sums, on the host.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Σ q qᵀ: the lower triangle, row by row, bias included.
    pub gram: Vec<i128>,
    /// Σ q yᵀ, D×C row by row.
    pub cross: Vec<i128>,
    /// Number of values that rounding to the grid moved, those of rows that were left out among them.
    pub moved: u64,
    /// The largest |qu − z|/|z| of any value.
    pub largest_move: f64,
    /// Number of setters of each column, features before targets.
    pub setters: Vec<u64>,
}

/// Exact sums in progress on a device.
#[derive(Debug)]
pub struct Accumulator {
    plan: Plan,
    technique: Technique,
    features: Columns,
    targets: Columns,
    /// Moved values, and the bits of the largest move.
    found: DeviceMatrix<u64>,
    setters: DeviceMatrix<u64>,
    gram: WideSums,
    cross: WideSums,
    planes: Option<Planes>,
}

/// The grid of some columns, on the device.
#[derive(Debug)]
struct Columns {
    exponents: DeviceMatrix<i64>,
    /// What each product counts, two words each.
    weights: DeviceMatrix<u64>,
}

/// Digits of rows that are yet to be multiplied.
#[derive(Debug)]
struct Planes {
    features: DeviceMatrix<i8>,
    targets: DeviceMatrix<i8>,
    capacity: usize,
    pending: usize,
}

/// Sums of 128 bits, two words each, one after the other.
#[derive(Debug)]
struct WideSums {
    words: DeviceMatrix<u64>,
    count: usize,
}

impl WideSums {
    fn zeros(stream: &Stream, count: usize) -> Result<Self> {
        // Rows of a length that the staging buffers like, with no gaps between them.
        const ROW: usize = 1 << 13;
        let cols = ROW.min((2 * count).next_multiple_of(16));
        let rows = (2 * count).div_ceil(cols.max(1));
        let words = DeviceMatrix::zeros(stream, rows, cols)?;
        Ok(Self { words, count })
    }

    fn fetch(&self, stream: &Stream, staging: &Staging) -> Result<Vec<i128>> {
        let mut out = Vec::with_capacity(self.words.rows() * self.words.cols() / 2);
        staging.download(stream, self.words.view(), |_, words| {
            let pairs = words.as_chunks::<2>().0.iter();
            out.extend(pairs.map(|&[low, high]| i128::from(high) << 64 | i128::from(low)));
        })?;
        out.truncate(self.count);
        Ok(out)
    }
}

impl Columns {
    fn new(
        stream: &Stream,
        staging: &Staging,
        exponents: &[i32],
        weights: &[i128],
    ) -> Result<Self> {
        let exponents: Vec<i64> = exponents.iter().map(|&e| e.into()).collect();
        let words: Vec<u64> = weights
            .iter()
            .flat_map(|&weight| [weight as u64, (weight >> 64) as u64])
            .collect();
        Ok(Self {
            exponents: send(stream, staging, &exponents)?,
            weights: send(stream, staging, &words)?,
        })
    }
}

fn send<T: Value>(stream: &Stream, staging: &Staging, values: &[T]) -> Result<DeviceMatrix<T>> {
    let mut sent = DeviceMatrix::uninit(stream, 1, values.len())?;
    staging.upload(stream, sent.view_mut(), |_, row| {
        row.copy_from_slice(values);
    })?;
    Ok(sent)
}

impl Accumulator {
    /// Starts with no rows.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows without columns, and [`Error::DeviceMemory`].
    pub fn new(
        stream: &Stream,
        staging: &Staging,
        technique: Technique,
        plan: Plan,
    ) -> Result<Self> {
        if plan.features.is_empty() {
            return Err(Error::Shape {
                what: "feature rows".into(),
                found: "no columns".into(),
                expected: "at least one on this device".into(),
            });
        }
        let columns =
            |exponents: &[i32], weights: &[i128]| Columns::new(stream, staging, exponents, weights);
        let order = plan.order();
        Ok(Self {
            technique,
            features: columns(&plan.features, &plan.of_planes)?,
            targets: columns(&plan.values, &plan.of_pairs)?,
            found: DeviceMatrix::zeros(stream, 1, 2)?,
            setters: DeviceMatrix::zeros(stream, 1, plan.counted())?,
            gram: WideSums::zeros(stream, triangle(order))?,
            cross: WideSums::zeros(stream, order * plan.targets)?,
            planes: None,
            plan,
        })
    }

    /// Adds rows but for those that it names.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows or targets of another shape; [`Error::Parameter`] for a class outside the targets.
    pub fn push<T: Feature>(
        &mut self,
        stream: &Stream,
        staging: &Staging,
        rows: View<'_, T>,
        targets: Targets<'_>,
    ) -> Result<LeftOut> {
        let count = rows.rows();
        self.check(rows, targets)?;
        let flags = DeviceMatrix::<u32>::zeros(stream, 1, count)?;
        let mut done = 0;
        while done < count {
            let take = self.room(stream, (count - done).min(PIECE))?;
            let part = rows.block((done, 0), (take, rows.cols()));
            let flags = flags.view().block((0, done), (1, take));
            self.slice(stream, part, flags, false)?;
            if let Targets::Values(values) = targets {
                let values = values.block((done, 0), (take, values.cols()));
                self.slice(stream, values, flags, true)?;
            }
            self.clear(stream, flags)?;
            if let Targets::Classes(classes) = targets {
                self.cross_classes(stream, staging, part, flags, &classes[done..done + take])?;
            }
            if let Some(planes) = &mut self.planes {
                planes.pending += take.next_multiple_of(ALIGN);
            }
            done += take;
        }
        Ok(LeftOut { flags })
    }

    fn check<T: Value>(&self, rows: View<'_, T>, targets: Targets<'_>) -> Result<()> {
        let (count, plan) = (rows.rows(), &self.plan);
        require("rows", &rows, (count, plan.features.len()))?;
        let of_another_kind = |found: &str| {
            let expected = match (plan.targets, plan.values.len()) {
                (0, _) => "none",
                (_, 0) => "classes",
                _ => "values",
            };
            Err(Error::Shape {
                what: "targets".into(),
                found: found.into(),
                expected: expected.into(),
            })
        };
        match targets {
            Targets::None if plan.targets == 0 => Ok(()),
            Targets::Classes(classes) if plan.values.is_empty() => {
                if classes.len() != count {
                    return Err(Error::Shape {
                        what: "classes".into(),
                        found: classes.len().to_string(),
                        expected: format!("{count}, one a row"),
                    });
                }
                let outside = |class: &&i64| !(0..plan.targets as i64).contains(*class);
                classes.iter().find(outside).map_or(Ok(()), |class| {
                    Err(Error::Parameter {
                        name: "class",
                        value: class.to_string(),
                        expected: format!("a number below {}", plan.targets),
                    })
                })
            }
            Targets::Values(values) if !plan.values.is_empty() => {
                require("targets", &values, (count, plan.targets))
            }
            Targets::None => of_another_kind("none"),
            Targets::Classes(_) => of_another_kind("classes"),
            Targets::Values(_) => of_another_kind("values"),
        }
    }

    /// Lines of the planes of features, and of targets.
    fn lines(&self) -> (usize, usize) {
        let plan = &self.plan;
        (
            plan.order() * plan.of_planes.len(),
            plan.values.len() * plan.digits,
        )
    }

    /// Makes room in the planes for `wanted` rows, or for fewer if they never hold so many; returns how many.
    fn room(&mut self, stream: &Stream, wanted: usize) -> Result<usize> {
        let (in_planes, in_targets) = self.lines();
        let lines = in_planes + in_targets;
        let most = (PLANE_BYTES / lines).clamp(FEWEST, MOST) / EXACT_DEPTH * EXACT_DEPTH;
        let needed = wanted.min(most).next_multiple_of(EXACT_DEPTH);
        let (capacity, pending) = match &self.planes {
            None => (0, 0),
            Some(planes) => (planes.capacity, planes.pending),
        };
        if pending + needed <= capacity {
            return Ok(wanted.min(needed));
        }
        self.fold(stream)?;
        if capacity < most {
            let capacity = most.min((2 * capacity).max(needed));
            // The old ones go back to the pool first.
            self.planes = None;
            let planes = |lines: usize| DeviceMatrix::uninit(stream, lines, capacity);
            self.planes = Some(Planes {
                features: planes(in_planes)?,
                targets: planes(in_targets)?,
                capacity,
                pending: 0,
            });
        }
        Ok(wanted.min(needed))
    }

    /// Cuts rows, or rows of targets, into digits.
    fn slice<T: Feature>(
        &self,
        stream: &Stream,
        rows: View<'_, T>,
        flags: View<'_, u32>,
        targets: bool,
    ) -> Result<()> {
        let Some(planes) = &self.planes else {
            return Ok(());
        };
        let plan = &self.plan;
        let (columns, to, bias) = match targets {
            false => (&self.features, &planes.features, plan.bias),
            true => (&self.targets, &planes.targets, false),
        };
        let (setter, setters) = match plan.setter {
            None => (0, Arg::NULL),
            Some(setter) => {
                let first = if targets { plan.features.len() } else { 0 };
                let of_columns = self.setters.view().block((0, first), (1, rows.cols()));
                (setter as usize, of_columns.into())
            }
        };
        let bits = plan.bits as usize;
        let args = [
            rows.into(),
            rows.pitch().into(),
            rows.rows().into(),
            rows.cols().into(),
            bias.into(),
            columns.exponents.view().into(),
            bits.into(),
            plan.digits.into(),
            (!targets).into(),
            setter.into(),
            to.view().into(),
            to.view().pitch().into(),
            planes.pending.into(),
            flags.into(),
            self.found.view().into(),
            setters,
        ];
        let across = (rows.cols() + usize::from(bias)).div_ceil(SLICE_COLS);
        if across == 0 {
            return Ok(());
        }
        // A few tiles of rows for each thread block, whose counts are then fewer additions.
        let down = rows.rows().div_ceil(SLICE_ROWS).div_ceil(4);
        let geometry = Geometry::new([across, down, 1], [ELEMENT_THREADS, 1]);
        let name = format!("exact_slice_{}", T::NAME);
        let shape = format_args!("{}x{}, {bits} bits", rows.rows(), rows.cols());
        // SAFETY: the arguments are the kernel's. It reads the rows and an exponent for each column, and writes a flag for
        // each row and the planes at `pending` and behind, where `room` has found room for these rows to a multiple of 16.
        unsafe { launch(stream, &name, geometry, &shape, &args) }
    }

    /// Has flagged rows, which begin where the last ones in the planes do, count for nothing.
    fn clear(&self, stream: &Stream, flags: View<'_, u32>) -> Result<()> {
        let Some(planes) = &self.planes else {
            return Ok(());
        };
        let rows = flags.cols();
        let across = rows.div_ceil(4).div_ceil(ELEMENT_THREADS);
        for lines in [&planes.features, &planes.targets] {
            let (view, count) = (lines.view(), lines.rows());
            if count == 0 {
                continue;
            }
            let args = [
                view.into(),
                view.pitch().into(),
                count.into(),
                planes.pending.into(),
                rows.into(),
                flags.into(),
            ];
            let geometry = Geometry::new([across, count.min(64), 1], [ELEMENT_THREADS, 1]);
            let shape = format_args!("{rows} rows of {count} lines");
            // SAFETY: the arguments are the kernel's, which reads a flag for each row and writes where `slice` did.
            unsafe { launch(stream, "exact_clear_s8", geometry, &shape, &args)? };
        }
        Ok(())
    }

    /// Adds rows to the sums of their classes.
    fn cross_classes<T: Feature>(
        &self,
        stream: &Stream,
        staging: &Staging,
        rows: View<'_, T>,
        flags: View<'_, u32>,
        classes: &[i64],
    ) -> Result<()> {
        let plan = &self.plan;
        let (sequence, segments) = by_class(classes, plan.targets);
        let sequence = send(stream, staging, &sequence)?;
        let count = segments.len();
        let segments = send(stream, staging, segments.as_flattened())?;
        let args = [
            rows.into(),
            rows.pitch().into(),
            plan.features.len().into(),
            plan.bias.into(),
            self.features.exponents.view().into(),
            (plan.bits as usize).into(),
            flags.into(),
            sequence.view().into(),
            segments.view().into(),
            plan.targets.into(),
            self.cross.words.view().into(),
        ];
        let geometry = Geometry::new([plan.order().div_ceil(32), count, 1], [ELEMENT_THREADS, 1]);
        let name = format!("exact_cross_{}_class", T::NAME);
        let shape = format_args!("{} rows of {} classes", rows.rows(), plan.targets);
        // SAFETY: the arguments are the kernel's. The sequence is of these rows and the classes are within the targets,
        // for which the sums have `order` × `targets` entries.
        unsafe { launch(stream, &name, geometry, &shape, &args) }
    }

    /// Multiplies the planes, and empties them.
    fn fold(&mut self, stream: &Stream) -> Result<()> {
        let Some(planes) = self.planes.as_mut().filter(|planes| planes.pending > 0) else {
            return Ok(());
        };
        let depth = planes.pending.next_multiple_of(EXACT_DEPTH);
        for lines in [&mut planes.features, &mut planes.targets] {
            let rest = ((0, planes.pending), (lines.rows(), depth - planes.pending));
            lines.view_mut().into_block(rest.0, rest.1).clear(stream)?;
        }
        planes.pending = 0;
        let (features, targets) = (planes.features.view(), planes.targets.view());
        let (order, values) = (self.plan.order(), self.plan.values.len());
        let digits = self.plan.digits;
        let product = Product {
            technique: self.technique,
            depth,
            rows: order,
        };
        product.launch(
            stream,
            "syrk",
            (product.tiles_of_triangle(), order),
            self.plan.of_planes.len(),
            &[
                features.into(),
                features.pitch().into(),
                depth.into(),
                order.into(),
                self.features.weights.view().into(),
                self.gram.words.view().into(),
            ],
        )?;
        if values == 0 {
            return Ok(());
        }
        product.launch(
            stream,
            "cross",
            (
                order.div_ceil(EXACT_ROWS) * values.div_ceil(EXACT_COLS),
                values,
            ),
            self.plan.of_pairs.len(),
            &[
                features.into(),
                features.pitch().into(),
                depth.into(),
                order.into(),
                targets.into(),
                values.into(),
                digits.into(),
                self.targets.weights.view().into(),
                self.cross.words.view().into(),
            ],
        )
    }

    /// Brings the sums to the host, over all rows but those that were left out.
    pub fn fetch(&mut self, stream: &Stream, staging: &Staging) -> Result<Sums> {
        self.fold(stream)?;
        let mut sums = Sums {
            gram: self.gram.fetch(stream, staging)?,
            cross: self.cross.fetch(stream, staging)?,
            moved: 0,
            largest_move: 0.0,
            setters: vec![0; self.setters.cols()],
        };
        staging.download(stream, self.found.view(), |_, found| {
            sums.moved = found[0];
            sums.largest_move = f64::from_bits(found[1]);
        })?;
        staging.download(stream, self.setters.view(), |_, setters| {
            sums.setters.copy_from_slice(setters);
        })?;
        Ok(sums)
    }
}

/// A product of planes, over `depth` rows.
struct Product {
    technique: Technique,
    depth: usize,
    rows: usize,
}

impl Product {
    /// Tiles of the tensor-core kernel with entries on or below the diagonal.
    fn tiles_of_triangle(&self) -> usize {
        let (down, across) = (
            self.rows.div_ceil(EXACT_ROWS),
            self.rows.div_ceil(EXACT_COLS),
        );
        let each = EXACT_ROWS / EXACT_COLS;
        (1..=down).map(|row| (each * row).min(across)).sum()
    }

    fn launch(
        &self,
        stream: &Stream,
        verb: &str,
        (tiles, cols): (usize, usize),
        pairs: usize,
        args: &[Arg],
    ) -> Result<()> {
        let geometry = match self.technique {
            Technique::Mma => {
                let multiprocessors = stream.context().properties().multiprocessors as usize;
                let splits = splits(tiles * pairs, self.depth / EXACT_DEPTH, multiprocessors);
                Geometry::new([tiles, pairs, splits], [EXACT_THREADS, 1]).with_shared(SHARED)
            }
            _ => {
                let side = |n: usize| n.div_ceil(PLAIN_SIDE);
                Geometry::new([side(cols), side(self.rows), pairs], [PLAIN_SIDE; 2])
            }
        };
        let technique = match self.technique {
            Technique::Mma => Technique::Mma,
            _ => Technique::Plain,
        };
        let name = format!("exact_{verb}_s8_{}", technique.name());
        let shape = format_args!("{pairs} products {}x{cols} over {}", self.rows, self.depth);
        // SAFETY: the arguments are the kernel's. The planes hold `depth` rows, a multiple of 64, the last of which are
        // zeros; there is a weight for each product, and an entry of the sums for each of the shape that `new` took.
        unsafe { launch(stream, &name, geometry, &shape, args) }
    }
}

/// Returns how many thread blocks to share the rows of a product between: as few rounds of as little work as can be had.
fn splits(blocks: usize, stages: usize, multiprocessors: usize) -> usize {
    let most = (stages / DRAIN_COST).clamp(1, 64);
    let cost = |splits: &usize| {
        let rounds = (blocks * splits).div_ceil(multiprocessors.max(1));
        rounds * (stages.div_ceil(*splits) + DRAIN_COST)
    };
    (1..=most).min_by_key(cost).unwrap_or(1)
}

/// Returns the numbers of the rows in the order of their classes, and the segments of it: class, first, count.
fn by_class(classes: &[i64], targets: usize) -> (Vec<i64>, Vec<[i64; 3]>) {
    let mut starts = vec![0_usize; targets + 1];
    for &class in classes {
        starts[class as usize + 1] += 1;
    }
    for class in 0..targets {
        starts[class + 1] += starts[class];
    }
    let mut segments = Vec::new();
    for (class, ends) in starts.windows(2).enumerate() {
        for first in (ends[0]..ends[1]).step_by(SEGMENT) {
            let count = SEGMENT.min(ends[1] - first);
            segments.push([class, first, count].map(|n| n as i64));
        }
    }
    let mut sequence = vec![0; classes.len()];
    for (row, &class) in classes.iter().enumerate() {
        let next = &mut starts[class as usize];
        sequence[*next] = row as i64;
        *next += 1;
    }
    (sequence, segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_their_classes() {
        let (sequence, segments) = by_class(&[2, 0, 2, 2, 0], 4);
        assert_eq!(sequence, [1, 4, 0, 2, 3]);
        assert_eq!(segments, [[0, 0, 2], [2, 2, 3]]);
        let (_, segments) = by_class(&[1; SEGMENT + 1], 2);
        assert_eq!(segments, [[1, 0, SEGMENT as i64], [1, SEGMENT as i64, 1]]);
    }

    #[test]
    fn few_tiles_are_shared_between_multiprocessors() {
        // 512 features of four digits over 65,536 rows: 60 tiles.
        assert_eq!(splits(60, 1024, 108), 9);
        assert!((1..60).contains(&splits(60, 1024, 128)));
        // Enough of them, and too few rows.
        assert!(splits(5000, 1024, 132) <= 4);
        assert_eq!(splits(1, 1, 132), 1);
    }
}
