"""Editions before 5: which edition a file is, what it means, and what is wrong with it at its place."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelyard.errors import Place
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.manifest import (
    BackendSettings,
    General,
    Generate,
    KernelSection,
    TorchNoarch,
    TorchSettings,
    When,
)
from kernelyard.formats.tables import ManifestError, written_key
from kernelyard.formats.variant import BACKENDS, VariantName
from kernelyard.formats.versions import Version

CPU = '[kernel.a_cpu]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["a.cpp"]\n'
CUDA = '[kernel.a_cuda]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["a.cu"]\n'
TORCH = '[torch]\nsrc = ["binding.cpp"]\n'

FIRST = f"""\
[general]
name = "gray"

{TORCH}
[kernel.gray]
language = "cuda-hipify"
cuda-capabilities = ["9.0"]
rocm-archs = ["gfx942"]
depends = ["torch", "cutlass_sycl"]
include = ["csrc"]
src = ["gray.cu"]

[kernel.plain]
depends = []
src = ["plain.cu"]

[kernel.apple]
language = "metal"
depends = []
src = ["gray.metal"]
"""
SECOND = f"""\
[general]
name = "gray"
universal = false
cuda-minver = "12.4"
cuda-maxver = "12.9"
python-depends = ["einops", "nvidia-cutlass-dsl"]

