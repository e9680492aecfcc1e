"""The models without scikit-learn."""

import pickle
import threading

import muso
import numpy as np
import pytest

# All of what the models do is tested with numpy alone.


def rows(n=400, features=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, features)) + 0.5).astype(np.float32)
    return X, rng.integers(0, classes, n)


NAMES = np.array(["bird", "cat", "dog"])


@pytest.mark.parametrize("bits", [13, 22, 41])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("names", [None, NAMES])
def test_unfit_is_never_having_seen(bits, fit_intercept, names):
    X, y = rows()
    y = y if names is None else names[y]
    options = {"grid": 8.0, "bits": bits, "fit_intercept": fit_intercept, "classes": np.unique(y)}
    model = muso.RidgeHead(**options).fit(X, y).unfit(X[:150], y[:150])
    never = muso.RidgeHead(**options).fit(X[150:], y[150:])
    assert bytes(model.sums_) == bytes(never.sums_) and bytes(model.head_) == bytes(never.head_)
    assert pickle.dumps(model) == pickle.dumps(never)
    np.testing.assert_array_equal(model.coef_, never.coef_)
    pieces = muso.RidgeHead(**options)
    for part in np.array_split(np.arange(400), 9)[::-1]:
        pieces.partial_fit(X[part], y[part])
    pieces.unfit(X[:150], y[:150])
    assert pieces.sums_ == never.sums_


def test_coefficients_are_those_of_targets_of_both_signs():
    for classes in [2, 3, 5]:
        X, y = rows(classes=classes)
        Y = np.where(y[:, None] == np.arange(classes), 1.0, -1.0)
        Z = X.astype(float)
        for fit_intercept in [True, False]:
            mean, of_y = (Z.mean(0), Y.mean(0)) if fit_intercept else (np.zeros(6), np.zeros(classes))
            W = np.linalg.solve((Z - mean).T @ (Z - mean) + 2.5 * np.eye(6), (Z - mean).T @ (Y - of_y))
            b = of_y - mean @ W
            for bits in [41, None]:
                model = muso.RidgeHead(alpha=2.5, fit_intercept=fit_intercept, bits=bits).fit(X, y)
                first = 1 if classes == 2 else 0
                np.testing.assert_allclose(model.coef_, W.T[first:], rtol=1e-9, atol=1e-11)
                np.testing.assert_allclose(model.intercept_, b[first:], rtol=1e-9, atol=1e-11)
                scores = Z @ W + b
                np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))
                assert model.score(X, y) == np.mean(scores.argmax(axis=1) == y)
                assert model.decision_function(X).shape == ((400,) if classes == 2 else (400, classes))


def test_a_class_without_rows_vanishes():
    X, y = rows()
    model = muso.RidgeHead(grid=8.0).fit(X, NAMES[y])
    assert model.classes_.tolist() == ["bird", "cat", "dog"]
    dogs = y == 2
    model.unfit(X[dogs], NAMES[y[dogs]])
    never = muso.RidgeHead(grid=8.0).fit(X[~dogs], NAMES[y[~dogs]])
    assert model.classes_.tolist() == never.classes_.tolist() == ["bird", "cat"]
    np.testing.assert_array_equal(model.coef_, never.coef_)
    np.testing.assert_array_equal(model.intercept_, never.intercept_)
    np.testing.assert_array_equal(model.predict(X), never.predict(X))
    cats = y == 1
    model.unfit(X[cats], NAMES[y[cats]])
    assert set(model.predict(X)) == {"bird"}
    model.partial_fit(X[dogs], NAMES[y[dogs]])
    assert model.classes_.tolist() == ["bird", "dog"]


def test_one_set_of_sums_serves_every_alpha():
    X, y = rows()
    model = muso.RidgeHead(alpha=1.0).fit(X, y)
    model.alpha = 50.0
    np.testing.assert_array_equal(model.coef_, muso.RidgeHead(alpha=50.0).fit(X, y).coef_)


