from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelyard.formats.versions import Version
from kernelyard.project.installed_torch import InstalledTorch, find_installed_torch


def write_torch(site: Path, **values: str) -> Path:
    """Write as much of a torch as is read, and return its folder."""
    folder = site / "torch"
    folder.mkdir(parents=True)
    lines = [f"{name}: Optional[str] = {value!r}" for name, value in values.items()]
    (folder / "version.py").write_text("\n".join(["debug = False", *lines, "rocm: Optional[str] = None"]))
    (folder / "__init__.py").write_text("raise RuntimeError('torch was imported')\n")
    return folder


@pytest.mark.parametrize(
    ("values", "version", "backend", "backend_version"),
    [
        ({"__version__": "2.13.0+cpu"}, "2.13.0", "cpu", None),
        ({"__version__": "2.11.0+cu130", "cuda": "13.0"}, "2.11.0", "cuda", "13.0"),
        ({"__version__": "2.13.0+rocm7.2", "hip": "7.2.26015-fc0010cf6a"}, "2.13.0", "rocm", "7.2"),
        ({"__version__": "2.13.0+xpu", "xpu": "20260000"}, "2.13.0", "xpu", "2026.0"),
        ({"__version__": "2.12.0+xpu", "xpu": "20250302"}, "2.12.0", "xpu", "2025.3"),
        ({"__version__": "2.14.0.dev20260901+cpu"}, "2.14.0", "cpu", None),
        ({"__version__": "2.6.0a0+ecf3bae40a.nv25.01", "cuda": "12.8"}, "2.6.0", "cuda", "12.8"),
        ({"__version__": "2.5.1.post3"}, "2.5.1", "cpu", None),
    ],
)
def test_a_torch_says_in_its_files_what_it_was_built_for(
    tmp_path: Path, values: dict[str, str], version: str, backend: str, backend_version: str | None
) -> None:
    folder = write_torch(tmp_path, **values)
    found = find_installed_torch(tmp_path)
    expected = Version(backend_version) if backend_version else None
    assert found == InstalledTorch(values["__version__"], Version(version), folder, backend, expected)
    assert (found.cuda, found.hip, found.xpu) == tuple(
        expected if backend == name else None for name in ("cuda", "rocm", "xpu")
    )
    assert {name for name in ("cpu", "cuda", "rocm", "xpu", "metal") if found.serves(name)} == {"cpu", backend}


def test_a_torch_on_macos_was_built_for_metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_torch(tmp_path, __version__="2.13.0")
    monkeypatch.setattr(sys, "platform", "darwin")
    found = find_installed_torch(tmp_path)
    assert found is not None
    assert (found.backend, found.backend_version) == ("metal", None)


@pytest.mark.parametrize(("version", "standard"), [("2.9.1", 17), ("2.11.0", 17), ("2.12.0", 20), ("2.13.0", 20)])
def test_headers_are_cxx20_from_2_12_on(version: str, standard: int) -> None:
    assert InstalledTorch(version, Version(version), Path("torch")).cxx_standard == standard


def test_where_there_is_none_none_is_found(tmp_path: Path) -> None:
    assert find_installed_torch(tmp_path) is None
    write_torch(tmp_path, cuda="13.0")
    assert find_installed_torch(tmp_path) is None


@pytest.mark.torch
def test_the_torch_of_this_interpreter_is_found_in_its_folder() -> None:
    torch = pytest.importorskip("torch")
    found = find_installed_torch()
    assert found is not None
    assert found.build == torch.__version__
    assert found.folder == Path(torch.__file__).parent
    assert found == find_installed_torch(found.folder.parent)
