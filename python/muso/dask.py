"""Sums over the partitions of a Dask array or dataframe, on whatever scheduler is in force.

The sums have the same bytes for any chunks and workers, and when a worker dies half way: what is lost is computed again. What
travels are sums, which are as large for a thousand rows as for a billion.

Example:
    >>> import dask.array as da, numpy as np, muso
    >>> import muso.dask
    >>> X = np.random.default_rng(0).standard_normal((1000, 8))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> rows = da.from_array(X, chunks=(300, 8)), da.from_array(y, chunks=300)
    >>> counted = muso.dask.sums(*rows, classes=2)
    >>> counted.sums.rows, len(counted.partitions)
    (1000, 4)
    >>> whole = muso.Sums(8, classes=2, grid=muso.grid_of(X))
    >>> whole.add(X, y)
    >>> bytes(counted.sums) == bytes(whole)
    True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.delayed import delayed

from .partitions import Counted, Partition, SumsSpec, columns, expect, merge, ranges_of

__all__ = ["column_range", "sums"]

# Sums that one task adds up.
_FAN_IN = 8


def sums(
    X: Any,
    y: Any = None,
    *,
    features: Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    classes: int | None = None,
    targets: int | None = None,
    bias: bool = True,
    grid: Any = None,
    bits: int = 22,
    name: str | None = None,
) -> Counted:
    """Sums the rows of all partitions.

    Args:
        X: A Dask array [N, features], or a Dask dataframe.
        y: Beside an array: [N] integers, or [N, targets].
        features: Of a dataframe: its columns of features; by default all but the label.
        label: Of a dataframe: its column of classes, or those of values.
        classes, targets, bias, bits: As for `muso.Sums`.
        grid: As for `muso.Sums`; by default that of the ranges of all rows, which takes a pass more.
        name: What the data set is called where its partitions are told from those of others; by default Dask's name of it, which
            is a digest of how it is made.
    """
    blocks, width, dataset = _blocks(X, y, features, label)
    dataset = name or dataset
    spec = SumsSpec.of(
        width,
        lambda: _ranges(blocks, width, targets),
        classes=classes,
        targets=targets,
        bias=bias,
        grid=grid,
        bits=bits,
    )
    count = delayed(_count, pure=False)
    parts = [count(spec, Partition(dataset, i), *block) for i, block in enumerate(blocks)]
    return expect(_reduced(parts, merge), dataset, len(parts))


def column_range(
    X: Any, y: Any = None, *, features: Sequence[str] | None = None, label: str | Sequence[str] | None = None
) -> npt.NDArray[np.float64]:
    """Returns the largest magnitude of each column of X, and of y where it has values: what `muso.grid_from` takes."""
    blocks, width, _ = _blocks(X, y, features, label)
    values = 0 if y is None or y.dtype.kind in "iub" else 1 if y.ndim == 1 else y.shape[1]
    return _ranges(blocks, width, values)


def _ranges(blocks: list[tuple[Any, ...]], width: int, values: int | None) -> npt.NDArray[np.float64]:
    largest = delayed(_range, pure=False)
    found: npt.NDArray[np.float64] = _reduced([largest(width, values or 0, *block) for block in blocks], _maximum)
    return found


def _blocks(
    X: Any, y: Any, features: Sequence[str] | None, label: str | Sequence[str] | None
) -> tuple[list[tuple[Any, ...]], int, str]:
    """Takes a collection apart: the arguments of `_rows` for each partition, the number of features, and a name."""
    if hasattr(X, "columns"):
        if y is not None:
            raise TypeError("y was given beside a dataframe; expected label=, the name of its column")
        labels = {label} if isinstance(label, str) else set(label or ())
        chosen = [column for column in X.columns if column not in labels] if features is None else list(features)
        return [(part, None, chosen, label) for part in X.to_delayed()], len(chosen), X._name
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; expected two, a row for each sample")
    X = X.rechunk({1: -1})
    parts = X.to_delayed().ravel().tolist()
    if y is None:
        return [(part, None, None, None) for part in parts], X.shape[1], X.name
    if np.isnan(X.shape[0]) or np.isnan(y.shape[0]):
        if X.numblocks[0] != y.numblocks[0]:
            raise ValueError("X and y have unknown chunks; expected as many of one as of the other, or compute_chunk_sizes()")
    elif len(X) != len(y):
        raise ValueError(f"y has {len(y)} rows and X has {len(X)}; expected as many")
    else:
        y = y.rechunk({0: X.chunks[0], **({1: -1} if y.ndim == 2 else {})})
    answers = y.to_delayed().ravel().tolist()
    return [(part, of, None, None) for part, of in zip(parts, answers, strict=True)], X.shape[1], f"{X.name} {y.name}"


def _rows(X: Any, y: Any, features: Sequence[str] | None, label: str | Sequence[str] | None) -> tuple[Any, Any]:
    return (X, y) if features is None else columns(X, features, label)


def _count(spec: SumsSpec, partition: Partition, *block: Any) -> Counted:
    # Of a named tuple among a task's arguments Dask makes a plain one.
    return spec.count(Partition(*partition), [_rows(*block)])


def _range(width: int, values: int, *block: Any) -> npt.NDArray[np.float64]:
    return ranges_of([_rows(*block)], columns=width + values, values=values > 0)


def _maximum(ranges: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    largest: npt.NDArray[np.float64] = np.maximum.reduce(ranges)
    return largest


def _reduced(parts: list[Any], reduce: Callable[[list[Any]], Any]) -> Any:
    """Reduces in a tree, so that no task and no machine holds the sums of all partitions."""
    if not parts:
        raise ValueError("X has no partitions; expected at least one")
    task = delayed(reduce, pure=False)
    while len(parts) > 1:
        parts = [task(parts[i : i + _FAN_IN]) for i in range(0, len(parts), _FAN_IN)]
    return parts[0].compute()
