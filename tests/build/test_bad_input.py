"""Whatever goes wrong ends in a clear message and the right status, and leaves nothing that is taken for whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"

Run = Callable[..., subprocess.CompletedProcess[str]]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def state(project: Path) -> dict[str, tuple[str, int]]:
    """Return digest and time of change of everything in `build/`."""
    return {
        path.relative_to(project).as_posix(): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted((project / "build").rglob("*"))
        if path.is_file()
    }


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture
def project(built_tiny: Path, tmp_path: Path) -> Path:
    """A project that has been built before."""
    return shutil.copytree(built_tiny, tmp_path / "tiny", ignore=shutil.ignore_patterns(".kernelyard"))


@pytest.fixture
def fails(kernelyard: Run, project: Path) -> Callable[..., str]:
    """Return a function that builds, asserts the status and that `build/` is as it was, and answers what was said."""

    def build(status: int, *arguments: str, env: dict[str, str] | None = None) -> str:
        before = state(project)
        done = kernelyard("build", project, *(arguments or ("--variant", "*-cpu-*")), env=env)
        assert done.returncode == status, done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert state(project) == before
        assert not list((project / ".kernelyard").glob("aside/*/*"))
        return done.stderr

    return build


@pytest.fixture
def succeeds(kernelyard: Run, project: Path) -> Callable[[], None]:
    """Return a function that builds, and sees that the result is whole."""

    def build() -> None:
        done = kernelyard("build", project, "--variant", "*-cpu-*")
        assert done.returncode == 0, done.stderr
        checked = kernelyard("check", project)
        assert (checked.returncode, checked.stdout) == (0, f"{CPU}: fit\n")

    return build


Fails = Callable[..., str]
Succeeds = Callable[[], None]


# The author's mistakes


def test_a_misspelt_key(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "build.toml", "stable-abi", "stabel-abi")
    said = fails(2)
    assert said.splitlines() == [
        f"kernelyard: {project}/build.toml:15:1: torch.stabel-abi: unknown key `stabel-abi` in [torch] [KY203]",
        "  did you mean `stable-abi`?",
        "  `kernelyard explain KY203` says more",
    ]
    edit(project / "build.toml", "stabel-abi", "stable-abi")
    succeeds()


def test_a_missing_source(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "build.toml", '"csrc/answer.cpp"', '"csrc/anwser.cpp"')
    said = fails(2)
    assert f"{project}/build.toml:20:8: kernel.tiny_cpu.src[0]: there is no file 'csrc/anwser.cpp' [KY208]" in said
    assert "did you mean `answer.cpp`?" in said
    edit(project / "build.toml", '"csrc/anwser.cpp"', '"csrc/answer.cpp"')
    succeeds()


def test_a_compiler_error_in_a_cu_file(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "answer.cu", "*out = 42;", "\n  *out = undeclared_name;\n")
    said = fails(1, "--variant", "*-cu130-*")
    first = next(line for line in said.splitlines() if line.startswith("kernelyard:"))
    assert first == (f'kernelyard: {project}/csrc/answer.cu:6: identifier "undeclared_name" is undefined [KY411]')
    assert f"all of the compiler's output: {project}/.kernelyard/cu130/build.log" in said
    assert "undeclared_name" in (project / ".kernelyard" / "cu130" / "build.log").read_text()
    succeeds()


def test_a_compiler_error_in_a_cpp_file(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "other.cpp", "return 21;", "return missing;")
    said = fails(1)
    assert f"kernelyard: {project}/csrc/other.cpp:3:22: " in said
    assert "missing" in said
    assert "[KY411]" in said
    edit(project / "csrc" / "other.cpp", "return missing;", "return 21;")
    succeeds()


def test_an_error_in_the_users_folder_is_told_by_a_relative_path(project: Path, kernelyard: Run) -> None:
    edit(project / "csrc" / "other.cpp", "return 21;", "return missing;")
    done = kernelyard("build", "--variant", "*-cpu-*", cwd=project)
    assert done.returncode == 1
    assert "kernelyard: csrc/other.cpp:3:22: " in done.stderr


def test_a_symbol_that_nobody_defines(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "answer.h", "int other();", "int other();\nint nowhere(float*, long);")
    edit(project / "csrc" / "other.cpp", "return 21;", "return nowhere(nullptr, 1);")
    said = fails(1)
    assert (
        f"kernelyard: {project}/csrc/other.cpp: refers to `nowhere(float*, long)` (_Z7nowherePfl), which neither "
        "manylinux_2_28, Python nor torch offers [KY417]\n  define it, or list the source that does in `src`\n"
    ) in said
    edit(project / "csrc" / "other.cpp", "return nowhere(nullptr, 1);", "return 21;")
    succeeds()


def test_a_function_that_is_newer_than_the_floor(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "other.cpp", "return 21;", "return getentropy_new();")
    edit(project / "csrc" / "other.cpp", "int other()", 'extern "C" int getentropy_new();\nint other()')
    assert "refers to getentropy_new, which neither" in fails(1)
    edit(project / "csrc" / "other.cpp", "return getentropy_new();", "return 21;")
    succeeds()


def test_a_header_that_torch_does_not_have(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "other.cpp", "<answer.h>", "<torch/nonsense.h>")
    said = fails(1)
    assert f"{project}/csrc/other.cpp:1:10: torch/nonsense.h: No such file or directory [KY411]" in said
    assert "this torch has no such header" in said
    edit(project / "csrc" / "other.cpp", "<torch/nonsense.h>", "<answer.h>")
    succeeds()


def test_torchs_headers_are_there_for_whatever_includes_them(project: Path, succeeds: Succeeds) -> None:
    edit(project / "csrc" / "other.cpp", "<answer.h>", "<torch/headeronly/macros/Macros.h>")
    succeeds()


def test_pythons_header_is_not_to_be_had(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "torch-ext" / "binding.cpp", '#include "answer.h"', '#include <Python.h>\n#include "answer.h"')
    said = fails(1)
    assert f"{project}/torch-ext/binding.cpp:1:10: Python.h: No such file or directory [KY411]" in said
    assert "leave the include out: registration.h declares what an extension needs of Python" in said
    edit(project / "torch-ext" / "binding.cpp", "#include <Python.h>\n", "")
    succeeds()


def test_a_header_that_is_not_there(project: Path, fails: Fails) -> None:
    edit(project / "csrc" / "other.cpp", "<answer.h>", '"anwser.h"')
    assert "is the header listed in `src`, and its folder in `include`?" in fails(1)


def test_a_flag_that_the_compiler_does_not_know(project: Path, fails: Fails, succeeds: Succeeds) -> None:
    edit(project / "build.toml", 'backend = "cpu"', 'backend = "cpu"\ncxx-flags = ["--nonsense"]')
    assert "--nonsense" in fails(1)
    edit(project / "build.toml", '\ncxx-flags = ["--nonsense"]', "")
    succeeds()


def test_a_variant_that_is_not_in_the_matrix(fails: Fails) -> None:
    said = fails(2, "--variant", CPU.replace("211", "210"))
    assert f"no variant matches '{CPU.replace('211', '210')}' [KY401]" in said
    assert f"did you mean `{CPU}`?" in said


def test_a_kernel_for_none_of_the_backends_that_can_be_built(project: Path, fails: Fails) -> None:
    edit(project / "build.toml", 'backends = ["cpu", "cuda"]', 'backends = ["rocm"]')
    assert "nothing can be built here: rocm: this version has no compiler for the backend rocm [KY402]" in fails(
        2, "--jobs", "1"
    )


# The machine


def test_no_compiler(fails: Fails, succeeds: Succeeds, tmp_path: Path, store_root: Path) -> None:
    (tmp_path / "bin").mkdir()
    # A cache without a pinned compiler, and no place to fetch one from.
    (tmp_path / "cache").mkdir()
    for part in store_root.iterdir():
        if part.name != "compilers":
            (tmp_path / "cache" / part.name).symlink_to(part)
    nowhere = {"KERNELYARD_CACHE": str(tmp_path / "cache"), "KERNELYARD_DEBIAN_MIRROR": "http://127.0.0.1:9/debian"}
    said = fails(3, env={"PATH": str(tmp_path / "bin"), **nowhere})
    what, hint, more = said.splitlines()[-3:]
    assert what == "kernelyard: there is no g++ [KY321]"
    assert hint.startswith(
        "  install it (Debian and Ubuntu: `apt install g++`), or set CXX to a g++; nor can one be fetched"
    )
    assert more == "  `kernelyard explain KY321` says more"
    assert "[KY321]" in fails(3, env={"CXX": "g++-99"})
    succeeds()


def test_no_network_and_an_empty_cache(fails: Fails, succeeds: Succeeds, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    said = fails(3, env={"PIP_INDEX_URL": "http://127.0.0.1:9/simple/", "KERNELYARD_CACHE": str(cache)})
    assert "cannot reach the package index" in said
    assert "http://127.0.0.1:9/simple/torch/" in said
    assert "[KY311]" in said
    assert "what is in the cache already needs no network" in said
    assert list(cache.glob("torch-headers/*")) == []
    succeeds()


def test_a_full_cache_needs_no_network(kernelyard: Run, project: Path) -> None:
    done = kernelyard("build", project, "--variant", "*-cpu-*", env={"PIP_INDEX_URL": "http://127.0.0.1:9/simple/"})
    assert done.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a file system of a size, or of another size in the same place."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = False

    def mount(size: str) -> Path:
        nonlocal mounted
        options = f"{'remount,' if mounted else ''}size={size}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("file systems cannot be mounted here")
        mounted = True
        return folder

    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("file systems cannot be mounted here")
    yield mount
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def used(disk: Path) -> int:
    """Return how many kB of a disk are used."""
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize // 1024


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.85])
def test_a_full_disk_below_the_project(
    small_disk: Callable[[str], Path], project: Path, kernelyard: Run, share: float
) -> None:
    disk = small_disk("64m")
    on_disk = shutil.copytree(project, disk / "tiny")
    edit(on_disk / "csrc" / "other.cpp", "21", "20")
    before, begun = state(on_disk), used(disk)
    # How much a build writes depends on what the store knows of the compiler already.
    undisturbed = shutil.copytree(on_disk, disk / "undisturbed")
    copied = used(disk)
    assert kernelyard("build", undisturbed, "--variant", "*-cpu-*").returncode == 0
    written = used(disk) - copied
    shutil.rmtree(undisturbed)
    small_disk(f"{begun + int(share * written)}k")
    done = kernelyard("build", on_disk, "--variant", "*-cpu-*")
    assert done.returncode == 3, done.stderr
    assert "the disk is full [KY301]" in done.stderr
    assert "KERNELYARD_CACHE" not in done.stderr
    assert "Traceback" not in done.stderr
    assert state(on_disk) == before
    small_disk("64m")
    assert kernelyard("build", on_disk, "--variant", "*-cpu-*").returncode == 0
    assert kernelyard("check", on_disk).returncode == 0


def test_a_full_disk_below_the_store(
    small_disk: Callable[[str], Path], fails: Fails, kernelyard: Run, project: Path
) -> None:
    store = small_disk("4m") / "store"
    said = fails(3, env={"KERNELYARD_CACHE": str(store)})
    assert "the disk is full [KY301]" in said
    assert "free some space, or point KERNELYARD_CACHE to a larger disk" in said
    assert list(store.glob("torch-headers/*")) == []
    assert list(store.glob("aside/*")) == []
    small_disk("1g")
    done = kernelyard("build", project, "--variant", "*-cpu-*", env={"KERNELYARD_CACHE": str(store)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("locked", ["build", "."])
def test_a_folder_that_may_not_be_written(
    project: Path, program: Path, environment: dict[str, str], locked: str
) -> None:
    command = [str(program), "build", str(project), "--variant", "*-cpu-*"]
    if os.geteuid() == 0:
        # Root may write anywhere; root without capabilities may not.
        if shutil.which("setpriv") is None:
            pytest.skip("root cannot give up its capabilities here")
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    before = state(project)
    (project / locked).chmod(0o555)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    finally:
        (project / locked).chmod(0o755)
    assert done.returncode == 3, done.stderr
    assert str(project) in done.stderr
    assert "cannot be written: Permission denied [KY302]" in done.stderr
    assert "change its permissions, or move the project to a folder of your own" in done.stderr
    assert "Traceback" not in done.stderr
    assert state(project) == before
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        ("file", ".kernelyard", "move what is there out of the way"),
        ("folder", ".kernelyard/lock", "move the folder that is there out of the way"),
        ("file", ".kernelyard/cpu", "move the file that is there, in the place of a folder, out of the way"),
    ],
)
def test_what_stands_in_the_place_of_the_build_s_own_files_is_told(
    sample: Callable[[str], Path], kernelyard: Run, kind: str, name: str, hint: str
) -> None:
    project = sample("tiny")
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.touch() if kind == "file" else path.mkdir()
    done = kernelyard("build", project, "--variant", "*-cpu-*")
    assert done.returncode == 3
    assert f"{project}/{name}" in done.stderr
    assert "[KY302]" in done.stderr
    assert hint in done.stderr
    assert "permissions" not in done.stderr


def test_a_build_folder_on_another_file_system(
    small_disk: Callable[[str], Path], project: Path, fails: Fails, succeeds: Succeeds
) -> None:
    elsewhere = small_disk("64m") / "build"
    shutil.move(project / "build", elsewhere)
    (project / "build").symlink_to(elsewhere)
    said = fails(3)
    assert f"{project}/build: this folder is on another file system than the project" in said
    assert "[KY414]" in said
    (project / "build").unlink()
    succeeds()


# Interruptions. A header that is a named pipe holds the compiler for as long as the test wants.


class Held:
    """A build that stands still in the middle of compiling."""

    def __init__(self, project: Path, program: Path, environment: dict[str, str]) -> None:
        self.project = project
        self.pipe = project / "csrc" / "pipe.h"
        os.mkfifo(self.pipe)
        edit(project / "csrc" / "other.cpp", "#include <answer.h>", '#include <answer.h>\n#include "pipe.h"')
        self.command = [str(program), "build", str(project), "--variant", "*-cpu-*"]
        self.environment = environment
        self.process = self.start()
        wait_until(lambda: any("other.cpp" in command for command in self.compilers()))

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def compilers(self) -> list[str]:
        """Return the command lines of compilers that work on the project."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.project) in command and "cc1plus" in command:
                found.append(command)
        return found

    def replace_pipe(self, content: str) -> Path:
        """Put a file in the pipe's place; compilers that wait for the pipe go on waiting."""
        aside = self.project / "pipe"
        self.pipe.rename(aside)
        self.pipe.write_text(content)
        return aside

    def release(self, pipe: Path, content: str) -> None:
        pipe.write_text(content)


