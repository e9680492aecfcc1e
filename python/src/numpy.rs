//! Arrays of numpy's as results.

use muso::engine::Matrix;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// Makes an array that nothing is in yet.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: impl IntoPyObject<'py>,
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("numpy")?.call_method1("empty", (shape, dtype))
}

/// Copies values into an array of as many.
pub(crate) fn fill<T: Element>(array: &Bound<'_, PyAny>, values: &[T]) -> PyResult<()> {
    PyBuffer::<T>::get(array)?.copy_from_slice(array.py(), values)
}

/// Copies values into the rows of an array from `start` on.
pub(crate) fn fill_rows<T: Element>(
    array: &Bound<'_, PyAny>,
    start: usize,
    rows: usize,
    values: &[T],
) -> PyResult<()> {
    let part = PySlice::new(array.py(), start as isize, (start + rows) as isize, 1);
    fill(&array.get_item(part)?, values)
}

pub(crate) fn vector<'py, T: Element>(
    py: Python<'py>,
    values: &[T],
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, values.len(), dtype)?;
    fill(&array, values)?;
    Ok(array)
}

pub(crate) fn matrix<'py>(py: Python<'py>, values: &Matrix) -> PyResult<Bound<'py, PyAny>> {
    let array = empty(py, (values.rows(), values.cols()), "float64")?;
    fill(&array, values.as_slice())?;
    Ok(array)
}
