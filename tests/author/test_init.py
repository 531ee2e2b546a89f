"""`kernelyard init` makes projects that build, pass their own tests and load, as they are."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from kernelyard.author.init import BACKENDS_OF, init_project, kernel_repo
from kernelyard.errors import InputError, KernelyardError
from kernelyard.formats.variant import Framework
from kernelyard.project.sources import read_project
from tests.conftest import Command

Run = Callable[..., subprocess.CompletedProcess[str]]

#: Every framework with each choice of backends that its templates tell apart.
CHOICES: list[tuple[Framework, tuple[str, ...]]] = [
    (framework, backends)
    for framework in BACKENDS_OF
    for backends in (("cpu",), ("cuda",), ("cpu", "cuda"), ("cuda", "cpu"))
]
CHOICES.append(("torch-noarch", BACKENDS_OF["torch-noarch"]))
TVM_FFI = "apache-tvm-ffi==0.1.15.post2"


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def own_tests(environment: dict[str, str]) -> Run:
    """Return a function that runs a project's own tests as its author does."""

    def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments, "tests"]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)

    return run


def torch_digits() -> str:
    """The torch that can be imported, as in the names of variants: `213`."""
    try:
        major, minor = version("torch").split(".")[:2]
    except PackageNotFoundError:
        pytest.skip("needs an importable torch")
    return major + minor


def assert_passed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    assert int(found[1]) >= 8


# What is written


@pytest.mark.parametrize(("framework", "backends"), CHOICES)
def test_the_manifest_is_valid_and_every_file_that_it_names_is_there(
    tmp_path: Path, framework: Framework, backends: tuple[str, ...]
) -> None:
    made = init_project("acme/fast-math", tmp_path / "k", framework=framework, backends=backends)
    project = read_project(made.folder)
    general = project.manifest.general
    assert (general.name, general.version, general.hub_repo_id) == ("fast-math", 1, "acme/fast-math")
    assert general.backends == backends
    assert {project.manifest.framework_of(backend) for backend in backends} == {framework}
    for section in project.manifest.kernels:
        # kernel-builder's sandbox holds only what a section lists, headers too.
        included = set(project.with_includes(section.src, section.include))
        assert included <= {*section.src}
    compiled = framework != "torch-noarch"
    assert (made.folder / "csrc" / "fast_math.cu").is_file() is (compiled and "cuda" in backends)
    assert {section.backend for section in project.manifest.kernels} == (set(backends) if compiled else set())


@pytest.mark.parametrize(("framework", "backends"), CHOICES)
@pytest.mark.parametrize("flake", [False, True])
def test_nothing_of_the_templates_own_language_is_left(
    tmp_path: Path,
    framework: Framework,
    backends: tuple[str, ...],
    flake: bool,  # noqa: FBT001
) -> None:
    made = init_project("acme/fast-math", tmp_path / "k", framework=framework, backends=backends, flake=flake)
    files = contents(made.folder)
    assert tuple(files) == made.files
    for name, text in files.items():
        assert not re.search(r"@(?:[a-z_]+|if [^@\n]+)@", name + text), name
        assert text.endswith("\n"), name
        assert not text.endswith("\n\n"), name
        assert "\n\n\n\n" not in text, name
        if "cuda" not in backends and name.startswith(("csrc/", "torch-ext/torch_", "tvm-ffi-ext/tvm_")):
            assert "cuda" not in text.lower(), name
        if name.endswith(".py"):
            compile(text, name, "exec")
    assert "Apache License" in files["LICENSE"]
    assert {"build/", ".kernelyard/"} <= set(files[".gitignore"].split())


