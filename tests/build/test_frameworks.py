"""What is built besides torch's extensions: tvm-ffi, packages of Python alone, and kernels with CUTLASS."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.errors import BuildError, EnvironmentProblemError
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.parts import PartSource

TVM_CPU = "tvm-ffi01-cpu-x86_64-linux"
TVM_CUDA = "tvm-ffi01-cu130-x86_64-linux"

Sample = Callable[[str], Path]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run_python(code: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a program of its own: a kernel stays in the process that loads it."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def metadata_of(variant: Path) -> Metadata:
    return Metadata.from_json((variant / "metadata.json").read_bytes(), path="metadata.json")


# tvm-ffi


@pytest.mark.compile
@pytest.mark.network
def test_tvm_ffi_is_built_checked_and_loaded_without_torch(
    sample: Sample, source: PartSource, environment: dict[str, str]
) -> None:
    root = sample("scale")
    (built,) = build_project(root, source=source, variants=[TVM_CPU])
    assert {path.name for path in built.path.iterdir()} == {
        "__init__.py",
        "_ops.py",
        "metadata.json",
        f"{built.entry.id}.so",
    }
    assert built.entry.id.startswith("_scale_cpu_")
    assert check_variant(gather(built.path)) == ()
    facts = built.entry.facts
    assert (facts.framework, str(facts.framework_version), facts.torch) == ("tvm-ffi", "0.1", None)
    assert facts.needed is not None
    assert "libtvm_ffi.so" in facts.needed
    assert not [name for name in facts.needed if "torch" in name or "c10" in name]

    pytest.importorskip("tvm_ffi")
    code = (
        "import sys, numpy, kernelyard\n"
        "sys.modules['torch'] = None\n"
        "kernel = kernelyard.get_local_kernel('.')\n"
        "print(kernel.scale(numpy.arange(3, dtype='float32'), 2).tolist(), kernel.__kernel__.variant)\n"
        "print(kernel._ops.torch_add_op_namespace_prefix('f'), kernel._ops.jax_add_ffi_target_name_prefix('f'))\n"
    )
    assert run_python(code, root, environment).splitlines() == [
        f"[0.0, 2.0, 4.0] {TVM_CPU}",
        f"{built.entry.id}::f {built.entry.id}.f",
    ]


@pytest.mark.compile
@pytest.mark.network
def test_tvm_ffi_is_built_and_checked_for_cuda(sample: Sample, source: PartSource) -> None:
    root = sample("scale")
    (built,) = build_project(root, source=source, variants=["*-cu130-*"])
    assert built.name == TVM_CUDA
    assert check_variant(gather(built.path)) == ()
    assert built.entry.facts.images is not None
    assert [(image.kind, image.capability) for image in built.entry.facts.images] == [("sass", "9.0a")]
    assert built.entry.facts.driver is not None
    assert built.entry.facts.torch is None
    commands = json.loads((root / ".kernelyard" / "cu130" / "objects" / "compile_commands.json").read_bytes())
    assert {Path(entry["file"]).name for entry in commands} == {"scale.cu", "scale_cpu.cpp", "binding.cpp"}
    assert not [entry for entry in commands if "torch" in entry["command"]]


# Nothing compiled


def test_a_package_of_python_alone_is_built_for_every_backend_and_loaded(
    sample: Sample, source: PartSource, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = sample("lookup")
    # It needs neither compiler nor network.
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    built = build_project(root, source=source)
    assert [variant.name for variant in built] == ["torch-cpu", "torch-cuda", "torch-rocm"]
    for variant in built:
        assert set(hash_tree(variant.path)) == {"__init__.py", "_ops.py", "metadata.json", "tables/squares.json"}
        assert check_variant(gather(variant.path)) == ()
        assert (variant.entry.facts.images, variant.entry.facts.glibc) == (None, None)
    assert [metadata_of(variant.path).archs for variant in built] == [None, ("8.0", "9.0"), ("gfx942",)]
    assert len({variant.entry.id for variant in built}) == 3
    assert all(variant.entry.id.startswith("_look_up_") for variant in built)
    assert {metadata_of(variant.path).version for variant in built} == {3}
    assert not (root / ".kernelyard" / "cpu" / "CMakeLists.txt").exists()

    pytest.importorskip("torch")
    code = (
        "import kernelyard\n"
        "kernel = kernelyard.get_local_kernel('.', backend='cpu')\n"
        "print(kernel.TABLE['3'], kernel.__name__, kernel.operator_name(), kernel.__kernel__.variant)\n"
    )
    identity = built[0].entry.id
    assert run_python(code, root, environment).split() == ["9", identity, f"{identity}::look_up", "torch-cpu"]


# Header libraries


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.network
def test_two_versions_of_cutlass_serve_two_sections_of_one_kernel(sample: Sample, source: PartSource) -> None:
    root = sample("tiles")
    (built,) = build_project(root, source=source)
    assert check_variant(gather(built.path)) == ()
    commands = json.loads((root / ".kernelyard" / "cu130" / "objects" / "compile_commands.json").read_bytes())
    of = {Path(entry["file"]).name: entry["command"] for entry in commands}
    assert "nvidia-cutlass-3.6" in of["old.cu"]
    assert "nvidia-cutlass-3.8" not in of["old.cu"]
    assert "nvidia-cutlass-3.8" in of["new.cu"]
    assert "nvidia-cutlass-3.6" not in of["new.cu"]


@pytest.fixture
def newer(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that wants a CUTLASS which the package index does not have."""
    monkeypatch.delenv("CUTLASS_SRC_DIR", raising=False)
    root = sample("tiles")
    text = (root / "build.toml").read_text()
    text = text[: text.index("[kernel.new]")].replace("cutlass_3_6", "cutlass_4_5")
    (root / "build.toml").write_text(text)
    (root / "torch-ext" / "binding.cpp").write_text(
        '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
    )
    (root / "csrc" / "old.cu").write_text(
        "#include <cutlass/cutlass.h>\n__global__ void f(int* out) { *out = ANSWER; }\n"
    )
    return root


