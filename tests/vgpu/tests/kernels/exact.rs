//! Exact sums: digits, and products of planes of them, against integers of 128 bits.

use crate::device::{Buffer, Dtype, Gpu};
use crate::reference::{Random, Table};
use crate::tiles::{EXACT, PLAIN, SLICE};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    (
        "digits_make_up_the_integers_at_every_tile_edge",
        digits_make_up_the_integers_at_every_tile_edge,
    ),
    (
        "digits_of_every_type_and_width_make_up_the_integers",
        digits_of_every_type_and_width_make_up_the_integers,
    ),
    (
        "hostile_values_are_rounded_or_flagged",
        hostile_values_are_rounded_or_flagged,
    ),
    (
        "products_are_exact_at_every_tile_edge",
        products_are_exact_at_every_tile_edge,
    ),
    (
        "products_are_exact_on_the_oldest_device",
        products_are_exact_on_the_oldest_device,
    ),
    (
        "extreme_digits_are_drained_before_they_overflow",
        extreme_digits_are_drained_before_they_overflow,
    ),
    (
        "sums_carry_through_all_their_bits",
        sums_carry_through_all_their_bits,
    ),
    ("sums_of_classes_are_exact", sums_of_classes_are_exact),
];

/// Integers of 7-bit digits: bits, and how many digits.
const WIDTHS: [(usize, usize); 6] = [(13, 2), (20, 3), (22, 4), (27, 4), (34, 5), (41, 6)];
const ALIGN: usize = 16;

fn power(e: i64) -> f64 {
    f64::powi(2.0, e as i32)
}

/// The definition: what a value becomes, unless it is beyond `bits`, and whether it moved.
fn quantise(z: f64, e: i64, bits: usize) -> (Option<i64>, bool) {
    // Exact: exponents here are far from the ends of f64.
    let q = (z / power(e)).round_ties_even();
    let moved = q * power(e) != z;
    let fits = q.abs() < power(bits as i64);
    (fits.then_some(q as i64), moved && z.is_finite())
}

/// Rows on the device and the grid that they are cut by.
struct Sliced<'a> {
    z: &'a Table,
    dtype: Dtype,
    exponents: &'a [i64],
    bits: usize,
    digits: usize,
    bias: bool,
    pairs: bool,
    first: usize,
}

/// What came of it.
struct Outcome {
    /// `[plane][column][row]`, from `first` on, to a multiple of 16 rows.
    planes: Vec<Vec<Vec<i8>>>,
    flags: Vec<bool>,
    moved: u64,
    largest: f64,
    setters: Vec<u64>,
}

