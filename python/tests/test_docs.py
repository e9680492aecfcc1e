"""The examples of docstrings and documents do what they say, and the stubs have what is there."""

import ast
import doctest
import inspect
import runpy
from pathlib import Path

import muso
import numpy as np
import pytest
from muso import _native, _ridge

PYTHON = Path(__file__).parents[1]


def documented():
    """Everything with a docstring, by its name."""
    found = {"muso": muso}
    found |= {f"muso.{name}": getattr(muso, name) for name in muso.__all__}
    for kind in (_native.Sums, _native.Head, _native.Forgotten, _ridge.RidgeHead, _ridge.Ridge):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") or name == "__bytes__":
                found[f"{kind.__name__}.{name}"] = member
    return {name: thing for name, thing in found.items() if isinstance(inspect.getdoc(thing), str)}


@pytest.mark.parametrize("name", sorted(documented()))
def test_examples_in_docstrings(name):
    text = inspect.getdoc(documented()[name])
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_there_are_examples():
    with_examples = [name for name, thing in documented().items() if ">>>" in inspect.getdoc(thing)]
    assert len(with_examples) >= 8, with_examples


@pytest.mark.parametrize("path", ["README.md", "../docs/python.md"])
def test_examples_in_documents(path):
    failed, tried = doctest.testfile(str(PYTHON / path), module_relative=False)
    assert failed == 0 and tried > 2


# Those with torch are run by test_torch.py.
@pytest.mark.parametrize("example", sorted((PYTHON / "examples").glob("[!t]*.py")), ids=lambda path: path.stem)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__" if example.stem != "sums_in_parts" else "example")
    if example.stem != "sums_in_parts":
        assert "True" in capsys.readouterr().out


def test_the_stubs_have_what_is_there():
    tree = ast.parse((Path(_native.__file__).parent / "_native.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    there = {name for name in vars(_native) if not name.startswith("_")}
    assert {name for name in stubs} == there
    for kind in (_native.Sums, _native.Head, _native.Forgotten):
        members = {node.name for node in stubs[kind.__name__].body if isinstance(node, ast.FunctionDef)}
        public = {name for name in vars(kind) if not name.startswith("_")}
        assert {name for name in members if not name.startswith("_")} == public


def test_the_five_lines_of_the_readme():
    text = (PYTHON.parent / "README.md").read_text()
    block = text.split("```python\n")[1].split("```")[0]
    assert block.count("\n") == 5
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1000, 8)), rng.integers(0, 3, 1000)
    parts = [muso.Sums(8, classes=3, grid=16.0) for _ in range(2)]
    for part, rows in zip(parts, np.array_split(np.arange(1000), 2), strict=True):
        part.add(X[rows], y[rows])
    names = {"X": X, "y": y, "withdrawn": [3, 5], "parts": parts}
    exec(block, names)
    assert names["model"].sums_.rows == 998 and names["new"].rows.tolist() == [12, 907]
