"""Takes rows out of a fitted classifier, and shows that nothing of them is left."""

import muso
import numpy as np
import numpy.typing as npt


def main() -> None:
    rng = np.random.default_rng(0)
    X: npt.NDArray[np.float32] = rng.standard_normal((10_000, 64)).astype(np.float32)
    y = (X @ rng.standard_normal((64, 10))).argmax(axis=1)
    withdrawn = rng.choice(10_000, 100, replace=False)

    model = muso.RidgeHead(alpha=1.0, grid=8.0).fit(X, y)
    before = model.score(X, y)
    model.unfit(X[withdrawn], y[withdrawn])
    print(f"{before:.3f} of the rows right before, {model.score(X, y):.3f} after; {model.sums_.rows} rows are left")

    kept = np.delete(np.arange(10_000), withdrawn)
    never = muso.RidgeHead(alpha=1.0, grid=8.0).fit(X[kept], y[kept])
    print("the bytes of a model that never saw them:", bytes(model.head_) == bytes(never.head_))


if __name__ == "__main__":
    main()
