"""What a project's lock says, and how a build is held against it; nothing is compiled."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard import __version__
from kernelyard.build.compile import Workshop, compile_variants
from kernelyard.build.identity import templates_digest
from kernelyard.build.isolation import without_network
from kernelyard.build.linker import WITHOUT_TRANSLATION
from kernelyard.build.selection import Selection
from kernelyard.build.source_state import SourceState, source_state
from kernelyard.build.toolchain_lock import (
    Change,
    changes,
    check_current,
    check_request,
    lock_command,
    locked_names,
    make_lock,
    read_lock,
    replaced_lock,
    requests,
    write_lock,
)
from kernelyard.errors import InputError, KernelyardError, MissingError, VerificationError
from kernelyard.formats.toolchain_lock import LockedPart, LockedVariant, Request, ToolchainLock, Use
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.plan import plan_variant
from kernelyard.project.sources import read_project
from kernelyard.toolchain.host import Tools
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.trust import known_packages, known_trees, known_wheels

#: Takes the digest of a lock, or None.
See = Callable[[str | None], dict[str, Any]]

A, B = "a" * 64, "b" * 64
CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu130-x86_64-linux"
REQUEST = Request("cpu", None, Version("2.11"), Version("2.11"))
CUDA_REQUEST = replace(REQUEST, backend="cuda", cuda=Version("13.0"))
USES = {"compiler": Use("g++ 12", A), "torch": Use("torch 2.11.0", A)}
LOCK = ToolchainLock(
    kernelyard=__version__,
    templates=templates_digest(),
    platform="x86_64-linux",
    selection=(),
    archives={},
    parts={},
    variants={CPU: LockedVariant(REQUEST, USES), CUDA: LockedVariant(CUDA_REQUEST, USES)},
)


def failure(of: Callable[[], object], kind: type[KernelyardError]) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert type(caught.value) is kind
    return caught.value


def test_a_lock_is_written_whole_and_read_again(tmp_path: Path) -> None:
    write_lock(tmp_path, LOCK)
    write_lock(tmp_path, replace(LOCK, selection=("*-cpu-*",)))
    assert [path.name for path in tmp_path.iterdir()] == ["toolchain.lock"]
    assert read_lock(tmp_path) == replace(LOCK, selection=("*-cpu-*",))


def test_a_project_without_a_lock_says_how_to_make_one(tmp_path: Path) -> None:
    error = failure(lambda: read_lock(tmp_path), MissingError)
    assert (error.code, error.exit_code) == ("KY353", 1)
    assert "kernelyard toolchain lock" in error.hint


def stand_in_for_the_lock(folder: Path, kind: str) -> None:
    path = folder / "toolchain.lock"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(os.path.relpath(path))
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to("toolchain.lock")
        case "large":
            path.touch()
            os.truncate(path, 1 << 40)
        case _:
            path.write_bytes(b"\0")


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "loop", "large", "zero"])
def test_what_is_no_lock_is_neither_waited_for_nor_read_to_its_end(tmp_path: Path, kind: str) -> None:
    stand_in_for_the_lock(tmp_path, kind)
    error = failure(lambda: read_lock(tmp_path), InputError)
    assert error.code == "KY352"
    assert error.place is not None
    assert error.place.path == str(tmp_path / "toolchain.lock")
    assert kind == "zero" or "toolchain lock`" in error.hint


def test_a_link_that_leads_nowhere_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "toolchain.lock").symlink_to("nowhere")
    error = failure(lambda: read_lock(tmp_path), MissingError)
    assert (error.code, "a link that leads nowhere" in error.what) == ("KY353", True)
    write_lock(tmp_path, LOCK)
    assert read_lock(tmp_path) == LOCK


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_before_anything_is_fetched_it_shows_that_no_lock_can_be_written(tmp_path: Path, kind: str) -> None:
    stand_in_for_the_lock(tmp_path, kind)
    assert failure(lambda: replaced_lock(tmp_path), InputError).code == "KY352"


def test_the_lock_that_is_replaced_is_known_where_it_can_be_read(tmp_path: Path) -> None:
    assert replaced_lock(tmp_path) is None
    write_lock(tmp_path, LOCK)
    assert replaced_lock(tmp_path) == LOCK
    (tmp_path / "toolchain.lock").write_text("<<<<<<< HEAD\n")
    assert replaced_lock(tmp_path) is None


def test_a_variant_that_is_not_locked_is_locked_with_the_others(sample: Callable[[str], Path]) -> None:
    project = read_project(sample("tiny"))
    plan = plan_variant(project, VariantName.parse(CPU), Version("2.11"))
    lock = replace(LOCK, variants={}, selection=("*-cu130-*", "x"))
    error = failure(lambda: check_request(lock, plan), InputError)
    assert (error.code, "does not have this variant" in error.what) == ("KY354", True)
    assert f"`kernelyard toolchain lock --variant '*-cu130-*' --variant x --variant {CPU}`" in error.hint
    assert lock_command(LOCK) == "kernelyard toolchain lock"
    assert lock_command(LOCK, CPU) == f"kernelyard toolchain lock --variant '*' --variant {CPU}"
    assert lock_command(replace(LOCK, platform="aarch64-linux")).endswith(" --platform aarch64-linux")


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (Selection(), [CPU, CUDA]),
        (Selection.parse(backend=["cpu"]), [CPU]),
        (Selection.parse(cuda=[">=13"]), [CUDA]),
        (Selection.parse(torch=["2.13"], globs=["*-cpu-*"]), [CPU]),
    ],
)
def test_of_a_lock_some_variants_can_be_asked_for(asked: Selection, names: list[str]) -> None:
    assert list(locked_names(LOCK, asked)) == names


def test_of_a_lock_only_what_it_has_can_be_asked_for() -> None:
    error = failure(lambda: locked_names(LOCK, Selection.parse(cuda=["12.4"])), InputError)
    assert (error.code, error.what) == ("KY401", "no variant is for CUDA 12.4")
    assert error.hint == "there are variants for CUDA 13.0"


def test_what_is_locked_may_be_asked_for_by_more_than_names(sample: Callable[[str], Path]) -> None:
    project = read_project(sample("tiny"))
    asked = requests(project, "x86_64-linux", Selection.parse(cuda=["12"]))
    assert list(asked) == ["torch-stable-abi211-cu124-x86_64-linux"]
    assert asked["torch-stable-abi211-cu124-x86_64-linux"].cuda == Version("12.4")


@pytest.mark.network
def test_a_lock_keeps_patterns_and_of_other_options_what_they_come_to(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    root = sample("tiny")
    assert make_lock(root, source, selection=Selection.parse(backend=["cpu"])).selection == (CPU,)
    assert make_lock(root, source, selection=["*-cpu-*"]).selection == ("*-cpu-*",)


def test_a_lock_of_now_is_current() -> None:
    check_current(LOCK, "x86_64-linux")


@pytest.mark.parametrize(
    ("lock", "platform", "said"),
    [
        (replace(LOCK, kernelyard="0.0.1"), "x86_64-linux", f"of Kernelyard 0.0.1, and this is {__version__}"),
        (replace(LOCK, templates=A), "x86_64-linux", "projects are generated otherwise"),
    ],
)
def test_a_lock_of_another_kernelyard_is_outdated(lock: ToolchainLock, platform: str, said: str) -> None:
    error = failure(lambda: check_current(lock, platform), InputError)
    assert (error.code, error.exit_code) == ("KY354", 2)
    assert said in error.what
    assert "kernelyard toolchain update" in error.hint


def test_a_lock_for_another_platform_is_not_updated_but_replaced() -> None:
    """`update` keeps the platform."""
    error = failure(lambda: check_current(LOCK, "aarch64-linux"), InputError)
    assert (error.code, error.exit_code) == ("KY354", 2)
    assert "for x86_64-linux, not for aarch64-linux" in error.what
    assert "toolchain update" not in error.hint
    assert "--platform x86_64-linux" in error.hint
    assert "`kernelyard toolchain lock --platform aarch64-linux`" in error.hint


def test_a_lock_that_names_another_package_than_the_pinned_one_is_refused() -> None:
    package = next(iter(known_packages().values()))
    check_current(replace(LOCK, archives={package.file: package}), "x86_64-linux")
    lock = replace(LOCK, archives={package.file: replace(package, sha256=A)})
    error = failure(lambda: check_current(lock, "x86_64-linux"), VerificationError)
    assert (error.code, error.place) == ("KY351", ("toolchain.lock", None, None, f"archives.{package.file}"))


def test_a_lock_that_has_other_files_in_a_part_than_its_recipe_gives_is_refused() -> None:
    id_, tree = next(iter(known_trees().items()))
    wheel = next(iter(known_wheels().values()))
    archives = {wheel.file: wheel}
    check_current(replace(LOCK, archives=archives, parts={id_: LockedPart((wheel.file,), tree)}), "x86_64-linux")
    lock = replace(LOCK, archives=archives, parts={id_: LockedPart((wheel.file,), A)})
    error = failure(lambda: check_current(lock, "x86_64-linux"), VerificationError)
    assert (error.code, error.place) == ("KY351", ("toolchain.lock", None, None, f"parts.{id_}"))


def test_a_lock_that_names_another_wheel_than_the_known_one_is_refused() -> None:
    wheel = next(iter(known_wheels().values()))
    lock = replace(LOCK, archives={wheel.file: replace(wheel, sha256=A, record=B)})
    error = failure(lambda: check_current(lock, "x86_64-linux"), VerificationError)
    assert (error.code, error.exit_code) == ("KY351", 4)


def test_the_digest_of_the_templates_is_that_of_their_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = templates_digest()
    monkeypatch.setattr("kernelyard.build.identity.files", lambda _: tmp_path)
    tmp_path.joinpath("templates").mkdir()
    empty = templates_digest()
    tmp_path.joinpath("templates", "a.cmake").write_text("a")
    one = templates_digest()
    tmp_path.joinpath("templates", "a.cmake").write_text("b")
    assert len({before, empty, one, templates_digest()}) == 4


# What changed


def test_nothing_changes_between_a_lock_and_itself() -> None:
    assert changes(LOCK, LOCK) == ()


def test_a_change_that_variants_share_is_told_once() -> None:
    newer = {**USES, "torch": Use("torch 2.11.1", B)}
    new = replace(LOCK, variants=dict.fromkeys((CPU, CUDA), LockedVariant(REQUEST, newer)))
    assert changes(LOCK, new) == (Change("torch", "torch 2.11.0", "torch 2.11.1", (CPU, CUDA)),)


def test_things_of_one_name_are_told_apart_by_their_digests() -> None:
    other = LockedVariant(REQUEST, {**USES, "compiler": Use("g++ 12", B)})
    new = replace(LOCK, variants={**LOCK.variants, CPU: other})
    assert changes(LOCK, new) == (Change("compiler", f"g++ 12 ({A[:12]})", f"g++ 12 ({B[:12]})", (CPU,)),)


def test_what_comes_and_goes_is_told() -> None:
    more = LockedVariant(REQUEST, {**USES, "libcublas": Use("libcublas.so.13", A)})
    new = replace(LOCK, kernelyard="9", variants={CPU: more, "torch-cpu": more})
    assert changes(LOCK, new) == (
        Change("kernelyard", __version__, "9"),
        Change("libcublas", None, "libcublas.so.13", (CPU,)),
        Change("variant", CUDA, None, (CUDA,)),
        Change("variant", None, "torch-cpu", ("torch-cpu",)),
    )


# What variants ask for


def test_a_variant_asks_for_what_its_manifest_says(sample: Callable[[str], Path]) -> None:
    found = requests(read_project(sample("tiny")), "x86_64-linux", ["*-cpu-*", "*-cu130-*"])
    assert found == {
        CPU: Request("cpu", None, Version("2.11"), Version("2.11")),
        CUDA: Request("cuda", Version("13.0"), Version("2.11"), Version("2.11")),
    }


def test_a_kernel_without_compiled_code_asks_for_nothing(sample: Callable[[str], Path]) -> None:
    assert requests(read_project(sample("lookup")), "x86_64-linux", []) == {}


# What programs see

#: Stands for CMake and for Ninja: writes down what it sees, and makes the files that both would make.
SPY = """\
#!{python} -I
import json, os, pathlib, socket, sys
here = pathlib.Path({folder!r})
objects = here / "objects"
objects.mkdir(exist_ok=True)
for name in ("build.ninja", "CMakeCache.txt"):
    (objects / name).write_text("x")
