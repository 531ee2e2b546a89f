from __future__ import annotations

import pytest

from kernelyard.build.matrix import MatrixEntry, matrix
from kernelyard.build.selection import Selection, matching, select
from kernelyard.errors import InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.versions import Version

STABLE = '[torch]\nstable-abi = "2.11"'
FULL = "[torch]"
CPU = "torch-stable-abi211-cpu-x86_64-linux"


def entries(backends: str, framework: str, general: str = "", cuda: str | None = None) -> tuple[MatrixEntry, ...]:
    head = f'[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = {backends}\n'
    manifest = read_manifest(f"{head}{general}\n{framework}\n")
    return matrix(manifest, cuda=Version(cuda) if cuda else None)


def names(chosen: tuple[MatrixEntry, ...]) -> list[str]:
    return [entry.name for entry in chosen]


OLD_STRING = [f"torch2{minor}-cxx98-cu124-x86_64-linux" for minor in (5, 6)]


def full(minors: range, compute: str) -> list[str]:
    return [f"torch2{minor}-cxx11-{compute}-x86_64-linux" for minor in minors]


def stable(*computes: str) -> list[str]:
    return [f"torch-stable-abi211-{compute}-x86_64-linux" for compute in computes]


def test_without_globs_all_that_can_be_built_is_selected() -> None:
    found = entries('["rocm", "cpu"]', '[torch]\nstable-abi = "2.11"')
    assert names(select(found, [])) == ["torch-stable-abi211-cpu-x86_64-linux"]


def test_globs_select_each_variant_once_in_their_order() -> None:
    found = entries('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"')
    assert names(select(found, ["*-cpu-*", "*"])) == [
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]


def test_a_glob_takes_what_is_not_built_by_default_only_where_it_means_nothing_else() -> None:
    found = entries('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"')
    assert names(select(found, ["*-cu13*"])) == ["torch-stable-abi211-cu130-x86_64-linux"]
    assert names(select(found, ["*-cu124-*", "*-cu13[12]-*"])) == [
        "torch-stable-abi211-cu124-x86_64-linux",
        "torch-stable-abi211-cu131-x86_64-linux",
        "torch-stable-abi211-cu132-x86_64-linux",
    ]


@pytest.mark.parametrize(
    ("globs", "code", "what", "hint"),
    [
        (
            ["torch-stable-abi211-cpu-x86-linux"],
            "KY401",
            "no variant matches 'torch-stable-abi211-cpu-x86-linux'",
            "did you mean `torch-stable-abi211-cpu-x86_64-linux`?",
        ),
        (["zz*"], "KY401", "no variant matches 'zz*'", "the matrix has rocm, torch-stable-abi211-cpu-x86_64-linux"),
        (["rocm"], "KY402", "rocm cannot be built here: this version has no compiler for the backend rocm", ""),
    ],
)
def test_a_glob_that_selects_nothing_is_refused(globs: list[str], code: str, what: str, hint: str) -> None:
    found = entries('["rocm", "cpu"]', '[torch]\nstable-abi = "2.11"')
    with pytest.raises(InputError) as caught:
        select(found, globs)
    assert (caught.value.code, caught.value.what, caught.value.hint) == (code, what, hint)


def test_a_kernel_of_which_nothing_can_be_built_is_refused_with_all_reasons() -> None:
    with pytest.raises(InputError) as caught:
        select(entries('["rocm", "xpu"]', "[torch]"), [])
    assert caught.value.code == "KY402"
    assert caught.value.what == (
        "nothing can be built here: rocm: this version has no compiler for the backend rocm; "
        "xpu: this version has no compiler for the backend xpu"
    )


def test_a_reason_that_many_variants_have_is_told_once() -> None:
    with pytest.raises(InputError) as caught:
        select(entries('["cuda"]', STABLE, '[general.cuda]\nminver = "14.0"'), [])
    assert caught.value.what == (
        "nothing can be built here: 11 variants: general.cuda.minver or maxver leaves this toolkit out"
    )


