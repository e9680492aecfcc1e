//! Rows and what they map to, held against a shape and handed out in batches, with the interpreter free meanwhile.

use std::ops::Range;

use muso::Error;
use muso::engine::{Matrix, Rows, SumsSpec, Targets};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::array::{Array, Copied, Kind};
use crate::error::exception;

/// Feature bytes of a batch, after each of which signals are looked at.
const BATCH_BYTES: usize = 32 << 20;
/// Feature bytes of a batch that is copied because its values do not lie in order.
const COPIED_BYTES: usize = 8 << 20;
/// Bytes in f64 of what is made of a batch.
const RESULT_BYTES: usize = 32 << 20;

/// Rows with what they map to.
pub(crate) struct Samples {
    features: Array,
    wanted: Wanted,
    /// Values that are made of a row, at most.
    outputs: usize,
}

enum Wanted {
    Nothing,
    /// A class below the number for each row.
    Classes(Array, usize),
    Values(Array),
}

impl Samples {
    /// Opens X and y for sums of this shape.
    pub(crate) fn open(
        x: &Bound<'_, PyAny>,
        y: Option<&Bound<'_, PyAny>>,
        spec: SumsSpec,
        classes: bool,
    ) -> PyResult<Self> {
        let features = Array::open("X", x)?;
        features.is_matrix_of(spec.features)?;
        let wanted = match (y.filter(|y| !y.is_none()), spec.targets) {
            (None, 0) => Wanted::Nothing,
            (Some(_), 0) => {
                return Err(PyTypeError::new_err(
                    "y was given, and these sums have no targets",
                ));
            }
            (None, _) => {
                let what = if classes { "a class" } else { "a target" };
                return Err(PyTypeError::new_err(format!(
                    "y is missing; expected {what} for each row"
                )));
            }
            (Some(y), targets) if classes => Wanted::Classes(labels(y)?, targets),
            (Some(y), targets) => Wanted::Values(values(y, targets)?),
        };
        if let Wanted::Classes(y, _) | Wanted::Values(y) = &wanted
            && y.rows() != features.rows()
        {
            return Err(PyValueError::new_err(format!(
                "y has {} rows and X has {}; expected as many",
                y.rows(),
                features.rows()
            )));
        }
        Ok(Self {
            features,
            wanted,
            outputs: spec.targets,
        })
    }

    /// Opens rows of so many features, of each of which so many values are made.
    pub(crate) fn alone(x: &Bound<'_, PyAny>, features: usize, outputs: usize) -> PyResult<Self> {
        let spec = SumsSpec {
            features,
            bias: false,
            targets: 0,
        };
        Ok(Self {
            outputs,
            ..Self::open(x, None, spec, false)?
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.features.rows()
    }

    /// Hands all rows to `work` in batches, without the interpreter's lock; signals are looked at in between.
    pub(crate) fn each(
        &self,
        py: Python<'_>,
        work: impl FnMut(Rows<'_>, Targets<'_>) -> muso::Result<()> + Send,
    ) -> PyResult<()> {
        self.each_then(py, work, |_, ()| Ok(()))
    }

    /// Does the same, and hands what `work` makes of each batch to `then`, with the lock and the number of the first row.
    pub(crate) fn each_then<T: Send>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(Rows<'_>, Targets<'_>) -> muso::Result<T> + Send,
        mut then: impl FnMut(usize, T) -> PyResult<()>,
    ) -> PyResult<()> {
        let bytes = match self.features.is_in_order() {
            true => BATCH_BYTES,
            false => COPIED_BYTES,
        };
        let lent = bytes / self.features.row_bytes().max(1);
        let step = lent.min(RESULT_BYTES / (8 * self.outputs.max(1))).max(1);
        let (mut room, mut classes, mut values) = (Copied::default(), Vec::new(), Vec::new());
        for start in (0..self.rows()).step_by(step) {
            let batch = start..self.rows().min(start + step);
            let done = py.detach(|| {
                let rows = self.features.batch(batch.clone(), &mut room);
                match &self.wanted {
                    Wanted::Nothing => work(rows, Targets::None),
                    Wanted::Classes(y, count) => {
                        checked(y, batch.clone(), *count, &mut classes)?;
                        work(rows, Targets::Classes(&classes))
                    }
                    Wanted::Values(y) => {
                        values.clear();
                        y.widen(batch.clone(), &mut values);
                        let values = Rows::new(batch.len(), y.cols(), values.as_slice());
                        work(rows, Targets::Values(values))
                    }
                }
            });
            then(start, done.map_err(|error| exception(py, error, start))?)?;
            py.check_signals()?;
        }
        Ok(())
    }
}

/// Reads classes, and refuses one that is not below `count`.
fn checked(y: &Array, rows: Range<usize>, count: usize, out: &mut Vec<i64>) -> muso::Result<()> {
    out.clear();
    y.integers(rows, |label| out.push(label));
    let range = 0..count as i64;
    match out.iter().position(|label| !range.contains(label)) {
        None => Ok(()),
        Some(row) => Err(Error::LabelRange {
            path: y.name().into(),
            row: row as u64,
            label: out[row],
            classes: count,
        }),
    }
}

/// Opens y as a class for each row.
pub(crate) fn labels(y: &Bound<'_, PyAny>) -> PyResult<Array> {
    let y = Array::open("y", y)?;
    if let Kind::Float(_) = y.kind() {
        return Err(PyTypeError::new_err(
            "y has floating values; expected integers, the class of each row counted from 0",
        ));
    }
    match y.cols() {
        1 => Ok(y),
        columns => Err(PyValueError::new_err(format!(
            "y has {columns} columns; expected one class for each row"
        ))),
    }
}

fn values(y: &Bound<'_, PyAny>, targets: usize) -> PyResult<Array> {
    let y = Array::open("y", y)?;
    match y.cols() == targets {
        true => Ok(y),
        false => Err(PyValueError::new_err(format!(
            "y has {} columns; expected {targets} targets for each row",
            y.cols()
        ))),
    }
}

/// Reads an array into a matrix in f64, one dimension as a row of it.
pub(crate) fn matrix(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Matrix> {
    let array = Array::open(name, value)?;
    let mut values = Vec::new();
    array.widen(0..array.rows(), &mut values);
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(Matrix::from_vec(array.rows(), array.cols(), values)),
        Some(at) => Err(PyValueError::new_err(format!(
            "{name} has {} at index {at}; expected finite values",
            values[at]
        ))),
    }
}
