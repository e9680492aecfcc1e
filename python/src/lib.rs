//! The extension module of the Python package `muso`: sums, heads and their ranges, over the engine of the crate `muso`.
//!
//! [`array`] reads Python's arrays where they lie and is the only module with unsafe code; [`rows`] holds them against a shape
//! and hands out batches without the interpreter's lock; [`sums`] and [`head`] are the classes that users see. What needs
//! no engine, scikit-learn's conventions among it, is Python, in `python/muso`.

#![deny(unsafe_code)]
#![warn(missing_docs, unreachable_pub)]

mod array;
mod engine;
mod error;
mod head;
mod numpy;
mod range;
mod rows;
mod sums;

use pyo3::prelude::*;

/// Computes with so many threads from now on; 0 is one for each core. Results do not depend on it.
#[pyfunction]
fn set_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    engine::set_threads(py, threads)
}

/// Returns the number of threads.
#[pyfunction]
fn threads(py: Python<'_>) -> PyResult<usize> {
    engine::threads(py)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", muso::VERSION)?;
    module.add_class::<sums::Sums>()?;
    module.add_class::<head::Head>()?;
    module.add_class::<head::Forgotten>()?;
    for function in [
        wrap_pyfunction!(range::column_range, module)?,
        wrap_pyfunction!(range::grid_from, module)?,
        wrap_pyfunction!(sums::_restore_sums, module)?,
        wrap_pyfunction!(head::_restore_head, module)?,
        wrap_pyfunction!(set_threads, module)?,
        wrap_pyfunction!(threads, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
