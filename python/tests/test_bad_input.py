"""Bad input ends in an exception that says what to do, and never in the end of the interpreter: each in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

START = """
import signal, threading, numpy as np, muso
X = np.ones((8, 3), np.float32)
y = np.arange(8) % 2
sums = muso.Sums(3, classes=2, grid=4.0)
head = muso.Head(np.ones((2, 3)))

class Lent:
    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device
    def __dlpack__(self, **options):
        return self.array.__dlpack__()
    def __dlpack_device__(self):
        return self.device
"""

CASES = {
    "integers": ("sums.add(X.astype(int), y)", "TypeError: X has integers; expected float16"),
    "complex": ("sums.add(X.astype(complex), y)", "TypeError: X has values of type complex128"),
    "objects": ("sums.add(X.astype(object), y)", "TypeError: X has values of type object"),
    "texts": ("sums.add(X.astype(str), y)", "TypeError: X has values of type <U"),
    "dates": ("sums.add(X.astype('M8[s]'), y)", "TypeError: X has values of type datetime64"),
    "records": ("sums.add(np.zeros(8, 'f4,f4'), y)", "TypeError: X has values of type"),
    "other bytes first": ("sums.add(X.astype('>f4'), y)", "TypeError: X has values of type >f4"),
    "long double": ("sums.add(X.astype(np.longdouble), y)", "TypeError: X has values of type"),
    "a list": ("sums.add([[1.0, 2.0, 3.0]], y)", "TypeError: X is a list; expected an array: numpy.asarray(X)"),
    "nothing": ("sums.add(None, y)", "TypeError: X is a NoneType"),
    "one dimension": ("sums.add(X[0], y)", "ValueError: X has 1 dimension; expected two"),
    "three dimensions": ("sums.add(X[None], y)", "ValueError: X has 3 dimensions"),
    "no dimension": ("sums.add(np.float32(1), y)", "TypeError: X is a float32"),
    "other width": ("sums.add(X[:, :2], y)", "ValueError: X has 2 features; expected 3"),
    "other length": ("sums.add(X, y[:7])", "ValueError: y has 7 rows and X has 8"),
    "NaN": ("X[5, 1] = np.nan; sums.add(X, y)", "ValueError: X has NaN at row 5, column 1; expected finite"),
    "infinity in float64 sums": (
        "X[5, 1] = np.inf; muso.Sums(3, classes=2, bits=None).add(X, y)",
        "ValueError: X has inf at row 5, column 1",
    ),
    "NaN before a grid": ("X[5, 1] = np.nan; muso.Sums(3, classes=2).add(X, y)", "ValueError: X has NaN at row 5"),
    "NaN in targets": (
        "muso.Sums(3, targets=1).add(X, np.where(y, np.nan, 0.0))",
        "ValueError: y has NaN at row 1, column 0",
    ),
    "beyond the grid": ("sums.add(X * 1e30, y)", "OverflowError: X has"),
    "beyond float64": (
        "muso.Sums(3, classes=2, bits=None).add(X.astype(float) * 1e200, y)",
        "OverflowError: X is too large",
    ),
    "a label never seen": ("sums.add(X, y + 1)", "ValueError: y has the label 2 at row 1; expected one of 2 classes"),
    "a negative label": ("sums.add(X, y - 1)", "ValueError: y has the label -1 at row 0"),
    "a huge label": ("sums.add(X, y.astype('u8') + 2**63)", "ValueError: y has the label 9223372036854775807"),
    "floating labels": ("sums.add(X, y.astype(float))", "TypeError: y has floating values; expected integers"),
    "no labels": ("sums.add(X)", "TypeError: y is missing; expected a class for each row"),
    "labels without classes": ("muso.Sums(3).add(X, y)", "TypeError: y was given"),
    "labels in columns": ("sums.add(X, np.eye(8, dtype=int))", "ValueError: y has 8 columns"),
    "more rows than were added": ("sums.subtract(X, y)", "ValueError: 8 rows cannot be subtracted from sums over 0"),
    "rows never added": (
        "sums.add(X, y); sums.subtract(X, 1 - y); sums.subtract(X, y)",
        "ValueError: 8 rows cannot be subtracted from sums over 0",
    ),
    "another device": ("sums.add(Lent(X, (2, 1)), y)", "ValueError: X is on cuda:1; expected an array in the processor's memory"),
    "a device nobody knows": ("sums.add(Lent(X, (99, 0)), y)", "ValueError: X is on another device"),
    "a broken capsule": ("X = Lent(X); X.array = None; sums.add(X, y)", "ValueError: X cannot be read"),
    "a capsule of something else": (
        "X = Lent(X); X.array = type('A', (), {'__dlpack__': lambda s: np._core._multiarray_umath._ARRAY_API})();"
        "sums.add(X, y)",
        "Error",
    ),
    "no capsule": ("X = Lent(X); X.array = type('A', (), {'__dlpack__': lambda s: 3})(); sums.add(X, y)", "TypeError"),
    "no features": ("muso.Sums(0, classes=2)", "ValueError: features is 0; expected 1 to"),
    "negative features": ("muso.Sums(-1, classes=2)", "OverflowError"),
    "more classes than memory": ("muso.Sums(3, classes=2**40)", "ValueError: targets is"),
    "classes and targets": ("muso.Sums(3, classes=2, targets=2)", "TypeError: both classes and targets"),
    "a width that is none": ("muso.Sums(3, classes=2, bits=23)", "ValueError: bits = 23"),
    "a grid of zero": ("muso.Sums(3, classes=2, grid=0.0)", "ValueError: grid = 0"),
    "a grid of NaN": ("muso.Sums(3, classes=2, grid=float('nan'))", "ValueError: grid = NaN"),
    "a short grid": ("muso.Sums(3, classes=2, grid=np.zeros(2, int))", "ValueError: grid has 2 exponents; expected 3"),
    "a floating grid": ("muso.Sums(3, classes=2, grid=np.ones(3))", "TypeError: grid has floating values"),
    "a grid that is none": ("muso.Sums(3, classes=2, grid={})", "TypeError: grid is a dict"),
    "a grid far away": ("muso.Sums(3, classes=2, grid=np.full(3, 2**60))", "ValueError: grid = 2^100000"),
    "no rows": ("sums.solve(1.0)", "ValueError: the sums have no rows"),
    "no targets": ("s = muso.Sums(3); s.add(X); s.solve(1.0)", "ValueError: the sums have no targets"),
    "a negative ridge": ("sums.add(X, y); sums.solve(-1.0)", "ValueError: ridge is -1"),
    "a ridge of NaN": ("sums.add(X, y); sums.solve(float('nan'))", "ValueError: ridge is NaN"),
    "a singular system": ("sums.add(X, y); sums.solve(0.0)", "ValueError: ridge: the system is singular"),
    "other sums": ("sums.merge(muso.Sums(4, classes=2, grid=4.0))", "ValueError: other has features=4"),
    "sums of another grid": ("sums.merge(muso.Sums(3, classes=2, grid=64.0))", "ValueError: the sums are on different grids"),
    "no sums": ("sums.merge(3)", "TypeError"),
    "cut bytes": ("muso.Sums.from_bytes(bytes(sums)[:100])", "ValueError: the sums"),
    "other bytes": ("muso.Sums.from_bytes(b'x' * 1000)", "ValueError: the sums"),
    "a flipped bit": (
        "b = bytearray(bytes(sums)); b[-9] ^= 1; muso.Sums.from_bytes(bytes(b))",
        "ValueError: the sums",
    ),
    "limbs of nobody": (
        "muso.Sums.from_limbs(np.full(len(sums.limbs()), 2**63 - 1), sums)",
        "Error: limbs",
    ),
    "no limbs": ("muso.Sums(3, classes=2, bits=None).limbs()", "ValueError: sums in float64 have no limbs"),
    "limbs without a grid": ("muso.Sums(3, classes=2).limbs()", "ValueError: the sums have no grid yet"),
    "weights of NaN": ("muso.Head(np.full((2, 3), np.nan))", "ValueError: weight has NaN"),
    "no weights": ("muso.Head(np.ones((0, 3)))", "ValueError: weight is 0×3"),
    "another bias": ("muso.Head(np.ones((2, 3)), np.ones(3))", "ValueError: bias has 3 values; expected 2"),
    "scores of other rows": ("head.predict(X[:, :2])", "ValueError: X has 2 features; expected 3"),
    "scores of NaN": ("X[7, 2] = np.nan; head.predict(X)", "ValueError: X has NaN at row 7, column 2"),
    "too many threads": ("muso.set_threads(-1)", "OverflowError"),
    "Ctrl-C": (
        """
X = np.ones((4_000_000, 128), np.float16)
threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
while True:
    muso.Sums(128, targets=128, grid=4.0).add(X, X)
""",
        "KeyboardInterrupt",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_exception_says_what_to_do(case):
    code, wanted = CASES[case]
    code = textwrap.dedent(START) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, -2, 130), (done.returncode, done.stderr)
    # The exception, and notes on it.
    said = done.stderr[done.stderr.rindex("\n  ") :]
    assert wanted in said, said
    assert "panicked" not in done.stderr and "Panic" not in done.stderr


def test_a_forked_child_has_an_engine_of_its_own():
    code = START + textwrap.dedent("""
    import os
    sums.add(X, y)
    child = os.fork()
    if child == 0:
        sums.add(X, y)
        os._exit(0 if sums.rows == 16 else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
