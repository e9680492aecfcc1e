//! `muso.Sums`: sums over rows that add, subtract, merge and are solved.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muso::data::OutputFile;
use muso::engine::exact::{ExactSpec, ExactSums, Grid};
use muso::engine::{Centred, CpuEngine, Engine, Matrix, SumsSpec};
use muso::gram::Gram;
use muso::gram::exact::{ExactState, load_grid, plausible};
use muso::gram::shard::{Part, Shard, nothing};
use muso::solve::{Method, VERSION, fit, fit_free_bias};
use muso::{Error, engine};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::array::{Array, Kind};
use crate::engine::engine;
use crate::error::{OrRaise, exception};
use crate::head::Head;
use crate::range::Largest;
use crate::rows::Samples;
use crate::{numpy, range};

/// Sums of products over feature rows: ZᵀZ and ZᵀY, all that a ridge head is solved from.
///
/// Sums are added up in any order, on any machine; rows can be subtracted, which leaves no trace: by default the sums are
/// those of integers on a grid of powers of two, so that they have the same bytes whatever came and went.
///
/// Args:
///     features: Number of columns of X.
///     classes: Number of classes, where y has an integer for each row, counted from 0.
///     targets: Number of columns of y, where y has values. Give one of `classes` and `targets`.
///     bias: Whether the head has a bias.
///     grid: The grid that values are rounded to: a number that no magnitude of a column exceeds, a file with a grid (such as
///         saved sums), other sums, or an array of exponents, such as `muso.grid_of(X)`. By default it is fixed by the
///         first rows that are added, with a bit of head-room; sums agree to the byte only if they are on one grid.
///     bits: Width of the grid: 13, 20, 22, 27, 34 or 41 bits, or None for sums in plain float64, which keep a trace of what
///         came and went in their last digits. 22 bits are as fast as float64.
///
/// Example:
///     >>> import numpy as np, muso
///     >>> X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]], dtype=np.float32)
///     >>> y = np.array([0, 1, 1])
///     >>> sums = muso.Sums(2, classes=2, grid=4.0)
///     >>> sums.add(X, y)
///     >>> sums.subtract(X[1:2], y[1:2])
///     >>> never = muso.Sums(2, classes=2, grid=4.0)
///     >>> never.add(X[[0, 2]], y[[0, 2]])
///     >>> sums == never, bytes(sums) == bytes(never), sums.rows
///     (True, True, 2)
#[pyclass(frozen, module = "muso", weakref)]
pub(crate) struct Sums {
    shape: Shape,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq)]
struct Shape {
    spec: SumsSpec,
    classes: bool,
    bits: Option<u32>,
}

#[derive(Clone)]
enum State {
    /// No rows, and no grid before there are some.
    Open,
    Exact {
        spec: ExactSpec,
        sums: ExactSums,
    },
    Wide(Wide),
}

/// Sums in f64.
#[derive(Clone, PartialEq)]
struct Wide {
    sums: engine::Sums,
    /// Number of rows of each class; a file of sums does not have them.
    class_rows: Option<Vec<u64>>,
}

impl State {
    fn rows(&self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Exact { sums, .. } => sums.rows,
            Self::Wide(wide) => wide.sums.rows,
        }
    }

    fn none(&self) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Exact { spec, .. } => Self::Exact {
                sums: ExactSums::none(spec),
                spec: spec.clone(),
            },
            Self::Wide(wide) => Self::Wide(Wide {
                sums: engine::Sums {
                    rows: 0,
                    gram: Matrix::zeros(wide.sums.gram.rows(), wide.sums.gram.cols()),
                    cross: Matrix::zeros(wide.sums.cross.rows(), wide.sums.cross.cols()),
                },
                class_rows: wide.class_rows.as_ref().map(|rows| vec![0; rows.len()]),
            }),
        }
    }

    /// Returns the sums with those over other rows added.
    fn plus(&self, other: &Self) -> Result<Self, Refused> {
        match (self, other) {
            (same, Self::Open) | (Self::Open, same) => Ok(same.clone()),
            (
                Self::Exact { spec, sums },
                Self::Exact {
                    spec: theirs,
                    sums: more,
                },
            ) => {
                same_grid(spec, theirs)?;
                Ok(Self::Exact {
                    spec: ExactSpec {
                        setters: spec.setters || theirs.setters,
                        ..spec.clone()
                    },
                    sums: sums.add(more)?,
                })
            }
            (Self::Wide(a), Self::Wide(b)) => Ok(Self::Wide(Wide {
                sums: a.sums.add(&b.sums),
                class_rows: counted(a, b, u64::checked_add)?,
            })),
            _ => Err(Refused::Kinds),
        }
    }

    /// Returns the sums without other rows that are in them.
    fn minus(&self, other: &Self) -> Result<Self, Refused> {
        if other.rows() > self.rows() {
            return Err(Refused::TooMany(self.rows(), other.rows()));
        }
        match (self, other) {
            (same, Self::Open) => Ok(same.clone()),
            (
                Self::Exact { spec, sums },
                Self::Exact {
                    spec: theirs,
                    sums: less,
                },
            ) => {
                same_grid(spec, theirs)?;
                let left = sums.subtract(less).map_err(|_| Refused::Strangers)?;
                match plausible(&left, spec) {
                    true => Ok(Self::Exact {
                        spec: spec.clone(),
                        sums: left,
                    }),
                    false => Err(Refused::Strangers),
                }
            }
            (Self::Wide(a), Self::Wide(b)) => Ok(Self::Wide(Wide {
                class_rows: counted(a, b, u64::checked_sub)?,
                sums: a.sums.subtract(&b.sums),
            })),
            _ => Err(Refused::Kinds),
        }
    }
}

