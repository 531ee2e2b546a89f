"""Rebuilding a variant from what it says it was built from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.build.project import build_project
from kernelyard.build.toolchain_lock import make_lock, read_lock, write_lock
from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError
from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree
from kernelyard.publish.rebuild import rebuild_variant
from kernelyard.toolchain.parts import PartSource

if TYPE_CHECKING:
    from tests.conftest import Command

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *settings, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def published(source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny` in a repository, built for the CPU by its lock; tests work on copies."""
    from tests.conftest import copy_sample

    project = copy_sample("tiny", tmp_path_factory.mktemp("repository") / "kernels" / "tiny")
    write_lock(project, make_lock(project, source, selection=["*-cpu-*"]))
    git(project.parent, "init", "-q")
    git(project.parent, "add", "-A")
    git(project.parent, "commit", "-q", "-m", "x")
    build_project(project, source=source, locked=True)
    return project.parent


@pytest.fixture
def project(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "a clone") / "tiny"


def told(variant: Path) -> Metadata:
    return Metadata.from_json((variant / "metadata.json").read_bytes(), path="metadata.json")


def tell(variant: Path, metadata: Metadata) -> None:
    variant.joinpath("metadata.json").write_bytes(metadata.to_json())


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def failure(of: Callable[[], object], kind: type[KernelyardError], code: str) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert (type(caught.value), caught.value.code) == (kind, code)
    return caught.value


def test_a_variant_tells_its_commit_its_lock_and_its_tools(project: Path) -> None:
    metadata = told(project / "build" / CPU)
    assert metadata.source_commit == git(project, "rev-parse", "HEAD").strip()
    assert metadata.made is not None
    assert metadata.made.toolchain_lock == read_lock(project).digest
    assert (metadata.made.dirty, metadata.made.object_cache) == (False, False)
    assert {"cmake", "compiler", "floor", "ninja", "torch"} <= metadata.made.tools.keys()


def test_a_variant_is_identical_to_its_commit_whatever_has_become_of_the_work_tree(
    project: Path, kernelyard: Command
) -> None:
    edit(project / "csrc" / "answer.cpp", b"int answer", b"// changed\nint answer")
    project.joinpath("csrc", "other.cpp").unlink()
    before = hash_tree(project), git(project, "status", "--porcelain")
    done = kernelyard("rebuild", project / "build" / CPU, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "variant": CPU,
        "identical": True,
        "commit": told(project / "build" / CPU).source_commit,
        "toolchain-lock": read_lock(project).digest,
        "files": 4,
        "remarks": [],
        "not-part-of-the-build": [],
        "differences": {},
    }
    assert (hash_tree(project), git(project, "status", "--porcelain")) == before


def test_what_differs_is_told_file_by_file(project: Path, kernelyard: Command, tmp_path: Path) -> None:
    variant = Path(shutil.move(project / "build" / CPU, tmp_path / CPU))
    (extension,) = variant.glob("*.so")
    edit(extension, b"PyInit__tiny", b"PyEvil__tiny")
    edit(variant / "__init__.py", b"does nothing", b"does something")
    variant.joinpath("extra.py").write_text("")
    tell(variant, replace(told(variant), license="MIT"))
    done = kernelyard("rebuild", variant, "--project", project)
    assert done.returncode == 1, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == f"different: {CPU}, 4 of 4 files"
    files = [line for line in lines if not line.startswith(" ")]
    assert files == ["__init__.py", extension.name, "extra.py", "metadata.json"]
    assert '  -"""A kernel that does something."""' in lines
    name = told(variant).id
    assert f"  exported symbol only in built: PyEvil_{name}" in lines
    assert f"  exported symbol only in rebuilt: PyInit_{name}" in lines
    assert "  is only in built" in lines
    assert '  -  "license": "MIT",' in lines


def test_without_a_repository_the_folder_as_it_is_is_taken_and_that_is_said(
    project: Path, source: PartSource, tmp_path: Path
) -> None:
    alone = shutil.copytree(project, tmp_path / "alone")
    rebuilt = rebuild_variant(alone / "build" / CPU, store=source.store)
    assert (rebuilt.identical, rebuilt.commit) == (True, None)
    assert "git knows no repository here" in rebuilt.remarks[0]
    edit(alone / "csrc" / "other.cpp", b"return", b"return 1 +")
    rebuilt = rebuild_variant(alone / "build" / CPU, store=source.store)
    assert not rebuilt.identical
    assert "the sources, flags or capabilities are not those that it was built from" in rebuilt.remarks
    (extension,) = alone.glob("build/*/*.so")
    said = rebuilt.differences[extension.name]
    assert said[0].startswith("has the id, which is ")
    assert any(sentence.startswith("section .text: ") for sentence in said)


