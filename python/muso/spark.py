"""Sums over the partitions of a Spark dataframe.

The sums have the same bytes for any partitioning, and whatever Spark runs again or speculatively. They are made by
`mapInArrow` where the rows are; executors need this package and pyarrow, and the driver gets a few states.

Example:
    >>> from pyspark.sql import SparkSession                                            # doctest: +SKIP
    >>> import muso.spark                                                               # doctest: +SKIP
    >>> spark = SparkSession.builder.getOrCreate()                                      # doctest: +SKIP
    >>> rows = spark.read.parquet("embeddings.parquet")                                 # doctest: +SKIP
    >>> muso.spark.sums(rows, "embedding", "label", classes=10, grid=16.0).sums.rows    # doctest: +SKIP
    50000
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext

from .partitions import Counted, Partition, SumsSpec, columns, expect, merge, ranges_of

__all__ = ["column_range", "sums"]

# States that the driver gets, at most.
_GROUPS = 8

_Names = str | Sequence[str]


def sums(
    rows: Any,
    features: _Names = "features",
    label: _Names | None = "label",
    *,
    classes: int | None = None,
    targets: int | None = None,
    bias: bool = True,
    grid: Any = None,
    bits: int = 22,
    name: str | None = None,
) -> Counted:
    """Sums all rows of a Spark dataframe.

    Args:
        rows: A `pyspark.sql.DataFrame`.
        features: Its column of arrays (of vectors of Spark's: `pyspark.ml.functions.vector_to_array`), or its columns of
            numbers.
        label: Its column of classes, of an integer type, or of values; None for sums without targets.
        classes, targets, bias, bits: As for `muso.Sums`.
        grid: As for `muso.Sums`; by default that of the ranges of all rows, which takes a pass more.
        name: What the data set is called where its partitions are told from those of others; by default a digest of its plan.
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
    dataset = name or f"spark-{rows.semanticHash()}"

    def count(number: int, batches: Iterable[tuple[Any, Any]]) -> Counted:
        return spec.count(Partition(dataset, number), batches)

    counted: Counted = _reduced(rows, features, label, count, merge)
    # Spark numbers partitions from 0.
    return expect(counted, dataset, 1 + max(int(partition.number) for partition in counted.partitions))


def column_range(rows: Any, features: _Names = "features", values: _Names | None = None) -> npt.NDArray[np.float64]:
    """Returns the largest magnitude of each column, of features and then of values: what `muso.grid_from` takes."""
    more = 0 if values is None else _width(rows, values)
    return _ranges(rows, features, values, _width(rows, features), more)


def _ranges(rows: Any, features: _Names, label: _Names | None, width: int, values: int) -> npt.NDArray[np.float64]:
    def largest(number: int, batches: Iterable[tuple[Any, Any]]) -> npt.NDArray[np.float64]:
        return ranges_of(batches, columns=width + values, values=values > 0)

    answers = label if values else None
    found: npt.NDArray[np.float64] = _reduced(rows, features, answers, largest, _maximum)
    return found


def _maximum(ranges: Iterable[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    largest: npt.NDArray[np.float64] = np.maximum.reduce(list(ranges))
    return largest


def _width(rows: Any, names: _Names) -> int:
    if not isinstance(names, str):
        return len(names)
    first = rows.select(names).first()
    if first is None:
        raise ValueError("rows is empty; expected at least one row")
    return len(first[0]) if hasattr(first[0], "__len__") else 1


def _reduced(
    rows: Any,
    features: _Names,
    label: _Names | None,
    each: Callable[[int, Iterable[tuple[Any, Any]]], Any],
    reduce: Callable[[Iterable[Any]], Any],
) -> Any:
    """Computes something of each partition, reduces it in groups, and the groups on the driver."""

    def packed(value: Any) -> pa.RecordBatch:
        return pa.record_batch({"state": pa.array([pickle.dumps(value)], pa.binary())})

    def states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        taken = (columns(_arrays(batch), features, label) for batch in batches)
        yield packed(each(context.partitionId(), taken))

    def groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [pickle.loads(state.as_py()) for batch in batches for state in batch.column(0)]
        if found:
            yield packed(reduce(found))

    names = [*([features] if isinstance(features, str) else features)]
    names += [label] if isinstance(label, str) else label or []
    mapped = rows.select(*names).mapInArrow(states, "state binary")
    merged = mapped.repartition(_GROUPS).mapInArrow(groups, "state binary")
    return reduce([pickle.loads(row[0]) for row in merged.collect()])


def _arrays(batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
    return {name: _array(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _array(name: str, column: pa.Array) -> npt.NDArray[Any]:
    """Reads a column where it lies: a vector of numbers, or a matrix where it has lists of one length."""
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    values = column.flatten() if lists else column
    if column.null_count or values.null_count:
        raise ValueError(f"{name} has nulls; expected a value in each row")
    array: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if not lists:
        return array
    lengths = {len(row) for row in column}
    if len(lengths) > 1:
        raise ValueError(f"{name} has arrays of {min(lengths)} and of {max(lengths)} values; expected one length")
    return array.reshape(len(column), -1) if len(column) else array.reshape(0, 0)
