//! gram: G = ZᵀZ and ZᵀY.

use crate::device::{Arg, Buffer, Dtype, Gpu, NULL, even};
use crate::reference::{Dot, Random, Table};
use crate::tiles::{PLAIN, ROW_BLOCK, TALL, TILE, TILE_HALF, TILE_NARROW};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    ("gram_holds_at_every_width", gram_holds_at_every_width),
    (
        "gram_holds_at_every_number_of_rows",
        gram_holds_at_every_number_of_rows,
    ),
    (
        "gram_holds_for_every_type_and_pitch",
        gram_holds_for_every_type_and_pitch,
    ),
    (
        "gram_of_halves_holds_over_row_blocks",
        gram_of_halves_holds_over_row_blocks,
    ),
    (
        "gram_of_nearly_dependent_columns_keeps_its_digits",
        gram_of_nearly_dependent_columns_keeps_its_digits,
    ),
    (
        "batches_that_end_at_row_blocks_cannot_be_told_apart",
        batches_that_end_at_row_blocks_cannot_be_told_apart,
    ),
    ("cross_sums_hold", cross_sums_hold),
    (
        "mirror_copies_the_lower_triangle",
        mirror_copies_the_lower_triangle,
    ),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Direct,
    Split,
}

fn triangle(t: usize) -> usize {
    t * (t + 1) / 2
}

/// The rows of Z on the device and how they are to be summed.
struct Rows<'a> {
    z: &'a Table,
    dtype: Dtype,
    pitch: usize,
    bias: bool,
}

impl Rows<'_> {
    fn order(&self) -> usize {
        self.z.cols + usize::from(self.bias)
    }

    /// Adds sign·ZᵀZ to `gram`; the technique is the end of a symbol, with the verb before it unless that is `syrk`.
    fn syrk(&self, gpu: &Gpu, technique: &str, mode: Mode, sign: f64, gram: &Table) -> Table {
        let (order, features, rows) = (self.order(), self.z.cols, self.z.rows);
        let pitch = even(order) + 2;
        let z = gpu.upload(self.z, self.dtype, self.pitch);
        let out = gpu.upload(gram, Dtype::F64, pitch);
        let blocks = rows.div_ceil(ROW_BLOCK);
        // The last row has no slack, and nothing above the diagonal may be written.
        let partials = gpu.room(blocks * order, order, pitch);
        let (lanes, target) = match mode {
            Mode::Direct => (1, NULL),
            Mode::Split => (blocks, Arg::from(&partials)),
        };
        let (grid, block) = match technique {
            "plain" => (
                [order.div_ceil(PLAIN), order.div_ceil(PLAIN), lanes],
                [PLAIN, PLAIN],
            ),
            "mma" => ([triangle(features.div_ceil(TILE_HALF)), lanes, 1], [256, 1]),
            _ => ([triangle(features.div_ceil(TILE)), lanes, 1], [128, 1]),
        };
        let (verb, technique) = technique.split_once(' ').unwrap_or(("syrk", technique));
        let strips = if verb == "narrow" {
            TILE / TILE_NARROW
        } else {
            1
        };
        let grid = [grid[0] * strips, grid[1], grid[2]];
        let name = format!("gram_{verb}_{}_{technique}", self.dtype.name());
        let args = args![
            &z, self.pitch, rows, features, self.bias, sign, &out, pitch, target
        ];
        gpu.launch(&name, grid, block, args);
        if mode == Mode::Split {
            fold(
                gpu,
                &partials,
                (blocks, order, order, true),
                sign,
                &out,
                pitch,
            );
        }
        gpu.download(&out, order, order, pitch)
    }

    /// ZᵀY from zero, `y` as class ids or values.
    fn cross(&self, gpu: &Gpu, technique: &str, mode: Mode, y: &Targets<'_>) -> Table {
        let (order, features, rows) = (self.order(), self.z.cols, self.z.rows);
        let (kind, targets, y_pitch, values) = y.upload(gpu);
        let pitch = even(targets);
        let z = gpu.upload(self.z, self.dtype, self.pitch);
        let out = gpu.upload(&Table::zeros(order, targets), Dtype::F64, pitch);
        let blocks = rows.div_ceil(ROW_BLOCK);
        let partials = gpu.empty(blocks * order * pitch * 8);
        let (lanes, target) = match mode {
            Mode::Direct => (1, NULL),
            Mode::Split => (blocks, Arg::from(&partials)),
        };
        let (grid, block) = match technique {
            "plain" => (
                [targets.div_ceil(PLAIN), order.div_ceil(PLAIN), lanes],
                [PLAIN, PLAIN],
            ),
            _ => (
                [features.div_ceil(TALL.0), targets.div_ceil(TALL.1), lanes],
                [128, 1],
            ),
        };
        let name = format!("gram_cross_{}_{kind}_{technique}", self.dtype.name());
        let args = args![
            &z, self.pitch, rows, features, self.bias, &values, y_pitch, targets, 1.0, &out, pitch,
            target
        ];
        gpu.launch(&name, grid, block, args);
        if mode == Mode::Split {
            fold(
                gpu,
                &partials,
                (blocks, order, targets, false),
                1.0,
                &out,
                pitch,
            );
        }
        gpu.download(&out, order, targets, pitch)
    }
}

