"""Wheels of what was compiled: judged by the tools of others, installed by real installers, imported beside the hub's.

A process has each build once, whichever way it came first: torch refuses operators that are registered twice, and for
the stable ABI that ends the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.export.convert import convert, selected
from kernelyard.export.wheel import Wheel
from kernelyard.hub import Publication
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.toolchain.parts import PartSource
from tests.conftest import Command
from tests.export.conftest import Environment
from tests.installing import uv

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.slow]

Sample = Callable[[str], Path]


def built(project: Path) -> FolderHub:
    found = FolderHub.find(project)
    assert found is not None
    return found


def wheel_of(hub: FolderHub, folder: Path, release: str | None = "1.1.2") -> Wheel:
    found = hub.resolve(f"org/{hub.index.name}", version=1)
    (made,) = convert(hub, found, selected(found.index, ("*-cpu-x86_64-linux",)), folder, release=release).converted
    return made.wheel


def judged(judge: str, *arguments: str | Path, status: int = 0) -> str:
    program = Path(sysconfig.get_path("scripts")) / judge
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=["torch-stable-abi", "torch", "tvm-ffi"])
def kernel(request: pytest.FixtureRequest, built_img2gray: Path, source: PartSource) -> FolderHub:
    """A kernel that was built for the CPU and binds in each of the ways."""
    if request.param == "torch-stable-abi":
        return built(built_img2gray)
    name, variant = {"torch": ("axpy", "torch213-cxx11-cpu-*"), "tvm-ffi": ("scale", "tvm-ffi01-cpu-*")}[request.param]
    project: Path = request.getfixturevalue("sample")(name)
    build_project(project, source=source, variants=[variant])
    return built(project)


NAMES = {
    "torch-stable-abi": ("img2gray-1.1.2+torchstable211cpu-cp39-abi3-manylinux_2_28_x86_64.whl", "torch>=2.11"),
    "torch": ("axpy-1.1.2+torch213cpucxx11-cp39-abi3-manylinux_2_28_x86_64.whl", "torch==2.13.*"),
    "tvm-ffi": ("scale-1.1.2+tvmffi01cpu-py3-none-manylinux_2_28_x86_64.whl", "apache-tvm-ffi==0.1.*"),
}


def test_a_wheel_is_fit_by_our_check_and_those_of_others(
    kernel: FolderHub, kernelyard: Command, tmp_path: Path
) -> None:
    wheel, framework = wheel_of(kernel, tmp_path), kernel.index.variants[0].facts.framework
    assert (wheel.path.name, wheel.requires) == (NAMES[framework][0], (NAMES[framework][1],))
    done = kernelyard("check", wheel.path)
    assert done.returncode == 0, done.stdout
    judged("twine", "check", "--strict", wheel.path)
    seen = json.loads(judged("auditwheel", "show", "--json", wheel.path))
    assert tuple(map(int, seen["sym_tag"].removesuffix("_x86_64").split("_")[1:])) <= (2, 28)
    # It is the libraries of torch that are outside, as they are to be.
    outside = seen["policy_upgrades"]["manylinux_2_28_x86_64"]["libs_to_eliminate"]
    assert set(outside) <= {"libc10.so", "libtorch.so", "libtorch_cpu.so", "libtvm_ffi.so"}
    if framework != "tvm-ffi":  # which is no extension of Python, so that there is nothing to audit
        audits = json.loads(judged("abi3audit", "--strict", "--report", wheel.path))["specs"][str(wheel.path)]["wheel"]
        assert [audit["result"]["is_abi3"] for audit in audits] == [True]
        assert audits[0]["result"]["baseline"] == "3.9"


def test_a_wheel_for_another_cpu_and_one_for_cuda_have_their_tags_and_labels(
    sample: Sample, source: PartSource, tmp_path: Path
) -> None:
    project = sample("tiny")
    manifest = project / "build.toml"
    manifest.write_text(manifest.read_text().replace('["7.5", "9.0a", "12.1+PTX"]', '["9.0a"]'))
    build_project(
        project, source=PartSource(source.store, platform="aarch64-linux"), variants=["torch-stable-abi211-cpu-*"]
    )
    build_project(project, source=source, variants=["torch-stable-abi211-cu130-*"])
    hub = built(project)
    found = hub.resolve("org/tiny", version=1)
    made = convert(hub, found, selected(found.index, ()), tmp_path / "dist", release="1.1.2")
    assert [one.wheel.path.name for one in made.converted] == [
        "tiny-1.1.2+torchstable211cpu-cp39-abi3-manylinux_2_28_aarch64.whl",
        "tiny-1.1.2+torchstable211cu130-cp39-abi3-manylinux_2_28_x86_64.whl",
    ]
    for one in made.converted:
        judged("twine", "check", "--strict", one.wheel.path)
        judged("abi3audit", "--strict", one.wheel.path)


def test_what_was_linked_on_a_newer_system_says_so_in_its_tag(
    sample: Sample, source: PartSource, tmp_path: Path
) -> None:
    project = sample("tiny")
    (project / "kernelyard.toml").write_text('floor = "manylinux_2_34"\n')
    build_project(project, source=source, variants=["*-cpu-*"])
    assert wheel_of(built(project), tmp_path).path.name.endswith("-cp39-abi3-manylinux_2_34_x86_64.whl")


# Beside the kernel of a hub


PROGRAM = """
import json, sys
import torch, kernelyard
def installed():
    import img2gray
    return img2gray
