from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from kernelyard.author.doctor import examine
from kernelyard.formats.versions import Version
from kernelyard.load.choice.advice import advise
from kernelyard.load.system.description import System, Torch, describe_system
from kernelyard.load.system.document import read_system
from kernelyard.load.system.nvml import Gpu
from kernelyard.load.system.packages import installed_packages
from kernelyard.load.system.shadows import Shadow

Run = Callable[..., subprocess.CompletedProcess[str]]

H200 = Gpu(0, "GPU-a", (9, 0), "NVIDIA H200")
GOOD = System(
    cpu="x86_64",
    os="linux",
    glibc=Version("2.36"),
    python=(3, 12),
    torch=Torch("2.13.0+cu130", Version("13.0")),
    driver=Version("580.65.06"),
    gpus=(H200,),
    gpus_in_order=True,
)
SHADOW = Shadow("libcudart.so.12", "/opt/libcudart.so.12", "LD_LIBRARY_PATH")


def test_a_machine_on_which_all_is_well_needs_no_advice() -> None:
    assert advise(GOOD) == ()
    assert advise(replace(GOOD, torch=Torch("2.13.0+cpu"), driver=None, gpus=())) == ()


@pytest.mark.parametrize(
    ("changes", "what", "step", "serious"),
    [
        ({"torch": None}, "No torch is installed", "install torch", True),
        ({"torch": Torch("2.13.0+cpu")}, "is CPU-only, and there is GPU 0 (9.0)", "built for it", True),
        ({"torch": Torch("2.13.0", hip="6.4")}, "is not built for CUDA", "built for CUDA", True),
        ({"torch": Torch("2.13.0+cpu"), "gpus": (), "amd_gpus": ("gfx942",)}, "there is gfx942", "built for", True),
        ({"driver": None, "gpus": ()}, "built for CUDA 13.0, and there is no NVIDIA driver", "the NVIDIA driver", True),
        ({"gpus": ()}, "no GPU is visible", "CUDA_VISIBLE_DEVICES", True),
        ({"driver": Version("570.1")}, "570.1 is too old for CUDA 13, which torch is built for", "driver 580 or", True),
        ({"torch": Torch("2.15.0", Version("13.1"))}, "too old for PTX of CUDA 13.1: it takes PTX up to 9.0",
         "driver 590 or later", False),
        ({"gpus": (H200, Gpu(1, "", (7, 5))), "gpus_in_order": False}, "The GPUs differ", "CUDA_DEVICE_ORDER", False),
        ({"free_threaded": True}, "Python 3.12 here is the free-threaded one", "ordinary Python 3.12", True),
        ({"glibc": None, "musl": Version("1.2.5")}, "The C library is musl 1.2.5", "with glibc", True),
        ({"torch": Torch("2.13.0a0+git1", Version("13.0"))}, "2.13.0a0+git1 is no release", "", False),
        ({"shadows": (SHADOW,)}, "LD_LIBRARY_PATH puts /opt/libcudart.so.12 in the place of", "take it out of", False),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_told_with_the_next_step(
    changes: dict[str, object], what: str, step: str, *, serious: bool
) -> None:
    system = replace(GOOD, **changes)  # type: ignore[arg-type]
    (advice,) = advise(system)
    assert what in advice.what
    assert advice.what.endswith(".")
    assert step in advice.step
    assert advice.serious is serious


def test_what_is_serious_comes_first() -> None:
    found = advise(replace(GOOD, torch=Torch("2.13.0a0+git1"), shadows=(SHADOW,)))
    assert [one.serious for one in found] == [True, False, False]


def test_its_json_is_what_other_commands_read_as_a_system(kernelyard: Run, tmp_path: Path) -> None:
    done = kernelyard("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "node.json").write_text(done.stdout)
    read = read_system(tmp_path / "node.json")
    assert read == replace(describe_system(), packages=tuple(sorted(installed_packages().items())))
    assert dict(read.packages or ())["pytest"] == version("pytest")
    assert json.loads(done.stdout)["format"] == 1


def test_the_page_says_what_there_is_and_gives_nothing_away(kernelyard: Run, tmp_path: Path) -> None:
    environment = {
        "KERNELYARD_CACHE": str(tmp_path / "store"),
        "KERNELYARD_HUB": "https://me:hunter2@hub.example/",
        "HF_TOKEN": "hf_hunter2",
        "KERNELYARD_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    for option in ((), ("--json",)):
        done = kernelyard("doctor", *option, env=environment)
        assert done.returncode == 0
        assert "hunter2" not in done.stdout
        assert "https://***@hub.example/" in done.stdout
        assert str(tmp_path / "store") in done.stdout
        assert "KERNELYARD_OFFLINE forbids to ask any hub." in done.stdout
    assert not (tmp_path / "store").exists()


def test_a_store_that_others_can_write_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o777)
    monkeypatch.setenv("KERNELYARD_CACHE", str(store))
    monkeypatch.delenv("KERNELYARD_TRUST_STORE", raising=False)
    found = examine()
    assert found.store == str(store)
    assert any("is not safe" in one.what and one.serious for one in found.advice)
    store.chmod(0o700)
    assert not any("is not safe" in one.what for one in examine().advice)


def test_a_store_that_leads_nowhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "file" / "store"))
    assert any("cannot be written" in one.what for one in examine().advice)
    monkeypatch.setenv("KERNELYARD_CACHE", "~nobody-of-this-name/x")
    found = examine()
    assert found.store is None
    assert any(one.what.startswith("There is no store") for one in found.advice)


def test_layers_that_are_none_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "layer.tar").touch()
    layers = [str(tmp_path / name) for name in ("there", "layer.tar", "typo")]
    monkeypatch.setenv("KERNELYARD_LAYERS", ":".join(layers))
    told = [(one.what, one.step) for one in examine().advice if "layer" in one.what and one.serious]
    assert [what for what, _ in told] == [
        f"The layer {layers[1]} is a file, from which nothing is loaded.",
        f"There is no layer {layers[2]}.",
    ]
    assert "unpack it" in told[0][1]


