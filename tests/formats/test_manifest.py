from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelyard.errors import Place
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import (
    BackendSettings,
    General,
    KernelDependency,
    KernelSection,
    Manifest,
    TorchNoarch,
    TorchSettings,
    TvmFfiSettings,
)
from kernelyard.formats.tables import ManifestError
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.versions import Version

GENERAL = """\
[general]
name = "gray"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]
"""
LEAST = GENERAL + "[torch]\n"

EVERYTHING = """\
[general]
name = "gray-scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cuda", "rocm", "xpu", "metal", "cpu", "cuda"]
upstream = "https://github.com/org/gray.git"
source = "git@github.com:org/gray-kernel.git"
python-depends = ["einops"]
kernel-depends = [{ repo-id = "org/base", version = 2 }, { repo-id = "org/other", revision = "main" }]

[general.hub]
repo-id = "org/gray-scale"
branch = "next"

[general.cuda]
minver = "12.8"
maxver = "13.0"
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = [{ repo-id = "org/of-cuda", version = 0 }]

[general.xpu]
python-depends = ["onednn"]

[general.neuron]
python-depends = ["nki"]

[general.tpu]
python-depends = ["jax"]

[torch]
src = ["torch-ext/binding.cpp", "torch-ext/binding.h"]
include = ["csrc"]
pyext = ["py", "json"]
minver = "2.9"
maxver = "2.13"
stable-abi = { cuda = "2.11", cpu = "2.10" }
cxx-flags = ["-O3"]

[kernel.of_cuda]
backend = "cuda"
depends = ["torch", "cutlass_4_0"]
src = ["csrc/gray.cu"]
include = ["csrc", "include"]
cxx-flags = ["-DX=1"]
cuda-capabilities = ["9.0a", "12.0+PTX"]
cuda-flags = ["--use_fast_math"]
cuda-minver = "12.9"

[kernel.of-rocm]
backend = "rocm"
depends = []
src = ["csrc/gray.hip"]
rocm-archs = ["gfx942"]
hip-flags = ["-ffast-math"]

[kernel.of_xpu]
backend = "xpu"
depends = ["sycl_tla"]
src = ["csrc/gray.sycl"]
sycl-flags = ["-fsycl"]

[kernel.of_metal]
backend = "metal"
depends = ["metal-cpp"]
src = ["csrc/gray.metal"]

[kernel.of_cpu]
backend = "cpu"
depends = ["torch"]
src = ["csrc/gray.cpp"]
"""

MEND = "mend it there, or just before; https://toml.io tells how TOML is written"
NOT_A_NAME = "not a name for a kernel: 'Gray_scale'; two or more lower-case letters, digits and dashes, a letter first"

SECTION = KernelSection(
    name="of_cpu",
    backend="cpu",
    depends=("torch",),
    src=("csrc/gray.cpp",),
    include=(),
    cxx_flags=(),
    cuda_capabilities=(),
    cuda_flags=(),
    cuda_minver=None,
    rocm_archs=(),
    hip_flags=(),
    sycl_flags=(),
)


def errors(text: str) -> list[tuple[str, str, str | None, str, str]]:
    """Return code, line:column, key, what and hint of each mistake."""
    with pytest.raises(ManifestError) as caught:
        read_manifest(text)
    found = []
    for error in caught.value.errors:
        place = error.place
        assert place is not None
        assert place.path == "build.toml"
        found.append((error.code, f"{place.line}:{place.column}", place.key, error.what, error.hint))
    return found


