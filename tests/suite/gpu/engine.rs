//! The contract of an engine, kept by the GPU: the bodies of the CPU's tests, at the kernels' tile edges.

use half::f16;
use muso::engine::{CpuEngine, CudaEngine, Engine, Matrix, Rows, SumsSpec, Targets};
use muso::gpu::gram::{Labels, ROW_BLOCK};
use muso::gpu::{ClassRows, DeviceMatrix, Staging, Stream, Technique, gram};

use super::device::engine;
use crate::engine::{
    check_factor_and_solve, check_failed_pivots, check_fourier_features, check_narrow_rows,
    check_picked_rows, check_products, check_roundings, check_row_norms, check_sums, edges,
    everything,
};
use crate::support::{EPS, gaussian, relative};

#[test]
fn gram_and_cross_match_the_definition_at_every_tile_edge() {
    check_sums(engine(), &[1, 63, 64, 65], &edges(&[ROW_BLOCK]));
    check_sums(engine(), &[129], &[40]);
}

#[test]
fn products_match_the_definition_at_every_tile_edge() {
    check_products(engine(), &[1, 15, 16, 17, 65], &[1, 63, 129]);
}

#[test]
fn random_features_and_row_norms_match_the_definition() {
    check_fourier_features(engine(), &[1, 15, 16, 17], &[1, 63, 129]);
    check_row_norms(engine(), &[1, 15, 16, 17], &[1, 63, 129]);
}

#[test]
fn roundings_bound_the_error_of_sums() {
    check_roundings(engine(), ROW_BLOCK);
}

#[test]
fn narrow_rows_give_the_very_bytes_of_their_widened_values() {
    check_narrow_rows(engine());
}

#[test]
fn picked_rows_are_those_rows() {
    check_picked_rows(engine());
}

#[test]
fn factor_and_solve_match_gaussian_elimination() {
    check_factor_and_solve(engine(), &[1, 2, 63, 64, 65, 130], &[1, 17]);
}

#[test]
fn a_failed_pivot_is_named() {
    check_failed_pivots(engine(), &[0, 63, 64, 99]);
}

/// Across row blocks and across chunks that are on their way while others are computed on.
#[test]
fn bytes_do_not_depend_on_batches() {
    let shape = (1_400, 20, 3);
    let wanted = everything(engine(), shape, shape.0);
    for batch in [37, ROW_BLOCK, 999] {
        assert!(
            everything(engine(), shape, batch) == wanted,
            "batches of {batch}"
        );
    }
}

/// Classes are added up, and their one-hot rows multiplied: many or few, rows in all of them or in one.
#[test]
fn classes_give_the_bytes_of_their_one_hot_rows() {
    let (n, d) = (2 * ROW_BLOCK + 277, 37);
    let z = gaussian(n, d, 12);
    let sums = |count: usize, batch: usize, targets: Targets<'_>| {
        let spec = SumsSpec {
            features: d,
            bias: true,
            targets: count,
        };
        let mut sums = engine().accumulator(spec).unwrap();
        for first in (0..n).step_by(batch) {
            let end = n.min(first + batch);
            let part = z.as_rows().slice(first, end);
            let targets = targets.slice(first, end);
            engine().accumulate(&mut sums, part, targets).unwrap();
        }
        engine().finish(sums).unwrap()
    };
    for (count, step) in [(1, 1), (2, 1), (10, 7), (17, 0), (100, 50), (1_000, 1)] {
        let ids: Vec<i64> = (0..n).map(|i| (i * i * step % count) as i64).collect();
        let hot = Matrix::from_fn(n, count, |i, j| f64::from(u8::from(ids[i] == j as i64)));
        let wanted = sums(count, n, Targets::Values(hot.as_rows()));
        for batch in [n, 999, 100] {
            let found = sums(count, batch, Targets::Classes(&ids));
            assert!(found == wanted, "{count} classes, batches of {batch}");
        }
    }
}

