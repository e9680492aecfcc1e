//! Products with f32 feature rows: labels Z W in f64 (GEMM), and the class of each row, argmax of Z W.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use muso::engine::{Engine, Matrix, Rows};

use common::inputs::{gaussian, gaussian_f32};
use common::{operations, product, rounding, size, validate, widened};

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("projection");
    for (device, engine) in &common::engines() {
        for (rows, classes) in [(size(200_000, 700), 10), (size(50_000, 300), size(100, 33))] {
            let cols = size(512, 48);
            let case = LazyCell::new(|| {
                let (z, w) = (gaussian_f32(rows * cols, 4), gaussian(cols, classes, 5));
                let rows = Rows::new(rows, cols, z.as_slice());
                let wanted = product(&widened(&z, cols), &w);
                let found = engine.project(rows, &w).expect("labels");
                validate("labels", &found, &wanted, rounding(cols));
                let best = engine.project_argmax(rows, &w).expect("classes");
                check_classes(&best, &wanted, rounding(cols));
                (z, w)
            });
            let shape = format!("{rows}x{cols}, {classes} classes");
            group.throughput(operations(2.0 * rows as f64 * (cols * classes) as f64));
            group.bench_function(format!("{device} labels {shape}"), |b| {
                let (z, w) = &*case;
                let z = Rows::new(rows, cols, z.as_slice());
                b.iter(|| engine.project(z, w).expect("labels"));
            });
            // With few classes it is bound by reading the rows.
            if classes == 10 {
                group.throughput(Throughput::BytesDecimal((rows * cols * 4) as u64));
            }
            group.bench_function(format!("{device} argmax {shape}"), |b| {
                let (z, w) = &*case;
                let z = Rows::new(rows, cols, z.as_slice());
                b.iter(|| engine.project_argmax(z, w).expect("classes"));
            });
        }
    }
    group.finish();
}

/// The score of a chosen class may be below the best by rounding alone.
fn check_classes(found: &[u32], scores: &Matrix, tolerance: f64) {
    let scale = scores
        .as_slice()
        .iter()
        .fold(0.0_f64, |m, x| m.max(x.abs()));
    for (i, &class) in found.iter().enumerate() {
        let best = scores.row(i).iter().copied().fold(f64::MIN, f64::max);
        let gap = best - scores[(i, class as usize)];
        assert!(
            gap <= tolerance * scale,
            "row {i}: class {class} is {gap:e} below the best"
        );
    }
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
