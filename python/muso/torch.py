"""Unlearning for PyTorch networks: features by a hook, heads replaced in place, labels beside a training loop.

The network and its training stay torch's; sums, heads and labels come from the engine. A loader yields pairs (inputs, classes),
as `torch.utils.data.DataLoader` does; rows are counted in its order, and so it must not shuffle.

Example:
    >>> import torch, muso.torch
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> rows = torch.utils.data.TensorDataset(torch.randn(100, 4), torch.arange(100) % 3)
    >>> loader = torch.utils.data.DataLoader(rows, batch_size=32)
    >>> muso.torch.collect(net, loader, layer="2", grid=16.0)
    <muso.Sums: features=8, classes=3, bits=22, rows=100>
    >>> new = muso.torch.forget_head(net, "2", loader, forget=[3, 14], ridge=1e-3)
    >>> torch.equal(net[2].weight.double(), torch.from_numpy(new.head.weight).float().double())
    True
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from ._native import Forgotten, Head, Sums

__all__ = ["Features", "LabelFit", "LabelUpdates", "collect", "fit_labels", "forget_head"]

_Path = str | os.PathLike[str]
# Types of safetensors, and of numpy arrays of as many bytes.
_TYPES: dict[torch.dtype, tuple[str, Any]] = {
    torch.float16: ("F16", np.float16),
    torch.bfloat16: ("BF16", np.int16),
    torch.float32: ("F32", np.float32),
    torch.float64: ("F64", np.float64),
}
# Room for the header of a feature file, which is written last.
_HEADER = 256
# Rows of a file that are looked at together.
_BLOCK = 8192


class Features(NamedTuple):
    """A feature file, mapped into memory: `X` [N, features] and `y` [N]."""

    X: Tensor
    y: Tensor


@overload
def collect(
    model: nn.Module, loader: Iterable[Any], layer: str = ..., *, grid: Any = ..., bits: int | None = ..., out: None = None
) -> Sums: ...
@overload
def collect(model: nn.Module, loader: Iterable[Any], layer: str = ..., *, out: _Path) -> Features: ...
def collect(
    model: nn.Module,
    loader: Iterable[Any],
    layer: str = "fc",
    *,
    grid: Any = None,
    bits: int | None = 22,
    out: _Path | None = None,
) -> Sums | Features:
    """Passes the rows of a loader through a network, and sums the features that a layer sees; or writes them to a file.

    Features are not kept in memory: a batch at a time goes into the sums, or into the file. The network is in evaluation
    mode meanwhile.

    Args:
        model: The network; inputs are sent to where its parameters are.
        loader: Yields pairs (inputs, classes).
        layer: The name of an `nn.Linear`, as in `model.named_modules()`.
        grid: As for `muso.Sums`; by default the first batch fixes it.
        bits: As for `muso.Sums`.
        out: A feature file to write, which `muso head` and `muso gram` read; sums are not made then.
    """
    head = _head(model, layer)
    batches = _features(model, loader, head)
    if out is not None:
        return _write(batches, Path(out), head.in_features)
    sums = Sums(
        head.in_features,
        classes=head.out_features,
        bias=head.bias is not None,
        grid=grid,
        bits=bits,
    )
    for X, y in batches:
        sums.add(X.cpu(), y.cpu())
    return sums


def forget_head(
    model: nn.Module,
    layer: str,
    loader: Iterable[Any],
    *,
    forget: Sequence[int],
    ridge: float,
    penalise_bias: bool = True,
    verify: bool = False,
    bits: int | None = None,
    grid: Any = None,
) -> Forgotten:
    """Makes a layer forget rows, in place: what `muso head` writes for the layer's features, rounded to its type.

    The features go through a file, in the folder for temporary files; one pass of the loader makes them.

    Args:
        model: The network.
        layer: The name of the `nn.Linear` to replace the weights of.
        loader: Yields all rows that the layer was fitted to, (inputs, classes), always in the same order.
        forget: Numbers of the rows to forget, in that order, from 0.
        ridge: The ridge that the layer was fitted with.
        penalise_bias, verify, bits, grid: As for `muso.Head.forget`.

    Returns:
        The new head in float64, the optimal labels of the forgotten rows, and the report.
    """
    if isinstance(loader, DataLoader) and isinstance(loader.sampler, RandomSampler):
        raise ValueError("the loader shuffles, and forget= counts rows in its order; expected DataLoader(..., shuffle=False)")
    head = _head(model, layer)
    with tempfile.TemporaryDirectory() as folder:
        X, y = collect(model, loader, layer, out=Path(folder) / "features.safetensors")
        forgotten = _of(head).forget(
            X, y, forget, ridge=ridge, penalise_bias=penalise_bias, verify=verify, bits=bits, grid=grid
        )
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(forgotten.head.weight))
        if head.bias is not None:
            assert forgotten.head.bias is not None
            head.bias.copy_(torch.from_numpy(forgotten.head.bias))
    return forgotten


class LabelUpdates:
    """Optimal labels of the forgotten rows, ỹ_u = Z_u(W* + w_p) − y_ref, computed beside a training loop of your own.

    W* = w_0 + Π_r(w_p − w_0), where w_p and w_0 are the heads of the trained network and of the one that its training started
    from, and Π_r projects on the features that the retained rows have in the network as it is. `start` copies the network and
    computes in a thread; `wait` hands the labels over when they are due.

    Args:
        model: The trained network, as it is before it forgets.
        layer: The name of its last layer, an `nn.Linear`.
        retained: Yields the rows to keep: pairs (inputs, classes), or inputs. Their order does not matter.
        forgotten: Yields the rows to forget, in the same order each time.
        initial: The head that training started from; by default zeros.
        ridge: λ, by which the projector is damped.
        reference: y_ref [N_u, C]: one-hot classes, or logits; by default Z_u w_p of the first update, which are the original
            network's logits.
        staleness: How many updates late labels are handed over: with 1 training goes on with the labels before, while the
            next are computed.

    Example:
        >>> import torch, muso.torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> retained, forgotten = [torch.randn(64, 4)], [torch.randn(5, 4)]
        >>> updates = muso.torch.LabelUpdates(net, "2", retained, forgotten)
        >>> updates.start(net)          # train on batches without forgotten rows here
        >>> updates.wait().shape
        torch.Size([5, 3])
    """

    def __init__(
        self,
        model: nn.Module,
        layer: str,
        retained: Iterable[Any],
        forgotten: Iterable[Any],
        *,
        initial: nn.Linear | None = None,
        ridge: float = 1e-6,
        reference: Tensor | None = None,
        staleness: int = 0,
    ) -> None:
        if staleness not in (0, 1):
            raise ValueError(f"staleness is {staleness}; expected 0 or 1")
        self.ridge = ridge
        self._layer, self._retained, self._forgotten = layer, retained, forgotten
        self._trained = _weights(_head(model, layer))
        self._initial = np.zeros_like(self._trained) if initial is None else _weights(initial)
        if self._initial.shape != self._trained.shape:
            raise ValueError(f"initial is {initial}; expected the shape of the layer {layer!r}")
        self._bias = _head(model, layer).bias is not None
        self._reference = None if reference is None else np.asarray(reference.detach().cpu(), dtype=np.float64)
        self._staleness = staleness
        self._pending: list[_Job] = []

    def start(self, model: nn.Module) -> None:
        """Starts an update from the network as it is now; it is copied, and may be trained on meanwhile."""
        now = copy.deepcopy(model)
        # One update after the other: the first sets the reference.
        before = self._pending[-1] if self._pending else None
        self._pending.append(_Job(lambda: self._labels(now, before)))

    def wait(self) -> Tensor | None:
        """Waits for the labels that are due, [N_u, C] float32, and hands them over; None where none are due yet."""
        if len(self._pending) <= self._staleness:
            return None
        return torch.from_numpy(self._pending.pop(0).result()).float()

    def finish(self) -> Tensor | None:
        """Waits for all updates, and returns the labels of the last; None where there is none."""
        last = None
        while self._pending:
            last = torch.from_numpy(self._pending.pop(0).result()).float()
        return last

    def _labels(self, model: nn.Module, before: _Job | None) -> npt.NDArray[np.float64]:
        head = _head(model, self._layer)
        # Π_r V = (G + λI)⁻¹Zᵀ(Z V): the ridge regression of Z V on Z.
        shift = self._as_head(self._trained - self._initial)
        sums = Sums(head.in_features, targets=head.out_features, bias=self._bias, bits=None)
        for X, _ in _features(model, self._retained, head):
            Z = X.cpu()
            sums.add(Z, shift.decision_function(Z))
        solved = sums.solve(self.ridge)
        star = self._initial + _joined(solved.weight, solved.bias)
        rows = [X.cpu() for X, _ in _features(model, self._forgotten, head)]
        if before is not None:
            before.result()
        if self._reference is None:
            self._reference = _scores(self._as_head(self._trained), rows)
        labels = _scores(self._as_head(star + self._trained), rows)
        if labels.shape != self._reference.shape:
            raise ValueError(
                f"reference is {'×'.join(map(str, self._reference.shape))}; expected "
                f"{'×'.join(map(str, labels.shape))}, a row for each forgotten row"
            )
        return labels - self._reference

    def _as_head(self, weights: npt.NDArray[np.float64]) -> Head:
        return Head(weights[:, :-1], weights[:, -1]) if self._bias else Head(weights)


@dataclass(frozen=True)
class LabelFit:
    """What a linear model of the retained rows alone says of others. `fit_labels` makes it.

    Attributes:
        head: W_r, on the source's features.
        left_out: [N_r, C], the scores of each retained row from the others.
        temperature: τ of least cross-entropy of softmax(τ · left_out).
        left_out_accuracy: Share of the retained rows that are classified rightly when left out.
        ridge: λ of the fit.
    """

    head: Head
    left_out: npt.NDArray[np.float64]
    temperature: float
    left_out_accuracy: float
    ridge: float
    _layer: str

    def labels(self, source: nn.Module, rows: Iterable[Any], *, sharpness: float = 1.0) -> Tensor:
        """Returns softmax(sharpness · τ · Z_u W_r), [N_u, C] float32: what the rows of a loader should be taught."""
        features = _features(source, rows, _head(source, self._layer))
        scores = _scores(self.head, [X.cpu() for X, _ in features])
        return torch.from_numpy(_softmax(sharpness * self.temperature * scores)).float()

    def sharpness_of(self, entropy: float) -> float:
        """Returns the k at which softmax(k · τ · left_out) has this mean entropy, in nats."""
        low, high = 1e-3, 1e3
        for _ in range(50):
            middle = (low * high) ** 0.5
            if _entropy(_softmax(middle * self.temperature * self.left_out)) > entropy:
                low = middle
            else:
                high = middle
        return float((low * high) ** 0.5)


def fit_labels(
    source: nn.Module, layer: str, retained: Iterable[Any], *, relative_ridge: float = 1e-3, balance: float = 0.5
) -> LabelFit:
    """Fits the labels of MUSO-S, W_r = (G_r + λI)⁻¹Z_rᵀ(Y_r − 1/C), on features that have not memorised the forgotten rows.

    Such a source is an early snapshot of the training, or the initial network trained for a while on the retained rows
    alone. The temperature is found by leaving each row out, which takes no pass of the network: features go through a file.

    Args:
        source: The network of the features.
        layer: The name of its last layer, an `nn.Linear`.
        retained: Yields the rows to keep: pairs (inputs, classes).
        relative_ridge: λ as a multiple of tr(G)/D.
        balance: From 0 (every row counts alike) to 1 (every class does).
    """
    head = _head(source, layer)
    with tempfile.TemporaryDirectory() as folder:
        X, y = collect(source, retained, layer, out=Path(folder) / "features.safetensors")
        return _fit_labels(X, y.numpy(), head.out_features, relative_ridge, balance, layer)


def _fit_labels(
    X: Tensor, y: npt.NDArray[np.int64], classes: int, relative_ridge: float, balance: float, layer: str
) -> LabelFit:
    counts = np.bincount(y, minlength=classes)
    if len(counts) > classes:
        raise ValueError(f"the classes go up to {len(counts) - 1}; expected numbers below {classes}, the outputs of {layer!r}")
    even = len(y) / np.count_nonzero(counts)
    weight = ((even / np.maximum(counts, 1)) ** balance)[y]
    order, one_hot = X.shape[1] + 1, np.eye(classes) - 1 / classes

    def blocks() -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
        for start in range(0, len(y), _BLOCK):
            rows = slice(start, start + _BLOCK)
            Z = X[rows].double().numpy()
            # The bias is one more feature, and a row counts by the square of what it is multiplied by.
            yield rows, np.sqrt(weight[rows, None]) * np.hstack([Z, np.ones((len(Z), 1))])

    # Beside the targets the features themselves: (G + λI)⁻¹G is what leverages come from, and solved in the same go.
    sums, trace = Sums(order, targets=classes + order, bias=False, bits=None), 0.0
    for rows, Z in blocks():
        sums.add(Z, np.hstack([np.sqrt(weight[rows, None]) * one_hot[y[rows]], Z]))
        trace += float((Z * Z).sum())
    ridge = relative_ridge * trace / order
    solved = sums.solve(ridge).weight
    fitted, shrunk = solved[:classes], solved[classes:]
    left_out = np.empty((len(y), classes))
    for rows, Z in blocks():
        # h = zᵀ(G + λI)⁻¹z = (‖z‖² − zᵀ(G + λI)⁻¹G z)/λ, of a row that counts as often as it does.
        leverage = ((Z * Z).sum(axis=1) - ((Z @ shrunk.T) * Z).sum(axis=1)) / ridge
        scores = (Z / np.sqrt(weight[rows, None])) @ fitted.T
        rest = np.maximum(1 - leverage, 1e-9)
        left_out[rows] = (scores - leverage[:, None] * one_hot[y[rows]]) / rest[:, None]
    return LabelFit(
        head=Head(fitted[:, :-1], fitted[:, -1]),
        left_out=left_out,
        temperature=_best_temperature(left_out, y),
        left_out_accuracy=float((left_out.argmax(axis=1) == y).mean()),
        ridge=ridge,
        _layer=layer,
    )


def _best_temperature(scores: npt.NDArray[np.float64], y: npt.NDArray[np.int64]) -> float:
    """The scale of least cross-entropy, which is convex in it: its slope changes sign once."""
    own = scores[np.arange(len(y)), y].mean()

    def falls(scale: float) -> bool:
        return bool((_softmax(scale * scores) * scores).sum(axis=1).mean() < own)

    low, high = 0.0, 1.0
    while falls(high) and high < 1e6:
        low, high = high, 2 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falls(middle) else (low, middle)
    return 0.5 * (low + high)


def _softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers: npt.NDArray[np.float64] = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def _entropy(p: npt.NDArray[np.float64]) -> float:
    return float(-(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum(axis=1).mean())


class _Job:
    """Something that is computed in a thread, whose exception is raised where the result is asked for."""

    def __init__(self, work: Callable[[], npt.NDArray[np.float64]]) -> None:
        self._result: npt.NDArray[np.float64] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], npt.NDArray[np.float64]]) -> None:
        try:
            self._result = work()
        except BaseException as error:
            self._error = error

    def result(self) -> npt.NDArray[np.float64]:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


def _head(model: nn.Module, layer: str) -> nn.Linear:
    try:
        module = model.get_submodule(layer)
    except AttributeError:
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
        raise ValueError(f"the model has no layer {layer!r}; expected a linear one: {', '.join(linear)}") from None
    if not isinstance(module, nn.Linear):
        raise TypeError(f"the layer {layer!r} is a {type(module).__name__}; expected nn.Linear")
    return module


def _of(head: nn.Linear) -> Head:
    return Head(head.weight.detach().cpu(), None if head.bias is None else head.bias.detach().cpu())


def _weights(head: nn.Linear) -> npt.NDArray[np.float64]:
    layer = _of(head)
    return _joined(layer.weight, layer.bias)


def _joined(weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64] | None) -> npt.NDArray[np.float64]:
    return weight if bias is None else np.hstack([weight, bias[:, None]])


def _scores(head: Head, batches: Iterable[Tensor]) -> npt.NDArray[np.float64]:
    found = [head.decision_function(Z) for Z in batches]
    if not found:
        raise ValueError("the loader yields no rows; expected at least one")
    return np.concatenate(found)


def _features(model: nn.Module, loader: Iterable[Any], head: nn.Linear) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields what the layer sees of each batch, [B, features], and the batch's classes; none where there are only inputs."""
    seen: list[Tensor] = []
    device = next(model.parameters()).device
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    modes = {module: module.training for module in model.modules()}
    try:
        for batch in loader:
            inputs, y = (batch, torch.empty(0)) if isinstance(batch, Tensor) else (batch[0], batch[1])
            # Modes are set anew: between batches a caller's code runs.
            model.eval()
            with torch.inference_mode():
                model(inputs.to(device))
            if len(seen) != 1:
                raise ValueError(f"the layer is called {len(seen)} times in a pass; expected once")
            X = seen.pop()
            if X.ndim != 2:
                raise ValueError(f"the layer sees {X.ndim} dimensions; expected two, a row for each sample")
            yield X, y
    finally:
        handle.remove()
        for module, training in modes.items():
            module.training = training


