"""A commit is recorded only where it has each file that a build used. Real repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.build.source_state import SourceState, source_state
from kernelyard.build.used_files import used_files
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import read_project
from kernelyard.toolchain.parts import PartSource

Sample = Callable[[str], Path]


def git(folder: Path, *arguments: str) -> str:
    settings = ["user.name=a", "user.email=a@example.org", "protocol.file.allow=always", "commit.gpgsign=false"]
    options = [word for setting in settings for word in ("-c", setting)]
    return subprocess.run(["git", *options, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD").strip()


def write(path: Path, text: str = "int x;\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in a subfolder of a repository, with one source."""
    root = tmp_path / "repository" / "kernels" / "a"
    write(root / "csrc" / "x.h")
    git(root.parents[1], "init", "-q")
    return root


def state(project: Path, *used: str) -> SourceState:
    return source_state(project, made_here=("build", ".kernelyard"), used=[project / name for name in used])


def test_a_file_that_the_commit_has_is_of_it(project: Path) -> None:
    head = commit(project)
    assert state(project, "csrc/x.h") == SourceState(head, dirty=False)


def test_a_file_that_git_ignores_is_of_no_commit(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(project / ".gitignore", "csrc/secret.*\n")
    head = commit(project)
    write(project / "csrc" / "secret.h")
    assert state(project, "csrc/x.h") == SourceState(head, dirty=False), "nobody used it"
    found = state(project, "csrc/x.h", "csrc/secret.h")
    assert found == SourceState(None, dirty=True, because="csrc/secret.h is not in it, for git ignores it")
    assert f"not called one of commit {head[:12]}: csrc/secret.h is not in it" in caplog.text


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_what_git_does_not_look_for_is_looked_for(project: Path, flag: str) -> None:
    head = commit(project)
    git(project, "update-index", flag, "csrc/x.h")
    assert state(project) == SourceState(head, dirty=False), "it is as it was"
    write(project / "csrc" / "x.h", "int y;\n")
    assert git(project, "status", "--porcelain") == ""
    because = "csrc/x.h has another content there, which git was told not to look for"
    assert state(project) == SourceState(None, dirty=True, because=because)
    (project / "csrc" / "x.h").unlink()
    assert state(project) == SourceState(None, dirty=True, because="csrc/x.h is missing here")


def test_what_the_user_has_excluded_everywhere_is_of_no_commit(project: Path) -> None:
    write(project.parents[1] / ".git" / "info" / "exclude", "gen.cu\n")
    commit(project)
    write(project / "gen.cu")
    assert state(project, "gen.cu").because == "gen.cu is not in it, for git ignores it"


def test_a_link_counts_and_so_does_what_it_leads_to(project: Path) -> None:
    write(project.parents[1] / "common" / "y.h")
    (project / "common").symlink_to("../../common")
    head = commit(project)
    assert state(project, "common/y.h") == SourceState(head, dirty=False)
    git(project, "update-index", "--assume-unchanged", "../../common/y.h")
    write(project.parents[1] / "common" / "y.h", "int other;\n")
    because = state(project, "common/y.h").because
    assert because is not None
    assert because.startswith(f"common/y.h leads to {project.parents[1] / 'common' / 'y.h'}, which has another content")


def test_a_neighbour_that_is_included_counts(project: Path) -> None:
    write(project.parent / "b" / "y.h")
    head = commit(project.parents[1])
    assert state(project, "csrc/../../b/y.h") == SourceState(head, dirty=False)
    write(project.parent / "b" / "y.h", "int other;\n")
    assert state(project, "csrc/../../b/y.h").dirty is True


def test_a_link_out_of_the_repository_leads_to_no_commit(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "y.h")
    (project / "out").symlink_to("../../../elsewhere")
    commit(project)
    because = state(project, "out/y.h").because
    assert because == f"out/y.h leads to {tmp_path / 'elsewhere' / 'y.h'}, which lies outside the repository"


def test_a_link_with_an_absolute_path_leads_here_only(project: Path) -> None:
    (project / "same.h").symlink_to(project / "csrc" / "x.h")
    commit(project)
    assert state(project, "same.h").because == "same.h is a link with an absolute path"


def test_links_that_go_round_are_no_end(project: Path) -> None:
    (project / "round").symlink_to("round")
    commit(project)
    assert state(project, "round").because == "round leads round in circles"


@pytest.fixture
def submodule(project: Path, tmp_path: Path) -> Path:
    library = write(tmp_path / "library" / "z.h").parent
    git(library, "init", "-q")
    commit(library)
    git(project, "submodule", "add", "-q", str(library), "library")
    commit(project.parents[1])
    return project / "library"


def test_files_of_a_submodule_are_those_of_the_commit_that_is_named(project: Path, submodule: Path) -> None:
    head = git(project, "rev-parse", "HEAD").strip()
    assert state(project, "library/z.h") == SourceState(head, dirty=False)
    git(project, "config", "submodule.kernels/a/library.ignore", "all")
    write(submodule / "z.h", "int other;\n")
    commit(submodule)
    assert git(project, "status", "--porcelain") == ""
    assert state(project, "csrc/x.h") == SourceState(head, dirty=False)
    assert state(project, "library/z.h").because == (
        "library/z.h has another content there, which git was told not to look for"
    )


def test_a_repository_in_a_folder_that_is_ignored_is_of_no_commit(project: Path) -> None:
    write(project / ".gitignore", "third\n")
    commit(project)
    write(project / "third" / "z.h")
    git(project / "third", "init", "-q")
    commit(project / "third")
    assert state(project, "third/z.h").dirty is True


def test_line_ends_that_git_converts_are_no_change(project: Path) -> None:
    write(project / ".gitattributes", "*.h text eol=crlf\n")
    head = commit(project)
    (project / "csrc" / "x.h").write_bytes(b"int x;\r\n")
    git(project, "add", "--renormalize", ".")
    assert state(project, "csrc/x.h") == SourceState(head, dirty=False)


def test_hooks_do_not_mislead(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = commit(project)
    other = write(tmp_path / "other" / "x").parent
    git(other, "init", "-q")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert state(project, "csrc/x.h") == SourceState(head, dirty=False)


def test_names_that_are_not_utf_8_are_compared(project: Path) -> None:
    name = os.fsdecode(b"csrc/\xff \n.h")
    write(project / name)
    head = commit(project)
    assert state(project, name) == SourceState(head, dirty=False)


def test_a_step_is_of_what_it_reads_and_not_of_what_it_makes(sample: Sample) -> None:
    root = sample("made")
    project = read_project(root)
    plan = plan_variant(project, VariantName.parse("torch-stable-abi211-cpu-x86_64-linux"), Version("2.11"))
    found = {path.relative_to(root).as_posix() for path in used_files(project, [plan], root / "none", None)}
    assert {"build.toml", "tools/squares.py", "torch-ext/made/__init__.py", "csrc/answer.cpp"} <= found
    assert any(name.endswith(".txt") for name in found)
    assert not any(".kernelyard" in name or name.endswith("table.h") for name in found)


@pytest.mark.compile
@pytest.mark.network
def test_a_build_with_a_neighbour_that_git_ignores_names_no_commit(sample: Sample, source: PartSource) -> None:
    root = sample("tiny")
    (root / "csrc" / "other.cpp").write_text('#include "../../value.h"\nint other() { return VALUE; }\n')
    write(root.parent / "value.h", "#define VALUE 21\n")
    git(root.parent, "init", "-q")
    write(root.parent / ".git" / "info" / "exclude", "value.h\n.kernelyard\nbuild\n")
    commit(root.parent)
    (built,) = build_project(root, source=source, variants=["*-cpu-*"])
    metadata = Metadata.from_json((built.path / "metadata.json").read_bytes(), path="metadata.json")
    assert metadata.made is not None
    assert (metadata.source_commit, metadata.made.dirty) == (None, True)


@pytest.mark.compile
@pytest.mark.network
def test_a_build_with_a_header_that_git_ignores_names_no_commit(sample: Sample, source: PartSource) -> None:
    """The header is found by the compiler alone: its name is made by a macro."""
    root = sample("tiny")
    other = root / "csrc" / "other.cpp"
    other.write_text('#define NAME "../hidden/value.h"\n#include NAME\nint other() { return VALUE; }\n')
    write(root / "hidden" / "value.h", "#define VALUE 21\n")
    git(root, "init", "-q")
    write(root / ".git" / "info" / "exclude", "hidden\n.kernelyard\nbuild\n")
    commit(root)
    (built,) = build_project(root, source=source, variants=["*-cpu-*"])
    metadata = Metadata.from_json((built.path / "metadata.json").read_bytes(), path="metadata.json")
    assert metadata.made is not None
    assert (metadata.source_commit, metadata.made.dirty) == (None, True)
    git(root, "add", "-f", "hidden/value.h")
    head = commit(root)
    (built,) = build_project(root, source=source, variants=["*-cpu-*"])
    metadata = Metadata.from_json((built.path / "metadata.json").read_bytes(), path="metadata.json")
    assert metadata.made is not None
    assert (metadata.source_commit, metadata.made.dirty) == (head, False)
