from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, MissingError, VerificationError
from kernelyard.formats.lock import KernelLock
from kernelyard.hub.static import StaticHub
from kernelyard.load.system.description import describe_system
from kernelyard.load.system.target import describe_target
from kernelyard.lock.download import Downloaded, Progress, download
from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from kernelyard.lock.stored import stored_index
from kernelyard.lock.targets import Target
from kernelyard.lock.use import load_kernel
from kernelyard.store import Store
from tests.lock.conftest import Publish, Server

Write = Callable[[str], Path]

STABLE = "torch-stable-abi211"
CPU, ARM = f"{STABLE}-cpu-x86_64-linux", f"{STABLE}-cpu-aarch64-linux"
CU130, CU124 = f"{STABLE}-cu130-x86_64-linux", "torch-stable-abi29-cu124-x86_64-linux"
BACKENDS = {CPU: "cpu", ARM: "cpu", CU130: "cuda", CU124: "cuda"}


def here() -> Target:
    return Target(describe_system(), is_here=True)


def locked(folder: Path, *, trust: bool = False) -> KernelLock:
    return lock_project(folder, Request(trust=trust)).lock


def read(folder: Path) -> KernelLock:
    path = folder / "kernels.lock"
    return KernelLock.from_json(path.read_bytes(), path=str(path))


def names(done: Downloaded) -> list[tuple[str, str, bool]]:
    return [(piece.kernel.key, piece.variant, piece.fetched) for piece in done.pieces]


def files(requests: list[str]) -> list[str]:
    return [path for path in requests if path.startswith("/blobs/")]


def test_what_is_locked_is_fetched_and_loads_with_the_hub_gone(publish: Publish, project: Write, hub: Path) -> None:
    publish("org/common", source="SHADE = 7\n")
    publish(needs=[{"repo-id": "org/common", "version": 1}])
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    locked(folder)
    done = download(read(folder), here())
    common = next(key for key in read(folder).kernels if key.startswith("org/common@"))
    assert names(done) == [(common, "torch-universal", True), ("org/gray", "torch-universal", True)]
    assert done.pieces[1].path.is_relative_to(Store.default().root)
    shutil.rmtree(hub)
    assert load_kernel("org/gray", lockfile=folder).RELEASE == "1.0.0"
    assert names(download(read(folder), here()))[1] == ("org/gray", "torch-universal", False)