fn fold(
    gpu: &Gpu,
    partials: &Buffer,
    (blocks, rows, cols, lower): (usize, usize, usize, bool),
    sign: f64,
    out: &Buffer,
    pitch: usize,
) {
    let grid = [cols.div_ceil(PLAIN), rows.div_ceil(PLAIN), 1];
    let args = args![partials, blocks, rows, cols, lower, sign, out, pitch];
    gpu.launch("gram_fold_f64", grid, [PLAIN, PLAIN], args);
}

enum Targets<'a> {
    Classes(&'a [i64], usize),
    Values(&'a Table, Dtype),
}

impl Targets<'_> {
    fn upload(&self, gpu: &Gpu) -> (&'static str, usize, usize, Buffer) {
        match *self {
            Self::Classes(ids, count) => ("class", count, 0, gpu.upload_ids(ids)),
            Self::Values(table, dtype) => {
                let pitch = even(table.cols);
                let buffer = gpu.upload(table, dtype, pitch);
                (dtype.name(), table.cols, pitch, buffer)
            }
        }
    }
}

/// What was in G before: the sums must be added to it, and what lies above the diagonal left alone.
fn initial(order: usize) -> Table {
    Table::from_fn(
        order,
        order,
        |i, j| if j > i { -7.0 } else { (i + 2 * j) as f64 },
    )
}

/// Checks initial + sign·ZᵀZ entry by entry; `share` is the error of a sum of n terms, in units of n·u.
fn check_gram(found: &Table, z: &Table, sign: f64, share: f64, what: &str) {
    let before = initial(z.cols);
    let columns = z.transposed();
    for i in 0..z.cols {
        for j in 0..z.cols {
            let entry = found[(i, j)];
            if j > i {
                assert_eq!(
                    entry,
                    before[(i, j)],
                    "{what}: above the diagonal at ({i}, {j})"
                );
                continue;
            }
            let blocks = z.rows.div_ceil(ROW_BLOCK) as f64;
            let roundings = z.rows.min(ROW_BLOCK) as f64 * share + blocks + 2.0;
            let mut sum = Dot::default();
            sum.add(1.0, before[(i, j)]);
            for (a, b) in columns.row(i).iter().zip(columns.row(j)) {
                sum.add(sign * a, *b);
            }
            sum.check(entry, roundings, format_args!("{what} ({i}, {j})"));
        }
    }
}

/// The techniques of a type, with their error in units of n·u. Halves on the tensor cores sum in f32, and may truncate.
fn techniques(dtype: Dtype) -> Vec<(&'static str, f64)> {
    let names = ["plain", "fma", "narrow fma", "dmma", "narrow dmma"];
    let mut list: Vec<_> = names.map(|name| (name, 1.0)).into();
    if matches!(dtype, Dtype::F16 | Dtype::Bf16) {
        list.push(("mma", f64::from(1_u32 << 30)));
    }
    list
}

