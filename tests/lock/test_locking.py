from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import get_locked_kernel
from kernelyard.errors import CheckError, EnvironmentProblemError, InputError, MissingError, VerificationError
from kernelyard.formats.digest import base64_of_hex
from kernelyard.formats.fields import Fields
from kernelyard.formats.lock import KernelLock
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.lock.locking import check_lock, lock_project
from kernelyard.lock.pinned import check_digest
from kernelyard.lock.resolve import Request
from tests.lock.conftest import Publish

MakeProject = Callable[..., Path]
ONE = '[tool.kernelyard.dependencies]\n"org/gray" = 1\n'
RANGE = '[tool.kernelyard.dependencies]\n"org/gray" = ">=1.1,<1.3"\n'


def locked(root: Path, **request: object) -> KernelLock:
    return lock_project(root, Request(**request)).lock  # type: ignore[arg-type]


def releases(root: Path, **request: object) -> dict[str, str | None]:
    return {key: kernel.release for key, kernel in locked(root, **request).kernels.items()}


def stale(root: Path) -> list[str]:
    with pytest.raises(CheckError, match="the lock is not what is declared") as caught:
        check_lock(root)
    assert caught.value.code == "KY708"
    return [line.strip() for line in caught.value.what.splitlines()[1:]]


def test_a_lock_names_every_file_of_every_variant(publish: Publish, project: MakeProject, hub: Path) -> None:
    id_ = publish(variants={"torch-universal": "cpu", "torch-cpu": "cpu"})
    root = project(ONE)
    result = lock_project(root, Request())
    assert result.written
    assert [str(change) for change in result.changes] == [f"+ org/gray 1.0.0 ({id_[:12]})"]
    kernel = KernelLock.from_json((root / "kernels.lock").read_bytes(), path="x").find("org/gray")
    assert (kernel.revision, kernel.version, kernel.release) == (id_, 1, "1.0.0")
    assert kernel.hub == os.path.relpath(hub, root) if hub.is_relative_to(root) else str(hub)
    index = StaticHub(DirectoryReader(hub)).resolve("org/gray", version=1)
    assert kernel.index == (id_, len(index.document or b""))
    assert {name: kernel.files(name) for name in kernel.variants} == {
        one.name: one.files for one in index.index.variants
    }


def test_a_range_is_the_newest_release_in_it(publish: Publish, project: MakeProject) -> None:
    for release in ("1.0.0", "1.1.0", "1.2.1", "1.3.0"):
        publish(release=release)
    assert releases(project(RANGE)) == {"org/gray": "1.2.1"}


@pytest.mark.parametrize("spec", ["2", '"2"', '"v2"', '">=2"', '"2.0.0"', '{ revision = "v2" }'])
def test_what_is_locked_holds_whatever_the_hub_does(publish: Publish, project: MakeProject, spec: str) -> None:
    publish(release="2.0.0")
    root = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {spec}\n')
    first = locked(root)
    publish(release="2.1.0")
    publish(release="3.0.0")
    again = lock_project(root, Request())
    assert again.lock == first
    assert not again.written
    check_lock(root)


def test_a_revision_is_declared_by_its_id(publish: Publish, project: MakeProject) -> None:
    id_ = publish(release="1.0.0")
    publish(release="1.1.0")
    root = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ revision = "{id_[:9]}" }}\n')
    assert releases(root) == {"org/gray": "1.0.0"}
    project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ revision = "{id_}" }}\n')
    assert stale(root)[0].startswith("~ org/gray is declared as")
    assert releases(root) == {"org/gray": "1.0.0"}


def test_newer_is_taken_only_where_it_is_asked_for(publish: Publish, project: MakeProject) -> None:
    text = '[tool.kernelyard.dependencies]\n"org/gray" = 1\n"org/blur" = 1\n'
    for repo in ("org/gray", "org/blur"):
        publish(repo, "1.0.0")
    root = project(text)
    locked(root)
    for repo in ("org/gray", "org/blur"):
        publish(repo, "1.1.0")
    assert releases(root, update={"org/gray"}) == {"org/blur": "1.0.0", "org/gray": "1.1.0"}
    assert releases(root, upgrade=True) == {"org/blur": "1.1.0", "org/gray": "1.1.0"}
    with pytest.raises(InputError, match="org/grey is not among the kernels") as caught:
        locked(root, update={"org/grey"})
    assert caught.value.code == "KY714"
    assert "org/gray" in caught.value.hint


