"""Operators that are registered already are noticed before a library is opened that would register them again."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard.errors import LoadError
from kernelyard.load import get_loaded_kernels, get_local_kernel
from kernelyard.load.importing import namespaces

MakeVariant = Callable[..., Path]

#: An extension whose constructor ends the process, as torch does when a namespace is registered twice.
DEADLY = """
#include <stdlib.h>
typedef struct { long count; void *type, *init; long index; void *copy; const char *name, *doc; long size;
                 void *methods, *slots, *traverse, *clear, *free; } Definition;
void *PyModuleDef_Init(Definition *);
static Definition definition = {1, 0, 0, 0, 0, "ext", 0, 0};
extern "C" { void *PyInit__gray_ns() { return PyModuleDef_Init(&definition); } void *PyInit_other() { return 0; } }
__attribute__((constructor)) static void run() { if (getenv("DEADLY")) exit(66); }
namespace torch { struct Library { int x; }; }
__attribute__((noinline)) static void TORCH_LIBRARY_init_written_in_the_source(torch::Library& m) { m.x = 1; }
static torch::Library library;
static int registered = (TORCH_LIBRARY_init_written_in_the_source(library), 1);
"""


def compiled(folder: Path, name: str, *options: str) -> Path:
    source = folder.parent / "deadly.cpp"
    source.write_text(DEADLY.replace("void *PyModuleDef_Init(D", 'extern "C" void *PyModuleDef_Init(D'))
    compiler = (sysconfig.get_config_var("CXX") or "c++").split()[0]
    library = folder / name
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", str(source), "-o", str(library), *options], check=True)
    return library


@pytest.mark.compile
def test_namespaces_are_read_from_a_library_that_was_not_stripped(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    assert namespaces.registered_names(compiled(folder, "a.so")) == {"written_in_the_source"}
    assert namespaces.registered_names(compiled(folder, "b.so", "-s")) == set()


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, b"text" * 100])
def test_what_is_no_library_has_no_namespaces(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    assert namespaces.registered_names(tmp_path / "x.so") == set()


@pytest.fixture
def taken(request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace that somebody has registered."""
    torch = pytest.importorskip("torch")
    name: str = request.param
    library = torch.library.Library(name, "DEF")
    yield name
    library._destroy()


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.parametrize("taken", ["_gray_ns_id", "_gray_ns", "written_in_the_source"], indirect=True)
def test_a_library_of_operators_that_are_there_is_not_opened(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setenv("DEADLY", "1")
    variant = make_variant(id_="_gray_ns_id", name="torch-cpu", files={"__init__.py": "from . import _gray_ns\n"})
    library = compiled(variant, "_gray_ns.abi3.so")
    with pytest.raises(LoadError, match=f"operators of the namespace '{taken}' already") as caught:
        get_local_kernel(variant)
    assert caught.value.code == "KY661"
    assert caught.value.place is not None
    assert caught.value.place.path == str(library)
    assert get_loaded_kernels() == []
    assert not [name for name in sys.modules if name.startswith("_gray_ns_id")]


@pytest.mark.compile
@pytest.mark.torch
def test_a_namespace_that_was_asked_about_is_free_afterwards(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(namespaces, "_opened", set())
    failing = "from . import _gray_ns\n1 / 0\n"
    variant = make_variant(id_="_gray_ns_free", name="torch-cpu", files={"__init__.py": failing})
    compiled(variant, "_gray_ns.abi3.so")
    with pytest.raises(LoadError, match="ZeroDivisionError"):
        get_local_kernel(variant)
    library = torch.library.Library("_gray_ns_free", "DEF")  # nobody has it
    # The library stays open after the failure: what it registered is its own when it is loaded again.
    with pytest.raises(LoadError, match="ZeroDivisionError"):
        get_local_kernel(variant)
    library._destroy()
