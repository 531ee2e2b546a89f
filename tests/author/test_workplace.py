"""`kernelyard run` and `kernelyard shell`, run as an author runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command, copy_sample

pytestmark = [
    pytest.mark.compile,
    pytest.mark.torch,
    # A process that shares the tests with others always has a thread.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

#: Where the kernel came from, and the name of its operators, which is another one after every change.
IMPORTS = "from tiny import _ops; print(_ops.__file__); print(_ops.ops.name)"
NAME = re.compile(r"_tiny_cpu_[0-9a-f]{12}")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, kernelyard: Command) -> Path:
    """A project whose environment is made; its path has a space in it."""
    pytest.importorskip("torch")
    project = copy_sample("tiny", tmp_path_factory.mktemp("my kernels") / "tiny")
    done = kernelyard("run", project, "--", "true")
    assert done.returncode == 0, done.stderr
    assert re.search(r"tiny: torch-stable-abi211-cpu-\w+-linux with torch \S+ of ", done.stderr)
    return project


def lines_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_kernel_is_imported_by_its_name_from_what_was_built(kernelyard: Command, project: Path) -> None:
    origin, name = lines_of(kernelyard("run", "--", "python", "-c", IMPORTS, cwd=project))
    assert Path(origin).resolve().parents[1] == project.resolve() / "build"
    assert NAME.fullmatch(name)


def test_an_edit_is_built_before_the_command_starts_and_nothing_is_without_one(
    kernelyard: Command, sample: Callable[[str], Path]
) -> None:
    pytest.importorskip("torch")
    project = sample("tiny")
    source = project / "csrc" / "answer.cpp"
    first = lines_of(kernelyard("run", project, "--", "python", "-c", IMPORTS))[1]
    again = kernelyard("run", project, "--", "python", "-c", IMPORTS)
    assert lines_of(again)[1] == first
    assert "building" not in again.stderr
    source.write_text(source.read_text("utf-8").replace("21", "22"), "utf-8")
    without = kernelyard("run", "--no-build", project, "--", "python", "-c", IMPORTS)
    assert lines_of(without)[1] == first
    built = kernelyard("run", project, "--", "python", "-c", IMPORTS)
    assert NAME.fullmatch(second := lines_of(built)[1])
    assert second != first
    assert "answer.cpp" in built.stderr
    source.write_text("no C++", "utf-8")
    broken = kernelyard("run", project, "--", "python", "-c", IMPORTS)
    assert broken.returncode == 1
    assert "answer.cpp" in broken.stderr
    assert broken.stdout == ""


def test_the_environment_is_a_layer_with_programs_of_its_own(kernelyard: Command, project: Path) -> None:
    program = "import sys, torch; print(sys.prefix); print(torch.__file__)"
    prefix, torch = lines_of(kernelyard("run", "--no-build", project, "--", "python", "-c", program))
    assert Path(prefix).parent == project.resolve() / ".kernelyard" / "environments"
    assert not Path(torch).is_relative_to(project.resolve())
    names = ("python", "pip", "cmake", "ninja")
    program = f"import shutil; [print(shutil.which(name)) for name in {names}]"
    found = lines_of(kernelyard("run", "--no-build", project, "--", "python", "-c", program))
    assert found == [f"{prefix}/bin/{name}" for name in names]
    (ninja,) = lines_of(kernelyard("run", "--no-build", project, "--", "ninja", "--version"))
    assert ninja[0].isdigit()


def test_what_is_installed_in_it_stays_in_it(kernelyard: Command, project: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "only_here-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("only_here.py", "")
        archive.writestr("only_here-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: only-here\nVersion: 1\n")
        archive.writestr(
            "only_here-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("only_here-1.dist-info/RECORD", "only_here.py,,\n")
    installed = kernelyard("run", "--no-build", project, "--", "pip", "install", "--no-deps", wheel)
    assert installed.returncode == 0, installed.stderr
    (origin,) = lines_of(
        kernelyard("run", "--no-build", project, "--", "python", "-c", "import only_here as o; print(o.__file__)")
    )
    assert Path(origin).is_relative_to(project.resolve() / ".kernelyard")
    outside = subprocess.run([sys.executable, "-c", "import only_here"], capture_output=True, check=False)
    assert outside.returncode == 1


def test_variables_survive_but_for_what_must_change(kernelyard: Command, project: Path) -> None:
    own = {"PYTHONPATH": "/of/mine", "OMP_NUM_THREADS": "3", "A_TEXT": "two words\nand a line", "PYTHONHOME": ""}
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    changed = json.loads(lines_of(kernelyard("run", "--no-build", project, "--", "python", "-c", program, env=own))[0])
    assert changed["OMP_NUM_THREADS"] == "3"
    assert changed["A_TEXT"] == own["A_TEXT"]
    assert changed["PYTHONPATH"].split(":")[1:] == ["/of/mine"]
    assert changed["PATH"].endswith(os.environ["PATH"])
    assert changed["KERNELYARD_VARIANT"].startswith("torch-stable-abi211-cpu-")
    assert "PYTHONHOME" not in changed
    kept = set(os.environ) - {"PYTHONHOME", "KERNELYARD_HUB", "CXX", "VIRTUAL_ENV_PROMPT", "PYTEST_CURRENT_TEST"}
    assert kept - set(changed) == set()


def test_what_comes_after_the_dashes_is_passed_on_as_it_is(kernelyard: Command, project: Path) -> None:
    told = kernelyard(
        "run", "--no-build", project, "--", "python", "-c", "import sys; print(sys.argv[1:])", "--", "a b", "-x", ""
    )
    assert lines_of(told) == ["['--', 'a b', '-x', '']"]


def test_without_dashes_the_usage_is_told(kernelyard: Command, project: Path) -> None:
    done = kernelyard("run", "python", "script.py", cwd=project)
    assert done.returncode == 2
    assert "kernelyard run [OPTIONS] [FOLDER] -- ..." in done.stderr
    done = kernelyard("run", cwd=project)
    assert done.returncode == 2
    assert "stands after `--`" in done.stderr


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("exit 0", 0), ("kill -TERM $$", -signal.SIGTERM)])
def test_the_status_is_that_of_the_command(kernelyard: Command, project: Path, script: str, status: int) -> None:
    assert kernelyard("run", "--no-build", project, "--", "sh", "-c", script).returncode == status


def test_a_program_that_is_not_there_is_127_and_one_that_cannot_run_is_126(
    kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    done = kernelyard("run", "--no-build", project, "--", "nosuchprogram")
    assert (done.returncode, "KY745" in done.stderr) == (127, True)
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n", "utf-8")
    script.chmod(0o755)
    done = kernelyard("run", "--no-build", project, "--", script)
    assert (done.returncode, "KY745" in done.stderr) == (126, True)
    assert "Traceback" not in done.stderr


def test_signals_reach_the_command_and_pipes_break_as_everywhere(
    program: Path, environment: dict[str, str], project: Path
) -> None:
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    command = [str(program), "run", "--no-build", str(project), "--", "bash", "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == "caught\n"
    assert running.returncode == 5
    # Python ignores SIGPIPE; a command that inherited that would complain instead of ending.
    command = [str(program), "run", "--no-build", str(project), "--", "sh", "-c", "grep SigIgn /proc/self/status"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert int(said.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


@pytest.mark.network
def test_a_variant_that_only_builds_here_says_so_and_brings_its_toolkit(
    kernelyard: Command, sample: Callable[[str], Path]
) -> None:
    from kernelyard.load.system.description import describe_system

    if describe_system().driver is not None:
        pytest.skip("this machine runs it")
    project = sample("tiny")
    done = kernelyard("run", "--variant", "*-cu130-*", project, "--", "sh", "-c", "command -v nvcc; env")
    nvcc, *variables = lines_of(done)
    home = dict(line.partition("=")[::2] for line in variables)["CUDA_HOME"]
    assert nvcc == f"{home}/bin/nvcc"
    empty = {"KERNELYARD_CACHE": str(project / "empty store"), "PATH": f"{project}:/usr/bin:/bin", "CUDA_HOME": ""}
    without = kernelyard("run", "--no-build", "--variant", "*-cu130-*", project, "--", "echo", "ran", env=empty)
    assert lines_of(without) == ["ran"]
    assert not (project / "empty store" / "toolkits").exists()
    assert "only to be built here: It is for CUDA and there is no NVIDIA driver here." in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--torch", "2.10"], "KY741", "no variant is for torch 2.10"),
        (["--torch", "new"], "KY741", "for example --torch 2.13"),
        (["--variant", "nosuch"], "KY401", "no variant matches"),
        (["--python", "/no/python"], "KY405", "is no Python"),
    ],
)
def test_what_cannot_be_had_is_said(
    kernelyard: Command, project: Path, options: list[str], code: str, text: str
) -> None:
    done = kernelyard("run", *options, project, "--", "true")
    assert (done.returncode, code in done.stderr, text in done.stderr) == (2, True, True), done.stderr


@pytest.mark.network
def test_nothing_is_fetched_where_that_is_forbidden(
    kernelyard: Command, project: Path, bare_python: Path, tmp_path: Path
) -> None:
    before = sorted(project.joinpath(".kernelyard", "environments").glob("*/"))
    empty = {"KERNELYARD_CACHE": str(tmp_path / "store")}
    done = kernelyard("run", "--no-download", "--python", bare_python, project, "--", "true", env=empty)
    assert done.returncode == 1
    assert "KY742" in done.stderr
    assert re.search(r"lacks torch 2\.13\.0\S*, .* \(\d+ MB in \d+ files", done.stderr)
    assert sorted(project.joinpath(".kernelyard", "environments").glob("*/")) == before


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has no torch."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin" / "python"


class Terminal:
    """A shell that `kernelyard shell` has started, on a terminal."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child becomes the command
            os.chdir(folder)
            os.execvpe(command[0], command, environment)  # noqa: S606
        self.said = ""

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + 60
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < deadline, self.said
            if select.select([self._fd], [], [], 1)[0]:
                self.said += os.read(self._fd, 65536).decode(errors="replace").replace("\r\n", "\n")
        self.said = self.said[found.end() :]
        return found[0]

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def status(self) -> int:
        try:
            while os.read(self._fd, 65536):
                pass
        except OSError:
            pass  # the other end is closed
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


