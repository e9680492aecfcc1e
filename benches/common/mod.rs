//! What the benches share: sizes, devices, and plain f64 references to validate against before anything is timed.
//!
//! Inputs and the operations of several calls are those of `muso bench`. Arrays are made and results checked when a bench
//! is first run, so that one that a filter leaves out costs nothing.

// Every bench is a crate of its own and uses a part of this.
#![allow(dead_code)]

use std::time::Duration;

use criterion::{Criterion, Throughput};
use muso::engine::{AnyEngine, CpuEngine, Matrix};

#[path = "../../src/bench/inputs.rs"]
pub(crate) mod inputs;
#[cfg(feature = "nn")]
#[path = "../../src/bench/network.rs"]
pub(crate) mod network;
#[path = "../../src/bench/reference.rs"]
pub(crate) mod reference;

/// Says whether each bench is only run once, to see that it works: `--test`, or `cargo test --benches`.
pub(crate) fn is_test() -> bool {
    let given = |wanted: &str| std::env::args().any(|word| word == wanted);
    given("--test") || !given("--bench")
}

/// Chooses between the size to measure and one to see that it works.
pub(crate) fn size(full: usize, reduced: usize) -> usize {
    if is_test() { reduced } else { full }
}

/// Returns the settings of every bench; criterion's arguments go before them.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
}

/// Returns the processor and, with feature `cuda`, the first GPU if there is one.
///
/// A virtual GPU is there for tests alone: criterion takes the time of the host, and `muso bench --device cuda` shows
/// the modelled one.
pub(crate) fn engines() -> Vec<(&'static str, AnyEngine)> {
    let cpu = CpuEngine::new(None).expect("a pool of threads");
    #[allow(unused_mut)]
    let mut engines = vec![("cpu", cpu.into())];
    #[cfg(feature = "cuda")]
    match gpu() {
        Ok(Some(engine)) => engines.push(("cuda", engine)),
        Ok(None) => println!("cuda: the GPU is virtual, and is not timed"),
        Err(why) => println!("cuda: {why}"),
    }
    engines
}

#[cfg(feature = "cuda")]
fn gpu() -> muso::Result<Option<AnyEngine>> {
    use muso::engine::CudaEngine;
    use muso::gpu::{Context, Driver};

    let driver = Driver::from_environment()?;
    let is_timed = is_test() || !driver.is_virtual();
    let engine = || CudaEngine::new(&Context::new(&driver, 0)?);
    is_timed.then(engine).transpose().map(|e| e.map(Into::into))
}

/// Counts floating-point operations, so that criterion's elements a second are FLOP/s.
pub(crate) fn operations(flops: f64) -> Throughput {
    Throughput::Elements(flops as u64)
}

/// Refuses to time what is further than `tolerance` from the reference: ‖a − b‖/‖b‖, Frobenius.
pub(crate) fn validate(what: &str, found: &Matrix, wanted: &Matrix, tolerance: f64) {
    let distance = reference::relative(found, wanted);
    // Written so that NaN fails.
    let is_close = distance <= tolerance;
    assert!(
        is_close,
        "{what} is {distance:e} from the f64 reference, limit {tolerance:e}"
    );
}

/// Returns the rounding of sums of `terms` products.
pub(crate) fn rounding(terms: usize) -> f64 {
    terms as f64 * f64::EPSILON
}

/// Widens values, row by row.
pub(crate) fn widened(values: &[f32], cols: usize) -> Matrix {
    let values: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
    Matrix::from_vec(values.len() / cols, cols, values)
}

/// Appends a column of ones.
pub(crate) fn with_ones(z: &Matrix) -> Matrix {
    let value = |i: usize, j: usize| if j < z.cols() { z[(i, j)] } else { 1.0 };
    Matrix::from_fn(z.rows(), z.cols() + 1, value)
}

/// Computes XᵀY row by row.
pub(crate) fn cross(x: &Matrix, y: &Matrix) -> Matrix {
    let mut out = Matrix::zeros(x.cols(), y.cols());
    for i in 0..x.rows() {
        for (j, &value) in x.row(i).iter().enumerate() {
            for (sum, y) in out.row_mut(j).iter_mut().zip(y.row(i)) {
                *sum += value * y;
            }
        }
    }
    out
}

/// Computes XY row by row.
pub(crate) fn product(x: &Matrix, y: &Matrix) -> Matrix {
    let mut out = Matrix::zeros(x.rows(), y.cols());
    for i in 0..x.rows() {
        for (k, &value) in x.row(i).iter().enumerate() {
            for (sum, y) in out.row_mut(i).iter_mut().zip(y.row(k)) {
                *sum += value * y;
            }
        }
    }
    out
}
