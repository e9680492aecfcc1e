//! A whole label update: sums over the retained rows, factor, solve, and the labels of the forgotten rows.

mod common;

use std::cell::LazyCell;

use criterion::{Criterion, criterion_group, criterion_main};
use muso::engine::{Matrix, Rows};

use common::inputs::{decaying_features, gaussian, label_update};
use common::reference::cholesky_solve;
use common::{cross, operations, product, size, validate, widened, with_ones};

const RIDGE: f64 = 1e-6;
/// The condition of G + λI is 4,000 / 1.4e-6 = 3e9.
const TOLERANCE: f64 = 1e-5;

/// Rows and weights of an update.
struct Update {
    retained: Vec<f32>,
    forgotten: Vec<f32>,
    trained: Matrix,
    init: Matrix,
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    for (device, engine) in &common::engines() {
        let (retained, forgotten) = (size(4_000, 150), size(400, 20));
        let (cols, classes) = (size(512, 30), size(100, 7));
        let run = |u: &Update| {
            label_update(
                engine,
                Rows::new(retained, cols, u.retained.as_slice()),
                Rows::new(forgotten, cols, u.forgotten.as_slice()),
                &u.trained,
                &u.init,
                RIDGE,
            )
            .expect("labels")
        };
        let update = LazyCell::new(|| {
            // Columns down to 1e-5: in the last ones the ridge is about as large as the data.
            let update = Update {
                retained: decaying_features(retained, cols, 1e-5, 6),
                forgotten: decaying_features(forgotten, cols, 1e-2, 7),
                trained: gaussian(cols + 1, classes, 8),
                init: gaussian(cols + 1, classes, 9),
            };
            validate("labels", &run(&update), &update.reference(cols), TOLERANCE);
            update
        });
        let d = (cols + 1) as f64;
        let solved = d * d * d / 3.0 + 2.0 * d * d * classes as f64;
        let projected = 2.0 * forgotten as f64 * d * classes as f64;
        group.throughput(operations(retained as f64 * d * d + solved + projected));
        let shape = format!("{retained}x{cols}+1, {forgotten} labels, {classes} classes");
        group.bench_function(format!("{device} {shape}"), |b| b.iter(|| run(&update)));
    }
    group.finish();
}

impl Update {
    /// Z_u(w_p − λ(G + λI)⁻¹(w_p − w_0)), which is Z_u(w_0 + Π(w_p − w_0)).
    fn reference(&self, cols: usize) -> Matrix {
        let retained = with_ones(&widened(&self.retained, cols));
        let gram = cross(&retained, &retained);
        let moved = self.trained.zip(&self.init, |p, i| p - i);
        let solved = cholesky_solve(&gram, RIDGE, &moved);
        let weights = self.trained.zip(&solved, |p, s| p - RIDGE * s);
        product(&with_ones(&widened(&self.forgotten, cols)), &weights)
    }
}

criterion_group! { name = all; config = common::criterion(); targets = benches }
criterion_main!(all);
