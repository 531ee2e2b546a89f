"""The sources of a commit, or of a work tree, in a folder of their own. Real repositories; nothing is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernelyard.errors import KernelyardError, MissingError
from kernelyard.publish.sources import lay_out_sources


def git(folder: Path, *arguments: str) -> str:
    settings = ["user.name=a", "user.email=a@example.org", "protocol.file.allow=always", "commit.gpgsign=false"]
    options = [word for setting in settings for word in ("-c", setting)]
    return subprocess.run(["git", *options, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        folder.joinpath(name).write_text(text, "utf-8")


def commit(folder: Path) -> str:
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD").strip()


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "kernels" / "a").mkdir(parents=True)
    git(folder, "init", "-q")
    write(folder, README="read me")
    write(folder / "kernels" / "a", source="first")
    return folder


@pytest.fixture
def aside(tmp_path: Path) -> Path:
    folder = tmp_path / "aside ü"
    folder.mkdir()
    return folder


def test_a_commit_is_laid_out_as_it_was(repository: Path, aside: Path) -> None:
    first, project = commit(repository), repository / "kernels" / "a"
    write(project, source="second", other="of the second")
    commit(repository)
    write(project, source="not yet committed", untracked="")
    status = git(repository, "status", "--porcelain")
    laid = lay_out_sources(project, first, aside)
    assert (laid.commit, laid.remarks) == (first, ())
    assert files(laid.folder) == {"source": "first"}
    assert git(repository, "status", "--porcelain") == status


def test_a_project_at_the_top_of_its_repository_is_found(repository: Path, aside: Path) -> None:
    assert files(lay_out_sources(repository, commit(repository), aside).folder) == {
        "README": "read me",
        "kernels/a/source": "first",
    }


def test_a_project_may_have_links_to_its_neighbours(repository: Path, aside: Path) -> None:
    repository.joinpath("kernels", "a", "common").symlink_to("../../README")
    laid = lay_out_sources(repository / "kernels" / "a", commit(repository), aside)
    assert files(laid.folder) == {"common": "read me", "source": "first"}


def test_files_are_those_of_a_clone_and_not_of_an_archive(repository: Path, aside: Path) -> None:
    write(repository, source="$Format:%H$", hidden="here")
    repository.joinpath(".gitattributes").write_text("hidden export-ignore\nsource export-subst\n", "utf-8")
    laid = lay_out_sources(repository, commit(repository), aside)
    assert files(laid.folder) | {"source": "$Format:%H$", "hidden": "here"} == files(laid.folder)


def test_hooks_do_not_mislead(repository: Path, aside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = commit(repository)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    assert lay_out_sources(repository, first, aside).commit == first


def test_a_submodule_is_taken_from_the_work_tree(repository: Path, tmp_path: Path, aside: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    write(library, header="of the library")
    commit(library)
    git(repository, "submodule", "add", "-q", str(library), "kernels/a/library")
    laid = lay_out_sources(repository / "kernels" / "a", commit(repository), aside)
    assert files(laid.folder) == {"library/header": "of the library", "source": "first"}
    assert laid.remarks == ("the submodule library is taken as it is in the work tree",)


@pytest.mark.parametrize("wanted", ["0" * 40, "a" * 64, "HEAD", "--help", ""])
def test_a_commit_that_is_not_there_is_an_error(repository: Path, aside: Path, wanted: str) -> None:
    commit(repository)
    with pytest.raises(KernelyardError) as caught:
        lay_out_sources(repository, wanted, aside)
    assert (type(caught.value), caught.value.code) == (MissingError, "KY374")
    assert list(aside.iterdir()) == []


def test_what_is_no_commit_is_an_error(repository: Path, aside: Path) -> None:
    commit(repository)
    with pytest.raises(MissingError, match="not a commit"):
        lay_out_sources(repository, git(repository, "rev-parse", "HEAD^{tree}").strip(), aside)


@pytest.mark.parametrize(("wanted", "said"), [(None, "names no commit"), ("0" * 40, "knows no repository here")])
def test_else_it_is_the_work_tree_and_that_is_said(tmp_path: Path, aside: Path, wanted: str | None, said: str) -> None:
    project = tmp_path / "project"
    for name in ("build", ".kernelyard", "__pycache__", "csrc"):
        project.joinpath(name, "build").mkdir(parents=True)
        write(project / name / "build", a="")
    project.joinpath("link").symlink_to("nowhere")
    laid = lay_out_sources(project, wanted, aside)
    assert files(laid.folder) == {"csrc/build/a": ""}
    assert laid.commit is None
    (remark,) = laid.remarks
    assert said in remark