def test_a_declaration_that_still_fits_moves_nothing_and_one_that_does_not_moves_its_kernel(
    publish: Publish, project: MakeProject
) -> None:
    for release in ("1.0.0", "1.1.0"):
        publish(release=release)
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = "<=1.1"\n')
    locked(root)
    publish(release="1.2.0")
    project('[tool.kernelyard.dependencies]\n"org/gray" = ">=1.1"\n')
    assert stale(root) == ["~ org/gray is declared as {'version': '>=1.1'}, locked as {'version': '<=1.1'}"]
    assert releases(root) == {"org/gray": "1.1.0"}
    check_lock(root)
    project('[tool.kernelyard.dependencies]\n"org/gray" = ">1.1"\n')
    (line,) = stale(root)
    assert line.startswith("~ org/gray >1.1 is declared, and locked is 1.1.0 (")
    assert line.endswith("for >=1.1")
    assert releases(root) == {"org/gray": "1.2.0"}


def test_a_check_tells_every_difference_and_writes_nothing(publish: Publish, project: MakeProject) -> None:
    publish("org/a")
    publish("org/b")
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n')
    assert stale(root) == ["+ org/a 1 is declared, and not locked"]
    assert not (root / "kernels.lock").exists()
    locked(root)
    before = (root / "kernels.lock").read_bytes()
    project('[tool.kernelyard.dependencies]\n"org/b" = 1\n')
    assert stale(root) == ["+ org/b 1 is declared, and not locked", "- org/a is locked, and not declared"]
    assert (root / "kernels.lock").read_bytes() == before


