//! The engine's contract: right to the last digits, and the same bytes for any threads and batches.
//!
//! The bodies take the engine and the sizes; here they are given the CPU's, in `gpu` those of a CUDA device.

use half::{bf16, f16};
use muso::Error;
use muso::engine::{CpuEngine, Engine, Matrix, Rows, Sums, SumsSpec, Targets};

use crate::support::{EPS, engine, gauss_solve, gaussian, identity, matmul, minus, relative};

/// Sides of the tiles and blocks inside the engine, one below, one above, and several at once plus a rest.
const SIZES: [usize; 13] = [1, 5, 6, 7, 8, 9, 24, 47, 48, 49, 77, 96, 260];

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

/// Every entry within `k` roundings of the reference, relative to the sum of magnitudes that went into it.
fn assert_close(found: &Matrix, a: &Matrix, b: &Matrix, what: &str) {
    let wanted = matmul(a, b);
    let abs = |m: &Matrix| Matrix::from_fn(m.rows(), m.cols(), |i, j| m[(i, j)].abs());
    let scale = matmul(&abs(a), &abs(b));
    assert_eq!(
        (found.rows(), found.cols()),
        (wanted.rows(), wanted.cols()),
        "{what}"
    );
    for i in 0..wanted.rows() {
        for j in 0..wanted.cols() {
            let allowed = 2.0 * a.cols() as f64 * EPS * scale[(i, j)];
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
    check_sums(&engine(), &SIZES, &[1, 255, 256, 257, 600]);
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
    check_products(&engine(), &SIZES, &[1, 6, 47, 48, 49, 130]);
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
    (sums, w, diagonal, out, kernel, back)
}

#[test]
fn bytes_do_not_depend_on_threads_batches_or_instruction_set() {
    let shape = (2_500, 130, 11);
    let wanted = everything(&CpuEngine::new(Some(1)).unwrap(), shape, 2_500);
    for threads in [1, 2, 3, 7] {
        let engine = CpuEngine::new(Some(threads)).unwrap();
        for batch in [1, 100, 256, 999] {
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
    check_factor_and_solve(&engine, &SIZES, &[1, 8, 9, 20]);
    // Several blocks and a group of panels in the diagonal.
    let z = gaussian(700, 601, 5);
    let a = matmul(&z.transpose(), &z);
    let factor = engine.factor(&a, 1.0).unwrap();
    let inverse = engine.solve(&factor, &identity(601)).unwrap();
    let trace: f64 = (0..601).map(|i| inverse[(i, i)]).sum();
    let found: f64 = engine.inverse_diagonal(&factor).unwrap().iter().sum();
    assert!((found / trace - 1.0).abs() < 1e-9);
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
    check_failed_pivots(&engine(), &[0, 5, 47, 48, 60, 99]);
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
