"""Exact machine unlearning for ridge heads: sums of rows that rows can be taken out of.

A linear layer that was fitted by ridge regression is determined by sums over its rows. `Sums` adds them up in integers, so that
rows which are subtracted later leave no trace: the sums, and the head solved from them, have the bytes of ones that never had
the rows. `RidgeHead` and `Ridge` are the same with scikit-learn's manners, and an `unfit`.

Example:
    >>> import numpy as np, muso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 5)).astype(np.float32)
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = muso.RidgeHead(alpha=1.0, grid=8.0).fit(X, y)
    >>> model = model.unfit(X[:10], y[:10])
    >>> never = muso.RidgeHead(alpha=1.0, grid=8.0).fit(X[10:], y[10:])
    >>> bytes(model.head_) == bytes(never.head_)
    True
"""

from ._native import (
    Forgotten,
    Head,
    Sums,
    __version__,
    column_range,
    grid_from,
    set_threads,
    threads,
)
from ._ridge import Ridge, RidgeHead
from ._sums import grid_of, merge

__all__ = [
    "Forgotten",
    "Head",
    "Ridge",
    "RidgeHead",
    "Sums",
    "__version__",
    "column_range",
    "grid_from",
    "grid_of",
    "merge",
    "set_threads",
    "threads",
]
