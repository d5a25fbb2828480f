"""The package itself: names, stubs, documentation, and what is imported."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import untuned
from untuned import _classes, _torch

PYTHON = Path(__file__).parents[1]
DOCS = PYTHON.parent / "docs" / "python.md"


def test_names():
    assert re.fullmatch(r"\d+\.\d+\.\d+", untuned.__version__)
    names = {method.class_name for method in untuned.methods()}
    assert len(names) == len(untuned.methods()) and names <= set(dir(untuned)) and names <= set(untuned.__all__)
    for name in untuned.__all__:
        assert getattr(untuned, name) is not None
    # As trainers do that import a class by its dotted name.
    assert getattr(importlib.import_module("untuned"), "PolyakAdam") is untuned.PolyakAdam


def test_stubs_are_current():
    sys.path.insert(0, str(PYTHON))
    try:
        import stubs
    finally:
        sys.path.pop(0)
    installed = Path(untuned.__file__).with_name("__init__.pyi")
    for path in {stubs.PATH, installed}:
        assert path.read_text() == stubs.stub(), "type: python python/stubs.py"
    compile(stubs.stub(), "__init__.pyi", "exec")


def test_stubs_name_what_is_there():
    from untuned import _untuned

    text = Path(untuned.__file__).with_name("_untuned.pyi").read_text()
    for name in re.findall(r"^(?:class|def) (\w+)", text, re.MULTILINE):
        assert hasattr(_untuned, name), name


@pytest.mark.parametrize("module", [untuned, _torch, _classes, untuned._catalog, untuned._minimize, untuned._warnings])
def test_examples_in_docstrings(module):
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = finder.find(module)
    if module is _classes:
        for method in untuned.methods():
            cls = getattr(untuned, method.class_name)
            tests.append(doctest.DocTestParser().get_doctest(cls.__doc__, {}, method.class_name, None, 0))
    assert tests
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.failures == 0


def test_numpy_is_enough_for_minimize_and_nothing_for_the_catalog():
    code = """
import sys
sys.modules["torch"] = None
import untuned
assert untuned.minimize(lambda x: (x @ x, 2 * x), [1.0], steps=50).best_loss < 0.1
try:
    untuned.PolyakAdam
except ImportError as error:
    assert "pip install torch" in str(error)
else:
    raise AssertionError
sys.modules["numpy"] = None
assert len(untuned.methods()) > 20
try:
    untuned.minimize(None, [1.0], steps=1)
except ImportError as error:
    assert "pip install numpy" in str(error)
else:
    raise AssertionError
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not beside the tests")
def test_the_table_of_memory():
    import torch
    from conftest import spec

    text = DOCS.read_text()
    rows = re.findall(r"^\| (`[^|]*) \| (\d) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for names, vectors, size in rows:
        assert int(size) == 4 * int(vectors)
        for name in re.findall(r"`(\w+)`", names):
            method = next(m for m in untuned.methods() if m.class_name == name)
            optimizer = untuned.optimizer(spec(method.name), [torch.nn.Parameter(torch.ones(2))], total_steps=5)
            assert len(optimizer._vectors) == int(vectors), name
    needing = set()
    for method in untuned.methods():
        try:
            untuned.optimizer(spec(method.name), [torch.nn.Parameter(torch.ones(2))])
        except ValueError:
            needing.add(method.class_name)
    line = re.search(r"the steps of the whole run\. (.*) need it", text)
    assert needing == set(re.findall(r"`(\w+)`", line[1]))


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not beside the tests")
def test_examples_in_the_documentation():
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
