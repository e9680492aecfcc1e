//! Cholesky factor and solve with 100 right-hand sides, f64.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, criterion_group, criterion_main};
use muso::engine::{Engine, Rows};

use common::inputs::{gaussian, gaussian_f32, gram};
use common::reference::cholesky_solve;
use common::{operations, rounding, size, validate};

/// Of a Gram matrix of one and a half times as many rows as columns: (1 + √⅔)²/(1 − √⅔)² = 98.
const CONDITION: f64 = 100.0;

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("cholesky");
    for (device, engine) in &common::engines() {
        for order in [size(512, 50), size(2_048, 130)] {
            let columns = size(100, 7);
            let system = LazyCell::new(|| {
                let rows = order + order / 2;
                let z = gaussian_f32(rows * order, 2);
                let sums = gram(engine, Rows::new(rows, order, z.as_slice()), false);
                let (a, b) = (sums.expect("sums").gram, gaussian(order, columns, 3));
                let factor = engine.factor(&a, 1.0).expect("a positive definite matrix");
                let found = engine.solve(&factor, &b).expect("a solution");
                let limit = CONDITION * rounding(order);
                validate("solve", &found, &cholesky_solve(&a, 1.0, &b), limit);
                (a, b)
            });
            let d = order as f64;
            group.throughput(operations(d * d * d / 3.0));
            group.bench_function(format!("{device} factor {order}"), |b| {
                let (a, _) = &*system;
                b.iter(|| engine.factor(a, 1.0).expect("a positive definite matrix"));
            });
            group.throughput(operations(2.0 * d * d * columns as f64));
            group.bench_function(format!("{device} solve {order}x{columns}"), |bencher| {
                let (a, b) = &*system;
                let factor = engine.factor(a, 1.0).expect("a positive definite matrix");
                bencher.iter(|| engine.solve(&factor, b).expect("a solution"));
            });
        }
    }
    group.finish();
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