fn fit<E: Engine>(engine: &E, rows: Rows<'_>, classes: &[i64]) -> (Matrix, Matrix, Vec<u32>) {
    let spec = SumsSpec {
        features: rows.cols(),
        bias: true,
        targets: 3,
    };
    let mut sums = engine.accumulator(spec).unwrap();
    let targets = Targets::Classes(classes);
    engine.accumulate(&mut sums, rows, targets).unwrap();
    let sums = engine.finish(sums).unwrap();
    let factor = engine.factor(&sums.gram, 0.1).unwrap();
    let weights = engine.solve(&factor, &sums.cross).unwrap();
    let found = engine.project_argmax(rows, &weights).unwrap();
    (sums.gram, weights, found)
}

#[test]
fn the_devices_agree_to_the_last_digits() {
    let (n, d) = (700, 70);
    let values: Vec<f32> = gaussian(n, d, 3)
        .as_slice()
        .iter()
        .map(|&x| x as f32)
        .collect();
    let classes: Vec<i64> = (0..n as i64).map(|i| i * i % 3).collect();
    let rows = Rows::new(n, d, values.as_slice());
    let cpu = fit(&CpuEngine::new(Some(2)).unwrap(), rows, &classes);
    let gpu = fit(engine(), rows, &classes);
    assert!(relative(&gpu.0, &cpu.0) < 4.0 * EPS, "G");
    assert!(relative(&gpu.1, &cpu.1) < 1e-13, "weights");
    assert_eq!(gpu.2, cpu.2, "classes");
}

/// An accumulator that is given rows of several kinds goes on in f64, also within a row block.
#[test]
fn rows_of_several_kinds_add_up() {
    let z = gaussian(60, 9, 5);
    let half: Vec<f16> = z.as_slice()[..20 * 9]
        .iter()
        .map(|&x| f16::from_f64(x))
        .collect();
    let single: Vec<f32> = z.as_slice()[20 * 9..].iter().map(|&x| x as f32).collect();
    let parts = [
        Rows::new(20, 9, half.as_slice()),
        Rows::new(40, 9, single.as_slice()),
    ];
    let whole = parts[0].to_matrix().stack(&parts[1].to_matrix());
    let sums = |batches: &[Rows<'_>]| {
        let spec = SumsSpec {
            features: 9,
            bias: true,
            targets: 0,
        };
        let mut sums = engine().accumulator(spec).unwrap();
        for rows in batches {
            engine()
                .accumulate(&mut sums, *rows, Targets::None)
                .unwrap();
        }
        engine().finish(sums).unwrap()
    };
    assert_eq!(sums(&parts), sums(&[whole.as_rows()]));
}

/// Dropping sums that nobody asked for must not let late copies into memory that has a new owner.
#[test]
fn sums_can_be_abandoned() {
    let z = gaussian(300, 40, 6);
    let spec = SumsSpec {
        features: 40,
        bias: false,
        targets: 0,
    };
    for _ in 0..3 {
        let mut sums = engine().accumulator(spec).unwrap();
        engine()
            .accumulate(&mut sums, z.as_rows(), Targets::None)
            .unwrap();
    }
    let identity = crate::support::identity(300);
    let same = engine().project(identity.as_rows(), &z).unwrap();
    assert_eq!(same, z);
}

