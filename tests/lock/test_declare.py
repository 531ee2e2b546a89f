from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError
from kernelyard.formats.dependencies import Dependency
from kernelyard.lock.declare import declare, undeclare

pytest.importorskip("tree_sitter_toml")

MakeProject = Callable[..., Path]

HEAD = '# A project.\n[project]\nname = "app"  # its name\n'
SORTED = f"""{HEAD}
[tool.kernelyard.dependencies] # ours
# the first
"org/b" = 1   # old
"org/d" = ">=1.1,<1.3"

[tool.ruff]
line-length = 120
"""
ONE = '[tool.kernelyard.dependencies]\n"org/a" = 1\n'
FULL = '"org/gray" = { version = "~=1.2", hub = "https://h", backend = "cuda", variants = ["*-cu130-*"], trust = true }'
GRAY = Dependency("org/gray", version=1)


def added(root: Path, dependency: Dependency, group: str = "main", file: str = "pyproject.toml") -> str:
    declare(root, dependency, group)
    return (root / file).read_text()


@pytest.mark.parametrize(
    ("dependency", "line"),
    [
        (GRAY, '"org/gray" = 1'),
        (Dependency("org/gray", version=">=1.1,<1.3"), '"org/gray" = ">=1.1,<1.3"'),
        (Dependency("org/gray", revision="main"), '"org/gray" = { revision = "main" }'),
        (
            Dependency(
                "org/gray", version="~=1.2", hub="https://h", backend="cuda", variants=("*-cu130-*",), trust=True
            ),
            FULL,
        ),
        (
            Dependency("org/gray", version=1, optional=True, marker="sys_platform == 'linux'"),
            '"org/gray" = { version = 1, optional = true, marker = "sys_platform == \'linux\'" }',
        ),
    ],
)
def test_a_project_without_kernels_gets_a_table_at_the_end(
    project: MakeProject, dependency: Dependency, line: str
) -> None:
    assert added(project(HEAD), dependency) == HEAD + f"\n[tool.kernelyard.dependencies]\n{line}\n"


@pytest.mark.parametrize(
    ("repo", "before", "after"),
    [
        ("org/a", "# the first\n", '"org/b" = 1   # old\n'),
        ("org/c", '"org/b" = 1   # old\n', '"org/d" = ">=1.1,<1.3"\n'),
        ("org/e", '"org/d" = ">=1.1,<1.3"\n', "\n[tool.ruff]\n"),
    ],
)
def test_a_kernel_stands_in_its_place_among_sorted_ones(
    project: MakeProject, repo: str, before: str, after: str
) -> None:
    expected = SORTED.replace(before + after, before + f'"{repo}" = 1\n' + after)
    assert added(project(SORTED), Dependency(repo, version=1)) == expected


def test_below_the_others_where_they_are_not_sorted(project: MakeProject) -> None:
    text = '[tool.kernelyard.dependencies]\n"org/d" = 1\n"org/b" = 1\n'
    assert added(project(text), Dependency("org/c", version=2)) == text + '"org/c" = 2\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SORTED.replace("org/b", "org/gray"), SORTED.replace('"org/b" = 1 ', '"org/gray" = 2 ')),
        (
            f'{ONE}\n[tool.kernelyard.dependencies."org/gray"]\nversion = 1\nhub = "x"\n\n[tool.b]\nx = 1\n',
            '[tool.kernelyard.dependencies]\n"org/a" = 1\n"org/gray" = 2\n\n[tool.b]\nx = 1\n',
        ),
        ("[tool.kernelyard.dependencies]\n", '[tool.kernelyard.dependencies]\n"org/gray" = 2\n'),
        ("[tool.kernelyard]\ndependencies = {}\n", '[tool.kernelyard]\ndependencies = { "org/gray" = 2 }\n'),
        (
            '[tool.kernelyard]\ndependencies = { "org/a" = 1 }\n',
            '[tool.kernelyard]\ndependencies = { "org/a" = 1, "org/gray" = 2 }\n',
        ),
        (
            '[tool.kernelyard]\ndependencies."org/a" = 1\n',
            '[tool.kernelyard]\ndependencies."org/a" = 1\ndependencies."org/gray" = 2\n',
        ),
        ('[tool.kernels.dependencies]\n"org/a" = 1\n', '[tool.kernels.dependencies]\n"org/a" = 1\n"org/gray" = 2\n'),
        (
            '[tool.kernelyard.dependencies]\r\n"org/a" = 1\r\n',
            '[tool.kernelyard.dependencies]\r\n"org/a" = 1\r\n"org/gray" = 2\r\n',
        ),
    ],
)
def test_a_kernel_is_written_in_the_shape_that_the_file_has(project: MakeProject, text: str, expected: str) -> None:
    root = project("")
    (root / "pyproject.toml").write_bytes(text.encode())
    declare(root, Dependency("org/gray", version=2))
    assert (root / "pyproject.toml").read_bytes().decode() == expected