fn check_all(gpu: &Gpu, rows: &Rows<'_>, sign: f64) {
    let full = if rows.bias {
        rows.z.with_ones()
    } else {
        rows.z.clone()
    };
    let (mut plain, mut dmma) = (None, None);
    for (technique, share) in techniques(rows.dtype) {
        let before = initial(rows.order());
        let what = format!(
            "{} {technique} {}x{} pitch {} bias {}",
            rows.dtype.name(),
            rows.z.rows,
            rows.z.cols,
            rows.pitch,
            rows.bias
        );
        let direct = rows.syrk(gpu, technique, Mode::Direct, sign, &before);
        let split = rows.syrk(gpu, technique, Mode::Split, sign, &before);
        assert_eq!(direct, split, "{what}: one thread block or many");
        check_gram(&direct, &full, sign, share, &what);
        match technique {
            "plain" => plain = Some(direct),
            "fma" | "narrow fma" => {
                assert_eq!(Some(direct), plain, "{what}: the bytes of the plain kernel");
            }
            "dmma" => dmma = Some(direct),
            "narrow dmma" => assert_eq!(Some(direct), dmma, "{what}: the bytes of whole tiles"),
            _ => {}
        }
    }
}

fn gram_holds_at_every_width() {
    let gpu = Gpu::new(&["gram"]);
    for (n, features) in [1, TILE - 1, TILE, TILE + 1, 3 * TILE + 5]
        .into_iter()
        .enumerate()
    {
        let z = Table::random(70, features, Dtype::F32, n as u64);
        let rows = Rows {
            z: &z,
            dtype: Dtype::F32,
            pitch: features.next_multiple_of(4),
            bias: n % 2 == 0,
        };
        check_all(&gpu, &rows, 1.0);
    }
}

fn gram_holds_at_every_number_of_rows() {
    let gpu = Gpu::new(&["gram"]);
    for (n, count) in [1, 15, 16, 17, 511, 512, 513, 3 * ROW_BLOCK + 5]
        .into_iter()
        .enumerate()
    {
        let z = Table::random(count, 33, Dtype::F32, n as u64);
        check_all(
            &gpu,
            &Rows {
                z: &z,
                dtype: Dtype::F32,
                pitch: 36,
                bias: true,
            },
            -1.0,
        );
    }
}

fn gram_holds_for_every_type_and_pitch() {
    let gpu = Gpu::new(&["gram"]);
    for (n, dtype) in Dtype::ALL.into_iter().enumerate() {
        // Aligned and cut within a chunk; not aligned, so that rows start anywhere.
        for (features, pitch) in [(130, 136), (71, 71), (129, 131)] {
            let z = Table::random(100, features, dtype, 10 + n as u64);
            check_all(
                &gpu,
                &Rows {
                    z: &z,
                    dtype,
                    pitch,
                    bias: n % 2 == 1,
                },
                1.0,
            );
        }
    }
}

fn gram_of_halves_holds_over_row_blocks() {
    let gpu = Gpu::new(&["gram"]);
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let z = Table::random(2 * ROW_BLOCK + 33, TILE_HALF + 1, dtype, 21);
        let rows = Rows {
            z: &z,
            dtype,
            pitch: TILE_HALF + 8,
            bias: true,
        };
        check_all(&gpu, &rows, -1.0);
    }
}

fn gram_of_nearly_dependent_columns_keeps_its_digits() {
    let gpu = Gpu::new(&["gram"]);
    // Columns that agree to one part in a million: the smallest eigenvalue of G is 1e-12 of the greatest.
    let common = Table::random(600, 1, Dtype::F64, 5);
    let noise = Table::random(600, 65, Dtype::F64, 6);
    let z = Table::from_fn(600, 65, |i, j| {
        Dtype::F32.round(common[(i, 0)] + 1e-6 * noise[(i, j)])
    });
    check_all(
        &gpu,
        &Rows {
            z: &z,
            dtype: Dtype::F32,
            pitch: 65,
            bias: true,
        },
        1.0,
    );
}

