"""Spark: any partitions, and tasks that fail and are tried again. (Speculative copies need a second host.)"""

import os
import sys

import numpy as np
import pytest
import whole

sql = pytest.importorskip("pyspark.sql")
pa = pytest.importorskip("pyarrow")

import muso.spark  # noqa: E402


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Two tasks at a time, each of which may fail three times.
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]" if whole.CLUSTER else "local[2,4]")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def table():
    X, y = whole.rows()
    return pa.table({"features": list(X), "label": y})


@pytest.mark.parametrize("grid", [whole.GRID, None])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_partitions_are_the_whole(tmp_path, spark, count, grid):
    rows = spark.createDataFrame(table()).repartition(count)
    counted = muso.spark.sums(rows, classes=whole.CLASSES, grid=grid)
    assert len(counted.partitions) == count
    whole.check(counted.sums, tmp_path, grid)


def test_columns_and_names(spark):
    X, y = whole.rows()
    names = [f"x{i}" for i in range(whole.FEATURES)]
    rows = spark.createDataFrame(pa.table({name: X[:, i] for i, name in enumerate(names)} | {"label": y}))
    np.testing.assert_array_equal(muso.spark.column_range(rows, names), muso.column_range(X))
    counted = muso.spark.sums(rows, names, classes=whole.CLASSES, grid=whole.GRID)
    assert counted.sums == whole.of_one_process()
    with pytest.raises(ValueError, match="counted already"):
        counted + muso.spark.sums(rows, names, classes=whole.CLASSES, grid=whole.GRID)
    ragged = spark.createDataFrame([([1.0, 2.0], 0), ([3.0], 1), ([4.0, 5.0, 6.0], 1)], ["features", "label"]).repartition(1)
    with pytest.raises(Exception, match="features has arrays of 1 and of 3 values"):
        muso.spark.sums(ragged, classes=2, grid=8.0)


def test_a_task_that_fails_half_way(tmp_path, spark):
    def fickle(batches):
        from pyspark import TaskContext

        number, attempt = TaskContext.get().partitionId(), TaskContext.get().attemptNumber()
        with open(tmp_path / f"tried-{number}", "a") as tried:
            tried.write(f"{attempt} ")
        yield from batches
        if attempt == 0 and number == 2:
            raise RuntimeError("after all rows were seen")

    rows = spark.createDataFrame(table()).repartition(7)
    rows = rows.mapInArrow(fickle, rows.schema)
    counted = muso.spark.sums(rows, classes=whole.CLASSES, grid=whole.GRID)
    tried = [(tmp_path / f"tried-{i}").read_text().split() for i in range(7)]
    assert len(tried[2]) > 1, tried
    whole.check(counted.sums, tmp_path)
