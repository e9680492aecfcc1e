"""The other side of `muso bench`: numpy, scipy and torch on the arrays that it wrote.

One JSON request a line on standard input, one JSON answer a line on standard output:

    {"do": "load", "kind": KIND, "arrays": {NAME: PATH}, "parameter": X}
        -> {"variants": [NAME, ...]}; the parameter is the ridge, or what describes a network
    {"do": "check", "variant": NAME, "out": PATH}    runs it once, writes the result as little-endian f64
        -> {"seconds": T}
    {"do": "time", "variant": NAME, "repeat": N}     runs it N times
        -> {"seconds": mean T}

The first line, sent unasked, says which libraries there are. Threads are set by the caller through the environment,
before anything is imported.
"""

import json
import os
import signal
import sys
import time

import numpy as np

try:
    import scipy
    import scipy.linalg
except ImportError:
    scipy = None
try:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
except ImportError:
    torch = None


def gram(arrays, _ridge):
    """G = Z'Z. `+conv` counts the conversion of the f32 rows to f64, the others are given a converted copy."""
    z = arrays["z"]
    wide = z.astype(np.float64)
    variants = {
        "numpy f64": lambda: wide.T @ wide,
        "numpy f64 +conv": lambda: (lambda w: w.T @ w)(z.astype(np.float64)),
        "numpy f32": lambda: z.T @ z,
    }
    if scipy:
        dsyrk = scipy.linalg.blas.dsyrk
        # Row-major N x D is column-major D x N: nothing is copied.
        variants["scipy dsyrk"] = lambda: dsyrk(1.0, wide.T, lower=1)
        variants["scipy dsyrk +conv"] = lambda: dsyrk(1.0, z.astype(np.float64).T, lower=1)
    if torch:
        t32, t64 = torch.from_numpy(z), torch.from_numpy(wide)
        variants["torch f64"] = lambda: t64.T @ t64
        variants["torch f64 +conv"] = lambda: (lambda w: w.T @ w)(t32.double())
        variants["torch f32"] = lambda: t32.T @ t32
    return variants


def cholesky(arrays, _ridge):
    """X = A^-1 B by a Cholesky factor."""
    a, b = arrays["a"], arrays["b"]
    variants = {}
    if scipy:

        def by_scipy():
            factor = scipy.linalg.cho_factor(a, lower=True, check_finite=False)
            return scipy.linalg.cho_solve(factor, b, check_finite=False)

        variants["scipy"] = by_scipy
    if torch:
        ta, tb = torch.from_numpy(a), torch.from_numpy(b)
        variants["torch"] = lambda: torch.cholesky_solve(tb, torch.linalg.cholesky(ta))
    return variants


def projection(arrays, _ridge):
    """argmax over the columns of Z W."""
    z, w = arrays["z"], arrays["w"]
    wide, narrow = z.astype(np.float64), w.astype(np.float32)
    variants = {
        "numpy f64": lambda: (wide @ w).argmax(axis=1),
        "numpy f64 +conv": lambda: (z.astype(np.float64) @ w).argmax(axis=1),
        "numpy f32": lambda: (z @ narrow).argmax(axis=1),
    }
    if torch:
        z32, z64 = torch.from_numpy(z), torch.from_numpy(wide)
        w32, w64 = torch.from_numpy(narrow), torch.from_numpy(w)
        variants["torch f64"] = lambda: (z64 @ w64).argmax(dim=1)
        variants["torch f64 +conv"] = lambda: (z32.double() @ w64).argmax(dim=1)
        variants["torch f32"] = lambda: (z32 @ w32).argmax(dim=1)
    return variants


