"""torch: features by a hook, heads that are the command line's, labels that are those of plain f64."""

import doctest
import json
import subprocess
import sys
import threading

import muso
import numpy as np
import pytest
import whole

torch = pytest.importorskip("torch")

import muso.torch  # noqa: E402
from test_head import ROOT, tensor_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class Net(nn.Module):
    def __init__(self, bias=True, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.5)).to(dtype)
        self.fc = nn.Linear(24, 4, bias=bias, dtype=dtype)

    def forward(self, x):
        return self.fc(self.body(x))


def loader(dtype=torch.float32, count=whole.ROWS, **options):
    X, y = (torch.from_numpy(array)[:count] for array in whole.rows())
    return DataLoader(TensorDataset(X.to(dtype), y), batch_size=64, **options)


def features(net, rows):
    """What the head sees, without a hook."""
    net = net.eval()
    with torch.no_grad():
        return torch.cat([net.body(x) for x, _ in rows])


def test_collect_sums_what_the_layer_sees():
    net = Net().train()
    sums = muso.torch.collect(net, loader(), grid=16.0)
    assert net.training and net.body[3].training
    X = features(Net(), loader())
    wanted = muso.Sums(24, classes=4, grid=16.0)
    wanted.add(X, whole.rows()[1])
    assert sums == wanted
    # Modes are those of before, one by one, also after an error; nothing is left of the hook.
    net.body[1].eval()
    with pytest.raises(ValueError, match="label"):
        muso.torch.collect(net, [(torch.zeros(2, 12), torch.tensor([0, 9]))], grid=16.0)
    assert net.training and not net.body[1].training and not net.fc._forward_pre_hooks
    # Other batches, same bytes.
    rows = list(loader())
    halves = [(x[i : i + 32], y[i : i + 32]) for x, y in rows for i in (0, 32)]
    assert muso.torch.collect(Net(), halves, grid=16.0).rows == sums.rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_feature_file_is_what_the_layer_sees(tmp_path, dtype):
    rows = loader(dtype)
    found = muso.torch.collect(Net(dtype=dtype), rows, out=tmp_path / "f.safetensors")
    assert found.X.dtype == dtype and torch.equal(found.X, features(Net(dtype=dtype), rows))
    assert found.y.tolist() == whole.rows()[1].tolist()
    data = (tmp_path / "f.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["features"]["shape"] == [whole.ROWS, 24]
    assert [path.name for path in tmp_path.iterdir()] == ["f.safetensors"]
    found.X[0] = 7
    assert (tmp_path / "f.safetensors").read_bytes() == data
    sums = muso.Sums(24, classes=4, grid=16.0)
    sums.add(muso.torch.collect(Net(dtype=dtype), rows, out=tmp_path / "g.safetensors").X, whole.rows()[1])
    assert sums == muso.torch.collect(Net(dtype=dtype), rows, grid=16.0)


def test_a_file_is_whole_or_not_there(tmp_path):
    with pytest.raises(ValueError, match="64 rows and 63 classes"):
        muso.torch.collect(Net(), [(x, y[1:]) for x, y in loader()], out=tmp_path / "f.safetensors")
    with pytest.raises(ValueError, match="no rows"):
        muso.torch.collect(Net(), [], out=tmp_path / "f.safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("exact", [{}, {"bits": 27, "grid": 16.0}])
def test_forget_head_is_the_command_line(tmp_path, bias, exact):
    net, gone = Net(bias), [3, 50, 119, 700]
    tensor_file(
        tmp_path / "head.safetensors",
        weight=net.fc.weight.detach().numpy(),
        **({"bias": net.fc.bias.detach().numpy()} if bias else {}),
    )
    muso.torch.collect(net, loader(), out=tmp_path / "rows.safetensors")
    weight = net.fc.weight
    forgotten = muso.torch.forget_head(net, "fc", loader(), forget=gone, ridge=0.2, verify=True, **exact)
    assert forgotten.rows.tolist() == gone and forgotten.labels.shape == (4, 4)
    assert forgotten.report["verify"]["distance_relative"] < (1e-6 if exact else 1e-8)
    # In place, rounded to the layer's type.
    assert net.fc.weight is weight and weight.requires_grad
    np.testing.assert_array_equal(weight.detach().numpy(), forgotten.head.weight.astype(np.float32))
    if bias:
        np.testing.assert_array_equal(net.fc.bias.detach().numpy(), forgotten.head.bias.astype(np.float32))
    # The ridge regression of the other rows.
    Z, y = features(Net(bias), loader()).double().numpy(), whole.rows()[1]
    Z = np.delete(np.hstack([Z, np.ones((len(Z), 1))]) if bias else Z, gone, axis=0)
    Y = np.eye(4)[np.delete(y, gone)]
    wanted = np.linalg.solve(Z.T @ Z + 0.2 * np.eye(Z.shape[1]), Z.T @ Y).T
    np.testing.assert_allclose(forgotten.head.weight, wanted[:, :24], atol=1e-6 if exact else 1e-10)
    if whole.PROGRAM is not None:
        (tmp_path / "ids.txt").write_text("\n".join(map(str, gone)))
        command = ["head", "--features", "rows.safetensors", "--head", "head.safetensors", "--forget", "ids.txt"]
        command += ["--ridge", "0.2", "--objective", "ridge", "--out", "out.safetensors"]
        command += ["--exact", "27", "--grid", "16"] if exact else []
        subprocess.run([whole.PROGRAM, *command], cwd=tmp_path, check=True, capture_output=True)
        program = (tmp_path / "out.safetensors").read_bytes()
        assert bytes(forgotten.head) == program
        # The same by rows that were never seen, on sums.
    if exact:
        kept = np.delete(np.arange(whole.ROWS), gone)
        sums = muso.torch.collect(Net(bias), [batch(kept)], **exact)
        assert bytes(sums.solve(0.2)) == bytes(forgotten.head)


def batch(rows):
    X, y = whole.rows()
    return torch.from_numpy(X[rows]), torch.from_numpy(y[rows])


def test_what_cannot_be_is_refused():
    net = Net()
    with pytest.raises(ValueError, match="no layer 'head'; expected a linear one: body.0, fc"):
        muso.torch.collect(net, loader(), "head")
    with pytest.raises(TypeError, match="'body' is a Sequential; expected nn.Linear"):
        muso.torch.collect(net, loader(), "body")
    with pytest.raises(ValueError, match="shuffle=False"):
        muso.torch.forget_head(net, "fc", loader(shuffle=True), forget=[1], ridge=1.0)
    shared = nn.Linear(12, 12)
    with pytest.raises(ValueError, match="called 2 times"):
        muso.torch.collect(nn.Sequential(shared, shared), loader(), "0")
    with pytest.raises(ValueError, match="sees 3 dimensions"):
        muso.torch.collect(nn.Sequential(nn.Unflatten(1, (3, 4)), nn.Linear(4, 4)), loader(), "1")


def labels_by_numpy(Z_r, Z_u, trained, initial, ridge, reference=None):
    """ỹ_u = Z_u(W* + w_p) − y_ref, in the push-through form."""
    one = lambda Z: np.hstack([Z.double().numpy(), np.ones((len(Z), 1))])  # noqa: E731
    Z_r, Z_u, V = one(Z_r), one(Z_u), trained - initial
    star = initial + V - ridge * np.linalg.solve(Z_r.T @ Z_r + ridge * np.eye(Z_r.shape[1]), V)
    return Z_u @ (star + trained) - (Z_u @ trained if reference is None else reference)


def weights(layer):
    return np.hstack([layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()[:, None]]).T


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 100.0])
@pytest.mark.parametrize("staleness", [0, 1])
def test_labels_beside_a_training_loop(ridge, staleness):
    net, initial = Net(), Net().fc
    initial.reset_parameters()
    retained, forgotten = loader(count=500), [batch(range(600, 640)), batch(range(640, 650))]
    first = np.vstack([features(net, [pair]).numpy() for pair in forgotten])
    updates = muso.torch.LabelUpdates(net, "fc", retained, forgotten, initial=initial, ridge=ridge, staleness=staleness)
    trained, wanted, found = weights(net.fc), [], []
    first = np.hstack([first, np.ones((50, 1))]) @ trained
    net.train()
    for _ in range(3):
        updates.start(net)
        now = Net()
        now.load_state_dict(net.state_dict())
        Z_r, Z_u = features(now, retained), features(now, forgotten)
        wanted.append(labels_by_numpy(Z_r, Z_u, trained, weights(initial), ridge, first))
        # Training goes on, and changes the network under the update that is at work.
        with torch.no_grad():
            for p in net.parameters():
                p.add_(0.05 * torch.randn_like(p))
        found.append(updates.wait())
    assert net.training
    assert [labels is None for labels in found] == [staleness == 1, False, False]
    found = [labels for labels in found if labels is not None] + ([updates.finish()] if staleness else [])
    assert updates.finish() is None and updates.wait() is None
    for labels, right in zip(found, wanted, strict=True):
        assert labels.dtype == torch.float32
        np.testing.assert_allclose(labels.numpy(), right, atol=2e-6 * np.abs(right).max())