def test_nothing_is_asked_of_a_hub_that_need_not_be(
    publish: Publish, project: MakeProject, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    root = project(ONE)
    locked(root)
    shutil.rmtree(hub)
    monkeypatch.delenv("KERNELYARD_HUB")
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    check_lock(root)
    assert not lock_project(root, Request()).written


def test_what_others_need_is_locked_with_who_needs_it(publish: Publish, project: MakeProject) -> None:
    publish("org/deep", "1.0.0")
    publish("org/common", "1.0.0", needs=[{"repo-id": "org/deep", "version": 1}])
    publish("org/common", "2.0.0")
    publish("org/a", needs=[{"repo-id": "org/common", "version": 1}])
    publish("org/b", needs=[{"repo-id": "org/common", "revision": "v2"}])
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n"org/b" = 1\n')
    lock = locked(root)
    found = {kernel.repo + " " + str(kernel.release): lock.needed_by(kernel) for kernel in lock.kernels.values()}
    common = next(key for key, kernel in lock.kernels.items() if (kernel.repo, kernel.version) == ("org/common", 1))
    assert found == {
        "org/a 1.0.0": (),
        "org/b 1.0.0": (),
        "org/common 1.0.0": ("org/a",),
        "org/common 2.0.0": ("org/b",),
        "org/deep 1.0.0": (common,),
    }
    publish("org/common", "2.1.0")
    assert locked(root) == lock
    check_lock(root)
    assert locked(root, update={"org/common"}) != lock


def test_a_need_is_met_by_what_is_declared_if_that_fits(publish: Publish, project: MakeProject) -> None:
    publish("org/common", "1.0.0")
    publish("org/common", "1.1.0")
    publish("org/a", needs=[{"repo-id": "org/common", "version": 1}])
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n"org/common" = "==1.0.0"\n')
    lock = locked(root)
    assert list(lock.kernels) == ["org/a", "org/common"]
    assert lock.needed(lock.find("org/a")) == (lock.find("org/common"),)


def together(*locks: KernelLock) -> bytes:
    """Return what git makes of locks that were written on several branches."""
    return KernelLock({key: one for lock in locks for key, one in lock.kernels.items()}).to_json()


def test_a_check_after_a_merge_sees_a_need_that_is_declared_by_now(publish: Publish, project: MakeProject) -> None:
    publish("org/common", "1.0.0")
    publish("org/a", needs=[{"repo-id": "org/common", "version": 1}])
    tables = ['"org/a" = 1\n', '"org/common" = 1\n']
    branches = []
    for number, table in enumerate(tables):
        root = project(f"[tool.kernelyard.dependencies]\n{table}")
        (root / "kernels.lock").unlink(missing_ok=True)
        publish("org/common", f"1.{number + 1}.0")
        branches.append(locked(root))
    project("[tool.kernelyard.dependencies]\n" + "".join(tables))
    (root / "kernels.lock").write_bytes(together(*branches))
    needed = next(key for key in branches[0].kernels if "@" in key)
    assert stale(root) == [
        f"~ org/a needs org/common version 1, which is declared, and locked for it is {needed}",
    ]
    assert [kernel.release for kernel in locked(root).kernels.values()] == ["1.0.0", "1.2.0"]
    check_lock(root)


def test_a_merge_moves_nothing_that_others_need(publish: Publish, project: MakeProject) -> None:
    publish("org/common", "1.0.0")
    branches = []
    for number, name in enumerate("ab", 1):
        publish(f"org/{name}", needs=[{"repo-id": "org/common", "version": 1}])
        root = project(f'[tool.kernelyard.dependencies]\n"org/{name}" = 1\n')
        (root / "kernels.lock").unlink(missing_ok=True)
        branches.append(locked(root))
        publish("org/common", f"1.{number}.0")
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n"org/b" = 1\n')
    (root / "kernels.lock").write_bytes(together(*branches))
    check_lock(root)
    result = lock_project(root, Request())
    assert not result.written
    assert [result.lock.needed(result.lock.find(f"org/{name}"))[0].release for name in "ab"] == ["1.0.0", "1.1.0"]
    assert len(locked(root, update={"org/common"}).kernels) == 3


def test_a_check_sees_a_need_that_is_locked_to_something_else(publish: Publish, project: MakeProject) -> None:
    publish("org/common", "1.0.0")
    publish("org/a", needs=[{"repo-id": "org/common", "version": 1}])
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n')
    locked(root)
    path = root / "kernels.lock"
    path.write_text(path.read_text().replace('"org/common version 1"', '"org/common version 2"'))
    assert stale(root)[0].startswith("~ org/a needs org/common version 2, and locked for it is org/common@")


def test_a_lock_whose_files_are_none_is_neither_fresh_nor_written_anew(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project(ONE)
    whole = json.loads(locked(root).to_json())
    wrong: object
    for wrong in ([], None, {"__init__.py": "sha256:0"}):
        whole["kernels"]["org/gray"]["variants"]["torch-universal"] = wrong
        text = json.dumps(whole)
        (root / "kernels.lock").write_text(text)
        for attempt in (check_lock, locked):
            with pytest.raises(InputError) as caught:
                attempt(root)
            assert caught.value.code == "KY701"
        assert (root / "kernels.lock").read_text() == text


def test_what_nothing_needs_any_more_goes(publish: Publish, project: MakeProject) -> None:
    publish("org/common")
    publish("org/a", "1.0.0", needs=[{"repo-id": "org/common", "version": 1}])
    root = project('[tool.kernelyard.dependencies]\n"org/a" = 1\n')
    assert len(locked(root).kernels) == 2
    publish("org/a", "1.1.0")
    assert list(locked(root, update={"org/a"}).kernels) == ["org/a"]


def test_bytes_that_are_not_what_their_publisher_has_digested_are_not_locked(
    publish: Publish, project: MakeProject
) -> None:
    root = project(ONE)
    publish(release="1.0.0", digest=True)
    assert releases(root) == {"org/gray": "1.0.0"}
    publish(release="1.1.0", digest=True, false_digest_of="__init__.py")
    with pytest.raises(VerificationError, match=r"torch-universal/__init__\.py is not what the digest") as caught:
        locked(root, upgrade=True)
    assert caught.value.code == "KY503"


def test_a_digest_that_names_what_is_none_is_refused(publish: Publish, project: MakeProject, hub: Path) -> None:
    publish()
    locked(project(ONE))
    found = StaticHub(DirectoryReader(hub)).resolve("org/gray", version=1)
    entry = found.index.variants[0]
    said = {file.path: base64_of_hex(file.sha256) for file in entry.files if file.path != "metadata.json"}
    # A published index can be of another program, which has let it pass.
    fields = Fields({"digest": {"algorithm": "sha256", "files": {**said, "nothing.py": None}}}, code="KY212", path="x")
    with pytest.raises(VerificationError, match=r"torch-universal/nothing\.py is not what the digest"):
        check_digest(entry, fields)


def test_kernels_that_need_each_other_are_locked_once(publish: Publish, project: MakeProject) -> None:
    publish("org/a", needs=[{"repo-id": "org/b", "version": 1}])
    publish("org/b", needs=[{"repo-id": "org/a", "version": 1}])
    lock = locked(project('[tool.kernelyard.dependencies]\n"org/a" = 1\n'))
    assert sorted(kernel.repo for kernel in lock.kernels.values()) == ["org/a", "org/b"]


def test_a_backend_and_globs_narrow_what_is_locked(publish: Publish, project: MakeProject) -> None:
    names = {"torch-universal": "cpu", "torch-cuda": "cuda", "torch-cpu": "cpu", "torch-rocm": "rocm"}
    publish(release="1.0.0", variants=names)
    publish(release="1.1.0", variants={"torch-rocm": "rocm"})
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = ">=1", backend = "cuda" }\n')
    lock = locked(root)
    assert lock.find("org/gray").variants == ("torch-cuda", "torch-universal")
    assert lock.find("org/gray").release == "1.0.0"
    project('[tool.kernelyard.dependencies]\n"org/gray" = { version = ">=1", variants = ["torch-c*"] }\n')
    assert locked(root).find("org/gray").variants == ("torch-cpu", "torch-cuda")
    project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, backend = "xpu" }\n')
    with pytest.raises(MissingError, match="no variant for xpu") as caught:
        locked(root)
    assert caught.value.code == "KY715"