/// Why sums are not combined.
enum Refused {
    Engine(Error),
    Grids(String),
    Kinds,
    Strangers,
    TooMany(u64, u64),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Refused {
    fn exception(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Engine(error) => exception(py, error, 0),
            Self::Grids(how) => PyValueError::new_err(format!(
                "the sums are on different grids ({how}); expected one: make them with the same grid="
            )),
            Self::Kinds => PyValueError::new_err(
                "one of the sums is exact and the other in float64; expected the same bits= for both",
            ),
            Self::Strangers => PyValueError::new_err(
                "the rows to subtract are not among those that were added; expected rows as they were added, with their y",
            ),
            Self::TooMany(rows, less) => PyValueError::new_err(format!(
                "{less} rows cannot be subtracted from sums over {rows}; expected rows that were added"
            )),
        }
    }
}

fn same_grid(one: &ExactSpec, other: &ExactSpec) -> Result<(), Refused> {
    if one.grid == other.grid {
        return Ok(());
    }
    let units = |spec: &ExactSpec| [spec.grid.features(), spec.grid.targets()].concat();
    let (a, b) = (units(one), units(other));
    let at = a.iter().zip(&b).position(|(a, b)| a != b).unwrap_or(0);
    Err(Refused::Grids(format!(
        "in column {at} the unit is 2^{} in one and 2^{} in the other",
        a[at], b[at]
    )))
}

fn counted(
    a: &Wide,
    b: &Wide,
    count: impl Fn(u64, u64) -> Option<u64>,
) -> Result<Option<Vec<u64>>, Refused> {
    match (&a.class_rows, &b.class_rows) {
        (Some(a), Some(b)) => {
            let each = a.iter().zip(b).map(|(&a, &b)| count(a, b));
            each.collect::<Option<_>>()
                .map(Some)
                .ok_or(Refused::Strangers)
        }
        _ => Ok(None),
    }
}

#[pymethods]
impl Sums {
    #[new]
    #[pyo3(signature = (features, *, classes=None, targets=None, bias=true, grid=None, bits=22))]
    fn new(
        py: Python<'_>,
        features: usize,
        classes: Option<usize>,
        targets: Option<usize>,
        bias: bool,
        grid: Option<&Bound<'_, PyAny>>,
        bits: Option<u32>,
    ) -> PyResult<Self> {
        let (targets, of_classes) = match (classes, targets) {
            (Some(_), Some(_)) => {
                return Err(PyTypeError::new_err(
                    "both classes and targets were given; expected one of them",
                ));
            }
            (Some(classes), None) => (classes, true),
            (None, targets) => (targets.unwrap_or(0), false),
        };
        const MOST: usize = 1 << 20;
        for (name, number, least) in [("features", features, 1), ("targets", targets, 0)] {
            if !(least..=MOST).contains(&number) {
                return Err(PyValueError::new_err(format!(
                    "{name} is {number}; expected {least} to {MOST}"
                )));
            }
        }
        let shape = Shape {
            spec: SumsSpec {
                features,
                bias,
                targets,
            },
            classes: of_classes,
            bits,
        };
        let state = match (bits, grid) {
            (None, None) => State::Wide(Wide {
                sums: nothing(shape.spec),
                class_rows: of_classes.then(|| vec![0; targets]),
            }),
            (None, Some(_)) => {
                return Err(PyValueError::new_err(
                    "grid was given with bits=None; expected no grid for sums in float64",
                ));
            }
            (Some(bits), None) => {
                Grid::new(bits, Vec::new(), Vec::new()).or_raise(py)?;
                State::Open
            }
            (Some(bits), Some(grid)) => {
                let spec = shape.on(py, shape.grid(bits, grid)?, false)?;
                State::Exact {
                    sums: ExactSums::none(&spec),
                    spec,
                }
            }
        };
        Ok(Self {
            shape,
            state: Mutex::new(state),
        })
    }

