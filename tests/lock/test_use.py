from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import kernelyard
from kernelyard import get_locked_kernel, load_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, VerificationError
from kernelyard.formats.lock import KernelLock
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, Torch, describe_system
from kernelyard.lock.download import download
from kernelyard.lock.lock_at import read_lock_at
from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from kernelyard.lock.targets import Target
from tests.lock.conftest import Publish, Server, served

MakeProject = Callable[..., Path]
ONE = '[tool.kernelyard.dependencies]\n"org/gray" = 1\n'


@pytest.fixture
def locked(publish: Publish, project: MakeProject) -> Path:
    """A project that has locked release 1.0.0 of `org/gray`."""
    publish(release="1.0.0")
    root = project(ONE)
    lock_project(root, Request())
    return root


def here() -> Target:
    return Target(describe_system(), is_here=True)


def stored(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "store/variants").iterdir()
    return folder


def test_a_locked_kernel_is_the_one_that_was_locked_whatever_the_hub_does(publish: Publish, locked: Path) -> None:
    publish(release="1.1.0")
    module = get_locked_kernel("org/gray", lockfile=locked)
    assert module.RELEASE == "1.0.0"
    loaded = module.__kernel__
    assert loaded.verification == "lock"
    assert loaded.repo_info.repo_id == "org/gray"
    assert (
        loaded.repo_info.revision
        == KernelLock.from_json((locked / "kernels.lock").read_bytes(), path="x").find("org/gray").revision
    )
    assert get_locked_kernel("org/gray", lockfile=locked / "kernels.lock") is module
    assert load_kernel("org/gray", lockfile=str(locked)) is module
    assert kernelyard.get_kernel("org/gray", version="1.0.0") is module


def test_a_folder_for_a_kernel_that_is_locked_does_not_count_and_one_warning_says_so(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kernelyard.load.overrides._told", set())
    monkeypatch.setattr("kernelyard.lock.use._answered", {})
    for text in ("org/other=/x", "no list"):
        monkeypatch.setenv("LOCAL_KERNELS", text)
        assert get_locked_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"
        monkeypatch.setattr("kernelyard.lock.use._answered", {})
    assert caplog.messages == []
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={tmp_path / 'mine'}")
    for _ in range(2):
        assert get_locked_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"
        assert load_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"
        monkeypatch.setattr("kernelyard.lock.use._answered", {})
    (warning,) = caplog.messages
    assert warning.startswith(f"LOCAL_KERNELS names {tmp_path / 'mine'} for org/gray, and does not count for what is ")
    assert warning.endswith(f"taken is what {locked / 'kernels.lock'} names; `get_kernel` takes the folder")


def test_what_is_not_in_the_store_is_not_fetched_by_load_kernel(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelyard.hub.static.StaticHub.read", None)
    monkeypatch.setattr("kernelyard.hub.static.StaticHub.fetch_file", None)
    with pytest.raises(MissingError, match="the variant torch-universal would run here, and is not in") as caught:
        load_kernel("org/gray", lockfile=locked)
    assert caught.value.code == "KY709"
    assert str(tmp_path / "store") in caught.value.what
    assert "kernelyard download" in caught.value.hint


def test_no_request_is_made_for_what_is_in_the_store(publish: Publish, project: MakeProject, address: str) -> None:
    publish()
    root = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}", trust = true }}\n')
    lock_project(root, Request())
    program = f"import kernelyard; print(kernelyard.METHOD('org/gray', lockfile={str(root)!r}).RELEASE)"

    def run(method: str) -> subprocess.CompletedProcess[str]:
        text = program.replace("METHOD", method)
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)

    Server.requests.clear()
    assert "KY709" in run("load_kernel").stderr
    assert Server.requests == []
    # One for the index, which the choice is made by, and one for each file; no consent is asked for.
    assert run("get_locked_kernel").stdout == "1.0.0\n"
    assert len(Server.requests) == 1 + 2
    Server.requests.clear()
    assert run("get_locked_kernel").stdout == "1.0.0\n"
    assert run("load_kernel").stdout == "1.0.0\n"
    assert Server.requests == []


@pytest.mark.parametrize("how", ["byte", "added", "removed", "linked"])
@pytest.mark.parametrize("use", [get_locked_kernel, load_kernel])
def test_another_byte_in_the_store_is_refused(
    locked: Path, tmp_path: Path, how: str, use: Callable[..., object]
) -> None:
    program = f"import kernelyard; kernelyard.get_locked_kernel('org/gray', lockfile={str(locked)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    file = stored(tmp_path) / "__init__.py"
    file.chmod(0o644)
    if how == "byte":
        file.write_text(file.read_text().replace("1.0.0", "1.0.1"))
    elif how == "added":
        file.with_name("_extra.so").write_bytes(b"\x7fELF")
    elif how == "removed":
        file.unlink()
    else:
        shutil.copy(file, tmp_path / "copy.py")
        file.unlink()
        file.symlink_to(tmp_path / "copy.py")
    with pytest.raises(VerificationError) as caught:
        use("org/gray", lockfile=locked)
    assert caught.value.code == "KY602"