def test_a_hub_over_the_network_needs_consent_and_is_named_without_what_is_secret(
    publish: Publish, project: MakeProject, address: str
) -> None:
    publish()
    text = f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}"TRUST }}\n'
    root = project(text.replace("TRUST", ""))
    with pytest.raises(VerificationError) as caught:
        locked(root)
    assert caught.value.code == "KY605"
    assert not (root / "kernels.lock").exists()
    assert locked(root, trust=True).find("org/gray").hub == address
    (root / "kernels.lock").unlink()
    project(text.replace("TRUST", ", trust = true"))
    assert locked(root).find("org/gray").hub == address
    assert b"trust" not in (root / "kernels.lock").read_bytes()
    secret = address.replace("://", "://me:secret@")
    project(ONE)
    (root / "kernels.lock").unlink()
    assert locked(root, trust=True, hub=secret).find("org/gray").hub == address
    assert b"secret" not in (root / "kernels.lock").read_bytes()


def test_a_folder_of_the_project_is_named_from_there(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, hub = "../hub" }\n')
    assert locked(root).find("org/gray").hub == "../hub"
    check_lock(root)
    # A lock that is elsewhere names the folder from where it is.
    (root / "kernelyard.toml").write_text('lockfile = "src/app/kernels.lock"\n')
    moved = root / "src/app/kernels.lock"
    moved.parent.mkdir(parents=True)
    (root / "kernels.lock").rename(moved)
    assert stale(root) == ["~ org/gray is on ../../../hub as seen from the lock, and locked from ../hub"]
    assert locked(root).find("org/gray").hub == "../../../hub"
    check_lock(root)
    assert get_locked_kernel("org/gray", lockfile=root / "src/app").RELEASE == "1.0.0"
    publish(release="1.1.0")
    assert locked(root, upgrade=True).find("org/gray").release == "1.1.0"


