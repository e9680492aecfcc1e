//! Seeded inputs, and the operations that take more than one call of the engine. The benches of criterion include this
//! file too, so that both measure the same thing.

use std::sync::Arc;

use muso::Result;
use muso::engine::exact::{ExactSpec, Grid};
use muso::engine::{Engine, Matrix, Rows, Sums, SumsSpec, Targets};
use muso::gram::Gram;
use muso::labels::Projector;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// Draws standard normal values in f32.
pub(crate) fn gaussian_f32(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count)
        .map(|_| StandardNormal.sample(&mut rng))
        .collect()
}

/// Draws a matrix of standard normal entries.
pub(crate) fn gaussian(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Matrix::from_fn(rows, cols, |_, _| StandardNormal.sample(&mut rng))
}

/// Draws features whose columns shrink from 1 to `smallest`, so that a ridge of that size squared times N matters.
pub(crate) fn decaying_features(rows: usize, cols: usize, smallest: f32, seed: u64) -> Vec<f32> {
    let mut values = gaussian_f32(rows * cols, seed);
    for row in values.chunks_exact_mut(cols) {
        for (j, value) in row.iter_mut().enumerate() {
            *value *= smallest.powf(j as f32 / cols as f32);
        }
    }
    values
}

/// Computes G = ZᵀZ through the engine.
pub(crate) fn gram<E: Engine>(engine: &E, rows: Rows<'_>, bias: bool) -> Result<Sums> {
    let spec = SumsSpec {
        features: rows.cols(),
        bias,
        targets: 0,
    };
    let mut sums = engine.accumulator(spec)?;
    engine.accumulate(&mut sums, rows, Targets::None)?;
    engine.finish(sums)
}

/// Returns the shape and grid of exact sums over standard normal values, all of which the grid's range holds.
pub(crate) fn exact_spec(bits: u32, cols: usize) -> Result<ExactSpec> {
    const RANGE: f64 = 8.0;
    Ok(ExactSpec {
        sums: SumsSpec {
            features: cols,
            bias: false,
            targets: 0,
        },
        classes: false,
        grid: Arc::new(Grid::of_range(bits, RANGE, cols, 0)?),
        setters: false,
    })
}

/// Computes G = ZᵀZ in integers, rounded to f64 once at the end.
pub(crate) fn exact_gram<E: Engine>(engine: &E, spec: &ExactSpec, rows: Rows<'_>) -> Result<Sums> {
    let mut sums = engine.exact(spec)?;
    sums.push(rows, Targets::None)?;
    sums.finish()?.0.to_sums(spec)
}

/// Runs a whole label update: sums over the retained rows, factor, W* = w_init + Π(w_p − w_init), labels Z_u W*.
///
/// Weights with one row more than the features have columns carry a bias.
pub(crate) fn label_update<E: Engine>(
    engine: &E,
    retained: Rows<'_>,
    forgotten: Rows<'_>,
    trained: &Matrix,
    init: &Matrix,
    ridge: f64,
) -> Result<Matrix> {
    let bias = trained.rows() > retained.cols();
    let sums = gram(engine, retained, bias)?;
    let projector = Projector::new(engine, Gram::Primal(sums), ridge)?;
    let (weights, _) = projector.optimal_weights(trained, init)?;
    engine.project(forgotten, &weights)
}
