"""The declared content of a manifest: every table and key of every edition.

An edition is told by ``since`` and ``until`` of its keys. The facts on editions before 5 are those of the public
``kernel-builder``; it lives in https://github.com/huggingface/kernels.
"""

from __future__ import annotations

from typing import Any

from kernelyard.formats.editions.kinds import (
    BOOLEAN,
    EDITION,
    GIT_ADDRESS,
    LANGUAGE,
    NAME,
    PATHS,
    REPOSITORY,
    SPECIFIER,
    STRING,
    STRINGS,
    UNSIGNED,
    VERSION,
    choice,
    choices,
    in_code,
    requirements,
    subtable,
    tables,
    version_or_table,
)
from kernelyard.formats.editions.model import Key, Kind, TableModel
from kernelyard.formats.variant import BACKENDS

__all__ = [
    "CURATED",
    "FRAMEWORKS",
    "GENERAL",
    "GENERATE",
    "HUB",
    "KERNEL_DEPENDENCY",
    "LIBRARIES",
    "OF_BACKEND",
    "SECTION",
    "SECTION_BACKENDS",
    "TORCH",
    "TORCH_NOARCH",
    "TVM_FFI",
    "WHEN",
]

#: Backends that sources are compiled for.
SECTION_BACKENDS = ("cpu", "cuda", "metal", "rocm", "xpu")
#: Backend (or none) -> names of Python packages that every tool of the ecosystem understands.
CURATED: dict[str, tuple[str, ...]] = {
    "": ("einops", "helion", "tvm-ffi"),
    "cuda": ("nvidia-cutlass-dsl",),
    "neuron": ("nki",),
    "tpu": (),
    "xpu": ("onednn",),
}
DEPENDENCIES = (
    "torch",
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
)
#: Libraries of the toolkit (and the driver, `cuda`) that a section may be linked to.
LIBRARIES = ("cuda", "cublas", "cublasLt", "cusparse", "cusolver", "curand", "cufft", "nvrtc")


def _one_of_version_and_revision(written: dict[str, Any], _: dict[str, Any]) -> str:
    if ("version" in written) == ("revision" in written):
        return "give exactly one of `version` and `revision`"
    return ""


def _python_depends(backend: str = "") -> Key:
    known = f"{in_code(CURATED[backend])}, or, as an extension, " if CURATED[backend] else "as an extension, "
    doc = f"Python packages that the kernel imports: {known}any requirement of PEP 508"
    return Key("python-depends", requirements(CURATED[backend]), doc, (), since=3)


def _pyext() -> Key:
    doc = "endings of the files that are shipped of the Python package; `py` always is"
    return Key("pyext", STRINGS, doc, ("py", "pyi"))