def test_a_lock_that_is_moved_within_its_project_finds_the_default_hub_again(
    publish: Publish, project: MakeProject, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("org/common")
    publish(needs=[{"repo-id": "org/common", "version": 1}])
    root = project(ONE)
    hub.rename(root / "hub")
    monkeypatch.setenv("KERNELYARD_HUB", str(root / "hub"))
    before = locked(root)
    assert {kernel.hub for kernel in before.kernels.values()} == {"hub"}
    # What is newer is not asked for.
    Publish(root / "hub", publish.builds)(release="1.1.0")
    (root / "kernelyard.toml").write_text('lockfile = "src/app/kernels.lock"\n')
    moved = root / "src/app/kernels.lock"
    moved.parent.mkdir(parents=True)
    (root / "kernels.lock").rename(moved)
    assert stale(root) == ["~ org/gray is on ../../hub as seen from the lock, and locked from hub"]
    monkeypatch.delenv("KERNELYARD_HUB")
    after = locked(root)
    assert {kernel.hub for kernel in after.kernels.values()} == {"../../hub"}
    assert {key: kernel.revision for key, kernel in after.kernels.items()} == {
        key: kernel.revision for key, kernel in before.kernels.items()
    }
    check_lock(root)
    assert get_locked_kernel("org/gray", lockfile=moved).RELEASE == "1.0.0"


def test_a_home_that_nobody_has_is_told(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project(ONE)
    whole = locked(root).to_json()
    project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, hub = "~no-such-user/hub" }\n')
    with pytest.raises(InputError, match="leads nowhere") as caught:
        locked(root)
    assert caught.value.code == "KY506"
    (root / "kernels.lock").write_bytes(re.sub(rb'"hub": "[^"]*"', b'"hub": "~no-such-user/hub"', whole))
    with pytest.raises(InputError, match="leads nowhere"):
        get_locked_kernel("org/gray", lockfile=root)


def test_a_withdrawn_release_is_told(publish: Publish, project: MakeProject, hub: Path) -> None:
    publish()
    StaticHub(DirectoryReader(hub)).yank("org/gray", "1.0.0", "wrong results")
    notes = lock_project(project(ONE), Request()).notes
    of_hub, of_release = sorted(notes)
    assert of_release == "org/gray 1.0.0 was withdrawn: wrong results"
    # Others may not have this folder.
    assert of_hub.startswith(f"{hub} is a folder of this machine")


def test_a_hub_that_is_down_leaves_the_lock_as_it_is(publish: Publish, project: MakeProject, hub: Path) -> None:
    publish()
    root = project(ONE)
    locked(root)
    before = (root / "kernels.lock").read_bytes()
    shutil.rmtree(hub)
    with pytest.raises((EnvironmentProblemError, InputError, MissingError)):
        locked(root, upgrade=True)
    assert (root / "kernels.lock").read_bytes() == before
    assert sorted(path.name for path in root.iterdir()) == ["kernels.lock", "pyproject.toml"]


def test_the_lock_is_where_the_project_wants_it(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project(f'[tool.kernelyard]\nlockfile = "src/app/kernels.lock"\n{ONE}')
    locked(root)
    assert (root / "src/app/kernels.lock").is_file()
    check_lock(root)


@pytest.mark.parametrize("text", ["", "[tool.kernelyard]\n", "[tool.other]\nkernels = 1\n"])
def test_nothing_declared_is_told(project: MakeProject, text: str) -> None:
    with pytest.raises(InputError, match="no kernels are declared") as caught:
        locked(project(text))
    assert caught.value.code == "KY713"


def test_an_empty_table_is_an_empty_lock(project: MakeProject) -> None:
    root = project("[tool.kernelyard.dependencies]\n")
    assert stale(root) == ["+ " + str(Path(root / "kernels.lock")) + " is not there"]
    assert locked(root) == KernelLock({})
    check_lock(root)


def test_the_tables_of_both_packages_and_both_files_are_read(publish: Publish, project: MakeProject) -> None:
    for repo in ("org/a", "org/b", "org/c", "org/d"):
        publish(repo)
    root = project(
        '[tool.kernels.dependencies]\n"org/a" = 1\n[tool.kernelyard.dependencies]\n"org/b" = 1\n'
        '[tool.kernelyard.dependency-groups.bench]\n"org/c" = 1\n"org/a" = 1\n'
    )
    project('[dependencies]\n"org/d" = 1\n', "kernelyard.toml")
    lock = locked(root)
    assert {key: one.declared and one.declared.groups for key, one in lock.kernels.items()} == {
        "org/a": ("bench", "main"),
        "org/b": ("main",),
        "org/c": ("bench",),
        "org/d": ("main",),
    }
    project('[dependencies]\n"org/d" = 1\n"org/a" = 2\n', "kernelyard.toml")
    with pytest.raises(InputError, match=r"not alike: org/a") as caught:
        locked(root)
    assert caught.value.code == "KY706"


def test_a_merge_that_was_not_finished_is_told_and_left(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project(ONE)
    text = "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> other\n"
    (root / "kernels.lock").write_text(text)
    for attempt in (locked, check_lock):
        with pytest.raises(InputError) as caught:
            attempt(root)
        assert caught.value.code == "KY702"
    assert (root / "kernels.lock").read_text() == text


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
@pytest.mark.parametrize("names", [("org/a", "org/z"), ("org/b", "org/h"), ("org/h", "org/z")])
def test_two_branches_that_add_a_kernel_each_are_merged_by_git(
    publish: Publish, project: MakeProject, names: tuple[str, str]
) -> None:
    known = ["org/c", "org/m"]
    for repo in (*known, *names):
        publish(repo)

    def declare(*repos: str) -> Path:
        return project("[tool.kernelyard.dependencies]\n" + "".join(f'"{repo}" = 1\n\n\n' for repo in sorted(repos)))

    root = declare(*known)
    locked(root)
    assert git(root, "init", "-q", "-b", "main").returncode == 0
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    for name in names:
        git(root, "checkout", "-qb", name.partition("/")[2], "main")
        declare(*known, name)
        locked(root)
        git(root, "commit", "-qam", name)
    merged = git(root, "merge", "-q", names[0].partition("/")[2])
    assert merged.returncode == 0, merged.stdout + merged.stderr
    check_lock(root)
    text = (root / "kernels.lock").read_bytes()
    assert KernelLock.from_json(text, path="x").to_json() == text
    assert len(KernelLock.from_json(text, path="x").kernels) == 4


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_what_git_cannot_merge_is_whole_again_after_the_hint(publish: Publish, project: MakeProject) -> None:
    names = ["org/c", "org/e", "org/f"]
    for repo in names:
        publish(repo)

    def declare(*repos: str) -> Path:
        return project("[tool.kernelyard.dependencies]\n" + "".join(f'"{repo}" = 1\n' for repo in repos))

    root = declare("org/c")
    locked(root)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "start")
    for name in names[1:]:
        git(root, "checkout", "-qb", name[-1], "main")
        declare("org/c", name)
        locked(root)
        git(root, "commit", "-qam", name)
    assert git(root, "merge", "-q", "e").returncode != 0
    declare(*names)
    with pytest.raises(InputError, match="a merge of two sides was not finished") as caught:
        locked(root)
    assert "git checkout --ours kernels.lock" in caught.value.hint
    assert git(root, "checkout", "--ours", "kernels.lock").returncode == 0
    assert list(locked(root).kernels) == names
    check_lock(root)


def test_two_at_once_leave_a_whole_lock(publish: Publish, project: MakeProject) -> None:
    publish()
    root = project(ONE)
    program = (
        "import sys; from pathlib import Path; from kernelyard.lock.locking import lock_project; "
        "from kernelyard.lock.resolve import Request; lock_project(Path(sys.argv[1]), Request(upgrade=True))"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, root]) for _ in range(4)]
    assert [process.wait() for process in running] == [0, 0, 0, 0]
    assert sorted(path.name for path in root.iterdir()) == ["kernels.lock", "pyproject.toml"]
    check_lock(root)


