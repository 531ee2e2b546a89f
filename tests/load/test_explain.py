"""Why a machine gets a variant or none, through the real command and a hub that is a folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import InputError, MissingError
from kernelyard.formats.facts import DeviceImage, Facts
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load.choice.explain import explain_folder, explain_kernel
from kernelyard.load.system.description import describe_system
from kernelyard.load.system.document import system_to_json
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.target import describe_target
from tests.hub import hugging_face_server

Run = Callable[..., subprocess.CompletedProcess[str]]
MakeVariant = Callable[..., Path]

OLD = "torch-stable-abi29-cu130-x86_64-linux"
NEW = "torch-stable-abi211-cu130-x86_64-linux"
FULL = "torch210-cxx11-cu130-x86_64-linux"


@pytest.fixture
def publish_release(tmp_path: Path, make_variant: MakeVariant) -> Callable[..., str]:
    """Return a function that publishes a release with variants of the given facts, and answers the revision's id."""

    def publish(number: str, variants: dict[str, dict[str, Any]], repo: str = "org/gray") -> str:
        for name, facts in variants.items():
            parsed = VariantName.parse(name)
            backend = "cpu" if parsed.backend == "universal" else parsed.backend
            folder = make_variant(f"build-{number}", name=name, backend=backend, version=int(number.partition(".")[0]))
            metadata = json.loads((folder / "metadata.json").read_bytes())
            known = replace(Facts.of_name(parsed), **facts)
            metadata["kernelyard"] = {"format": 1, "facts": known.to_json()}
            (folder / "metadata.json").write_text(json.dumps(metadata))
        built = FolderHub.find(tmp_path / f"build-{number}")
        assert built is not None
        publication = Publication(repo, replace(built.index, release=number), built.files, f"v{built.index.version}")
        return StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication).revision.id

    return publish


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Write the description of a machine with two GPUs that differ."""
    target = describe_target(torch="2.10.0+cu130", platform="x86_64-linux", glibc="2.36", driver="580.65.06")
    gpus = (Gpu(0, "GPU-a", (9, 0), "NVIDIA H200"), Gpu(1, "GPU-b", (7, 5), "Tesla T4"))
    known = replace(target, gpus=gpus, unknown=target.unknown - {"gpus"})
    (tmp_path / "node.json").write_text(json.dumps({"format": 1, "system": system_to_json(known)}))
    return tmp_path / "node.json"


def test_the_variant_that_is_taken_comes_first_and_each_other_has_its_reason(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path, node: Path
) -> None:
    id_ = publish_release("1.0.0", {OLD: {}, NEW: {}, FULL: {"bad": "It is slow."}, "torch-universal": {}})
    done = kernelyard("explain", "org/gray", "--hub", tmp_path / "hub", "--system", node)
    assert (done.returncode, done.stderr) == (0, "")
    head, blank, columns, *rows = done.stdout.splitlines()
    assert head.startswith(
        f"org/gray (v1, revision {id_[:12]}), on x86_64-linux, glibc 2.36, torch 2.10.0+cu130, GPU 0"
    )
    assert (blank, columns.split()) == ("", ["variant", "why"])
    assert [row.split(maxsplit=2) for row in rows] == [
        [OLD, "best", "It runs on this machine."],
        ["torch-universal", "yes", "It runs on this machine."],
        [NEW, "no", "It needs torch 2.11 or later and this is 2.10.0+cu130."],
        [FULL, "no", "Its publisher has marked it as bad: It is slow."],
    ]


def test_where_no_variant_is_usable_the_nearest_cure_follows(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path
) -> None:
    publish_release("1.0.0", {OLD: {}, "torch-stable-abi212-cu130-x86_64-linux": {}, NEW: {"glibc": Version("2.99")}})
    target = ("--torch", "2.8", "--cuda", "13.0", "--platform", "x86_64-linux", "--glibc", "2.28")
    done = kernelyard("explain", "org/gray", "--hub", tmp_path / "hub", *target)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == f"nearest is {OLD}: install torch 2.9 or later"
    told = json.loads(kernelyard("explain", "org/gray", "--hub", tmp_path / "hub", *target, "--json").stdout)
    assert (told["best"], told["cure"]) == (None, f"nearest is {OLD}: install torch 2.9 or later")
    assert [one["usable"] for one in told["variants"]] == [False, False, False]


def test_what_was_asked_of_a_machine_stands_in_the_heading(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path
) -> None:
    publish_release("1.0.0", {OLD: {}})
    explain = ("explain", "org/gray", "--hub", tmp_path / "hub", "--platform", "x86_64-linux", "--torch")
    for arguments, said in (
        (("2.13", "--cuda", "13.0"), "torch 2.13 for CUDA 13.0"),
        (("2.13.0+cu130",), "torch 2.13.0+cu130"),
        (("2.13",), "torch 2.13"),
    ):
        assert kernelyard(*explain, *arguments).stdout.splitlines()[0].endswith(f", on x86_64-linux, {said}")


def test_of_gpus_that_differ_each_has_a_verdict(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path, node: Path
) -> None:
    hopper, turing = (DeviceImage("sass", "9.0a", None),), (DeviceImage("sass", "7.5", None),)
    publish_release("1.0.0", {OLD: {"images": hopper}, FULL: {"images": turing}})
    explain = ("explain", "org/gray", "--hub", tmp_path / "hub", "--system", node)
    done = kernelyard(*explain)
    assert done.stdout.splitlines()[-3:] == [
        "GPU 0 (9.0): runs",
        "",
        "GPU 1 (7.5): does not run: it has no code for 7.5",
    ]
    first = json.loads(kernelyard(*explain, "--json").stdout)
    assert first["best"] == OLD
    assert first["variants"][0]["gpus"] == [
        {"index": 0, "capability": "9.0", "runs": True, "reason": None},
        {"index": 1, "capability": "7.5", "runs": False, "reason": "it has no code for 7.5"},
    ]
    second = json.loads(kernelyard(*explain, "--json", "--device", "cuda:1").stdout)
    assert second["best"] == FULL
    assert [one["for-all-gpus"] for one in second["variants"]] == [True, None]
    assert "KY623" in kernelyard(*explain, "--device", "2").stderr


def test_of_a_range_the_newest_release_with_a_usable_variant_is_told_and_those_passed_over(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path
) -> None:
    older = publish_release("1.0.0", {"torch-cpu": {}})
    newer = publish_release("1.1.0", {"torch-xpu": {}})
    explain = ("explain", "org/gray", "--hub", tmp_path / "hub", "--version", ">=1.0")
    done = kernelyard(*explain)
    assert done.returncode == 0
    assert done.stdout.startswith(f"org/gray (v1.0.0, revision {older[:12]})")
    assert done.stderr == f"org/gray (v1.1.0, revision {newer[:12]}) has no variant for this machine\n"
    told = json.loads(kernelyard(*explain, "--json").stdout)
    assert (told["revision"], told["found-by"], told["passed-over"]) == (older, "v1.0.0", [newer])
    # Where none does, it is the newest that is told of.
    none = kernelyard(*explain[:-1], ">1.0")
    assert none.returncode == 1
    assert none.stdout.startswith(f"org/gray (v1.1.0, revision {newer[:12]})")


def test_a_folder_is_explained_with_its_broken_variants(make_variant: MakeVariant) -> None:
    build = make_variant(name="torch-universal").parent
    (build / "torch-cpu").mkdir()
    explained = explain_folder(build, describe_system())
    assert explained.best is not None
    assert [verdict.variant for verdict in explained.verdicts] == ["torch-universal", "torch-cpu"]
    assert "no metadata.json" in explained.verdicts[1].reason
    alone = explain_folder(build / "torch-universal", describe_system(), backend="cpu")
    assert [verdict.usable for verdict in alone.verdicts] == [True]


@pytest.mark.parametrize(
    ("archs", "usable", "reason"),
    [
        (["12.0b", "8.0"], True, "It may run on GPU 0 (9.0): '12.0b' is no capability that is known here."),
        (["sm_90", "7.5+PTX"], True, "It runs on this machine."),
        (["8.0", "8.6"], False, "It has code for 8.0, 8.6 and none of it runs on GPU 0 (9.0)."),
    ],
)
def test_what_other_builders_say_of_capabilities_is_judged(
    make_variant: MakeVariant, archs: list[str], reason: str, *, usable: bool
) -> None:
    folder = make_variant(name=FULL, backend="cuda")
    metadata = json.loads((folder / "metadata.json").read_bytes())
    metadata["backend"]["archs"] = archs
    (folder / "metadata.json").write_text(json.dumps(metadata))
    node = describe_target(torch="2.10.0+cu130", platform="x86_64-linux", capabilities=["9.0"])
    (verdict,) = explain_folder(folder.parent, node).verdicts
    assert (verdict.usable, verdict.reason) == (usable, reason)


def test_the_folder_that_stands_for_a_kernel_is_explained(
    make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = make_variant(name="torch-universal").parent
    monkeypatch.setenv("LOCAL_KERNELS", f"org/gray={build}")
    explained = explain_kernel("org/gray", describe_system())
    assert (explained.of, explained.revision) == (str(build), None)


def test_the_newest_version_is_explained_if_none_is_named(publish_release: Callable[..., str], tmp_path: Path) -> None:
    publish_release("1.0.0", {"torch-cpu": {}})
    second = publish_release("2.0.0", {"torch-cpu": {}})
    explained = explain_kernel("org/gray", describe_system(), hub=tmp_path / "hub")
    assert explained.revision is not None
    assert (explained.revision.id, explained.revision.ref) == (second, "v2")
    with pytest.raises(MissingError):
        explain_kernel("org/other", describe_system(), hub=tmp_path / "hub")
    with pytest.raises(InputError):
        explain_kernel("nonsense", describe_system())


def test_what_a_hub_does_not_list_is_read_until_the_best_variant_stands(
    hugging_face: hugging_face_server.Hub, make_variant: MakeVariant
) -> None:
    files: dict[str, bytes] = {}
    best = "tvm-ffi01-cpu-x86_64-linux"
    for name in ("torch-cpu", "torch-universal", "torch-xpu", best):
        folder = make_variant(name=name)
        metadata = json.loads((folder / "metadata.json").read_bytes())
        metadata["python-depends"] = ["helion"] if name == best else []
        (folder / "metadata.json").write_text(json.dumps(metadata))
        files |= {f"build/{name}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    hugging_face.make("org/gray").put("v1", files)
    system = replace(describe_system(), cpu="x86_64", os="linux", packages=(), gpus=(), torch=None, tvm_ffi="0.1.9")
    explained = explain_kernel("org/gray", system)
    assert [(one.variant, one.usable) for one in explained.verdicts] == [
        ("torch-cpu", True),
        ("torch-universal", True),
        (best, False),
        ("torch-xpu", False),
    ]
    assert "helion is not installed" in explained.verdicts[2].reason
    assert not any("torch-xpu" in line for line in hugging_face.requests)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("org/gray", "org/blue"), "one kernel at a time"),
        (("org/gray", "--backend", "photons"), "unknown backend 'photons'"),
        (("org/gray", "--system", "node.json", "--torch", "2.9"), "described twice"),
        (("org/gray", "--system", "none.json"), "cannot be read"),
        (("org/gray", "--torch", "new"), "not a version of torch"),
    ],
)
def test_what_cannot_be_explained_is_told(
    kernelyard: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = kernelyard("explain", *arguments, "--hub", tmp_path / "hub")
    assert done.returncode in {2, 3}
    assert said in done.stderr
    assert done.stdout == ""


def test_versions_are_judged_for_the_machine_that_is_described(
    kernelyard: Run, publish_release: Callable[..., str], tmp_path: Path, node: Path
) -> None:
    publish_release("1.0.0", {OLD: {}})
    listed = json.loads(
        kernelyard("versions", "org/gray", "--hub", tmp_path / "hub", "--system", node, "--json").stdout
    )
    assert {one["best"] for one in listed} == {OLD}
    target = ("--torch", "2.8", "--platform", "x86_64-linux")
    listed = json.loads(kernelyard("versions", "org/gray", "--hub", tmp_path / "hub", *target, "--json").stdout)
    assert {one["best"] for one in listed} == {None}
