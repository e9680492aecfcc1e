"""Sums: the same bytes whatever came and went, in whatever parts, types and layouts."""

import copy
import pickle
import threading
from pathlib import Path

import muso
import numpy as np
import pytest

BITS = [13, 20, 22, 27, 34, 41]


def rows(n=60, features=7, classes=3, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, features)).astype(dtype)
    return X, rng.integers(0, classes, n)


def summed(X, y, *, classes=3, grid=8.0, **options):
    sums = muso.Sums(X.shape[1], classes=classes, grid=grid, **options)
    sums.add(X, y)
    return sums


@pytest.mark.parametrize("bits", BITS)
def test_what_is_subtracted_leaves_no_trace(bits):
    X, y = rows()
    sums = summed(X, y, bits=bits)
    sums.subtract(X[10:25], y[10:25])
    never = summed(np.delete(X, slice(10, 25), axis=0), np.delete(y, slice(10, 25)), bits=bits)
    assert sums == never and bytes(sums) == bytes(never)
    assert pickle.dumps(sums) == pickle.dumps(never)
    assert bytes(sums.solve(0.5)) == bytes(never.solve(0.5))
    assert sums.rows == 45 and sums.class_counts.tolist() == np.bincount(np.delete(y, slice(10, 25))).tolist()


@pytest.mark.parametrize("bits", [22, 41, None])
def test_any_parts_in_any_order_are_one(bits):
    X, y = rows(n=200)
    grid = None if bits is None else 8.0
    whole = summed(X, y, grid=grid, bits=bits)
    order = np.random.default_rng(1).permutation(200)
    parts = [summed(X[part], y[part], grid=grid, bits=bits) for part in np.array_split(order, 7)]
    merged = muso.merge(parts)
    assert merged.rows == 200
    if bits is None:
        np.testing.assert_allclose(merged.solve(1.0).weight, whole.solve(1.0).weight, rtol=1e-10)
        return
    assert bytes(merged) == bytes(whole)
    left = (parts[3] + parts[0] + parts[6]) - parts[0]
    assert left == parts[6] + parts[3]
    assert muso.merge(parts[i] for i in (4, 2, 6, 0, 1, 5, 3)) == whole


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_layout_has_the_same_values(dtype):
    X, y = rows(n=64, features=10, dtype=dtype)
    wide = np.zeros((128, 30), dtype)
    wide[::2, 3:23:2] = X
    layouts = [
        X,
        np.asfortranarray(X),
        wide[::2, 3:23:2],
        X[::-1][::-1],
        np.ascontiguousarray(X[:, ::-1])[:, ::-1],
        memoryview(X),
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(dtype).reshape(X.shape),
    ]
    wanted = summed(X, y)
    for layout in layouts:
        sums = muso.Sums(10, classes=3, grid=8.0)
        sums.add(layout, y)
        assert sums == wanted


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_every_type_of_labels(dtype):
    X, y = rows()
    assert summed(X, y.astype(dtype)) == summed(X, y)
    assert summed(X, y.reshape(-1, 1).astype(dtype)) == summed(X, y)
    assert summed(X, np.repeat(y, 2)[::2].astype(dtype)) == summed(X, y)


def test_bfloat16_by_a_view():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    X, y = rows()
    X = X.astype(ml_dtypes.bfloat16)
    assert summed(X, y) == summed(X.astype(np.float32), y)