    /// Adds rows.
    ///
    /// Nothing is copied where the values of X lie in order: a numpy array or memory map, or a tensor on the processor. If
    /// anything is wrong with X or y, the sums stay as they were.
    ///
    /// Args:
    ///     X: [N, features] of float16, bfloat16, float32 or float64.
    ///     y: [N] integers, the classes; or [N, targets], the values; None for sums without targets.
    #[pyo3(signature = (X, y=None))]
    #[allow(non_snake_case)]
    fn add(
        &self,
        py: Python<'_>,
        X: &Bound<'_, PyAny>,
        y: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(delta) = self.summed(py, X, y)? else {
            return Ok(());
        };
        self.change(py, |state| state.plus(&delta))
    }

    /// Subtracts rows that were added: the sums are those that never had them.
    ///
    /// Raises ValueError where that shows that the rows were not among them. It cannot always show.
    #[pyo3(signature = (X, y=None))]
    #[allow(non_snake_case)]
    fn subtract(
        &self,
        py: Python<'_>,
        X: &Bound<'_, PyAny>,
        y: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if let State::Open = *self.lock(py) {
            let rows = Samples::open(X, y, self.shape.spec, self.shape.classes)?.rows();
            return match rows {
                0 => Ok(()),
                _ => Err(Refused::TooMany(0, rows as u64).exception(py)),
            };
        }
        let Some(delta) = self.summed(py, X, y)? else {
            return Ok(());
        };
        self.change(py, |state| state.minus(&delta))
    }

    /// Adds the sums over other rows, and returns these sums.
    fn merge(slf: Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<Py<Self>> {
        let py = slf.py();
        slf.get().fits(other.get())?;
        let more = other.get().lock(py).clone();
        slf.get().change(py, |state| state.plus(&more))?;
        Ok(slf.unbind())
    }

    fn __add__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combined(py, other.get(), State::plus)
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combined(py, other.get(), State::minus)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Self>() else {
            return false;
        };
        let theirs = other.get().lock(py).clone();
        self.shape == other.get().shape
            && match (&*self.lock(py), &theirs) {
                (State::Open, State::Open) => true,
                (
                    State::Exact { spec, sums },
                    State::Exact {
                        spec: other,
                        sums: theirs,
                    },
                ) => spec.grid == other.grid && sums == theirs,
                (State::Wide(a), State::Wide(b)) => a.sums == b.sums,
                _ => false,
            }
    }

    /// Returns sums of the same shape and grid over no rows.
    fn empty(&self, py: Python<'_>) -> Self {
        self.with(self.lock(py).none())
    }

    /// Returns a copy.
    fn copy(&self, py: Python<'_>) -> Self {
        self.with(self.lock(py).clone())
    }

    fn __copy__(&self, py: Python<'_>) -> Self {
        self.copy(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy(py)
    }

    /// Number of columns of X.
    #[getter]
    fn features(&self) -> usize {
        self.shape.spec.features
    }

    /// Number of classes; None where targets are values.
    #[getter]
    fn classes(&self) -> Option<usize> {
        self.shape.classes.then_some(self.shape.spec.targets)
    }

    /// Number of columns of y, classes or values.
    #[getter]
    fn targets(&self) -> usize {
        self.shape.spec.targets
    }

    /// Whether the head has a bias.
    #[getter]
    fn bias(&self) -> bool {
        self.shape.spec.bias
    }

    /// Width of the grid; None for sums in float64.
    #[getter]
    fn bits(&self) -> Option<u32> {
        self.shape.bits
    }

    /// Exponents of the grid's units, of the features and then of targets that are values; None where there is no grid, or not
    /// yet.
    #[getter]
    fn grid<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let exponents = match &*self.lock(py) {
            State::Exact { spec, .. } => [spec.grid.features(), spec.grid.targets()].concat(),
            _ => return Ok(None),
        };
        numpy::vector(py, &exponents, "int32").map(Some)
    }

    /// Whether the grid was fixed by the first rows that were added; False for one that was given, and None without a grid.
    #[getter]
    fn grid_recorded(&self, py: Python<'_>) -> Option<bool> {
        match &*self.lock(py) {
            State::Exact { spec, .. } => Some(spec.setters),
            _ => None,
        }
    }

    /// Number of rows.
    #[getter]
    fn rows(&self, py: Python<'_>) -> u64 {
        self.lock(py).rows()
    }

