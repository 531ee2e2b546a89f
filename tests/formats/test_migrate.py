from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelyard.errors import InputError, KernelyardError
from kernelyard.formats import migrate
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.migrate import migrate_manifest
from kernelyard.formats.tables import ManifestError

FIRST = """\
# A kernel of the first days.
[general]
name = "gray" # as people know it

# The binding.
[torch]
universal = false # compiled
src = ["binding.cpp"]

[kernel.gray] # for both
language = "cuda-hipify" # hipified
cuda-capabilities = ["9.0"] # Hopper
rocm-archs = ["gfx942"]
depends = ["torch"]
src = [
  "gray.cu", # the kernel
  "gray.h",
]

# Only for CUDA.
[kernel.plain]
depends = []
rocm-archs = ["gfx90a"]
src = ["plain.cu"]

[kernel.apple]
language = "metal"
depends = []
src = ["gray.metal"]
# The end.
"""

SECOND = """\
[general]
name = "gray"
universal = false # nothing but CUDA
cuda-minver = "12.4"   # for FP8
python-depends = [
    "einops",             # layers
    "nvidia-cutlass-dsl", # JIT
]

[general.hub]
repo-id = "org/gray"

[torch]

[kernel.gray]
backend = "cuda"
depends = ["torch"]
src = ["gray.cu"]
"""

THIRD = """\
[general]
name = "gray"
license = "MIT"

# where it runs
backends = ["xpu"]

[torch]

[kernel.gray]
backend = "xpu"
depends = [
    "torch", # first
    "cutlass_sycl", # then
]
src = ["gray.cpp"]
"""

FOURTH = """\
[general]
name = "gray"
license = "MIT"
version    = 1 # stable
backends = ["cuda"]

# Nothing to compile.
[torch-noarch]
"""


def changed(text: str, license_id: str | None = None) -> list[str]:
    """Return the lines that migration takes out and puts in."""
    migration = migrate_manifest(text, license_id=license_id)
    lines = difflib.unified_diff(migration.before.splitlines(), migration.after.splitlines(), n=0)
    return [line for line in lines if line[:3] not in {"---", "+++", "@@ "}]


def test_edition_4_gets_a_line() -> None:
    assert changed(FOURTH) == ["+edition = 5"]
    assert "version    = 1 # stable\nedition = 5\nbackends" in migrate_manifest(FOURTH).after


def test_edition_3_gets_a_version_and_the_dependency_by_its_name_of_today() -> None:
    assert changed(THIRD) == [
        "+version = 1",
        "+edition = 5",
        '-    "cutlass_sycl", # then',
        '+    "sycl_tla", # then',
    ]


def test_edition_3_without_a_framework_gets_the_table_that_it_meant() -> None:
    text = '[general]\nname = "gray"\nversion = 1\nlicense = "MIT"\nbackends = ["cuda"]'
    assert migrate_manifest(text).after == (
        '[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cuda"]\n\n[torch-noarch]\n'
    )


def test_edition_2_becomes_what_it_meant_and_keeps_its_comments() -> None:
    assert (
        migrate_manifest(SECOND, license_id="MIT").after
        == """\
[general]
name = "gray"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"] # nothing but CUDA
cuda.minver = "12.4"   # for FP8
python-depends = [
    "einops",             # layers
    # JIT
]
cuda.python-depends = ["nvidia-cutlass-dsl"]

[general.hub]
repo-id = "org/gray"

[torch]

[kernel.gray]
backend = "cuda"
depends = ["torch"]
src = ["gray.cu"]
"""
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('["nvidia-cutlass-dsl"]', []),
        ('["nvidia-cutlass-dsl", "einops"]', ['python-depends = ["einops"]']),
        ('["einops", "nvidia-cutlass-dsl"]', ['python-depends = ["einops" ]']),
        ('["einops", "nvidia-cutlass-dsl",]', ['python-depends = ["einops", ]']),
    ],
)
def test_what_only_cuda_needs_moves_to_its_table(written: str, expected: list[str]) -> None:
    text = f'[general]\nname = "gray"\nuniversal = true\npython-depends = {written}\n'
    lines = migrate_manifest(text, license_id="MIT").after.splitlines()
    assert lines[6:] == [*expected, 'cuda.python-depends = ["nvidia-cutlass-dsl"]', "", "[torch-noarch]"]


def test_edition_2_universal_becomes_noarch() -> None:
    text = (
        '[general]\nname = "gray"\nuniversal = true\n\n'
        '# Python only\n[torch]\npyext = ["py"] # no data\nminver = "2.5"\n'
    )
    assert migrate_manifest(text, license_id="MIT").after == (
        '[general]\nname = "gray"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        'backends = ["cpu", "cuda", "metal", "rocm", "xpu"]\n\n'
        '# Python only\n[torch-noarch]\npyext = ["py"] # no data\n'
    )