class Lent:
    """What lends itself by DLPack alone, as a tensor does."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_is_read_where_it_lies():
    X, y = rows()
    wanted = summed(X, y)
    for layout in [X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]]:
        assert summed(Lent(layout), Lent(y)) == wanted


def test_a_memory_map_goes_in(tmp_path):
    X, y = rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    assert summed(mapped, y) == summed(X, y)


def test_grids_in_every_form(tmp_path):
    X, y = rows()
    first = summed(X, y, grid=8.0)
    first.save(tmp_path / "sums.safetensors")
    for grid in [first, tmp_path / "sums.safetensors", str(tmp_path / "sums.safetensors"), first.grid, 8]:
        assert summed(X, y, grid=grid) == first
    recorded = muso.Sums(7, classes=3)
    assert recorded.grid is None and recorded.grid_recorded is None and recorded.rows == 0
    recorded.add(X, y)
    assert recorded.grid_recorded and not first.grid_recorded
    np.testing.assert_array_equal(recorded.grid, muso.grid_of(X))
    with pytest.raises(ValueError, match="different grids"):
        summed(X, y, grid=16.0).merge(recorded)


def test_ranges_of_parts_make_the_grid_of_all():
    X, y = rows(n=90)
    parts = [muso.column_range(part) for part in np.array_split(X, 4)]
    np.testing.assert_array_equal(muso.grid_from(np.maximum.reduce(parts)), muso.grid_of(X))
    np.testing.assert_array_equal(muso.column_range(X), np.abs(X).max(axis=0))
    np.testing.assert_array_equal(muso.grid_from(muso.column_range(X), head_room=4), muso.grid_of(X) + 3)
    values = X[:, :2] * 100
    assert len(muso.grid_of(X, values)) == 9
    sums = muso.Sums(7, targets=2, grid=muso.grid_of(X, values), bits=22)
    sums.add(X, values)
    recorded = muso.Sums(7, targets=2)
    recorded.add(X, values)
    np.testing.assert_array_equal(sums.grid, recorded.grid)


def test_limbs_add_up():
    X, y = rows(n=300, features=5)
    parts = [summed(a * 10 - 30, b, grid=4.0, bits=41) for a, b in zip(np.array_split(X, 3), np.array_split(y, 3))]
    added = sum(part.limbs() for part in parts)
    assert added.dtype == np.int64
    assert muso.Sums.from_limbs(added, parts[0]) == muso.merge(parts)
    assert muso.Sums.from_limbs(parts[1].limbs(), parts[0]) == parts[1]
    with pytest.raises(ValueError, match="limbs"):
        muso.Sums.from_limbs(added[:-1], parts[0])
    with pytest.raises((ValueError, OverflowError), match="limbs"):
        muso.Sums.from_limbs(-added, parts[0])


@pytest.mark.parametrize("bits", [22, None])
def test_files_and_copies_are_the_same_sums(tmp_path, bits):
    X, y = rows()
    sums = summed(X, y, grid=None if bits is None else 8.0, bits=bits)
    sums.save(tmp_path / "a.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == bytes(sums)
    for other in [
        muso.Sums.load(tmp_path / "a.safetensors"),
        muso.Sums.from_bytes(bytes(sums)),
        pickle.loads(pickle.dumps(sums)),
        copy.copy(sums),
        copy.deepcopy(sums),
        sums.copy(),
    ]:
        assert other == sums and bytes(other) == bytes(sums) and other.class_counts.tolist() == sums.class_counts.tolist()
    empty = sums.empty()
    assert empty.rows == 0 and muso.Sums.from_bytes(bytes(empty)) == empty and empty != sums
    fresh = muso.Sums(7, classes=3)
    assert pickle.loads(pickle.dumps(fresh)) == fresh
    assert (fresh != sums) and not (sums == 3)


def test_what_fails_changes_nothing():
    X, y = rows()
    sums = summed(X, y)
    before = bytes(sums)
    bad = X.copy()
    bad[40, 2] = np.nan
    with pytest.raises(ValueError, match="X has NaN at row 40, column 2"):
        sums.add(bad, y)
    with pytest.raises(ValueError, match="label 3 at row 5"):
        sums.add(X, np.where(np.arange(60) == 5, 3, y))
    with pytest.raises(OverflowError, match="grid="):
        sums.add(X * 1e12, y)
    with pytest.raises(ValueError, match="61 rows cannot be subtracted from sums over 60"):
        sums.subtract(np.vstack([X, X[:1]]), np.append(y, 0))
    with pytest.raises(ValueError, match="not among"):
        sums.subtract(X, np.zeros(60, int))
    with pytest.raises(ValueError, match="not among"):
        sums.subtract(X * 4, y)
    assert bytes(sums) == before
    # Nor is a grid fixed by rows that were refused.
    fresh = muso.Sums(7, classes=3)
    with pytest.raises(ValueError):
        fresh.add(X, y + 1)
    assert fresh.grid is None
    with pytest.raises(ValueError, match="cannot be subtracted"):
        fresh.subtract(X, y)


def test_threads_may_share_sums():
    X, y = rows(n=4000, features=20)
    sums = muso.Sums(20, classes=3, grid=8.0)
    parts = list(zip(np.array_split(X, 40), np.array_split(y, 40)))

    def work(own):
        for a, b in own:
            sums.add(a, b)
            sums.subtract(a, b)
            sums.add(a, b)

    threads = [threading.Thread(target=work, args=(parts[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == summed(X, y)


def test_solutions_are_those_of_plain_float64():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 12)) + 5
    Y = X @ rng.standard_normal((12, 2)) + rng.standard_normal((300, 2))
    ones = np.hstack([X, np.ones((300, 1))])
    held = np.linalg.solve(ones.T @ ones + 0.7 * np.eye(13), ones.T @ Y)
    Xc, Yc = X - X.mean(0), Y - Y.mean(0)
    free = np.linalg.solve(Xc.T @ Xc + 0.7 * np.eye(12), Xc.T @ Yc)
    for bits in [41, None]:
        sums = muso.Sums(12, targets=2, bits=bits)
        sums.add(X, Y)
        head = sums.solve(0.7)
        np.testing.assert_allclose(np.vstack([head.weight.T, head.bias]), held, rtol=1e-9, atol=1e-11)
        head = sums.solve(0.7, penalise_bias=False)
        np.testing.assert_allclose(head.weight.T, free, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(head.bias, Y.mean(0) - X.mean(0) @ free, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(head.decision_function(X), X @ head.weight.T + head.bias, rtol=1e-12)
    bare = muso.Sums(12, targets=2, bits=None, bias=False)
    bare.add(X, Y)
    np.testing.assert_allclose(bare.solve(0.7).weight.T, np.linalg.solve(X.T @ X + 0.7 * np.eye(12), X.T @ Y), rtol=1e-9)
    assert bare.solve(0.7).bias is None


def test_results_do_not_depend_on_threads():
    X, y = rows(n=3000, features=40)
    before = muso.threads()
    found = []
    for threads in [1, 2, 3]:
        muso.set_threads(threads)
        assert muso.threads() == threads
        plain = muso.Sums(40, classes=3, bits=None)
        plain.add(X, y)
        found.append(bytes(summed(X, y).solve(0.1)) + bytes(plain))
    muso.set_threads(before)
    assert len(set(found)) == 1


def test_paths_of_every_kind(tmp_path):
    X, y = rows()
    sums = summed(X, y)
    with pytest.raises(FileNotFoundError):
        muso.Sums.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        sums.save(tmp_path / "no" / "folder")
    (tmp_path / "text").write_text("no sums")
    with pytest.raises(ValueError, match="text"):
        muso.Sums.load(tmp_path / "text")
    with pytest.raises(ValueError, match="the sums"):
        muso.Sums.from_bytes(bytes(sums)[:-3])
    assert not [path for path in Path(tmp_path).iterdir() if path.name != "text"]