def test_the_first_rows_fix_the_grid():
    X, y = rows()
    model = muso.RidgeHead(bits=41)
    model.partial_fit(X[:100], y[:100])
    assert model.sums_.grid_recorded
    model.partial_fit(X[100:] * 50, y[100:])
    plain = muso.RidgeHead(bits=None).fit(np.vstack([X[:100], X[100:] * 50]), y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("columns", [None, 1, 3])
def test_regression(columns, tmp_path):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 8)) * 3 + 10
    Y = X @ rng.standard_normal((8, columns or 1)) + rng.standard_normal((300, columns or 1))
    y = Y[:, 0] if columns is None else Y
    mean, of_y = X.mean(0), Y.mean(0)
    W = np.linalg.solve((X - mean).T @ (X - mean) + 0.5 * np.eye(8), (X - mean).T @ (Y - of_y))
    for bits in [41, None]:
        model = muso.Ridge(alpha=0.5, bits=bits).fit(X, y)
        np.testing.assert_allclose(model.coef_.reshape(W.T.shape), W.T, rtol=1e-9, atol=1e-11)
        assert model.coef_.shape == ((8,) if columns is None else (columns, 8))
        np.testing.assert_allclose(model.predict(X), (X @ W + of_y - mean @ W).reshape(y.shape), rtol=1e-9)
        assert 0.5 < model.score(X, y) < 1
    model = muso.Ridge(grid=256.0).fit(X, y).unfit(X[:50], y[:50])
    never = muso.Ridge(grid=256.0).fit(X[50:], y[50:])
    assert pickle.dumps(model) == pickle.dumps(never)
    model.save(tmp_path / "model.safetensors")
    loaded = muso.Ridge.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), never.predict(X))
    with pytest.raises(ValueError, match="a regressor; expected a classifier"):
        muso.RidgeHead.load(tmp_path / "model.safetensors")


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("grid", [None, 8.0, "array"])
def test_saved_models_are_the_same(tmp_path, names, grid):
    X, y = rows()
    y = y if names is None else names[y]
    grid = muso.grid_of(X) if grid == "array" else grid
    model = muso.RidgeHead(alpha=0.5, grid=grid, fit_intercept=False).fit(X, y)
    model.save(tmp_path / "a.safetensors")
    loaded = muso.RidgeHead.load(tmp_path / "a.safetensors")
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    assert bytes(loaded.head_) == bytes(model.head_)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert muso.Sums.load(tmp_path / "a.safetensors") == model.sums_
    again = pickle.loads(pickle.dumps(model))
    assert pickle.dumps(again) == pickle.dumps(model)
    muso.Sums(2, classes=2, grid=1.0).save(tmp_path / "sums.safetensors")
    with pytest.raises(ValueError, match="without a model"):
        muso.RidgeHead.load(tmp_path / "sums.safetensors")


def test_what_does_not_fit_is_refused():
    X, y = rows()
    model = muso.RidgeHead(grid=8.0)
    with pytest.raises(ValueError, match="not fitted"):
        model.predict(X)
    assert not hasattr(model, "coef_") and not hasattr(model, "classes_")
    with pytest.raises(AttributeError):
        model.unfit(X, y)
    model.fit(X, NAMES[y])
    before = pickle.dumps(model)
    for call in [model.partial_fit, model.unfit]:
        with pytest.raises(ValueError, match="'fish'.*at row 0"):
            call(X[:1], ["fish"])
        with pytest.raises(ValueError, match="X has 5 features; expected 6"):
            call(X[:, :5], NAMES[y])
        with pytest.raises(ValueError, match="y has 399 rows and X has 400"):
            call(X, NAMES[y[1:]])
    with pytest.raises(ValueError, match="cannot be subtracted"):
        model.unfit(np.vstack([X, X]), np.append(NAMES[y], NAMES[y]))
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X, NAMES[y], classes=["bird", "cat"])
    assert pickle.dumps(model) == before
    model.unfit(X, NAMES[y])
    with pytest.raises(ValueError, match="no rows are left"):
        model.predict(X)
    for alpha in [-1.0, float("nan"), "1", None]:
        with pytest.raises(ValueError, match="alpha"):
            muso.RidgeHead(alpha=alpha).fit(X, y)
    # A singular system has no solution of bytes of its own in integers.
    twice = np.hstack([X, X])
    with pytest.raises(ValueError, match="larger ridge"):
        muso.RidgeHead(alpha=0.0).fit(twice, y)
    assert np.isfinite(muso.RidgeHead(alpha=0.0, bits=None).fit(twice, y).coef_).all()


def test_threads_may_share_a_model():
    X, y = rows(n=4000)
    model = muso.RidgeHead(grid=8.0, classes=[0, 1, 2])
    parts = np.array_split(np.arange(4000), 32)
    failed = []

    def work(own):
        try:
            for part in own:
                model.partial_fit(X[part], y[part])
                model.predict(X[:10])
                model.unfit(X[part[:5]], y[part[:5]])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(parts[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    left = np.concatenate([part[5:] for part in parts])
    assert bytes(model.head_) == bytes(muso.RidgeHead(grid=8.0).fit(X[left], y[left]).head_)


def test_integers_and_lists_are_taken():
    X = [[0, 1], [1, 0], [2, 1], [3, 0]]
    model = muso.RidgeHead().fit(X, [0, 0, 1, 1])
    assert model.predict(X).tolist() == [0, 0, 1, 1]
    assert model.predict(np.array(X, dtype=np.uint8)).tolist() == [0, 0, 1, 1]
