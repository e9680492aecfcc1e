"""Ray: any blocks, and tasks that are tried again."""

import os
import signal

import numpy as np
import pytest
import whole

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import muso.ray  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def started():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def blocks(count):
    X, y = whole.rows()
    cuts = np.array_split(np.arange(len(X)), count)
    tables = [{"features": list(X[cut]), "label": y[cut]} for cut in cuts]
    import pandas

    return ray.data.from_pandas([pandas.DataFrame(table) for table in tables])


@pytest.mark.parametrize("grid", [whole.GRID, None])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_blocks_are_the_whole(tmp_path, count, grid):
    counted = muso.ray.sums(blocks(count), classes=whole.CLASSES, grid=grid)
    assert len(counted.partitions) == count
    whole.check(counted.sums, tmp_path, grid)


def test_columns_and_names():
    X, y = whole.rows()
    names = [f"x{i}" for i in range(whole.FEATURES)]
    table = {name: X[:, i] for i, name in enumerate(names)} | {"label": y}
    rows = ray.data.from_numpy(X).repartition(5)
    np.testing.assert_array_equal(muso.ray.column_range(rows, "data"), muso.column_range(X))
    import pyarrow

    counted = muso.ray.sums(ray.data.from_arrow(pyarrow.table(table)), names, classes=whole.CLASSES, grid=whole.GRID, name="a")
    assert counted.sums == whole.of_one_process()
    with pytest.raises(ValueError, match="partition 0 of 'a' is counted already"):
        counted + counted


def test_a_worker_that_is_killed_half_way(tmp_path):
    X, y = whole.rows()

    def made(batch):
        number = int(batch["id"][0])
        with open(tmp_path / f"tried-{number}", "a") as tried:
            tried.write(f"{os.getpid()} ")
        if number == 5 and len((tmp_path / "tried-5").read_text().split()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        mine = np.array_split(np.arange(len(X)), 8)[number]
        return {"features": X[mine], "label": y[mine]}

    rows = ray.data.range(8, override_num_blocks=8).map_batches(made, batch_size=1)
    # The number of columns is given by the first row, of a block that does not kill.
    counted = muso.ray.sums(rows, classes=whole.CLASSES, grid=whole.GRID)
    assert len((tmp_path / "tried-5").read_text().split()) > 1
    whole.check(counted.sums, tmp_path)
