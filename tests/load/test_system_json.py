from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, Torch, describe_system
from kernelyard.load.system.document import FORMAT, read_system, system_to_json
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.shadows import Shadow
from kernelyard.load.system.target import describe_target

FULL = System(
    cpu="aarch64",
    os="linux",
    glibc=Version("2.39"),
    python=(3, 13),
    free_threaded=True,
    torch=Torch("2.6.0a0+ecf3bae40a.nv25.01", Version("12.8"), None, cxx11_abi=True, folder=Path("/opt/torch")),
    tvm_ffi="0.1.13.post2",
    driver=Version("580.65.06"),
    gpus=(Gpu(3, "GPU-c", (9, 0), "NVIDIA GH200 480GB"), Gpu(0, "MIG-a", (8, 0))),
    gpus_in_order=True,
    packages=(("einops", "0.8.1"), ("torch", "2.6.0a0+ecf3bae40a.nv25.1")),
    amd_gpus=("gfx942",),
    shadows=(Shadow("libcudart.so.12", "/usr/local/cuda/lib64/libcudart.so.12", "LD_LIBRARY_PATH"),),
    unknown=frozenset({"tvm_ffi"}),
)


def write(folder: Path, document: object) -> Path:
    path = folder / "node.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


@pytest.mark.parametrize(
    "system",
    [
        FULL,
        System(cpu="x86_64", os="linux", glibc=None, musl=Version("1.2.5"), python=(3, 10), packages=()),
        System(cpu="aarch64", os="darwin", glibc=None, macos=Version("15.6"), python=(3, 12), packages=()),
        describe_target(torch="2.13", cuda="13.0", platform="aarch64-linux", capabilities=["9.0"]),
        describe_target(torch="2.10.0+rocm6.4", platform="x86_64-linux"),
    ],
)
def test_a_system_is_read_as_it_was_written(tmp_path: Path, system: System) -> None:
    assert read_system(write(tmp_path, {"format": FORMAT, "system": system_to_json(system)})) == system


def test_this_machine_is_read_as_it_is_but_for_what_only_it_can_be_asked(tmp_path: Path) -> None:
    read = read_system(write(tmp_path, {"format": FORMAT, "system": system_to_json(describe_system())}))
    assert read == replace(describe_system(), unknown=frozenset({"packages"}))
    assert read.torch is None or read.torch.folder is None


@pytest.mark.parametrize(
    ("change", "key", "what"),
    [
        ({"cpu": None}, "system.cpu", "missing"),
        ({"glibc": "old"}, "system.glibc", "not a version"),
        ({"python": None}, "system.python", "missing"),
        ({"free-threaded": "no"}, "system.free-threaded", "expected bool"),
        ({"torch": {"cuda": None}}, "system.torch.version", "missing"),
        ({"gpus": [{"index": 0, "uuid": ""}]}, "system.gpus[0].capability", "missing"),
        ({"gpus": {}}, "system.gpus", "expected list"),
        ({"packages": {"a": 1}}, "system.packages.a", "expected str"),
        ({"unknown": ["weather"]}, "system.unknown", "weather"),
    ],
)
def test_a_member_that_is_wrong_is_named(tmp_path: Path, change: dict[str, Any], key: str, what: str) -> None:
    path = write(tmp_path, {"format": FORMAT, "system": system_to_json(FULL) | change})
    with pytest.raises(InputError, match=what) as caught:
        read_system(path)
    assert caught.value.code == "KY620"
    assert caught.value.place is not None
    assert (caught.value.place.path, caught.value.place.key) == (str(path), key)


@pytest.mark.parametrize("document", ["", "[]", "nonsense", {"format": FORMAT + 1, "system": {}}, {"system": {}}])
def test_what_is_no_description_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(InputError) as caught:
        read_system(write(tmp_path, document))
    assert caught.value.code == "KY620"


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblemError) as caught:
        read_system(tmp_path / "none.json")
    assert caught.value.code == "KY621"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EnvironmentProblemError, match="Not a regular file") as caught:
        read_system(tmp_path / "pipe")
    assert caught.value.code == "KY621"


def test_a_target_knows_what_is_said_of_it_and_leaves_the_rest_open() -> None:
    target = describe_target(torch="2.13", cuda="13.0", platform="aarch64-linux", capabilities=["9.0", "12.0"])
    assert target.platform == "aarch64-linux"
    assert target.torch == Torch("2.13", Version("13.0"), cxx11_abi=True)
    assert [gpu.capability for gpu in target.gpus] == [(9, 0), (12, 0)]
    assert target.gpus_in_order
    assert target.unknown == {"python", "glibc", "driver", "tvm_ffi", "packages"}


@pytest.mark.parametrize(
    ("torch", "cuda", "expected"),
    [
        ("2.11.0+cu130", None, Torch("2.11.0+cu130", Version("13.0"), cxx11_abi=True)),
        ("2.6.0+cu118", None, Torch("2.6.0+cu118", Version("11.8"))),
        ("2.11.0+cu130", "12.8", Torch("2.11.0+cu130", Version("12.8"), cxx11_abi=True)),
        ("2.13.0+cpu", None, Torch("2.13.0+cpu", cxx11_abi=True)),
        ("2.10.0+rocm6.4", None, Torch("2.10.0+rocm6.4", None, "6.4", cxx11_abi=True)),
        ("2.9.0a0+git1234", "12.8", Torch("2.9.0a0+git1234", Version("12.8"))),
    ],
)
def test_the_torch_of_a_target_says_what_it_is_for(torch: str, cuda: str | None, expected: Torch) -> None:
    assert describe_target(torch=torch, cuda=cuda, platform="x86_64-linux").torch == expected


def test_everything_can_be_said_of_a_target() -> None:
    target = describe_target(
        torch="2.13",
        cuda="13.0",
        python="3.14",
        glibc="2.28",
        driver="580.65.06",
        tvm_ffi="0.1.9",
        capabilities=["8.6"],
    )
    assert (target.python, target.glibc, target.driver, target.tvm_ffi) == (
        (3, 14),
        Version("2.28"),
        Version("580.65.06"),
        "0.1.9",
    )
    assert target.platform == describe_system().platform
    assert target.unknown == {"packages"}


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ({"torch": "newest"}, "version of torch"),
        ({"torch": "2.13", "cuda": "thirteen"}, "for cuda"),
        ({"torch": "2.13", "platform": "linux"}, "not a platform"),
        ({"torch": "2.13", "capabilities": ["9.0a"]}, "capability"),
        ({"torch": "2.13", "capabilities": ["90"]}, "capability"),
        ({"torch": "2.13", "glibc": "musl"}, "for glibc"),
    ],
)
def test_what_cannot_be_meant_is_refused(target: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        describe_target(**target)
    assert caught.value.code == "KY622"
    assert caught.value.hint


def test_without_a_torch_to_go_by_it_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = replace(describe_system(), torch=None)
    monkeypatch.setattr("kernelyard.load.system.target.describe_system", lambda: nothing)
    with pytest.raises(InputError, match="none here"):
        describe_target(platform="x86_64-linux")


def test_the_specification_lists_exactly_the_members_that_are_written() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/formats/system.md").read_text("utf-8")
    cells = [line.split("|")[1] for line in page.partition("## `system`")[2].splitlines() if line.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    written = system_to_json(FULL)
    assert listed == {*written, *(f"torch.{name}" for name in written["torch"])}