@pytest.mark.parametrize(
    ("toolkit", "framework", "bounds", "said"),
    [
        (
            "12.8",
            '[torch]\nstable-abi = "2.11"',
            '[general.cuda]\nminver = "13.0"',
            "torch-stable-abi211-cu128-x86_64-linux: general.cuda.minver or maxver leaves this toolkit out",
        ),
        (
            "13.2",
            "[tvm-ffi]\nsrc = []",
            '[general.cuda]\nmaxver = "13.1"',
            "tvm-ffi01-cu132-x86_64-linux: general.cuda.minver or maxver leaves this toolkit out",
        ),
        (
            "11.8",
            '[torch]\nstable-abi = "2.11"',
            "",
            "torch-stable-abi211-cu118-x86_64-linux: CUDA 11.8 has no runtime to link in",
        ),
        (
            "11.8",
            '[torch]\nminver = "2.9"',
            "",
            "cuda: no torch that the manifest allows was ever built for CUDA 11.8",
        ),
    ],
)
@pytest.mark.parametrize("patterns", [[], ["*"]])
def test_a_toolkit_that_is_asked_for_and_cannot_be_used_is_not_passed_over(
    toolkit: str, framework: str, bounds: str, said: str, patterns: list[str]
) -> None:
    found = entries('["cuda", "cpu"]', framework, bounds, cuda=toolkit)
    with pytest.raises(InputError) as caught:
        select(found, patterns)
    assert caught.value.code == "KY402"
    assert caught.value.what.startswith(f"the CUDA toolkit that was asked for cannot be used, {said}")
    assert "change its bounds" in caught.value.hint
    (cpu, *_) = select(found, ["*-cpu-*"])
    assert (cpu.obstacle, cpu.by_default) == (None, True)


def test_a_toolkit_that_is_asked_for_is_the_default() -> None:
    found = entries('["cuda", "cpu"]', '[torch]\nstable-abi = "2.11"', cuda="12.8")
    assert names(select(found, [])) == [
        "torch-stable-abi211-cu128-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
    ]


# By torch, toolkit and backend


@pytest.mark.parametrize(
    ("framework", "asked", "expected"),
    [
        (STABLE, Selection.parse(torch=["2.13"]), stable("cu130", "cpu")),
        (STABLE, Selection.parse(torch=["2.13"], backend=["cpu"]), stable("cpu")),
        (STABLE, Selection.parse(backend=["cuda"]), stable("cu130")),
        # Only variants for CUDA are meant by a toolkit, unless another backend is named too.
        (STABLE, Selection.parse(cuda=["12.4"]), stable("cu124")),
        (STABLE, Selection.parse(cuda=["12.4"], backend=["cuda", "cpu"]), stable("cu124", "cpu")),
        (STABLE, Selection.parse(cuda=["12.8"]), stable("cu128")),
        (STABLE, Selection.parse(cuda=["12.4", "13.1"]), stable("cu124", "cu131")),
        # Of a range the default, else what can be fetched.
        (STABLE, Selection.parse(cuda=["13"]), stable("cu130")),
        (STABLE, Selection.parse(cuda=["12"]), stable("cu124")),
        (STABLE, Selection.parse(cuda=[">13.0,<13.3"]), stable("cu131", "cu132")),
        (STABLE, Selection.parse(cuda=[">12.4,<13"]), stable("cu126", "cu128", "cu129")),
        # Each torch with the toolkit that is its default.
        (FULL, Selection.parse(torch=["2.13"]), [*full(range(13, 14), "cu130"), *full(range(13, 14), "cpu")]),
        (
            FULL,
            Selection.parse(torch=[">=2.8,<2.10"], backend=["cuda"]),
            [*full(range(8, 9), "cu124"), *full(range(9, 10), "cu130")],
        ),
        (FULL, Selection.parse(torch=["2.8", "2.9"], backend=["cpu"]), full(range(8, 10), "cpu")),
        # With a toolkit the default torches, else all that there are builds of.
        (FULL, Selection.parse(cuda=["13.0"]), full(range(11, 16), "cu130")),
        (FULL, Selection.parse(cuda=["12.4"]), [*OLD_STRING, *full(range(7, 16), "cu124")]),
        (FULL, Selection.parse(cuda=["12.4"], torch=["<2.9"]), [*OLD_STRING, *full(range(7, 9), "cu124")]),
        (FULL, Selection.parse(globs=["torch21[34]-*-cu13*"]), full(range(13, 15), "cu130")),
        (FULL, Selection.parse(globs=["torch21[34]-*"], cuda=["12.4"]), full(range(13, 15), "cu124")),
        (FULL, Selection.parse(globs=["*"], torch=["2.12"], backend=["cpu"]), full(range(12, 13), "cpu")),
        ("[torch-noarch]", Selection.parse(torch=["2.13"], cuda=["12.4"]), ["torch-cuda"]),
        ("[tvm-ffi]\nsrc = []", Selection.parse(torch=["2.13"], cuda=["12.4"]), ["tvm-ffi01-cu124-x86_64-linux"]),
    ],
)
def test_properties_select(framework: str, asked: Selection, expected: list[str]) -> None:
    assert names(select(entries('["cuda", "cpu"]', framework), asked)) == expected


def test_a_toolkit_of_the_machine_is_the_default_of_each_torch() -> None:
    found = entries('["cuda"]', FULL, cuda="12.8")
    chosen = select(found, Selection.parse(torch=[">=2.8,<2.10"]), cuda=Version("12.8"))
    assert names(chosen) == full(range(8, 10), "cu128")


