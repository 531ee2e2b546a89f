"""The sources of a commit, or of a work tree, in a folder of their own. Real repositories; nothing is built."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, MissingError
from kernelyard.publish.sources import LaidOut, find_origin, lay_out


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


def lay_out_sources(root: Path, wanted: str | None, aside: Path) -> LaidOut:
    return lay_out(find_origin(root, wanted), aside)


def files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts and path.name not in {"build.toml", ".gitmodules"}
    }


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "kernels" / "a").mkdir(parents=True)
    git(folder, "init", "-q")
    write(folder, README="read me")
    write(folder / "kernels" / "a", source="first")
    for place in (folder, folder / "kernels" / "a"):
        place.joinpath("build.toml").write_text("")
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


@pytest.fixture
def submodule(repository: Path, tmp_path: Path) -> Path:
    """A submodule of the project, with a submodule of its own."""
    for name, below in (("inner", None), ("library", "inner")):
        library = tmp_path / name
        library.mkdir()
        git(library, "init", "-q")
        write(library, header=f"of {name}")
        if below is not None:
            git(library, "submodule", "add", "-q", str(tmp_path / below), below)
        commit(library)
    git(repository, "submodule", "add", "-q", str(tmp_path / "library"), "kernels/a/library")
    git(repository, "submodule", "update", "-q", "--init", "--recursive")
    commit(repository)
    return repository / "kernels" / "a" / "library"


def test_a_submodule_is_laid_out_as_its_commit_was(repository: Path, submodule: Path, aside: Path) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    write(submodule, header="of a later commit")
    commit(submodule)
    commit(repository)
    write(submodule, header="not committed", other="")
    laid = lay_out_sources(repository / "kernels" / "a", first, aside)
    assert files(laid.folder) == {
        "library/header": "of library",
        "library/inner/header": "of inner",
        "source": "first",
    }
    assert laid.remarks == ()


@pytest.mark.parametrize("how", ["removed", "not initialised"])
def test_a_submodule_that_is_not_here_is_an_error(repository: Path, submodule: Path, aside: Path, how: str) -> None:
    first = git(repository, "rev-parse", "HEAD").strip()
    if how == "removed":
        shutil.rmtree(submodule)
    else:
        git(repository, "submodule", "deinit", "-q", "-f", "kernels/a/library")
    with pytest.raises(MissingError) as caught:
        lay_out_sources(repository / "kernels" / "a", first, aside)
    assert caught.value.code == "KY374"
    assert caught.value.what == "the submodule kernels/a/library, which the commit has, is not here"
    assert caught.value.hint.startswith("`git submodule update --init --recursive kernels/a/library`")


@pytest.mark.usefixtures("submodule")
def test_a_submodule_without_the_commit_is_an_error(repository: Path, aside: Path) -> None:
    git(repository, "update-index", "--cacheinfo", f"160000,{'1' * 40},kernels/a/library")
    git(repository, "commit", "-q", "-m", "x")
    first = git(repository, "rev-parse", "HEAD").strip()
    with pytest.raises(MissingError, match="submodule kernels/a/library does not have commit 1111") as caught:
        lay_out_sources(repository / "kernels" / "a", first, aside)
    assert caught.value.code == "KY374"


def test_attributes_of_the_work_tree_change_nothing_of_a_commit(repository: Path, aside: Path) -> None:
    first = commit(repository)
    repository.joinpath(".gitattributes").write_text("* text eol=crlf\n", "utf-8")
    write(repository, README="read me\n")
    second = commit(repository)
    assert second != first
    laid = lay_out_sources(repository / "kernels" / "a", first, aside)
    assert laid.folder.joinpath("source").read_bytes() == b"first"
    assert laid.folder.parents[1].joinpath("README").read_bytes() == b"read me"


def test_what_was_put_in_the_place_of_a_commit_here_is_not_taken(repository: Path, aside: Path) -> None:
    first = commit(repository)
    write(repository / "kernels" / "a", source="second")
    git(repository, "replace", first, commit(repository))
    assert files(lay_out_sources(repository / "kernels" / "a", first, aside).folder) == {"source": "first"}


def test_a_link_that_leads_out_of_a_commit_is_told(repository: Path, aside: Path) -> None:
    project = repository / "kernels" / "a"
    project.joinpath("absolute").symlink_to(repository / "README")
    project.joinpath("out").symlink_to("../../../elsewhere")
    project.joinpath("neighbour").symlink_to("../../README")
    laid = lay_out_sources(project, commit(repository), aside)
    assert [remark.partition(" ")[0] for remark in laid.remarks] == ["kernels/a/absolute", "kernels/a/out"]


def test_what_a_commit_has_where_a_build_writes_is_not_laid_out(repository: Path, aside: Path, tmp_path: Path) -> None:
    project, elsewhere = repository / "kernels" / "a", tmp_path / "elsewhere"
    elsewhere.mkdir()
    project.joinpath("build").symlink_to(elsewhere)
    project.joinpath(".kernelyard").mkdir()
    write(project / ".kernelyard", objects="of others")
    laid = lay_out_sources(project, commit(repository), aside)
    assert files(laid.folder) == {"source": "first"}
    assert not laid.folder.joinpath("build").is_symlink()
    assert elsewhere.is_dir()


def test_a_repository_with_its_work_tree_elsewhere_is_none(repository: Path, aside: Path, tmp_path: Path) -> None:
    first = commit(repository)
    git(repository, "config", "core.worktree", str(tmp_path / "aside ü"))
    for wanted in (None, first):
        assert find_origin(repository, wanted).top is None
    assert list(aside.iterdir()) == []


def test_a_commit_without_the_project_is_an_error(repository: Path, aside: Path) -> None:
    first = commit(repository)
    project = repository / "kernels" / "b"
    project.mkdir()
    with pytest.raises(MissingError, match=r"no build\.toml in 'kernels/b'") as caught:
        lay_out_sources(project, first, aside)
    assert caught.value.code == "KY374"


def test_a_repository_that_git_does_not_trust_is_no_reason_to_take_something_else(
    repository: Path, aside: Path
) -> None:
    first = commit(repository)
    repository.joinpath(".git", "config").write_text("not a configuration [")
    with pytest.raises(EnvironmentProblemError, match="git does not look into the repository: ") as caught:
        lay_out_sources(repository, first, aside)
    assert caught.value.code == "KY374"


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


# Work trees


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


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    folder = tmp_path / "work tree"
    folder.joinpath("csrc").mkdir(parents=True)
    write(folder / "csrc", x="first")
    return folder


def test_links_of_a_work_tree_stay_links_and_those_out_of_it_lead_where_they_led(
    work_tree: Path, tmp_path: Path, aside: Path
) -> None:
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    write(neighbour, y="of the neighbour")
    for name, target in {
        "inside": "csrc",
        "absolute": str(work_tree / "csrc" / "x"),
        "outside": "../neighbour",
        "round": "round",
        "up": "..",
        "all": "/",
    }.items():
        work_tree.joinpath(name).symlink_to(target)
    laid = lay_out_sources(work_tree, None, aside)
    links = {path.name: str(path.readlink()) for path in laid.folder.iterdir() if path.is_symlink()}
    assert links == {
        "inside": "csrc",
        "absolute": "csrc/x",
        "outside": f"{work_tree}/../neighbour",
        "round": "round",
        "up": f"{work_tree}/..",
        "all": "/",
    }
    assert laid.folder.joinpath("outside", "y").read_text() == "of the neighbour"


def test_what_is_no_file_is_left_out_and_that_is_said(work_tree: Path, aside: Path) -> None:
    os.mkfifo(work_tree / "csrc" / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(work_tree)
        try:
            listening.bind("socket")
        finally:
            os.chdir(before)
        laid = lay_out_sources(work_tree, None, aside)
    assert files(laid.folder) == {"csrc/x": "first"}
    assert laid.remarks[1] == "left out, for they are no files: socket, csrc/pipe"


def test_neighbours_in_the_repository_come_along(repository: Path, aside: Path) -> None:
    project = repository / "kernels" / "a"
    project.joinpath("common").symlink_to("../../README")
    project.joinpath("absolute").symlink_to(repository / "README")
    write(repository, ignored="huge", other="not committed")
    repository.joinpath(".git", "info", "exclude").write_text("ignored\nbuild\n")
    commit(repository)
    git(repository, "rm", "-q", "--cached", "ignored", "other")
    write(project, ignored="of the project")
    laid = lay_out_sources(project, None, aside)
    expected = {"absolute": "read me", "common": "read me", "ignored": "of the project", "source": "first"}
    assert files(laid.folder) == expected
    assert files(laid.folder.parents[1]).keys() == {
        "README",
        "other",
        *(f"kernels/a/{name}" for name in expected),
    }
    assert not laid.folder.joinpath("absolute").readlink().is_absolute()


def test_repositories_in_a_work_tree_are_left_out(work_tree: Path, aside: Path) -> None:
    git(work_tree / "csrc", "init", "-q")
    assert files(lay_out_sources(work_tree, None, aside).folder) == {"csrc/x": "first"}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, aside: Path) -> None:
    with pytest.raises(EnvironmentProblemError, match="cannot be copied: No such file") as caught:
        lay_out_sources(tmp_path / "nowhere", None, aside)
    assert caught.value.code == "KY375"
