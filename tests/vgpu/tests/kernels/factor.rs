//! cholesky and trisolve.

use crate::device::{Buffer, Dtype, Gpu, even};
use crate::reference::{Dot, Table, U};
use crate::tiles::{FACTOR_BLOCK as BLOCK, TALL, TILE};
use crate::{Test, args};

/// The tests, for `main.rs`.
pub(crate) const TESTS: &[Test] = &[
    ("factor_holds", factor_holds),
    ("a_failing_pivot_is_named", a_failing_pivot_is_named),
    ("pivots_are_the_extremes", pivots_are_the_extremes),
    ("solve_and_refine_hold", solve_and_refine_hold),
    ("inverse_diagonal_holds", inverse_diagonal_holds),
];

const ORDERS: [usize; 6] = [1, 63, 64, 65, 130, 197];

fn triangle(t: usize) -> usize {
    t * (t + 1) / 2
}

/// A factor on the device.
struct Factor {
    n: usize,
    pitch: usize,
    l: Buffer,
    status: Buffer,
}

impl Factor {
    fn new(gpu: &Gpu, a: &Table, ridge: f64, technique: &str) -> Self {
        let n = a.rows;
        let pitch = even(n);
        // Above the diagonal nothing may be read.
        let lower = Table::from_fn(n, n, |i, j| if j > i { f64::NAN } else { a[(i, j)] });
        let l = gpu.upload(&lower, Dtype::F64, pitch);
        let status = gpu.empty(16);
        let args = args![&l, pitch, n, ridge, &status];
        gpu.launch(
            "cholesky_ridge_f64",
            [n.div_ceil(256), 1, 1],
            [256, 1],
            args,
        );
        if technique == "plain" {
            gpu.launch(
                "cholesky_factor_f64_plain",
                [1, 1, 1],
                [256, 1],
                args![&l, pitch, n, &status],
            );
        } else {
            for first in (0..n).step_by(BLOCK) {
                let args = args![&l, pitch, n, first, &status];
                gpu.launch("cholesky_diagonal_f64", [1, 1, 1], [256, 1], args);
                if first + BLOCK < n {
                    let rest = n - first - BLOCK;
                    gpu.launch(
                        "cholesky_panel_f64",
                        [rest.div_ceil(BLOCK), 1, 1],
                        [64, 1],
                        args,
                    );
                    let tiles = triangle(rest.div_ceil(TILE));
                    let name = format!("cholesky_update_f64_{technique}");
                    gpu.launch(&name, [tiles, 1, 1], [128, 1], args);
                }
            }
        }
        Self {
            n,
            pitch,
            l,
            status,
        }
    }

    fn status(&self, gpu: &Gpu) -> (i64, f64) {
        let bytes = gpu.bytes(&self.status, 16);
        let words = bytes.as_chunks::<8>().0;
        (i64::from_le_bytes(words[0]), f64::from_le_bytes(words[1]))
    }

    fn lower(&self, gpu: &Gpu) -> Table {
        let l = gpu.download(&self.l, self.n, self.n, self.pitch);
        Table::from_fn(self.n, self.n, |i, j| if j > i { 0.0 } else { l[(i, j)] })
    }

    fn inverses(&self, gpu: &Gpu) -> Buffer {
        let blocks = self.n.div_ceil(BLOCK);
        let inverses = gpu.empty(blocks * BLOCK * BLOCK * 8);
        let args = args![&self.l, self.pitch, self.n, &inverses];
        gpu.launch("trisolve_invert_f64", [blocks, 1, 1], [64, 1], args);
        inverses
    }

