"""Heads: files, predictions and forgetting, against the command line where it is there."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import muso
import numpy as np
import pytest

PROGRAM = os.environ.get("MUSO_PROGRAM")
ROOT = Path(__file__).parents[2]


def tensor_file(path, **tensors):
    """A safetensors file."""
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64"}
    header, values = {}, b""
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        place = [len(values), len(values) + len(data)]
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": place}
        values += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + values)


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((120, 9)).astype(np.float32) + 1
    return X, rng.integers(0, 4, 120)


def blank(classes=4, features=9, bias=True):
    return muso.Head(np.zeros((classes, features)), np.zeros(classes) if bias else None)


def test_files_have_the_same_bytes(tmp_path, data):
    sums = muso.Sums(9, classes=4, grid=16.0)
    sums.add(*data)
    head = sums.solve(0.3)
    head.save(tmp_path / "head.safetensors")
    assert (tmp_path / "head.safetensors").read_bytes() == bytes(head)
    assert bytes(pickle.loads(pickle.dumps(head))) == bytes(head)
    loaded = muso.Head.load(tmp_path / "head.safetensors")
    assert loaded == head == muso.Head.from_bytes(bytes(head))
    assert repr(head) == "<muso.Head: features=9, classes=4, with a bias>"
    again = muso.Head(head.weight, head.bias)
    assert again == head and again != blank()


def test_scores_are_those_of_numpy(data):
    X, y = data
    rng = np.random.default_rng(1)
    head = muso.Head(rng.standard_normal((4, 9)), rng.standard_normal(4))
    wanted = X.astype(float) @ head.weight.T + head.bias
    for layout in [X, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]]:
        np.testing.assert_allclose(head.decision_function(layout), wanted, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(head.predict(layout), wanted.argmax(axis=1))
    assert head.predict(X[:0]).shape == (0,)
    assert head.decision_function(X[:0]).shape == (0, 4)


@pytest.mark.parametrize("penalise_bias", [True, False])
@pytest.mark.parametrize("bits", [None, 22])
def test_forgetting_is_never_having_seen(data, penalise_bias, bits):
    X, y = data
    gone = [3, 50, 119]
    new = blank().forget(X, y, gone, ridge=0.2, penalise_bias=penalise_bias, verify=True, bits=bits)
    assert new.rows.tolist() == gone
    kept = np.delete(np.arange(120), gone)
    sums = muso.Sums(9, classes=4, bits=None)
    sums.add(X[kept], y[kept])
    wanted = sums.solve(0.2, penalise_bias=penalise_bias)
    tolerance = 1e-9 if bits is None else 1e-5
    np.testing.assert_allclose(new.head.weight, wanted.weight, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(new.labels, new.head.decision_function(X[gone]), rtol=1e-12, atol=1e-12)
    assert new.report["rows"] == {"total": 120, "retained": 117, "forgotten": 3}
    assert new.report["verify"]["distance_relative"] < 1e-4
    values = np.eye(4)[y]
    by_values = blank().forget(X, values, np.array(gone), ridge=0.2, penalise_bias=penalise_bias)
    np.testing.assert_allclose(by_values.head.weight, wanted.weight, rtol=1e-9, atol=1e-9)


def test_what_cannot_be_forgotten_is_refused(data):
    X, y = data
    head = blank()
    for arguments, error, words in [
        ((X, y, [120]), ValueError, "120"),
        ((X, y, [-1]), ValueError, "rows has -1"),
        ((X, y, [0.5]), ValueError, "rows has 0.5"),
        ((X, y, [1, 1]), ValueError, "1"),
        ((X, y, list(range(120))), ValueError, "all 120 rows"),
        ((X, y, 7), TypeError, "rows"),
        ((X[:, :5], y, [1]), ValueError, "X has 5 features; expected 9"),
        ((np.asfortranarray(X), y, [1]), ValueError, "ascontiguousarray"),
        ((X, y[:-1], [1]), ValueError, "y has 119 rows"),
        ((X, y + 1, [1]), ValueError, "label 4"),
        ((np.where(X == X[3, 3], np.inf, X), y, [1]), ValueError, "inf at row 3, column 3"),
    ]:
        with pytest.raises(error, match=words):
            head.forget(*arguments, ridge=0.1)
    with pytest.raises(ValueError, match="ridge"):
        head.forget(X, y, [1], ridge=-1.0)
    with pytest.raises(ValueError, match="no bias"):
        blank(bias=False).forget(X, y, [1], ridge=1.0, penalise_bias=False)


@pytest.mark.skipif(PROGRAM is None, reason="MUSO_PROGRAM names no program")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_heads_are_the_command_lines(tmp_path, data, dtype):
    X, y = data
    X = X.astype(dtype)
    tensor_file(tmp_path / "rows.safetensors", features=X, labels=y)
    blank().save(tmp_path / "head.safetensors")
    (tmp_path / "ids.txt").write_text("3 50 119")

    def program(*arguments):
        subprocess.run([PROGRAM, *arguments], cwd=tmp_path, check=True, capture_output=True)
        return (tmp_path / "out.safetensors").read_bytes()

    own = ["head", "--features", "rows.safetensors", "--head", "head.safetensors", "--forget", "ids.txt"]
    own += ["--ridge", "0.2", "--objective", "ridge", "--out", "out.safetensors"]
    head, gone = muso.Head.load(tmp_path / "head.safetensors"), [3, 50, 119]
    assert bytes(head.forget(X, y, gone, ridge=0.2).head) == program(*own)
    assert bytes(head.forget(X, y, gone, ridge=0.2, penalise_bias=False).head) == program(*own, "--free-bias")
    exact = program(*own, "--exact", "27", "--grid", "16")
    assert bytes(head.forget(X, y, gone, ridge=0.2, bits=27, grid=16.0).head) == exact

    # By sums: those of Python, and those of the program.
    sums = muso.Sums(9, classes=4, grid=16.0, bits=27)
    sums.add(X, y)
    sums.subtract(X[gone], y[gone])
    assert bytes(sums.solve(0.2)) == exact
    sums.save(tmp_path / "sums.safetensors")
    by_sums = ["head", "--sums", "sums.safetensors", "--head", "head.safetensors", "--ridge", "0.2"]
    by_sums += ["--out", "out.safetensors"]
    assert program(*by_sums) == exact
    assert program(*by_sums, "--free-bias") == bytes(sums.solve(0.2, penalise_bias=False))
    program("gram", "rows.safetensors", "--head", "head.safetensors", "--exact", "27", "--grid", "16", "--out", "out.safetensors")
    theirs = muso.Sums.load(tmp_path / "out.safetensors")
    whole = muso.Sums(9, classes=4, grid=theirs, bits=27)
    whole.add(X, y)
    assert theirs == whole and bytes(theirs) == bytes(whole)

    # Sums that Python made of parts are merged by the program, and no part twice.
    for i, part in enumerate(np.array_split(np.arange(120), 2)):
        half = whole.empty()
        half.add(X[part], y[part])
        half.save(tmp_path / f"{i}.safetensors")
    program("merge", "0.safetensors", "1.safetensors", "--out", "out.safetensors")
    assert muso.Sums.load(tmp_path / "out.safetensors") == whole
    (tmp_path / "2.safetensors").write_bytes((tmp_path / "0.safetensors").read_bytes())
    with pytest.raises(subprocess.CalledProcessError) as refused:
        program("merge", "0.safetensors", "2.safetensors", "--out", "out.safetensors")
    assert b"are also in" in refused.value.stderr