impl Sliced<'_> {
    fn columns(&self) -> usize {
        self.z.cols + usize::from(self.bias)
    }

    fn planes(&self) -> usize {
        match self.pairs {
            true => self.digits * (self.digits + 1) / 2,
            false => self.digits,
        }
    }

    fn run(&self, gpu: &Gpu, clear: bool) -> Outcome {
        let (rows, columns) = (self.z.rows, self.columns());
        let padded = rows.next_multiple_of(ALIGN);
        let (lines, pitch) = (self.planes() * columns, self.first + padded);
        let z_pitch = self.z.cols + 1;
        let z = gpu.upload(self.z, self.dtype, z_pitch);
        let exponents = gpu.upload_ids(self.exponents);
        let planes = gpu.empty(lines * pitch);
        let flags = gpu.upload_bytes(&vec![0; 4 * rows]);
        let found = gpu.upload_wide(&[0, 0]);
        let setters = gpu.upload_wide(&vec![0; self.z.cols]);
        let grid = [
            columns.div_ceil(SLICE.1),
            rows.div_ceil(SLICE.0).div_ceil(2),
            1,
        ];
        let name = format!("exact_slice_{}", self.dtype.name());
        let setter = self.bits - 2;
        let args = args![
            &z,
            z_pitch,
            rows,
            self.z.cols,
            self.bias,
            &exponents,
            self.bits,
            self.digits,
            self.pairs,
            setter,
            &planes,
            pitch,
            self.first,
            &flags,
            &found,
            &setters
        ];
        gpu.launch(&name, grid, [256, 1], args);
        if clear {
            let args = args![&planes, pitch, lines, self.first, rows, &flags];
            let grid = [rows.div_ceil(4).div_ceil(256), lines.min(7), 1];
            gpu.launch("exact_clear_s8", grid, [256, 1], args);
        }
        let line = |line: usize| {
            let at = planes.at(line * pitch + self.first);
            let bytes = gpu.bytes(&at, padded);
            bytes.into_iter().map(|b| b as i8).collect()
        };
        let plane = |p: usize| (0..columns).map(|c| line(p * columns + c)).collect();
        let found = gpu.words(&found, 2);
        let flags = gpu.bytes(&flags, 4 * rows);
        Outcome {
            planes: (0..self.planes()).map(plane).collect(),
            flags: flags.as_chunks::<4>().0.iter().map(|f| f[0] != 0).collect(),
            moved: found[0],
            largest: f64::from_bits(found[1]),
            setters: gpu.words(&setters, self.z.cols),
        }
    }

    /// Holds everything against the definition.
    fn check(&self, gpu: &Gpu) {
        let (rows, columns) = (self.z.rows, self.columns());
        let what = format!(
            "{} {rows}x{} of {} bits",
            self.dtype.name(),
            self.z.cols,
            self.bits
        );
        let raw = self.run(gpu, false);
        let cleared = self.run(gpu, true);
        let (mut moved, mut largest) = (0, 0.0_f64);
        for i in 0..rows {
            let mut beyond = false;
            for j in 0..columns {
                let q = if j < self.z.cols {
                    let (z, e) = (self.z[(i, j)], self.exponents[j]);
                    let (q, moves) = quantise(z, e, self.bits);
                    beyond |= q.is_none();
                    if moves {
                        moved += 1;
                        let there = (z / power(e)).round_ties_even() * power(e);
                        largest = largest.max((there - z).abs() / z.abs());
                    }
                    q.unwrap_or(0)
                } else {
                    1
                };
                let digits: Vec<i64> = (0..self.digits)
                    .map(|d| raw.planes[d][j][i].into())
                    .collect();
                let sum: i64 = digits.iter().rev().fold(0, |sum, d| sum * 128 + d);
                assert_eq!(sum, q, "{what}: ({i}, {j})");
                let (last, others) = digits.split_last().expect("digits");
                assert!(last.abs() <= 64, "{what}: {digits:?}");
                assert!(
                    others.iter().all(|d| (-64..64).contains(d)),
                    "{what}: {digits:?}"
                );
                let mut p = self.digits;
                for a in 0..self.digits {
                    for b in a + 1..self.digits {
                        if self.pairs {
                            let pair = i64::from(raw.planes[p][j][i]);
                            assert_eq!(pair, digits[a] + digits[b], "{what}: ({i}, {j})");
                        }
                        p += 1;
                    }
                }
            }
            assert_eq!(raw.flags[i], beyond, "{what}: row {i}");
            for (before, after) in raw.planes.iter().zip(&cleared.planes) {
                for (before, after) in before.iter().zip(after) {
                    let wanted = if beyond { 0 } else { before[i] };
                    assert_eq!(after[i], wanted, "{what}: row {i}, cleared");
                }
            }
        }
        let padding =
            |plane: &Vec<Vec<i8>>| plane.iter().all(|c| c[rows..].iter().all(|&d| d == 0));
        assert!(raw.planes.iter().all(padding), "{what}: padding");
        assert_eq!(raw.moved, moved, "{what}: moved");
        assert_eq!(raw.largest, largest, "{what}: the largest move");
        for j in 0..self.z.cols {
            let least = power(self.exponents[j] + self.bits as i64 - 2);
            let sets = |&i: &usize| self.z[(i, j)].is_finite() && self.z[(i, j)].abs() >= least;
            let wanted = (0..rows).filter(sets).count();
            assert_eq!(raw.setters[j], wanted as u64, "{what}: column {j}");
        }
    }
}

/// Units that leave a bit above values below 2, with some columns beyond and some far below the width.
fn exponents(columns: usize, bits: usize) -> Vec<i64> {
    let unit = 2 - bits as i64;
    let of = |j: usize| match j % 5 {
        3 => unit - 1,
        4 => unit + 6,
        _ => unit,
    };
    (0..columns).map(of).collect()
}

fn digits_make_up_the_integers_at_every_tile_edge() {
    let gpu = Gpu::new(&["exact"]);
    let (rows, cols) = SLICE;
    for (n, (rows, columns)) in [
        (1, 1),
        (rows - 1, cols - 1),
        (rows, cols),
        (rows + 1, cols + 1),
        (5 * rows + 3, 3),
        (7, 2 * cols + 5),
    ]
    .into_iter()
    .enumerate()
    {
        let z = Table::random(rows, columns, Dtype::F32, n as u64);
        Sliced {
            z: &z,
            dtype: Dtype::F32,
            exponents: &exponents(columns, 22),
            bits: 22,
            digits: 4,
            bias: n % 2 == 0,
            pairs: true,
            first: n % 3 * ALIGN,
        }
        .check(&gpu);
    }
}

