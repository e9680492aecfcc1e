//! The engine's contract: right to the last digits, and the same bytes for any threads and batches.
//!
//! The bodies take the engine and the sizes; here they are given the CPU's, in `gpu` those of a CUDA device.

use half::{bf16, f16};
use muso::Error;
use muso::Result;
use muso::engine::{Blocks, CpuEngine, Engine, Matrix, Rows, Sums, SumsSpec, Targets};

use crate::support::{EPS, engine, gauss_solve, gaussian, identity, matmul, minus, relative};

const BLOCKS: Blocks = CpuEngine::blocks();

/// One below, at and one above each side of a tile or block, and 1; ascending.
pub(crate) fn edges(sides: &[usize]) -> Vec<usize> {
    let mut sizes: Vec<usize> = sides.iter().flat_map(|&s| [s - 1, s, s + 1]).collect();
    sizes.push(1);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|&size| size > 0);
    sizes
}

/// Edges of the tiles and blocks inside the CPU engine, and several at once plus a rest.
fn sizes() -> Vec<usize> {
    let mut sizes = edges(&[BLOCKS.step, BLOCKS.panel, BLOCKS.factor]);
    sizes.extend([
        3 * BLOCKS.panel + 5,
        4 * BLOCKS.panel,
        5 * BLOCKS.factor + BLOCKS.panel - 4,
    ]);
    sizes
}

/// An engine with nothing of its own but what every engine must have, so that the trait's own methods are put to the test.
struct Bare(CpuEngine);

impl Engine for Bare {
    type Accumulator = <CpuEngine as Engine>::Accumulator;
    type Factor = <CpuEngine as Engine>::Factor;

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn accumulator(&self, spec: SumsSpec) -> Result<Self::Accumulator> {
        self.0.accumulator(spec)
    }

    fn accumulate(
        &self,
        sums: &mut Self::Accumulator,
        rows: Rows<'_>,
        targets: Targets<'_>,
    ) -> Result<()> {
        self.0.accumulate(sums, rows, targets)
    }

    fn finish(&self, sums: Self::Accumulator) -> Result<Sums> {
        self.0.finish(sums)
    }

    fn roundings(&self, rows: u64) -> f64 {
        self.0.roundings(rows)
    }

    fn kernel_matrix(&self, left: Rows<'_>, right: Rows<'_>, bias: bool) -> Result<Matrix> {
        self.0.kernel_matrix(left, right, bias)
    }