def test_policies_are_told_with_their_mistakes(kernelyard: Run, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "kernelyard.toml").write_text('[trust]\ndenny = ["me"]\n')
    good = tmp_path / "good.toml"
    good.write_text('[trust]\ndeny = ["me"]\n')
    env = {"KERNELYARD_POLICY": str(good), "KERNELYARD_HUB": str(tmp_path / "hub"), "HOME": str(tmp_path)}
    done = kernelyard("doctor", "--json", cwd=tmp_path, env=env)
    found = json.loads(done.stdout)
    assert found["policies"] == {str(tmp_path / "kernelyard.toml"): "has mistakes", str(good): "holds"}
    assert found["hub"] == str(tmp_path / "hub")
    first = found["advice"][0]
    assert first["serious"]
    assert first["what"].startswith("Nothing is loaded before this policy is mended: ")
    assert "denny" in first["what"]
    shown = kernelyard("doctor", cwd=tmp_path, env=env).stdout
    assert f"policy     {good}, which holds" in shown
    assert "Nothing is missing" not in shown
    env["KERNELYARD_POLICY"] = str(tmp_path / "none.toml")
    assert "names a policy that cannot be read" in kernelyard("doctor", cwd=tmp_path, env=env).stdout


def test_without_the_extra_for_building_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelyard.author.doctor._BUILD", ("no_such_module_anywhere",))
    found = examine()
    assert found.author is None
    assert any("kernelyard[build]" in one.step for one in found.advice)


def test_packages_are_named_as_requirements_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"My_Pack.age": "2.0", "broken": None}.items():
        info = tmp_path / f"{name}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {text}\n" if text else "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert installed_packages() == {"my-pack-age": "2.0"}