def test_every_key_of_every_table_is_read() -> None:
    manifest = read_manifest(EVERYTHING)
    assert manifest == Manifest(
        general=General(
            name="gray-scale",
            version=3,
            license="Apache-2.0",
            backends=("cuda", "rocm", "xpu", "metal", "cpu"),
            upstream="https://github.com/org/gray.git",
            source="git@github.com:org/gray-kernel.git",
            python_depends=("einops",),
            kernel_depends=(KernelDependency("org/base", 2, None), KernelDependency("org/other", None, "main")),
            hub_repo_id="org/gray-scale",
            hub_branch="next",
            of_backend={
                "cuda": BackendSettings(
                    minver=Version("12.8"),
                    maxver=Version("13.0"),
                    python_depends=("nvidia-cutlass-dsl",),
                    kernel_depends=(KernelDependency("org/of-cuda", 0, None),),
                ),
                "neuron": BackendSettings(python_depends=("nki",)),
                "tpu": BackendSettings(python_depends=("jax",)),
                "xpu": BackendSettings(python_depends=("onednn",)),
            },
        ),
        framework=TorchSettings(
            src=("torch-ext/binding.cpp", "torch-ext/binding.h"),
            include=("csrc",),
            pyext=("py", "json"),
            minver=Version("2.9"),
            maxver=Version("2.13"),
            stable_abi={"cuda": Version("2.11"), "cpu": Version("2.10")},
            cxx_flags=("-O3",),
        ),
        kernels=(
            replace(
                SECTION,
                name="of_cuda",
                backend="cuda",
                depends=("torch", "cutlass_4_0"),
                src=("csrc/gray.cu",),
                include=("csrc", "include"),
                cxx_flags=("-DX=1",),
                cuda_capabilities=("9.0a", "12.0+PTX"),
                cuda_flags=("--use_fast_math",),
                cuda_minver=Version("12.9"),
            ),
            replace(
                SECTION,
                name="of-rocm",
                backend="rocm",
                depends=(),
                src=("csrc/gray.hip",),
                rocm_archs=("gfx942",),
                hip_flags=("-ffast-math",),
            ),
            replace(
                SECTION,
                name="of_xpu",
                backend="xpu",
                depends=("sycl_tla",),
                src=("csrc/gray.sycl",),
                sycl_flags=("-fsycl",),
            ),
            replace(SECTION, name="of_metal", backend="metal", depends=("metal-cpp",), src=("csrc/gray.metal",)),
            SECTION,
        ),
    )
    assert manifest.general.python_name == "gray_scale"
    assert manifest.framework_of("cuda") == manifest.framework_of("cpu") == "torch-stable-abi"
    assert manifest.framework_of("xpu") == "torch"
    assert [section.name for section in manifest.sections_of("cpu")] == ["of_cpu"]


def test_what_is_left_out_has_its_default() -> None:
    assert read_manifest(LEAST) == Manifest(
        General(
            name="gray",
            version=1,
            license="MIT",
            backends=("cpu",),
            upstream=None,
            source=None,
            python_depends=(),
            kernel_depends=(),
            hub_repo_id=None,
            hub_branch=None,
            of_backend={},
        ),
        TorchSettings(src=(), include=(), pyext=("py", "pyi"), minver=None, maxver=None, stable_abi={}, cxx_flags=()),
        (),
    )


def test_one_stable_abi_is_for_all_backends() -> None:
    manifest = read_manifest(LEAST + 'stable-abi = "2.11"\n')
    assert isinstance(manifest.framework, TorchSettings)
    assert manifest.framework.stable_abi == dict.fromkeys(BACKENDS, Version("2.11"))
    assert {manifest.framework_of(backend) for backend in BACKENDS} == {"torch-stable-abi"}


@pytest.mark.parametrize(("cuda", "rocm"), [("cuda-capabilities", "rocm-archs"), ("cuda_capabilities", "rocm_archs")])
def test_noarch_takes_both_spellings(cuda: str, rocm: str) -> None:
    manifest = read_manifest(f'{GENERAL}[torch-noarch]\n{cuda} = ["9.0"]\n{rocm} = ["gfx942"]\npyext = ["py"]\n')
    assert manifest.framework == TorchNoarch(pyext=("py",), cuda_capabilities=("9.0",), rocm_archs=("gfx942",))
    assert manifest.framework_of("cuda") == "torch-noarch"


def test_noarch_takes_one_spelling_at_a_time() -> None:
    text = f'{GENERAL}[torch-noarch]\nrocm_archs = ["gfx942"]\nrocm-archs = ["gfx950"]\n'
    assert errors(text) == [
        (
            "KY203",
            "8:1",
            "torch-noarch.rocm_archs",
            "both `rocm-archs` and `rocm_archs` are given",
            "keep one of them",
        )
    ]


def test_tvm_ffi_is_read() -> None:
    manifest = read_manifest(f'{GENERAL}[tvm-ffi]\nsrc = ["b.cc"]\ninclude = ["i"]\ncxx-flags = ["-O2"]\n')
    assert manifest.framework == TvmFfiSettings(src=("b.cc",), include=("i",), pyext=("py", "pyi"), cxx_flags=("-O2",))
    assert manifest.framework_of("cpu") == "tvm-ffi"


