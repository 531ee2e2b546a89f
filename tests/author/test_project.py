from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.author.project import _choose
from kernelyard.errors import EnvironmentProblemError, InputError
from kernelyard.formats.editions import read_manifest
from kernelyard.formats.versions import Version
from kernelyard.project.installed_torch import InstalledTorch
from tests.conftest import REPOSITORY

Sample = Callable[[str], Path]
Run = Callable[..., subprocess.CompletedProcess[str]]

BOTH = 'backends = ["cpu", "cuda"]'
MANIFEST = """
[general]
name = "some-kernel"
version = 1
edition = 5
license = "Apache-2.0"
{backends}
{framework}
[kernel.a]
backend = "cpu"
depends = []
src = ["a.cpp"]
"""

CPU_TORCH = InstalledTorch("2.13.0+cpu", Version("2.13.0"), Path("/site/torch"))
CUDA_TORCH = InstalledTorch("2.14.1+cu130", Version("2.14.1"), Path("/site/torch"), "cuda", Version("13.0"))


@pytest.mark.parametrize(
    ("backends", "framework", "installed", "backend", "torch", "variant", "uses_installed"),
    [
        # The torch that is installed says which variant is worked on.
        (BOTH, "[torch]", CPU_TORCH, None, None, "torch213-cxx11-cpu-x86_64-linux", True),
        (BOTH, "[torch]", CUDA_TORCH, None, None, "torch214-cxx11-cu130-x86_64-linux", True),
        (BOTH, '[torch]\nstable-abi = "2.11"', CUDA_TORCH, None, None, "torch-stable-abi211-cu130-x86_64-linux", True),
        ('backends = ["cpu"]', "[torch]", CUDA_TORCH, None, None, "torch214-cxx11-cpu-x86_64-linux", True),
        # What it cannot serve is compiled against headers that are fetched.
        ('backends = ["cuda"]', "[torch]", CPU_TORCH, None, None, "torch213-cxx11-cu130-x86_64-linux", False),
        (
            'backends = ["cuda"]',
            '[torch]\nminver = "2.14"',
            CPU_TORCH,
            None,
            None,
            "torch215-cxx11-cu130-x86_64-linux",
            False,
        ),
        (BOTH, '[torch]\nstable-abi = "2.11"', None, "cpu", None, "torch-stable-abi211-cpu-x86_64-linux", False),
        (BOTH, "[torch]", CPU_TORCH, "cuda", None, "torch213-cxx11-cu130-x86_64-linux", False),
        (BOTH, '[torch]\nmaxver = "2.12"', None, "cpu", None, "torch212-cxx11-cpu-x86_64-linux", False),
        (BOTH, "[torch]", None, None, Version("2.12.1"), "torch212-cxx11-cpu-x86_64-linux", False),
        # A toolkit of the same major version serves torch.
        (
            BOTH,
            "[torch]",
            InstalledTorch("2.13.0+cu132", Version("2.13.0"), Path("/site/torch"), "cuda", Version("13.2")),
            None,
            None,
            "torch213-cxx11-cu132-x86_64-linux",
            True,
        ),
        (
            BOTH,
            "[torch]",
            InstalledTorch("2.10.0+cu128", Version("2.10.0"), Path("/site/torch"), "cuda", Version("12.8")),
            None,
            None,
            "torch210-cxx11-cu124-x86_64-linux",
            True,
        ),
        (BOTH, "[tvm-ffi]\nsrc = []", CUDA_TORCH, None, None, "tvm-ffi01-cu130-x86_64-linux", False),
        (
            'backends = ["rocm", "cuda"]',
            "[torch]",
            CUDA_TORCH,
            "rocm",
            None,
            "torch214-cxx11-rocm72-x86_64-linux",
            False,
        ),
        ('backends = ["xpu"]', "[torch]", None, None, None, "torch215-cxx11-xpu20260-x86_64-linux", False),
        ('backends = ["metal"]', "[torch]", None, None, None, "torch215-metal-aarch64-darwin", False),
    ],
)
def test_the_variant_is_that_of_the_installed_torch_where_the_kernel_has_it(  # noqa: PLR0917 - columns of the table
    backends: str,
    framework: str,
    installed: InstalledTorch | None,
    backend: str | None,
    torch: Version | None,
    variant: str,
    uses_installed: bool,  # noqa: FBT001
) -> None:
    manifest = read_manifest(MANIFEST.format(backends=backends, framework=framework))
    target = _choose(manifest, "x86_64-linux", installed, backend, torch)
    assert str(target.variant) == variant
    assert (target.torch is not None) == uses_installed


