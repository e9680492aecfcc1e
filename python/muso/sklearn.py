"""The models of `muso` as estimators of scikit-learn: in pipelines, searches and `clone`.

They are scikit-learn's RidgeClassifier and Ridge with `partial_fit` and `unfit`; coefficients are theirs to 1e-9 where the sums
have enough bits (`bits=41`, or `bits=None`).

Example:
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from muso.sklearn import RidgeHead
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]], [0, 0, 1, 1]
    >>> make_pipeline(StandardScaler(), RidgeHead()).fit(X, y).predict(X)
    array([0, 0, 1, 1])
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from . import _ridge

__all__ = ["Ridge", "RidgeHead"]

# The engine itself refuses what is not finite, in the pass that it makes.
_KINDS: dict[str, Any] = {
    "dtype": [np.float64, np.float32, np.float16],
    "ensure_all_finite": False,
    "accept_sparse": False,
}


class _Checked:
    """X and the lack of a fit, seen to as scikit-learn does."""

    def _features(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, **_KINDS)

    def _fitted(self) -> None:
        check_is_fitted(self, "sums_")


class RidgeHead(ClassifierMixin, _Checked, _ridge._Classifier, BaseEstimator):  # type: ignore[misc]
    __doc__ = _ridge.RidgeHead.__doc__

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        grid: Any = None,
        bits: int | None = 22,
        classes: Any = None,
    ) -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, grid=grid, bits=bits, classes=classes)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        X = self._features(X, reset=reset)
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        check_consistent_length(X, y)
        return X, y


class Ridge(RegressorMixin, _Checked, _ridge._Regressor, BaseEstimator):  # type: ignore[misc]
    __doc__ = _ridge.Ridge.__doc__

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, grid: Any = None, bits: int | None = 22
    ) -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, grid=grid, bits=bits)

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, npt.NDArray[Any]]:
        X, y = validate_data(
            self, X, y, reset=reset, multi_output=True, y_numeric=True, **(_KINDS | {"ensure_all_finite": False})
        )
        return X, y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
