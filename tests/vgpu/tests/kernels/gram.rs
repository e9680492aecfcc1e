//! gram: G = ZᵀZ and ZᵀY.

use crate::device::{Arg, Buffer, Dtype, Gpu, NULL, even};
use crate::reference::{Dot, Random, Table};
use crate::tiles::{CLASS_COLS, CLASS_SETS, PLAIN, ROW_BLOCK, TALL, TILE, TILE_HALF, TILE_NARROW};
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
        "sums_by_class_are_products_with_one_hot_rows",
        sums_by_class_are_products_with_one_hot_rows,
    ),
    (
        "batches_of_classes_cannot_be_told_apart",
        batches_of_classes_cannot_be_told_apart,
    ),
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

    /// ZᵀY from zero, with values that are stored as `kind`.
    fn cross(&self, gpu: &Gpu, technique: &str, mode: Mode, (y, kind): (&Table, Dtype)) -> Table {
        let zero = Table::zeros(self.order(), y.cols);
        self.add_cross(gpu, technique, mode, (y, kind), 1.0, &zero)
    }

    /// Adds sign·ZᵀY to `before`.
    fn add_cross(
        &self,
        gpu: &Gpu,
        technique: &str,
        mode: Mode,
        (y, kind): (&Table, Dtype),
        sign: f64,
        before: &Table,
    ) -> Table {
        let (order, features, rows) = (self.order(), self.z.cols, self.z.rows);
        let (targets, pitch) = (y.cols, even(y.cols));
        let values = gpu.upload(y, kind, pitch);
        let z = gpu.upload(self.z, self.dtype, self.pitch);
        let out = gpu.upload(before, Dtype::F64, pitch);
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
        let name = format!(
            "gram_cross_{}_{}_{technique}",
            self.dtype.name(),
            kind.name()
        );
        let args = args![
            &z, self.pitch, rows, features, self.bias, &values, pitch, targets, sign, &out, pitch,
            target
        ];
        gpu.launch(&name, grid, block, args);
        if mode == Mode::Split {
            fold(
                gpu,
                &partials,
                (blocks, order, targets, false),
                sign,
                &out,
                pitch,
            );
        }
        gpu.download(&out, order, targets, pitch)
    }

    /// Adds sign times the sums of the rows of each class to `before`. `technique` is the end of a symbol, or `runs`:
    /// each class within a row block first.
    fn classes(
        &self,
        gpu: &Gpu,
        technique: &str,
        ids: &[usize],
        sign: f64,
        before: &Table,
    ) -> Table {
        let (order, features, targets) = (self.order(), self.z.cols, before.cols);
        let pitch = even(targets);
        let z = gpu.upload(self.z, self.dtype, self.pitch);
        let out = gpu.upload(before, Dtype::F64, pitch);
        let sets = Sets::new(ids, targets);
        let members = gpu.upload_words(&sets.members);
        let slices = order.div_ceil(CLASS_COLS);
        let walk = |sets: usize| ([sets.div_ceil(CLASS_SETS) * slices, 1, 1], [256, 1]);
        let starts = gpu.upload_words(&sets.classes);
        let name = |verb: &str, rest: &str| format!("gram_{verb}_{}{rest}", self.dtype.name());
        if technique == "runs" {
            let (runs, row) = (sets.runs.len() - 1, even(order));
            let run_starts = gpu.upload_words(&sets.runs);
            let partials = gpu.room(runs.max(1), order, row);
            let (grid, block) = walk(runs);
            let args = args![
                &z,
                self.pitch,
                features,
                self.bias,
                &members,
                &run_starts,
                runs,
                ROW_BLOCK,
                1.0,
                &partials,
                row
            ];
            if runs > 0 {
                gpu.launch(&name("runs", ""), grid, block, args);
            }
            let (grid, block) = walk(targets);
            let first_runs = gpu.upload_words(&sets.first_runs);
            let args = args![
                &partials,
                row,
                order,
                false,
                NULL,
                &first_runs,
                targets,
                1,
                sign,
                &out,
                pitch
            ];
            gpu.launch("gram_classes_f64_segmented", grid, block, args);
        } else {
            let (grid, block) = match technique {
                "plain" => (
                    [targets.div_ceil(PLAIN), order.div_ceil(PLAIN), 1],
                    [PLAIN, PLAIN],
                ),
                _ => walk(targets),
            };
            let args = args![
                &z, self.pitch, features, self.bias, &members, &starts, targets, ROW_BLOCK, sign,
                &out, pitch
            ];
            gpu.launch(
                &name("classes", &format!("_{technique}")),
                grid,
                block,
                args,
            );
        }
        gpu.download(&out, order, targets, pitch)
    }
}

/// Rows by class.
pub(crate) struct Sets {
    /// Row numbers, class after class, each class in order.
    pub(crate) members: Vec<u32>,
    /// Where each class begins among them, and their number.
    pub(crate) classes: Vec<u32>,
    /// Where each run begins, a class within a row block, and their number.
    pub(crate) runs: Vec<u32>,
    /// The first run of each class, and the number of runs.
    pub(crate) first_runs: Vec<u32>,
}