@pytest.mark.parametrize(
    ("framework", "installed", "torch"),
    [
        ('[torch]\nstable-abi = "2.14"', CPU_TORCH, None),
        ('[torch]\nminver = "2.14"', CPU_TORCH, None),
        ('[torch]\nmaxver = "2.12"', CPU_TORCH, None),
        ('[torch]\nmaxver = "2.12"', None, Version("2.13")),
        ('[torch]\nmaxver = "2.4"', None, None),
    ],
)
def test_a_torch_that_the_manifest_excludes_is_not_worked_with(
    framework: str, installed: InstalledTorch | None, torch: Version | None
) -> None:
    manifest = read_manifest(MANIFEST.format(backends=BOTH, framework=framework))
    with pytest.raises(EnvironmentProblemError) as caught:
        _choose(manifest, "x86_64-linux", installed, None, torch)
    assert caught.value.code == "KY405"


def test_a_backend_that_the_kernel_does_not_have_is_refused_with_the_nearest() -> None:
    manifest = read_manifest(MANIFEST.format(backends=BOTH, framework="[torch]"))
    with pytest.raises(InputError, match="no backend 'cuad'") as caught:
        _choose(manifest, "x86_64-linux", None, "cuad", None)
    assert "cuda" in str(caught.value)


@pytest.fixture
def own_python(tmp_path: Path) -> Path:
    """The interpreter of an environment that sees the packages of the tests, torch among them."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    site.joinpath("tests.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture
def install(own_python: Path) -> Run:
    """Return a function that installs a folder into the environment and answers what was said."""

    def run(folder: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(own_python), "-m", "pip", "install", "-v", "--no-deps", *options, "-e", str(folder)]
        # The tools of the environment of the tests, as in one that is active.
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            command,
            env=os.environ | {"PATH": path} | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def compiled(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the names of the sources that were compiled."""
    return sorted(re.findall(r"ompiling .* from source \S*?([^/\s]+)$", done.stderr, re.MULTILINE))


def answer(python: Path, code: str, folder: Path) -> str:
    return subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout


AXPY = "import torch, axpy; print(axpy.axpy(2.0, torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])).tolist())"


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_a_second_installation_compiles_the_file_that_was_edited_also_in_isolation(
    sample: Sample, kernelyard: Run, install: Run, own_python: Path, tmp_path: Path
) -> None:
    root = sample("axpy")
    # As kernel-builder leaves one in the sources: not the one of this build.
    (root / "torch-ext" / "axpy" / "_ops.py").write_text("raise SystemExit('of another build')")
    done = kernelyard("generate", "--in-place", "--backend", "cpu", "--python", own_python, cwd=root)
    assert done.returncode == 0, done.stderr
    assert compiled(install(root)) == ["axpy_cpu.cpp", "extension_name.cpp", "torch_binding.cpp"]
    assert answer(own_python, AXPY, tmp_path) == "[5.0, 9.0]\n"
    source = root / "csrc" / "axpy_cpu.cpp"
    text = source.read_text()
    assert "(factor) * left" in text
    source.write_text(text.replace("(factor) * left", "(-factor) * left"))
    assert compiled(install(root)) == ["axpy_cpu.cpp"]
    assert answer(own_python, AXPY, tmp_path) == "[1.0, 1.0]\n"
    commands = json.loads((root / "compile_commands.json").read_bytes())
    assert {Path(command["file"]).name for command in commands} == {
        "axpy_cpu.cpp",
        "extension_name.cpp",
        "torch_binding.cpp",
    }


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_launchers_build_types_flags_and_jobs_are_cmakes_own(
    sample: Sample, kernelyard: Run, install: Run, own_python: Path, tmp_path: Path
) -> None:
    root = sample("axpy")
    done = kernelyard("generate", "--backend", "cpu", "--python", own_python, cwd=root)
    assert done.returncode == 0, done.stderr
    folder = root / ".kernelyard" / "project"
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "launches"}\nexec "$@"\n')
    launcher.chmod(0o755)
    install(
        folder,
        "--no-build-isolation",
        env={
            "CMAKE_CXX_COMPILER_LAUNCHER": str(launcher),
            "CMAKE_BUILD_TYPE": "Debug",
            "CMAKE_ARGS": "-DCMAKE_CXX_FLAGS=-DFROM_CMAKE_ARGS",
            "MAX_JOBS": "1",
        },
    )
    launches = tmp_path.joinpath("launches").read_text()
    assert all(f"/{name}\n" in launches for name in ("axpy_cpu.cpp", "extension_name.cpp", "torch_binding.cpp"))
    commands = [entry["command"] for entry in json.loads((folder / "objects" / "compile_commands.json").read_bytes())]
    assert all(" -g " in command and " -DFROM_CMAKE_ARGS " in command for command in commands)
    assert not [command for command in commands if "-ffile-prefix-map" in command]
    assert "depth = 1" in (folder / "objects" / "CMakeFiles" / "rules.ninja").read_text()
    assert answer(own_python, AXPY, tmp_path) == "[5.0, 9.0]\n"
    site = next(own_python.parents[1].glob("lib/python3*/site-packages"))
    extension = (site / "axpy" / "_axpy_cpu_dev.abi3.so").read_bytes()
    assert b".debug_info" in extension


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_cmake_alone_installs_a_folder_that_loads(sample: Sample, kernelyard: Run, tmp_path: Path) -> None:
    root = sample("img2gray")
    done = kernelyard("generate", "--torch", "2.11", "--backend", "cpu", cwd=root)
    assert done.returncode == 0, done.stderr
    project, objects, installed = root / ".kernelyard" / "project", tmp_path / "objects", tmp_path / "installed"
    tools = Path(sysconfig.get_path("scripts"))
    for arguments in (
        ["-S", str(project), "-B", str(objects), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"],
        ["--build", str(objects)],
        ["--install", str(objects), "--prefix", str(installed)],
    ):
        said = subprocess.run([str(tools / "cmake"), *arguments], capture_output=True, text=True, check=True)
        assert "Warning" not in said.stderr
    assert {path.name for path in installed.iterdir()} == {
        "__init__.py",
        "_ops.py",
        "_img2gray_cpu_dev.abi3.so",
        "metadata.json",
    }
    code = (
        f"import kernelyard, torch; k = kernelyard.get_local_kernel({str(installed)!r})\n"
        "print(k.img2gray(torch.full((1, 1, 3), 255, dtype=torch.uint8)).tolist())"
    )
    assert answer(Path(sys.executable), code, tmp_path) == "[[255]]\n"


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_a_kernel_for_tvm_ffi_is_installed(
    sample: Sample, kernelyard: Run, install: Run, own_python: Path, tmp_path: Path
) -> None:
    root = sample("scale")
    done = kernelyard("generate", "--backend", "cpu", cwd=root)
    assert done.returncode == 0, done.stderr
    install(root / ".kernelyard" / "project", "--no-build-isolation")
    code = "import torch, scale; print(scale.scale(torch.tensor([1.0, 2.0]), 3.0).tolist())"
    assert answer(own_python, code, tmp_path) == "[3.0, 6.0]\n"


@pytest.mark.torch
@pytest.mark.slow
def test_a_kernel_without_compiled_code_is_installed_with_its_data(
    sample: Sample, kernelyard: Run, install: Run, own_python: Path, tmp_path: Path
) -> None:
    root = sample("lookup")
    done = kernelyard("generate", "--in-place", "--backend", "cpu", cwd=root)
    assert done.returncode == 0, done.stderr
    assert not (root / "CMakeLists.txt").exists()
    install(root, "--no-build-isolation")
    code = "import look_up; print(look_up._ops.__file__); print(look_up.operator_name(), look_up.TABLE['3'])"
    first, names = answer(own_python, code, tmp_path).splitlines()
    assert Path(first) == root / ".kernelyard" / "in-place" / "torch-cpu" / "_ops.py"
    assert names == "_look_up_cpu_dev::look_up 9"


@pytest.mark.compile
@pytest.mark.network
def test_the_project_is_the_same_to_the_byte_and_clean_removes_it(
    sample: Sample, kernelyard: Run, tmp_path: Path
) -> None:
    root = sample("img2gray")
    before = {path.relative_to(root) for path in root.rglob("*")}
    written = []
    for _ in range(2):
        done = kernelyard("generate", root, "--in-place", "--backend", "cpu", "--torch", "2.13", "--json")
        assert done.returncode == 0, done.stderr
        files = json.loads(done.stdout)["files"]
        written.append({name: (root / name).read_bytes() for name in files if name != "compile_commands.json"})
        assert str(root).encode() not in b"".join(written[-1].values())
        done = kernelyard("clean", root, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(files)
        left = {path.relative_to(root) for path in root.rglob("*")} - before
        assert {path.parts[0] for path in left} == {".kernelyard"}
    assert written[0] == written[1]


@pytest.mark.compile
@pytest.mark.network
def test_a_file_of_the_author_in_the_way_is_named(sample: Sample, kernelyard: Run) -> None:
    root = sample("img2gray")
    root.joinpath("pyproject.toml").write_text("[tool.kernelyard]\n")
    done = kernelyard("generate", "--in-place", "--backend", "cpu", "--torch", "2.13", cwd=root)
    assert done.returncode == 2
    assert "pyproject.toml: in the way" in done.stderr
    assert "KY404" in done.stderr
    assert not root.joinpath("CMakeLists.txt").exists()


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
def test_a_project_that_the_manifest_has_left_behind_does_not_configure(
    sample: Sample, kernelyard: Run, tmp_path: Path
) -> None:
    root = sample("img2gray")
    options = ("--backend", "cpu", "--torch", "2.13", "--in-place")
    assert kernelyard("generate", root, *options).returncode == 0
    tools = Path(sysconfig.get_path("scripts"))
    command = [str(tools / "cmake"), "-S", str(root), "-B", str(tmp_path / "objects"), "-G", "Ninja"]
    command.append(f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}")
    assert subprocess.run(command, check=False).returncode == 0
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text() + "# changed\n")
    done = subprocess.run(
        [str(tools / "ninja"), "-C", str(tmp_path / "objects")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "run `kernelyard generate --in-place`" in " ".join((done.stdout + done.stderr).split())
    assert kernelyard("generate", root, *options).returncode == 0
    assert subprocess.run(command, check=False).returncode == 0


def test_an_interpreter_without_torch_is_not_passed_over(sample: Sample, kernelyard: Run, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = kernelyard("generate", sample("img2gray"), "--python", tmp_path / "bare" / "bin" / "python")
    assert done.returncode == 3
    assert "has no torch [KY405]" in done.stderr


@pytest.mark.network
def test_what_no_torch_here_can_compile_is_generated_and_asks_for_no_torch(sample: Sample, kernelyard: Run) -> None:
    root = sample("square")
    done = kernelyard("generate", root, "--backend", "rocm")
    assert done.returncode == 0, done.stderr
    assert "`generate` again where a torch for that backend is installed" in done.stderr
    project = root / ".kernelyard" / "project"
    assert 'dependencies = ["torch"]' in (project / "pyproject.toml").read_text()
    assert not (project / "cmake" / "machine").exists()


def test_setup_py_builds_and_says_what_installs(sample: Sample, kernelyard: Run) -> None:
    root = sample("lookup")
    assert kernelyard("generate", "--in-place", "--backend", "cpu", cwd=root).returncode == 0
    done = subprocess.run(
        [sys.executable, "setup.py", "develop"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install -e ." in done.stderr
    done = subprocess.run(
        [sys.executable, "setup.py", "build_kernel"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert root.joinpath("build", "torch-cpu", "_ops.py").is_file()


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_the_commands_of_the_documentation_run_as_they_stand(kernelyard: Run, own_python: Path, tmp_path: Path) -> None:
    assert kernelyard("init", "me/my-kernel", cwd=tmp_path).returncode == 0
    page = REPOSITORY.joinpath("docs", "generate.md").read_text("utf-8")
    shell = "set -eu\n" + "".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    path = os.pathsep.join([str(own_python.parent), sysconfig.get_path("scripts"), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", shell],
        cwd=tmp_path / "my-kernel",
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("my-kernel/build/dev/_my_kernel_cpu_dev.abi3.so"))