    fn project(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Matrix> {
        self.0.project(rows, weights)
    }

    fn project_argmax(&self, rows: Rows<'_>, weights: &Matrix) -> Result<Vec<u32>> {
        self.0.project_argmax(rows, weights)
    }

    fn pull_back(&self, rows: Rows<'_>, coefficients: &Matrix, bias: bool) -> Result<Matrix> {
        self.0.pull_back(rows, coefficients, bias)
    }

    fn factor(&self, matrix: &Matrix, ridge: f64) -> Result<Self::Factor> {
        self.0.factor(matrix, ridge)
    }

    fn pivots(&self, factor: &Self::Factor) -> (f64, f64) {
        self.0.pivots(factor)
    }

    fn solve(&self, factor: &Self::Factor, rhs: &Matrix) -> Result<Matrix> {
        self.0.solve(factor, rhs)
    }

    fn inverse_diagonal(&self, factor: &Self::Factor) -> Result<Vec<f64>> {
        self.0.inverse_diagonal(factor)
    }
}

fn sums(engine: &impl Engine, z: Rows<'_>, bias: bool, targets: usize, t: Targets<'_>) -> Sums {
    let spec = SumsSpec {
        features: z.cols(),
        bias,
        targets,
    };
    let mut acc = engine.accumulator(spec).unwrap();
    engine.accumulate(&mut acc, z, t).unwrap();
    engine.finish(acc).unwrap()
}

fn with_ones(z: &Matrix) -> Matrix {
    Matrix::from_fn(z.rows(), z.cols() + 1, |i, j| {
        if j < z.cols() { z[(i, j)] } else { 1.0 }
    })
}

/// A·B, and how far each entry may be off: 2k roundings of the sum of magnitudes that went into it.
fn product(a: &Matrix, b: &Matrix) -> (Matrix, Matrix) {
    let abs = |m: &Matrix| Matrix::from_fn(m.rows(), m.cols(), |i, j| m[(i, j)].abs());
    let sizes = matmul(&abs(a), &abs(b));
    let k = 2.0 * a.cols() as f64;
    (matmul(a, b), sizes.zip(&sizes, |size, _| k * EPS * size))
}

/// Every entry of A·B within its roundings.
fn assert_close(found: &Matrix, a: &Matrix, b: &Matrix, what: &str) {
    let (wanted, allowed) = product(a, b);
    assert_eq!(
        (found.rows(), found.cols()),
        (wanted.rows(), wanted.cols()),
        "{what}"
    );
    for i in 0..wanted.rows() {
        for j in 0..wanted.cols() {
            let allowed = allowed[(i, j)];
            let error = (found[(i, j)] - wanted[(i, j)]).abs();
            assert!(
                error <= allowed,
                "{what} ({i},{j}): off by {error:e}, allowed {allowed:e}"
            );
        }
    }
}

#[test]
fn gram_and_cross_match_the_definition_at_every_tile_edge() {
    let mut rows = edges(&[BLOCKS.rows]);
    rows.push(2 * BLOCKS.rows + BLOCKS.panel + 3);
    check_sums(&engine(), &sizes(), &rows);
}

pub(crate) fn check_sums(engine: &impl Engine, sizes: &[usize], rows: &[usize]) {
    for (case, &d) in sizes.iter().enumerate() {
        for &n in rows {
            for bias in [false, true] {
                let z = gaussian(n, d, case as u64);
                let y = gaussian(n, 1 + case % 10, 99);
                let classes: Vec<i64> = (0..n as i64).map(|i| i * 7 % 5).collect();
                let full = if bias { with_ones(&z) } else { z.clone() };
                let zt = full.transpose();
                let what = format!("n={n} d={d} bias={bias}");
                let dense = sums(
                    engine,
                    z.as_rows(),
                    bias,
                    y.cols(),
                    Targets::Values(y.as_rows()),
                );
                assert_eq!(dense.rows, n as u64);
                assert_close(&dense.gram, &zt, &full, &format!("G {what}"));
                assert_close(&dense.cross, &zt, &y, &format!("ZᵀY {what}"));
                let one_hot =
                    Matrix::from_fn(n, 5, |i, j| f64::from(u8::from(classes[i] == j as i64)));
                let hard = sums(engine, z.as_rows(), bias, 5, Targets::Classes(&classes));
                assert_eq!(hard.gram, dense.gram, "{what}");
                assert_close(&hard.cross, &zt, &one_hot, &format!("class sums {what}"));
            }
        }
    }
}

#[test]
fn products_match_the_definition_at_every_tile_edge() {
    let mut rows = edges(&[BLOCKS.panel, BLOCKS.task]);
    rows.push(2 * BLOCKS.task + BLOCKS.panel + 10);
    check_products(&engine(), &sizes(), &rows);
    check_products(&engine(), &edges(&[BLOCKS.depth]), &[BLOCKS.panel + 1]);
}

pub(crate) fn check_products(engine: &impl Engine, sizes: &[usize], rows: &[usize]) {
    for (case, &d) in sizes.iter().enumerate() {
        for &n in rows {
            let c = sizes[(case * 5 + n) % sizes.len()];
            let z = gaussian(n, d, case as u64);
            let what = format!("n={n} d={d} c={c}");
            let w = gaussian(d, c, 3);
            assert_close(&engine.project(z.as_rows(), &w).unwrap(), &z, &w, &what);
            let biased = gaussian(d + 1, c, 4);
            let found = engine.project(z.as_rows(), &biased).unwrap();
            assert_close(&found, &with_ones(&z), &biased, &what);
            let argmax = engine.project_argmax(z.as_rows(), &biased).unwrap();
            for i in 0..n {
                let row = found.row(i);
                let best = (0..c)
                    .rev()
                    .max_by(|&a, &b| row[a].total_cmp(&row[b]))
                    .unwrap();
                assert_eq!(argmax[i] as usize, best, "{what}");
            }
            let other = gaussian(c, d, 5);
            let kernel = engine
                .kernel_matrix(z.as_rows(), other.as_rows(), true)
                .unwrap();
            assert_close(
                &kernel,
                &with_ones(&z),
                &with_ones(&other).transpose(),
                &what,
            );
            let a = gaussian(n, c, 6);
            let pulled = engine.pull_back(z.as_rows(), &a, true).unwrap();
            assert_close(&pulled, &with_ones(&z).transpose(), &a, &what);
        }
    }
}

#[test]
fn random_features_and_row_norms_match_the_definition() {
    let rows = edges(&[BLOCKS.panel, BLOCKS.task]);
    for engine in [engine(), engine().portable()] {
        check_fourier_features(&engine, &sizes(), &rows);
        check_row_norms(&engine, &sizes(), &rows);
    }
    let bare = Bare(engine());
    check_fourier_features(&bare, &edges(&[BLOCKS.panel]), &rows);
    check_row_norms(&bare, &edges(&[BLOCKS.panel]), &rows);
    // More rows than are projected at a time.
    check_row_norms(&bare, &[3], &edges(&[4096]));
}

/// Random Fourier features [cos(Z Ω) sin(Z Ω)]·scale.
pub(crate) fn check_fourier_features(engine: &impl Engine, sizes: &[usize], rows: &[usize]) {
    for (case, &d) in sizes.iter().enumerate() {
        for &n in rows {
            let m = sizes[(case * 5 + n) % sizes.len()];
            let (z, frequencies, scale) = (gaussian(n, d, case as u64), gaussian(d, m, 3), 0.7);
            let found = engine
                .fourier_features(z.as_rows(), &frequencies, scale)
                .unwrap();
            assert_eq!((found.rows(), found.cols()), (n, 2 * m));
            let (phases, off) = product(&z, &frequencies);
            for i in 0..n {
                for j in 0..m {
                    // A slope is at most 1; the functions themselves are good to 2 units, the product with the scale to one.
                    let allowed = scale * (off[(i, j)] + 3.0 * EPS);
                    let (sin, cos) = phases[(i, j)].sin_cos();
                    for (found, wanted) in [(found[(i, j)], cos), (found[(i, m + j)], sin)] {
                        let error = (found - scale * wanted).abs();
                        assert!(error <= allowed, "n={n} d={d} m={m} ({i},{j}): {error:e}");
                    }
                }
            }
        }
    }
    let z = gaussian(4, 6, 1);
    for height in [5, 7] {
        let refused = engine.fourier_features(z.as_rows(), &gaussian(height, 2, 2), 1.0);
        assert!(
            matches!(refused, Err(Error::Shape { .. })),
            "{height} rows of frequencies"
        );
    }
}

/// Squared norms of the rows of Z W.
pub(crate) fn check_row_norms(engine: &impl Engine, sizes: &[usize], rows: &[usize]) {
    for (case, &d) in sizes.iter().enumerate() {
        for &n in rows {
            let c = sizes[(case * 5 + n) % sizes.len()];
            let (z, w) = (gaussian(n, d, case as u64), gaussian(d, c, 3));
            let found = engine.row_norms_squared(z.as_rows(), &w).unwrap();
            assert_eq!(found.len(), n);
            let (products, off) = product(&z, &w);
            for (i, found) in found.iter().enumerate() {
                let (mut wanted, mut allowed) = (0.0, 0.0);
                for (p, off) in products.row(i).iter().zip(off.row(i)) {
                    wanted += p * p;
                    allowed += 2.0 * p.abs() * off + off * off;
                }
                allowed += 2.0 * c as f64 * EPS * wanted;
                let error = (found - wanted).abs();
                assert!(error <= allowed, "n={n} d={d} c={c} row {i}: {error:e}");
            }
        }
    }
    let z = gaussian(4, 6, 1);
    for height in [5, 7] {
        let refused = engine.row_norms_squared(z.as_rows(), &gaussian(height, 2, 2));
        assert!(
            matches!(refused, Err(Error::Shape { .. })),
            "{height} rows of weights"
        );
    }
}

#[cfg(feature = "nn")]
#[test]
fn tensors_are_rows() {
    let device = muso::models::burn::tensor::Device::flex();
    check_tensors(&engine(), &device);
    check_tensors(&Bare(engine()), &device);
}

/// Rows that a network made give the sums of the same rows on the host, and products to f32.
#[cfg(feature = "nn")]
pub(crate) fn check_tensors(engine: &impl Engine, device: &muso::models::burn::tensor::Device) {
    use muso::models::burn::tensor::{Tensor, TensorData};

    let (n, d, c) = (150, 21, 4);
    let z = gaussian(n, d, 12);
    let narrow: Vec<f32> = z.as_slice().iter().map(|&x| x as f32).collect();
    let rows = Rows::new(n, d, narrow.as_slice());
    let tensor = Tensor::<2>::from_data(TensorData::new(narrow.clone(), [n, d]), device);
    let classes: Vec<i64> = (0..n as i64).map(|i| i * 3 % c as i64).collect();
    let spec = SumsSpec {
        features: d,
        bias: true,
        targets: c,
    };
    let mut acc = engine.accumulator(spec).unwrap();
    let targets = Targets::Classes(&classes);
    engine
        .accumulate_tensor(&mut acc, &tensor, targets)
        .unwrap();
    let found = engine.finish(acc).unwrap();
    assert_eq!(found, sums(engine, rows, true, c, targets));
    let w = gaussian(d + 1, c, 13);
    let found = engine.project_tensor(&tensor, &w).unwrap();
    assert_eq!(found.dims(), [n, c]);
    let wanted = engine.project(rows, &w).unwrap();
    let wanted: Vec<f32> = wanted.as_slice().iter().map(|&x| x as f32).collect();
    assert_eq!(muso::features::host(found), wanted, "rounded once");
}

#[test]
fn roundings_bound_the_error_of_sums() {
    check_roundings(&engine(), BLOCKS.rows);
}

/// The roundings that an engine states bound the error of its sums, and are those of blocks of `block` rows.
pub(crate) fn check_roundings(engine: &impl Engine, block: usize) {
    assert_eq!(engine.roundings(0), 0.0);
    for n in edges(&[block, 3 * block]) {
        let stated = engine.roundings(n as u64);
        assert_eq!(
            stated,
            (n.min(block) + n.div_ceil(block)) as f64,
            "{n} rows"
        );
        let z = gaussian(n, 1, n as u64);
        let found = sums(engine, z.as_rows(), false, 0, Targets::None).gram[(0, 0)];
        let exact = exact_square(z.as_slice());
        // Half a unit each; products are fused or rounded once more.
        let error = (found - exact).abs() / exact;
        assert!(error <= stated * EPS, "{n} rows: {error:e}");
    }
}

/// Σx², as if in twice the precision.
fn exact_square(values: &[f64]) -> f64 {
    let (mut high, mut low) = (0.0_f64, 0.0_f64);
    for &x in values {
        let square = x * x;
        let sum = high + square;
        let kept = sum - high;
        low += (high - (sum - kept)) + (square - kept) + x.mul_add(x, -square);
        high = sum;
    }
    high + low
}

/// G has the bytes of sums over blocks of the stated length, each from zero, in the order of the rows.
#[test]
fn sums_are_cut_where_the_engine_says() {
    let n = 2 * BLOCKS.rows + 7;
    let z = gaussian(n, 2, 17);
    let cut = |block: usize| {
        let mut total = 0.0;
        for start in (0..n).step_by(block) {
            let rows = start..n.min(start + block);
            total += rows.fold(0.0, |sum, i| z[(i, 0)].mul_add(z[(i, 1)], sum));
        }
        total
    };
    let found = sums(&engine(), z.as_rows(), false, 0, Targets::None).gram[(1, 0)];
    assert_eq!(found, cut(BLOCKS.rows));
    assert_ne!(found, cut(BLOCKS.rows - 1), "the order of the sum shows");
}

#[test]
fn narrow_rows_give_the_very_bytes_of_their_widened_values() {
    check_narrow_rows(&engine());
}

pub(crate) fn check_narrow_rows(engine: &impl Engine) {
    let z = gaussian(200, 37, 8);
    let w = gaussian(38, 5, 9);
    let narrow32: Vec<f32> = z.as_slice().iter().map(|&x| x as f32).collect();
    let narrow16: Vec<f16> = z.as_slice().iter().map(|&x| f16::from_f64(x)).collect();
    let brain16: Vec<bf16> = z.as_slice().iter().map(|&x| bf16::from_f64(x)).collect();
    for rows in [
        Rows::new(200, 37, narrow32.as_slice()),
        Rows::new(200, 37, narrow16.as_slice()),
        Rows::new(200, 37, brain16.as_slice()),
    ] {
        let wide = rows.to_matrix();
        assert!(relative(&wide, &z) < 1e-2 && relative(&wide, &z) > 0.0);
        let a = sums(engine, rows, true, 0, Targets::None);
        assert_eq!(a, sums(engine, wide.as_rows(), true, 0, Targets::None));
        assert_eq!(
            engine.project(rows, &w).unwrap(),
            engine.project(wide.as_rows(), &w).unwrap()
        );
    }
}

/// Everything an engine computes, from rows that come in batches of a length; equal for equal bytes.
pub(crate) fn everything<E: Engine>(
    engine: &E,
    (n, d, c): (usize, usize, usize),
    batch: usize,
) -> impl PartialEq + use<E> {
    let z = gaussian(n, d, 1);
    let narrow: Vec<f32> = z.as_slice().iter().map(|&x| x as f32).collect();
    let rows = Rows::new(n, d, narrow.as_slice());
    let y = gaussian(n, c, 2);
    let spec = SumsSpec {
        features: d,
        bias: true,
        targets: c,
    };
    let mut acc = engine.accumulator(spec).unwrap();
    for start in (0..n).step_by(batch) {
        let end = n.min(start + batch);
        let t = Targets::Values(y.as_rows().slice(start, end));
        engine
            .accumulate(&mut acc, rows.slice(start, end), t)
            .unwrap();
    }
    let sums = engine.finish(acc).unwrap();
    let factor = engine.factor(&sums.gram, 1e-3).unwrap();
    let w = engine.solve(&factor, &sums.cross).unwrap();
    let diagonal = engine.inverse_diagonal(&factor).unwrap();
    let out = engine.project(rows, &w).unwrap();
    let kernel = engine
        .kernel_matrix(rows.slice(0, n / 7), rows.slice(n / 25, n / 8), true)
        .unwrap();
    let back = engine.pull_back(rows, &out, true).unwrap();
    let classes = engine.project_argmax(rows, &w).unwrap();
    let frequencies = gaussian(d, c, 3);
    let features = engine.fourier_features(rows, &frequencies, 0.5).unwrap();
    let norms = engine.row_norms_squared(rows, &frequencies).unwrap();
    let pivots = engine.pivots(&factor);
    (
        (sums, w, diagonal, pivots),
        (out, classes, kernel, back),
        (features, norms),
    )
}

#[test]
fn bytes_do_not_depend_on_threads_batches_or_instruction_set() {
    let shape = (2_500, 130, 11);
    let wanted = everything(&CpuEngine::new(Some(1)).unwrap(), shape, 2_500);
    for threads in [1, 2, 3, 7] {
        let engine = CpuEngine::new(Some(threads)).unwrap();
        for batch in [1, 100, BLOCKS.rows, 999] {
            assert!(
                everything(&engine, shape, batch) == wanted,
                "{threads} threads, batches of {batch}"
            );
        }
    }
    let portable = CpuEngine::new(Some(2)).unwrap().portable();
    assert!(
        everything(&portable, shape, 500) == wanted,
        "portable kernels"
    );
}

pub(crate) fn check_factor_and_solve(engine: &impl Engine, sizes: &[usize], columns: &[usize]) {
    for (case, &n) in sizes.iter().enumerate() {
        for &c in columns {
            let z = gaussian(n + 3, n, case as u64);
            let a = matmul(&z.transpose(), &z);
            let ridge = 0.5;
            let b = gaussian(n, c, 7);
            let factor = engine.factor(&a, ridge).unwrap();
            let x = engine.solve(&factor, &b).unwrap();
            let shifted =
                Matrix::from_fn(n, n, |i, j| a[(i, j)] + if i == j { ridge } else { 0.0 });
            let residual = minus(&matmul(&shifted, &x), &b).norm() / b.norm();
            // Backward stable: the residual is small relative to ‖A‖‖x‖, not only to b.
            let allowed = 8.0 * n as f64 * EPS * shifted.norm() * x.norm() / b.norm();
            assert!(
                residual <= allowed,
                "n={n} c={c}: residual {residual:e}, allowed {allowed:e}"
            );
            let (least, most) = engine.pivots(&factor);
            let pivots = elimination_pivots(&shifted);
            let (low, high) = pivots
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(l, h), &p| (l.min(p), h.max(p)));
            assert!(
                (least / low - 1.0).abs() < 1e-9,
                "n={n}: {least} against {low}"
            );
            assert!(
                (most / high - 1.0).abs() < 1e-9,
                "n={n}: {most} against {high}"
            );
            let inverse = gauss_solve(&shifted, &identity(n));
            let found = engine.inverse_diagonal(&factor).unwrap();
            assert_eq!(found.len(), n);
            for (i, found) in found.iter().enumerate() {
                let wanted = inverse[(i, i)];
                assert!(
                    (found / wanted - 1.0).abs() < 1e-9,
                    "n={n}: {found} against {wanted}"
                );
            }
        }
    }
}