def test_what_many_add_at_once_is_all_there(
    publish: Publish, project: MakeProject, program: Path, tmp_path: Path
) -> None:
    names = [f"org/k{number}" for number in range(6)]
    for name in names:
        publish(name)
    root = project('[project]\nname = "app"\n')
    # One of them fails, and puts back what it has found; not what others have written since.
    wrong = [str(program), "add", "org/k0", "--variant", "none*", "--version", "1", "--project", str(root)]
    adding = [[str(program), "add", name, "--version", "1", "--project", str(root)] for name in names]
    env = os.environ | {"KERNELYARD_CACHE": str(tmp_path / "store")}
    running = [subprocess.Popen(one, env=env, stderr=subprocess.DEVNULL) for one in [*adding[1:], wrong]]
    assert [process.wait() for process in running] == [0, 0, 0, 0, 0, 1]
    assert list(KernelLock.from_json((root / "kernels.lock").read_bytes(), path="x").kernels) == names[1:]
    check_lock(root)
    removing = [[str(program), "remove", name, "--project", str(root)] for name in names[1:]]
    running = [subprocess.Popen(one, env=env, stderr=subprocess.DEVNULL) for one in removing]
    assert [process.wait() for process in running] == [0, 0, 0, 0, 0]
    assert not KernelLock.from_json((root / "kernels.lock").read_bytes(), path="x").kernels