def test_a_lock_that_was_changed_gets_nothing(locked: Path, tmp_path: Path) -> None:
    lock = locked / "kernels.lock"
    text = lock.read_text()
    document = json.loads(text)
    files = document["kernels"]["org/gray"]["variants"]["torch-universal"]
    lock.write_text(text.replace(files["__init__.py"][7:71], "ab" * 32))
    # The hub has no such content.
    with pytest.raises(EnvironmentProblemError, match=r"the hub lacks a file of this kernel, __init__\.py"):
        get_locked_kernel("org/gray", lockfile=locked)
    assert not list((tmp_path / "store/variants").iterdir() if (tmp_path / "store/variants").exists() else [])
    document["kernels"]["org/gray"]["variants"]["torch-more"] = files
    lock.write_text(json.dumps(document))
    with pytest.raises(VerificationError, match="the index has no variant torch-more") as caught:
        get_locked_kernel("org/gray", lockfile=locked)
    assert caught.value.code == "KY717"
    index = json.loads(text)["kernels"]["org/gray"]["index"]
    lock.write_text(text.replace(index, f"sha256:{'ab' * 32} 3"))
    with pytest.raises(VerificationError, match="has another index for the revision that is locked") as caught:
        get_locked_kernel("org/gray", lockfile=locked)
    assert caught.value.code == "KY717"


def test_what_a_policy_denies_is_denied_here_too(
    publish: Publish, locked: Path, project: MakeProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish("org/blur")
    assert get_locked_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"
    monkeypatch.setattr("kernelyard.lock.use._answered", {})
    policy = tmp_path / "policy.toml"
    policy.write_text('[trust]\ndeny = ["org/*"]\n')
    monkeypatch.setenv("KERNELYARD_POLICY", str(policy))
    for use in (get_locked_kernel, load_kernel):
        with pytest.raises(VerificationError) as caught:
            use("org/gray", lockfile=locked)
        assert caught.value.code == "KY640"
    root = project('[tool.kernelyard.dependencies]\n"org/blur" = 1\n')
    with pytest.raises(VerificationError) as caught:
        lock_project(root, Request(trust=True))
    assert caught.value.code == "KY640"


def test_a_hub_that_hands_out_something_else_gets_nowhere(locked: Path, hub: Path, tmp_path: Path) -> None:
    lock = KernelLock.from_json((locked / "kernels.lock").read_bytes(), path="x").find("org/gray")
    file = next(file for file in lock.files("torch-universal") if file.path == "__init__.py")
    blob = hub / "blobs/sha256" / file.sha256[:2] / file.sha256
    blob.chmod(0o644)
    blob.write_bytes(b"x" * file.size)
    with pytest.raises(VerificationError) as caught:
        get_locked_kernel("org/gray", lockfile=locked)
    assert caught.value.code == "KY503"
    assert not (tmp_path / "store/variants").exists() or not list((tmp_path / "store/variants").iterdir())


def test_a_removed_kernel_loads_from_the_store_and_says_so_when_it_cannot(
    locked: Path, hub: Path, tmp_path: Path
) -> None:
    program = f"import kernelyard; print(kernelyard.get_locked_kernel('org/gray', lockfile={str(locked)!r}).RELEASE)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"1.0.0\n"
    shutil.rmtree(hub / "kernels")
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"1.0.0\n"
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(MissingError, match=r"is not on .* any more") as caught:
        get_locked_kernel("org/gray", lockfile=locked)
    assert caught.value.code == "KY716"
    assert str(tmp_path / "store") in caught.value.hint


def test_a_mirror_takes_the_place_of_the_locked_hub(locked: Path, hub: Path, tmp_path: Path) -> None:
    hub.rename(tmp_path / "mirror")
    with served(tmp_path / "mirror") as address:
        assert get_locked_kernel("org/gray", lockfile=locked, hub=address).RELEASE == "1.0.0"


def test_a_mirror_that_never_had_it_is_told_from_a_hub_that_has_it_no_more(
    locked: Path, hub: Path, tmp_path: Path
) -> None:
    builds = tmp_path / "others"
    builds.mkdir()
    Publish(tmp_path / "mirror", builds)("org/blur")
    uses: list[Callable[[], object]] = [
        lambda: get_locked_kernel("org/gray", lockfile=locked, hub=tmp_path / "mirror"),
        lambda: download(read_lock_at(locked), here(), hub=tmp_path / "mirror"),
    ]
    for use in uses:
        with pytest.raises(MissingError) as caught:
            use()
        assert caught.value.code == "KY725"
        assert f"is not on {tmp_path / 'mirror'}, which is asked in place of {hub}: org/gray has" in caught.value.what
        assert "any more" not in str(caught.value)


def test_a_lock_away_from_the_folder_that_it_names_says_where_that_should_be(
    publish: Publish, project: MakeProject, hub: Path, tmp_path: Path
) -> None:
    publish()
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, hub = "../hub" }\n')
    lock_project(root, Request())
    away = tmp_path / "some/where"
    away.mkdir(parents=True)
    (root / "kernels.lock").rename(away / "kernels.lock")
    uses: list[Callable[[], object]] = [
        lambda: get_locked_kernel("org/gray", lockfile=away),
        lambda: download(read_lock_at(away), here()),
    ]
    for use in uses:
        with pytest.raises(MissingError) as caught:
            use()
        assert caught.value.code == "KY726"
        told = (
            f"is on the hub ../hub, a folder that is not there: {tmp_path / 'some/hub'}; the lock names it as seen from"
        )
        assert f"{told} {away}" in caught.value.what
    assert get_locked_kernel("org/gray", lockfile=away, hub=hub).RELEASE == "1.0.0"