def test_inline_and_dotted_tables_are_tables() -> None:
    text = (
        'torch = {}\nkernel.a = { backend = "cpu", depends = [], src = ["a.cpp"] }\n'
        'general = { name = "gray", version = 1, edition = 5, license = "MIT", backends = ["cpu"] }\n'
    )
    assert read_manifest(text).kernels == (replace(SECTION, name="a", depends=(), src=("a.cpp",)),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = ", ("KY201", "1:5", None, "not valid TOML: Invalid value", MEND)),
        ("x = 1\nx = 2\n", ("KY201", "2:6", None, "not valid TOML: Cannot overwrite a value", MEND)),
        (
            "[torch]\n",
            ("KY204", "1:1", None, "the key `general` is missing", "add `general = ...`"),
        ),
        (
            '[general]\nname = "gray"\n[torch]\n',
            ("KY202", "1:2", "general", "the manifest names no edition", "add `edition = 5` to [general]"),
        ),
        (
            LEAST.replace("edition = 5", "edition = 4"),
            (
                "KY202",
                "4:1",
                "general.edition",
                "no manifest is of `edition = 4`: the key came with edition 5, older files have none",
                "take the line out, then run `kernelyard config migrate`",
            ),
        ),
        (
            LEAST.replace("edition = 5", "edition = 6"),
            (
                "KY202",
                "4:1",
                "general.edition",
                "edition 6 is newer than this program, which reads editions up to 5",
                "pip install --upgrade kernelyard",
            ),
        ),
        (
            LEAST.replace("edition = 5", 'edition = "5"'),
            ("KY205", "4:1", "general.edition", "expected an integer, found a string ('5')", ""),
        ),
        (
            LEAST.replace("license", "licence"),
            ("KY204", "1:2", "general", "the key `license` is missing in [general]", "add `license = ...`"),
        ),
        (
            LEAST + 'stable_abi = "2.11"\n',
            ("KY203", "8:1", "torch.stable_abi", "unknown key `stable_abi` in [torch]", "did you mean `stable-abi`?"),
        ),
        (
            LEAST + "[kernels.a]\n",
            ("KY203", "8:2", "kernels", "unknown key `kernels`", "did you mean `kernel`?"),
        ),
        (
            LEAST + "zzz = 1\n",
            (
                "KY203",
                "8:1",
                "torch.zzz",
                "unknown key `zzz` in [torch]",
                "known keys are src, include, pyext, minver, maxver, stable-abi, cxx-flags",
            ),
        ),
        (
            LEAST + 'src = "a.cpp"\n',
            ("KY205", "8:1", "torch.src", "expected a list, found a string ('a.cpp')", 'write it as a list: ["a.cpp"]'),
        ),
        (
            LEAST + "minver = 2.9\n",
            ("KY205", "8:1", "torch.minver", "expected a string, found a float (2.9)", 'write it in quotes: "2.9"'),
        ),
        (
            LEAST + 'src = ["a.cpp", 7]\n',
            ("KY205", "8:17", "torch.src[1]", "expected a string, found an integer (7)", ""),
        ),
        (
            LEAST.replace("version = 1", "version = true"),
            ("KY205", "3:1", "general.version", "expected an integer, found a boolean (True)", ""),
        ),
        (
            LEAST.replace("version = 1", "version = -1"),
            ("KY206", "3:1", "general.version", "a version is not negative: -1", ""),
        ),
        (
            LEAST.replace("version = 1", "version = 9223372036854775808"),
            ("KY206", "3:1", "general.version", "a number that does not fit into 64 bits", ""),
        ),
        (
            LEAST.replace('"gray"', '"Gray_scale"'),
            (
                "KY206",
                "2:1",
                "general.name",
                NOT_A_NAME,
                "`gray-scale` is one, and its Python package is gray_scale",
            ),
        ),
        (
            LEAST.replace('["cpu"]', '["cpu", "cudda"]'),
            ("KY206", "6:20", "general.backends[1]", "unknown backend 'cudda'", "did you mean `cuda`?"),
        ),
        (
            LEAST.replace('["cpu"]', "[]"),
            (
                "KY206",
                "6:1",
                "general.backends",
                "at least one backend is needed",
                'for example backends = ["cuda", "cpu"]',
            ),
        ),
        (
            LEAST + 'maxver = "2.x"\n',
            ("KY206", "8:1", "torch.maxver", "not a version of dot-separated numbers: '2.x'", ""),
        ),
        (
            LEAST + 'stable-abi = "new"\n',
            (
                "KY206",
                "8:1",
                "torch.stable-abi",
                "not a version of dot-separated numbers: 'new'",
                'a torch version such as stable-abi = "2.11"',
            ),
        ),
        (
            LEAST + 'stable-abi = { cpu = "2.11", cudda = "2.11" }\n',
            (
                "KY203",
                "8:30",
                "torch.stable-abi.cudda",
                "unknown key `cudda` in [torch.stable-abi]",
                "did you mean `cuda`?",
            ),
        ),
        (
            GENERAL + 'upstream = "not an address"\n[torch]\n',
            ("KY206", "7:1", "general.upstream", "not a git address: 'not an address'", ""),
        ),
        (
            GENERAL + 'hub.repo-id = "gray"\n[torch]\n',
            ("KY206", "7:5", "general.hub.repo-id", "not a repository of the form org/name: 'gray'", ""),
        ),
        (
            GENERAL + 'kernel-depends = ["org/base"]\n[torch]\n',
            (
                "KY205",
                "7:19",
                "general.kernel-depends[0]",
                "expected a table",
                '{ repo-id = "org/name", version = 1 }',
            ),
        ),
        (
            GENERAL + 'kernel-depends = [{ repo-id = "org/base" }]\n[torch]\n',
            ("KY206", "7:19", "general.kernel-depends[0]", "give exactly one of `version` and `revision`", ""),
        ),
        (
            GENERAL + 'kernel-depends = [{ repo-id = "o/b", version = 1, revision = "x" }]\n[torch]\n',
            ("KY206", "7:19", "general.kernel-depends[0]", "give exactly one of `version` and `revision`", ""),
        ),
        (
            GENERAL + '[[general.kernel-depends]]\nrepo-id = "o/b"\nversion = 1\n[[general.kernel-depends]]\n'
            "version = 1\n[torch]\n",
            (
                "KY204",
                "10:1",
                "general.kernel-depends[1]",
                "the key `repo-id` is missing in [general.kernel-depends[1]]",
                "add `repo-id = ...`",
            ),
        ),
        (
            GENERAL,
            (
                "KY207",
                "1:1",
                None,
                "the manifest has no framework table",
                "add [torch] for an extension against torch, [tvm-ffi], or [torch-noarch] where nothing is compiled",
            ),
        ),
        (
            LEAST + "[torch-noarch]\n",
            (
                "KY207",
                "8:2",
                "torch-noarch",
                "both [torch] and [torch-noarch] are given",
                "a kernel has exactly one of them",
            ),
        ),
        (
            LEAST + 'src = ["csrc/a.cpp", "../b.cpp"]\n',
            ("KY209", "8:22", "torch.src[1]", "a path that leaves the project: '../b.cpp'", "use a path inside it"),
        ),
        (
            LEAST + 'include = ["/usr/include"]\n',
            (
                "KY209",
                "8:12",
                "torch.include[0]",
                "a path that leaves the project: '/usr/include'",
                "use a path inside it",
            ),
        ),
        (
            LEAST + '[kernel.a]\nbackend = "cpu"\ndepends = ["cutlass"]\nsrc = []\n',
            ("KY206", "10:12", "kernel.a.depends[0]", "unknown dependency 'cutlass'", "did you mean `cutlass_4_5`?"),
        ),
        (
            LEAST + '[kernel.a]\nbackend = "cpu"\ndepends = []\nsrc = []\ncuda-flags = []\n',
            (
                "KY203",
                "12:1",
                "kernel.a.cuda-flags",
                "unknown key `cuda-flags` in [kernel.a]: it is for cuda only",
                "did you mean `cxx-flags`?",
            ),
        ),
        (
            LEAST + '[kernel.a]\nbackend = "cudda"\ndepends = []\nsrc = []\n',
            ("KY206", "9:1", "kernel.a.backend", "unknown backend 'cudda'", "did you mean `cuda`?"),
        ),
        (
            LEAST + '[kernel."a b"]\nbackend = "cpu"\ndepends = []\nsrc = []\n',
            ("KY206", "8:9", "kernel.a b", "not a name for a section: 'a b'", "use letters, digits, `_` and `-`"),
        ),
        (
            LEAST + "[kernel]\na = 1\n",
            ("KY205", "9:1", "kernel.a", "expected a table, found an integer (1)", ""),
        ),
        (
            "torch = 1\n" + GENERAL,
            ("KY205", "1:1", "torch", "expected a table, found an integer (1)", ""),
        ),
        (
            LEAST.replace('"MIT"', "0x" + "f" * 9000),
            (
                "KY205",
                "5:1",
                "general.license",
                "expected a string, found an integer (too large to show)",
                'write it in quotes: "too large to show"',
            ),
        ),
    ],
)
def test_a_mistake_is_told_with_code_place_key_and_next_step(
    text: str, expected: tuple[str, str, str | None, str, str]
) -> None:
    assert expected in errors(text)


