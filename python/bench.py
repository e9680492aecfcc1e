"""What the package costs, beside the same done with numpy, with scikit-learn and by the command line, in one run.

    python bench.py [--rows N] [--features D] [--classes C] [--rounds R] [--refits R] [--program muso]

Rounds are interleaved, so that what else the machine does meets all alike; the ratios are of medians. Processor time is that of all
threads: where others are busy on the machine, it says more than the clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import muso
import numpy as np


def processor():
    """Processor time of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def timed(work):
    """Seconds by the clock and of the processor, and the result."""
    start, before = time.perf_counter(), processor()
    result = work()
    return (time.perf_counter() - start, processor() - before), result


def numpy_refit(X, y, classes, alpha, batch=8192):
    """Centred ridge as one writes it: sums over batches in float64, and a solve."""
    order = X.shape[1]
    G, B, s, t = np.zeros((order, order)), np.zeros((order, classes)), np.zeros(order), np.zeros(classes)
    for start in range(0, len(X), batch):
        Z = X[start : start + batch].astype(np.float64)
        Y = np.eye(classes)[y[start : start + batch]]
        G += Z.T @ Z
        B += Z.T @ Y
        s += Z.sum(0)
        t += Y.sum(0)
    n = len(X)
    return np.linalg.solve(G - np.outer(s, s) / n + alpha * np.eye(order), B - np.outer(s, t) / n)


def safetensors(path, X, y):
    header, at = {}, 0
    for name, array, kind in [("features", X, "F32"), ("labels", y, "I64")]:
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(X.data)
        file.write(y.data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--gone", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--refits", type=int, default=1, help="rounds that the refits take part in")
    parser.add_argument("--program", help="the muso program, to compare `muso gram` with")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = np.empty((options.rows, options.features), np.float32)
    for part in np.array_split(X, 64):
        part[:] = rng.standard_normal(part.shape, dtype=np.float32)
    y = rng.integers(0, options.classes, options.rows)
    gone = slice(0, options.gone)
    print(f"{options.rows} × {options.features} float32, {options.classes} classes, {muso.threads()} threads, medians of {options.rounds}")

    times: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, head = Path(folder) / "rows.safetensors", Path(folder) / "head.safetensors"
        if options.program:
            safetensors(file, X, y)
            muso.Head(np.zeros((options.classes, options.features)), np.zeros(options.classes)).save(head)

        def program():
            command = [options.program, "gram", file, "--head", head, "--exact", "--grid", "8"]
            subprocess.run([*command, "--out", Path(folder) / "sums.safetensors"], check=True, capture_output=True)

        def sklearn_refit():
            from sklearn.linear_model import RidgeClassifier

            return RidgeClassifier(solver="cholesky").fit(X[options.gone :], y[options.gone :])

        def unfit():
            model.unfit(X[gone], y[gone])
            return model.coef_

        cases = {"partial_fit": lambda: muso.RidgeHead(grid=8.0, classes=range(options.classes)).partial_fit(X, y)}
        if options.program:
            cases["muso gram"] = program
        cases["numpy refit"] = lambda: numpy_refit(X[options.gone :], y[options.gone :], options.classes, 1.0)
        cases["scikit-learn refit"] = sklearn_refit
        for round in range(options.rounds):
            for name, work in cases.items():
                # They take most of the time, and are not close.
                if "refit" in name and round >= options.refits:
                    continue
                seconds, found = timed(work)
                times.setdefault(name, []).append(seconds)
                if name == "partial_fit":
                    model = found
                    model.coef_  # noqa: B018
                    times.setdefault("unfit and solve", []).append(timed(unfit)[0])
                del found
    clock, used = ({name: statistics.median(v[i] for v in values) for name, values in times.items()} for i in (0, 1))
    for name, seconds in clock.items():
        ratio = seconds / clock["unfit and solve"]
        print(f"{name:20} {seconds * 1e3:10.1f} ms, {used[name] * 1e3:9.1f} of the processor   {ratio:7.1f}× unfit")
    if options.program:
        by_clock, by_use = (of["muso gram"] / of["partial_fit"] for of in (clock, used))
        print(f"partial_fit runs at {by_clock:.2f}× the speed of the command line, {by_use:.2f}× by processor time")


if __name__ == "__main__":
    main()