fn batches_that_end_at_row_blocks_cannot_be_told_apart() {
    let gpu = Gpu::new(&["gram"]);
    let z = Table::random(2 * ROW_BLOCK + 40, 40, Dtype::F32, 3);
    let part = |from: usize, to: usize| Table {
        rows: to - from,
        cols: z.cols,
        data: z.data[from * z.cols..to * z.cols].to_vec(),
    };
    let push = |z: &Table, gram: &Table, mode| {
        let rows = Rows {
            z,
            dtype: Dtype::F32,
            pitch: 40,
            bias: true,
        };
        rows.syrk(&gpu, "dmma", mode, 1.0, gram)
    };
    let zero = Table::zeros(41, 41);
    let at_once = push(&z, &zero, Mode::Split);
    let first = push(&part(0, ROW_BLOCK), &zero, Mode::Direct);
    let both = push(&part(ROW_BLOCK, z.rows), &first, Mode::Split);
    assert_eq!(at_once, both);
    // And taking rows away is adding them with the other sign.
    let rows = Rows {
        z: &z,
        dtype: Dtype::F32,
        pitch: 40,
        bias: true,
    };
    let gone = rows.syrk(&gpu, "dmma", Mode::Direct, -1.0, &at_once);
    let largest = gone.data.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    assert!(largest < 1e-10, "{largest:e} left of G − G");
}

fn cross_sums_hold() {
    let gpu = Gpu::new(&["gram"]);
    let mut random = Random(11);
    let shapes = [
        (1, 1, 1),
        (37, 127, 15),
        (511, 128, 16),
        (512, 129, 17),
        (513, 5, 53),
        (1100, 389, 3),
    ];
    for (n, (count, features, targets)) in shapes.into_iter().enumerate() {
        let dtype = Dtype::ALL[n % 4];
        let z = Table::random(count, features, dtype, n as u64);
        // Some ids are outside: those rows count for nothing.
        let ids: Vec<i64> = (0..count)
            .map(|_| (random.next() * targets as f64) as i64)
            .collect();
        let hot = Table::from_fn(count, targets, |i, j| {
            f64::from(u8::from(ids[i] == j as i64))
        });
        let values = Table::random(count, targets, Dtype::F32, 50 + n as u64);
        let kinds = [
            (Targets::Classes(&ids, targets), &hot),
            (Targets::Values(&values, Dtype::F32), &values),
            (Targets::Values(&values, Dtype::F64), &values),
        ];
        for (y, table) in &kinds {
            let rows = Rows {
                z: &z,
                dtype,
                pitch: features + n % 2,
                bias: n % 2 == 0,
            };
            let plain = rows.cross(&gpu, "plain", Mode::Direct, y);
            for mode in [Mode::Direct, Mode::Split] {
                assert_eq!(
                    rows.cross(&gpu, "fma", mode, y),
                    plain,
                    "{dtype:?} {count}x{features}x{targets}"
                );
            }
            let full = if rows.bias { z.with_ones() } else { z.clone() };
            let (columns, wanted) = (full.transposed(), table.transposed());
            for i in 0..full.cols {
                for j in 0..targets {
                    let what = format_args!("{dtype:?} {count}x{features}x{targets} ({i}, {j})");
                    let dot = Dot::of(columns.row(i), wanted.row(j));
                    dot.check(plain[(i, j)], count as f64 + 2.0, what);
                }
            }
        }
    }
}

fn mirror_copies_the_lower_triangle() {
    let gpu = Gpu::new(&["gram"]);
    for n in [1, 31, 32, 33, 101] {
        let a = Table::random(n, n, Dtype::F64, n as u64);
        let buffer = gpu.upload(&a, Dtype::F64, even(n));
        let side = n.div_ceil(32);
        gpu.launch(
            "gram_mirror_f64",
            [side, side, 1],
            [32, 8],
            args![&buffer, even(n), n],
        );
        let found = gpu.download(&buffer, n, n, even(n));
        assert_eq!(found, Table::from_fn(n, n, |i, j| a[(i.max(j), i.min(j))]));
    }
}