def of_hub():
    return kernelyard.get_kernel("org/img2gray", version=REVISION, hub=HUB)
image = torch.full((2, 3, 3), 200, dtype=torch.uint8)
modules = [module() for module in ((installed, of_hub) if FIRST == "installed" else (of_hub, installed))]
grays = [module.img2gray(image, layout="HWC") for module in modules]
assert torch.equal(*grays)
import img2gray._ops
(loaded,) = kernelyard.get_loaded_kernels()
print(json.dumps({
    "same": modules[0] is modules[1],
    "ops": img2gray._ops.ops is modules[0]._ops.ops,
    "file": img2gray.__file__,
    "again": of_hub() is loaded.module and sys.modules["img2gray"] is installed(),
    "name": modules[0].__name__,
    "spec": modules[0].__spec__.name,
    "gray": grays[0].flatten().tolist()[:1],
}))
"""


@pytest.mark.torch
@pytest.mark.parametrize("first", ["installed", "of the hub"])
def test_the_same_build_from_a_wheel_and_from_a_hub_is_one_module(
    built_img2gray: Path, environment_of_its_own: Environment, tmp_path: Path, first: str
) -> None:
    pytest.importorskip("torch")
    build = built(built_img2gray)
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    hub.publish(Publication("org/img2gray", build.index, build.files, "v1"))
    environment_of_its_own.pip("install", "--no-index", wheel_of(build, tmp_path / "dist").path)
    program = f"FIRST, HUB, REVISION = {first!r}, {hub.location!r}, 1\n{PROGRAM}"
    answer = json.loads(environment_of_its_own.run(program))
    inside = str(environment_of_its_own.packages if first == "installed" else tmp_path / "store")
    assert answer.pop("file").startswith(inside)
    name = "img2gray" if first == "installed" else build.variants[0].metadata.id
    assert answer == {"same": True, "ops": True, "again": True, "name": name, "spec": name, "gray": [200]}


@pytest.mark.torch
@pytest.mark.parametrize("first", ["installed", "of the hub"])
def test_another_build_is_another_module_beside_it(
    *,
    built_img2gray: Path,
    sample: Sample,
    source: PartSource,
    environment_of_its_own: Environment,
    tmp_path: Path,
    first: str,
) -> None:
    pytest.importorskip("torch")
    project = sample("img2gray")
    environment_of_its_own.pip("install", "--no-index", wheel_of(built(built_img2gray), tmp_path / "dist").path)
    init = project / "torch-ext" / "img2gray" / "__init__.py"
    init.write_text(init.read_text() + "\nnewer = True\n")
    build_project(project, source=source, variants=["*-cpu-*"])
    hub, build = StaticHub(DirectoryReader(tmp_path / "hub")), built(project)
    hub.publish(Publication("org/img2gray", build.index, build.files, "v1"))
    program = f"""