#[test]
fn factor_and_solve_match_gaussian_elimination() {
    let engine = engine();
    check_factor_and_solve(&engine, &sizes(), &[1, 8, 9, 20]);
    check_factor_and_solve(&engine, &edges(&[BLOCKS.factor]), &edges(&[BLOCKS.panel]));
    // Several blocks and a group of panels in the diagonal.
    let z = gaussian(700, 601, 5);
    let a = matmul(&z.transpose(), &z);
    let factor = engine.factor(&a, 1.0).unwrap();
    let inverse = engine.solve(&factor, &identity(601)).unwrap();
    let trace: f64 = (0..601).map(|i| inverse[(i, i)]).sum();
    let found: f64 = engine.inverse_diagonal(&factor).unwrap().iter().sum();
    assert!((found / trace - 1.0).abs() < 1e-9);
}

/// The pivots of Gaussian elimination without exchanges: the squares of a Cholesky factor's diagonal.
fn elimination_pivots(a: &Matrix) -> Vec<f64> {
    let n = a.rows();
    let mut a = a.clone();
    for j in 0..n {
        let pivot = a.row(j).to_vec();
        for i in j + 1..n {
            let factor = a[(i, j)] / pivot[j];
            let rest = a.row_mut(i).iter_mut().zip(&pivot);
            rest.for_each(|(x, p)| *x -= factor * p);
        }
    }
    (0..n).map(|j| a[(j, j)]).collect()
}

