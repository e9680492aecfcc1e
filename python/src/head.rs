//! `muso.Head`: a linear layer, and the same one without some of its rows.

use std::path::PathBuf;

use muso::data::Head as Layer;
use muso::engine::{Dtype, Engine, Matrix, Targets};
use muso::gram::exact::GridChoice;
use muso::progress::Progress;
use muso::{FeatureRows, Forget};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::array::{Array, Kind};
use crate::engine::engine;
use crate::error::{OrRaise, exception};
use crate::numpy;
use crate::range::finite;
use crate::rows::{Samples, labels, matrix};
use crate::sums::{Sums, notes, parsed};

/// A linear layer: scores are X · weightᵀ + bias.
///
/// Args:
///     weight: [classes, features], PyTorch's layout.
///     bias: [classes], or None.
///
/// Example:
///     >>> import numpy as np, muso
///     >>> head = muso.Head(np.eye(2), np.array([0.0, 0.5]))
///     >>> head.predict(np.array([[1.0, 0.75]])), head.decision_function(np.array([[1.0, 0.75]]))
///     (array([1]), array([[1.  , 1.25]]))
#[pyclass(frozen, module = "muso", weakref)]
pub(crate) struct Head {
    layer: Layer,
}

/// What `Head.forget` returns.
#[pyclass(frozen, get_all, module = "muso")]
pub(crate) struct Forgotten {
    /// The head that never saw the rows.
    head: Py<Head>,
    /// Numbers of the rows, ascending.
    rows: Py<PyAny>,
    /// [rows, classes]: the optimal labels of these rows, to teach them instead of their own.
    labels: Py<PyAny>,
    /// Distances, conditioning, warnings and times, as the command line's --json has them.
    report: Py<PyDict>,
}

#[pymethods]
impl Head {
    #[new]
    #[pyo3(signature = (weight, bias=None))]
    fn new(weight: &Bound<'_, PyAny>, bias: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let weight = matrix("weight", weight)?;
        let bias = bias
            .filter(|bias| !bias.is_none())
            .map(|bias| matrix("bias", bias))
            .transpose()?;
        if weight.rows() == 0 || weight.cols() == 0 {
            return Err(PyValueError::new_err(format!(
                "weight is {}×{}; expected [classes, features] with at least one of each",
                weight.rows(),
                weight.cols()
            )));
        }
        if let Some(bias) = &bias
            && (bias.as_slice().len() != weight.rows() || bias.cols() != 1)
        {
            return Err(PyValueError::new_err(format!(
                "bias has {} values; expected {}, one for each row of weight",
                bias.as_slice().len(),
                weight.rows()
            )));
        }
        let bias = bias.map(|bias| bias.as_slice().to_vec());
        Ok(Self {
            layer: Layer::new(weight, bias),
        })
    }

