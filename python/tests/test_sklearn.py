"""scikit-learn's own checks, its models as references, and its tools around ours."""

import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from muso.sklearn import Ridge, RidgeHead  # noqa: E402
from sklearn import linear_model  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import make_classification, make_regression  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402


# All of them, without an exception.
@parametrize_with_checks(
    [RidgeHead(), RidgeHead(bits=None), RidgeHead(fit_intercept=False), Ridge(), Ridge(bits=None)]
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("bits", [41, None])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_classifier_is_scikit_learns(bits, fit_intercept, alpha, classes):
    X, y = make_classification(500, 20, n_informative=10, n_redundant=0, n_classes=classes, random_state=1, shift=0.7)
    y = np.array(["a", "b", "c", "d"])[y]
    ours = RidgeHead(alpha, fit_intercept=fit_intercept, bits=bits).fit(X, y)
    theirs = linear_model.RidgeClassifier(alpha=alpha, fit_intercept=fit_intercept, solver="cholesky").fit(X, y)
    # Of two classes theirs are a vector since scikit-learn 1.9, and a row as here before.
    coef = np.atleast_2d(theirs.coef_)
    assert ours.coef_.shape == coef.shape
    np.testing.assert_allclose(ours.coef_, coef, rtol=1e-9, atol=1e-9 * np.abs(coef).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.score(X, y) == theirs.score(X, y)


@pytest.mark.parametrize("bits", [41, None])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("targets", [1, 3])
def test_the_regressor_is_scikit_learns(bits, fit_intercept, targets):
    X, y = make_regression(400, 30, n_informative=12, n_targets=targets, noise=3.0, bias=7.0, random_state=2)
    ours = Ridge(0.5, fit_intercept=fit_intercept, bits=bits).fit(X, y)
    theirs = linear_model.Ridge(alpha=0.5, fit_intercept=fit_intercept, solver="cholesky").fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-9 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9, atol=1e-7)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-9)


def test_the_default_is_as_close_as_it_says():
    X, y = make_classification(500, 20, n_informative=10, n_redundant=0, n_classes=4, random_state=1)
    theirs = linear_model.RidgeClassifier().fit(X, y)
    apart = np.abs(RidgeHead().fit(X, y).coef_ - theirs.coef_).max() / np.abs(theirs.coef_).max()
    assert 1e-9 < apart < 1e-6


def test_after_deletion_it_is_a_refit():
    X, y = make_classification(600, 15, n_informative=8, n_redundant=0, n_classes=3, random_state=3)
    ours = RidgeHead(bits=41, grid=64.0, classes=[0, 1, 2]).fit(X, y).unfit(X[:100], y[:100])
    never = RidgeHead(bits=41, grid=64.0, classes=[0, 1, 2]).fit(X[100:], y[100:])
    assert pickle.dumps(ours) == pickle.dumps(never) and bytes(ours.sums_) == bytes(never.sums_)
    theirs = linear_model.RidgeClassifier(solver="cholesky").fit(X[100:], y[100:])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-9, atol=1e-11)


def test_scikit_learns_tools():
    X, y = make_classification(300, 10, random_state=4)
    model = make_pipeline(StandardScaler(), RidgeHead())
    assert cross_val_score(model, X, y, cv=3).min() > 0.7
    search = GridSearchCV(model, {"ridgehead__alpha": [0.1, 1.0, 10.0], "ridgehead__bits": [22, None]}, cv=3)
    theirs = GridSearchCV(
        make_pipeline(StandardScaler(), linear_model.RidgeClassifier()), {"ridgeclassifier__alpha": [0.1, 1.0, 10.0]}, cv=3
    )
    search.fit(X, y)
    assert search.best_score_ == pytest.approx(theirs.fit(X, y).best_score_, abs=0.01)
    fitted = RidgeHead(alpha=3.0, grid=8.0).fit(X, y)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params() and not hasattr(fresh, "sums_")
    on_sums = clone(RidgeHead(grid=fitted.sums_)).fit(X, y)
    assert on_sums.sums_ == fitted.sums_
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    again = pickle.loads(pickle.dumps(fitted))
    assert pickle.dumps(again) == pickle.dumps(fitted)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
