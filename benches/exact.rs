//! G = ZᵀZ from f32 rows in integers, at every width of the grid, beside f64.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, criterion_group, criterion_main};
use muso::engine::Rows;

use common::inputs::{exact_gram, exact_spec, gaussian_f32, gram};
use common::{operations, size, validate};

/// Bits of the grid: one product of f64 units up to 22, more of them beyond.
const WIDTHS: [u32; 5] = [20, 22, 27, 34, 41];

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("exact");
    for (device, engine) in &common::engines() {
        for (rows, cols) in [
            (size(20_000, 300), size(512, 64)),
            (size(8_000, 300), size(2_048, 96)),
        ] {
            let z = LazyCell::new(|| gaussian_f32(rows * cols, 1));
            let wanted = LazyCell::new(|| {
                let z = Rows::new(rows, cols, z.as_slice());
                gram(engine, z, false).expect("sums").gram
            });
            // One triangle is computed.
            group.throughput(operations(rows as f64 * (cols * cols) as f64));
            group.bench_function(format!("{device} f64 {rows}x{cols}"), |b| {
                let z = Rows::new(rows, cols, z.as_slice());
                b.iter(|| gram(engine, z, false).expect("sums"));
            });
            for bits in WIDTHS {
                group.bench_function(format!("{device} {bits} bits {rows}x{cols}"), |b| {
                    let z = Rows::new(rows, cols, z.as_slice());
                    let spec = exact_spec(bits, cols).expect("a grid");
                    let sums = || exact_gram(engine, &spec, z).expect("sums");
                    // Values below 8 are moved by at most 8 / 2^bits / 2.
                    let moved = 8.0 / 2_f64.powi(bits as i32);
                    let what = format!("exact sums of {bits} bits");
                    validate(&what, &sums().gram, &wanted, 4.0 * moved + 1e-12);
                    b.iter(sums);
                });
            }
        }
    }
    group.finish();
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