def test_a_message_is_place_key_what_code_and_hint() -> None:
    with pytest.raises(ManifestError) as caught:
        read_manifest(LEAST + "scr = []\n", path="gray/build.toml")
    assert str(caught.value) == (
        "gray/build.toml:8:1: torch.scr: unknown key `scr` in [torch] [KY203]\n  did you mean `src`?"
    )
    assert caught.value.code == "KY203"
    assert caught.value.place == Place("gray/build.toml", 8, 1, "torch.scr")
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, ValueError)


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    text = (
        "[kernel.a]\nbackend = 'cpu'\nsrc = ['/a.cpp']\nincude = []\n"
        "[torch]\nminver = 2\n"
        "[general]\nname = 'X'\nversion = 1\nedition = 5\nbackends = ['cpu', 'qpu']\nlicense = 1\n"
    )
    found = errors(text)
    assert [(code, place, key) for code, place, key, _, _ in found] == [
        ("KY204", "1:9", "kernel.a"),
        ("KY209", "3:8", "kernel.a.src[0]"),
        ("KY203", "4:1", "kernel.a.incude"),
        ("KY205", "6:1", "torch.minver"),
        ("KY206", "8:1", "general.name"),
        ("KY206", "11:20", "general.backends[1]"),
        ("KY205", "12:1", "general.license"),
    ]