{TORCH}minver = "2.5"
{CUDA}{CPU}"""
THIRD = f'[general]\nname = "gray"\nbackends = ["cuda"]\n{TORCH}{CUDA}'
FOURTH = f'[general]\nname = "gray"\nversion = 2\nlicense = "MIT"\nbackends = ["cuda"]\n{TORCH}{CUDA}'
FIFTH = f'[general]\nname = "gray"\nversion = 2\nedition = 5\nlicense = "MIT"\nbackends = ["cuda"]\n{TORCH}{CUDA}'

NOT_A_NAME = "not a name for a kernel: 'gray_scale'; two or more lower-case letters, digits and dashes, a letter first"
SECTION = KernelSection("plain", "cuda", (), ("plain.cu",), (), (), (), (), None, (), (), ())


def mistakes(text: str) -> list[tuple[str, str, str, str]]:
    """Return code, line:column with key, what and hint of each mistake."""
    with pytest.raises(ManifestError) as caught:
        read_manifest(text, path="b")
    return [(error.code, str(error.place)[2:], error.what, error.hint) for error in caught.value.errors]


# What each edition means


def test_edition_1_compiles_hipify_sections_for_two_backends_and_metal_for_metal() -> None:
    manifest = read_manifest(FIRST)
    gray = replace(SECTION, name="gray", depends=("torch", "sycl_tla"), src=("gray.cu",), include=("csrc",))
    assert manifest.edition == 1
    assert manifest.kernels == (
        replace(gray, cuda_capabilities=("9.0",)),
        replace(gray, name="gray_rocm", backend="rocm", rocm_archs=("gfx942",)),
        SECTION,
        replace(SECTION, name="apple", backend="metal", src=("gray.metal",)),
    )
    assert manifest.general.backends == ("cuda", "rocm", "metal")
    assert (manifest.general.version, manifest.general.license) == (1, "")


def test_edition_1_universal_is_noarch() -> None:
    manifest = read_manifest('[general]\nname = "gray"\n[torch]\nuniversal = true\npyext = ["py", "json"]\n')
    assert (manifest.edition, manifest.framework) == (1, TorchNoarch(("py", "json"), (), ()))
    assert manifest.general.backends == ("cpu", "cuda", "metal", "rocm", "xpu")


def test_edition_2_takes_backends_from_sections_and_keeps_what_cuda_needs() -> None:
    manifest = read_manifest(SECOND)
    assert manifest.edition == 2
    assert manifest.general == General(
        name="gray",
        version=1,
        license="",
        backends=("cuda", "cpu"),
        upstream=None,
        source=None,
        python_depends=("einops",),
        kernel_depends=(),
        hub_repo_id=None,
        hub_branch=None,
        of_backend={"cuda": BackendSettings(Version("12.4"), Version("12.9"), ("nvidia-cutlass-dsl",))},
    )
    assert isinstance(manifest.framework, TorchSettings)
    assert manifest.framework.minver == Version("2.5")
    assert manifest.extensions == ()


def test_edition_2_universal_is_noarch_for_all_backends_it_knew() -> None:
    manifest = read_manifest('[general]\nname = "gray"\nuniversal = true\n')
    assert manifest.framework == TorchNoarch(("py", "pyi"), (), ())
    assert manifest.general.backends == ("cpu", "cuda", "metal", "rocm", "xpu")


def test_edition_3_may_leave_out_version_license_and_framework() -> None:
    manifest = read_manifest(THIRD)
    assert (manifest.edition, manifest.general.version, manifest.general.license) == (3, 1, "")
    noarch = read_manifest('[general]\nname = "gray"\nversion = 2\nlicense = "MIT"\nbackends = ["cuda"]\n')
    assert (noarch.edition, noarch.framework) == (3, TorchNoarch(("py", "pyi"), (), ()))
    assert (noarch.general.version, noarch.general.license) == (2, "MIT")


def test_edition_3_dependency_sycl_tla_by_its_former_name() -> None:
    renamed = FOURTH.replace('["torch"]', '["cutlass_sycl"]')
    assert (read_manifest(renamed).edition, read_manifest(renamed).kernels[0].depends) == (3, ("sycl_tla",))


def test_edition_4_means_the_same_as_edition_5() -> None:
    assert read_manifest(FOURTH) == read_manifest(FIFTH)
    assert (read_manifest(FOURTH).edition, read_manifest(FIFTH).edition) == (4, 5)


def test_edition_4_has_one_stable_abi() -> None:
    manifest = read_manifest(FOURTH.replace("[torch]", '[torch]\nstable-abi = "2.10"'))
    assert manifest.edition == 4
    assert isinstance(manifest.framework, TorchSettings)
    assert manifest.framework.stable_abi == dict.fromkeys(BACKENDS, Version("2.10"))


@pytest.mark.parametrize(
    ("text", "edition", "why"),
    [
        (FIRST, 1, "its sections have `language`"),
        (FIRST.replace('language = "cuda-hipify"\n', "").replace('language = "metal"\n', ""), 1, "have no `backend`"),
        ('[general]\nname = "gray"\n[torch]\nuniversal = true\n', 1, "it has `torch.universal`"),
        (SECOND, 2, "it has `universal` and no `backends`"),
        (f'[general]\nname = "gray"\n{TORCH}{CPU}', 2, "its sections have `backend`, and it has no `backends`"),
        (THIRD, 3, "it has `backends` and no `version`"),
        (THIRD.replace("backends", "version = 1\nbackends"), 3, "it has `backends` and no `license`"),
        (FOURTH, 4, "it has `version`, `license` and no `edition`"),
        (FOURTH.replace("[torch]", '[torch]\nstable-abi = "2.10"'), 4, "it has `torch.stable-abi`"),
        (FOURTH.replace("version", 'source = "https://x.org/y"\nversion'), 4, "it has `general.source`"),
        (FOURTH.partition("[torch]")[0] + "[torch-noarch]\n", 4, "it has [torch-noarch]"),
        (FOURTH.partition("[torch]")[0], 3, "it has no table of a framework"),
    ],
)
def test_an_old_edition_is_noted_with_what_tells_it(text: str, edition: int, why: str) -> None:
    (note, *_) = read_manifest(text).notes
    assert (note.code, note.key, note.severity) == ("KY231", ("general",), "warning")
    assert note.what.startswith(f"the manifest is of edition {edition}: ")
    assert why in note.what
    assert "kernelyard config migrate" in note.hint
    assert read_manifest(FIFTH).notes == ()


def test_what_an_old_section_has_without_effect_is_noted() -> None:
    manifest = read_manifest(FIRST.replace('language = "cuda-hipify"', 'language = "cuda"'))
    assert [(note.code, note.key) for note in manifest.notes[:-1]] == [("KY231", ("general",))]
    assert (manifest.notes[-1].code, manifest.notes[-1].key) == ("KY233", ("kernel", "gray", "rocm-archs"))
    assert manifest.kernels[0].rocm_archs == ()


# What is wrong is told under the rules of the edition that the file evidently is of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FOURTH.replace("src", "srcs", 1),
            ("KY203", "7:1: torch.srcs", "unknown key `srcs` in [torch]", "did you mean `src`?"),
        ),
        (
            FOURTH.replace("[torch]", "[torhc]"),
            ("KY203", "6:2: torhc", "unknown key `torhc`", "did you mean `torch`?"),
        ),
        (
            FOURTH.replace("license", "licence"),
            ("KY203", "4:1: general.licence", "unknown key `licence` in [general]", "did you mean `license`?"),
        ),
        (
            FOURTH.replace("backends", "backend"),
            ("KY203", "5:1: general.backend", "unknown key `backend` in [general]", "did you mean `backends`?"),
        ),
        (
            THIRD.replace("backends", "backedns"),
            ("KY203", "3:1: general.backedns", "unknown key `backedns` in [general]", "did you mean `backends`?"),
        ),
        (
            SECOND.replace("universal", "univarsal"),
            ("KY203", "3:1: general.univarsal", "unknown key `univarsal` in [general]", "did you mean `universal`?"),
        ),
        (
            FIRST.replace("rocm-archs", "rocm-arch"),
            (
                "KY203",
                "10:1: kernel.gray.rocm-arch",
                "unknown key `rocm-arch` in [kernel.gray]",
                "did you mean `rocm-archs`?",
            ),
        ),
        (
            FOURTH.replace("version", "universal = false\nversion"),
            (
                "KY203",
                "3:1: general.universal",
                "unknown key `universal` in [general]: it is gone since edition 3",
                "list the `backends`",
            ),
        ),
        (
            SECOND.replace('backend = "cpu"', 'backend = "cpu"\nwhen = { os = "linux" }'),
            (
                "KY203",
                "17:1: kernel.a_cpu.when",
                "unknown key `when` in [kernel.a_cpu]: it came with edition 5, and this file is of edition 2",
                "take it out, run `kernelyard config migrate`, and put it back",
            ),
        ),
        (
            FOURTH.replace("[torch]", '[torch]\nstable-abi = { cuda = "2.11" }'),
            (
                "KY202",
                "1:2: general",
                "the manifest names no edition, and its `torch.stable-abi` is a table, as of edition 5",
                "add `edition = 5` to [general]",
            ),
        ),
        (
            FOURTH + "lineinfo = true\n",
            (
                "KY202",
                "1:2: general",
                "the manifest names no edition, and a section has `lineinfo`, as of edition 5",
                "add `edition = 5` to [general]",
            ),
        ),
        (
            THIRD.replace('"gray"', '"gray_scale"'),
            (
                "KY206",
                "2:1: general.name",
                NOT_A_NAME,
                "`gray-scale` is one, and its Python package is gray_scale",
            ),
        ),
        (
            THIRD + "metal-std-version = 1\n",
            (
                "KY203",
                "10:1: kernel.a_cuda.metal-std-version",
                "unknown key `metal-std-version` in [kernel.a_cuda]",
                "known keys are backend, depends, src, include, cxx-flags, cuda-capabilities, cuda-flags, cuda-minver",
            ),
        ),
        (
            FOURTH.replace('["torch"]', '["cutlass_sycl", "x"]').replace("[torch]", "[torch]\ncxx-flags = []"),
            (
                "KY206",
                "11:12: kernel.a_cuda.depends[0]",
                "unknown dependency 'cutlass_sycl'",
                "did you mean `cutlass_4_5`?",
            ),
        ),
        (
            THIRD.replace(TORCH, ""),
            (
                "KY207",
                "1:1",
                "the manifest has no framework table",
                "add [torch] for an extension against torch, [tvm-ffi], or [torch-noarch] where nothing is compiled",
            ),
        ),
        (
            SECOND.replace("false", "true"),
            (
                "KY206",
                "3:1: general.universal",
                "`universal` means that nothing is compiled, yet there are sections",
                "",
            ),
        ),
        (
            f'[general]\nname = "gray"\n{TORCH}universal = true\n',
            ("KY206", "5:1: torch.universal", "`universal` means that nothing is compiled, yet src is given", ""),
        ),
        (
            f'[general]\nname = "gray"\nuniversal = false\n{TORCH}',
            (
                "KY204",
                "1:2: general",
                "no section tells what the kernel is built for",
                "add a [kernel.*] section, or `backends` and the other keys of edition 5",
            ),
        ),
        (
            FIRST.replace("[kernel.plain]", "[kernel.gray_rocm]"),
            (
                "KY206",
                "7:9: kernel.gray",
                "a section of language cuda-hipify is also one [kernel.gray_rocm], which there is already",
                "rename one of them",
            ),
        ),
        (
            FIRST.replace('"metal"', '"opencl"'),
            (
                "KY206",
                "20:1: kernel.apple.language",
                "unknown language 'opencl'",
                "known are cuda, cuda-hipify, metal",
            ),
        ),
        (
            FOURTH.replace("version = 2", "version = 2\nedition = 1"),
            (
                "KY202",
                "4:1: general.edition",
                "no manifest is of `edition = 1`: the key came with edition 5, older files have none",
                "take the line out, then run `kernelyard config migrate`",
            ),
        ),
    ],
)
def test_a_mistake_in_an_old_file_is_told_at_its_place(text: str, expected: tuple[str, str, str, str]) -> None:
    assert expected in mistakes(text)


def test_a_mistake_never_makes_a_file_one_of_an_older_edition() -> None:
    """Whatever single key is misspelt, the file is refused, and for that key."""
    for original in (FIRST, SECOND, THIRD, FOURTH, FIFTH):
        for number, line in enumerate(original.splitlines()):
            name, equals, rest = line.partition(" = ")
            if not equals:
                continue
            lines = original.splitlines()
            lines[number] = f"x{name}{equals}{rest}"
            found = mistakes("\n".join(lines))
            assert ("KY203", f"{number + 1}:1") in {(code, place.split(": ")[0]) for code, place, _, _ in found}, line


# Extensions


EXTENDED = (
    FIFTH
    + """\