    /// One sweep over the blocks of `b` (n × `columns`), from `start` down, or from the last block up to it.
    fn sweep(
        &self,
        gpu: &Gpu,
        inverses: &Buffer,
        (b, columns): (&Buffer, usize),
        technique: &str,
        (start, back): (usize, bool),
    ) {
        let (n, b_pitch) = (self.n, even(columns));
        let mut blocks: Vec<usize> = (start..n).step_by(BLOCK).collect();
        if back {
            blocks.reverse();
        }
        for first in blocks {
            let args = args![inverses, n, first, back, b, b_pitch, columns];
            gpu.launch(
                "trisolve_block_f64",
                [columns.div_ceil(TALL.1), 1, 1],
                [128, 1],
                args,
            );
            let rows = if back {
                first
            } else {
                n.saturating_sub(first + BLOCK)
            };
            if rows > 0 {
                let direction = if back { "backward" } else { "forward" };
                let name = format!("trisolve_{direction}_f64_{technique}");
                let grid = [rows.div_ceil(TALL.0), columns.div_ceil(TALL.1), 1];
                gpu.launch(
                    &name,
                    grid,
                    [128, 1],
                    args![&self.l, self.pitch, n, first, b, b_pitch, columns],
                );
            }
        }
    }

    fn solve(&self, gpu: &Gpu, b: &Table, technique: &str) -> Table {
        let pitch = even(b.cols);
        let x = gpu.upload(b, Dtype::F64, pitch);
        if technique == "plain" {
            let args = args![&self.l, self.pitch, self.n, &x, pitch, b.cols];
            gpu.launch(
                "trisolve_solve_f64_plain",
                [b.cols.div_ceil(256), 1, 1],
                [256, 1],
                args,
            );
        } else {
            let inverses = self.inverses(gpu);
            self.sweep(gpu, &inverses, (&x, b.cols), technique, (0, false));
            self.sweep(gpu, &inverses, (&x, b.cols), technique, (0, true));
        }
        gpu.download(&x, self.n, b.cols, pitch)
    }
}

/// B − (A + ridge·I)X on the device.
fn residual(gpu: &Gpu, a: &Table, ridge: f64, x: &Table, b: &Table, technique: &str) -> Table {
    let (n, columns) = (a.rows, x.cols);
    let (pitch, wide) = (even(n), even(columns));
    let (da, dx) = (
        gpu.upload(a, Dtype::F64, pitch),
        gpu.upload(x, Dtype::F64, wide),
    );
    // In place of B, which is allowed.
    let db = gpu.upload(b, Dtype::F64, wide);
    let (grid, block) = match technique {
        "plain" => ([columns.div_ceil(16), n.div_ceil(16), 1], [16, 16]),
        _ => ([n.div_ceil(TALL.0), columns.div_ceil(TALL.1), 1], [128, 1]),
    };
    let args = args![
        &da, pitch, n, ridge, &dx, wide, &db, wide, columns, &db, wide
    ];
    gpu.launch(
        &format!("trisolve_residual_f64_{technique}"),
        grid,
        block,
        args,
    );
    gpu.download(&db, n, columns, wide)
}

/// ZᵀZ of `rows` random rows whose columns agree to `apart`.
fn gram(rows: usize, n: usize, apart: f64, seed: u64) -> Table {
    let common = Table::random(rows, 1, Dtype::F64, seed);
    let noise = Table::random(rows, n, Dtype::F64, seed + 1);
    let columns = Table::from_fn(n, rows, |j, i| {
        common[(i, 0)] * (1.0 - apart) + apart * noise[(i, j)]
    });
    Table::from_fn(n, n, |i, j| {
        Dot::of(columns.row(i.max(j)), columns.row(i.min(j))).value()
    })
}

fn largest(a: &Table) -> f64 {
    a.data.iter().fold(0.0, |m, x| f64::max(m, x.abs()))
}

/// |A + λI − LLᵀ| ≤ (n + 2)·u·|L||L|ᵀ, entry by entry: the bound of every order of summation.
fn check_factor(l: &Table, a: &Table, ridge: f64, what: &str) {
    let n = a.rows;
    for i in 0..n {
        for j in 0..=i {
            let mut rest = Dot::of(&l.row(i)[..=j], &l.row(j)[..=j]);
            let size = rest.size;
            rest.add(-1.0, a[(i, j)]);
            if i == j {
                rest.add(-1.0, ridge);
            }
            let bound = (n as f64 + 2.0) * U * size + U * a[(i, j)].abs();
            let error = rest.value().abs();
            assert!(
                error <= bound,
                "{what} ({i}, {j}): off by {error:e} > {bound:e}"
            );
        }
    }
}

