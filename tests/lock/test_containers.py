"""The files of examples/containers: what linters say, and what their own steps do in fresh environments."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from kernelyard.publish import push_project
from tests.installing import make_environment

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples" / "containers"
#: A path inside of an image, as the files write them.
INSIDE = re.compile(r"(?<![\w./:=-])/(?=(project|cache|kernels|opt/kernels|app|wheels|lock)\b)|(?<==)/(?=cache|opt)")
SAID = "torch-stable-abi211-cpu-x86_64-linux [200]\n"

steps_are_run = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def environment_of_image(tmp_path_factory: pytest.TempPathFactory, own_wheel: Path) -> Path:
    """Install this checkout as a wheel into an environment of its own, beside the torch of the tests."""
    pytest.importorskip("torch")
    root = tmp_path_factory.mktemp("image")
    python = make_environment(root / "venv", "--no-deps", *own_wheel.iterdir(), beside_the_tests=True)
    (site,) = (root / "venv/lib").glob("python*/site-packages")
    where: list[str | Path] = [python, "-c", "import kernelyard; print(kernelyard.__file__)"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(where, check=True, capture_output=True, text=True, env=clean).stdout
    assert Path(told.strip()).is_relative_to(site)
    return root / "venv"


@pytest.fixture
def context(tmp_path: Path, built_img2gray: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder that an image is built from: the program of the example and its lock."""
    project = shutil.copytree(built_img2gray, tmp_path / "img2gray", ignore=shutil.ignore_patterns(".kernelyard"))
    push_project(project, tmp_path / "hub", repo="kernelyard/img2gray")
    monkeypatch.setenv("KERNELYARD_HUB", str(tmp_path / "hub"))
    folder = tmp_path / "context"
    folder.mkdir()
    shutil.copy(EXAMPLES / "main.py", folder)
    (folder / "pyproject.toml").write_text('[tool.kernelyard.dependencies]\n"kernelyard/img2gray" = 1\n')
    lock_project(folder, Request())
    return folder


@pytest.fixture
def cut() -> list[str]:
    """Return the beginning of a command that runs without a network; nothing where no namespace can be made."""
    command = ["unshare", "--net", "--map-root-user"]
    possible = shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if possible and possible.returncode == 0 else []