include = ["csrc/*"]
when = { cpu = "x86_64", os = "linux", cuda = ">=12.8,<14" }
generate = { command = ["python", "make.py"], outputs = ["made.cu"], inputs = ["make.py", "*.in"] }
lineinfo = true
relocatable-device-code = true
link = ["cuda", "cublasLt"]
"""
)


def test_extensions_are_read() -> None:
    (section,) = read_manifest(EXTENDED).kernels
    assert section.when == When(cpu="x86_64", os="linux", cuda=">=12.8,<14")
    assert section.generate == (Generate(("python", "make.py"), ("made.cu",), ("make.py", "*.in")),)
    assert (section.lineinfo, section.relocatable_device_code, section.link) == (True, True, ("cuda", "cublasLt"))


def test_extensions_are_listed_with_their_keys() -> None:
    text = EXTENDED.replace("edition", 'python-depends = ["einops", "torchvision>=0.20"]\nedition')
    assert [(written_key(item.key), item.what) for item in read_manifest(text).extensions] == [
        (
            "general.python-depends[1]",
            "the requirement 'torchvision>=0.20' is an extension of Kernelyard",
        ),
        ("kernel.a_cuda.include[0]", "the glob 'csrc/*' is an extension of Kernelyard"),
        ("kernel.a_cuda.when", "`when` is an extension of Kernelyard"),
        ("kernel.a_cuda.generate.inputs[1]", "the glob '*.in' is an extension of Kernelyard"),
        ("kernel.a_cuda.generate", "`generate` is an extension of Kernelyard"),
        ("kernel.a_cuda.lineinfo", "`lineinfo` is an extension of Kernelyard"),
        ("kernel.a_cuda.relocatable-device-code", "`relocatable-device-code` is an extension of Kernelyard"),
        ("kernel.a_cuda.link", "`link` is an extension of Kernelyard"),
    ]
    assert read_manifest(FIFTH).extensions == ()


def test_steps_may_be_a_list() -> None:
    step = '{ command = ["x"], outputs = ["y.cu"] }'
    (section,) = read_manifest(f"{FIFTH}generate = [{step}, {step}]\n").kernels
    assert section.generate == (Generate(("x",), ("y.cu",)),) * 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("when = {}", ("KY206", "when", "a condition that names nothing")),
        ('when = { cpu = "x86" }', ("KY206", "when.cpu", "unknown CPU 'x86'")),
        ('when = { cuda = "12.8" }', ("KY206", "when.cuda", "not a range of versions such as '>=12.8': '12.8'")),
        ('when = { cuda = "" }', ("KY206", "when.cuda", "not a range of versions such as '>=12.8': ''")),
        ('when = { gpu = "H100" }', ("KY203", "when.gpu", "unknown key `gpu` in [kernel.a_cuda.when]")),
        ("generate = 1", ("KY205", "generate", "expected a list, found an integer (1)")),
        ("generate = [1]", ("KY205", "generate[0]", "expected a table")),
        (
            'generate = { command = [], outputs = ["a"] }',
            ("KY206", "generate", "a step has a command and outputs"),
        ),
        (
            'generate = { command = ["a"] }',
            ("KY204", "generate", "the key `outputs` is missing in [kernel.a_cuda.generate]"),
        ),
        (
            'generate = { command = ["a"], outputs = ["../a"] }',
            ("KY209", "generate.outputs[0]", "a path that leaves the project: '../a'"),
        ),
        ('link = ["cublass"]', ("KY206", "link[0]", "unknown library 'cublass'")),
        ("lineinfo = 1", ("KY205", "lineinfo", "expected a boolean, found an integer (1)")),
        ('include = ["a**/b"]', ("KY206", "include[0]", "not a glob: 'a**/b'")),
    ],
)
def test_a_mistake_in_an_extension_is_told(line: str, expected: tuple[str, str, str]) -> None:
    found = [(code, place.split("kernel.a_cuda.")[-1], what) for code, place, what, _ in mistakes(f"{FIFTH}{line}\n")]
    assert expected in found


def test_only_cuda_sections_have_what_only_cuda_has() -> None:
    text = FIFTH.replace("cuda", "cpu")
    assert mistakes(f"{text}lineinfo = true\n")[0][2:] == (
        "unknown key `lineinfo` in [kernel.a_cpu]: it is for cuda only",
        "",
    )
    assert mistakes(f'{text}when = {{ cuda = ">=12" }}\n')[0][2] == "a section of backend cpu has no CUDA version"


@pytest.mark.parametrize("name", ["einop s", "numpy >> 2", "=1", ""])
def test_a_requirement_has_to_be_one(name: str) -> None:
    (code, place, what, _) = mistakes(FIFTH.replace("edition", f'python-depends = ["{name}"]\nedition'))[0]
    assert (code, place, what) == ("KY206", "4:19: general.python-depends[0]", f"not a Python requirement: {name!r}")


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(), True),
        (When(cpu="x86_64", os="linux", cuda=">=12.8"), True),
        (When(cpu="aarch64"), False),
        (When(os="windows"), False),
        (When(cuda="<13"), False),
        (When(cuda="~=13.0"), True),
    ],
)
def test_a_condition_applies_if_all_of_it_is_true(*, when: When, expected: bool) -> None:
    assert when.applies_to(VariantName.parse("torch-stable-abi211-cu130-x86_64-linux")) is expected
    assert not When(cuda=">=12").applies_to(VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"))


# Nothing but a positioned error comes of anything


LINES = st.sampled_from(
    [line for text in (FIRST, SECOND, THIRD, FOURTH, EXTENDED) for line in text.splitlines() if line]
    + ["[torch-noarch]", "[tvm-ffi]", "universal = true", "edition = 4", "[kernel]", "x = 1", "[general.tpu]"]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(LINES, max_size=14).map("\n".join) | st.text())
def test_any_text_is_a_manifest_or_mistakes_with_a_place_in_the_text(text: str) -> None:
    try:
        manifest = read_manifest(text)
    except ManifestError as error:
        lines = text.split("\n")
        for mistake in error.errors:
            place = mistake.place or Place("", math.inf)  # type: ignore[arg-type]
            assert place.line is not None
            assert place.column is not None
            assert 1 <= place.line <= len(lines)
            assert 1 <= place.column <= len(lines[place.line - 1]) + 1
            assert mistake.code.startswith("KY2")
    else:
        assert manifest.general.backends
        assert bool(manifest.notes) is (manifest.edition < 5)
