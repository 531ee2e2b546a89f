"""A kernel whose package is installed, too: the same content is one module, whichever way it comes first."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard import get_loaded_kernels, get_local_kernel

Make = Callable[..., tuple[str, Path, Path]]

OPS = "import sys\nruns = getattr(sys, {key!r}, 0) + 1\nsetattr(sys, {key!r}, runs)\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a function that makes a kernel and installs it: the package's name, the variant, and the package."""
    made: list[str] = []
    monkeypatch.syspath_prepend(tmp_path / "site")

    def make(*, nested: bool = False) -> tuple[str, Path, Path]:
        name = f"gray_{uuid.uuid4().hex}"
        made.append(name)
        variant = tmp_path / "build" / "torch-universal"
        inner = variant / name if nested else variant
        inner.mkdir(parents=True)
        (inner / "__init__.py").write_text("from . import _ops\n\nruns = _ops.runs\n")
        (inner / "_ops.py").write_text(OPS.format(key=name))
        (inner / "later.py").write_text("from . import _ops\n")
        metadata = {"name": name.replace("_", "-"), "id": f"_{name}_x", "version": 1, "license": "MIT"}
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
        package = tmp_path / "site" / name
        shutil.copytree(inner, package)
        return name, variant, package

    yield make
    for name in [one for one in sys.modules if any(own in one for own in made)]:
        del sys.modules[name]


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_package_that_has_been_imported_is_the_kernel(kernel: Make, *, nested: bool) -> None:
    name, variant, package = kernel(nested=nested)
    installed = importlib.import_module(name)
    loaded = get_local_kernel(variant)
    assert loaded is installed
    assert loaded.runs == 1
    described = next(one for one in get_loaded_kernels() if one.module is installed)
    assert installed.__kernel__ is described
    assert described.metadata.id == f"_{name}_x"
    assert installed.__file__ == str(package / "__init__.py")
    # Nor is it looked for again.
    assert get_local_kernel(variant) is installed
    assert installed.__kernel__ is described


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_kernel_that_has_been_loaded_is_its_package(kernel: Make, *, nested: bool) -> None:
    name, variant, _ = kernel(nested=nested)
    loaded = get_local_kernel(variant)
    spec = loaded.__spec__
    installed = importlib.import_module(name)
    assert installed is loaded
    assert installed.runs == 1
    assert loaded.__spec__ is spec
    assert loaded.__name__ == f"_{name}_x"
    assert importlib.import_module(f"{name}._ops") is loaded._ops
    later = importlib.import_module(f"{name}.later")
    assert later is importlib.import_module(f"_{name}_x.later")
    assert later._ops is loaded._ops
    assert get_local_kernel(variant) is loaded
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{name}.never")


@pytest.mark.parametrize("first", ["package", "kernel"])
@pytest.mark.parametrize("change", ["changed", "added", "removed"])
def test_a_package_with_other_files_is_another_module(kernel: Make, first: str, change: str) -> None:
    name, variant, package = kernel()
    file = {"changed": "later.py", "added": "more.py", "removed": "later.py"}[change]
    if change == "removed":
        (package / file).unlink()
    else:
        (package / file).write_text("x = 1\n")
    if first == "package":
        importlib.import_module(name)
    loaded = get_local_kernel(variant)
    installed = importlib.import_module(name)
    assert installed is not loaded
    assert installed.__file__ == str(package / "__init__.py")
    assert {installed.runs, loaded.runs} == {1, 2}


def test_bytecode_of_the_package_makes_no_difference(kernel: Make) -> None:
    name, variant, package = kernel()
    installed = importlib.import_module(name)
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "later.cpython-311.pyc").write_bytes(b"")
    assert get_local_kernel(variant) is installed


def test_a_package_that_is_only_looked_for_is_not_imported(kernel: Make) -> None:
    name, variant, _ = kernel()
    loaded = get_local_kernel(variant)
    assert importlib.util.find_spec(name) is not None
    assert name not in sys.modules
    assert loaded.runs == 1