def update(arrays, ridge):
    """Labels Z_u W* with W* = P (w_p - w_init) + w_init, P the projector onto the retained rows.

    `authors` follows the released code: Woodbury with a dense N x N matrix that is inverted four times and
    (ridge I)^-1 where I belongs, in f32. `woodbury f64` is the same with that mistake corrected.
    `push-through` is V - ridge (G + ridge I)^-1 V, the formula of this project.
    """
    zs, zu = arrays["retained"], arrays["forgotten"]
    trained, init = arrays["trained"], arrays["init"]
    variants = {}
    if scipy:

        def push_through_scipy():
            wide = zs.astype(np.float64)
            system = wide.T @ wide
            system[np.diag_indices_from(system)] += ridge
            factor = scipy.linalg.cho_factor(system, lower=True, check_finite=False)
            v = trained - init
            v = v - ridge * scipy.linalg.cho_solve(factor, v, check_finite=False)
            return zu.astype(np.float64) @ (v + init)

        variants["scipy push-through f64"] = push_through_scipy
    if torch:

        def push_through():
            wide = torch.from_numpy(zs).double()
            system = wide.T @ wide
            system.diagonal().add_(ridge)
            v = torch.from_numpy(trained - init)
            v = v - ridge * torch.cholesky_solve(v, torch.linalg.cholesky(system))
            return torch.from_numpy(zu).double() @ (v + torch.from_numpy(init))

        def woodbury(dtype, inner_inverse):
            # (ridge I_N + U V)^-1 with U = Z (N x D), V = Z' and an inner matrix that should be I_D.
            z = torch.from_numpy(zs).to(dtype)
            n, d = z.shape
            a = ridge * torch.eye(n, dtype=dtype)
            u, v = z, z.T
            inner = inner_inverse(torch.eye(d, dtype=dtype)) + v @ torch.inverse(a) @ u
            # Bracketed in the cheapest way, so that only the inversions are held against it.
            middle = (torch.inverse(a) @ u) @ torch.inverse(inner) @ (v @ torch.inverse(a))
            projector = z.T @ (torch.inverse(a) - middle) @ z
            start = torch.from_numpy(init).to(dtype)
            weights = projector @ (torch.from_numpy(trained).to(dtype) - start) + start
            return torch.from_numpy(zu).to(dtype) @ weights

        variants["torch push-through f64"] = push_through
        variants["torch authors f32"] = lambda: woodbury(torch.float32, lambda eye: torch.inverse(ridge * eye))
        variants["torch woodbury f64"] = lambda: woodbury(torch.float64, lambda eye: eye)
    return variants


def random(arrays, _):
    """[cos, sin](X O) / sqrt(m), f64."""
    x, frequencies = arrays["inputs"], arrays["frequencies"]
    scale = (1.0 / frequencies.shape[1]) ** 0.5

    def by_numpy():
        phases = x @ frequencies
        return np.concatenate([np.cos(phases), np.sin(phases)], axis=1) * scale

    variants = {"numpy f64": by_numpy}
    if torch:
        tx, tf = torch.from_numpy(x), torch.from_numpy(frequencies)

        def by_torch():
            phases = tx @ tf
            return torch.cat([phases.cos(), phases.sin()], dim=1) * scale

        variants["torch f64"] = by_torch
    return variants


def leverage(arrays, _):
    """Scores of the rows from G's eigenvectors (as rows) and eigenvalues, over all directions."""
    z, vectors, values = arrays["z"], arrays["vectors"], arrays["values"]
    weights = vectors.T / np.sqrt(len(vectors) * values.reshape(-1))
    wide = z.astype(np.float64)

    def by_numpy(rows):
        coordinates = rows @ weights
        return np.einsum("ij,ij->i", coordinates, coordinates)

    variants = {"numpy f64": lambda: by_numpy(wide), "numpy f64 +conv": lambda: by_numpy(z.astype(np.float64))}
    if torch:
        t32, t64, tw = torch.from_numpy(z), torch.from_numpy(wide), torch.from_numpy(weights)
        variants["torch f64"] = lambda: (t64 @ tw).square().sum(dim=1)
        variants["torch f64 +conv"] = lambda: (t32.double() @ tw).square().sum(dim=1)
    return variants


KINDS = {
    "gram": gram,
    "cholesky": cholesky,
    "projection": projection,
    "update": update,
    "random": random,
    "leverage": leverage,
}
if torch:
    import networks

    KINDS.update(extraction=networks.extraction, training=networks.training)


def store(result, path):
    if torch and isinstance(result, torch.Tensor):
        result = result.numpy()
    np.ascontiguousarray(result, dtype="<f8").tofile(path)


def answer(request, variants):
    if request["do"] == "load":
        arrays = {name: np.load(path) for name, path in request["arrays"].items()}
        variants.clear()
        kind = KINDS.get(request["kind"], lambda *_: {})
        variants.update(kind(arrays, request["parameter"]))
        return {"variants": list(variants)}
    run = variants[request["variant"]]
    if request["do"] == "check":
        begin = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - begin
        store(result, request["out"])
        return {"seconds": seconds}
    begin = time.perf_counter()
    for _ in range(request["repeat"]):
        run()
    return {"seconds": (time.perf_counter() - begin) / request["repeat"]}


def main():
    # Ctrl-C reaches every process of a terminal; the caller decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libraries = {"numpy": np, "scipy": scipy, "torch": torch}
    found = {name: module.__version__ for name, module in libraries.items() if module}
    print(json.dumps({"libraries": found}), flush=True)
    variants = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), variants)
        except Exception as error:  # the caller prints it and stops
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