def _write(batches: Iterator[tuple[Tensor, Tensor]], out: Path, features: int) -> Features:
    """Writes a feature file batch by batch, whole or not at all, and maps it."""
    labels: list[npt.NDArray[np.int64]] = []
    dtype: torch.dtype | None = None
    beside = out.with_name(f".{out.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.seek(_HEADER)
            for X, y in batches:
                if len(y) != len(X):
                    raise ValueError(f"a batch has {len(X)} rows and {len(y)} classes; expected pairs (inputs, classes)")
                dtype = dtype or X.dtype
                if X.dtype not in _TYPES or X.dtype != dtype:
                    raise TypeError(f"features are {X.dtype}; expected one floating type")
                X.cpu().contiguous().view(torch.uint8).numpy().tofile(file)
                labels.append(np.asarray(y.cpu(), dtype=np.int64))
            if dtype is None:
                raise ValueError("the loader yields no rows; expected at least one")
            classes = np.concatenate(labels)
            rows, end = len(classes), file.tell() - _HEADER
            classes.tofile(file)
            header = {
                "features": {"dtype": _TYPES[dtype][0], "shape": [rows, features], "data_offsets": [0, end]},
                "labels": {"dtype": "I64", "shape": [rows], "data_offsets": [end, end + classes.nbytes]},
            }
            text = json.dumps(header, separators=(",", ":")).encode().ljust(_HEADER - 8)
            file.seek(0)
            file.write((_HEADER - 8).to_bytes(8, "little") + text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, out)
    finally:
        beside.unlink(missing_ok=True)
    # Pages that are written to are the caller's own: the file does not change.
    mapped = np.memmap(out, dtype=_TYPES[dtype][1], mode="c", offset=_HEADER, shape=(rows, features))
    return Features(torch.from_numpy(mapped).view(dtype), torch.from_numpy(classes))