impl Sets {
    /// Rows of classes that are not below `count` are in no set.
    pub(crate) fn new(ids: &[usize], count: usize) -> Self {
        let (mut members, mut classes, mut runs, mut first_runs) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for class in 0..count {
            classes.push(members.len() as u32);
            first_runs.push(runs.len() as u32);
            let mut block = None;
            for row in (0..ids.len()).filter(|&row| ids[row] == class) {
                if block != Some(row / ROW_BLOCK) {
                    block = Some(row / ROW_BLOCK);
                    runs.push(members.len() as u32);
                }
                members.push(row as u32);
            }
        }
        classes.push(members.len() as u32);
        first_runs.push(runs.len() as u32);
        runs.push(members.len() as u32);
        Self {
            members,
            classes,
            runs,
            first_runs,
        }
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
        let values = Table::random(count, targets, Dtype::F32, 50 + n as u64);
        for kind in [Dtype::F32, Dtype::F64] {
            let y = (&values, kind);
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
            let (columns, wanted) = (full.transposed(), values.transposed());
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

/// What the values of `table` are as bits.
fn bits(table: &Table) -> Vec<u64> {
    table.data.iter().map(|x| x.to_bits()).collect()
}

/// Checks every way of summing by class against the product with one-hot rows given as values: the same bytes.
fn check_classes(gpu: &Gpu, rows: &Rows<'_>, ids: &[usize], targets: usize, sign: f64) {
    let before = Table::from_fn(rows.order(), targets, |i, j| {
        (i as f64 - 2.5) / (j + 3) as f64
    });
    let hot = Table::from_fn(ids.len(), targets, |i, j| f64::from(u8::from(ids[i] == j)));
    let y = (&hot, Dtype::F64);
    let dense = bits(&rows.add_cross(gpu, "fma", Mode::Direct, y, sign, &before));
    for technique in ["plain", "segmented", "runs"] {
        let found = rows.classes(gpu, technique, ids, sign, &before);
        assert!(
            bits(&found) == dense,
            "{technique} {} {}x{} pitch {} bias {} of {targets} classes",
            rows.dtype.name(),
            rows.z.rows,
            rows.z.cols,
            rows.pitch,
            rows.bias
        );
    }
}

fn sums_by_class_are_products_with_one_hot_rows() {
    let gpu = Gpu::new(&["gram"]);
    let mut random = Random(11);
    let shapes = [
        (1, 1, 1),
        (511, CLASS_COLS - 1, 2),
        (512, CLASS_COLS, 10),
        (513, CLASS_COLS + 1, 17),
        (1100, 2 * CLASS_COLS + 1, 100),
        (1537, 3, 1000),
        (700, CLASS_COLS, CLASS_SETS),
        (33, 5, CLASS_SETS + 1),
    ];
    for (n, (count, features, targets)) in shapes.into_iter().enumerate() {
        for (d, dtype) in Dtype::ALL.into_iter().enumerate() {
            let z = Table::random(count, features, dtype, (10 * n + d) as u64);
            let rows = Rows {
                z: &z,
                dtype,
                pitch: features + (n + d) % 3,
                bias: (n + d) % 2 == 0,
            };
            let sign = if n % 2 == 0 { 1.0 } else { -1.0 };
            // Some ids are outside: those rows count for nothing.
            let mut id = || ((random.next() + 2.0) / 4.0 * (targets + 1) as f64) as usize;
            let mixed: Vec<_> = (0..count).map(|_| id()).collect();
            check_classes(&gpu, &rows, &mixed, targets, sign);
            if d > 0 {
                continue;
            }
            // All rows in one class, the last; half of the classes without a row; no row in any class.
            let one = vec![targets - 1; count];
            let odd: Vec<_> = mixed.iter().map(|id| id | 1).collect();
            let none = vec![targets; count];
            for ids in [one, odd, none] {
                check_classes(&gpu, &rows, &ids, targets, sign);
            }
        }
    }
}

fn batches_of_classes_cannot_be_told_apart() {
    let gpu = Gpu::new(&["gram"]);
    let z = Table::random(3 * ROW_BLOCK + 40, 40, Dtype::F32, 3);
    let ids: Vec<usize> = (0..z.rows).map(|i| i * i % 7).collect();
    let part = |from: usize, to: usize| Table {
        rows: to - from,
        cols: z.cols,
        data: z.data[from * z.cols..to * z.cols].to_vec(),
    };
    let push = |technique, (from, to): (usize, usize), before: &Table| {
        let rows = Rows {
            z: &part(from, to),
            dtype: Dtype::F32,
            pitch: 40,
            bias: true,
        };
        rows.classes(&gpu, technique, &ids[from..to], 1.0, before)
    };
    let zero = Table::zeros(41, 7);
    let at_once = push("segmented", (0, z.rows), &zero);
    let first = push("runs", (0, 2 * ROW_BLOCK), &zero);
    let both = push("segmented", (2 * ROW_BLOCK, z.rows), &first);
    assert_eq!(bits(&at_once), bits(&both));
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