    /// Number of values that were rounded to the grid.
    #[getter]
    fn moved(&self, py: Python<'_>) -> u64 {
        match &*self.lock(py) {
            State::Exact { sums, .. } => sums.moved,
            _ => 0,
        }
    }

    /// Number of rows of each class, an int64 array; None where targets are values, or where a file of float64 sums without a
    /// bias does not say.
    #[getter]
    fn class_counts<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.shape.classes {
            return Ok(None);
        }
        let counts = match &*self.lock(py) {
            State::Open => Some(vec![0; self.shape.spec.targets]),
            State::Exact { sums, .. } => Some(sums.class_rows.clone()),
            State::Wide(wide) => wide.class_rows.clone(),
        };
        let Some(counts) = counts else {
            return Ok(None);
        };
        let counts: Vec<i64> = counts.into_iter().map(|n| n as i64).collect();
        numpy::vector(py, &counts, "int64").map(Some)
    }

    /// Solves for the head: the minimiser of ‖XW + b − Y‖² + ridge·‖W‖², with Y of ones and zeros for classes.
    ///
    /// Args:
    ///     ridge: λ, at least 0.
    ///     penalise_bias: Whether the ridge holds the bias as well, as the command line does by default; scikit-learn
    ///         leaves it free.
    ///
    /// Raises numpy.linalg.LinAlgError or ValueError where the system is singular to working precision.
    #[pyo3(signature = (ridge, *, penalise_bias=true))]
    fn solve(&self, py: Python<'_>, ridge: f64, penalise_bias: bool) -> PyResult<Head> {
        let state = self.lock(py).clone();
        if state.rows() == 0 {
            return Err(PyValueError::new_err(
                "the sums have no rows; expected at least one",
            ));
        }
        if self.shape.spec.targets == 0 {
            return Err(PyValueError::new_err(
                "the sums have no targets to solve for; expected sums made with classes= or targets=",
            ));
        }
        let free = !penalise_bias && self.shape.spec.bias;
        let engine = engine(py)?;
        let solved = py.detach(|| solve(&engine, &state, ridge, free));
        let (weights, exact) = match solved {
            Ok(solved) => solved,
            Err(Error::Parameter {
                name: "ridge",
                value,
                expected,
            }) => {
                return Err(PyValueError::new_err(format!(
                    "ridge is {value}; expected {expected}"
                )));
            }
            Err(error) => return Err(exception(py, error, 0)),
        };
        Ok(Head::solved(&weights, self.shape.spec.bias, exact))
    }

    /// Saves the sums as a file of the command line's: `muso head --sums`, `muso merge`.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let bytes = self.file(py)?;
        let save = || {
            let mut file = OutputFile::create(&path)?;
            file.put(&bytes)?;
            file.commit()
        };
        py.detach(save).or_raise(py)
    }

    /// Loads sums that were saved, or that `muso gram` or `muso merge` wrote; of the latter the retained rows.
    #[classmethod]
    fn load(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::of_shard(py.detach(|| Shard::load(path)).or_raise(py)?)
    }

    /// The bytes of the file that `save` writes. Equal sums have equal bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.file(py)?))
    }

    /// Loads sums from the bytes of their file.
    #[classmethod]
    fn from_bytes(_class: &Bound<'_, PyType>, py: Python<'_>, data: Vec<u8>) -> PyResult<Self> {
        Self::of_shard(py.detach(|| Shard::from_bytes(data)).or_raise(py)?)
    }

    /// Returns exact sums as a vector of int64, for reductions that know nothing of 128 bits.
    ///
    /// Every integer of the state is four limbs of 32 bits, the lowest first and the highest with the sign; counts are one
    /// number each. The element-wise sum of such vectors, of up to 2³¹ of them, is the vector of the merged sums:
    /// `from_limbs` carries what does not fit. All must be on one grid, which is given.
    ///
    /// Example:
    ///     >>> import numpy as np, muso
    ///     >>> parts = []
    ///     >>> for part in np.split(np.arange(24.0).reshape(6, 4), 2):
    ///     ...     sums = muso.Sums(4, targets=1, grid=32.0)
    ///     ...     sums.add(part, part[:, :1])
    ///     ...     parts.append(sums)
    ///     >>> together = muso.Sums.from_limbs(parts[0].limbs() + parts[1].limbs(), parts[0])
    ///     >>> together == parts[0] + parts[1]
    ///     True
    fn limbs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let limbs = match &*self.lock(py) {
            State::Exact { sums, .. } => limbs(sums),
            State::Open => {
                return Err(PyValueError::new_err(
                    "the sums have no grid yet; expected sums made with grid=",
                ));
            }
            State::Wide(_) => {
                return Err(PyValueError::new_err(
                    "sums in float64 have no limbs; expected sums made with bits=",
                ));
            }
        };
        numpy::vector(py, &limbs, "int64")
    }

    /// Makes sums from a vector of limbs, which may be the sum of several, of the shape and grid of other sums.
    #[classmethod]
    fn from_limbs(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        limbs: &Bound<'_, PyAny>,
        like: &Bound<'_, Self>,
    ) -> PyResult<Self> {
        let array = Array::open("limbs", limbs)?;
        if array.kind() != Kind::Signed(8) || array.cols() != 1 {
            return Err(PyTypeError::new_err(
                "limbs is not a vector of int64; expected what limbs() returns",
            ));
        }
        let mut numbers = Vec::with_capacity(array.rows());
        array.integers(0..array.rows(), |number| numbers.push(number));
        let like = like.get();
        let State::Exact { spec, sums } = like.lock(py).none() else {
            return Err(PyValueError::new_err(
                "like has no grid; expected sums made with grid=",
            ));
        };
        let sums = carried(&numbers, sums)?;
        match plausible(&sums, &spec) {
            true => Ok(like.with(State::Exact { spec, sums })),
            false => Err(PyValueError::new_err(
                "limbs are not those of sums; expected what limbs() returns, of sums on the grid of like",
            )),
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (py, sums) = (slf.py(), slf.get());
        let state = sums.lock(py).clone();
        let Shape {
            spec,
            classes,
            bits,
        } = sums.shape;
        let data = match state {
            State::Open => None,
            _ => Some(slf.get().__bytes__(py)?),
        };
        let counts = match &state {
            State::Wide(wide) => wide.class_rows.clone(),
            _ => None,
        };
        let shape = (spec.features, spec.targets, classes, spec.bias, bits);
        let restore = py.import("muso._native")?.getattr("_restore_sums")?;
        Ok((restore, (shape, data, counts).into_pyobject(py)?.into_any()))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let Shape {
            spec,
            classes,
            bits,
        } = self.shape;
        let targets = match (spec.targets, classes) {
            (0, _) => String::new(),
            (n, true) => format!(", classes={n}"),
            (n, false) => format!(", targets={n}"),
        };
        let bits = bits.map_or("None".into(), |bits| bits.to_string());
        let rows = self.lock(py).rows();
        format!(
            "<muso.Sums: features={}{targets}, bits={bits}, rows={rows}>",
            spec.features
        )
    }
}