fn digits_of_every_type_and_width_make_up_the_integers() {
    let gpu = Gpu::new(&["exact"]);
    for dtype in Dtype::ALL {
        for (bits, digits) in WIDTHS {
            let z = Table::random(37, 11, dtype, bits as u64);
            Sliced {
                z: &z,
                dtype,
                exponents: &exponents(11, bits),
                bits,
                digits,
                bias: true,
                pairs: bits % 2 == 1,
                first: 0,
            }
            .check(&gpu);
        }
    }
}

fn hostile_values_are_rounded_or_flagged() {
    let gpu = Gpu::new(&["exact"]);
    for dtype in Dtype::ALL {
        for (bits, digits) in WIDTHS {
            // Halves, neighbours of the width, digits that carry, zeros of both signs, subnormal numbers.
            let top = power(bits as i64);
            let mut values = vec![
                0.0,
                -0.0,
                0.25,
                0.5,
                0.75,
                1.5,
                2.5,
                63.0,
                63.5,
                64.0,
                65.0,
                8191.0,
                8191.5,
                top - 1.0,
                top - 0.5,
                top - 0.25,
                top,
                2.0 * top,
                -top * 64.0,
                top / 4.0,
                top / 4.0 - 0.25,
                top * 128.0 - 1.0,
                5e-8,
                1e-40,
                f64::NAN,
                f64::INFINITY,
                f64::MIN_POSITIVE,
                5e-324,
            ];
            values.extend(values.clone().iter().map(|v| -v));
            // A row each, so that what one of them does is not done by another.
            let z = Table::from_fn(values.len(), 2, |i, j| {
                dtype.round(if j == 0 { values[i] } else { 1.0 })
            });
            Sliced {
                z: &z,
                dtype,
                exponents: &[0, -3],
                bits,
                digits,
                bias: true,
                pairs: true,
                first: ALIGN,
            }
            .check(&gpu);
        }
    }
}

/// A plane of bytes by a pattern, and one of a pattern and its extremes.
fn plane(lines: usize, depth: usize, random: &mut Random) -> Vec<i8> {
    let any = |random: &mut Random| match (random.next() * 4.0) as i64 {
        -7 => -128,
        -6 => 127,
        -5 => -64,
        -4 => 63,
        _ => (random.next() * 63.0) as i64 as i8,
    };
    (0..lines * depth).map(|_| any(random)).collect()
}

fn dot(a: &[i8], b: &[i8]) -> i128 {
    let products = a
        .iter()
        .zip(b)
        .map(|(a, b)| i128::from(*a) * i128::from(*b));
    products.sum()
}

fn words(values: &[i128]) -> Vec<u64> {
    let split = |&value: &i128| [value as u64, (value >> 64) as u64];
    values.iter().flat_map(split).collect()
}

fn wide(words: &[u64]) -> Vec<i128> {
    let pairs = words.as_chunks::<2>().0.iter();
    pairs
        .map(|&[low, high]| i128::from(high) << 64 | i128::from(low))
        .collect()
}

/// The planes of a product and what each counts.
struct Planes<'a> {
    planes: &'a [Vec<i8>],
    order: usize,
    depth: usize,
    weights: &'a [i128],
    before: i128,
}

