//! Errors of the engine as exceptions of Python's that name the argument.

use muso::Error;
use pyo3::exceptions::{
    PyKeyboardInterrupt, PyMemoryError, PyOSError, PyOverflowError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;

/// Returns what arguments are called where the engine says so of a tensor.
fn argument(tensor: &str) -> &str {
    match tensor {
        "features" => "X",
        "targets" | "labels" => "y",
        other => other,
    }
}

/// Spells fields of the engine's parameters as arguments: `` `.ridge` `` is ridge.
fn spelt(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once("`.") {
        let Some((field, tail)) = after.split_once('`') else {
            break;
        };
        out.push_str(before);
        let (name, value) = field.split_once(" = ").unwrap_or((field, ""));
        out.push_str(match name {
            "exact" => "bits",
            "features" => "X",
            "labels" => "y",
            "forget" => "rows",
            other => other,
        });
        if !value.is_empty() {
            out.push('=');
            out.push_str(value);
        }
        rest = tail;
    }
    out + rest
}

/// Turns an error into an exception; `start` is the number of the first row of the batch that it is about.
pub(crate) fn exception(py: Python<'_>, error: Error, start: usize) -> PyErr {
    match error {
        Error::NotFinite {
            tensor,
            row,
            column,
            value,
            ..
        } => PyValueError::new_err(format!(
            "{} has {} at row {}, column {column}; expected finite values (no NaN, inf or infinity)",
            argument(&tensor),
            if value.is_nan() {
                "NaN".to_owned()
            } else {
                value.to_string()
            },
            row + start as u64
        )),
        Error::OffGrid {
            tensor,
            row,
            column,
            value,
            reach,
            ..
        } => PyOverflowError::new_err(format!(
            "{} has {value:e} at row {}, column {column}; the grid reaches to {reach:.3e} there, and a grid= of a larger range \
             further",
            argument(&tensor),
            row + start as u64
        )),
        Error::LabelRange {
            row,
            label,
            classes,
            ..
        } => PyValueError::new_err(format!(
            "y has the label {label} at row {}; expected one of {classes} classes, 0 to {}",
            row + start as u64,
            classes.saturating_sub(1)
        )),
        Error::Io {
            path,
            action,
            source,
        } => match source.raw_os_error() {
            // Of the kind that Python has for the number, say FileNotFoundError.
            Some(number) => {
                let what = format!("cannot {action}: {source}");
                PyOSError::new_err((number, what, path.display().to_string()))
            }
            None => PyOSError::new_err(format!("{}: cannot {action}: {source}", path.display())),
        },
        Error::Overflow => PyOverflowError::new_err(error.to_string()),
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::DeviceMemory { .. } => PyMemoryError::new_err(error.to_string()),
        Error::NotPositiveDefinite { .. } | Error::NoConvergence { .. } => {
            let message = error.to_string();
            let singular = || py.import("numpy.linalg")?.getattr("LinAlgError");
            match singular().and_then(|kind| kind.call1((message,))) {
                Ok(value) => PyErr::from_value(value),
                Err(error) => error,
            }
        }
        other if other.is_input() => PyValueError::new_err(spelt(&other.to_string())),
        other => PyRuntimeError::new_err(spelt(&other.to_string())),
    }
}

/// Results of the engine as results of Python's.
pub(crate) trait OrRaise<T> {
    /// Raises an error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for muso::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, error, 0))
    }
}