@pytest.mark.parametrize(("framework", "backends"), CHOICES)
def test_ruff_has_nothing_to_say_about_the_python(
    tmp_path: Path, framework: Framework, backends: tuple[str, ...]
) -> None:
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if ruff is None:
        pytest.skip("ruff is not installed")
    init_project("acme/fast-math", tmp_path / "k", framework=framework, backends=backends)
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *arguments, "--isolated", "--no-cache", "k"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_flake_is_valid_for_nix_and_pins_the_builder(tmp_path: Path) -> None:
    made = init_project("acme/fast-math", tmp_path / "k", flake=True)
    flake = made.folder / "flake.nix"
    assert re.search(r'"github:huggingface/kernels/[0-9a-f]{40}"', flake.read_text("utf-8"))
    assert "result" in (made.folder / ".gitignore").read_text("utf-8").split()
    nix = shutil.which("nix-instantiate")
    if nix is None:
        pytest.skip("Nix's parser is not installed; on Debian it is in the package nix-bin")
    done = subprocess.run([nix, "--parse", flake], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "genKernelFlakeOutputs" in done.stdout


def test_another_licence_is_named_in_every_place(tmp_path: Path) -> None:
    made = init_project("acme/fast-math", tmp_path / "k", licence="BSD-3-Clause")
    assert read_project(made.folder).manifest.general.license == "BSD-3-Clause"
    assert "BSD-3-Clause" in (made.folder / "LICENSE").read_text("utf-8")
    assert "license: bsd-3-clause" in (made.folder / "CARD.md").read_text("utf-8")
    init_project("acme/fast-math", tmp_path / "other", licence="apache-2.0")
    assert 'license = "Apache-2.0"' in (tmp_path / "other" / "build.toml").read_text("utf-8")
    with pytest.raises(InputError, match=r"SPDX.*KY734"):
        init_project("acme/fast-math", tmp_path / "none", licence='MIT"\nx = 1')
    assert not (tmp_path / "none").exists()


# Names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("acme/relu", ("acme", "relu")),
        ("Acme-Labs/Fast_Math_2", ("Acme-Labs", "fast-math-2")),
        ("a.b_c/x--y", ("a.b_c", "x--y")),
    ],
)
def test_names_are_brought_to_the_form_of_the_ecosystem(given: str, name: tuple[str, str]) -> None:
    assert kernel_repo(given) == name


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("relu", "your-organisation/relu"),
        ("acme/", "acme/kernel"),
        ("acme/a/b", "acme/a-b"),
        ("/relu", "your-organisation/relu"),
        ("ac me/relu", "your-organisation/relu"),
        ("acme/my kernel!", "acme/my-kernel"),
        ("acme/relu-", "acme/relu"),
        ("acme/_relu", "acme/relu"),
        ("acme/3d-conv", "acme/kernel-3d-conv"),
        ("acme/x", "acme/x-kernel"),
        ("acme/größe", "acme/gr-e"),
        ("acme/class", "acme/class-kernel"),
        ("acme/torch", "acme/torch-kernel"),
        ("../../etc", "your-organisation/etc"),
        ("acme/..", "acme/kernel"),
    ],
)
def test_an_invalid_name_is_refused_with_the_nearest_valid_one(given: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        kernel_repo(given)
    assert caught.value.code == "KY731"
    assert caught.value.hint.endswith(nearest)
    kernel_repo(nearest)


@pytest.mark.parametrize("name", ["math", "string", "signal", "double", "namespace", "std", "vector", "operator"])
def test_names_that_mean_something_to_c_and_python_harm_nothing(tmp_path: Path, name: str) -> None:
    # A folder with a signal.h on the include path would hide the system's; `namespace double` is no C++.
    made = init_project(f"acme/{name}", tmp_path / "k")
    assert "\ninclude" not in (made.folder / "build.toml").read_text("utf-8")
    for text in contents(made.folder / "csrc").values():
        assert f"namespace {name}_kernel" in text


# Backends


def test_a_backend_without_a_template_is_refused_with_a_way_on(tmp_path: Path) -> None:
    def hint(framework: Framework, *backends: str) -> str:
        with pytest.raises(InputError) as caught:
            init_project("acme/relu", tmp_path / "k", framework=framework, backends=backends)
        assert caught.value.code == "KY733"
        assert not (tmp_path / "k").exists()
        return caught.value.hint

    assert "--framework torch-noarch" in hint("torch", "cpu", "rocm")
    assert "by hand" in hint("tvm-ffi", "tpu")
    assert "did you mean `cuda`?" in hint("torch-stable-abi", "cudaa")
    assert "cpu, cuda" in hint("torch-stable-abi")


# Folders


@pytest.mark.parametrize("parents", ["", "a/b/"])
def test_a_folder_that_is_missing_appears_whole_with_ordinary_permissions(tmp_path: Path, parents: str) -> None:
    folder = tmp_path / f"{parents}k"
    ordinary = tmp_path / "ordinary"
    ordinary.mkdir()
    init_project("acme/relu", folder)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    assert {path.name for path in tmp_path.iterdir()} == {"ordinary", folder.relative_to(tmp_path).parts[0]}


def test_a_new_repository_keeps_what_it_has(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("mine\n", "utf-8")
    (tmp_path / "LICENSE").write_text("also mine\n", "utf-8")
    made = init_project("acme/relu", tmp_path)
    assert (tmp_path / "README.md").read_text("utf-8") == "mine\n"
    assert (tmp_path / "LICENSE").read_text("utf-8") == "also mine\n"
    assert set(made.kept) == {"README.md", "LICENSE"}
    assert not set(made.kept) & set(made.files)
    read_project(tmp_path)


@pytest.mark.parametrize("stranger", ["build.toml", "notes.txt", "tests/conftest.py", ".git.py"])
def test_a_folder_with_other_things_in_it_is_left_as_it_is(tmp_path: Path, stranger: str) -> None:
    (tmp_path / stranger).parent.mkdir(exist_ok=True)
    (tmp_path / stranger).write_text("mine", "utf-8")
    with pytest.raises(InputError) as caught:
        init_project("acme/relu", tmp_path)
    assert caught.value.code == "KY732"
    assert Path(stranger).parts[0] in caught.value.what
    assert contents(tmp_path) == {stranger: "mine"}


def test_a_file_or_a_broken_link_in_the_way_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", "utf-8")
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    for folder in (file, file / "k", link):
        with pytest.raises(InputError, match=r"KY732"):
            init_project("acme/relu", folder)
    assert file.read_text("utf-8") == "mine"
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


@pytest.mark.parametrize("exists", [False, True])
def test_when_writing_fails_midway_nothing_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exists: bool,  # noqa: FBT001
) -> None:
    folder = tmp_path / "k"
    if exists:
        folder.mkdir()
        (folder / "README").write_text("mine", "utf-8")
    whole = Path.open

    def full(self: Path, *arguments: Any, **named: Any) -> Any:
        if self.name == "test_relu.py":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return whole(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(KernelyardError, match=r"disk is full"):
        init_project("acme/relu", folder)
    monkeypatch.undo()
    assert contents(tmp_path) == ({"k/README": "mine"} if exists else {})
    assert [path.name for path in tmp_path.rglob("*")] == (["k", "README"] if exists else [])


# The command


def test_the_command_says_what_it_made_and_what_comes_next(kernelyard: Command, tmp_path: Path) -> None:
    done = kernelyard("init", "acme/Fast_Relu", "my kernels/relu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "acme/Fast_Relu is made as acme/fast-relu" in done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "  kernelyard build 'my kernels/relu'",
        "  python -m pytest 'my kernels/relu/tests'",
        "  kernelyard push 'my kernels/relu' --hub ./hub",
    ]
    checked = kernelyard("config", "check", "my kernels/relu", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_the_folder_is_the_kernel_s_name_and_json_lists_the_files(kernelyard: Command, tmp_path: Path) -> None:
    done = kernelyard("init", "acme/Relu", "--json", "--backends", "cuda, cpu", "--flake", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["repo"], told["folder"], told["kept"]) == ("acme/relu", "relu", [])
    assert set(told["files"]) == set(contents(tmp_path / "relu"))
    assert {"build.toml", "csrc/relu.cu", "torch-ext/relu/__init__.py", "flake.nix"} <= set(told["files"])
    again = kernelyard("init", "acme/relu", cwd=tmp_path)
    assert again.returncode == 2
    assert "KY732" in again.stderr


@pytest.mark.parametrize("code", ["KY731", "KY732", "KY733", "KY734"])
def test_every_code_has_its_page(kernelyard: Command, code: str) -> None:
    assert kernelyard("explain", code).stdout.startswith("# ")


# What is made works


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_the_stable_abi_project_goes_the_whole_way_of_its_readme(
    kernelyard: Command, own_tests: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    torch_digits()
    assert kernelyard("init", "acme/my-kernel", cwd=tmp_path).returncode == 0
    project = tmp_path / "my-kernel"
    built = kernelyard("build", "my-kernel", "--variant", "*-cpu-*", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert_passed(own_tests(project))

    blocks = dict(
        re.findall(r"^```(sh|python)\n(.*?)^```", (project / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
    push = next(line for line in blocks["sh"].splitlines() if line.startswith("kernelyard push "))
    pushed = kernelyard(*push.split()[1:], cwd=project)
    assert pushed.returncode == 0, pushed.stderr
    check = "torch.testing.assert_close(y, x * 2.0 + 1.0)"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{blocks['python']}\n{check}"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert loaded.returncode == 0, loaded.stderr


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
def test_the_stable_abi_project_builds_for_cuda(kernelyard: Command, tmp_path: Path) -> None:
    init_project("acme/my-kernel", tmp_path / "k", backends=["cuda"])
    built = kernelyard("build", tmp_path / "k")
    assert built.returncode == 0, built.stderr
    checked = kernelyard("check", tmp_path / "k")
    assert "torch-stable-abi211-cu130-x86_64-linux: fit" in checked.stdout


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
@pytest.mark.slow
def test_the_full_abi_project_builds_and_passes_its_tests(kernelyard: Command, own_tests: Run, tmp_path: Path) -> None:
    # One of five variants: the others differ by the torch headers alone.
    project = tmp_path / "k"
    init_project("acme/my-kernel", project, framework="torch")
    built = kernelyard("build", project, "--variant", f"torch{torch_digits()}-*-cpu-*")
    assert built.returncode == 0, built.stderr
    assert_passed(own_tests(project))


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.slow
def test_the_full_abi_project_builds_for_cuda(kernelyard: Command, tmp_path: Path) -> None:
    init_project("acme/my-kernel", tmp_path / "k", framework="torch", backends=["cuda"])
    built = kernelyard("build", tmp_path / "k", "--variant", "torch211-*")
    assert built.returncode == 0, built.stderr


@pytest.mark.torch
def test_the_noarch_project_builds_and_passes_its_tests(kernelyard: Command, own_tests: Run, tmp_path: Path) -> None:
    torch_digits()
    init_project("acme/my-kernel", tmp_path / "k", framework="torch-noarch")
    built = kernelyard("build", tmp_path / "k")
    assert built.returncode == 0, built.stderr
    assert_passed(own_tests(tmp_path / "k"))


@pytest.mark.compile
@pytest.mark.network
@pytest.mark.torch
def test_the_tvm_ffi_project_builds_and_passes_its_tests(kernelyard: Command, own_tests: Run, tmp_path: Path) -> None:
    torch_digits()
    pytest.importorskip("tvm_ffi")
    init_project("acme/my-kernel", tmp_path / "k", framework="tvm-ffi")
    built = kernelyard("build", tmp_path / "k", "--variant", "*-cpu-*")
    assert built.returncode == 0, built.stderr
    assert_passed(own_tests(tmp_path / "k"))


@pytest.mark.torch
def test_the_noarch_operator_works_before_there_is_a_build(environment: dict[str, str], tmp_path: Path) -> None:
    torch_digits()
    made = init_project("acme/my-kernel", tmp_path / "k", framework="torch-noarch")
    package = made.folder / "torch-ext" / "my_kernel"
    (package / "_ops.py").write_text(
        "import torch\nops = torch.ops._trial\n\n\ndef add_op_namespace_prefix(name):\n    return f'_trial::{name}'\n",
        "utf-8",
    )
    code = (
        "import torch, my_kernel\n"
        "x = torch.randn(5, 7)\n"
        "run = torch.compile(lambda x: my_kernel.scale_shift(x, 2.0, 1.0), fullgraph=True, backend='aot_eager')\n"
        "for result in (my_kernel.scale_shift(x, 2.0, 1.0), run(x)):\n"
        "    torch.testing.assert_close(result, x * 2.0 + 1.0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=package.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.compile
@pytest.mark.network
def test_the_tvm_ffi_sources_compile_against_the_wheel_s_headers(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    wheel = tmp_path / "wheel"
    got = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", wheel, TVM_FFI],
        capture_output=True,
        text=True,
        check=False,
    )
    assert got.returncode == 0, got.stderr
    made = init_project("acme/my-kernel", tmp_path / "k", framework="tvm-ffi", backends=["cpu"])
    sources = [str(path) for path in sorted(made.folder.rglob("*.cpp"))]
    library = tmp_path / "library.so"
    flags = ["-std=c++17", "-Wall", "-Werror", "-fPIC", "-shared", "-DCPU_KERNEL", f"-I{wheel}/tvm_ffi/include"]
    link = [f"-L{wheel}/tvm_ffi/lib", "-ltvm_ffi"]
    done = subprocess.run(
        [compiler, *flags, *sources, *link, "-o", library], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"__tvm_ffi_scale_shift" in library.read_bytes()