    /// [classes, features], a new float64 array.
    #[getter]
    fn weight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::matrix(py, &self.layer.weight)
    }

    /// [classes], a new float64 array; None without a bias.
    #[getter]
    fn bias<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bias = self.layer.bias.as_ref();
        bias.map(|bias| numpy::vector(py, bias, "float64"))
            .transpose()
    }

    /// Returns the class with the largest score of each row, int64.
    #[allow(non_snake_case)]
    fn predict<'py>(&self, py: Python<'py>, X: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (samples, weights, engine) = (self.samples(X)?, self.layer.weights(), engine(py)?);
        let out = numpy::empty(py, samples.rows(), "int64")?;
        samples.each_then(
            py,
            |rows, targets| {
                finite(rows, targets)?;
                let classes = engine.project_argmax(rows, &weights)?;
                Ok(classes.into_iter().map(i64::from).collect())
            },
            |start, classes: Vec<i64>| numpy::fill_rows(&out, start, classes.len(), &classes),
        )?;
        Ok(out)
    }

    /// Returns the scores of each row, [N, classes] float64.
    #[allow(non_snake_case)]
    fn decision_function<'py>(
        &self,
        py: Python<'py>,
        X: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (samples, weights, engine) = (self.samples(X)?, self.layer.weights(), engine(py)?);
        let out = numpy::empty(py, (samples.rows(), weights.cols()), "float64")?;
        samples.each_then(
            py,
            |rows, targets| {
                finite(rows, targets)?;
                engine.project(rows, &weights)
            },
            |start, scores| numpy::fill_rows(&out, start, scores.rows(), scores.as_slice()),
        )?;
        Ok(out)
    }

    /// Forgets rows that the head was fitted to: what `muso head` does, to the byte.
    ///
    /// Args:
    ///     X: [N, features], all rows that the head was fitted to, in order in memory (or a memory map of them).
    ///     y: [N] integers, the classes; or [N, classes], the values.
    ///     rows: Numbers of the rows to forget, counted from 0.
    ///     ridge: The ridge that the head was fitted with.
    ///     penalise_bias: Whether that ridge held the bias as well.
    ///     verify: Solves once more from the retained rows alone, and reports the distance.
    ///     bits: Sums in integers on a grid of so many bits; None for sums in float64.
    ///     grid: A number or a file, as for `Sums`; by default recorded from the retained rows.
    ///
    /// Example:
    ///     >>> import numpy as np, muso
    ///     >>> X = np.sin(np.arange(18.0) ** 2).reshape(6, 3)
    ///     >>> y = np.array([0, 1, 0, 1, 1, 0])
    ///     >>> sums = muso.Sums(3, classes=2, bits=None)
    ///     >>> sums.add(X, y)
    ///     >>> new = sums.solve(ridge=0.1).forget(X, y, [1, 4], ridge=0.1, verify=True)
    ///     >>> new.rows, new.report["verify"]["distance_relative"] < 1e-12
    ///     (array([1, 4]), True)
    #[pyo3(signature = (X, y, rows, *, ridge, penalise_bias=true, verify=false, bits=None, grid=None))]
    #[allow(non_snake_case, clippy::too_many_arguments)]
    fn forget(
        &self,
        py: Python<'_>,
        X: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
        rows: &Bound<'_, PyAny>,
        ridge: f64,
        penalise_bias: bool,
        verify: bool,
        bits: Option<u32>,
        grid: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Forgotten> {
        let features = Array::open("X", X)?;
        let all = features.is_matrix_of(self.layer.weight.cols())?.whole()?;
        finite(all, Targets::None).or_raise(py)?;
        let answers = Answers::open(y, self.layer.weight.rows())?;
        if answers.rows() != all.rows() {
            return Err(PyValueError::new_err(format!(
                "y has {} rows and X has {}; expected as many",
                answers.rows(),
                all.rows()
            )));
        }
        let ids = numbers(rows)?;
        let mut request = self
            .layer
            .forget(&FeatureRows::new(all, answers.targets()), Forget::rows(ids))
            .engine(engine(py)?)
            .ridge(ridge)
            .free_bias(!penalise_bias)
            .objective(muso::Objective::Ridge)
            .verify(verify);
        match (bits, grid) {
            (None, None) => {}
            (None, Some(_)) => {
                return Err(PyValueError::new_err(
                    "grid was given without bits; expected both, or neither",
                ));
            }
            (Some(bits), None) => request = request.exact(bits),
            (Some(bits), Some(grid)) => request = request.exact(bits).grid(choice(grid)?),
        }
        let solved = py
            .detach(|| request.solve_with(&mut Signals))
            .map_err(|error| {
                // The exception that the signal's handler raised, where it did.
                match (PyErr::take(py), error) {
                    (Some(raised), muso::Error::Interrupted) => raised,
                    (_, error) => exception(py, error, 0),
                }
            })?;
        let ids: Vec<i64> = solved.labels.rows.iter().map(|&row| row as i64).collect();
        Ok(Forgotten {
            head: Py::new(py, Self { layer: solved.head })?,
            rows: numpy::vector(py, &ids, "int64")?.unbind(),
            labels: numpy::matrix(py, &solved.labels.targets)?.unbind(),
            report: parsed(py, &solved.report.to_json())?.unbind(),
        })
    }

    /// Saves the head as safetensors, in float64: `weight` and perhaps `bias`, under the names that it was loaded with.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.layer.save(&path)).or_raise(py)
    }

    /// Loads a head: safetensors with `weight` and perhaps `bias`, or with one matrix such as `fc.weight`; or a .npy matrix.
    #[classmethod]
    fn load(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let layer = py.detach(|| Layer::load(path)).or_raise(py)?;
        Ok(Self { layer })
    }

    /// The bytes of the file that `save` writes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.layer.to_safetensors(Dtype::F64).or_raise(py)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Loads a head from the bytes of its file.
    #[classmethod]
    fn from_bytes(_class: &Bound<'_, PyType>, py: Python<'_>, data: Vec<u8>) -> PyResult<Self> {
        let layer = Layer::from_bytes(data).or_raise(py)?;
        Ok(Self { layer })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Self>() else {
            return false;
        };
        let other = &other.get().layer;
        (&self.layer.weight, &self.layer.bias) == (&other.weight, &other.bias)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, layer) = (slf.py(), &slf.get().layer);
        let notes: Vec<(String, String)> = layer.notes.clone().into_iter().collect();
        let restore = py.import("muso._native")?.getattr("_restore_head")?;
        Ok((
            restore,
            (slf.get().__bytes__(py)?, notes)
                .into_pyobject(py)?
                .into_any(),
        ))
    }

    fn __repr__(&self) -> String {
        let (classes, features) = (self.layer.weight.rows(), self.layer.weight.cols());
        let bias = if self.layer.bias.is_some() {
            "with"
        } else {
            "without"
        };
        format!("<muso.Head: features={features}, classes={classes}, {bias} a bias>")
    }
}