import torch, kernelyard
image = torch.full((2, 3, 3), 200, dtype=torch.uint8)
if {first!r} == "installed":
    import img2gray
kernel = kernelyard.get_kernel("org/img2gray", version=1, hub={hub.location!r})
import img2gray
assert kernel is not img2gray and kernel.newer and not hasattr(img2gray, "newer")
assert torch.equal(*(module.img2gray(image, layout="HWC") for module in (kernel, img2gray)))
print(kernel.__name__ + " " + img2gray.__name__)
"""
    id_ = build.variants[0].metadata.id
    assert environment_of_its_own.run(program) == f"{id_} img2gray\n"


# Installers, and an index for them


@pytest.fixture
def index(built_img2gray: Path, kernelyard: Command, tmp_path: Path) -> Path:
    for release in ("1.1.2", "1.2.0"):
        done = kernelyard("to-wheel", built_img2gray, release, "--index", tmp_path / "index")
        assert done.returncode == 0, done.stderr
    return tmp_path / "index"


SHOWN = "import importlib.metadata, img2gray; print(importlib.metadata.version('img2gray'), img2gray.__file__)"


@pytest.mark.torch
@pytest.mark.parametrize("way", ["file", "http", "find-links"])
def test_pip_installs_from_the_index(
    index: Path, served: Callable[[Path], str], environment_of_its_own: Environment, way: str
) -> None:
    pytest.importorskip("torch")
    environment, simple = environment_of_its_own, index / "simple"
    options = ["--index-url", simple.as_uri()]
    if way == "http":
        options = ["--index-url", f"{served(index)}/simple/"]
    if way == "find-links":
        options = ["--no-index", "--find-links", str(simple / "img2gray")]
    environment.pip("install", *options, "img2gray")
    assert environment.run(SHOWN) == f"1.2.0+torchstable211cpu {environment.packages}/img2gray/__init__.py\n"
    environment.pip("install", *options, "img2gray==1.1.2")
    assert environment.run(SHOWN).startswith("1.1.2+torchstable211cpu ")
    digest = hashlib.sha256(next(simple.rglob("img2gray-1.2.0*.whl")).read_bytes()).hexdigest()
    (environment.root / "pinned").write_text(f"img2gray==1.2.0+torchstable211cpu --hash=sha256:{digest}\n")
    environment.pip("install", "--no-deps", "--require-hashes", *options, "-r", environment.root / "pinned")
    assert environment.run(SHOWN).startswith("1.2.0+torchstable211cpu ")
    environment.pip("uninstall", "-y", "img2gray")
    assert not list(environment.packages.glob("img2gray*"))


def test_pip_refuses_a_wheel_that_is_not_the_one_of_the_index(index: Path, environment_of_its_own: Environment) -> None:
    (wheel,) = (index / "simple").rglob("img2gray-1.2.0*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\n")
    said = environment_of_its_own.pip(
        "install", "--no-deps", "--index-url", (index / "simple").as_uri(), "img2gray", fails=True
    )
    assert "DO NOT MATCH THE HASHES" in said


@pytest.mark.torch
@pytest.mark.parametrize("way", ["the file", "an index in a folder", "an index over HTTP"])
def test_uv_installs_it(
    index: Path, served: Callable[[Path], str], environment_of_its_own: Environment, way: str
) -> None:
    pytest.importorskip("torch")
    environment = environment_of_its_own
    (wheel,) = (index / "simple").rglob("img2gray-1.2.0*.whl")
    options = ["--no-index", str(wheel)]
    if way == "an index in a folder":
        options = ["--index-url", (index / "simple").as_uri(), "img2gray"]
    if way == "an index over HTTP":
        options = ["--index-url", f"{served(index)}/simple/", "img2gray"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    # It does not see the packages of the tests, so that torch would not be there for it.
    command = [
        str(uv()),
        "pip",
        "install",
        "--no-config",
        "--no-cache",
        "--no-deps",
        "--python",
        str(environment.python),
    ]
    done = subprocess.run(
        [*command, *options], env=own | {"NO_PROXY": "*"}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert environment.run(SHOWN) == f"1.2.0+torchstable211cpu {environment.packages}/img2gray/__init__.py\n"