def test_a_layer_holds_all_that_a_program_needs(
    publish: Publish, project: Write, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = ">=1.0,<2"\n')
    locked(folder)
    layer = tmp_path / "layer"
    done = download(read(folder), here(), store=Store(layer))
    assert done.pieces[0].path.is_relative_to(layer)
    assert not (tmp_path / "store" / "variants").exists()
    shutil.rmtree(hub)
    with pytest.raises(MissingError) as caught:
        load_kernel("org/gray", lockfile=folder)
    assert caught.value.code == "KY709"
    monkeypatch.setenv("KERNELYARD_LAYERS", str(layer))
    assert load_kernel("org/gray", lockfile=folder).RELEASE == "1.0.0"
    assert not (layer / "partial").exists() or list((layer / "partial").iterdir()) == []


def test_what_another_machine_needs_is_fetched_for_it(publish: Publish, project: Write, tmp_path: Path) -> None:
    publish(variants=BACKENDS)
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    locked(folder)

    def fetched(**described: Any) -> list[str]:
        target = Target(describe_target(**described))
        return [piece.variant for piece in download(read(folder), target, store=Store(tmp_path / "layer")).pieces]

    assert fetched(torch="2.13", platform="aarch64-linux") == [ARM]
    assert fetched(torch="2.13", cuda="13.0", platform="x86_64-linux", capabilities=["9.0"]) == [CU130]
    assert fetched(torch="2.9", cuda="12.8", platform="x86_64-linux", capabilities=["8.0"]) == [CU124]
    with pytest.raises(MissingError, match="org/gray") as caught:
        fetched(torch="2.8", platform="aarch64-linux")
    assert caught.value.code == "KY760"
    assert f"{ARM}: It needs torch 2.11 or later" in caught.value.what
    everything = download(read(folder), Target(None), store=Store(tmp_path / "all"))
    assert [piece.variant for piece in everything.pieces] == sorted(BACKENDS)


def test_an_optional_kernel_without_a_variant_is_left_out_and_told(publish: Publish, project: Write) -> None:
    publish(variants={ARM: "cpu"})
    publish("org/plain")
    optional = '"org/gray" = { version = 1, optional = true }'
    folder = project(f'[tool.kernelyard.dependencies]\n{optional}\n"org/plain" = 1\n')
    locked(folder)
    done = download(read(folder), Target(describe_target(torch="2.13", platform="x86_64-linux")))
    assert [piece.kernel.key for piece in done.pieces] == ["org/plain"]
    assert [key for key, _ in done.without] == ["org/gray"]
    assert "It is built for aarch64-linux" in done.without[0][1]


def test_groups_and_markers_say_what_is_fetched(publish: Publish, project: Write) -> None:
    for repo in ("org/gray", "org/tests", "org/arm"):
        publish(repo)
    marked = '"org/arm" = { version = 1, marker = "platform_machine == \'aarch64\'" }'
    groups = '[tool.kernelyard.dependency-groups.test]\n"org/tests" = 1\n'
    folder = project(f'[tool.kernelyard.dependencies]\n"org/gray" = 1\n{marked}\n{groups}')
    locked(folder)

    def fetched(target: Target) -> list[str]:
        return [piece.kernel.key for piece in download(read(folder), target).pieces]

    x86, arm = (describe_target(torch="2.13", platform=f"{cpu}-linux") for cpu in ("x86_64", "aarch64"))
    assert fetched(Target(x86)) == ["org/gray"]
    assert fetched(Target(arm)) == ["org/arm", "org/gray"]
    assert fetched(Target(x86, groups={"main", "test"})) == ["org/gray", "org/tests"]
    assert fetched(Target(x86, groups={"test"})) == ["org/tests"]
    with pytest.raises(MissingError, match="there are: main, test") as caught:
        fetched(Target(x86, groups={"dev"}))
    assert caught.value.code == "KY761"


def test_a_marker_that_cannot_be_judged_is_told(publish: Publish, project: Write) -> None:
    publish()
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = { version = 1, marker = "os_name == \'x\'" }\n')
    locked(folder)
    lock = folder / "kernels.lock"
    for marker in ("nothing", "sys_platform ~= 'linux'", "'a' in 'b'"):
        lock.write_text(lock.read_text().replace("os_name == 'x'", marker))
        with pytest.raises(InputError, match="not a marker") as caught:
            download(read(folder), here())
        assert (caught.value.code, getattr(caught.value.place, "key", "")) == ("KY701", "kernels.org/gray")
        lock.write_text(lock.read_text().replace(marker, "os_name == 'x'"))


def test_what_a_stopped_download_has_left_is_not_fetched_again(
    publish: Publish, project: Write, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELYARD_HUB", address)
    publish("org/gray", source="x = 1\n")
    publish("org/plain", source="y = 2\n")
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n"org/plain" = 1\n')
    locked(folder, trust=True)
    fetch_file, count = StaticHub.fetch_file, []

    def stops(*arguments: Any) -> None:
        count.append(arguments)
        if len(count) == 3:
            raise KeyboardInterrupt
        fetch_file(*arguments)

    monkeypatch.setattr(StaticHub, "fetch_file", stops)
    with pytest.raises(KeyboardInterrupt):
        download(read(folder), here(), at_once=1)
    assert not Store.default().path("variants", "").exists()
    monkeypatch.setattr(StaticHub, "fetch_file", fetch_file)
    left = [path for path in Store.default().path("partial", "").rglob("files/*") if path.is_file()]
    assert len(left) >= 2
    Server.requests.clear()
    done = download(read(folder), here(), at_once=1)
    assert [fetched for _, _, fetched in names(done)] == [True, True]
    assert len(files(Server.requests)) == 4 - len(left)
    Server.requests.clear()
    download(read(folder), here())
    assert Server.requests == []


def test_a_rotten_remainder_is_fetched_again(publish: Publish, project: Write, address: str, tmp_path: Path) -> None:
    publish("org/gray", source="x = 1\n")
    folder = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}" }}\n')
    locked(folder, trust=True)
    first = download(read(folder), here(), store=Store(tmp_path / "one"))
    key = first.pieces[0].path.name
    left = tmp_path / "two/partial" / key / "files"
    left.mkdir(parents=True)
    (left / "__init__.py").write_text("x = 2\n")
    second = download(read(folder), here(), store=Store(tmp_path / "two"))
    assert (second.pieces[0].path / "__init__.py").read_text() == "x = 1\n"


def test_other_bytes_on_the_hub_are_refused_and_nothing_is_left_as_whole(
    publish: Publish, project: Write, hub: Path
) -> None:
    publish("org/gray", source="x = 1\n")
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    lock = locked(folder)
    entry = next(file for file in lock.kernels["org/gray"].files("torch-universal") if file.path == "__init__.py")
    blob = hub / "blobs/sha256" / entry.sha256[:2] / entry.sha256
    blob.chmod(0o644)
    blob.write_text("x = 2\n")
    with pytest.raises(VerificationError) as caught:
        download(read(folder), here())
    assert (caught.value.code, caught.value.exit_code) == ("KY503", 4)
    assert not Store.default().path("variants", "").exists()


def test_a_kernel_that_is_gone_is_told_as_that(publish: Publish, project: Write, hub: Path) -> None:
    publish()
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    locked(folder)
    shutil.rmtree(hub / "kernels")
    with pytest.raises(MissingError) as caught:
        download(read(folder), here(), store=Store(hub.parent / "other"))
    assert caught.value.code == "KY716"


def test_what_the_store_has_is_copied_into_a_layer_with_the_hub_gone(
    publish: Publish, project: Write, hub: Path, tmp_path: Path
) -> None:
    publish()
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    lock = locked(folder)
    (piece,) = download(read(folder), here()).pieces
    layer = Store(tmp_path / "layer")
    hub.rename(tmp_path / "gone")
    (copied,) = download(read(folder), here(), store=layer).pieces
    assert copied.path.is_relative_to(layer.root)
    files = {path.name: path.read_bytes() for path in copied.path.iterdir()}
    assert files == {path.name: path.read_bytes() for path in piece.path.iterdir()}
    assert stored_index(lock.find("org/gray"), places=(layer,)) is not None
    # What was damaged in the store is not copied, but fetched.
    damaged = piece.path / "__init__.py"
    damaged.chmod(0o644)
    damaged.write_text("something else")
    with pytest.raises(MissingError) as caught:
        download(read(folder), here(), store=Store(tmp_path / "another"))
    assert caught.value.code == "KY726"
    (tmp_path / "gone").rename(hub)
    (fetched,) = download(read(folder), here(), store=Store(tmp_path / "another")).pieces
    assert {path.name: path.read_bytes() for path in fetched.path.iterdir()} == files


def test_a_mirror_serves_what_is_locked(
    publish: Publish, project: Write, hub: Path, address: str, tmp_path: Path
) -> None:
    publish()
    folder = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}" }}\n')
    locked(folder, trust=True)
    shutil.copytree(hub, tmp_path / "mirror")
    shutil.rmtree(hub / "blobs")
    done = download(read(folder), here(), hub=tmp_path / "mirror")
    assert names(done) == [("org/gray", "torch-universal", True)]


