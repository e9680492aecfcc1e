//! Sums over rows: G ± ZᵀZ (SYRK) and S ± ZᵀY (GEMM, or a segmented sum by class), added to what is there. The host
//! side of `kernels/gram.cu`.
//!
//! Rows count in blocks of [`ROW_BLOCK`] from the first row of a call, and a block's sum is formed before it is added:
//! calls whose lengths are multiples of it, but for the last, give the bytes of one call with all rows.

use super::class_rows::ClassRows;
use super::matrix::{DeviceMatrix, Feature, Value, View, ViewMut};
use super::module::table::{
    CLASS_COLS, CLASS_SETS, CLASS_THREADS, HALF_THREADS, MIRROR_ROWS, MIRROR_TILE, PLAIN_SIDE,
    TALL_COLS, TALL_ROWS, TILE, TILE_HALF, TILE_NARROW, TILE_THREADS,
};
use super::module::{Arg, Geometry, Technique, launch, require, triangle};
use super::stream::Stream;
use crate::error::{Error, Result};

pub use super::module::table::ROW_BLOCK;

/// Partial sums of a split launch take at most this many bytes.
const PARTIAL_BYTES: usize = 64 << 20;
/// Row blocks that a launch may have: a limit of the grid.
const MOST_BLOCKS: usize = 65_535;
/// Warps of a multiprocessor that hide what its memory takes.
const RESIDENT_WARPS: usize = 16;
/// Strips of a tile.
const STRIPS: usize = TILE / TILE_NARROW;