KERNEL_DEPENDENCY = TableModel(
    "Another kernel that this one loads.",
    (
        Key("repo-id", REPOSITORY, "the kernel", required_since=1),
        Key("version", UNSIGNED, "its major version"),
        Key("revision", STRING, "a branch, tag or commit, in place of `version`"),
    ),
)
_KERNEL_DEPENDS = Key(
    "kernel-depends",
    tables(KERNEL_DEPENDENCY, '{ repo-id = "org/name", version = 1 }', check=_one_of_version_and_revision),
    'kernels that this one loads: `{ repo-id = "org/name", version = 1 }`, or `revision = "..."` in place of `version`',
    (),
    since=5,
)
HUB = TableModel(
    "Where `push` publishes.",
    (
        Key("repo-id", REPOSITORY, "the repository"),
        Key("branch", STRING, "the branch, where it is not `v<version>`"),
    ),
)
OF_BACKEND = {
    "cuda": TableModel(
        "What only CUDA builds need.",
        (
            Key("minver", VERSION, "the oldest toolkit"),
            Key("maxver", VERSION, 'the newest toolkit; `"13.0"` includes all of 13.0'),
            _python_depends("cuda"),
            _KERNEL_DEPENDS,
        ),
    ),
    "neuron": TableModel("What only Neuron builds need.", (_python_depends("neuron"), _KERNEL_DEPENDS)),
    "tpu": TableModel("What only TPU builds need.", (_python_depends("tpu"),)),
    "xpu": TableModel("What only XPU builds need.", (_python_depends("xpu"), _KERNEL_DEPENDS)),
}
GENERAL = TableModel(
    "What the kernel is.",
    (
        Key(
            "name",
            NAME,
            "lower-case letters, digits, dashes, a letter first; the Python package is the name with `_` for `-`",
            required_since=1,
        ),
        Key("version", UNSIGNED, "major version; published on branch `v<version>`", since=3, required_since=4),
        Key("edition", EDITION, "`5`; files of older editions have no such key", since=5, required_since=5),
        Key("license", STRING, "as an SPDX identifier, or the hub's word", since=3, required_since=4),
        Key(
            "backends",
            choices("backend", BACKENDS, least='for example backends = ["cuda", "cpu"]'),
            "what the kernel is built for",
            (),
            since=3,
            required_since=3,
        ),
        Key("upstream", GIT_ADDRESS, "where the code came from", since=3),
        Key("source", GIT_ADDRESS, "the repository that holds this file", since=4),
        _python_depends(),
        _KERNEL_DEPENDS,
        Key("hub", subtable(HUB), "where `push` publishes", since=2),
        Key("cuda", subtable(OF_BACKEND["cuda"]), "what only CUDA builds need", since=3),
        Key("neuron", subtable(OF_BACKEND["neuron"]), "what only Neuron builds need", since=3),
        Key("tpu", subtable(OF_BACKEND["tpu"]), "what only TPU builds need", since=5),
        Key("xpu", subtable(OF_BACKEND["xpu"]), "what only XPU builds need", since=3),
        Key(
            "universal",
            BOOLEAN,
            "nothing is compiled",
            default=False,
            since=2,
            until=2,
            successor="list the `backends`",
        ),
        Key("python-depends", requirements((*CURATED[""], *CURATED["cuda"])), "Python packages", (), since=2, until=2),
        Key("cuda-minver", VERSION, "the oldest toolkit", since=2, until=2, successor="it is `cuda.minver` now"),
        Key("cuda-maxver", VERSION, "the newest toolkit", since=2, until=2, successor="it is `cuda.maxver` now"),
    ),
)

_SRC = Key("src", PATHS, "the binding's sources and headers", ())
_INCLUDE = Key("include", PATHS, "include folders", ())
_BINDING_FLAGS = Key("cxx-flags", STRINGS, "flags for the binding's sources", (), since=4)

TORCH = TableModel(
    "An extension that is compiled against torch.",
    (
        _SRC,
        _INCLUDE,
        _pyext(),
        Key("minver", VERSION, "the oldest torch (full ABI)", since=2),
        Key("maxver", VERSION, 'the newest torch (full ABI); `"2.12"` includes all of 2.12', since=2),
        Key(
            "stable-abi",
            version_or_table(BACKENDS, 'a torch version such as stable-abi = "2.11"'),
            "the oldest torch of a stable-ABI build; backends that a table leaves out use the full ABI",
            since=4,
        ),
        _BINDING_FLAGS,
        Key("universal", BOOLEAN, "nothing is compiled", default=False, until=1, successor="write [torch-noarch]"),
    ),
)
TORCH_NOARCH = TableModel(
    "Nothing is compiled.",
    (
        _pyext(),
        Key(
            "cuda-capabilities",
            STRINGS,
            "what the kernel is written for, for its metadata",
            (),
            other_spelling="cuda_capabilities",
        ),
        Key("rocm-archs", STRINGS, "what the kernel is written for, for its metadata", (), other_spelling="rocm_archs"),
    ),
)
TVM_FFI = TableModel(
    "An extension that is compiled against tvm-ffi.",
    (
        Key("src", PATHS, "the binding's sources and headers", (), required_since=1),
        _INCLUDE,
        _pyext(),
        _BINDING_FLAGS,
    ),
)
#: Name of a framework's table -> its model. Edition 1 has only the first, edition 4 all of them.
FRAMEWORKS = {"torch": TORCH, "torch-noarch": TORCH_NOARCH, "tvm-ffi": TVM_FFI}