def test_columns_are_characters_and_keys_may_be_quoted() -> None:
    text = LEAST + 'stable-abi = { "größer" = "日本", \'bc\' = 1 }\n'
    assert [(code, place, key) for code, place, key, _, _ in errors(text)] == [
        ("KY203", "8:16", "torch.stable-abi.größer"),
        ("KY203", "8:33", "torch.stable-abi.bc"),
    ]


def test_nesting_without_end_and_numbers_without_end_are_mistakes_like_others() -> None:
    assert errors("a = " + "[" * 100_000)[0][:2] == ("KY201", "1:1")
    assert errors("a = " + "9" * 5000)[0][:2] == ("KY201", "1:1")


TOML_LINES = st.sampled_from([*EVERYTHING.splitlines(), *LEAST.splitlines()])
SCALARS = st.sampled_from(
    ["1", "-1", "2.5", '"2.11"', "true", "[]", "{}", '["a"]', "[1]", '"é"', "0x" + "f" * 40, "1979-05-27"]
)
KEYS = st.sampled_from(
    [line.split(" ")[0] for line in EVERYTHING.splitlines() if "=" in line] + ["x", '"größe"', "hub.x", "cuda"]
)
PAIRS = st.tuples(KEYS, SCALARS).map(lambda pair: f"{pair[0]} = {pair[1]}")
HEADS = st.sampled_from(
    [line for line in EVERYTHING.splitlines() if line.startswith("[")] + ["[[general.kernel-depends]]"]
)


@settings(deadline=None, max_examples=300)
@given(
    st.text()
    | st.lists(TOML_LINES | PAIRS | HEADS, max_size=12).map("\n".join)
    | st.lists(PAIRS | HEADS, max_size=6).map("\n".join).map(LEAST.__add__)
)
def test_any_text_is_a_manifest_or_mistakes_with_a_place_in_the_text(text: str) -> None:
    try:
        assert read_manifest(text).general.backends
    except ManifestError as error:
        mistakes = error.errors
    else:
        return
    places = [mistake.place or Place("") for mistake in mistakes]
    lines = text.split("\n")
    for place in places:
        assert place.line is not None
        assert place.column is not None
        assert 1 <= place.line <= len(lines)
        assert 1 <= place.column <= len(lines[place.line - 1]) + 1
    assert places == sorted(places, key=lambda place: place[1:3])
    assert all(mistake.code.startswith("KY2") for mistake in mistakes)