def test_where_sources_had_changes_it_is_the_work_tree(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    metadata = told(variant)
    assert metadata.made is not None
    tell(variant, replace(metadata, source_commit=None, made=replace(metadata.made, dirty=True)))
    rebuilt = rebuild_variant(variant, store=source.store, jobs=1)
    assert rebuilt.identical
    assert rebuilt.remarks == ("the variant names no commit: rebuilt from the work tree as it is",)


def test_neighbours_in_the_repository_are_there_again(project: Path, source: PartSource) -> None:
    """One by a link and one by `..`, of a commit and of a work tree with changes."""
    for name in ("linked", "included"):
        project.parent.joinpath(f"{name}.h").write_text(f"#define {name.upper()} 10\n")
    (project / "csrc" / "linked.h").symlink_to("../../linked.h")
    other = '#include "linked.h"\n#include "../../included.h"\nint other() { return LINKED + INCLUDED + 1; }\n'
    (project / "csrc" / "other.cpp").write_text(other)
    for commits in (True, False):
        if commits:
            git(project.parent, "add", "-A")
            git(project.parent, "commit", "-q", "-m", "x")
        else:
            edit(project.parent / "linked.h", b"10", b"11")
            edit(project / "csrc" / "other.cpp", b"1;", b"2;")
        (built,) = build_project(project, source=source, locked=True)
        assert (told(built.path).source_commit is not None) == commits
        assert rebuild_variant(built.path, store=source.store).identical


# What cannot be rebuilt


def test_a_build_without_a_lock_cannot_be_rebuilt(built_tiny: Path, source: PartSource) -> None:
    error = failure(lambda: rebuild_variant(built_tiny / "build" / CPU, store=source.store), MissingError, "KY371")
    assert "kernelyard build --locked" in error.hint


def test_what_others_built_cannot_be_rebuilt(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    tell(variant, replace(told(variant), facts=None))
    failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY371")


def test_another_lock_is_not_taken(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    lock = read_lock(project)
    write_lock(project, replace(lock, selection=("*",)))
    assert rebuild_variant(variant, store=source.store).identical, "the commit still has the right one"
    metadata = told(variant)
    tell(variant, replace(metadata, source_commit=None))
    error = failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY372")
    assert lock.digest[:12] in error.what
    project.joinpath("toolchain.lock").unlink()
    error = failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY372")
    assert "the project has none" in error.what


def test_another_kernelyard_builds_other_bytes(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    metadata = told(variant)
    assert metadata.made is not None
    tell(variant, replace(metadata, made=replace(metadata.made, kernelyard="0.0.1")))
    error = failure(lambda: rebuild_variant(variant, store=source.store), EnvironmentProblemError, "KY373")
    assert "kernelyard[build]==0.0.1" in error.hint


def test_another_state_of_kernelyard_builds_other_bytes(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    older = replace(read_lock(project), templates="0" * 64)
    write_lock(project, older)
    metadata = told(variant)
    assert metadata.made is not None
    tell(variant, replace(metadata, made=replace(metadata.made, toolchain_lock=older.digest)))
    failure(lambda: rebuild_variant(variant, store=source.store), EnvironmentProblemError, "KY373")


def test_only_a_variant_can_be_rebuilt(project: Path, source: PartSource, tmp_path: Path) -> None:
    failure(lambda: rebuild_variant(tmp_path, store=source.store), MissingError, "KY120")
    error = failure(lambda: rebuild_variant(project, store=source.store), InputError, "KY120")
    assert CPU in error.what


def test_where_nothing_is_compiled_no_lock_is_wanted(
    sample: Callable[[str], Path], source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = sample("lookup")
    build_project(project, source=source)
    monkeypatch.chdir(project / "build" / "torch-cuda")
    rebuilt = rebuild_variant(Path(), store=source.store)
    assert (rebuilt.variant, rebuilt.identical, rebuilt.lock) == ("torch-cuda", True, None)


# What is hostile, or stands in an odd place


def test_bytecode_is_told_of_and_what_no_digest_covers_differs(
    project: Path, kernelyard: Command, tmp_path: Path
) -> None:
    variant = project / "build" / CPU
    planted = variant / "__pycache__" / "__init__.cpython-311.pyc"
    planted.parent.mkdir()
    planted.write_bytes(b"evil")
    (variant / "__pycache__" / "data").write_bytes(b"")
    (variant / "_ops.pyc").write_bytes(b"")
    done = kernelyard("rebuild", variant)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == f"identical: {CPU}, 4 files"
    assert [line.partition(" (")[0] for line in others] == [
        f"not part of the build: {name}"
        for name in ("__pycache__/__init__.cpython-311.pyc", "__pycache__/data", "_ops.pyc")
    ]
    (tmp_path / "package").mkdir()
    (variant / "more").symlink_to(tmp_path / "package")
    (variant / "nothing").symlink_to("nowhere")
    os.mkfifo(variant / "pipe")
    done = kernelyard("rebuild", variant, "--json")
    assert done.returncode == 1, done.stderr
    told_of = json.loads(done.stdout)
    assert len(told_of["not-part-of-the-build"]) == 3
    assert told_of["differences"] == {
        "more": ["is a link to a folder, and only in built"],
        "nothing": ["is a link to nothing, and only in built"],
        "pipe": ["is no file, and only in built"],
    }


def test_an_id_that_is_not_that_of_the_files_differs(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    tell(variant, replace(told(variant), id="_tiny_cpu_000000000000"))
    rebuilt = rebuild_variant(variant, store=source.store)
    assert rebuilt.differences.keys() == {"metadata.json"}
    assert '+  "id": "_tiny_cpu_' in rebuilt.differences["metadata.json"][0]


def test_names_and_texts_cannot_write_to_the_terminal(project: Path, kernelyard: Command) -> None:
    variant = project / "build" / CPU
    (variant / "a\x1b[2J\nidentical").write_text("")
    (variant / os.fsdecode(b"\xff")).write_text("")
    edit(variant / "__init__.py", b"does nothing", b"\x1b[2J\r")
    done = kernelyard("rebuild", variant)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert r"a\x1b[2J\nidentical" in lines
    assert r"\udcff" in lines
    assert "\x1b" not in done.stdout


def test_a_build_that_is_a_link_is_that_of_the_project_with_the_link(
    project: Path, source: PartSource, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "disk" / "built"
    elsewhere.parent.mkdir()
    shutil.move(project / "build", elsewhere)
    (project / "build").symlink_to(elsewhere)
    rebuilt = rebuild_variant(project / "build" / CPU, store=source.store)
    assert (rebuilt.identical, rebuilt.commit) == (True, told(elsewhere / CPU).source_commit)


def test_a_folder_that_is_no_project_is_not_copied(project: Path, source: PartSource, tmp_path: Path) -> None:
    variant = Path(shutil.move(project / "build" / CPU, tmp_path / CPU))
    tell(variant, replace(told(variant), source_commit=None))
    error = failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY375")
    assert "--project" in error.hint
    other = tmp_path / "other"
    shutil.copytree(project, other)
    edit(other / "build.toml", b'name = "tiny"', b'name = "huge"')
    (other / "torch-ext" / "tiny").rename(other / "torch-ext" / "huge")
    error = failure(lambda: rebuild_variant(variant, store=source.store, project=other), InputError, "KY375")
    assert error.what == "the project is that of huge, and the variant is one of tiny"


@pytest.mark.parametrize("missing", ["build.toml", "toolchain.lock"])
def test_manifest_and_lock_are_looked_at_before_anything_is_copied(
    project: Path, source: PartSource, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    from kernelyard.publish import sources

    variant = project / "build" / CPU
    tell(variant, replace(told(variant), source_commit=None))
    (project / missing).unlink()

    def copy(*_: object) -> tuple[str, ...]:
        raise AssertionError("copied")

    monkeypatch.setattr(sources, "copy_work_tree", copy)
    code = {"build.toml": "KY375", "toolchain.lock": "KY372"}[missing]
    failure(lambda: rebuild_variant(variant, store=source.store), MissingError, code)


def test_a_variant_under_another_name_is_an_error(project: Path, source: PartSource, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project / "build" / CPU)
    assert rebuild_variant(link, store=source.store, project=project).identical
    other = (project / "build" / CPU).rename(tmp_path / "mine")
    failure(lambda: rebuild_variant(other, store=source.store, project=project), InputError, "KY120")


def test_a_pipe_in_the_place_of_the_lock_is_no_lock(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    tell(variant, replace(told(variant), source_commit=None))
    (project / "toolchain.lock").unlink()
    os.mkfifo(project / "toolchain.lock")
    failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY372")


def test_an_odd_folder_for_temporary_files_is_told_as_that(project: Path, kernelyard: Command, tmp_path: Path) -> None:
    odd = tmp_path / "a;b"
    odd.mkdir()
    done = kernelyard("rebuild", project / "build" / CPU, env={"TMPDIR": str(odd)})
    assert done.returncode == 2
    assert "the path of TMPDIR" in done.stderr
    assert "project's path" not in done.stderr
    assert "point TMPDIR to a folder without it" in done.stderr
    assert list(odd.iterdir()) == []


@pytest.mark.parametrize("version", [None, "", "1.0'; rm -rf ~ #", "1\x1b[2J"])
def test_a_version_that_is_none_is_not_one_to_install(project: Path, source: PartSource, version: str | None) -> None:
    variant = project / "build" / CPU
    metadata = told(variant)
    assert metadata.made is not None
    tell(variant, replace(metadata, made=replace(metadata.made, kernelyard=version)))
    error = failure(lambda: rebuild_variant(variant, store=source.store), MissingError, "KY371")
    assert error.what == "this variant does not say which Kernelyard built it"


def test_a_file_that_was_made_huge_is_not_read(project: Path, source: PartSource) -> None:
    variant = project / "build" / CPU
    with (variant / "_ops.py").open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.truncate(1 << 40)
    found = rebuild_variant(variant, store=source.store).differences["_ops.py"]
    assert found == (f"{1 << 40:,} bytes in built, {size:,} bytes in rebuilt",)