def test_without_a_network_what_is_here_is_enough(
    publish: Publish, project: Write, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish()
    folder = project(f'[tool.kernelyard.dependencies]\n"org/gray" = {{ version = 1, hub = "{address}" }}\n')
    locked(folder, trust=True)
    download(read(folder), here())
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    assert [fetched for _, _, fetched in names(download(read(folder), here()))] == [False]
    Server.requests.clear()
    assert len(download(read(folder), here(), store=Store(tmp_path / "layer")).pieces) == 1
    assert Server.requests == []
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "another"))
    with pytest.raises(EnvironmentProblemError) as caught:
        download(read(folder), here(), store=Store(tmp_path / "empty"))
    assert caught.value.code == "KY532"


def test_how_far_it_is_is_told_in_files_and_bytes(publish: Publish, project: Write) -> None:
    publish("org/gray", source="x = 1\n")
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    lock = locked(folder)
    told: list[Progress] = []
    done = download(read(folder), here(), progress=told.append)
    entries = lock.kernels["org/gray"].files("torch-universal")
    size = sum(entry.size for entry in entries)
    assert told[0] == Progress(0, 0, 0, 0) or told[0].files == 0
    assert told[-1] == Progress(len(entries), len(entries), size, size)
    assert done.pieces[0].size == size


def test_the_command_fetches_for_a_container(
    publish: Publish, project: Write, kernelyard: Any, tmp_path: Path, hub: Path
) -> None:
    publish(variants=BACKENDS)
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    locked(folder)
    env = {"KERNELYARD_CACHE": str(tmp_path / "store"), "KERNELYARD_HUB": str(hub)}
    described = ("--torch", "2.13", "--cuda", "13.0", "--platform", "x86_64-linux", "--capability", "9.0")
    done = kernelyard("download", folder, *described, "--dest", tmp_path / "layer", "--json", env=env)
    assert done.returncode == 0, done.stderr
    (told,) = json.loads(done.stdout)["kernels"]
    assert (told["kernel"], told["variant"], told["fetched"]) == ("org/gray", CU130, True)
    assert Path(told["path"]).is_relative_to(tmp_path / "layer")
    again = kernelyard("download", folder / "kernels.lock", *described, "--dest", tmp_path / "layer", env=env)
    assert again.stdout == f"org/gray 1.0.0  {CU130}  was there\n"
    assert f"KERNELYARD_LAYERS={tmp_path / 'layer'}" in again.stderr
    refused = kernelyard("download", folder, "--torch", "2.8", "--platform", "aarch64-linux", env=env)
    assert (refused.returncode, "[KY760]" in refused.stderr) == (1, True)
    nowhere = kernelyard("download", tmp_path, env=env)
    assert (nowhere.returncode, "[KY700]" in nowhere.stderr) == (1, True)
