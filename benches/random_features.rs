//! Random Fourier features, √(1/m) [cos(XΩ) sin(XΩ)], of f64 inputs.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, criterion_group, criterion_main};
use muso::engine::Matrix;
use muso::features::RandomFeatures;

use common::inputs::gaussian;
use common::{operations, product, rounding, size, validate};

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("random_features");
    for (device, engine) in &common::engines() {
        let (rows, inputs, count) = (size(20_000, 200), size(784, 49), size(1_000, 60));
        let case = LazyCell::new(|| {
            let x = gaussian(rows, inputs, 10);
            let sigma = (inputs as f64).sqrt();
            let map = RandomFeatures::new(inputs, count, sigma, 11).expect("frequencies");
            let found = map.apply(engine, &x).expect("features");
            // Some of the rows; all of them would take longer than what is timed.
            let picked: Vec<usize> = (0..rows).step_by(rows.div_ceil(200)).collect();
            let wanted = features(&x.select_rows(&picked), map.frequencies());
            let found = found.select_rows(&picked);
            // The phases have a rounding of their sums, and sine and cosine one more.
            validate("random features", &found, &wanted, 2.0 * rounding(inputs));
            (x, map)
        });
        // The product alone: what a cosine costs is nobody's constant.
        group.throughput(operations(2.0 * rows as f64 * (inputs * count) as f64));
        let shape = format!("{rows}x{inputs}, {count} frequencies");
        group.bench_function(format!("{device} {shape}"), |b| {
            let (x, map) = &*case;
            b.iter(|| map.apply(engine, x).expect("features"));
        });
    }
    group.finish();
}

/// The definition, plainly.
fn features(x: &Matrix, frequencies: &Matrix) -> Matrix {
    let phases = product(x, frequencies);
    let count = phases.cols();
    let scale = (1.0 / count as f64).sqrt();
    Matrix::from_fn(x.rows(), 2 * count, |i, j| {
        let phase = phases[(i, j % count)];
        scale * if j < count { phase.cos() } else { phase.sin() }
    })
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