fn factor_holds() {
    let gpu = Gpu::new(&["cholesky"]);
    for n in ORDERS {
        // Well conditioned, and with ‖A‖/λ = 1e12.
        for apart in [1.0, 1e-3] {
            let a = gram(2 * n + 3, n, apart, n as u64);
            let ridge = if apart < 1.0 {
                largest(&a) * n as f64 * 1e-12
            } else {
                0.5
            };
            for technique in ["plain", "fma", "dmma"] {
                let factor = Factor::new(&gpu, &a, ridge, technique);
                let what = format!("{technique} {n} apart {apart}");
                assert_eq!(factor.status(&gpu), (-1, 0.0), "{what}");
                check_factor(&factor.lower(&gpu), &a, ridge, &what);
            }
        }
    }
}

fn a_failing_pivot_is_named() {
    let gpu = Gpu::new(&["cholesky"]);
    for (n, bad) in [(1, 0), (64, 63), (70, 3), (150, 64), (150, 149)] {
        let mut a = gram(2 * n, n, 1.0, 7);
        a[(bad, bad)] = -1.0;
        let found: Vec<(i64, f64)> = ["plain", "fma", "dmma"]
            .map(|technique| Factor::new(&gpu, &a, 0.0, technique).status(&gpu))
            .to_vec();
        for (pivot, value) in &found {
            assert_eq!(*pivot, bad as i64, "{n}");
            assert!(
                *value < 0.0 && (value / found[0].1 - 1.0).abs() < 1e-10,
                "{found:?}"
            );
        }
    }
    // A pivot of nothing at all, in the first block and after an update: all of the arithmetic before it is exact.
    for (n, bad) in [(3, 2), (80, 70)] {
        let twin = |i: usize| if i == bad { bad - 1 } else { i };
        let a = Table::from_fn(n, n, |i, j| f64::from(u8::from(twin(i) == twin(j))));
        for technique in ["plain", "fma", "dmma"] {
            let status = Factor::new(&gpu, &a, 0.0, technique).status(&gpu);
            assert_eq!(status, (bad as i64, 0.0), "{technique} {n}");
        }
    }
    let mut a = gram(20, 8, 1.0, 7);
    a[(5, 2)] = f64::NAN;
    let (pivot, value) = Factor::new(&gpu, &a, 0.0, "fma").status(&gpu);
    assert!(pivot == 5 && value.is_nan());
}

fn pivots_are_the_extremes() {
    let gpu = Gpu::new(&["cholesky"]);
    for n in [1, 255, 300] {
        let l = Table::random(n, n, Dtype::F64, n as u64);
        let buffer = gpu.upload(&l, Dtype::F64, even(n));
        let out = gpu.empty(16);
        gpu.launch(
            "cholesky_pivots_f64",
            [1, 1, 1],
            [256, 1],
            args![&buffer, even(n), n, &out],
        );
        let found = gpu.download(&out, 1, 2, 2);
        let squares: Vec<f64> = (0..n).map(|i| l[(i, i)] * l[(i, i)]).collect();
        let least = squares.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = squares.iter().copied().fold(0.0, f64::max);
        assert_eq!(found.data, [least, greatest]);
    }
}

fn solve_and_refine_hold() {
    let gpu = Gpu::new(&["cholesky", "trisolve"]);
    for (n, columns) in [(1, 1), (63, 15), (64, 16), (65, 17), (130, 3), (197, 53)] {
        for apart in [1.0, 1e-3] {
            let a = gram(2 * n + 3, n, apart, n as u64);
            let ridge = if apart < 1.0 {
                largest(&a) * n as f64 * 1e-12
            } else {
                0.5
            };
            let b = Table::random(n, columns, Dtype::F64, 40 + n as u64);
            for technique in ["plain", "fma", "dmma"] {
                let what = format!("{technique} {n}x{columns} apart {apart}");
                let factor = Factor::new(
                    &gpu,
                    &a,
                    ridge,
                    if technique == "plain" {
                        "fma"
                    } else {
                        technique
                    },
                );
                let mut x = factor.solve(&gpu, &b, technique);
                let first = backward_error(&a, ridge, &x, &b);
                // Inverted diagonal blocks may cost the digits of a block's condition; the factor alone must not.
                let limit = if technique == "plain" {
                    4.0 * n as f64 * U
                } else {
                    1e-8
                };
                assert!(first <= limit, "{what}: backward error {first:e}");
                let r = residual(&gpu, &a, ridge, &x, &b, "fma");
                assert_eq!(
                    r,
                    residual(&gpu, &a, ridge, &x, &b, "plain"),
                    "{what}: residual"
                );
                check_residual(&r, &a, ridge, &x, &b, &what);
                let step = factor.solve(&gpu, &r, technique);
                x.data.iter_mut().zip(&step.data).for_each(|(x, d)| *x += d);
                let refined = backward_error(&a, ridge, &x, &b);
                assert!(
                    refined <= 4.0 * n as f64 * U,
                    "{what}: backward error {refined:e} after a step, {first:e} before"
                );
            }
        }
    }
}

