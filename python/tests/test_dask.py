"""Dask: any partitions, several worker processes, one of which is killed half way."""

import doctest
import os
import signal
import time

import numpy as np
import pytest
import whole

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

import muso.dask  # noqa: E402
from dask.delayed import delayed  # noqa: E402
from distributed import Client, LocalCluster  # noqa: E402


def arrays(count):
    X, y = whole.rows()
    cuts = tuple(len(cut) for cut in np.array_split(np.arange(len(X)), count))
    return da.from_array(X, chunks=(cuts, whole.FEATURES)), da.from_array(y, chunks=(cuts,))


@pytest.mark.parametrize("grid", [whole.GRID, None])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_any_partitions_are_the_whole(tmp_path, count, grid):
    X, y = arrays(count)
    counted = muso.dask.sums(X, y, classes=whole.CLASSES, grid=grid)
    assert len(counted.partitions) == count
    whole.check(counted.sums, tmp_path, grid)
    # Columns in chunks, and y in others than X.
    counted = muso.dask.sums(X.rechunk({1: 5}), y.rechunk(100), classes=whole.CLASSES, grid=grid)
    assert bytes(counted.sums) == bytes(whole.of_one_process(grid))


def test_a_data_set_counts_once():
    X, y = arrays(3)
    counted = muso.dask.sums(X, y, classes=whole.CLASSES, grid=whole.GRID)
    with pytest.raises(ValueError, match="counted already"):
        counted + muso.dask.sums(X, y, classes=whole.CLASSES, grid=whole.GRID)
    others = muso.dask.sums(X, y, classes=whole.CLASSES, grid=whole.GRID, name="others")
    assert (counted + others).sums.rows == 2 * whole.ROWS


def test_values_and_their_range():
    X, _ = whole.rows()
    values = X[:, :2] * 100
    chunks = da.from_array(X, chunks=(250, -1)), da.from_array(values, chunks=(90, 1))
    counted = muso.dask.sums(*chunks, targets=2)
    sums = muso.Sums(whole.FEATURES, targets=2, grid=muso.grid_of(X, values))
    sums.add(X, values)
    assert counted.sums == sums
    np.testing.assert_array_equal(muso.dask.column_range(*chunks), muso.column_range(X, values))
    np.testing.assert_array_equal(muso.dask.column_range(chunks[0]), muso.column_range(X))


def test_what_does_not_fit_is_refused():
    X, y = arrays(3)
    with pytest.raises(ValueError, match="y has 1000 rows and X has 1001"):
        muso.dask.sums(X, y[1:], classes=whole.CLASSES)
    with pytest.raises(ValueError, match="X has 1 dimensions"):
        muso.dask.sums(y, y, classes=whole.CLASSES)
    with pytest.raises(ValueError, match="label"):
        muso.dask.sums(X, y, classes=2, grid=whole.GRID)
    with pytest.raises(ValueError, match="bits is None"):
        muso.dask.sums(X, y, classes=whole.CLASSES, bits=None)


def test_dataframes(tmp_path):
    pandas = pytest.importorskip("pandas")
    dataframes = pytest.importorskip("dask.dataframe")
    X, y = whole.rows()
    names = [f"x{i}" for i in range(whole.FEATURES)]
    frame = dataframes.from_pandas(pandas.DataFrame(X, columns=names).assign(label=y), npartitions=7)
    counted = muso.dask.sums(frame, label="label", classes=whole.CLASSES)
    whole.check(counted.sums, tmp_path, None)
    named = muso.dask.sums(frame, features=names[:3], label="label", classes=whole.CLASSES, grid=whole.GRID)
    assert named.sums.features == 3
    with pytest.raises(TypeError, match="expected label="):
        muso.dask.sums(frame, y, classes=whole.CLASSES)


def chunk(number, rows, folder, deadly):
    """A partition. One of them ends the process that makes it, the first time."""
    with open(folder / f"tried-{number}", "a") as tried:
        tried.write(f"{os.getpid()} ")
    if number == deadly and len((folder / f"tried-{number}").read_text().split()) == 1:
        # Others are done by then, and their sums lie in the process that ends.
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return rows


def test_a_worker_that_is_killed_half_way(tmp_path):
    X, y = whole.rows()
    cuts = np.array_split(np.arange(len(X)), 20)
    with LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as cluster, Client(cluster):
        lazy = [
            da.from_delayed(delayed(chunk)(i, X[cut], tmp_path, 13), (len(cut), whole.FEATURES), X.dtype)
            for i, cut in enumerate(cuts)
        ]
        answers = da.from_array(y, chunks=(tuple(len(cut) for cut in cuts),))
        counted = muso.dask.sums(da.concatenate(lazy), answers, classes=whole.CLASSES, grid=whole.GRID)
    tried = {i: (tmp_path / f"tried-{i}").read_text().split() for i in range(20)}
    assert len(tried[13]) > 1 and tried[13][0] not in tried[13][1:], tried
    assert len({process for made in tried.values() for process in made}) >= 3
    assert len(counted.partitions) == 20
    whole.check(counted.sums, tmp_path)


def test_examples_in_docstrings():
    failed, tried = doctest.testmod(muso.dask)
    assert failed == 0 and tried > 3