WHEN = TableModel(
    "The variants that a section is for; all that is named has to be true.",
    (
        Key("cpu", choice("CPU", ("x86_64", "aarch64")), "of the variant"),
        Key("os", choice("operating system", ("linux", "darwin", "windows")), "of the variant"),
        Key("cuda", SPECIFIER, 'range of toolkits, `">=12.8,<13"`'),
    ),
)
GENERATE = TableModel(
    "A step that writes sources, once for each state of what it reads.",
    (
        Key(
            "command",
            STRINGS,
            "the program and its arguments, run in a folder that holds copies of the inputs only",
            (),
            required_since=1,
        ),
        Key("outputs", PATHS, "the files that it writes; sources among them are compiled", (), required_since=1),
        Key("inputs", PATHS, "the files that it reads; globs may be used", ()),
    ),
)


def _runs_and_writes(_: dict[str, Any], values: dict[str, Any]) -> str:
    if not values["command"] or not values["outputs"]:
        return "a step has a command and outputs"
    return ""


_GENERATE_EXAMPLE = '{ command = ["python", "generate.py"], outputs = ["csrc/made.cu"] }'


def _ours(name: str, kind: Kind, doc: str, *backends: str, default: Any = ()) -> Key:
    return Key(name, kind, doc, default, since=5, backends=backends, ours=True)


SECTION = TableModel(
    "Sources that are compiled for one backend with the same flags.",
    (
        Key("language", LANGUAGE, "what the sources are written in", "cuda", until=1, successor="write `backend`"),
        Key("backend", choice("backend", SECTION_BACKENDS), "what it is compiled for", since=2, required_since=2),
        Key(
            "depends",
            choices("dependency", DEPENDENCIES, renamed={"cutlass_sycl": ("sycl_tla", 3)}),
            "libraries. Sources of a section without `torch` are compiled once for all torch versions",
            (),
            required_since=1,
        ),
        Key("src", PATHS, "sources and headers", (), required_since=1),
        _INCLUDE,
        Key("cxx-flags", STRINGS, "flags of C++ sources", (), since=2),
        Key(
            "cuda-capabilities",
            STRINGS,
            'all of the toolkit, or of `"9.0"`, `"9.0a"`, `"10.0f"`, `"12.1+PTX"`; what no toolkit has is an error, '
            "what this one lacks is left out with a notice",
            (),
            backends=("cuda",),
        ),
        Key("cuda-flags", STRINGS, "flags of `.cu` sources", (), since=2, backends=("cuda",)),
        Key("cuda-minver", VERSION, "the section is left out for older toolkits", since=2, backends=("cuda",)),
        Key("rocm-archs", STRINGS, 'all of the toolkit, or such as `"gfx942"`', (), backends=("rocm",)),
        Key("hip-flags", STRINGS, "flags of `.hip` and `.cu` sources", (), since=2, backends=("rocm",)),
        Key("sycl-flags", STRINGS, "flags of SYCL sources, after the usual ones", (), since=2, backends=("xpu",)),
        _ours("when", subtable(WHEN), "the variants that the section is for; all others leave it out", default=None),
        _ours(
            "generate",
            tables(GENERATE, _GENERATE_EXAMPLE, single=True, check=_runs_and_writes),
            f"a step that writes sources before they are compiled: `{_GENERATE_EXAMPLE}`",
        ),
        _ours("lineinfo", BOOLEAN, "device code tells profilers its source lines", "cuda", default=False),
        _ours("relocatable-device-code", BOOLEAN, "device code of several files is linked", "cuda", default=False),
        _ours("link", choices("library", LIBRARIES), "libraries of the toolkit, and `cuda`, the driver", "cuda"),
    ),
)