def test_a_layer_serves_beside_the_store(locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import kernelyard; kernelyard.get_locked_kernel('org/gray', lockfile={str(locked)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    (tmp_path / "store").rename(tmp_path / "layer")
    with pytest.raises(MissingError):
        load_kernel("org/gray", lockfile=locked)
    monkeypatch.setenv("KERNELYARD_LAYERS", str(tmp_path / "layer"))
    assert load_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"


@pytest.mark.parametrize("use", [get_locked_kernel, load_kernel])
def test_another_byte_in_a_layer_is_refused(
    locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[..., object]
) -> None:
    program = f"import kernelyard; kernelyard.get_locked_kernel('org/gray', lockfile={str(locked)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    (tmp_path / "store").rename(tmp_path / "layer")
    monkeypatch.setenv("KERNELYARD_LAYERS", str(tmp_path / "layer"))
    (file,) = (tmp_path / "layer/variants").glob("*/__init__.py")
    file.chmod(0o644)
    file.write_text(file.read_text().replace("1.0.0", "1.0.1"))
    with pytest.raises(VerificationError) as caught:
        use("org/gray", lockfile=locked)
    assert caught.value.code == "KY602"


def test_a_folder_of_builds_is_a_hub_as_long_as_it_has_what_is_locked(
    publish: Publish, project: MakeProject, tmp_path: Path
) -> None:
    publish(release="1.0.0")
    (build,) = (tmp_path / "builds").iterdir()
    build.rename(tmp_path / "build")
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, hub = "../build" }\n')
    kernel = lock_project(root, Request()).lock.find("org/gray")
    assert (kernel.hub, kernel.index) == ("../build", None)
    source = tmp_path / "build/torch-universal/__init__.py"
    text = source.read_text()
    source.write_text(text.replace("1.0.0", "1.1.0"))
    with pytest.raises(MissingError, match=r"this folder has another __init__\.py by now") as caught:
        get_locked_kernel("org/gray", lockfile=root)
    assert caught.value.code == "KY716"
    source.write_text(text)
    assert get_locked_kernel("org/gray", lockfile=root).RELEASE == "1.0.0"


GPU_LESS = System("x86_64", "linux", Version("2.36"), (3, 12), torch=Torch("2.13.0+cpu"))


def test_the_choice_is_among_what_is_locked(
    publish: Publish, project: MakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: GPU_LESS)
    publish(variants={"torch-cpu": "cpu", "torch-cuda": "cuda", "torch-rocm": "rocm"})
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, variants = ["torch-c*"] }\n')
    lock_project(root, Request())
    with pytest.raises(MissingError) as caught:
        get_locked_kernel("org/gray", lockfile=root, backend="cuda")
    assert caught.value.code == "KY601"
    assert "torch-cuda" in caught.value.what
    assert "torch-rocm" not in caught.value.what
    assert get_locked_kernel("org/gray", lockfile=root).__kernel__.variant == "torch-cpu"
    with pytest.raises(InputError, match="unknown backend 'gpu'"):
        load_kernel("org/gray", lockfile=root, backend="gpu")


def test_a_lesser_variant_that_is_here_is_taken_by_load_kernel_with_a_warning(
    publish: Publish,
    project: MakeProject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kernelyard.load.resolve.resolution.describe_system", lambda: GPU_LESS)
    publish(release="1.0.0", variants={"torch-universal": "cpu"})
    root = project('[tool.kernelyard.dependencies]\n"org/gray" = "==1.0.0"\n')
    lock_project(root, Request())
    get_locked_kernel("org/gray", lockfile=root)
    lock = json.loads((root / "kernels.lock").read_text())
    kernel = lock["kernels"]["org/gray"]
    kernel["index"] = None
    kernel["variants"]["torch-cpu"] = {"metadata.json": "sha256:" + "ab" * 32 + " 3"}
    other = tmp_path / "other.lock"
    other.write_text(json.dumps(lock))
    with caplog.at_level(logging.WARNING, logger="kernelyard"):
        assert load_kernel("org/gray", lockfile=other).__kernel__.variant == "torch-universal"
    assert "taken is torch-universal; torch-cpu would be better, and is not here" in caplog.text


def test_what_a_kernel_needs_comes_from_the_same_lock(publish: Publish, project: MakeProject) -> None:
    publish("org/common", "1.0.0")
    needing = "import kernelyard\nCOMMON = kernelyard.get_kernel_dep('org/common')\n"
    publish("org/gray", "1.0.0", source=needing, needs=[{"repo-id": "org/common", "version": 1}])
    root = project(ONE)
    lock_project(root, Request())
    publish("org/common", "1.1.0")
    assert get_locked_kernel("org/gray", lockfile=root).COMMON.RELEASE == "1.0.0"
    assert load_kernel("org/gray", lockfile=root).COMMON is load_kernel("org/common", lockfile=root)


def test_kernels_that_need_each_other_are_told(publish: Publish, project: MakeProject) -> None:
    publish("org/gray", needs=[{"repo-id": "org/b", "version": 1}])
    publish("org/b", needs=[{"repo-id": "org/gray", "version": 1}])
    root = project(ONE)
    lock_project(root, Request())
    with pytest.raises(InputError) as caught:
        get_locked_kernel("org/gray", lockfile=root)
    assert caught.value.code == "KY612"


def test_offline_is_like_load_kernel_for_what_is_here_and_says_why_it_cannot_for_the_rest(
    publish: Publish, project: MakeProject, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    root = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}", trust = true }}\n')
    lock_project(root, Request())
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    monkeypatch.setenv("KERNELYARD_LAYERS", str(root / "nothing"))
    with pytest.raises(EnvironmentProblemError, match="KERNELYARD_OFFLINE is set") as caught:
        get_locked_kernel("org/gray", lockfile=root)
    assert f"{root / 'nothing'} (there is no such folder)" in caught.value.what
    assert "kernelyard download" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"format": 99, "kernels": {}}', "KY703"),
        ('[{"dependency": {"repo-id": "org/gray", "version": 1}, "lock": {"commit": "' + "a" * 40 + '"}}]', "KY704"),
        ('[{"repo_id": "org/gray", "sha": "' + "a" * 40 + '", "variants": {}}]', "KY704"),
        ("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n", "KY702"),
        ('{"format": 1}', "KY701"),
    ],
)
def test_a_lock_of_another_format_is_told(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "kernels.lock").write_text(text)
    for use in (get_locked_kernel, load_kernel):
        with pytest.raises(InputError) as caught:
            use("org/gray", lockfile=tmp_path)
        assert caught.value.code == code


@pytest.mark.parametrize("name", [None, 3, "", Path("org/gray"), b"org/gray", ["org/gray"]])
@pytest.mark.parametrize("use", [get_locked_kernel, load_kernel, partial(kernelyard.get_kernel, version=1)])
def test_what_is_no_name_is_told(locked: Path, use: Callable[..., object], name: object) -> None:
    with pytest.raises(InputError) as caught:
        use(name, **({} if isinstance(use, partial) else {"lockfile": locked}))
    assert (caught.value.code, caught.value.what) == ("KY504", f"not the name of a kernel: {name!r}")


def test_what_is_not_locked_is_told(locked: Path) -> None:
    with pytest.raises(MissingError, match="org/other is not locked") as caught:
        get_locked_kernel("org/other", lockfile=locked)
    assert caught.value.code == "KY705"


def test_a_lock_that_is_written_anew_counts_at_once(publish: Publish, locked: Path) -> None:
    assert get_locked_kernel("org/gray", lockfile=locked).RELEASE == "1.0.0"
    publish(release="1.1.0")
    lock_project(locked, Request(upgrade=True))
    assert get_locked_kernel("org/gray", lockfile=locked).RELEASE == "1.1.0"
