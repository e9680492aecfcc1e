"""Ridge models that rows can be taken out of. The conventions are scikit-learn's, which is not needed; `muso.sklearn` is."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ._native import Head, Sums

# A model's first rows make its sums; of two threads one is first.
_STARTING = threading.Lock()
# Key of a saved model's description in the file of its sums.
_MODEL = "muso.model"
_PARAMETERS = ("alpha", "fit_intercept", "grid", "bits")


class _Model:
    """What classifier and regressor share: sums, and a head that is solved from them when it is asked for."""

    alpha: float
    fit_intercept: bool
    grid: Any
    bits: int | None
    sums_: Sums

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, grid: Any = None, bits: int | None = 22
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.grid = grid
        self.bits = bits

    # How X, y and the lack of a fit are seen to; muso.sklearn has scikit-learn do it.

    def _features(self, X: Any, *, reset: bool) -> Any:
        X = _as_features(X)
        if not reset and hasattr(self, "sums_") and X.shape[1] != self.sums_.features:
            raise ValueError(f"X has {X.shape[1]} features; expected {self.sums_.features}")
        return X

    def _fitted(self) -> None:
        if not hasattr(self, "sums_"):
            raise ValueError(f"this {type(self).__name__} is not fitted; expected fit or partial_fit before")

    # The sums.

    def _shape(self, y: Any) -> dict[str, int]:
        raise NotImplementedError

    def _targets(self, y: Any) -> Any:
        raise NotImplementedError

    def _start(self, features: int, y: Any) -> Sums:
        return Sums(features, **self._shape(y), bias=bool(self.fit_intercept), grid=self.grid, bits=self.bits)

    def _fit(self, X: Any, y: Any) -> Self:
        _positive(self.alpha)
        sums = self._start(X.shape[1], y)
        sums.add(X, self._targets(y))
        self.sums_ = sums
        self._changed()
        self._solved()
        return self

    def _partial_fit(self, X: Any, y: Any) -> Self:
        with _STARTING:
            if not hasattr(self, "sums_"):
                self.sums_ = self._start(X.shape[1], y)
        self.sums_.add(X, self._targets(y))
        self._changed()
        return self

    def _unfit(self, X: Any, y: Any) -> Self:
        self.sums_.subtract(X, self._targets(y))
        self._changed()
        return self

    def _changed(self) -> None:
        # A solution that another thread is at work on is not one of these sums.
        self._solution = object()

    def _solved(self) -> _Solution:
        alpha = _positive(self.alpha)
        found = getattr(self, "_solution", None)
        if isinstance(found, _Solution) and found.alpha == alpha:
            return found
        if self.sums_.rows == 0:
            raise ValueError("no rows are left; expected at least one that was fitted and not unfitted")
        head = self.sums_.solve(alpha, penalise_bias=False)
        coef, intercept = self._coefficients(head)
        solution = _Solution(alpha, head, coef, intercept)
        if getattr(self, "_solution", None) is found:
            self._solution = solution
        return solution

    def _coefficients(self, head: Head) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        raise NotImplementedError

    # What is known of the model.

    @property
    def head_(self) -> Head:
        """The layer as the command line has it: a row of weights for each class or target."""
        _needs(self, "head_")
        return self._solved().head

    def __getstate__(self) -> dict[str, Any]:
        inherited = getattr(super(), "__getstate__", None)
        state = dict(inherited() if inherited else self.__dict__)
        # Solved again from the sums, to the same bytes.
        state.pop("_solution", None)
        return state

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the model as a file of sums that the command line takes as well, with what it is beside."""
        _needs(self, "sums_")
        sums = bytes(self.sums_)
        header, values = _split(sums)
        header["__metadata__"][_MODEL] = json.dumps(self._description(), sort_keys=True)
        _write(path, _joined(header, values))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Loads a model that was saved."""
        data = Path(path).read_bytes()
        sums = Sums.from_bytes(data)
        described = _split(data)[0]["__metadata__"].get(_MODEL)
        if described is None:
            raise ValueError(f"{path} has sums without a model; expected a file that save wrote, or Sums.load")
        description = json.loads(described)
        model = cls.__new__(cls)
        for name in _PARAMETERS:
            setattr(model, name, description[name])
        if isinstance(model.grid, list):
            model.grid = np.array(model.grid, dtype=np.int32)
        model._restore(description, sums)
        model.sums_ = sums
        return model

    def _description(self) -> dict[str, Any]:
        grid = self.grid
        if grid is not None and not isinstance(grid, (int, float)):
            exponents = self.sums_.grid
            grid = None if exponents is None else exponents.tolist()
        return {
            "alpha": float(self.alpha),
            "fit_intercept": bool(self.fit_intercept),
            "grid": grid,
            "bits": self.bits,
        }

    def _restore(self, description: dict[str, Any], sums: Sums) -> None:
        raise NotImplementedError


class _Solution:
    """A head, and the coefficients that it stands for."""

    def __init__(
        self,
        alpha: float,
        head: Head,
        coef: npt.NDArray[np.float64],
        intercept: npt.NDArray[np.float64],
    ) -> None:
        self.alpha = alpha
        self.head = head
        self.coef = coef
        self.intercept = intercept
        self.scores = Head(coef, intercept)


class _Classifier(_Model):
    """A classifier on targets of −1 and 1, as scikit-learn's RidgeClassifier."""

    classes: Any
    _labels: npt.NDArray[Any]

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        grid: Any = None,
        bits: int | None = 22,
        classes: Any = None,
    ) -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, grid=grid, bits=bits)
        self.classes = classes

    def fit(self, X: Any, y: Any) -> Self:
        """Fits the model to these rows and no others.

        Args:
            X: [N, features].
            y: [N], the class of each row: integers or texts.
        """
        X, y = self._checked(X, y, reset=True)
        self._labels = _distinct(y if self.classes is None else self.classes)
        return self._fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Fits the model to these rows beside those that it has.

        Args:
            X: [N, features].
            y: [N], the class of each row.
            classes: All classes that will ever be; by default those of the first rows. A later call may repeat them.

        Without `grid` the grid of the sums is fixed by the first rows, with a bit of head-room: larger values are still
        summed exactly, but models that began with other rows are on other grids, and agree to rounding instead of to the byte.
        """
        X, y = self._checked(X, y, reset=not hasattr(self, "sums_"))
        given = self.classes if classes is None else classes
        with _STARTING:
            if not hasattr(self, "sums_"):
                self._labels = _distinct(y if given is None else given)
        if classes is not None and not np.array_equal(_distinct(classes), self._labels):
            raise ValueError("classes are not those of the first call; expected the same, or None")
        return self._partial_fit(X, y)

    def unfit(self, X: Any, y: Any) -> Self:
        """Takes rows out of the model that it was fitted to: on one grid it is the model that never saw them, to the byte."""
        _needs(self, "sums_")
        X, y = self._checked(X, y, reset=False)
        return self._unfit(X, y)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the score of each class, [N, classes]; of two classes that of the second, [N]."""
        self._fitted()
        X = self._features(X, reset=False)
        scores = self._solved().scores.decision_function(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Returns the class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes that rows are left of, ascending."""
        _needs(self, "classes_")
        return self._labels[self._present()]

    @property
    def coef_(self) -> npt.NDArray[np.float64]:
        """[classes, features]; of two classes the second alone, [1, features]."""
        _needs(self, "coef_")
        return self._solved().coef

    @property
    def intercept_(self) -> npt.NDArray[np.float64]:
        """[classes]; of two classes the second alone, [1]."""
        _needs(self, "intercept_")
        return self._solved().intercept

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y has {y.ndim} dimensions; expected one, a class for each row")
        return self._features(X, reset=reset), y

    def _present(self) -> npt.NDArray[np.bool_]:
        counts = self.sums_.class_counts
        return np.ones(len(self._labels), dtype=bool) if counts is None else counts > 0

    def _shape(self, y: Any) -> dict[str, int]:
        return {"classes": len(self._labels)}

    def _targets(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        labels = self._labels
        if y.dtype.kind in "iu" and np.array_equal(labels, np.arange(len(labels))):
            # Numbers already, which the engine looks at.
            return y.astype(np.int64, copy=False)
        at = np.searchsorted(labels, y)
        at[at == len(labels)] = 0
        strange = labels[at] != y
        if strange.any():
            row = int(np.argmax(strange))
            raise ValueError(
                f"y has the label {y[row]!r} at row {row}, which the model has not seen; expected one of the classes of the "
                "first rows, or classes= with all that will ever be"
            )
        return at.astype(np.int64, copy=False)

    def _coefficients(self, head: Head) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        present = self._present()
        weight, bias = head.weight[present], head.bias
        bias = np.zeros(len(weight)) if bias is None else bias[present]
        # From targets of zeros and ones to −1 and 1; each row is of one class, so that the sum over classes fits ones.
        coef, intercept = 2 * weight - weight.sum(axis=0), 2 * bias - bias.sum()
        if not self.fit_intercept:
            intercept[:] = 0.0
        if len(coef) == 1:
            # One class, which there is nothing to tell from.
            return np.zeros_like(coef), np.full(1, -1.0)
        return (coef[1:], intercept[1:]) if len(coef) == 2 else (coef, intercept)

    def _description(self) -> dict[str, Any]:
        labels = {"dtype": self._labels.dtype.str, "values": self._labels.tolist()}
        given = None if self.classes is None else np.asarray(self.classes).tolist()
        return super()._description() | {"kind": "classifier", "labels": labels, "classes": given}

    def _restore(self, description: dict[str, Any], sums: Sums) -> None:
        _is_kind(description, "classifier")
        labels = description["labels"]
        self.classes = description["classes"]
        self._labels = np.array(labels["values"], dtype=labels["dtype"])


class _Regressor(_Model):
    """A regressor on one or several targets, as scikit-learn's Ridge."""

    _columns: int

    def fit(self, X: Any, y: Any) -> Self:
        """Fits the model to these rows and no others.

        Args:
            X: [N, features].
            y: [N] or [N, targets].
        """
        X, y = self._checked(X, y, reset=True)
        self._columns = 0 if y.ndim == 1 else y.shape[1]
        return self._fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Fits the model to these rows beside those that it has.

        Without `grid` the grids of X and y are fixed by the first rows, with a bit of head-room: larger values are still
        summed exactly, but models that began with other rows are on other grids, and agree to rounding instead of to the byte.
        """
        X, y = self._checked(X, y, reset=not hasattr(self, "sums_"))
        with _STARTING:
            if not hasattr(self, "sums_"):
                self._columns = 0 if y.ndim == 1 else y.shape[1]
        return self._partial_fit(X, y)

    def unfit(self, X: Any, y: Any) -> Self:
        """Takes rows out of the model that it was fitted to: on one grid it is the model that never saw them, to the byte."""
        _needs(self, "sums_")
        X, y = self._checked(X, y, reset=False)
        return self._unfit(X, y)

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the value of each row, of the shape that y had."""
        self._fitted()
        X = self._features(X, reset=False)
        values = self._solved().scores.decision_function(X)
        return values[:, 0] if self._columns == 0 else values

    @property
    def coef_(self) -> npt.NDArray[np.float64]:
        """[features], or [targets, features] where y has columns."""
        _needs(self, "coef_")
        coef = self._solved().coef
        return coef[0] if self._columns == 0 else coef

    @property
    def intercept_(self) -> float | npt.NDArray[np.float64]:
        """A number, or [targets] where y has columns."""
        _needs(self, "intercept_")
        intercept = self._solved().intercept
        return float(intercept[0]) if self._columns == 0 else intercept

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        y = np.asarray(y)
        if y.dtype.kind not in "fiub":
            raise TypeError(f"y has values of type {y.dtype}; expected numbers")
        if y.ndim not in (1, 2):
            raise ValueError(f"y has {y.ndim} dimensions; expected one or two")
        return self._features(X, reset=reset), y

    def _shape(self, y: Any) -> dict[str, int]:
        return {"targets": max(self._columns, 1)}

    def _targets(self, y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return y

    def _coefficients(self, head: Head) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        bias = head.bias
        return head.weight, np.zeros(len(head.weight)) if bias is None else bias

    def _description(self) -> dict[str, Any]:
        return super()._description() | {"kind": "regressor", "columns": self._columns}

    def _restore(self, description: dict[str, Any], sums: Sums) -> None:
        _is_kind(description, "regressor")
        self._columns = int(description["columns"])


class RidgeHead(_Classifier):
    """A ridge classifier that rows can be taken out of: scikit-learn's RidgeClassifier with `partial_fit` and `unfit`.

    Args:
        alpha: λ, how much the weights are held; the intercept is free.
        fit_intercept: Whether there is an intercept.
        grid: The grid of the sums, as for `muso.Sums`; by default fixed by the first rows. On one grid, and with one set of
            classes, `fit(A + B)` and `unfit(B)` have the bytes of `fit(A)`.
        bits: Width of the grid. At 22, the default, coefficients are those of scikit-learn to about 1e-6, as if X were float32,
            at the speed of float64; at 41 to about 1e-12 at a third of it. None sums in float64, where a row that is taken out
            leaves a trace in the last digits.
        classes: All classes that will ever be; by default those of the first rows. A class that no row is left of
            vanishes, as if it had never been seen.

    Example:
        >>> import numpy as np, muso
        >>> X = np.array([[0.0, 1.0], [1.0, 0.5], [2.0, -1.0], [3.0, 0.0]])
        >>> model = muso.RidgeHead(grid=4.0).fit(X, ["cat", "cat", "dog", "dog"])
        >>> model.predict(X)
        array(['cat', 'cat', 'dog', 'dog'], dtype='<U3')
        >>> model.unfit(X[2:], ["dog", "dog"]).classes_
        array(['cat'], dtype='<U3')
    """

    def score(self, X: Any, y: Any) -> float:
        """Returns the share of rows whose class is predicted."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def __repr__(self) -> str:
        return f"RidgeHead(alpha={self.alpha})"


class Ridge(_Regressor):
    """Ridge regression that rows can be taken out of: scikit-learn's Ridge with `partial_fit` and `unfit`.

    Args:
        alpha: λ, how much the weights are held; the intercept is free.
        fit_intercept: Whether there is an intercept.
        grid: The grid of the sums, as for `muso.Sums`; by default fixed by the first rows.
        bits: Width of the grid; see `RidgeHead`.

    Example:
        >>> import numpy as np, muso
        >>> X = np.arange(10.0).reshape(10, 1)
        >>> model = muso.Ridge(alpha=1e-6, grid=64.0).fit(X, 3 * X[:, 0] + 1)
        >>> model.predict(np.array([[20.0]])).round(3)
        array([61.])
    """

    def score(self, X: Any, y: Any) -> float:
        """Returns the coefficient of determination, R², averaged over targets."""
        y = np.asarray(y, dtype=np.float64)
        left = ((y - self.predict(X)) ** 2).sum(axis=0)
        spread = ((y - y.mean(axis=0)) ** 2).sum(axis=0)
        return float(np.mean(1 - left / spread))

    def __repr__(self) -> str:
        return f"Ridge(alpha={self.alpha})"


def _as_features(X: Any) -> Any:
    """X as the engine reads it: as it is where it can be, else as an array of float64."""
    if not isinstance(X, np.ndarray) and hasattr(X, "__dlpack__"):
        return X
    X = np.asarray(X)
    if X.dtype.kind in "iub":
        X = X.astype(np.float64)
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected two, a row for each sample")
    return X


def _distinct(labels: Any) -> npt.NDArray[Any]:
    return np.unique(np.asarray(labels))


def _positive(alpha: Any) -> float:
    if not isinstance(alpha, (int, float, np.number)) or not 0 <= float(alpha) < float("inf"):
        raise ValueError(f"alpha is {alpha!r}; expected a number that is finite and not negative")
    return float(alpha)


def _needs(model: _Model, name: str) -> None:
    if "sums_" not in vars(model):
        raise AttributeError(f"{type(model).__name__} has no {name} before fit or partial_fit")


def _is_kind(description: dict[str, Any], wanted: str) -> None:
    if description["kind"] != wanted:
        raise ValueError(f"the file has a {description['kind']}; expected a {wanted}")


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its values."""
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header, data[8 + length :]


def _joined(header: dict[str, Any], values: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + values


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file whole or not at all."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