/// More rows than are held back before they are added, so that sums go through several rounds.
#[test]
fn sums_over_several_rounds_match_the_definition() {
    let engine = engine();
    for (n, d, classes) in [(9_000, 70, 4), (3_000, 310, 3)] {
        let z = gaussian(n, d, 31);
        let labels: Vec<i64> = (0..n as i64).map(|i| i * 5 % classes).collect();
        let zt = with_ones(&z).transpose();
        let found = sums(
            &engine,
            z.as_rows(),
            true,
            classes as usize,
            Targets::Classes(&labels),
        );
        assert_close(&found.gram, &zt, &with_ones(&z), &format!("G n={n}"));
        let one_hot = Matrix::from_fn(n, classes as usize, |i, j| {
            f64::from(u8::from(labels[i] == j as i64))
        });
        assert_close(&found.cross, &zt, &one_hot, &format!("class sums n={n}"));
        let y = gaussian(n, 5, 32);
        let found = sums(&engine, z.as_rows(), true, 5, Targets::Values(y.as_rows()));
        assert_close(&found.cross, &zt, &y, &format!("ZᵀY n={n}"));
    }
}

#[test]
fn picked_rows_are_those_rows() {
    check_picked_rows(&engine());
}

pub(crate) fn check_picked_rows(engine: &impl Engine) {
    let z = gaussian(300, 33, 41);
    let narrow: Vec<f32> = z.as_slice().iter().map(|&x| x as f32).collect();
    let rows = Rows::new(300, 33, narrow.as_slice());
    let picks: Vec<usize> = (0..300).filter(|i| i % 7 != 2).rev().collect();
    let copied = rows.to_matrix().select_rows(&picks);
    assert_eq!(rows.pick(&picks).to_matrix(), copied);
    assert_eq!(
        rows.pick(&picks).slice(5, 40).to_matrix(),
        copied.as_rows().slice(5, 40).to_matrix()
    );
    let direct = sums(engine, rows.pick(&picks), true, 0, Targets::None);
    assert_eq!(
        direct,
        sums(engine, copied.as_rows(), true, 0, Targets::None)
    );
    let w = gaussian(34, 4, 42);
    let projected = engine.project(rows.pick(&picks), &w).unwrap();
    assert_eq!(projected, engine.project(copied.as_rows(), &w).unwrap());
}