def test_an_error_in_an_update_comes_out_where_it_is_waited_for():
    net = Net()
    updates = muso.torch.LabelUpdates(net, "fc", [(torch.full((4, 12), torch.nan), 0)], loader(count=5))
    updates.start(net)
    with pytest.raises(ValueError, match="NaN"):
        updates.wait()
    updates = muso.torch.LabelUpdates(net, "fc", loader(), loader(count=5), reference=torch.zeros(6, 4))
    updates.start(net)
    with pytest.raises(ValueError, match="reference is 6×4; expected 5×4"):
        updates.wait()
    with pytest.raises(ValueError, match="staleness is 2"):
        muso.torch.LabelUpdates(net, "fc", [], [], staleness=2)
    with pytest.raises(ValueError, match="the shape of the layer"):
        muso.torch.LabelUpdates(net, "fc", [], [], initial=nn.Linear(3, 3))


def test_updates_run_beside_the_caller():
    net, asked = Net(), threading.Event()

    def slow():
        assert asked.wait(60)
        yield from loader(count=64)

    updates = muso.torch.LabelUpdates(net, "fc", slow(), loader(count=5))
    updates.start(net)
    asked.set()
    assert updates.wait().shape == (5, 4)


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_the_label_fit_is_that_of_each_row_left_out(balance):
    X = whole.rows()[0][:150]
    # Classes of several sizes, which can be told from the rows.
    y = (X[:, :4] + [0, 0.5, 1, 0]).argmax(axis=1)
    net = Net()
    pairs = [(torch.from_numpy(X[part]), torch.from_numpy(y[part])) for part in (slice(100), slice(100, 150))]
    fit = muso.torch.fit_labels(net, "fc", pairs, relative_ridge=1e-2, balance=balance)
    Z = features(net, pairs).double().numpy()
    Z = np.hstack([Z, np.ones((len(Z), 1))])
    counts = np.bincount(y, minlength=4)
    v = ((len(y) / 4 / counts) ** balance)[y]
    Y = np.eye(4)[y] - 0.25
    G = (v[:, None] * Z).T @ Z
    ridge = 1e-2 * np.trace(G) / 25
    assert fit.ridge == pytest.approx(ridge, rel=1e-12)

    def solved(kept):
        Zk, vk = Z[kept], v[kept, None]
        return np.linalg.solve((vk * Zk).T @ Zk + ridge * np.eye(25), (vk * Zk).T @ Y[kept])

    W = solved(np.arange(150))
    np.testing.assert_allclose(fit.head.weight, W[:-1].T, atol=1e-10)
    np.testing.assert_allclose(fit.head.bias, W[-1], atol=1e-10)
    left_out = np.array([Z[i] @ solved(np.delete(np.arange(150), i)) for i in range(150)])
    np.testing.assert_allclose(fit.left_out, left_out, atol=1e-9)
    assert fit.left_out_accuracy == (left_out.argmax(axis=1) == y).mean()

    # The temperature is the best there is, and the labels are on its scale.
    def loss(scale):
        scores = scale * left_out
        return (np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(150), y]).mean()

    assert all(loss(fit.temperature) <= loss(fit.temperature * factor) for factor in (0.9, 0.99, 1.01, 1.1))
    found = fit.labels(net, [batch(range(900, 910))], sharpness=1.5)
    Z_u = features(net, [batch(range(900, 910))]).double().numpy()
    powers = np.exp(1.5 * fit.temperature * (Z_u @ W[:-1] + W[-1]))
    np.testing.assert_allclose(found.numpy(), powers / powers.sum(axis=1, keepdims=True), atol=1e-6)
    p = np.exp(fit.sharpness_of(0.7) * fit.temperature * left_out)
    p /= p.sum(axis=1, keepdims=True)
    assert -(p * np.log(p)).sum(axis=1).mean() == pytest.approx(0.7, rel=1e-6)


def test_the_example_runs():
    script = ROOT / "python" / "examples" / "torch_resnet.py"
    done = subprocess.run([sys.executable, script, "96", "1"], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "forgotten rows" in done.stdout


def test_examples_in_docstrings():
    failed, tried = doctest.testmod(muso.torch)
    assert failed == 0 and tried > 3
