"""What is made of sums and ranges without the engine."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._native import Sums, column_range, grid_from


def grid_of(X: Any, y: Any = None, *, bits: int = 22, head_room: int = 1) -> npt.NDArray[np.int32]:
    """Returns the grid of these rows, as exponents of its units: `Sums(..., grid=grid_of(X))`.

    A grid that rows have set depends on them. Where these may be forgotten later, state a range instead, `grid=16.0`, or take the
    grid of other rows.

    Example:
        >>> import numpy as np, muso
        >>> muso.grid_of(np.array([[1.0, -3.0], [0.5, 2.0]]))
        array([-20, -19], dtype=int32)
    """
    return grid_from(column_range(X, y), bits=bits, head_room=head_room)


def merge(parts: Iterable[Sums]) -> Sums:
    """Adds up sums over disjoint sets of rows, in any order. The parts stay as they are.

    Example:
        >>> import numpy as np, muso
        >>> parts = [muso.Sums(2, targets=1, grid=4.0) for _ in range(3)]
        >>> for i, part in enumerate(parts):
        ...     part.add(np.full((2, 2), float(i)), np.ones((2, 1)))
        >>> muso.merge(parts) == muso.merge(reversed(parts)), muso.merge(parts).rows
        (True, 6)
    """
    merged: Sums | None = None
    for part in parts:
        if merged is None:
            merged = part.copy()
        else:
            merged.merge(part)
    if merged is None:
        raise ValueError("parts is empty; expected at least one Sums")
    return merged