RC = {
    "bash": (".bashrc", "PS1='mine$ '\nexport PATH=/of/mine:$PATH\n"),
    "zsh": (".zshrc", "PS1='mine$ '\nexport PATH=/of/mine:$PATH\n"),
    "fish": (
        ".config/fish/config.fish",
        "set -gx PATH /of/mine $PATH\nfunction fish_prompt; echo 'mine$ '; end\nset -g fish_greeting\n",
    ),
}


@pytest.mark.parametrize("shell", RC)
def test_a_shell_has_the_users_files_and_the_kernels_prompt(
    program: Path, environment: dict[str, str], project: Path, tmp_path: Path, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    name, text = RC[shell]
    rc = tmp_path / name
    rc.parent.mkdir(parents=True, exist_ok=True)
    rc.write_text(text, "utf-8")
    own = {
        "HOME": str(tmp_path),
        "SHELL": f"/bin/{shell}",
        "TERM": "dumb",
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
    }
    terminal = Terminal([str(program), "shell", "--no-build"], environment | own, project)
    terminal.wait_for(r"tiny: torch-stable-abi211-cpu-\w+-linux with torch")
    terminal.wait_for(r"\(tiny\) mine\$ ")
    terminal.type("python -c 'import tiny, sys; print(bool(tiny.__file__), sys.prefix)'; echo $PATH | tr : ' '")
    prefix = terminal.wait_for(r"True /[^\n]+").removeprefix("True ")
    assert Path(prefix).parent == project.resolve() / ".kernelyard" / "environments"
    assert terminal.wait_for(rf"{re.escape(prefix)}/bin .*/of/mine")
    terminal.wait_for(r"\(tiny\) mine\$ ")
    terminal.type("exit 9")
    assert terminal.status() == 9
    assert rc.read_text("utf-8") == text


def test_without_a_terminal_a_shell_reads_commands(program: Path, environment: dict[str, str], project: Path) -> None:
    done = subprocess.run(
        [program, "shell", "--no-build", "--shell", "bash"],
        cwd=project,
        env=environment,
        input="python -c 'import tiny; print(tiny.__doc__)'\nexit 3\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "A kernel that does nothing.\n")
    assert "job control" not in done.stderr


def test_a_shell_starts_although_the_kernel_does_not_compile(
    program: Path, environment: dict[str, str], sample: Callable[[str], Path]
) -> None:
    project = sample("tiny")
    (project / "csrc" / "answer.cpp").write_text("no C++", "utf-8")
    done = subprocess.run(
        [program, "shell", "--shell", "bash"],
        cwd=project,
        env=environment,
        input="echo here\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "here\n")
    assert "answer.cpp" in done.stderr


def test_a_shell_that_is_not_known_is_refused(kernelyard: Command, project: Path) -> None:
    done = kernelyard("shell", project, env={"SHELL": "/bin/tcsh"})
    assert done.returncode == 2
    assert "KY744" in done.stderr
    assert "kernelyard run -- tcsh" in done.stderr