fn check_residual(r: &Table, a: &Table, ridge: f64, x: &Table, b: &Table, what: &str) {
    let columns = x.transposed();
    for i in 0..a.rows {
        for j in 0..x.cols {
            let mut dot = Dot::default();
            for (a, x) in a.row(i).iter().zip(columns.row(j)) {
                dot.add(-a, *x);
            }
            dot.add(-ridge, x[(i, j)]);
            dot.add(1.0, b[(i, j)]);
            dot.check(
                r[(i, j)],
                a.rows as f64 + 3.0,
                format_args!("{what}: residual ({i}, {j})"),
            );
        }
    }
}

/// max |B − (A + λI)X| / (‖A + λI‖ ‖X‖ + ‖B‖) by columns, in the maximum norm.
fn backward_error(a: &Table, ridge: f64, x: &Table, b: &Table) -> f64 {
    let norm = (0..a.rows)
        .map(|i| a.row(i).iter().map(|v| v.abs()).sum::<f64>() + ridge)
        .fold(0.0, f64::max);
    let (xs, bs) = (x.transposed(), b.transposed());
    let mut worst = 0.0_f64;
    for j in 0..x.cols {
        let size = |column: &[f64]| column.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let scale = norm * size(xs.row(j)) + size(bs.row(j));
        for i in 0..a.rows {
            let mut dot = Dot::of(a.row(i), xs.row(j));
            dot.add(ridge, x[(i, j)]);
            dot.add(-1.0, b[(i, j)]);
            worst = worst.max(dot.value().abs() / scale);
        }
    }
    worst
}

fn inverse_diagonal_holds() {
    let gpu = Gpu::new(&["cholesky", "trisolve"]);
    for n in [1, 64, 65, 150] {
        let a = gram(2 * n + 3, n, 1.0, n as u64);
        let factor = Factor::new(&gpu, &a, 0.5, "fma");
        let inverses = factor.inverses(&gpu);
        let mut found = Vec::new();
        // Strips of 128 columns, so that the last starts at a later block.
        for first in (0..n).step_by(128) {
            let columns = (n - first).min(128);
            let x = gpu.room(n, columns, even(columns));
            let args = args![&x, even(columns), n, first, columns];
            let grid = [columns.div_ceil(16), n.div_ceil(16), 1];
            gpu.launch("trisolve_identity_f64", grid, [16, 16], args);
            factor.sweep(&gpu, &inverses, (&x, columns), "fma", (first, false));
            let out = gpu.empty(columns * 8);
            let args = args![&x, even(columns), n, first, columns, &out];
            gpu.launch(
                "trisolve_squares_f64",
                [columns.div_ceil(16), 1, 1],
                [16, 16],
                args,
            );
            found.extend(gpu.download(&out, 1, columns, columns).data);
        }
        let identity = Table::from_fn(n, n, |i, j| f64::from(u8::from(i == j)));
        let inverse = factor.solve(&gpu, &identity, "plain");
        for (j, value) in found.iter().enumerate() {
            let wanted = inverse[(j, j)];
            assert!(
                (value - wanted).abs() <= 1e-12 * wanted,
                "{n}: ({j}) {value} for {wanted}"
            );
        }
    }
}
