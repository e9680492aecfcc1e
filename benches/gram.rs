//! G = ZᵀZ (SYRK) in f64 from f32, f16 and bf16 rows.

mod common;

use std::cell::LazyCell;

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use half::{bf16, f16};
use muso::engine::{AnyEngine, Matrix, Rows, Samples};

use common::inputs::{gaussian_f32, gram};
use common::{cross, operations, rounding, size, validate};

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("gram");
    for (device, engine) in &common::engines() {
        for (rows, cols) in [
            (size(80_000, 300), size(128, 32)),
            (size(20_000, 300), size(512, 64)),
            (size(8_000, 300), size(2_048, 96)),
        ] {
            let wide = |x: &f32| f64::from(*x);
            syrk(&mut group, device, engine, (rows, cols, "f32"), |x| x, wide);
        }
        let (rows, cols) = (size(20_000, 300), size(512, 64));
        let wide = |x: &f16| x.to_f64();
        let shape = (rows, cols, "f16");
        syrk(&mut group, device, engine, shape, f16::from_f32, wide);
        let wide = |x: &bf16| x.to_f64();
        let shape = (rows, cols, "bf16");
        syrk(&mut group, device, engine, shape, bf16::from_f32, wide);
    }
    group.finish();
}

fn syrk<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    device: &str,
    engine: &AnyEngine,
    (rows, cols, dtype): (usize, usize, &str),
    narrow: fn(f32) -> T,
    wide: fn(&T) -> f64,
) where
    for<'a> &'a [T]: Into<Samples<'a>>,
{
    let z = LazyCell::new(|| {
        let z: Vec<T> = gaussian_f32(rows * cols, 1)
            .into_iter()
            .map(narrow)
            .collect();
        let found = gram(engine, Rows::new(rows, cols, z.as_slice()), false).expect("sums");
        let wanted = Matrix::from_vec(rows, cols, z.iter().map(wide).collect());
        // A part of the rows of G: all of them would take longer than what is timed.
        let picked: Vec<usize> = (0..cols).step_by(cols.div_ceil(32)).collect();
        let some = Matrix::from_fn(rows, picked.len(), |i, k| wanted[(i, picked[k])]);
        let found = Matrix::from_fn(picked.len(), cols, |k, j| {
            // One triangle is the other.
            found.gram[(picked[k].max(j), picked[k].min(j))]
        });
        validate("gram", &found, &cross(&some, &wanted), rounding(rows));
        z
    });
    // One triangle is computed.
    group.throughput(operations(rows as f64 * (cols * cols) as f64));
    group.bench_function(format!("{device} {dtype} {rows}x{cols}"), |b| {
        let z = Rows::new(rows, cols, z.as_slice());
        b.iter(|| gram(engine, z, false).expect("sums"));
    });
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
