"""What sums of many partitions are held to: those of one process, and of the command line."""

import os
import subprocess

import muso
import numpy as np

PROGRAM = os.environ.get("MUSO_PROGRAM")
# Whether Spark runs executors in processes of their own, which the package has to be installed for.
CLUSTER = os.environ.get("MUSO_SPARK_CLUSTER") == "1"
ROWS, FEATURES, CLASSES = 1001, 12, 4
GRID = 8.0


def rows():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
    return X, rng.integers(0, CLASSES, ROWS)


def of_one_process(grid=GRID):
    """The sums over all rows, which the command line has as well where it is there."""
    X, y = rows()
    sums = muso.Sums(FEATURES, classes=CLASSES, grid=muso.grid_of(X) if grid is None else grid)
    sums.add(X, y)
    return sums


def of_the_program(folder, like):
    """The command line's sums over all rows, on the grid of others."""
    from test_head import tensor_file

    X, y = rows()
    tensor_file(folder / "rows.safetensors", features=X, labels=y)
    muso.Head(np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)).save(folder / "head.safetensors")
    like.empty().save(folder / "grid.safetensors")
    command = [PROGRAM, "gram", "rows.safetensors", "--head", "head.safetensors", "--exact", str(like.bits)]
    command += ["--grid", "grid.safetensors", "--out", "sums.safetensors"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return muso.Sums.load(folder / "sums.safetensors")


def check(sums, folder, grid=GRID):
    """Holds sums to those of one process, and to the command line's."""
    wanted = of_one_process(grid)
    assert sums == wanted and bytes(sums) == bytes(wanted)
    if PROGRAM is not None:
        assert bytes(of_the_program(folder, wanted)) == bytes(sums)