def test_the_table_of_the_kernels_package_takes_numbers_only(project: MakeProject) -> None:
    text = '[tool.kernels.dependencies]\n"org/a" = 1\n'
    found = added(project(text), Dependency("org/gray", version=">=1.1"))
    assert found == text + '\n[tool.kernelyard.dependencies]\n"org/gray" = ">=1.1"\n'


def test_a_group_has_a_table_of_its_own(project: MakeProject) -> None:
    root = project(HEAD)
    expected = HEAD + '\n[tool.kernelyard.dependency-groups.bench]\n"org/gray" = 1\n'
    assert added(root, GRAY, "bench") == expected
    assert added(root, Dependency("org/blur", version=1), "bench").endswith('"org/blur" = 1\n"org/gray" = 1\n')


def test_a_project_without_pyproject_has_a_file_of_ours(project: MakeProject) -> None:
    root = project('floor = "manylinux_2_34"\n', "kernelyard.toml")
    found = added(root, GRAY, file="kernelyard.toml")
    assert found == 'floor = "manylinux_2_34"\n\n[dependencies]\n"org/gray" = 1\n'
    (root / "kernelyard.toml").write_text('floor = "manylinux_2_34"\n')
    project(HEAD)
    # Settings stand in one of the two files, and not in both.
    assert added(root, GRAY, file="kernelyard.toml") == found
    (root / "pyproject.toml").unlink()
    (root / "kernelyard.toml").unlink()
    assert added(root, GRAY, file="kernelyard.toml") == '[dependencies]\n"org/gray" = 1\n'


def test_what_cannot_be_declared_leaves_the_file(project: MakeProject) -> None:
    for dependency in (Dependency("org/gray", version="newest"), Dependency("org/gray", version=1, marker="linux")):
        root = project(SORTED)
        with pytest.raises(InputError):
            declare(root, dependency)
        assert (root / "pyproject.toml").read_text() == SORTED
    root = project('[tool.kernelyard.dependencies]\n"org/b" = 2\n')
    with pytest.raises(InputError, match="not alike: org/b"):
        declare(root, Dependency("org/b", version=1), "bench")
    assert (root / "pyproject.toml").read_text() == '[tool.kernelyard.dependencies]\n"org/b" = 2\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SORTED.replace("org/b", "org/gray"), SORTED.replace('"org/b" = 1   ', "")),
        (
            '[tool.kernelyard]\ndependencies = { "org/a" = 1, "org/gray" = 2 }\n',
            '[tool.kernelyard]\ndependencies = { "org/a" = 1 }\n',
        ),
        (
            '[tool.a]\nx = 1\n\n[tool.kernelyard.dependencies."org/gray"]\nversion = 1\nhub = "x"\n\n[tool.b]\nx = 1\n',
            "[tool.a]\nx = 1\n\n[tool.b]\nx = 1\n",
        ),
        (
            '[tool.kernelyard.dependencies]\n"org/gray" = 1\n[tool.kernelyard.dependency-groups.a]\n"org/gray" = 1\n',
            "[tool.kernelyard.dependencies]\n[tool.kernelyard.dependency-groups.a]\n",
        ),
    ],
)
def test_a_kernel_is_taken_out_and_all_else_stays(project: MakeProject, text: str, expected: str) -> None:
    root = project(text)
    undeclare(root, "org/gray")
    assert (root / "pyproject.toml").read_text() == expected


def test_a_kernel_that_is_not_declared_is_told(project: MakeProject) -> None:
    root = project(SORTED)
    with pytest.raises(InputError, match="org/gray is not declared") as caught:
        undeclare(root, "org/gray")
    assert caught.value.code == "KY714"
    assert caught.value.hint == "declared are: org/b, org/d"
    with pytest.raises(InputError, match="org/b is not declared in the group bench"):
        undeclare(root, "org/b", "bench")