/// Makes the sums that were pickled.
#[pyfunction]
pub(crate) fn _restore_sums(
    py: Python<'_>,
    shape: (usize, usize, bool, bool, Option<u32>),
    data: Option<Vec<u8>>,
    counts: Option<Vec<u64>>,
) -> PyResult<Sums> {
    let (features, targets, classes, bias, bits) = shape;
    let shape = Shape {
        spec: SumsSpec {
            features,
            bias,
            targets,
        },
        classes,
        bits,
    };
    let Some(data) = data else {
        return Ok(Sums {
            shape,
            state: Mutex::new(State::Open),
        });
    };
    let mut sums = Sums::of_shard(py.detach(|| Shard::from_bytes(data)).or_raise(py)?)?;
    if let State::Wide(wide) = &mut *sums.lock(py) {
        wide.class_rows = counts;
    }
    sums.shape = shape;
    Ok(sums)
}

impl Shape {
    /// Reads a grid of any of the forms that it can be given in.
    fn grid(&self, bits: u32, grid: &Bound<'_, PyAny>) -> PyResult<Grid> {
        let py = grid.py();
        let (features, values) = (self.spec.features, self.values());
        if let Ok(sums) = grid.cast::<Sums>() {
            return match &*sums.get().lock(py) {
                State::Exact { spec, .. } if spec.grid.bits() == bits => {
                    Ok(spec.grid.as_ref().clone())
                }
                State::Exact { spec, .. } => Err(PyValueError::new_err(format!(
                    "grid has {0} bits; expected bits={0}, or a grid of {bits}",
                    spec.grid.bits()
                ))),
                _ => Err(PyValueError::new_err(
                    "grid is of sums that have none yet; expected sums with a grid",
                )),
            };
        }
        if let Ok(range) = grid.extract::<f64>() {
            return Grid::of_range(bits, range, features, values).or_raise(py);
        }
        if let Ok(path) = grid.extract::<PathBuf>() {
            return load_grid(path, Some(bits)).or_raise(py);
        }
        let array = Array::open("grid", grid)?;
        if let Kind::Float(_) = array.kind() {
            return Err(PyTypeError::new_err(
                "grid has floating values; expected exponents of units: muso.grid_from(ranges) makes them of largest magnitudes",
            ));
        }
        let mut exponents = Vec::new();
        array.integers(0..array.rows(), |e| {
            exponents.push(e.clamp(-100_000, 100_000) as i32)
        });
        if exponents.len() != features + values || array.cols() != 1 {
            return Err(PyValueError::new_err(format!(
                "grid has {} exponents; expected {}, one a column of X{}",
                exponents.len(),
                features + values,
                if values > 0 { " and of y" } else { "" }
            )));
        }
        let targets = exponents.split_off(features);
        Grid::new(bits, exponents, targets).or_raise(py)
    }