def test_edition_1_gets_a_section_for_each_backend() -> None:
    assert (
        migrate_manifest(FIRST, license_id="MIT").after
        == """\
# A kernel of the first days.
[general]
name = "gray" # as people know it
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "rocm", "metal"]

# The binding.
[torch]
# compiled
src = ["binding.cpp"]

[kernel.gray] # for both
backend = "cuda" # hipified
cuda-capabilities = ["9.0"] # Hopper
depends = ["torch"]
src = [
  "gray.cu", # the kernel
  "gray.h",
]

[kernel.gray_rocm] # for both
backend = "rocm" # hipified
# Hopper
rocm-archs = ["gfx942"]
depends = ["torch"]
src = [
  "gray.cu", # the kernel
  "gray.h",
]

# Only for CUDA.
[kernel.plain]
backend = "cuda"
depends = []
src = ["plain.cu"]

[kernel.apple]
backend = "metal"
depends = []
src = ["gray.metal"]
# The end.
"""
    )


def test_tables_between_braces_are_migrated_too() -> None:
    text = (
        'general = { name = "gray", universal = false, cuda-minver = "12.4" }\n'
        'torch = {}\nkernel.a = { backend = "cuda", depends = [], src = ["a.cu"] }\n'
    )
    assert migrate_manifest(text, license_id="MIT").after == (
        'general = { name = "gray", version = 1, edition = 5, license = "MIT", backends = ["cuda"], '
        'cuda.minver = "12.4" }\n'
        'torch = {}\nkernel.a = { backend = "cuda", depends = [], src = ["a.cu"] }\n'
    )
    text = (
        'general.name = "gray"\ntorch = { universal = false, src = [] }\n'
        'kernel.a = { language = "cuda-hipify", rocm-archs = ["gfx942"], depends = [], src = ["a.cu"] } # both\n'
    )
    assert migrate_manifest(text, license_id="MIT").after == (
        'general.name = "gray"\ngeneral.version = 1\ngeneral.edition = 5\ngeneral.license = "MIT"\n'
        'general.backends = ["cuda", "rocm"]\n'
        "torch = { src = [] }\n"
        'kernel.a = { backend = "cuda", depends = [], src = ["a.cu"] } # both\n'
        'kernel.a_rocm = { backend = "rocm", rocm-archs = ["gfx942"], depends = [], src = ["a.cu"] } # both\n'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{ universal = false, src = [] }", "{ src = [] }"),
        ("{ src = [], universal = false }", "{ src = [] }"),
        ("{ src = [], universal = false, pyext = ['py'] }", "{ src = [], pyext = ['py'] }"),
        ("{ universal = false }", "{  }"),
    ],
)
def test_a_key_between_braces_goes_with_its_comma(before: str, after: str) -> None:
    text = f'torch = {before}\n[kernel.a]\ndepends = []\nsrc = ["a.cu"]\n[general]\nname = "gray"\n'
    assert migrate_manifest(text, license_id="MIT").after.splitlines()[0] == f"torch = {after}"


def test_a_section_of_one_key_on_the_last_line_is_copied() -> None:
    text = '[general]\nname = "gray"\n[torch]\n[kernel.a]\ndepends = []\nsrc = []\nlanguage = "cuda-hipify"'
    assert migrate_manifest(text, license_id="MIT").after.endswith(
        '[kernel.a]\ndepends = []\nsrc = []\nbackend = "cuda"\n\n'
        '[kernel.a_rocm]\ndepends = []\nsrc = []\nbackend = "rocm"'
    )


def test_a_section_written_key_by_key_is_not_copied() -> None:
    text = '[general]\nname = "gray"\n[torch]\n[kernel]\na.language = "cuda-hipify"\na.depends = []\na.src = []\n'
    with pytest.raises(InputError) as caught:
        migrate_manifest(text, license_id="MIT")
    assert (caught.value.code, caught.value.hint) == ("KY235", "write it as a table with the header [kernel.a]")


def test_line_breaks_stay_as_they_are() -> None:
    for text in (FIRST, SECOND, THIRD, FOURTH):
        after = migrate_manifest(text.replace("\n", "\r\n"), license_id="MIT").after
        assert after == migrate_manifest(text, license_id="MIT").after.replace("\n", "\r\n")