(objects / "compile_commands.json").write_text("[]")
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2).close()
    network = True
except OSError:
    network = False
umask = os.umask(0)
seen = {{"environment": dict(os.environ), "umask": umask, "network": network}}
(here / "seen.json").write_text(json.dumps(seen))
"""


@pytest.fixture
def see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[See]:
    """Return a function that tells what programs of a build see of the environment, the umask and the network."""
    folder = tmp_path / "work"
    folder.joinpath("cmake", "machine").mkdir(parents=True)
    folder.joinpath("cmake", "machine", "toolchain.cmake").write_text("")
    server = socket.create_server(("127.0.0.1", 0))
    spy = tmp_path / "spy"
    spy.write_text(SPY.format(python=sys.executable, folder=str(folder), port=server.getsockname()[1]))
    spy.chmod(0o755)
    for name in ("CPATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "HOME", "CXXFLAGS", "NVCC_APPEND_FLAGS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    before = os.umask(0o077)

    def run(locked_by: str | None) -> dict[str, Any]:
        log = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
        try:
            workshop = Workshop(jobs=1, lock=log, locked_by=locked_by)
            compile_variants(folder, Tools(spy, spy), [], contents={}, workshop=workshop)
        finally:
            os.close(log)
        seen: dict[str, Any] = json.loads(folder.joinpath("seen.json").read_bytes())
        return seen

    try:
        with server:
            yield run
    finally:
        os.umask(before)


def test_a_build_from_a_lock_sees_nothing_of_the_user(see: See) -> None:
    seen = see(A)
    environment = seen["environment"]
    assert environment.keys() - {"TMPDIR", "LC_CTYPE"} == {
        *("PATH", "TZ", "LC_ALL", "SOURCE_DATE_EPOCH", "NINJA_STATUS"),
        *("KERNELYARD_PYTHON", "KERNELYARD_LAUNCHER"),  # in front of compilers, which see them and take no notice
        *WITHOUT_TRANSLATION,
    }
    assert (environment["PATH"], environment["LC_ALL"], environment["TZ"]) == (os.defpath, "C", "UTC")
    assert seen["umask"] == 0o022


def test_a_build_from_a_lock_has_no_network(see: See) -> None:
    if not without_network():
        pytest.skip("this system does not let us take the network away")
    assert see(A)["network"] is False
    assert see(None)["network"] is True


def test_a_build_without_a_lock_keeps_what_finds_programs(see: See) -> None:
    seen = see(None)
    environment = seen["environment"]
    assert {"HOME", "LD_LIBRARY_PATH"} <= environment.keys()
    assert not {"CPATH", "LIBRARY_PATH", "CXXFLAGS", "NVCC_APPEND_FLAGS", "LANG"} & environment.keys()
    assert seen["umask"] == 0o077


# Where sources stand


def test_sources_are_of_a_commit_until_they_change(tmp_path: Path) -> None:
    assert source_state(tmp_path, made_here=["build"]) == SourceState(None, None)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example"]
    tmp_path.joinpath("a.cpp").write_text("int a;\n")
    for arguments in (["init", "-q"], ["add", "a.cpp"], ["commit", "-q", "-m", "a"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    tmp_path.joinpath("build").mkdir()
    tmp_path.joinpath("build", "x").write_text("")
    assert source_state(tmp_path, made_here=["build"]) == SourceState(head.strip(), dirty=False)
    tmp_path.joinpath("a.cpp").write_text("int b;\n")
    assert source_state(tmp_path, made_here=["build"]) == SourceState(None, dirty=True)


def test_a_folder_that_git_ignores_is_of_no_commit(tmp_path: Path) -> None:
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run([*command, *arguments], cwd=tmp_path, check=True)
    ignored = tmp_path / "ignored"
    ignored.mkdir()
    ignored.joinpath("build.toml").write_text("")
    tmp_path.joinpath(".git", "info", "exclude").write_text("ignored\n")
    assert source_state(ignored, made_here=["build"]) == SourceState(None, None)


def test_a_lock_can_be_read_by_everybody(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_lock(tmp_path, LOCK)
    finally:
        os.umask(before)
    assert stat.S_IMODE(tmp_path.joinpath("toolchain.lock").stat().st_mode) == 0o644