/// Targets Y of the rows in S = ZᵀY.
#[derive(Clone, Copy, Debug)]
pub enum Labels<'a> {
    /// A class each, which stands for the one-hot row.
    Classes(&'a ClassRows),
    /// A row of values each.
    F32(View<'a, f32>),
    /// A row of values each.
    F64(View<'a, f64>),
}

/// Computes the lower triangle of G += sign · ZᵀZ, for G of order features, or features + 1 with a bias: one more
/// feature that is always 1.
pub fn update<T: Feature>(
    stream: &Stream,
    technique: Technique,
    rows: View<'_, T>,
    bias: bool,
    sign: f64,
    mut gram: ViewMut<'_, f64>,
) -> Result<()> {
    let (features, order) = (rows.cols(), rows.cols() + usize::from(bias));
    require("G", &gram, (order, order))?;
    if rows.is_empty() {
        return Ok(());
    }
    let (across, block) = match technique {
        Technique::Plain => ([order.div_ceil(PLAIN_SIDE); 2], [PLAIN_SIDE; 2]),
        Technique::Mma => (
            [triangle(features.div_ceil(TILE_HALF)), 1],
            [HALF_THREADS, 1],
        ),
        Technique::Fma | Technique::Dmma => {
            ([triangle(features.div_ceil(TILE)), 1], [TILE_THREADS, 1])
        }
    };
    let may_be_narrow =
        matches!(technique, Technique::Fma | Technique::Dmma) && features > TILE_NARROW;
    let multiprocessors = stream.context().properties().multiprocessors as usize;
    let (out, pitch) = (Arg::from(gram.as_view()), gram.pitch());
    let sum = Sum {
        tiles: across[0] * across[1],
        lower: true,
        sign,
    };
    sum.by_row_blocks(stream, rows.rows(), &mut gram, |part| {
        let z = rows.block((part.first, 0), (part.count, features));
        let (verb, strips) = if may_be_narrow && narrow(across[0] * part.depth, multiprocessors) {
            ("narrow", STRIPS)
        } else {
            ("syrk", 1)
        };
        let name = format!("gram_{verb}_{}_{}", T::NAME, technique.name());
        let grid = match technique {
            Technique::Plain => [across[0], across[1], part.depth],
            _ => [across[0] * strips, part.depth, 1],
        };
        let args = [
            z.into(),
            z.pitch().into(),
            z.rows().into(),
            features.into(),
            bias.into(),
            sign.into(),
            out,
            pitch.into(),
            part.partials,
        ];
        let shape = format_args!("Z {}x{features}, G {order}x{order}", z.rows());
        let geometry = Geometry::new(grid, block);
        // SAFETY: the arguments are the kernel's. It reads the rows of `z` and writes the lower triangle of G, whose
        // order was checked above, or the partial sums that `by_row_blocks` has allocated for these row blocks.
        unsafe { launch(stream, &name, geometry, &shape, &args) }
    })
}

/// Returns whether to cut the tiles of G into strips, a thread block each: where the busiest multiprocessor then has a
/// sixth less to do. Less than that is not worth half as much again to load. The bytes are the same.
fn narrow(tiles: usize, multiprocessors: usize) -> bool {
    let rounds = |blocks: usize| blocks.div_ceil(multiprocessors.max(1));
    6 * rounds(STRIPS * tiles) <= 5 * STRIPS * rounds(tiles)
}

/// Computes S += sign · ZᵀY, for S of (features + bias) × targets.
pub fn cross<T: Feature>(
    stream: &Stream,
    technique: Technique,
    rows: View<'_, T>,
    bias: bool,
    labels: Labels<'_>,
    sign: f64,
    sums: ViewMut<'_, f64>,
) -> Result<()> {
    let order = rows.cols() + usize::from(bias);
    require("ZᵀY", &sums, (order, sums.cols()))?;
    match labels {
        Labels::Classes(y) => classes(stream, technique, rows, bias, y, sign, sums),
        Labels::F32(y) => product(stream, technique, rows, bias, y, sign, sums),
        Labels::F64(y) => product(stream, technique, rows, bias, y, sign, sums),
    }
}

/// Cross sums with a row of values each, by multiplication.
fn product<T: Feature, Y: Value>(
    stream: &Stream,
    technique: Technique,
    rows: View<'_, T>,
    bias: bool,
    y: View<'_, Y>,
    sign: f64,
    mut sums: ViewMut<'_, f64>,
) -> Result<()> {
    let (features, order, targets) = (rows.cols(), sums.rows(), sums.cols());
    require("targets", &y, (rows.rows(), targets))?;
    if rows.is_empty() || targets == 0 {
        return Ok(());
    }
    let (technique, across, block) = match technique {
        Technique::Plain => (
            technique,
            [targets.div_ceil(PLAIN_SIDE), order.div_ceil(PLAIN_SIDE)],
            [PLAIN_SIDE; 2],
        ),
        // Few columns: bound by reading Z, which tensor cores do not make faster.
        _ => (
            Technique::Fma,
            [features.div_ceil(TALL_ROWS), targets.div_ceil(TALL_COLS)],
            [TILE_THREADS, 1],
        ),
    };
    let name = format!("gram_cross_{}_{}_{}", T::NAME, Y::NAME, technique.name());
    let (out, pitch) = (Arg::from(sums.as_view()), sums.pitch());
    let sum = Sum {
        tiles: across[0] * across[1],
        lower: false,
        sign,
    };
    sum.by_row_blocks(stream, rows.rows(), &mut sums, |part| {
        let (first, count) = (part.first, part.count);
        let z = rows.block((first, 0), (count, features));
        let args = [
            z.into(),
            z.pitch().into(),
            count.into(),
            features.into(),
            bias.into(),
            y.block((first, 0), (count, targets)).into(),
            y.pitch().into(),
            targets.into(),
            sign.into(),
            out,
            pitch.into(),
            part.partials,
        ];
        let shape = format_args!("Z {count}x{features}, targets {targets}");
        let geometry = Geometry::new([across[0], across[1], part.depth], block);
        // SAFETY: the arguments are the kernel's. It reads the rows of `z` and `y`, which were checked to be as many,
        // and writes S, whose shape was checked, or the partial sums that `by_row_blocks` has allocated.
        unsafe { launch(stream, &name, geometry, &shape, &args) }
    })
}

/// Cross sums with a class each, by a segmented sum: the bytes of the product with one-hot rows.
fn classes<T: Feature>(
    stream: &Stream,
    technique: Technique,
    rows: View<'_, T>,
    bias: bool,
    y: &ClassRows,
    sign: f64,
    mut sums: ViewMut<'_, f64>,
) -> Result<()> {
    let (order, targets) = (sums.rows(), sums.cols());
    if y.shape() != (rows.rows(), targets) {
        return Err(Error::Shape {
            what: "rows by class".into(),
            found: format!("{} rows of {} classes", y.shape().0, y.shape().1),
            expected: format!("{} rows of {targets} classes", rows.rows()),
        });
    }
    if y.members() == 0 || rows.is_empty() {
        return Ok(());
    }
    let (members, runs) = y.members_and_runs();
    let sets = Sets {
        rows,
        bias,
        members: members.into(),
        row_block: ROW_BLOCK,
    };
    let multiprocessors = stream.context().properties().multiprocessors as usize;
    let fits = y.runs() * order <= PARTIAL_BYTES / size_of::<f64>();
    let technique = match technique {
        Technique::Plain => "plain",
        _ => "segmented",
    };
    let of_runs = technique == "segmented" && fits && runs_first(y, order, multiprocessors);
    if !of_runs {
        return sets.add(stream, technique, y.starts(), sign, &mut sums);
    }
    let mut partials = DeviceMatrix::<f64>::uninit(stream, y.runs(), order)?;
    sets.store(stream, runs, &mut partials.view_mut())?;
    let sets = Sets {
        rows: partials.view(),
        bias: false,
        members: Arg::NULL,
        row_block: 1,
    };
    sets.add(stream, technique, y.first_runs(), sign, &mut sums)
}

/// Returns whether to sum each run, a class within a row block, and then the runs of each class: where the largest class
/// would keep its warps busy when the others are long done. The bytes are the same.
fn runs_first(y: &ClassRows, order: usize, multiprocessors: usize) -> bool {
    let work = y.members() * order.div_ceil(CLASS_COLS);
    let warps = multiprocessors * RESIDENT_WARPS;
    y.runs() > y.present() && y.longest() * warps > 2 * work
}

/// Rows of which sets are summed, a warp a set and a slice of columns.
struct Sets<'a, T> {
    rows: View<'a, T>,
    bias: bool,
    /// The row numbers that a set is a range of, or null where it is a range of rows.
    members: Arg,
    /// Rows whose sum is formed before it is added.
    row_block: usize,
}

impl<T: Feature> Sets<'_, T> {
    /// Adds sign times the sum of each set to its column of `sums`.
    fn add(
        &self,
        stream: &Stream,
        technique: &str,
        starts: View<'_, u32>,
        sign: f64,
        sums: &mut ViewMut<'_, f64>,
    ) -> Result<()> {
        let (order, sets) = (sums.rows(), sums.cols());
        let geometry = match technique {
            "plain" => Geometry::new(
                [sets.div_ceil(PLAIN_SIDE), order.div_ceil(PLAIN_SIDE), 1],
                [PLAIN_SIDE; 2],
            ),
            _ => Self::walk(sets, order),
        };
        let name = format!("gram_classes_{}_{technique}", T::NAME);
        self.launch(stream, &name, geometry, (starts, sign), sums.as_view())
    }

    /// Writes the sum of each set, which lies in one row block, to its row of `sums`.
    fn store(
        &self,
        stream: &Stream,
        starts: View<'_, u32>,
        sums: &mut ViewMut<'_, f64>,
    ) -> Result<()> {
        let name = format!("gram_runs_{}", T::NAME);
        let geometry = Self::walk(sums.rows(), sums.cols());
        self.launch(stream, &name, geometry, (starts, 1.0), sums.as_view())
    }

    fn walk(sets: usize, order: usize) -> Geometry {
        let blocks = sets.div_ceil(CLASS_SETS) * order.div_ceil(CLASS_COLS);
        Geometry::new([blocks, 1, 1], [CLASS_THREADS, 1])
    }

    fn launch(
        &self,
        stream: &Stream,
        name: &str,
        geometry: Geometry,
        (starts, sign): (View<'_, u32>, f64),
        out: View<'_, f64>,
    ) -> Result<()> {
        let (z, sets) = (self.rows, starts.cols() - 1);
        let args = [
            z.into(),
            z.pitch().into(),
            z.cols().into(),
            self.bias.into(),
            self.members,
            starts.into(),
            sets.into(),
            self.row_block.into(),
            sign.into(),
            out.into(),
            out.pitch().into(),
        ];
        let shape = format_args!("Z {}x{}, {sets} sets", z.rows(), z.cols());
        // SAFETY: the arguments are the kernel's. It reads the rows that are listed, all of which `ClassRows` has found
        // below the number of rows, or those of the partial sums, and writes sums of as many sets as `starts` has.
        unsafe { launch(stream, name, geometry, &shape, &args) }
    }
}

/// Copies the lower triangle of a square matrix to the upper one.
pub fn mirror(stream: &Stream, matrix: ViewMut<'_, f64>) -> Result<()> {
    let n = matrix.rows();
    require("matrix to mirror", &matrix, (n, n))?;
    if n == 0 {
        return Ok(());
    }
    let side = n.div_ceil(MIRROR_TILE);
    let geometry = Geometry::new([side, side, 1], [MIRROR_TILE, MIRROR_ROWS]);
    let args = [matrix.as_view().into(), matrix.pitch().into(), n.into()];
    // SAFETY: the arguments are the kernel's, which stays inside the n × n matrix.
    unsafe {
        launch(
            stream,
            "gram_mirror_f64",
            geometry,
            &format_args!("{n}x{n}"),
            &args,
        )
    }
}

/// Launch plan of a sum over rows.
struct Sum {
    /// Thread blocks that one row block keeps busy.
    tiles: usize,
    /// Restricts the result to the lower triangle.
    lower: bool,
    sign: f64,
}

/// Some of the rows, in one launch.
struct Part {
    first: usize,
    count: usize,
    /// Buffer for each row block's sum, or null: a thread block then walks the row blocks and adds to the result.
    partials: Arg,
    /// Row blocks side by side.
    depth: usize,
}

impl Sum {
    /// Cuts the rows into launches. Where the result has too few tiles to fill the device, row blocks are summed side by
    /// side and folded afterwards, in the same order and so to the same bytes.
    fn by_row_blocks(
        &self,
        stream: &Stream,
        rows: usize,
        out: &mut ViewMut<'_, f64>,
        launch_part: impl Fn(Part) -> Result<()>,
    ) -> Result<()> {
        let blocks = rows.div_ceil(ROW_BLOCK);
        let part_values = out.rows() * out.pitch();
        let busy = 2 * stream.context().properties().multiprocessors as usize;
        let fit = PARTIAL_BYTES / (part_values * size_of::<f64>());
        let split = blocks > 1 && self.tiles < busy && fit > 1;
        let most = if split {
            fit.min(MOST_BLOCKS)
        } else {
            MOST_BLOCKS
        };
        for block in (0..blocks).step_by(most) {
            let depth = most.min(blocks - block);
            let first = block * ROW_BLOCK;
            let count = (depth * ROW_BLOCK).min(rows - first);
            if !split {
                launch_part(Part {
                    first,
                    count,
                    partials: Arg::NULL,
                    depth: 1,
                })?;
                continue;
            }
            let partials = DeviceMatrix::<f64>::uninit(stream, 1, depth * part_values)?;
            launch_part(Part {
                first,
                count,
                partials: partials.view().into(),
                depth,
            })?;
            self.fold(stream, &partials, depth, out)?;
        }
        Ok(())
    }

    /// out += sign · Σ partials, in order.
    fn fold(
        &self,
        stream: &Stream,
        partials: &DeviceMatrix<f64>,
        depth: usize,
        out: &mut ViewMut<'_, f64>,
    ) -> Result<()> {
        let (rows, cols) = (out.rows(), out.cols());
        let grid = [cols.div_ceil(PLAIN_SIDE), rows.div_ceil(PLAIN_SIDE), 1];
        let args = [
            partials.view().into(),
            depth.into(),
            rows.into(),
            cols.into(),
            self.lower.into(),
            self.sign.into(),
            out.as_view().into(),
            out.pitch().into(),
        ];
        let geometry = Geometry::new(grid, [PLAIN_SIDE; 2]);
        let shape = format_args!("{depth} sums of {rows}x{cols}");
        // SAFETY: the arguments are the kernel's; `partials` holds `depth` matrices of the result's rows and pitch.
        unsafe { launch(stream, "gram_fold_f64", geometry, &shape, &args) }
    }
}

#[cfg(test)]
mod tests {
    use super::narrow;

    /// 512 features are 36 tiles, 4,096 rows eight row blocks.
    #[test]
    fn tiles_are_cut_where_whole_ones_leave_multiprocessors_idle() {
        let tiles = 36 * 8;
        // RTX 4090 and H100: three rounds of whole tiles, of which the last is nearly empty, against five of strips.
        assert!(narrow(tiles, 128) && narrow(tiles, 132));
        // A100: three full rounds either way.
        assert!(!narrow(tiles, 108));
        // A few tiles on a large device, and many.
        assert!(narrow(1, 132));
        assert!(!narrow(36 * 98, 132));
    }
}
