from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.errors import BuildError
from kernelyard.formats.index import Index
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"

Sample = Callable[[str], Path]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory, source: PartSource) -> Path:
    """The sample `linked`, built once; tests leave it as it is."""
    root = tmp_path_factory.mktemp("extensions") / "linked"
    shutil.copytree(Path(__file__).resolve().parents[1] / "projects" / "linked", root)
    build_project(root, source=source)
    return root


def metadata_of(variant: Path) -> Metadata:
    return Metadata.from_json((variant / "metadata.json").read_bytes(), path="metadata.json")


def test_device_code_of_two_files_is_linked_and_nothing_else_is_promised(linked: Path) -> None:
    metadata = metadata_of(linked / "build" / CUDA)
    assert metadata.archs == ("8.0", "9.0")
    assert metadata.facts is not None
    assert [(image.kind, image.capability) for image in metadata.facts.images or ()] == [
        ("sass", "8.0"),
        ("sass", "9.0"),
    ]


def test_the_libraries_that_are_linked_are_needed_and_their_names_allowed(linked: Path) -> None:
    facts = metadata_of(linked / "build" / CUDA).facts
    assert facts is not None
    assert {"libcuda.so.1", "libcublas.so.13", "libcurand.so.10"} <= set(facts.needed or ())
    assert not {"libcusparse.so.12", "libcublasLt.so.13", "libcudart.so.13"} & set(facts.needed or ())
    assert {"cuDriverGetVersion", "cublasGetCudartVersion", "curandGetVersion"} <= set(facts.undefined or ())


def test_a_name_of_a_library_that_is_not_linked_is_found(linked: Path) -> None:
    evidence = gather(linked / "build" / CUDA)
    (library,) = evidence.libraries
    others = tuple(name for name in library.elf.needed if not name.startswith(("libcublas", "libcuda")))
    unlinked = replace(library, elf=replace(library.elf, needed=others))
    findings = check_variant(replace(evidence, libraries=(unlinked,)))
    # cuBLAS comes with libtorch_cuda, the driver's names do not.
    assert {finding.hint for finding in findings if finding.code == "KY102"} == {
        'add link = ["cuda"] to its section, or, if it is yours, define it, or list the source that does in `src`'
    }
    without = replace(library, elf=replace(library.elf, needed=tuple(n for n in others if n != "libtorch_cuda.so")))
    findings = check_variant(replace(evidence, libraries=(without,)))
    assert {finding.hint for finding in findings if finding.code == "KY102"} >= {
        f'add link = ["{name}"] to its section, or, if it is yours, define it, or list the source that does in `src`'
        for name in ("cuda", "cublas")
    }


def test_what_every_torch_with_cuda_brings_need_not_be_linked_but_must_exist(
    sample: Sample, source: PartSource
) -> None:
    root = sample("tiny")
    other = root / "csrc" / "other.cpp"
    other.write_text(
        other.read_text()
        + "#ifdef CUDA_KERNEL\n#include <cublas_v2.h>\n#include <cufft.h>\n#include <curand.h>\n#include <nvrtc.h>\n"
        "extern cublasStatus_t made(cublasHandle_t* handle) { return cublasCreate(handle); }\n#endif\n"
    )
    (built,) = build_project(root, source=source, variants=[CUDA])
    facts = metadata_of(built.path).facts
    assert facts is not None
    assert "cublasCreate_v2" in (facts.undefined or ())
    needed = facts.needed or ()
    assert not [name for name in needed if "cublas" in name]
    assert needed.count("libtorch_cuda.so") == 1
    other.write_text(other.read_text().replace("cublasCreate(handle)", "cublasNoSuchThing(handle)"))
    other.write_text(
        other.read_text().replace("extern cublas", "cublasStatus_t cublasNoSuchThing(void*); extern cublas")
    )
    with pytest.raises(BuildError, match="cublasNoSuchThing") as caught:
        build_project(root, source=source, variants=[CUDA])
    assert caught.value.code == "KY417"


def test_a_library_that_cannot_be_linked_to_is_found(linked: Path) -> None:
    evidence = gather(linked / "build" / CUDA)
    (library,) = evidence.libraries
    other = replace(library, elf=replace(library.elf, needed=(*library.elf.needed, "libcudnn.so.9")))
    findings = check_variant(replace(evidence, libraries=(other,)))
    assert [finding.what for finding in findings if finding.code == "KY103"] == [
        "needs the library libcudnn.so.9, which a user's system need not have"
    ]


@pytest.mark.slow
def test_linked_device_code_is_the_same_in_another_folder(sample: Sample, linked: Path, source: PartSource) -> None:
    (built,) = build_project(sample("linked"), source=source)
    assert hash_tree(built.path) == hash_tree(linked / "build" / CUDA)


def test_sections_are_compiled_for_the_variants_that_they_are_for(sample: Sample, source: PartSource) -> None:
    root = sample("sections")
    cpu, cuda = sorted(build_project(root, source=source, capabilities=["8.0"]), key=lambda built: built.name)
    assert (cpu.name, cuda.name) == (CPU, CUDA)
    commands = json.loads((root / ".kernelyard" / "cpu" / "objects" / "compile_commands.json").read_bytes())
    assert {Path(entry["file"]).name for entry in commands} == {
        "answer.cpp",
        "part.cpp",
        "machine.cpp",
        "binding.cpp",
        "extension_name.cpp",
    }
    commands = json.loads((root / ".kernelyard" / "cu130" / "objects" / "compile_commands.json").read_bytes())
    flags = {Path(entry["file"]).name: entry["command"].split() for entry in commands}
    assert "-lineinfo" in flags["answer.cu"]
    assert "-lineinfo" not in flags["binding.cpp"]
    requirements = ("einops>=0.8", "apache-tvm-ffi", "numpy>=1.26,<3", "helion; python_version >= '3.12'")
    assert metadata_of(cpu.path).python_depends == ("einops", "tvm-ffi")
    assert metadata_of(cuda.path).python_depends == ("einops", "tvm-ffi", "nvidia-cutlass-dsl")
    index = Index.from_json((root / "build" / "index.json").read_bytes(), path="index.json")
    assert {variant.name: variant.facts.requirements for variant in index.variants} == {
        CPU: requirements,
        CUDA: (*requirements, "nvidia-cutlass-dsl"),
    }
