"""Nothing is copied, and nothing is kept: peak memory and references."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for peak memory")

START = """
import gc, resource, sys, tempfile, numpy as np, muso

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

class Lent:
    def __init__(self, array):
        self.array = array
        self.shape = array.shape
    def __dlpack__(self, **options):
        return self.array.__dlpack__()
    def __dlpack_device__(self):
        return (1, 0)
"""


def run(code):
    subprocess.run([sys.executable, "-c", START + textwrap.dedent(code)], check=True, timeout=600)


@pytest.mark.parametrize("layout", ["X", "Lent(X)", "np.asfortranarray(X)", "X[::-1]", "X[:, ::2]"])
@pytest.mark.parametrize("bits", [22, None])
def test_features_are_not_copied(layout, bits):
    run(f"""
    X = np.ones((400_000, 128), np.float32)  # 205 MB
    y = np.zeros(len(X), int)
    lent = {layout}
    columns = 64 if "::2" in {layout!r} else 128
    def add(part, labels):
        sums = muso.Sums(columns, classes=2, grid={None if bits is None else 4.0}, bits={bits})
        sums.add(part, labels)
        return sums.solve(1.0)
    add(np.ones((20_000, columns), np.float32), np.zeros(20_000, int))
    before = peak()
    head = add(lent, y)
    assert peak() - before < 40e6, (peak() - before) / 1e6
    head.predict(lent)
    assert peak() - before < 60e6, (peak() - before) / 1e6
    """)


def test_nothing_is_kept_over_many_calls():
    run("""
    X = np.ones((16, 8), np.float32)
    y = np.zeros(16, int)
    lent = Lent(X)
    muso.set_threads(1)
    sums = muso.Sums(8, classes=2, grid=4.0)
    model = muso.RidgeHead(grid=4.0, classes=[0, 1])
    def calls(times):
        for _ in range(times):
            sums.add(X, y)
            sums.add(lent, y)
            sums.subtract(X, y)
            head = sums.solve(1.0)
            head.predict(X), head.weight, head.bias, bytes(head), sums.class_counts, sums.limbs()
            model.partial_fit(X, y)
            model.unfit(X, y)
            for bad in [(X[:, :3], y), (X * 1e30, y), (X, y + 9), (X.astype(object), y), (None, y)]:
                try:
                    sums.add(*bad)
                except Exception:
                    pass
    calls(200)
    gc.collect()
    counted = [sys.getrefcount(thing) for thing in (X, y, lent)]
    memory = resident()
    calls(1_000)  # of more than ten kinds each
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (X, y, lent)] == counted
    assert resident() - memory < 8e6, (resident() - memory) / 1e6
    """)


def test_arrays_are_let_go():
    run("""
    import weakref
    class Array(np.ndarray):
        pass
    X = np.ones((16, 8), np.float32).view(Array)
    there = weakref.ref(X)
    sums = muso.Sums(8, classes=2, grid=4.0)
    sums.add(X, np.zeros(16, int))
    sums.add(Lent(X), np.zeros(16, int))
    del X
    gc.collect()
    assert there() is None
    kept = weakref.ref(sums)
    del sums
    gc.collect()
    assert kept() is None
    """)