impl Planes<'_> {
    fn upload(&self, gpu: &Gpu, planes: &[Vec<i8>]) -> Buffer {
        let bytes: Vec<u8> = planes.iter().flatten().map(|&b| b as u8).collect();
        gpu.upload_bytes(&bytes)
    }

    fn syrk(&self, gpu: &Gpu, technique: &str, splits: usize) -> Vec<i128> {
        let (order, depth) = (self.order, self.depth);
        let planes = self.upload(gpu, self.planes);
        let weights = gpu.upload_wide(&words(self.weights));
        let count = order * (order + 1) / 2;
        let sums = gpu.upload_wide(&words(&vec![self.before; count]));
        let tiles: usize = (1..=order.div_ceil(EXACT.rows))
            .map(|row| (2 * row).min(order.div_ceil(EXACT.cols)))
            .sum();
        let (grid, block) = match technique {
            "plain" => (
                [
                    order.div_ceil(PLAIN),
                    order.div_ceil(PLAIN),
                    self.planes.len(),
                ],
                [PLAIN, PLAIN],
            ),
            _ => ([tiles, self.planes.len(), splits], [256, 1]),
        };
        let args = args![&planes, depth, depth, order, &weights, &sums];
        gpu.launch(&format!("exact_syrk_s8_{technique}"), grid, block, args);
        wide(&gpu.words(&sums, 2 * count))
    }

    fn wanted(&self) -> Vec<i128> {
        let mut out = Vec::new();
        for i in 0..self.order {
            for j in 0..=i {
                let mut sum = self.before;
                for (plane, weight) in self.planes.iter().zip(self.weights) {
                    let line = |i: usize| &plane[i * self.depth..][..self.depth];
                    let product = dot(line(i), line(j));
                    sum = sum.wrapping_add(product.wrapping_mul(*weight));
                }
                out.push(sum);
            }
        }
        out
    }

    /// The same for each pair of a plane and one of the targets' planes; weights go pair by pair.
    fn cross(
        &self,
        gpu: &Gpu,
        technique: &str,
        splits: usize,
        (targets, count): (&[Vec<i8>], usize),
    ) -> Vec<i128> {
        let (order, depth, digits) = (self.order, self.depth, self.planes.len());
        let (planes, right) = (self.upload(gpu, self.planes), self.upload(gpu, targets));
        let weights = gpu.upload_wide(&words(self.weights));
        let sums = gpu.upload_wide(&words(&vec![self.before; order * count]));
        let pairs = digits * digits;
        let (grid, block) = match technique {
            "plain" => (
                [count.div_ceil(PLAIN), order.div_ceil(PLAIN), pairs],
                [PLAIN, PLAIN],
            ),
            _ => (
                [
                    order.div_ceil(EXACT.rows) * count.div_ceil(EXACT.cols),
                    pairs,
                    splits,
                ],
                [256, 1],
            ),
        };
        let args = args![
            &planes, depth, depth, order, &right, count, digits, &weights, &sums
        ];
        gpu.launch(&format!("exact_cross_s8_{technique}"), grid, block, args);
        wide(&gpu.words(&sums, 2 * order * count))
    }
}

fn check_products(gpu: &Gpu, techniques: &[&str], orders: &[usize], depths: &[usize]) {
    let mut random = Random(7);
    for (n, &order) in orders.iter().enumerate() {
        let depth = depths[n % depths.len()];
        let planes: Vec<Vec<i8>> = (0..2).map(|_| plane(order, depth, &mut random)).collect();
        let of = Planes {
            planes: &planes,
            order,
            depth,
            weights: &[-(1 << 90) + 12_345, 1 << 70],
            before: -3,
        };
        let wanted = of.wanted();
        for technique in techniques {
            for splits in [1, 3] {
                let found = of.syrk(gpu, technique, splits);
                assert!(found == wanted, "{technique}, order {order}, depth {depth}");
            }
        }
        // Values as targets: as many, one fewer and one more than a tile has.
        let count = [1, 17, EXACT.cols - 1, EXACT.cols + 1][n % 4];
        let targets: Vec<Vec<i8>> = (0..2).map(|_| plane(count, depth, &mut random)).collect();
        let of = Planes {
            weights: &[1, 128, -128, 1 << 66],
            ..of
        };
        let line =
            |planes: &[Vec<i8>], p: usize, i: usize| planes[p][i * depth..][..depth].to_vec();
        let entry = |i: usize, t: usize| -> i128 {
            let pair = |p: usize| {
                let product = dot(&line(&planes, p / 2, i), &line(&targets, p % 2, t));
                product * of.weights[p]
            };
            of.before + (0..4).map(pair).sum::<i128>()
        };
        let wanted: Vec<i128> = (0..order * count)
            .map(|e| entry(e / count, e % count))
            .collect();
        for technique in techniques {
            let found = of.cross(gpu, technique, 2, (&targets, count));
            assert!(
                found == wanted,
                "{technique}: {order}x{count}, depth {depth}"
            );
        }
    }
}

fn products_are_exact_at_every_tile_edge() {
    let gpu = Gpu::new(&["exact"]);
    let orders = [1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 390];
    let depths = [64, 128, 192, 320];
    check_products(&gpu, &["plain", "mma"], &orders, &depths);
}

/// Compute capability 7.5 has the plain kernels, and slices as all do.
fn products_are_exact_on_the_oldest_device() {
    let gpu = Gpu::with(75, &["exact"]);
    check_products(&gpu, &["plain"], &[1, 17], &[64, 128]);
    let z = Table::random(50, 9, Dtype::F16, 3);
    Sliced {
        z: &z,
        dtype: Dtype::F16,
        exponents: &exponents(9, 20),
        bits: 20,
        digits: 3,
        bias: true,
        pairs: true,
        first: 0,
    }
    .check(&gpu);
}

