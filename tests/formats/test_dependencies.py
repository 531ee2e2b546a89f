from __future__ import annotations

import pytest

from kernelyard.formats.dependencies import Dependency, merged, read_dependencies, read_groups
from kernelyard.formats.editions import parse_toml
from kernelyard.formats.fields import Fields
from kernelyard.formats.tables import ManifestError, Problems, Table
from kernelyard.formats.wanted import Wanted


def read(text: str) -> tuple[Dependency, ...]:
    problems = Problems("pyproject.toml", text)
    document = parse_toml(text, path="pyproject.toml")
    found: tuple[Dependency, ...] = ()
    if "dependencies" in document:
        found += read_dependencies(Table(document["dependencies"], ("dependencies",), problems))
    if "groups" in document:
        found += read_groups(Table(document["groups"], ("groups",), problems))
    problems.raise_any()
    return found


def faults(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ManifestError) as caught:
        read(text)
    return [(error.code, str(error.place), error.what) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("value", "dependency", "wanted"),
    [
        ("1", Dependency("org/x", version=1), Wanted(version=1)),
        ('"2"', Dependency("org/x", version="2"), Wanted(version=2)),
        ('"v2"', Dependency("org/x", version="v2"), Wanted(version=2)),
        ('"1.1.2"', Dependency("org/x", version="1.1.2"), Wanted(releases="==1.1.2")),
        ('"~=1.2"', Dependency("org/x", version="~=1.2"), Wanted(releases="~=1.2")),
        ('{ revision = "2f7c" }', Dependency("org/x", revision="2f7c"), Wanted(revision="2f7c")),
        ("{ version = 3 }", Dependency("org/x", version=3), Wanted(version=3)),
    ],
)
def test_a_kernel_is_declared_by_number_release_range_or_revision(
    value: str, dependency: Dependency, wanted: Wanted
) -> None:
    assert read(f'[dependencies]\n"org/x" = {value}\n') == (dependency,)
    assert dependency.wanted == wanted


def test_a_table_says_all_there_is_to_say() -> None:
    text = """
[dependencies."org/x"]
version = ">=1.1,<1.3"
hub = "https://hub.example/kernels"
backend = "cuda"
variants = ["torch-stable-abi*", "*-cu130-*"]
optional = true
marker = "sys_platform == 'linux'"
group = "bench"
trust = true
"""
    assert read(text) == (
        Dependency(
            "org/x",
            version=">=1.1,<1.3",
            hub="https://hub.example/kernels",
            backend="cuda",
            variants=("torch-stable-abi*", "*-cu130-*"),
            optional=True,
            marker="sys_platform == 'linux'",
            groups=("bench",),
            trust=True,
        ),
    )


def test_groups_have_the_kernels_of_those_that_they_include() -> None:
    text = """
[dependencies]
"org/a" = 1
[groups.test]
"org/b" = 1
[groups.bench]
"org/c" = 1
include-group = ["test"]
[groups.all]
include-group = "bench"
"""
    assert [(one.repo, one.groups) for one in read(text)] == [
        ("org/a", ("main",)),
        ("org/b", ("all", "bench", "test")),
        ("org/c", ("all", "bench")),
    ]


def test_a_circle_of_groups_is_one_group() -> None:
    text = '[groups.a]\ninclude-group = "b"\n"org/x" = 1\n[groups.b]\ninclude-group = "a"\n'
    assert [one.groups for one in read(text)] == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "code", "place", "words"),
    [
        ("org = 1", "KY706", ":2:1", "not the name of a kernel: 'org'"),
        ('"../x" = 1', "KY706", ":2:1", "not the name of a kernel"),
        ('"org/x" = 1.5', "KY205", ":2:1", "expected a table"),
        ('"org/x" = true', "KY205", ":2:1", "expected a table"),
        ('"org/x" = "newest"', "KY706", ":2:1", "not a version or a range"),
        ('"org/x" = -1', "KY706", ":2:1", "a version is a number"),
        ('"org/x" = {}', "KY706", ":2:1", "either a version or a revision"),
        ('"org/x" = { version = 1, revision = "main" }', "KY706", ":2:1", "only one of version and revision"),
        ('"org/x" = { version = 1, vairants = [] }', "KY203", ":2:26", "unknown key `vairants`"),
        ('"org/x" = { version = 1, backend = "gpu" }', "KY206", ":2:26", "unknown backend 'gpu'"),
        ('"org/x" = { version = 1, marker = "linux" }', "KY206", ":2:26", "not a marker"),
        ('"org/x" = { version = 1, marker = "sys_platform ~= \'linux\'" }', "KY206", ":2:26", "not a marker"),
        ('"org/x" = { version = 1, hub = "https://me:pw@h/" }', "KY706", ":2:26", "a user or a password"),
    ],
)
def test_a_mistake_is_told_at_its_place(text: str, code: str, place: str, words: str) -> None:
    ((found, where, what),) = faults(f"[dependencies]\n{text}\n")
    assert (found, where.partition(": ")[0]) == (code, f"pyproject.toml{place}")
    assert words in what


def test_a_group_that_there_is_not_is_told() -> None:
    ((code, _, what),) = faults('[groups.a]\ninclude-group = "b"\n')
    assert code == "KY706"
    assert "'b'" in what


def test_a_kernel_of_several_places_is_one_with_all_its_groups() -> None:
    one, other = Dependency("org/x", version=1), Dependency("org/x", version=1, groups=("bench",))
    assert merged([other, one]) == ((Dependency("org/x", version=1, groups=("bench", "main")),), ())
    assert merged([one, Dependency("org/x", version=2, groups=("bench",))])[1] == ("org/x",)


def test_which_variants_are_locked() -> None:
    plain = Dependency("org/x", version=1)
    cuda = Dependency("org/x", version=1, backend="cuda", variants=("torch-stable*", "torch-universal"))
    assert plain.takes("torch-rocm", "rocm")
    assert cuda.takes("torch-stable-abi211-cu130-x86_64-linux", "cuda")
    assert cuda.takes("torch-universal", "universal")
    assert not cuda.takes("torch-stable-abi211-cpu-x86_64-linux", "cpu")
    assert not cuda.takes("torch213-cxx11-cu130-x86_64-linux", "cuda")


def test_a_marker_is_judged_for_an_environment() -> None:
    linux = Dependency("org/x", version=1, marker="sys_platform == 'linux'")
    assert linux.applies({"sys_platform": "linux"})
    assert not linux.applies({"sys_platform": "darwin"})
    assert Dependency("org/x", version=1).applies()


def test_what_a_lock_says_of_it_is_read_again_and_leaves_out_what_is_usual() -> None:
    plain = Dependency("org/x", version=0, trust=True)
    assert plain.to_json() == {"version": 0}
    full = Dependency("org/x", revision="main", hub="hub", backend="cpu", variants=("*",), optional=True, groups=("a",))
    for one in (Dependency("org/x", version=0), full):
        assert Dependency.from_json("org/x", Fields(one.to_json(), code="KY701", path="x")) == one
