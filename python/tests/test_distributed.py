"""torch.distributed: one, two and three ranks by torchrun."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import muso
import pytest
import whole

pytest.importorskip("torch")
pytest.importorskip("torch.distributed.run")

RANK = """
import sys, numpy as np, torch, torch.distributed as dist, muso.distributed, whole
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
X, y = whole.rows()
rows = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
out = sys.argv[1]


def save(counted, name):
    with open(f"{out}/{name}-{rank}", "wb") as file:
        file.write(bytes(counted.sums))


def refused(words, work):
    try:
        work()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"expected: {words}")
"""


def run(folder, processes, code):
    script = folder / "rank.py"
    script.write_text(RANK + textwrap.dedent(code) + "\ndist.destroy_process_group()\n")
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), script, folder],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_any_ranks_are_the_whole(tmp_path, processes):
    run(
        tmp_path,
        processes,
        """
        loader = DataLoader(Subset(rows, range(rank, len(rows), world)), batch_size=77)
        save(muso.distributed.sums(loader, classes=whole.CLASSES, grid=whole.GRID), "given")
        found = muso.distributed.sums(loader, classes=whole.CLASSES)
        save(found, "found")
        assert found.partitions == {("rows", i) for i in range(world)}
        # All rows of one rank, and values.
        lists = [(X, X[:, :2] * 9)] if rank == 0 else []
        wanted = muso.Sums(whole.FEATURES, targets=2, grid=muso.grid_of(X, X[:, :2] * 9))
        wanted.add(X, X[:, :2] * 9)
        assert muso.distributed.sums(lists, targets=2).sums == wanted
        """,
    )
    for rank in range(processes):
        for name, grid in (("given", whole.GRID), ("found", None)):
            whole.check(muso.Sums.from_bytes((tmp_path / f"{name}-{rank}").read_bytes()), tmp_path, grid)


def test_what_would_count_twice_is_refused_on_every_rank(tmp_path):
    run(
        tmp_path,
        2,
        """
        options = {"classes": whole.CLASSES, "grid": whole.GRID}
        all_rows = DataLoader(rows, batch_size=100)
        refused("partition 7 of 'rows' is counted already", lambda: muso.distributed.sums(all_rows, number=7, **options))
        padded = DataLoader(rows, batch_size=100, sampler=DistributedSampler(rows))
        refused("repeats rows", lambda: muso.distributed.sums(padded, **options))
        width = whole.FEATURES - rank
        refused("[11, 12] features", lambda: muso.distributed.sums([(X[:, :width], y)], **options))
        other = {"classes": whole.CLASSES, "grid": 2.0**rank}
        refused("different grids", lambda: muso.distributed.sums(all_rows, **other))
        """,
    )