    /// Columns of targets that are values.
    fn values(&self) -> usize {
        if self.classes { 0 } else { self.spec.targets }
    }

    fn on(&self, py: Python<'_>, grid: Grid, recorded: bool) -> PyResult<ExactSpec> {
        let spec = ExactSpec {
            sums: self.spec,
            classes: self.classes,
            grid: Arc::new(grid),
            setters: recorded,
        };
        spec.check().or_raise(py)?;
        Ok(spec)
    }
}

impl Sums {
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        // Lets go of the interpreter while it waits, and so cannot block who holds the lock.
        let locked = self.state.lock_py_attached(py);
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, state: State) -> Self {
        Self {
            shape: self.shape,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn grid_at_hand(&self, py: Python<'_>) -> PyResult<Grid> {
        match &*self.lock(py) {
            State::Exact { spec, .. } => Ok(spec.grid.as_ref().clone()),
            _ => Err(PyValueError::new_err(
                "grid is of sums that have none; expected sums with a grid",
            )),
        }
    }

    /// Puts what `change` makes of the state in its place, and lets go of the interpreter meanwhile.
    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&State) -> Result<State, Refused> + Send,
    ) -> PyResult<()> {
        let changed = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *state = change(&state)?;
            Ok(())
        });
        changed.map_err(|refused: Refused| refused.exception(py))
    }

    fn combined(
        &self,
        py: Python<'_>,
        other: &Self,
        combine: impl FnOnce(&State, &State) -> Result<State, Refused> + Send,
    ) -> PyResult<Self> {
        self.fits(other)?;
        let theirs = other.lock(py).clone();
        let combined = py.detach(|| {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            combine(&state, &theirs)
        });
        combined
            .map(|state| self.with(state))
            .map_err(|refused| refused.exception(py))
    }

    fn fits(&self, other: &Self) -> PyResult<()> {
        let say = |shape: &Shape| {
            let Shape {
                spec,
                classes,
                bits,
            } = shape;
            let kind = if *classes { "classes" } else { "targets" };
            let bits = bits.map_or("None".into(), |bits| bits.to_string());
            let (features, targets, bias) = (spec.features, spec.targets, spec.bias);
            format!("features={features}, {kind}={targets}, bias={bias}, bits={bits}")
        };
        match self.shape == other.shape {
            true => Ok(()),
            false => Err(PyValueError::new_err(format!(
                "other has {}; expected {}",
                say(&other.shape),
                say(&self.shape)
            ))),
        }
    }

    /// Sums rows on the grid of these sums, fixing it by them if there is none; `None` for no rows.
    fn summed(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        y: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<State>> {
        let samples = Samples::open(x, y, self.shape.spec, self.shape.classes)?;
        if samples.rows() == 0 {
            return Ok(None);
        }
        let engine = engine(py)?;
        let (at_hand, fixed) = self.fixed(py, &samples)?;
        let summed = match &at_hand {
            State::Exact { spec, .. } => summed_exactly(py, &engine, spec, &samples),
            _ => summed_in_f64(py, &engine, self.shape, &samples),
        };
        if fixed && summed.is_err() {
            // A grid that only rows that were refused have set is none.
            let mut state = self.lock(py);
            if state.rows() == 0 {
                *state = State::Open;
            }
        }
        summed.map(Some)
    }

    /// Returns sums over no rows, on a grid that these rows fix where there is none; says whether they did.
    fn fixed(&self, py: Python<'_>, samples: &Samples) -> PyResult<(State, bool)> {
        let at_hand = self.lock(py).none();
        let (State::Open, Some(bits)) = (&at_hand, self.shape.bits) else {
            return Ok((at_hand, false));
        };
        let mut largest = Largest::new(self.shape.spec.features, self.shape.values());
        samples.each(py, |rows, targets| largest.add(rows, targets))?;
        let (features, targets) = largest.exponents();
        let grid = Grid::recorded(bits, &features, &targets).or_raise(py)?;
        let spec = self.shape.on(py, grid, true)?;
        let mut state = self.lock(py);
        // Another thread may have been first.
        let first = matches!(*state, State::Open);
        if first {
            *state = State::Exact {
                sums: ExactSums::none(&spec),
                spec,
            };
        }
        Ok((state.none(), first))
    }

    fn file(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let state = self.lock(py).clone();
        if let State::Open = state {
            return Err(PyValueError::new_err(
                "the sums have no grid yet; expected rows, or sums made with grid=",
            ));
        }
        py.detach(|| shard(self.shape, &state)?.to_safetensors())
            .or_raise(py)
    }

    fn of_shard(shard: Shard) -> PyResult<Self> {
        let spec = shard.spec;
        let (shape, state) = match shard.exact {
            Some(exact) => {
                let shape = Shape {
                    spec,
                    classes: exact.spec.classes && spec.targets > 0,
                    bits: Some(exact.spec.grid.bits()),
                };
                let state = State::Exact {
                    spec: exact.spec,
                    sums: exact.retained,
                };
                (shape, state)
            }
            None => {
                let class_rows = class_rows(spec, &shard.retained);
                let shape = Shape {
                    spec,
                    classes: class_rows.is_some(),
                    bits: None,
                };
                let state = State::Wide(Wide {
                    sums: shard.retained,
                    class_rows,
                });
                (shape, state)
            }
        };
        Ok(Self {
            shape,
            state: Mutex::new(state),
        })
    }
}