/// Every technique of the Gram kernel against its plain twin, and a downdate against sums over fewer rows.
#[test]
fn techniques_agree() {
    let context = engine().context();
    let (stream, staging) = (Stream::new(context).unwrap(), Staging::new(context));
    let z = gaussian(100, 33, 7);
    let mut rows = DeviceMatrix::<f16>::uninit(&stream, 100, 33).unwrap();
    let fill = |i: usize, row: &mut [f16]| {
        for (out, &x) in row.iter_mut().zip(z.row(i)) {
            *out = f16::from_f64(x);
        }
    };
    staging.upload(&stream, rows.view_mut(), fill).unwrap();
    let sums = |technique: Technique, steps: &[(usize, usize, f64)]| {
        let mut sums = DeviceMatrix::<f64>::zeros(&stream, 33, 33).unwrap();
        for &(first, count, sign) in steps {
            let part = rows.view().block((first, 0), (count, 33));
            gram::update(&stream, technique, part, false, sign, sums.view_mut()).unwrap();
        }
        gram::mirror(&stream, sums.view_mut()).unwrap();
        let mut out = Matrix::zeros(33, 33);
        let take = |i: usize, row: &[f64]| out.row_mut(i).copy_from_slice(row);
        staging.download(&stream, sums.view(), take).unwrap();
        out
    };
    let all = [(0, 100, 1.0)];
    let plain = sums(Technique::Plain, &all);
    assert_eq!(sums(Technique::Fma, &all), plain);
    if context.properties().capability >= (8, 0) {
        assert!(relative(&sums(Technique::Dmma, &all), &plain) < 1e-15);
        let fast = relative(&sums(Technique::Mma, &all), &plain);
        assert!(fast > 0.0 && fast < 1e-6, "{fast:e}");
    }
    let down = sums(Technique::Fma, &[(0, 100, 1.0), (0, 30, -1.0)]);
    assert!(relative(&down, &sums(Technique::Plain, &[(30, 70, 1.0)])) < 1e-14);
}

#[test]
fn memory_is_kept_for_reuse_and_given_back_when_asked() {
    // A context of its own, so that other tests do not share its pool.
    let context = muso::gpu::Context::new(engine().context().driver(), 0).unwrap();
    let engine = CudaEngine::new(&context).unwrap();
    let z = gaussian(50, 50, 8);
    engine.project(z.as_rows(), &z).unwrap();
    let cached = context.cached_memory();
    assert!(cached > 0);
    engine.project(z.as_rows(), &z).unwrap();
    assert_eq!(
        context.cached_memory(),
        cached,
        "a second run allocates nothing"
    );
    context.trim_memory().unwrap();
    assert_eq!(context.cached_memory(), 0);
    engine.project(z.as_rows(), &z).unwrap();
}

#[test]
fn a_matrix_that_does_not_fit_is_refused_with_its_size() {
    let context = engine().context();
    let stream = Stream::new(context).unwrap();
    for rows in [1 << 40, usize::MAX / 64] {
        match DeviceMatrix::<f64>::uninit(&stream, rows, 64) {
            Err(muso::Error::DeviceMemory {
                requested, total, ..
            }) => {
                assert!(requested > total && total > 0, "{requested} of {total}");
            }
            other => panic!("{rows} rows: {:?}", other.map(|_| "a matrix")),
        }
    }
    assert!(
        DeviceMatrix::<f64>::zeros(&stream, 4, 4).is_ok(),
        "and nothing is broken"
    );
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let stream = Stream::new(engine().context()).unwrap();
    let rows = DeviceMatrix::<f32>::zeros(&stream, 5, 4).unwrap();
    let mut sums = DeviceMatrix::<f64>::zeros(&stream, 4, 4).unwrap();
    let refused = gram::update(
        &stream,
        Technique::Fma,
        rows.view(),
        true,
        1.0,
        sums.view_mut(),
    );
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("G: 4x4") && said.contains("expected 5x5"),
        "{said}"
    );
    let mut classes = ClassRows::uninit(&stream, 5, 4).unwrap();
    let staging = Staging::new(engine().context());
    classes.upload(&staging, &stream, &[0, 3, 1]).unwrap();
    let refused = gram::cross(
        &stream,
        Technique::Fma,
        rows.view(),
        false,
        Labels::Classes(&classes),
        1.0,
        sums.view_mut(),
    );
    let said = refused.unwrap_err().to_string();
    assert!(
        said.contains("3 rows of 4 classes") && said.contains("5 rows of 4"),
        "{said}"
    );
}
