"""Sums over partitions of a data set, for engines that schedule them: `muso.dask`, `muso.ray`, `muso.spark`, `muso.distributed`.

What a partition sends is its sums and its name. Integer sums have the same bytes for any partitioning and order, so that
there are two things left to go wrong: a partition that is counted twice, and one that is not counted. A retry and a
speculative copy are the same partition under the same name, and merging it a second time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._native import Sums, column_range, grid_from

__all__ = ["Counted", "Partition", "SumsSpec", "merge"]

# Numbers of partitions that an error names.
_NAMED = 5


class Partition(NamedTuple):
    """The name of a partition: its data set, and its number (or name) there."""

    dataset: str
    number: int | str


class Counted:
    """Sums, and the partitions that they are over.

    Args:
        sums: Sums over the rows of these partitions.
        partitions: Their names.

    Example:
        >>> import numpy as np, muso
        >>> from muso.partitions import Counted, Partition
        >>> sums = muso.Sums(2, classes=2, grid=4.0)
        >>> sums.add(np.ones((3, 2)), np.array([0, 1, 1]))
        >>> monday, tuesday = (Counted(sums, [Partition(day, 0)]) for day in ("monday", "tuesday"))
        >>> (monday + tuesday).sums.rows
        6
        >>> monday + tuesday + monday
        Traceback (most recent call last):
        ValueError: partition 0 of 'monday' is counted already; expected each partition once
    """

    __slots__ = ("partitions", "sums")

    def __init__(self, sums: Sums, partitions: Iterable[Partition]) -> None:
        self.sums = sums
        self.partitions = frozenset(partitions)

    def __add__(self, other: Counted) -> Counted:
        return merge([self, other])

    def __repr__(self) -> str:
        return f"<muso.partitions.Counted: {len(self.partitions)} partitions, {self.sums!r}>"


def merge(parts: Iterable[Counted]) -> Counted:
    """Adds up sums over partitions, in any order, and refuses one that comes twice. The parts stay as they are."""
    sums: Sums | None = None
    partitions: set[Partition] = set()
    for part in parts:
        if twice := partitions & part.partitions:
            raise ValueError(f"{_names(twice)} counted already; expected each partition once")
        partitions |= part.partitions
        sums = part.sums.copy() if sums is None else sums.merge(part.sums)
    if sums is None:
        raise ValueError("parts is empty; expected at least one partition")
    return Counted(sums, partitions)


@dataclass(frozen=True, eq=False)
class SumsSpec:
    """What a worker needs to know to make sums that fit those of the others: a few numbers, and no rows."""

    features: int
    classes: int | None
    targets: int | None
    bias: bool
    grid: npt.NDArray[np.int32]
    bits: int

    @classmethod
    def of(
        cls,
        features: int,
        ranges: Callable[[], npt.NDArray[np.float64]],
        *,
        classes: int | None,
        targets: int | None,
        bias: bool,
        grid: Any,
        bits: int,
    ) -> SumsSpec:
        """Fixes the grid: the one that is given, or that of the column ranges of all partitions, which takes a pass."""
        if bits is None:
            raise ValueError("bits is None; expected a width, since sums in float64 depend on the partitions")
        if grid is None:
            grid = grid_from(ranges(), bits=bits)
        exponents = Sums(features, classes=classes, targets=targets, bias=bias, grid=grid, bits=bits).grid
        assert exponents is not None
        return cls(features, classes, targets, bias, exponents, bits)

    def sums(self) -> Sums:
        """Returns sums over no rows."""
        return Sums(
            self.features,
            classes=self.classes,
            targets=self.targets,
            bias=self.bias,
            grid=self.grid,
            bits=self.bits,
        )

    def count(self, partition: Partition, batches: Iterable[tuple[Any, Any]]) -> Counted:
        """Sums the rows of a partition, batch by batch."""
        sums = self.sums()
        for X, y in batches:
            sums.add(X, y)
        return Counted(sums, [partition])


def ranges_of(batches: Iterable[tuple[Any, Any]], *, columns: int, values: bool) -> npt.NDArray[np.float64]:
    """Returns the largest magnitude of each of the columns: of X, and of y where it has values. Zeros for no rows."""
    largest = np.zeros(columns)
    for X, y in batches:
        if len(X):
            largest = np.maximum(largest, column_range(X, y if values else None))
    return largest


def expect(counted: Counted, dataset: str, partitions: int) -> Counted:
    """Refuses sums in which one of the numbered partitions is missing."""
    if missing := {Partition(dataset, i) for i in range(partitions)} - counted.partitions:
        raise RuntimeError(f"{_names(missing)} not counted, of {partitions}; expected each partition once")
    return counted


def columns(
    batch: Mapping[str, Any], features: str | Sequence[str], label: str | Sequence[str] | None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """Takes X and y out of named columns: one column of vectors, or several of numbers."""

    def take(names: str | Sequence[str]) -> npt.NDArray[Any]:
        if isinstance(names, str):
            column = np.asarray(batch[names])
            return np.stack(list(column)) if column.dtype == object and len(column) else column
        return np.stack([np.asarray(batch[name]) for name in names], axis=1)

    return take(features), None if label is None else take(label)


def _names(partitions: Iterable[Partition]) -> str:
    """Names partitions as the subject of a sentence."""
    first, *others = sorted(partitions, key=lambda p: (p.dataset, str(p.number).zfill(20)))
    if not others:
        return f"partition {first.number} of {first.dataset!r} is"
    numbers = ", ".join(str(p.number) for p in [first, *others][:_NAMED])
    more = ", …" if len(others) >= _NAMED else ""
    return f"partitions {numbers}{more} of {first.dataset!r} are"