@pytest.fixture
def held(project: Path, program: Path, environment: dict[str, str]) -> Iterator[Held]:
    held = Held(project, program, environment)
    yield held
    if held.process.poll() is None:
        os.killpg(held.process.pid, signal.SIGKILL)
        held.process.communicate()
    # Compilers that a failed test has left behind read an empty header and end.
    for pipe in (held.pipe, project / "pipe"):
        with contextlib.suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("whole_group", [True, False])
def test_an_interrupted_build_ends_with_its_compilers(
    held: Held,
    project: Path,
    succeeds: Succeeds,
    whole_group: bool,  # noqa: FBT001
) -> None:
    before = state(project)
    (os.killpg if whole_group else os.kill)(held.process.pid, signal.SIGINT)
    stdout, stderr = held.process.communicate(timeout=30)
    assert held.process.returncode == 130
    assert stdout == ""
    assert stderr.splitlines()[-1] == "kernelyard: interrupted; nothing half-made was left behind"
    assert "Traceback" not in stderr
    wait_until(lambda: held.compilers() == [], 5)
    assert state(project) == before
    assert not list((project / ".kernelyard").glob("aside/*/*"))
    held.replace_pipe("")
    succeeds()


def test_a_killed_build_does_not_write_into_the_next_one(held: Held, project: Path, kernelyard: Run) -> None:
    before = state(project)
    held.process.kill()
    held.process.communicate()
    assert state(project) == before
    assert held.compilers()  # it waits for the pipe, and will write an object of the old content
    pipe = held.replace_pipe('__attribute__((used)) static const char held[] = "content of the new file";')
    second = held.start()
    assert second.stderr is not None
    assert "another build is running in this project: waiting for it to end" in second.stderr.readline()
    held.release(pipe, '__attribute__((used)) static const char held[] = "content of the old file";')
    _, stderr = second.communicate(timeout=60)
    assert second.returncode == 0, stderr
    (library,) = (project / "build" / CPU).glob("*.so")
    assert b"content of the new file" in library.read_bytes()
    assert b"content of the old file" not in library.read_bytes()
    assert kernelyard("check", project).returncode == 0


