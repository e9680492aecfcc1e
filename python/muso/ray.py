"""Sums over the blocks of a Ray dataset.

The sums have the same bytes for any blocks and workers. They are made where the blocks are, by `map_batches`; blocks that are lost
are read and summed again by Ray.

Example:
    >>> import numpy as np, ray, muso.ray                                  # doctest: +SKIP
    >>> X = np.random.default_rng(0).standard_normal((1000, 8))            # doctest: +SKIP
    >>> rows = ray.data.from_numpy(X).add_column(                          # doctest: +SKIP
    ...     "label", lambda batch: (batch["data"].iloc[0][0] > 0) * 1)
    >>> muso.ray.sums(rows, "data", "label", classes=2, grid=8.0).sums     # doctest: +SKIP
    <muso.Sums: features=8, classes=2, bits=22, rows=1000>
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from .partitions import Counted, Partition, SumsSpec, columns, merge, ranges_of

__all__ = ["column_range", "sums"]

# Sums that one task adds up before they go to the driver.
_FAN_IN = 8
# Blocks that a task of this process has taken, by task.
_TAKEN = threading.local()


def sums(
    rows: Any,
    features: str | Sequence[str] = "features",
    label: str | Sequence[str] | None = "label",
    *,
    classes: int | None = None,
    targets: int | None = None,
    bias: bool = True,
    grid: Any = None,
    bits: int = 22,
    name: str | None = None,
) -> Counted:
    """Sums all rows of a Ray dataset.

    Args:
        rows: A `ray.data.Dataset`.
        features: Its column of vectors, or its columns of numbers.
        label: Its column of classes, or of values; None for sums without targets.
        classes, targets, bias, bits: As for `muso.Sums`.
        grid: As for `muso.Sums`; by default that of the ranges of all rows, which takes a pass more.
        name: What the data set is called where it is told from others; by default a name that no other has.
    """
    width = _width(rows, features)
    spec = SumsSpec.of(
        width,
        lambda: _ranges(rows, features, label, width, targets or 0),
        classes=classes,
        targets=targets,
        bias=bias,
        grid=grid,
        bits=bits,
    )

    def count(batch: dict[str, Any]) -> Counted:
        return spec.count(Partition("", _block()), [columns(batch, features, label)])

    counted: Counted = _reduced(rows, count, merge)
    # Ray does not number blocks. No two were the same, so that numbers can stand for them.
    dataset = name or f"ray-{uuid.uuid4()}"
    return Counted(counted.sums, (Partition(dataset, i) for i in range(len(counted.partitions))))


def column_range(
    rows: Any, features: str | Sequence[str] = "features", values: str | Sequence[str] | None = None
) -> npt.NDArray[np.float64]:
    """Returns the largest magnitude of each column, of features and then of values: what `muso.grid_from` takes."""
    more = 0 if values is None else _width(rows, values)
    return _ranges(rows, features, values, _width(rows, features), more)


def _ranges(
    rows: Any, features: str | Sequence[str], label: str | Sequence[str] | None, width: int, values: int
) -> npt.NDArray[np.float64]:
    def largest(batch: dict[str, Any]) -> npt.NDArray[np.float64]:
        taken = columns(batch, features, label if values else None)
        return ranges_of([taken], columns=width + values, values=values > 0)

    found: npt.NDArray[np.float64] = _reduced(rows, largest, lambda parts: np.maximum.reduce(list(parts)))
    return found


def _width(rows: Any, names: str | Sequence[str]) -> int:
    first = rows.take_batch(1)
    X, _ = columns(first, names, None)
    return 1 if X.ndim == 1 else int(X.shape[1])


def _reduced(rows: Any, each: Callable[[dict[str, Any]], Any], reduce: Callable[[Any], Any]) -> Any:
    """Computes something of each block, and reduces it in groups and then to one."""

    def packed(value: Any) -> dict[str, Any]:
        return {"state": np.array([pickle.dumps(value)], dtype=object)}

    def unpacked(batch: Mapping[str, Any]) -> Any:
        return (pickle.loads(state) for state in batch["state"])

    states = rows.map_batches(lambda batch: packed(each(batch)), batch_size=None, zero_copy_batch=True)
    groups = states.map_batches(lambda batch: packed(reduce(unpacked(batch))), batch_size=_FAN_IN)
    return reduce(pickle.loads(row["state"]) for row in groups.iter_rows())


def _block() -> str:
    """Names the block that is at hand. The task of a block has the same id when it is tried again."""
    task = ray.get_runtime_context().get_task_id()
    last, taken = getattr(_TAKEN, "by", (None, 0))
    taken = taken + 1 if task == last else 0
    _TAKEN.by = task, taken
    return f"{task}:{taken}"