#[test]
fn norms_of_extreme_entries() {
    for scale in [1e-200, 1.0, 1e200] {
        let m = Matrix::from_vec(1, 2, vec![3.0 * scale, -4.0 * scale]);
        assert!((m.norm() / scale - 5.0).abs() < 1e-12, "{scale:e}");
    }
    assert_eq!(Matrix::zeros(2, 2).norm(), 0.0);
    assert_eq!(
        Matrix::from_vec(1, 1, vec![f64::INFINITY]).norm(),
        f64::INFINITY
    );
    assert!(Matrix::from_vec(1, 2, vec![f64::NAN, 1.0]).norm().is_nan());
}

#[test]
fn a_failed_pivot_is_named() {
    let mut pivots = edges(&[BLOCKS.panel, BLOCKS.factor]);
    pivots.extend([0, 60, 99]);
    check_failed_pivots(&engine(), &pivots);
}

pub(crate) fn check_failed_pivots(engine: &impl Engine, pivots: &[usize]) {
    for &bad in pivots {
        let mut a = identity(100);
        a[(bad, bad)] = -1.0;
        match engine.factor(&a, 0.25) {
            Err(Error::NotPositiveDefinite { pivot, value, size }) => {
                assert_eq!((pivot, value, size), (bad, -0.75, 100));
            }
            other => panic!(
                "expected a failed pivot {bad}, got {:?}",
                other.map(|_| "a factor")
            ),
        }
        a[(bad, bad)] = f64::NAN;
        assert!(matches!(
            engine.factor(&a, 0.25),
            Err(Error::NotPositiveDefinite { pivot, .. }) if pivot == bad
        ));
    }
}

#[test]
fn sums_of_disjoint_rows_add_and_subtract() {
    let engine = engine();
    let z = gaussian(400, 20, 3);
    let classes: Vec<i64> = (0..400).map(|i| i % 3).collect();
    let part = |from: usize, to: usize| {
        let t = Targets::Classes(&classes[from..to]);
        sums(&engine, z.as_rows().slice(from, to), true, 3, t)
    };
    let (all, head, tail) = (part(0, 400), part(0, 150), part(150, 400));
    assert_eq!(head.add(&tail).rows, 400);
    assert!(relative(&head.add(&tail).gram, &all.gram) < 1e-15);
    assert!(relative(&all.subtract(&head).gram, &tail.gram) < 1e-14);
    assert!(relative(&all.subtract(&head).cross, &tail.cross) < 1e-13);
    assert_eq!(all.subtract(&head).rows, 250);
}