def test_edition_5_has_nothing_to_do() -> None:
    after = migrate_manifest(FOURTH).after
    again = migrate_manifest(after)
    assert (again.edition, again.needed, again.after) == (5, False, after)


def test_a_license_is_not_made_up() -> None:
    with pytest.raises(ManifestError) as caught:
        migrate_manifest(SECOND)
    (error,) = caught.value.errors
    assert (error.code, str(error.place)) == ("KY204", "build.toml:1:2: general")
    assert error.what == "no license is named: edition 2 does not ask for one, edition 5 does"
    assert "--license" in error.hint
    assert 'license = "a \\"b\\""' in migrate_manifest(SECOND, license_id='a "b"').after


def test_a_mistake_is_not_migrated_away() -> None:
    with pytest.raises(ManifestError) as caught:
        migrate_manifest(FOURTH.replace("[torch-noarch]", "[torch]\nsrcs = []"))
    assert (caught.value.code, caught.value.hint) == ("KY203", "did you mean `src`?")


@pytest.mark.parametrize("result", [FOURTH, "[general]\n", FOURTH.replace("gray", "grey")])
def test_a_result_of_another_meaning_is_refused(monkeypatch: pytest.MonkeyPatch, result: str) -> None:
    after = result.replace("version    =", "edition = 5\nversion =") if "grey" in result else result
    monkeypatch.setattr(migrate, "_change", lambda *_: after)
    if result == FOURTH:
        assert migrate_manifest(FOURTH).after == FOURTH  # nothing changed means the same
        return
    with pytest.raises(KernelyardError) as caught:
        migrate_manifest(FOURTH)
    assert caught.value.code == "KY236"
    assert "nothing was changed" in caught.value.hint


COMMENTS = st.sampled_from(["", " # why", " # größer 日本"])
BLANKS = st.sampled_from(["", "\n", "\n# between\n", "\n\n"])
GENERAL_LINES = st.lists(
    st.sampled_from(
        [
            "version = 3",
            'license = "MIT"',
            'backends = ["cuda"]',
            'backends = [\n  "cuda", # one\n]',
            "universal = false",
            "universal = true",
            'cuda-minver = "12.4"',
            'cuda-maxver = "13.0"',
            'python-depends = ["einops", "nvidia-cutlass-dsl"]',
            'python-depends = [\n  "nvidia-cutlass-dsl", # a\n  "einops" # b\n  , # c\n]',
            'hub.repo-id = "org/gray"',
            'cuda = { minver = "12.4" }',
        ]
    ),
    unique_by=lambda line: line.split(" ")[0],
    max_size=6,
)
SECTION_LINES = st.permutations(["depends = ['torch']", 'src = ["a.cu"]']).flatmap(
    lambda lines: st.lists(
        st.sampled_from(
            [
                'backend = "cuda"',
                'language = "cuda"',
                'language = "cuda-hipify"',
                'language = "metal"',
                'rocm-archs = ["gfx942"]',
                'cuda-capabilities = ["9.0"]',
                "include = []",
            ]
        ),
        unique_by=lambda line: line.split(" ")[0],
        max_size=4,
    ).map(lambda more: [*more, *lines])
)
FRAMEWORKS = st.sampled_from([["[torch]"], ["[torch]", "src = ['b.cpp']"], ["[torch]", "universal = true"], []])


@st.composite
def old_files(draw: st.DrawFn) -> str:
    tables = [["[general]", 'name = "gray"', *draw(GENERAL_LINES)], draw(FRAMEWORKS)]
    tables += [[f"[kernel.{name}]", *draw(SECTION_LINES)] for name in "ab"[: draw(st.integers(0, 2))]]
    lines = [f"{line}{draw(COMMENTS)}{draw(BLANKS)}" for table in draw(st.permutations(tables)) for line in table]
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return "\n".join(lines).replace("\n", newline) + draw(st.sampled_from(["", newline]))


@settings(deadline=None, max_examples=400)
@given(old_files())
def test_migration_keeps_meaning_and_comments_and_is_done_once(text: str) -> None:
    try:
        before = read_manifest(text)
    except ManifestError:
        return
    migration = migrate_manifest(text, license_id="MIT")
    after = read_manifest(migration.after)
    assert after.edition == 5
    assert after.kernels == before.kernels
    assert after.framework == before.framework
    assert after.general.license == before.general.license or (before.general.license, after.general.license) == (
        "",
        "MIT",
    )
    assert not migrate_manifest(migration.after).needed
    assert [line for line in migration.after.splitlines() if line == "# between"][: text.count("# between")] == [
        "# between"
    ] * text.count("# between")
    assert migration.after.count("# why") >= text.count("# why")