/// Makes the head that was pickled.
#[pyfunction]
pub(crate) fn _restore_head(
    py: Python<'_>,
    data: Vec<u8>,
    notes: Vec<(String, String)>,
) -> PyResult<Head> {
    let mut layer = Layer::from_bytes(data).or_raise(py)?;
    layer.notes = notes.into_iter().collect();
    Ok(Head { layer })
}

impl Head {
    /// Takes weights that were solved for, D×C with the bias as last row.
    pub(crate) fn solved(weights: &Matrix, bias: bool, exact: Option<u32>) -> Self {
        let width = weights.rows() - usize::from(bias);
        let blank = Layer::new(
            Matrix::zeros(weights.cols(), width),
            bias.then(|| vec![0.0; weights.cols()]),
        );
        let mut layer = blank.with_weights(weights);
        layer.notes = notes(exact).collect();
        Self { layer }
    }

    fn samples(&self, x: &Bound<'_, PyAny>) -> PyResult<Samples> {
        Samples::alone(x, self.layer.weight.cols(), self.layer.weight.rows())
    }
}

/// Classes or values of all rows, in memory.
enum Answers {
    Classes(Vec<i64>),
    Values(Matrix),
}

impl Answers {
    fn open(y: &Bound<'_, PyAny>, classes: usize) -> PyResult<Self> {
        let array = Array::open("y", y)?;
        if let Kind::Float(_) = array.kind() {
            let values = matrix("y", y)?;
            return match values.cols() == classes {
                true => Ok(Self::Values(values)),
                false => Err(PyValueError::new_err(format!(
                    "y has {} columns; expected {classes}, as the head has",
                    values.cols()
                ))),
            };
        }
        let array = labels(y)?;
        let mut values = Vec::with_capacity(array.rows());
        array.integers(0..array.rows(), |label| values.push(label));
        Ok(Self::Classes(values))
    }

    fn rows(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values(values) => values.rows(),
        }
    }

    fn targets(&self) -> Targets<'_> {
        match self {
            Self::Classes(classes) => Targets::Classes(classes),
            Self::Values(values) => Targets::Values(values.as_rows()),
        }
    }
}

/// Reads numbers of rows: any sequence of integers that are not negative.
fn numbers(rows: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let wrong = |what: String| {
        PyValueError::new_err(format!(
            "rows has {what}; expected numbers of rows, counted from 0"
        ))
    };
    let items = rows.try_iter().map_err(|_| {
        PyTypeError::new_err("rows is not a sequence; expected numbers of rows, counted from 0")
    })?;
    items
        .map(|item| {
            let item = item?;
            let number = item
                .call_method0("__index__")
                .map_err(|_| wrong(item.to_string()))?;
            number.extract::<u64>().map_err(|_| wrong(item.to_string()))
        })
        .collect()
}

/// Reads a grid that a pass over rows can be asked for.
fn choice(grid: &Bound<'_, PyAny>) -> PyResult<GridChoice> {
    if let Ok(range) = grid.extract::<f64>() {
        return Ok(GridChoice::Range(range));
    }
    if let Ok(path) = grid.extract::<PathBuf>() {
        return Ok(GridChoice::File(path));
    }
    match grid.cast::<Sums>() {
        Ok(sums) => Ok(GridChoice::Given(sums.get().grid_at_hand(grid.py())?)),
        Err(_) => Err(PyTypeError::new_err(
            "grid is of no use here; expected a number, a file or sums",
        )),
    }
}

/// Stops a run where Python has a signal to handle.
struct Signals;

impl Progress for Signals {
    fn at(&mut self, _: &str, _: u64, _: u64) -> bool {
        Python::attach(|py| match py.check_signals() {
            Ok(()) => true,
            Err(error) => {
                error.restore(py);
                false
            }
        })
    }
}