def test_two_builds_at_the_same_time_are_done_one_after_the_other(held: Held, project: Path, kernelyard: Run) -> None:
    second = held.start()
    assert second.stderr is not None
    assert "another build is running in this project: waiting for it to end" in second.stderr.readline()
    assert second.poll() is None
    held.release(held.replace_pipe(""), "")
    for process in (held.process, second):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    done = kernelyard("check", project)
    assert (done.returncode, done.stdout) == (0, f"{CPU}: fit\n")


def test_waiting_for_another_build_can_be_given_up(held: Held, project: Path) -> None:
    second = held.start()
    assert second.stderr is not None
    second.stderr.readline()
    os.kill(second.pid, signal.SIGINT)
    second.communicate(timeout=30)
    assert second.returncode == 130
    assert held.process.poll() is None
    held.release(held.replace_pipe(""), "")
    held.process.communicate(timeout=60)
    assert held.process.returncode == 0
    assert (project / "build" / CPU / "metadata.json").is_file()


@pytest.mark.slow
def test_builds_that_are_killed_at_any_moment_leave_nothing_half_made(
    project: Path, kernelyard: Run, program: Path, environment: dict[str, str], succeeds: Succeeds
) -> None:
    for number in range(12):
        edit(project / "csrc" / "other.cpp", f"return {21 + number};", f"return {22 + number};")
        process = subprocess.Popen(
            [program, "build", project, "--variant", "*-cpu-*"],
            env=environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Event().wait(0.25 + 0.09 * number)
        process.kill()
        process.wait()
        if (project / "build" / CPU).exists():
            assert kernelyard("check", project).stdout == f"{CPU}: fit\n"
    succeeds()
