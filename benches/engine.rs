//! The engine's operations over D ∈ {128, 512, 2048}: Gram, Cholesky and solve, projection, and the whole label update.
//!
//! Every operation is first checked against a plain f64 reference at a reduced size, then timed. One element of the
//! printed throughput is one FLOP, so Gelem/s reads as GFLOP/s.
//!
//! ```text
//! cargo bench --bench engine                 # about a minute
//! cargo bench --bench engine -- gram         # one group
//! cargo bench --bench engine -- --test       # check and run each once
//! ```

mod common;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use muso::engine::{CpuEngine, Engine, Matrix, Rows};

use common::{
    cholesky_solve, decaying_features, gaussian, gaussian_f32, gram, label_update, matmul,
    relative, with_bias,
};

const ORDERS: [usize; 3] = [128, 512, 2_048];
const CLASSES: [usize; 2] = [10, 100];
const RIDGE: f64 = 1e-6;
/// No multiple of a tile or block side, so that every edge is in the check.
const CHECKED_ORDER: usize = 131;
const CHECKED_ROWS: usize = 301;

fn main() -> muso::Result<()> {
    let engine = CpuEngine::new(None)?;
    println!("{}", engine.describe());
    check(&engine)?;
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_500))
        .configure_from_args();
    bench_gram(&mut criterion, &engine);
    bench_cholesky(&mut criterion, &engine)?;
    bench_projection(&mut criterion, &engine);
    bench_update(&mut criterion, &engine);
    criterion.final_summary();
    Ok(())
}

/// Every operation that is timed below, against its definition.
fn check(engine: &CpuEngine) -> muso::Result<()> {
    let (n, d) = (CHECKED_ROWS, CHECKED_ORDER);
    let z = gaussian_f32(n * d, 1);
    let rows = Rows::new(n, d, z.as_slice());
    let wide = with_bias(rows, true);
    let wanted = matmul(&wide.transpose(), &wide);
    let found = gram(engine, rows, true)?.gram;
    agree("gram", &found, &wanted, 1e-14);

    let b = gaussian(d + 1, 100, 2);
    let solved = cholesky_solve(&wanted, RIDGE, &b);
    let factor = engine.factor(&wanted, RIDGE)?;
    agree("cholesky", &engine.solve(&factor, &b)?, &solved, 1e-12);

    let projected = matmul(&wide, &b);
    agree("projection", &engine.project(rows, &b)?, &projected, 1e-14);
    let best = engine.project_argmax(rows, &b)?;
    for (i, &best) in best.iter().enumerate() {
        let row = projected.row(i);
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(
            row[best as usize] >= top - 1e-9,
            "argmax: row {i} has {top}"
        );
    }

    let decaying = decaying_features(n, d, 1e-5, 3);
    let retained = Rows::new(n, d, decaying.as_slice());
    let wide = with_bias(retained, true);
    let (trained, init) = (gaussian(d + 1, 10, 4), gaussian(d + 1, 10, 5));
    let v = trained.zip(&init, |p, i| p - i);
    let outside = cholesky_solve(&matmul(&wide.transpose(), &wide), RIDGE, &v);
    let weights = trained.zip(&outside, |p, x| p - RIDGE * x);
    let wanted = matmul(&with_bias(rows, true), &weights);
    let found = label_update(engine, retained, rows, &trained, &init, RIDGE)?;
    agree("label update", &found, &wanted, 1e-7);
    Ok(())
}

fn agree(what: &str, found: &Matrix, wanted: &Matrix, allowed: f64) {
    let error = relative(found, wanted);
    assert!(error <= allowed, "{what}: off by {error:e}");
}

/// f32 rows in, f64 out; N·D² FLOPs since only one triangle is computed.
fn bench_gram(criterion: &mut Criterion, engine: &CpuEngine) {
    let mut group = criterion.benchmark_group("gram");
    for d in ORDERS {
        let n = if d > 1_000 { 1_024 } else { 8_192 };
        let z = gaussian_f32(n * d, 1);
        let rows = Rows::new(n, d, z.as_slice());
        group.throughput(Throughput::Elements((n * d * d) as u64));
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function(BenchmarkId::new(format!("n={n}"), d), |b| {
            b.iter(|| gram(engine, black_box(rows), false));
        });
    }
}

/// D³/3 FLOPs for the factor and 2·D²·C for the solve.
fn bench_cholesky(criterion: &mut Criterion, engine: &CpuEngine) -> muso::Result<()> {
    let mut group = criterion.benchmark_group("cholesky");
    group.sampling_mode(SamplingMode::Flat);
    let c = 100;
    for d in ORDERS {
        let z = gaussian_f32(2 * d * d, 1);
        let a = gram(engine, Rows::new(2 * d, d, z.as_slice()), false)?.gram;
        let b = gaussian(d, c, 2);
        group.throughput(Throughput::Elements((d * d * d / 3) as u64));
        group.bench_function(BenchmarkId::new("factor", d), |bench| {
            bench.iter(|| engine.factor(black_box(&a), RIDGE));
        });
        let factor = engine.factor(&a, RIDGE)?;
        group.throughput(Throughput::Elements((2 * d * d * c) as u64));
        group.bench_function(BenchmarkId::new(format!("solve c={c}"), d), |bench| {
            bench.iter(|| engine.solve(black_box(&factor), &b));
        });
    }
    Ok(())
}

/// 2·N·D·C FLOPs. With few classes reading the rows is what takes the time.
fn bench_projection(criterion: &mut Criterion, engine: &CpuEngine) {
    let mut group = criterion.benchmark_group("projection");
    for d in ORDERS {
        let n = (1 << 22) / d;
        let z = gaussian_f32(n * d, 1);
        let rows = Rows::new(n, d, z.as_slice());
        for c in CLASSES {
            let weights = gaussian(d, c, 2);
            group.throughput(Throughput::Elements((2 * n * d * c) as u64));
            group.bench_function(BenchmarkId::new(format!("product c={c}"), d), |b| {
                b.iter(|| engine.project(black_box(rows), &weights));
            });
            group.bench_function(BenchmarkId::new(format!("argmax c={c}"), d), |b| {
                b.iter(|| engine.project_argmax(black_box(rows), &weights));
            });
        }
    }
}

/// Sums over N_s retained rows, factor, W*, labels of N_u forgotten rows; FLOPs of the sums and the factor.
fn bench_update(criterion: &mut Criterion, engine: &CpuEngine) {
    let mut group = criterion.benchmark_group("label update");
    group.sampling_mode(SamplingMode::Flat);
    let (retained, forgotten, c) = (4_000, 400, 100);
    for d in ORDERS {
        let z = decaying_features(retained + forgotten, d, 1e-5, 1);
        let rows = Rows::new(retained + forgotten, d, z.as_slice());
        let (z_r, z_u) = (
            rows.slice(0, retained),
            rows.slice(retained, retained + forgotten),
        );
        let (trained, init) = (gaussian(d + 1, c, 2), gaussian(d + 1, c, 3));
        group.throughput(Throughput::Elements(
            (retained * d * d + d * d * d / 3) as u64,
        ));
        group.bench_function(BenchmarkId::new(format!("n={retained}, c={c}"), d), |b| {
            b.iter(|| label_update(engine, black_box(z_r), z_u, &trained, &init, RIDGE));
        });
    }
}