def test_a_link_stays_one_and_its_target_keeps_its_mode(publish: Publish, project: MakeProject, tmp_path: Path) -> None:
    publish()
    root = project(ONE)
    (tmp_path / "elsewhere").write_text("[]")
    (tmp_path / "elsewhere").chmod(0o640)
    (root / "kernels.lock").symlink_to(tmp_path / "elsewhere")
    locked(root)
    assert (root / "kernels.lock").is_symlink()
    assert json.loads((tmp_path / "elsewhere").read_text())["format"] == 1
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("historic", ["kernels-0.16", "kernels-0.17"])
def test_a_lock_of_the_kernels_package_is_converted_and_keeps_its_commits(
    publish: Publish, project: MakeProject, historic: str
) -> None:
    old = publish(release="1.0.0")
    publish(release="1.1.0")
    root = project('[tool.kernels.dependencies]\n"org/gray" = 1\n')
    entry: dict[str, object] = {"repo_id": "org/gray", "sha": old, "variants": {}}
    if historic == "kernels-0.17":
        entry = {"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {"commit": old}}
    (root / "kernels.lock").write_text(json.dumps([entry]))
    check_lock(root)
    result = lock_project(root, Request())
    assert result.lock.find("org/gray").revision == old
    assert "its commits were kept" in result.notes[0]
    project('[tool.kernels.dependencies]\n"org/gray" = 2\n')
    publish(release="2.0.0")
    (root / "kernels.lock").write_text(json.dumps([entry]))
    result = lock_project(root, Request())
    assert result.lock.find("org/gray").release == "2.0.0"
    assert any("which is not version 2" in note for note in result.notes)


def test_what_others_need_keeps_its_commit_in_a_conversion_too(publish: Publish, project: MakeProject) -> None:
    commits = {repo: publish(repo, release) for repo, release in (("org/common", "1.0.0"), ("org/other", "1.0.0"))}
    commits["org/a"] = publish("org/a", needs=[{"repo-id": "org/common", "version": 1}])
    entries = [
        {"dependency": {"repo-id": repo, "version": 1}, "lock": {"commit": id_}} for repo, id_ in commits.items()
    ]
    root = project('[tool.kernels.dependencies]\n"org/a" = 1\n')
    (root / "kernels.lock").write_text(json.dumps(entries))
    publish("org/common", "1.1.0")
    assert {kernel.repo: kernel.release for kernel in locked(root).kernels.values()} == {
        "org/a": "1.0.0",
        "org/common": "1.0.0",
    }


def test_a_change_of_the_declaration_alone_is_told_as_such(publish: Publish, project: MakeProject) -> None:
    id_ = publish()
    root = project(ONE)
    locked(root)
    project('[tool.kernelyard.dependencies]\n"org/gray" = "1.0.0"\n')
    (change,) = lock_project(root, Request()).changes
    assert str(change) == f"~ org/gray 1.0.0 ({id_[:12]}): its declaration, its needs or its variants"


@pytest.mark.parametrize("failing", ["open", "replace"])
def test_a_write_that_fails_leaves_the_old_lock_and_nothing_else(
    publish: Publish, project: MakeProject, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    publish()
    root = project(ONE)
    locked(root)
    before = (root / "kernels.lock").read_bytes()
    publish(release="1.1.0")
    real = getattr(Path, failing)

    def fail(path: Path, *arguments: object, **named: object) -> object:
        if path.name.startswith(".kernels.lock."):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(Path, failing, fail)
    with pytest.raises(EnvironmentProblemError) as caught:
        locked(root, upgrade=True)
    assert caught.value.code == "KY301"
    assert (root / "kernels.lock").read_bytes() == before
    assert sorted(path.name for path in root.iterdir()) == ["kernels.lock", "pyproject.toml"]


def test_the_newer_format_of_the_kernels_package_is_written_with_what_others_need(
    publish: Publish, project: MakeProject
) -> None:
    common = publish("org/common")
    id_ = publish(release="1.2.0", needs=[{"repo-id": "org/common", "version": 1}])
    root = project(RANGE)
    lock_project(root, Request(), format_="kernels-0.17")
    assert json.loads((root / "kernels.lock").read_text()) == [
        {"dependency": {"repo-id": "org/common", "version": 1}, "lock": {"commit": common}},
        {"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {"commit": id_}},
    ]
    with pytest.raises(InputError, match="does not tell git's ids") as caught:
        lock_project(root, Request(), format_="kernels-0.16")
    assert caught.value.code == "KY710"