@pytest.mark.parametrize("asked", [Selection.parse(torch=["2.13"]), Selection.parse(backend=["cuda", "cpu"])])
def test_other_options_do_not_pass_over_a_toolkit_that_cannot_be_used(asked: Selection) -> None:
    found = entries('["cuda", "cpu"]', FULL, '[general.cuda]\nminver = "13.0"', cuda="12.8")
    with pytest.raises(InputError, match="the CUDA toolkit that was asked for cannot be used") as caught:
        select(found, asked, cuda=Version("12.8"))
    assert caught.value.code == "KY402"


@pytest.mark.parametrize(
    ("framework", "asked", "what", "hint"),
    [
        (FULL, {"backend": ["cdua"]}, "the kernel has no variant for the backend 'cdua'", "did you mean `cuda`?"),
        (FULL, {"backend": ["metal"]}, "the kernel has no variant for the backend 'metal'", "it has cpu, cuda"),
        (
            FULL,
            {"torch": ["2.3", ">=3"]},
            "no variant is for torch 2.3 or >=3",
            "there are variants for torch 2.5, 2.6, 2.7, 2.8, 2.9, 2.10, 2.11, 2.12, 2.13, 2.14, 2.15",
        ),
        (STABLE, {"torch": ["2.9"]}, "no variant is for torch 2.9", "there are variants for torch 2.11 and later"),
        (
            STABLE,
            {"cuda": ["12.5"]},
            "no variant is for CUDA 12.5",
            "a variant for CUDA 12.4 serves it too; there are variants for CUDA 11.8, 12.4, 12.6, 12.8, 12.9, 13.0, 13",
        ),
        (FULL, {"cuda": ["13.0"], "torch": ["2.8"]}, "no variant is for CUDA 13.0", "there are variants for CUDA 12.4"),
        (
            STABLE,
            {"cuda": ["13.0"], "backend": ["cpu"]},
            "no variant is for CUDA 13.0",
            "there are no variants for CUDA",
        ),
        (STABLE, {"globs": ["*cu130*"], "backend": ["cpu"]}, "no variant matches '*cu130*'", f"the matrix has {CPU}"),
        (STABLE, {"torch": ["two"]}, "not a range of versions: 'two'", "for example --torch 2.13"),
        (STABLE, {"cuda": ["cu130"]}, "not a range of versions: 'cu130'", "for example --cuda 13.0"),
    ],
)
def test_what_there_is_none_of_is_told_with_what_there_is(
    framework: str, asked: dict[str, list[str]], what: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        select(entries('["cuda", "cpu"]', framework), Selection.parse(**asked))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.what) == ("KY401", what)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"backend": ["rocm"]}, "rocm cannot be built here: this version has no compiler for the backend rocm"),
        (
            {"cuda": ["12.4"]},
            f"{stable('cu124')[0]} cannot be built here: general.cuda.minver or maxver leaves this toolkit out",
        ),
        (
            {"cuda": ["<13"]},
            f"{stable('cu118')[0]} cannot be built here: general.cuda.minver or maxver leaves this toolkit out",
        ),
    ],
)
def test_what_cannot_be_built_is_told_with_its_reason(asked: dict[str, list[str]], what: str) -> None:
    found = entries('["cuda", "rocm"]', STABLE, '[general.cuda]\nminver = "13.0"')
    with pytest.raises(InputError) as caught:
        select(found, Selection.parse(**asked))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.what) == ("KY402", what)


def test_of_a_hundred_variants_a_few_are_named() -> None:
    with pytest.raises(InputError) as caught:
        select(entries('["cuda"]', FULL), ["zz*"])
    assert caught.value.hint.endswith(" and 83 more: see `kernelyard variants --all`")
    assert caught.value.hint.count("linux") == 6


def test_all_that_matches_can_be_asked_for_whatever_the_defaults() -> None:
    found = entries('["cuda", "cpu"]', STABLE)
    assert names(matching(found, Selection.parse(cuda=["12"]))) == stable("cu124", "cu126", "cu128", "cu129")
    assert names(matching(found, Selection())) == names(found)
    assert names(matching(found, Selection.parse(globs=["*-cpu-*", "*-cu13[01]-*"]))) == stable("cpu", "cu130", "cu131")


def test_a_selection_is_written_as_the_options_that_ask_for_it() -> None:
    asked = Selection.parse(globs=["*-cpu-*"], backend=["cpu"], torch=[">=2.13"], cuda=["12"], this_machine=True)
    assert asked.options() == [
        "--variant", "*-cpu-*", "--backend", "cpu", "--torch", ">=2.13", "--cuda", "12", "--this-machine",
    ]  # fmt: skip
    assert Selection.of(["a", "b"]) == Selection(globs=("a", "b"))
    assert (bool(Selection()), bool(Selection(this_machine=True))) == (False, True)