/// Reads the number of rows of each class out of f64 sums: a file does not say whether targets are classes, but with a bias
/// their sums are the counts, all of which make up the rows.
fn class_rows(spec: SumsSpec, sums: &engine::Sums) -> Option<Vec<u64>> {
    if !spec.bias || spec.targets == 0 {
        return None;
    }
    let counts = sums.cross.row(spec.features);
    let whole = counts.iter().all(|&n| n >= 0.0 && n.fract() == 0.0);
    let all = counts.iter().sum::<f64>() == sums.rows as f64;
    (whole && all).then(|| counts.iter().map(|&n| n as u64).collect())
}

fn summed_exactly(
    py: Python<'_>,
    engine: &CpuEngine,
    spec: &ExactSpec,
    samples: &Samples,
) -> PyResult<State> {
    let mut sums = engine.exact(spec).or_raise(py)?;
    samples.each(py, |rows, targets| sums.push(rows, targets))?;
    let (sums, _) = py.detach(|| sums.finish()).or_raise(py)?;
    Ok(State::Exact {
        spec: spec.clone(),
        sums,
    })
}

fn summed_in_f64(
    py: Python<'_>,
    engine: &CpuEngine,
    shape: Shape,
    samples: &Samples,
) -> PyResult<State> {
    let mut sums = engine.accumulator(shape.spec).or_raise(py)?;
    let mut class_rows = shape.classes.then(|| vec![0; shape.spec.targets]);
    samples.each(py, |rows, targets| {
        range::finite(rows, targets)?;
        if let (Some(counts), engine::Targets::Classes(classes)) = (&mut class_rows, targets) {
            for &class in classes {
                counts[class as usize] += 1;
            }
        }
        engine.accumulate(&mut sums, rows, targets)
    })?;
    let sums = py.detach(|| engine.finish(sums)).or_raise(py)?;
    match sums.gram.is_finite() && sums.cross.is_finite() {
        true => Ok(State::Wide(Wide { sums, class_rows })),
        false => Err(PyOverflowError::new_err(
            "X is too large: sums of its products overflow float64; expected values up to about 1e150",
        )),
    }
}

/// Solves as the command line does with sums; with the width of the grid where they are exact.
fn solve(
    engine: &CpuEngine,
    state: &State,
    ridge: f64,
    free_bias: bool,
) -> muso::Result<(Matrix, Option<u32>)> {
    // Adding 0 turns −0 into 0.
    let ridge = ridge + 0.0;
    let start = |sums: &engine::Sums, more: usize| {
        Matrix::zeros(sums.gram.rows() + more, sums.cross.cols())
    };
    let free = |centred: Centred| {
        let start = start(&centred.sums, 1);
        fit_free_bias(engine, &centred, &start, ridge)
    };
    let held = |sums: engine::Sums| {
        let start = start(&sums, 0);
        fit(engine, &Gram::Primal(sums), &start, ridge)
    };
    let (fitted, bits) = match state {
        State::Open => return Err(Error::Overflow),
        State::Exact { spec, sums } => {
            let fitted = match free_bias {
                true => free(sums.to_centred(spec)?)?,
                false => held(sums.to_sums(spec)?)?,
            };
            (fitted, Some(spec.grid.bits()))
        }
        State::Wide(Wide { sums, .. }) => {
            let fitted = match free_bias {
                true => free(sums.centred(engine.roundings(sums.rows)))?,
                false => held(sums.clone())?,
            };
            (fitted, None)
        }
    };
    if let (Method::Eigen { rank, .. }, Some(_)) = (fitted.info.method, bits) {
        return Err(Error::selection(
            "`.ridge`",
            format!(
                "the system is singular to working precision (rank {rank} of {}), and what would take over has other bytes \
                 on other processors",
                fitted.info.order
            ),
            "a larger `.ridge`, or sums in float64 by `.exact = None`",
        ));
    }
    match fitted.weights.is_finite() {
        true => Ok((fitted.weights, bits)),
        false => Err(Error::Overflow),
    }
}

