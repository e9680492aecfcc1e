"""Sums over named partitions: in any order one result, and none of them twice."""

import doctest
import pickle

import muso
import numpy as np
import pytest
import whole
from muso import partitions
from muso.partitions import Counted, Partition, SumsSpec, columns, expect, merge, ranges_of


def spec(grid=whole.GRID, **options):
    options = {"classes": whole.CLASSES, "targets": None, "bias": True, "bits": 22} | options
    return SumsSpec.of(whole.FEATURES, lambda: muso.column_range(whole.rows()[0]), grid=grid, **options)


def parts(count, grid=whole.GRID):
    X, y = whole.rows()
    made = spec(grid)
    cuts = np.array_split(np.arange(len(X)), count)
    return [made.count(Partition("rows", i), [(X[cut], y[cut])]) for i, cut in enumerate(cuts)]


@pytest.mark.parametrize("grid", [whole.GRID, None])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_partitions_in_any_order_are_the_whole(tmp_path, count, grid):
    found = pickle.loads(pickle.dumps(parts(count, grid)))
    for order in (found, found[::-1]):
        merged = merge(order)
        whole.check(merged.sums, tmp_path, grid)
        assert merged.partitions == {("rows", i) for i in range(count)}
    pairs = [found[i] + found[i + 1] if i + 1 < count else found[i] for i in range(0, count, 2)]
    assert merge(pairs).sums == merged.sums
    # Parts are others' to keep.
    assert sum(part.sums.rows for part in found) == whole.ROWS


def test_a_partition_counts_once():
    first, second, third = parts(3)
    with pytest.raises(ValueError, match="partition 1 of 'rows' is counted already; expected each partition once"):
        merge([first, second, second])
    with pytest.raises(ValueError, match="partitions 0, 1 of 'rows' are counted already"):
        (first + second) + (second + third + first)
    assert (first + second).sums.rows == first.sums.rows + second.sums.rows
    with pytest.raises(RuntimeError, match="partition 1 of 'rows' is not counted, of 3"):
        expect(first + third, "rows", 3)
    with pytest.raises(ValueError, match="parts is empty"):
        merge([])
    other = Counted(second.sums, [Partition("others", 1)])
    assert merge([first, second, other]).sums.rows == first.sums.rows + 2 * second.sums.rows


def test_sums_that_depend_on_the_partitions_are_refused():
    with pytest.raises(ValueError, match="bits is None"):
        spec(bits=None)
    with pytest.raises(TypeError, match="classes"):
        spec(targets=2)


def test_ranges_are_those_of_all_batches():
    X, _ = whole.rows()
    values = X[:, :2].astype(np.float64) * 3
    batches = [(X[i : i + 300], values[i : i + 300]) for i in range(0, len(X), 300)]
    found = ranges_of([*batches, (X[:0], values[:0])], columns=whole.FEATURES + 2, values=True)
    np.testing.assert_array_equal(found, np.abs(np.hstack([X, values])).max(axis=0))
    np.testing.assert_array_equal(ranges_of([], columns=3, values=False), np.zeros(3))


def test_columns_of_a_table():
    X, y = whole.rows()
    vectors = np.empty(5, dtype=object)
    vectors[:] = list(X[:5])
    for features, batch in [
        ("x", {"x": X[:5]}),
        ("x", {"x": vectors}),
        ([f"x{i}" for i in range(whole.FEATURES)], {f"x{i}": X[:5, i] for i in range(whole.FEATURES)}),
    ]:
        taken, labels = columns(batch | {"y": y[:5]}, features, "y")
        np.testing.assert_array_equal(taken, X[:5])
        np.testing.assert_array_equal(labels, y[:5])
        assert columns(batch, features, None)[1] is None


def test_examples_in_docstrings():
    failed, tried = doctest.testmod(partitions)
    assert failed == 0 and tried > 3