def instructions(path: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


@dataclass
class Stage:
    root: Path
    folder: Path
    env: dict[str, str] = field(default_factory=dict)


class Builder:
    """Does what a Dockerfile says, with a folder in place of each stage's root."""

    def __init__(self, context: Path, root: Path, venv: Path) -> None:
        self.context = context
        self.root = root
        self.venv = venv
        self.stages: dict[str, Stage] = {}
        self.stage = Stage(root, root)
        self.installed: list[str] = []
        self.ran: list[str] = []
        self.command: list[str] = []

    def build(self, path: Path) -> list[str]:
        """Build it, and return the command that the image runs."""
        for name, rest in instructions(path):
            getattr(self, f"do_{name.lower()}")(rest)
        return list(self.command)

    def inside(self, text: str) -> str:
        return INSIDE.sub(lambda _: f"{self.stage.root}/", text)

    def do_from(self, rest: str) -> None:
        base, _, name = rest.partition(" AS ")
        root = self.root / (name or "final")
        before = self.stages.get(base)
        if before is not None:
            shutil.copytree(before.root, root)
        root.mkdir(exist_ok=True)
        self.stage = self.stages[name or "final"] = Stage(root, root, dict(before.env) if before else {})

    def do_run(self, rest: str) -> None:
        words = [word for word in shlex.split(rest) if not word.startswith("--mount=")]
        if words[0] == "pip":
            self.installed += [word.partition("==")[0] for word in words if "==" in word]
            return
        self.ran.append(words[[("=" in word) for word in words].index(False)])
        run(self.inside(shlex.join(words).replace("'", "")), self.stage, self.venv)

    def do_workdir(self, rest: str) -> None:
        self.stage.folder = Path(self.inside(rest))
        self.stage.folder.mkdir(parents=True, exist_ok=True)

    def do_copy(self, rest: str) -> None:
        words = rest.split()
        source = self.context
        if words[0].startswith("--from="):
            source = self.stages[words.pop(0).removeprefix("--from=")].root
        *names, target = words
        for name in names:
            origin = source / name.removeprefix("/")
            if origin.is_dir():
                shutil.copytree(origin, self.inside(target))
            elif origin.exists():
                shutil.copy(origin, self.stage.folder if target == "./" else self.inside(target))
            else:
                assert name == "wheels"

    def do_env(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, _, value = word.partition("=")
            self.stage.env[name] = self.inside(value)

    def do_user(self, rest: str) -> None:
        assert rest == "65534"

    def do_cmd(self, rest: str) -> None:
        self.command = json.loads(rest)


def run(
    line: str, stage: Stage, venv: Path, *, prefix: list[str] | None = None, hub: bool = True
) -> subprocess.CompletedProcess[str]:
    kept = {"PATH", "TMPDIR", *({"KERNELYARD_HUB"} if hub else ())}
    env = {name: value for name, value in os.environ.items() if name in kept}
    env |= {"HOME": str(stage.root / "home"), "NO_PROXY": "*", **stage.env, "VIRTUAL_ENV": str(venv)}
    env["PATH"] = f"{venv / 'bin'}:{env['PATH']}"
    command = [*(prefix or []), "sh", "-ec", line]
    done = subprocess.run(command, cwd=stage.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


class TestSteps:
    pytestmark = steps_are_run

    def test_the_dockerfile_downloads_once_and_runs_without_a_network(
        self, context: Path, tmp_path: Path, environment_of_image: Path, cut: list[str]
    ) -> None:
        builder = Builder(context, tmp_path / "stages", environment_of_image)
        (tmp_path / "stages").mkdir()
        command = builder.build(EXAMPLES / "Dockerfile")
        assert builder.ran == ["kernelyard"]
        assert builder.installed == ["kernelyard", "kernelyard", "torch"]
        shutil.rmtree(tmp_path / "hub")
        final = builder.stages["final"]
        assert run(shlex.join(command), final, environment_of_image, prefix=cut, hub=False).stdout == SAID
        assert not (final.root / "home/.cache/kernelyard/variants").exists()

    def test_the_containerfile_needs_no_network_at_all(
        self, context: Path, tmp_path: Path, environment_of_image: Path, cut: list[str]
    ) -> None:
        text = (EXAMPLES / "Containerfile").read_text()
        export = next(line for line in text.splitlines() if "kernelyard export" in line).removeprefix("#").strip()
        here = Stage(context, context, {"KERNELYARD_CACHE": str(tmp_path / "store")})
        run(export, here, environment_of_image)
        shutil.rmtree(tmp_path / "hub")
        builder = Builder(context, tmp_path / "stages", environment_of_image)
        (tmp_path / "stages").mkdir()
        command = builder.build(EXAMPLES / "Containerfile")
        assert builder.ran == ["kernelyard"]
        final = builder.stages["final"]
        assert run(shlex.join(command), final, environment_of_image, prefix=cut, hub=False).stdout == SAID

    def test_the_apptainer_recipe_has_the_layer_in_the_image(
        self, context: Path, tmp_path: Path, environment_of_image: Path, cut: list[str]
    ) -> None:
        sections: dict[str, list[str]] = {}
        for line in (EXAMPLES / "apptainer.def").read_text().splitlines():
            if line.startswith("%"):
                sections[line.strip()] = []
            elif line.startswith("    ") and not line.strip().startswith("#"):
                next(reversed(sections.values())).append(line.strip())
        root = tmp_path / "image"
        (root / "app").mkdir(parents=True)
        builder = Builder(context, root, environment_of_image)
        for line in sections["%files"]:
            origin, target = line.split()
            shutil.copy(context / origin, builder.inside(target))
        pip, download = sections["%post"]
        assert pip.startswith("pip install")
        image = Stage(root, root)
        run(builder.inside(download), image, environment_of_image)
        shutil.rmtree(tmp_path / "hub")
        for line in sections["%environment"]:
            name, _, value = line.removeprefix("export ").partition("=")
            image.env[name] = builder.inside(f"={value}")[1:]
        (script,) = sections["%runscript"]
        done = run(builder.inside(script), image, environment_of_image, prefix=cut, hub=False)
        assert done.stdout == SAID

    def test_the_init_container_fetches_what_the_container_loads(
        self, context: Path, tmp_path: Path, environment_of_image: Path, cut: list[str]
    ) -> None:
        yaml = pytest.importorskip("yaml")
        _, deployment = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
        pod = deployment["spec"]["template"]["spec"]
        (init,), (app,) = pod["initContainers"], pod["containers"]
        root = tmp_path / "node"
        shutil.copytree(context, root / "lock", ignore=shutil.ignore_patterns("main.py", "pyproject.toml"))
        shutil.copytree(context, root / "app")
        builder = Builder(context, root, environment_of_image)
        run(builder.inside(shlex.join(init["command"])), Stage(root, root), environment_of_image)
        shutil.rmtree(tmp_path / "hub")
        env = {one["name"]: builder.inside(f"={one['value']}")[1:] for one in app["env"]}
        env["KERNELYARD_LAYERS"] = str(root / "kernels")
        done = run(
            builder.inside(shlex.join(app["command"])),
            Stage(root, root, env),
            environment_of_image,
            prefix=cut,
            hub=False,
        )
        assert done.stdout == SAID
        mounts = {mount["name"]: mount for mount in app["volumeMounts"]}
        assert mounts["kernels"]["readOnly"] is True
        assert mounts["kernels"]["mountPath"] == next(one["value"] for one in app["env"] if one["value"][0] == "/")


@pytest.mark.parametrize("name", ["Dockerfile", "Containerfile"])
def test_hadolint_has_nothing_to_say(name: str) -> None:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not program.exists():
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_manifest_is_one_that_kubernetes_takes() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    for document in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()):
        validate.validate(document, "1.33", strict=True)