/// Names the notes of a head from exact sums as the command line does.
pub(crate) fn notes(exact: Option<u32>) -> impl Iterator<Item = (String, String)> {
    let notes = |bits: u32| {
        [
            ("muso.exact".to_owned(), bits.to_string()),
            ("muso.solve".to_owned(), VERSION.to_string()),
        ]
    };
    exact.into_iter().flat_map(notes)
}

/// Returns sums as what the command line has in files. Which rows they are of is not known there, but how many, and so the
/// sums stand for themselves: they are a part of their own, named by their digest.
fn shard(shape: Shape, state: &State) -> muso::Result<Shard> {
    let rows = state.rows();
    let part = |content: String| Part {
        features: format!("sums {content}"),
        end: rows,
        of: rows,
        file: "arrays".into(),
        content,
        ..Part::default()
    };
    let with = |parts: Vec<Part>| {
        let lists = vec![Vec::new(); parts.len()];
        match state {
            State::Exact { spec, sums } => {
                let state = ExactState {
                    spec: spec.clone(),
                    retained: sums.clone(),
                    forgotten: ExactSums::none(spec),
                };
                Shard::of_exact(state, parts, lists)
            }
            State::Wide(Wide { sums, .. }) => Ok(Shard {
                spec: shape.spec,
                parts,
                retained: sums.clone(),
                forgotten: nothing(shape.spec),
                forgotten_rows: lists,
                exact: None,
            }),
            State::Open => Err(Error::Overflow),
        }
    };
    let mut shard = with(Vec::new())?;
    if rows > 0 {
        shard.parts = vec![part(shard.digest()?)];
        shard.forgotten_rows = vec![Vec::new()];
    }
    Ok(shard)
}

const LIMBS: usize = 4;

fn limbs(sums: &ExactSums) -> Vec<i64> {
    let mut out: Vec<i64> = [sums.rows, sums.moved, sums.beyond]
        .iter()
        .chain(&sums.class_rows)
        .chain(&sums.setters)
        .map(|&n| n as i64)
        .collect();
    out.reserve(LIMBS * (sums.gram.len() + sums.cross.len()));
    for value in sums.gram.iter().chain(&sums.cross) {
        out.extend([0, 32, 64].map(|shift| i64::from((value >> shift) as u32)));
        out.push((value >> 96) as i64);
    }
    out
}

/// Adds limbs up to the integers that they stand for; `sums` says how many there are.
fn carried(numbers: &[i64], mut sums: ExactSums) -> PyResult<ExactSums> {
    let refused = || {
        PyOverflowError::new_err(
            "limbs stand for numbers beyond their range; expected what limbs() returns",
        )
    };
    let counts = 3 + sums.class_rows.len() + sums.setters.len();
    let wanted = counts + LIMBS * (sums.gram.len() + sums.cross.len());
    if numbers.len() != wanted {
        return Err(PyValueError::new_err(format!(
            "limbs has {} numbers; expected {wanted}, as sums like these have",
            numbers.len()
        )));
    }
    let (numbers, wide) = numbers.split_at(counts);
    let places = [&mut sums.rows, &mut sums.moved, &mut sums.beyond].into_iter();
    let places = places.chain(&mut sums.class_rows).chain(&mut sums.setters);
    for (place, &number) in places.zip(numbers) {
        *place = u64::try_from(number).map_err(|_| refused())?;
    }
    let places = sums.gram.iter_mut().chain(&mut sums.cross);
    for (place, limbs) in places.zip(wide.as_chunks::<LIMBS>().0) {
        let mut value = i128::from(limbs[LIMBS - 1]);
        for &limb in limbs[..LIMBS - 1].iter().rev() {
            let shifted = value.checked_mul(1 << 32).ok_or_else(refused)?;
            value = shifted.checked_add(i128::from(limb)).ok_or_else(refused)?;
        }
        *place = value;
    }
    Ok(sums)
}

/// Parses the JSON of a report.
pub(crate) fn parsed<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyDict>> {
    let value = py.import("json")?.call_method1("loads", (json,))?;
    Ok(value.cast_into::<PyDict>()?)
}
