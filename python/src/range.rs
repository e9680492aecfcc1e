//! Largest magnitudes of columns, and the grid that they make.

use muso::Error;
use muso::engine::exact::{EXPONENTS, Grid, HEAD_ROOM};
use muso::engine::{Rows, SumsSpec, Targets};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::error::OrRaise;
use crate::numpy;
use crate::rows::{Samples, matrix};

/// The largest magnitude of each column of rows, and of targets that are values.
pub(crate) struct Largest {
    features: Vec<f64>,
    targets: Vec<f64>,
    row: Vec<f64>,
}

impl Largest {
    pub(crate) fn new(features: usize, targets: usize) -> Self {
        Self {
            features: vec![0.0; features],
            targets: vec![0.0; targets],
            row: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, rows: Rows<'_>, targets: Targets<'_>) -> muso::Result<()> {
        finite(rows, targets)?;
        note(rows, &mut self.features, &mut self.row);
        if let Targets::Values(values) = targets {
            note(values, &mut self.targets, &mut self.row);
        }
        Ok(())
    }

    /// Returns the exponent of each column, `None` for zeros.
    pub(crate) fn exponents(&self) -> (Vec<Option<i32>>, Vec<Option<i32>>) {
        let each = |of: &[f64]| of.iter().map(|&value| exponent_of(value)).collect();
        (each(&self.features), each(&self.targets))
    }
}

fn note(rows: Rows<'_>, largest: &mut [f64], row: &mut Vec<f64>) {
    row.resize(largest.len(), 0.0);
    for i in 0..rows.rows() {
        rows.widen_row(i, row);
        for (largest, value) in largest.iter_mut().zip(row.iter()) {
            *largest = largest.max(value.abs());
        }
    }
}

/// Refuses rows with a value that is not finite.
pub(crate) fn finite(rows: Rows<'_>, targets: Targets<'_>) -> muso::Result<()> {
    let refused = |rows: Rows<'_>, tensor: &str| match rows.first_not_finite() {
        None => Ok(()),
        Some((row, column, value)) => Err(Error::NotFinite {
            path: tensor.into(),
            tensor: tensor.into(),
            row: row as u64,
            column,
            value,
        }),
    };
    refused(rows, "features")?;
    match targets {
        Targets::Values(values) => refused(values, "targets"),
        _ => Ok(()),
    }
}

/// Returns x with 2^x ≤ value < 2^(x + 1); `None` for zero.
fn exponent_of(value: f64) -> Option<i32> {
    let field = (value.to_bits() >> 52 & 0x7ff) as i32;
    match field {
        _ if value == 0.0 => None,
        // Below any unit that a grid can have.
        0 => Some(-1023),
        _ => Some(field - 1023),
    }
}

/// Returns the largest magnitude of each column of X, and of y after them where y has values, as float64.
///
/// Ranges of parts of the rows merge by `numpy.maximum`, or by a reduction to the maximum; `grid_from` makes a grid of them.
///
/// Example:
///     >>> import numpy as np, muso
///     >>> muso.column_range(np.array([[1.0, -3.0], [0.5, 2.0]]))
///     array([1., 3.])
#[pyfunction]
#[pyo3(signature = (X, y=None))]
#[allow(non_snake_case)]
pub(crate) fn column_range<'py>(
    py: Python<'py>,
    X: &Bound<'py, PyAny>,
    y: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let y = y.filter(|y| !y.is_none());
    let targets = y
        .map(|y| Array::open("y", y))
        .transpose()?
        .map_or(0, |y| y.cols());
    let spec = SumsSpec {
        features: Array::open("X", X)?.cols(),
        bias: false,
        targets,
    };
    let samples = Samples::open(X, y, spec, false)?;
    let mut largest = Largest::new(spec.features, targets);
    samples.each(py, |rows, targets| largest.add(rows, targets))?;
    numpy::vector(py, &[largest.features, largest.targets].concat(), "float64")
}

/// Returns the exponents of the grid, an int32 array, on which magnitudes up to these have so many bits, with `head_room` more
/// above. A column of zeros is given the unit of the column with the largest values.
///
/// Example:
///     >>> import numpy as np, muso
///     >>> muso.grid_from(np.array([1.0, 3.0, 0.0]), bits=22)
///     array([-20, -19, -19], dtype=int32)
#[pyfunction]
#[pyo3(signature = (range, *, bits=22, head_room=HEAD_ROOM))]
pub(crate) fn grid_from<'py>(
    py: Python<'py>,
    range: &Bound<'py, PyAny>,
    bits: u32,
    head_room: i32,
) -> PyResult<Bound<'py, PyAny>> {
    let range = matrix("range", range)?;
    if !(0..=64).contains(&head_room) {
        return Err(PyValueError::new_err(format!(
            "head_room is {head_room}; expected 0 to 64 bits"
        )));
    }
    if let Some(value) = range.as_slice().iter().find(|value| **value < 0.0) {
        return Err(PyValueError::new_err(format!(
            "range has {value}; expected magnitudes, as column_range returns"
        )));
    }
    let exponents: Vec<Option<i32>> = range.as_slice().iter().map(|&v| exponent_of(v)).collect();
    let top = exponents.iter().flatten().max().copied().unwrap_or(0);
    let unit =
        |x: &Option<i32>| (x.unwrap_or(top) + 1 + head_room - bits as i32).max(*EXPONENTS.start());
    let units: Vec<i32> = exponents.iter().map(unit).collect();
    // Is it one?
    Grid::new(bits, units.clone(), Vec::new()).or_raise(py)?;
    numpy::vector(py, &units, "int32")
}
