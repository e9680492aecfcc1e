"""Sums over the rows of all ranks of `torch.distributed`: what `torchrun` starts.

Each rank sums the rows that it has. One `all_reduce` of 32-bit limbs in 64-bit integers adds the sums up, with any backend and in
any order, and every rank has the same bytes: those of one process that had all rows.

Example:
    >>> import torch, torch.distributed as dist, muso.distributed               # doctest: +SKIP
    >>> dist.init_process_group("gloo")                                         # doctest: +SKIP
    >>> rank, world = dist.get_rank(), dist.get_world_size()                    # doctest: +SKIP
    >>> mine = torch.utils.data.Subset(rows, range(rank, len(rows), world))     # doctest: +SKIP
    >>> loader = torch.utils.data.DataLoader(mine, batch_size=4096)             # doctest: +SKIP
    >>> muso.distributed.sums(loader, classes=10, grid=16.0).sums.solve(1e-3)   # doctest: +SKIP
    <muso.Head: features=512, classes=10, with a bias>
    >>> dist.destroy_process_group()    # torch may abort a rank that ends without     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler

from ._native import Sums
from .partitions import Counted, Partition, SumsSpec, merge, ranges_of

__all__ = ["all_reduce", "column_range", "sums"]


def sums(
    batches: Iterable[Any],
    *,
    classes: int | None = None,
    targets: int | None = None,
    bias: bool = True,
    grid: Any = None,
    bits: int = 22,
    group: Any = None,
    name: str = "rows",
    number: int | None = None,
) -> Counted:
    """Sums the rows of all ranks; every rank gets the sums.

    Args:
        batches: The rows of this rank: a loader, or a list, of pairs (X, y), or of tensors X for sums without targets.
            It is iterated once after a look at the first batch, and once more without `grid`.
        classes, targets, bias, bits: As for `muso.Sums`.
        grid: As for `muso.Sums`; by default that of the ranges of all ranks' rows.
        group: The process group; by default all ranks.
        name: What the data set is called where its partitions are told from those of others.
        number: The number of this rank's rows in it; by default the rank.
    """
    _refuse_padding(batches)
    width = _agreed(_width(batches), group)
    spec = SumsSpec.of(
        width,
        lambda: _ranges(batches, width, targets or 0, group),
        classes=classes,
        targets=targets,
        bias=bias,
        grid=grid,
        bits=bits,
    )
    own = Partition(name, dist.get_rank(group) if number is None else number)
    return all_reduce(spec.count(own, _pairs(batches)), group=group)


def column_range(batches: Iterable[Any], *, values: int = 0, group: Any = None) -> npt.NDArray[np.float64]:
    """Returns the largest magnitude of each column over all ranks, of X and then of y where it has so many values."""
    return _ranges(batches, _agreed(_width(batches), group), values, group)


def all_reduce(counted: Counted, *, group: Any = None) -> Counted:
    """Adds up the sums of all ranks, and gives them to each. A partition that two of them counted is refused on all."""
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, (counted.partitions, _grid_of(counted.sums)), group=group)
    # Names alone, so that no rank is left waiting in a reduction that another has refused.
    nothing = counted.sums.empty()
    partitions = merge(Counted(nothing, part) for part, _ in everyone).partitions
    if any(grid != everyone[0][1] for _, grid in everyone):
        raise ValueError("the ranks' sums are on different grids; expected one: make them with the same grid=")
    limbs = torch.from_numpy(counted.sums.limbs()).to(_device(group))
    dist.all_reduce(limbs, op=dist.ReduceOp.SUM, group=group)
    return Counted(Sums.from_limbs(limbs.cpu().numpy(), nothing), partitions)


def _ranges(batches: Iterable[Any], width: int, values: int, group: Any) -> npt.NDArray[np.float64]:
    own = ranges_of(_pairs(batches), columns=width + values, values=values > 0)
    largest = torch.from_numpy(own).to(_device(group))
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    found: npt.NDArray[np.float64] = largest.cpu().numpy()
    return found


def _pairs(batches: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    for batch in batches:
        X, y = (batch, None) if isinstance(batch, (Tensor, np.ndarray)) else batch
        yield _here(X), _here(y)


def _here(values: Any) -> Any:
    return values.detach().cpu() if isinstance(values, Tensor) else values


def _width(batches: Iterable[Any]) -> int:
    """Returns the number of columns, and 0 where this rank has no rows."""
    if iter(batches) is batches:
        raise TypeError("batches is an iterator, which ends; expected a loader or a list, which can be iterated again")
    return next((int(X.shape[1]) for X, _ in _pairs(batches)), 0)


def _agreed(width: int, group: Any) -> int:
    """Returns the number of columns that ranks with rows have."""
    widths: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(widths, width, group=group)
    found = {width for width in widths if width}
    if len(found) != 1:
        raise ValueError(f"the ranks' rows have {sorted(found) or 'no'} features; expected one number of them on all ranks")
    return int(found.pop())


def _refuse_padding(batches: Any) -> None:
    """DistributedSampler repeats rows until all ranks have as many: they would be counted twice."""
    sampler = getattr(batches, "sampler", None)
    if isinstance(sampler, DistributedSampler) and sampler.total_size != len(sampler.dataset):  # type: ignore[arg-type]
        how = "repeats" if sampler.total_size > len(sampler.dataset) else "drops"  # type: ignore[arg-type]
        raise ValueError(
            f"the loader's DistributedSampler {how} rows to give all ranks as many; expected each row once: "
            "Subset(dataset, range(rank, len(dataset), world))"
        )


def _grid_of(sums: Sums) -> Any:
    return (sums.features, sums.targets, sums.bias, sums.bits, None if sums.grid is None else sums.grid.tolist())


def _device(group: Any) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else torch.device("cpu")
