"""Kernels in the public layouts become wheels that a real installer installs, and that do what the kernels do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard.export.convert import convert, selected
from kernelyard.hub import Hub, Publication, open_hub
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.static import DirectoryReader, StaticHub
from tests.export.conftest import Environment
from tests.hub import hugging_face_server
from tests.hub.public_kernels import EXAMPLES, LAYERS, RELU, Example, written

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

RUN = """
import importlib, json, torch
done = {}
for name in NAMES:
    module = importlib.import_module(name)
    done[name] = [module.run(torch.tensor([-1.0, 0.0, 2.0])).tolist(), module.__file__]
print(json.dumps(done))
"""


@pytest.fixture
def hugging_face(monkeypatch: pytest.MonkeyPatch) -> Iterator[hugging_face_server.Hub]:
    running = hugging_face_server.run()
    monkeypatch.setenv("HF_ENDPOINT", running.hub.endpoint)
    yield running.hub
    running.stop()


@pytest.fixture(params=["a static hub over HTTP", "the Hugging Face Hub, without indexes", "folders"])
def hubs(request: pytest.FixtureRequest, tmp_path: Path, served: Callable[[Path], str]) -> dict[str, Hub]:
    """All examples, as version 1 of a kernel each: name -> the hub that it is on."""
    builds = {example.name: written(example, "0123456789", tmp_path / example.name) for example in EXAMPLES}
    if request.param == "folders":
        return dict(builds)
    if request.param == "a static hub over HTTP":
        static = StaticHub(DirectoryReader(tmp_path / "hub"))
        for name, build in builds.items():
            static.publish(Publication(f"org/{name}", build.index, build.files, "v1"))
        return dict.fromkeys(builds, open_hub(served(tmp_path / "hub")))
    server: hugging_face_server.Hub = request.getfixturevalue("hugging_face")
    for name, build in builds.items():
        files = {
            f"build/{path.relative_to(build.path).as_posix()}": path.read_bytes()
            for path in build.path.rglob("*")
            if path.is_file()
        }
        repo = server.make(f"org/{name}")
        repo.tags["v1.1.2"] = repo.put("v1", files)
    return dict.fromkeys(builds, open_hub(server.endpoint))


def test_twelve_public_kernels_become_wheels_that_pip_installs(
    hubs: dict[str, Hub], tmp_path: Path, environment_of_its_own: Environment
) -> None:
    wheels, releases = [], set()
    for example in EXAMPLES:
        hub = hubs[example.name]
        found = hub.resolve(f"org/{example.name}", version=1)
        made = convert(hub, found, selected(found.index, ()), tmp_path / "dist")
        assert made.left_out == ()
        assert [one.variant for one in made.converted] == [example.variant]
        wheels += [one.wheel.path for one in made.converted]
        releases.add(made.origin.release)
    assert len(wheels) == 12
    # Only the Hugging Face Hub has a tag at the revision.
    assert releases == {"1.1.2" if isinstance(hub, HuggingFaceHub) else None}
    # What they require is there by then, and no index is asked.
    environment_of_its_own.pip("install", "--no-index", *wheels)
    names = [example.name.replace("-", "_") for example in EXAMPLES]
    answers = json.loads(environment_of_its_own.run(f"NAMES = {names!r}\n{RUN}"))
    for example in EXAMPLES:
        result, file = answers[example.name.replace("-", "_")]
        assert result == list(example.result)
        assert file.startswith(str(environment_of_its_own.packages))


def test_modules_that_a_kernel_names_from_the_top_are_found_where_it_is_installed(
    tmp_path: Path, environment_of_its_own: Environment
) -> None:
    """A loader imports a kernel under its id, so that such imports fail there; as a package it has the name."""
    wheels = []
    for nested in (False, True):
        name = f"relu-absolute-{'nested' if nested else 'flat'}"
        package = name.replace("-", "_")
        body = f"import {package}.layers\nfrom {package}.layers import ReLU\n\nrun = ReLU()\n"
        build = written(Example(name, body, RELU, files=LAYERS, nested=nested), "0", tmp_path / name)
        found = build.resolve(f"org/{name}", version=1)
        made = convert(build, found, selected(found.index, ()), tmp_path / "dist")
        wheels.append(made.converted[0].wheel.path)
    environment_of_its_own.pip("install", "--no-index", *wheels)
    names = ["relu_absolute_flat", "relu_absolute_nested"]
    answers = json.loads(environment_of_its_own.run(f"NAMES = {names!r}\n{RUN}"))
    assert [answers[name][0] for name in names] == [list(RELU), list(RELU)]