def checkout(folder: Path) -> None:
    header = folder / "include" / "cutlass" / "cutlass.h"
    header.parent.mkdir(parents=True)
    header.write_text("#pragma once\n#define ANSWER 42\n")


@pytest.mark.compile
@pytest.mark.network
def test_a_cutlass_that_the_index_does_not_have_is_told_with_what_to_do(newer: Path, source: PartSource) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        build_project(newer, source=source)
    assert caught.value.code == "KY316"
    assert caught.value.what == "the package index does not have cutlass_4_5"
    assert "set CUTLASS_SRC_DIR to its folder" in caught.value.hint
    assert "cutlass_3_6" in caught.value.hint


@pytest.mark.compile
@pytest.mark.network
def test_a_folder_that_is_no_checkout_of_cutlass_is_refused(
    newer: Path, source: PartSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLASS_SRC_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentProblemError) as caught:
        build_project(newer, source=source)
    assert caught.value.code == "KY316"
    assert caught.value.hint == f"there is no {tmp_path / 'nowhere' / 'include' / 'cutlass' / 'cutlass.h'}"


@pytest.mark.compile
@pytest.mark.network
def test_the_named_folder_is_used_and_its_headers_enter_the_id(
    newer: Path, source: PartSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout(tmp_path / "a folder")
    monkeypatch.setenv("CUTLASS_SRC_DIR", str(tmp_path / "a folder"))
    (first,) = build_project(newer, source=source)
    sources = metadata_of(first.path).sources
    moved = shutil.copytree(tmp_path / "a folder", tmp_path / "moved")
    monkeypatch.setenv("CUTLASS_SRC_DIR", str(moved))
    (same,) = build_project(newer, source=source)
    assert same.entry.id == first.entry.id
    header = moved / "include" / "cutlass" / "cutlass.h"
    edit(header, "42", "43")
    (changed,) = build_project(newer, source=source)
    assert changed.entry.id != first.entry.id
    # What is the author's own has not changed.
    assert metadata_of(changed.path).sources == sources
    edit(header, "#define ANSWER 43", "#error not this one")
    with pytest.raises(BuildError, match="not this one"):
        build_project(newer, source=source)