/// (−128)² over so many rows is more than 32 bits hold, and so are 127² and what else is extreme.
fn extreme_digits_are_drained_before_they_overflow() {
    let gpu = Gpu::new(&["exact"]);
    let depth = 2 * EXACT.drain + EXACT.depth;
    assert!(depth * 128 * 128 > i32::MAX as usize);
    let values = [-128_i8, 127, -64, 63];
    let plane: Vec<i8> = values.iter().flat_map(|&v| vec![v; depth]).collect();
    let of = Planes {
        planes: &[plane],
        order: values.len(),
        depth,
        weights: &[1],
        before: 0,
    };
    let wanted = of.wanted();
    assert_eq!(wanted[0], depth as i128 * 128 * 128);
    for (technique, splits) in [("plain", 1), ("mma", 1), ("mma", 2)] {
        assert_eq!(of.syrk(&gpu, technique, splits), wanted, "{technique}");
    }
}

/// A carry out of the lower word, and a borrow into it, from whichever thread block comes last.
fn sums_carry_through_all_their_bits() {
    let gpu = Gpu::new(&["exact"]);
    let planes = [vec![1_i8; 64 * 3], vec![-1_i8; 64 * 3]];
    for before in [
        (1_i128 << 64) - 1,
        -(1_i128 << 64),
        i128::from(u64::MAX) << 60,
        -1,
    ] {
        for weights in [[1_i128 << 62, -(1 << 63)], [-1, (1 << 100) - 1]] {
            let of = Planes {
                planes: &planes,
                order: 3,
                depth: 64,
                weights: &weights,
                before,
            };
            for technique in ["plain", "mma"] {
                assert_eq!(of.syrk(&gpu, technique, 1), of.wanted(), "{technique}");
            }
        }
    }
}

fn sums_of_classes_are_exact() {
    let gpu = Gpu::new(&["exact"]);
    for (n, (rows, columns, targets)) in [(1, 1, 1), (300, 33, 3), (70, 31, 40)]
        .into_iter()
        .enumerate()
    {
        for dtype in Dtype::ALL {
            let (bits, _) = WIDTHS[(n + 2) % 6];
            let z = Table::random(rows, columns, dtype, n as u64);
            let exponents = exponents(columns, bits);
            let flags: Vec<bool> = (0..rows).map(|i| i % 7 == 5).collect();
            let class = |i: usize| (i * i + i / 3) % targets;
            // Classes from the last to the first, each in two segments.
            let (mut sequence, mut segments) = (Vec::new(), Vec::new());
            for wanted in (0..targets).rev() {
                let first = sequence.len();
                sequence.extend((0..rows).filter(|&i| class(i) == wanted).map(|i| i as i64));
                let (count, half) = (sequence.len() - first, (sequence.len() - first) / 2);
                for (first, count) in [(first, half), (first + half, count - half)] {
                    segments.extend([wanted as i64, first as i64, count as i64]);
                }
            }
            let words_of_flags: Vec<u8> = flags
                .iter()
                .flat_map(|&flag| u32::from(flag).to_le_bytes())
                .collect();
            let z_pitch = columns + 1;
            let order = columns + 1;
            let buffers = (
                gpu.upload(&z, dtype, z_pitch),
                gpu.upload_ids(&exponents),
                gpu.upload_bytes(&words_of_flags),
                gpu.upload_ids(&sequence),
                gpu.upload_ids(&segments),
            );
            let sums = gpu.upload_wide(&words(&vec![-1; order * targets]));
            gpu.launch(
                &format!("exact_cross_{}_class", dtype.name()),
                [order.div_ceil(32), segments.len() / 3, 1],
                [256, 1],
                args![
                    &buffers.0, z_pitch, columns, true, &buffers.1, bits, &buffers.2, &buffers.3,
                    &buffers.4, targets, &sums
                ],
            );
            let mut wanted = vec![-1_i128; order * targets];
            for i in (0..rows).filter(|&i| !flags[i]) {
                for j in 0..order {
                    let q = match j < columns {
                        true => quantise(z[(i, j)], exponents[j], bits).0.unwrap_or(0),
                        false => 1,
                    };
                    wanted[j * targets + class(i)] += i128::from(q);
                }
            }
            assert!(
                wide(&gpu.words(&sums, wanted.len() * 2)) == wanted,
                "{dtype:?} {rows}x{columns}, {targets} classes"
            );
        }
    }
}
