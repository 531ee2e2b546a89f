from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.store import Store, hash_file, writing
from kernelyard.store.permissions import check_store, is_trusted


def fill(folder: Path) -> None:
    folder.joinpath("a").mkdir()
    folder.joinpath("a", "file").write_text("whole")


def unexpected(_: Path) -> None:
    raise AssertionError("filled twice")


def leftovers(store: Store) -> list[Path]:
    aside = store.root / "aside"
    return list(aside.iterdir()) if aside.is_dir() else []


def failure(of: Callable[[], object]) -> EnvironmentProblemError:
    with pytest.raises(EnvironmentProblemError) as caught:
        of()
    assert caught.value.exit_code == 3
    return caught.value


@pytest.fixture(params=["store", "mein Läger ☃/with a space"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path / request.param)


def test_an_entry_is_filled_once_and_then_at_hand(store: Store) -> None:
    assert store.get("parts", "x-1") is None
    path = store.provide("parts", "x-1", fill)
    assert path == store.path("parts", "x-1") == store.root / "parts" / "x-1"
    assert path.joinpath("a", "file").read_text() == "whole"
    assert store.provide("parts", "x-1", unexpected) == path
    assert store.get("parts", "x-1") == path
    assert leftovers(store) == []


def test_nothing_is_made_before_something_is_written(store: Store) -> None:
    store.get("parts", "x")
    store.path("parts", "x")
    assert not store.root.exists()


def test_entries_of_other_kinds_and_keys_are_others(store: Store) -> None:
    store.provide("parts", "x", fill)
    assert store.get("parts", "y") is None
    assert store.get("variants", "x") is None


def test_a_fill_that_fails_leaves_nothing_and_can_be_tried_again(store: Store) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        store.provide("parts", "x", fail)
    assert store.get("parts", "x") is None
    assert leftovers(store) == []
    assert store.provide("parts", "x", fill).joinpath("a", "file").read_text() == "whole"


def test_an_entry_can_be_filled_while_another_one_is(store: Store) -> None:
    def fill_both(folder: Path) -> None:
        fill(folder)
        store.provide("parts", "inner", fill)

    store.provide("parts", "outer", fill_both)
    assert store.get("parts", "inner") is not None


FILLER = """
import os, sys, time
from pathlib import Path
from kernelyard.store import Store

root, log = Path(sys.argv[1]), sys.argv[2]

def fill(folder):
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\\n")
    for number in range(20):
        folder.joinpath(str(number)).write_text("whole")
        time.sleep(float(sys.argv[3]) / 20)

print("ready", flush=True)
sys.stdin.readline()
path = Store(root).provide("parts", "x", fill)
print(sum(path.joinpath(str(number)).read_text() == "whole" for number in range(20)), flush=True)
"""


def start_filler(store: Store, log: Path, *, duration_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FILLER, store.root, log, str(duration_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def fillers(store: Store, log: Path, *, count: int, duration_s: float) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes and let them go at the same moment."""
    processes = [start_filler(store, log, duration_s=duration_s) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_eight_processes_at_once_fill_an_entry_once(tmp_path: Path) -> None:
    store, log = Store(tmp_path / "store"), tmp_path / "log"
    with fillers(store, log, count=8, duration_s=0.2) as processes:
        answers = [process.communicate(timeout=30)[0] for process in processes]
    assert answers == ["20\n"] * 8
    assert len(log.read_text().split()) == 1
    assert leftovers(store) == []


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_process_killed_while_it_fills_leaves_nothing_that_is_taken_for_whole(tmp_path: Path) -> None:
    store, log = Store(tmp_path / "store"), tmp_path / "log"
    with fillers(store, log, count=1, duration_s=60) as (process,):
        wait_for(lambda: any(folder.joinpath("0").exists() for folder in leftovers(store)))
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL
    assert store.get("parts", "x") is None
    (half,) = leftovers(store)
    path = store.provide("parts", "x", fill)  # the lock of the dead is no obstacle
    assert {entry.name for entry in path.iterdir()} == {"a"}
    # What was left aside goes with the first fill a day later.
    assert half.is_dir()
    long_ago = time.time() - 25 * 3600
    os.utime(half, (long_ago, long_ago))
    store.provide("parts", "y", fill)
    assert leftovers(store) == []


def test_a_process_waiting_for_one_that_is_killed_takes_over(tmp_path: Path) -> None:
    store, log = Store(tmp_path / "store"), tmp_path / "log"
    with (
        fillers(store, log, count=1, duration_s=60) as (first,),
        fillers(store, tmp_path / "log 2", count=1, duration_s=0) as (second,),
    ):
        wait_for(lambda: log.exists() and bool(log.read_text()))
        first.kill()
        assert second.communicate(timeout=20)[0] == "20\n"


def test_what_another_process_fills_at_this_moment_is_not_removed(store: Store) -> None:
    def look(folder: Path) -> None:
        store.provide("parts", "y", fill)
        assert folder.is_dir()
        fill(folder)

    assert store.provide("parts", "x", look).joinpath("a", "file").is_file()


def test_without_working_locks_an_entry_is_whole_all_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks on this file system")

    monkeypatch.setattr("kernelyard.store.locks._try", refuse)
    both_fill = threading.Barrier(2, timeout=10)

    def fill_together(folder: Path) -> None:
        fill(folder)
        both_fill.wait()

    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(store.provide("parts", "x", fill_together))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [store.path("parts", "x")] * 2
    assert {path.name for path in results[0].iterdir()} == {"a"}
    assert leftovers(store) == []


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("needs the permission to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_reported_and_leaves_no_entry(tmp_path: Path) -> None:
    def fill_much(folder: Path) -> None:
        folder.joinpath("small").write_text("x")
        folder.joinpath("large").write_bytes(bytes(1 << 20))

    with mounted(tmp_path / "disk", "size=256k") as disk:
        store = Store(disk / "store")
        error = failure(lambda: store.provide("parts", "x", fill_much))
        assert error.code == "KY301"
        assert "the disk is full" in str(error)
        assert str(error.place).startswith(str(disk))
        assert "KERNELYARD_CACHE" in error.hint
        assert store.get("parts", "x") is None
        assert leftovers(store) == []
        # The place that was taken is free again.
        assert store.provide("parts", "x", fill).is_dir()


def test_a_disk_full_from_the_start_is_reported(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        rest = disk / "rest"
        with pytest.raises(OSError, match="No space"):
            rest.write_bytes(bytes(1 << 20))
        assert failure(lambda: Store(disk / "store").provide("parts", "x", fill)).code == "KY301"


def test_a_read_only_store_gives_what_it_has_and_reports_what_it_has_not(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=256k") as disk:
        store = Store(disk / "store")
        path = store.provide("parts", "x", fill)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert store.provide("parts", "x", unexpected) == path
        error = failure(lambda: store.provide("parts", "y", fill))
        assert error.code == "KY302"
        assert str(error.place).startswith(str(store.root))
        assert "KERNELYARD_CACHE" in error.hint
        error = failure(lambda: Store(disk / "other").provide("parts", "y", fill))
        assert (error.code, str(error.place)) == ("KY302", str(disk / "other"))


@contextmanager
def as_somebody_else() -> Iterator[None]:
    """Give up root's permission to do everything, where the tests run as root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_folder_that_may_not_be_used_is_reported(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(mode)
    try:
        with as_somebody_else():
            error = failure(lambda: Store(root).provide("parts", "x", fill))
    finally:
        root.chmod(0o755)
    assert error.code == "KY302"
    assert "Permission denied" in str(error)
    assert str(error.place).startswith(str(root))


@pytest.mark.parametrize("below", ["", "store"])
def test_a_file_where_the_folder_should_be_is_reported(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    error = failure(lambda: Store(file / below).provide("parts", "x", fill))
    assert error.code == "KY302"
    assert str(error.place).startswith(str(file))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, where mkdir answers ENOENT")
def test_a_place_where_no_folder_can_be_made_is_reported() -> None:
    for root in (Path("/proc/nope"), Path("/proc/nope/below")):
        error = failure(lambda root=root: Store(root).provide("parts", "x", fill))  # type: ignore[misc]
        assert (error.code, str(error.place)) == ("KY302", "/proc/nope")
        assert "no folder can be made here" in error.what


def test_a_link_that_leads_nowhere_is_called_so(tmp_path: Path) -> None:
    link = tmp_path / "store"
    link.symlink_to(tmp_path / "nowhere")
    error = failure(lambda: Store(link).provide("parts", "x", fill))
    assert (error.code, str(error.place)) == ("KY302", str(link))
    assert "a link that leads nowhere is here" in error.what


def test_links_in_a_circle_are_reported(tmp_path: Path) -> None:
    loop = tmp_path / "store"
    loop.symlink_to(loop)
    for root in (loop, loop / "below"):
        error = failure(lambda root=root: Store(root).provide("variants", "x", fill))  # type: ignore[misc]
        assert error.code == "KY302"
        assert "Too many levels" in error.what
        check_store(root)
        assert not is_trusted(root)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "KY301"),
        (errno.EDQUOT, "KY301"),
        (errno.EACCES, "KY302"),
        (errno.EPERM, "KY302"),
        (errno.EROFS, "KY302"),
        (errno.ENOTDIR, "KY302"),
    ],
)
def test_what_a_fill_cannot_write_is_reported_with_its_place(store: Store, number: int, code: str) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(number, os.strerror(number), folder / "x")

    error = failure(lambda: store.provide("parts", "x", refuse))
    assert error.code == code
    assert str(error.place).endswith("/x")
    assert leftovers(store) == []


def test_other_errors_are_not_taken_for_a_failure_to_write(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "no such file", "x")
    original = EnvironmentProblemError("KY311", "no network")
    with pytest.raises(EnvironmentProblemError) as caught, writing(tmp_path):
        raise original
    assert caught.value is original


def test_the_hint_names_what_the_caller_calls_the_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentProblemError, match="or publish to a larger disk"),
        writing(tmp_path, elsewhere="publish to"),
    ):
        raise OSError(errno.ENOSPC, "no space")


def test_the_users_store_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    found = []
    for value in (str(tmp_path / "a b"), "relative", "~/mine", ""):
        monkeypatch.setenv("KERNELYARD_CACHE", value)
        found.append(Store.default().root)
    names = ("a b", "relative", "home/mine", "xdg/kernelyard")
    assert found == [tmp_path / name for name in names]


def test_the_hash_of_a_file_longer_than_a_chunk(tmp_path: Path) -> None:
    file = tmp_path / "zeros"
    file.write_bytes(bytes((1 << 20) + 1))
    assert hash_file(file) == "2cb74edba754a81d121c9db6833704a8e7d417e5b13d1a19f4a52f007d644264"


@pytest.mark.parametrize("target", ["elsewhere", "nowhere", None])
def test_what_is_no_folder_of_its_own_is_no_entry(store: Store, tmp_path: Path, target: str | None) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = store.path("parts", "x")
    path.parent.mkdir(parents=True)
    if target is None:
        path.write_text("")
    else:
        path.symlink_to(tmp_path / target)
    assert store.get("parts", "x") is None
    error = failure(lambda: store.provide("parts", "x", unexpected))
    assert error.code == "KY302"
    assert str(error.place) == str(path)
    assert error.hint == "remove it"


@pytest.mark.parametrize("kind", ["variants", "indexes"])
def test_what_is_no_entry_in_the_place_of_a_kernel_is_a_matter_of_verification(store: Store, kind: str) -> None:
    path = store.path(kind, "x")
    path.parent.mkdir(parents=True)
    path.write_text("")
    with pytest.raises(VerificationError, match="not a folder") as caught:
        store.provide(kind, "x", fill)
    assert (caught.value.code, caught.value.exit_code, str(caught.value.place)) == ("KY602", 4, str(path))


def test_a_folder_in_the_place_of_a_file_is_reported(store: Store) -> None:
    def fill_badly(folder: Path) -> None:
        (folder / "a").mkdir()
        (folder / "a").write_text("x")

    error = failure(lambda: store.provide("parts", "x", fill_badly))
    assert error.code == "KY302"
    assert str(error.place).endswith("/a")


def test_a_cache_in_a_home_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELYARD_CACHE", "~no-such-user-at-all/x")
    with pytest.raises(InputError, match="leads nowhere") as caught:
        Store.default()
    assert caught.value.code == "KY302"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KERNELYARD_CACHE", "KERNELYARD_LAYERS", "KERNELYARD_STATE", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)


@pytest.mark.usefixtures("homeless")
def test_without_any_home_nothing_is_made_in_the_current_folder() -> None:
    from kernelyard.hub.memory import Memory

    for default in (Store.default, Memory.default):
        error = failure(default)
        assert error.code == "KY302"
        assert "KERNELYARD_CACHE" in error.hint


@pytest.mark.usefixtures("homeless")
def test_without_any_home_layers_are_enough(layered: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelyard.hub.memory import Memory

    monkeypatch.setenv("KERNELYARD_LAYERS", os.pathsep.join(map(str, layered.layers)))
    store = Store.default()
    assert store.get("variants", "low") == layered.layers[1] / "variants" / "low"
    assert failure(lambda: store.provide("variants", "new", fill)).code == "KY302"
    assert not Memory.default().root.exists()


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = Path(os.devnull) if kind == "device" else tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(OSError, match=r"Not a regular file|Is a directory"):
        hash_file(path)


@pytest.fixture
def layered(tmp_path: Path) -> Store:
    """A store over two layers, of which the lower one has more."""
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    Store(lower).provide("variants", "both", fill)
    Store(lower).provide("variants", "low", fill)
    Store(upper).provide("variants", "both", fill)
    Store(lower).provide("parts", "low", fill)
    return Store(tmp_path / "store", (upper, lower, tmp_path / "not there"))


def test_layers_are_looked_into_in_order_and_nothing_is_written(layered: Store) -> None:
    upper, lower, _ = layered.layers
    assert layered.get("variants", "both") == upper / "variants" / "both"
    assert layered.provide("variants", "low", unexpected) == lower / "variants" / "low"
    assert layered.get("variants", "nowhere") is None
    assert not layered.root.exists()


def test_the_store_itself_comes_before_its_layers(layered: Store) -> None:
    Store(layered.root).provide("variants", "low", fill)
    assert layered.get("variants", "low") == layered.root / "variants" / "low"


def test_toolchain_parts_are_not_taken_from_layers(layered: Store) -> None:
    assert layered.get("parts", "low") is None
    assert layered.provide("parts", "low", fill) == layered.root / "parts" / "low"


def test_the_users_layers_are_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    assert Store.default().layers == ()
    monkeypatch.setenv("KERNELYARD_LAYERS", os.pathsep.join([str(tmp_path / "a b"), "", "relative"]))
    assert Store.default().layers == (tmp_path / "a b", tmp_path / "relative")


@pytest.mark.parametrize("where", ["store", "above"])
@pytest.mark.parametrize("mode", [0o777, 0o772])
def test_a_store_that_others_can_write_is_refused(tmp_path: Path, where: str, mode: int) -> None:
    store = Store(tmp_path / "above" / "store")
    store.provide("parts", "x", fill)
    folder = store.root if where == "store" else store.root.parent
    folder.chmod(mode)
    for use in (lambda: store.get("parts", "x"), lambda: store.provide("parts", "y", fill)):
        error = failure(use)
        assert error.code == "KY303"
        assert str(error.place) == str(folder)
        assert f"chmod {'-R ' if where == 'store' else ''}go-w {folder}; " in error.hint
        assert f"KERNELYARD_TRUST_STORE={store.root}" in error.hint
    assert store.get("parts", "not there") is None
    folder.chmod(0o755)
    assert store.get("parts", "x") is not None


@pytest.mark.parametrize("inner", ["variants", "aside", "locks", "state"])
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_in_a_store_that_others_can_write_is_refused(tmp_path: Path, inner: str, mode: int) -> None:
    store = Store(tmp_path / "store")
    store.provide("variants", "x", fill)
    (store.root / inner).mkdir(exist_ok=True)
    (store.root / inner).chmod(mode)
    uses: list[Callable[[], object]] = [lambda: store.provide("variants", "y", fill)]
    if inner == "variants":
        uses.append(lambda: store.get("variants", "x"))
    for use in uses:
        error = failure(use)
        assert (error.code, str(error.place)) == ("KY303", str(store.root / inner))
        assert f"chmod -R go-w {store.root}; " in error.hint
    (store.root / inner).chmod(0o755)
    assert store.get("variants", "x") is not None
    assert store.provide("variants", "y", fill).is_dir()


def test_one_hint_mends_a_store_that_was_opened_to_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.provide("variants", "x", fill)
    subprocess.run(["chmod", "-R", "a+w", store.root], check=True)
    hint = failure(lambda: store.get("variants", "x")).hint
    subprocess.run(hint.partition(";")[0].split(" "), check=True)
    assert store.get("variants", "x") is not None
    assert [path for path in (store.root, *store.root.rglob("*")) if path.stat().st_mode & 0o022] == []


@pytest.mark.parametrize("kind", ["variants", "indexes"])
def test_a_folder_in_a_layer_that_others_can_write_is_refused(tmp_path: Path, kind: str) -> None:
    Store(tmp_path / "layer").provide(kind, "x", fill)
    (tmp_path / "layer" / kind).chmod(0o777)
    layered = Store(tmp_path / "store", (tmp_path / "layer",))
    error = failure(lambda: layered.get(kind, "x"))
    assert (error.code, str(error.place)) == ("KY303", str(tmp_path / "layer" / kind))


@pytest.mark.parametrize("open_one", ["", "open"])
def test_a_folder_of_a_store_may_be_a_link_to_where_nobody_else_can_write(tmp_path: Path, open_one: str) -> None:
    store = Store(tmp_path / "store")
    store.provide("variants", "x", fill)
    (tmp_path / "open").mkdir()
    (store.root / "variants").rename(tmp_path / "open" / "moved")
    (store.root / "variants").symlink_to(tmp_path / "open" / "moved")
    assert store.get("variants", "x") is not None
    opened = tmp_path / "open" / "moved" if not open_one else tmp_path / open_one
    opened.chmod(0o777)
    assert str(failure(lambda: store.get("variants", "x")).place) == str(opened)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_in_a_store_that_is_somebody_else_s_is_refused_and_chmod_is_no_cure(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.provide("variants", "x", fill)
    os.chown(store.root / "variants", 12345, 12345)
    error = failure(lambda: store.get("variants", "x"))
    assert (error.code, str(error.place)) == ("KY303", str(store.root / "variants"))
    assert "chmod" not in error.hint
    assert f"chown -R 0 {store.root / 'variants'}" in error.hint


def test_a_layer_that_others_can_write_is_refused(layered: Store) -> None:
    layered.layers[1].chmod(0o777)
    error = failure(lambda: layered.get("variants", "low"))
    assert (error.code, str(error.place)) == ("KY303", str(layered.layers[1]))


@pytest.mark.parametrize("named", ["itself", "above", "link"])
def test_a_shared_store_is_used_when_it_is_said_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    store = Store(tmp_path / "shared" / "store")
    store.provide("parts", "x", fill)
    store.root.chmod(0o777)
    (tmp_path / "link").symlink_to(store.root)
    trusted = {"itself": store.root, "above": store.root.parent, "link": tmp_path / "link"}[named]
    monkeypatch.setenv("KERNELYARD_TRUST_STORE", os.pathsep.join([str(tmp_path / "other"), str(trusted)]))
    assert store.get("parts", "x") is not None
    assert store.provide("parts", "y", fill).is_dir()


def test_trust_in_one_store_is_none_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "shared store")
    store.provide("parts", "x", fill)
    store.root.chmod(0o777)
    monkeypatch.setenv("KERNELYARD_TRUST_STORE", str(tmp_path / "shared"))
    assert failure(lambda: store.get("parts", "x")).code == "KY303"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("users", [("alice",), ("alice", "bob")])
def test_a_group_that_is_another_user_s_first_one_is_not_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: tuple[str, ...]
) -> None:
    import grp
    import pwd

    from kernelyard.store import permissions

    # Who is called what is the machine's; no test can add users to it.
    listed = [pwd.struct_passwd((name, "x", 4001 + n, 4001, "", "/", "")) for n, name in enumerate(users)]
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: listed[uid - 4001])
    monkeypatch.setattr(pwd, "getpwall", lambda: listed)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("alice", "x", gid, [])))
    monkeypatch.setattr(permissions, "_users_with", permissions._users_with.__wrapped__)
    (tmp_path / "store").mkdir()
    os.chown(tmp_path / "store", 4001, 4001)
    (tmp_path / "store").chmod(0o775)
    found = permissions.others_may_write((tmp_path / "store").stat(), frozenset({4001}))
    assert found == (None if users == ("alice",) else "can be written by a group (4001)")


def test_a_store_below_a_sticky_folder_is_as_good_as_any(tmp_path: Path) -> None:
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    store = Store(tmp_path / "sticky" / "store")
    store.provide("parts", "x", fill)
    store.root.chmod(0o1777)  # of the store itself others would be able to add to
    assert failure(lambda: store.get("parts", "x")).code == "KY303"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_store_of_somebody_else_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.provide("parts", "x", fill)
    os.chown(store.root, 12345, 12345)
    error = failure(lambda: store.get("parts", "x"))
    assert error.code == "KY303"
    assert "belongs to another user (12345)" in str(error)
    assert "KERNELYARD_CACHE" in error.hint


def test_nothing_is_made_for_others_to_write_whatever_the_umask(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    before = os.umask(0)
    try:
        store.provide("parts", "x", fill)
        store.provide("variants", "x", fill)
    finally:
        os.umask(before)
    made = [store.root / kind for kind in ("parts", "variants")]
    assert [path for root in made for path in (root, *root.rglob("*")) if path.stat().st_mode & 0o022] == []
    assert store.get("parts", "x") is not None


def test_entries_tell_when_they_were_last_used(store: Store) -> None:
    store.provide("parts", "x", fill)
    store.provide("variants", "y", fill)
    assert [(one.kind, one.key) for one in store.entries()] == [("parts", "x"), ("variants", "y")]
    path = store.path("parts", "x")
    long_ago = time.time() - 1e6
    os.utime(path, (long_ago, long_ago))
    assert next(store.entries()).used == pytest.approx(long_ago)
    store.get("parts", "x")
    assert next(store.entries()).used == pytest.approx(time.time(), abs=60)


def test_an_entry_that_is_held_is_not_removed(store: Store) -> None:
    from kernelyard.store.locks import hold_folder

    path = store.provide("parts", "x", fill)
    (entry,) = store.entries()
    descriptor = hold_folder(path)
    assert descriptor is not None
    assert not store.remove(entry)
    assert path.joinpath("a", "file").is_file()
    os.close(descriptor)
    assert store.remove(entry)
    assert not path.exists()
    assert leftovers(store) == []
    assert not store.remove(entry)
    with pytest.raises(FileNotFoundError):
        hold_folder(path)


def test_who_holds_a_lock_for_too_long_is_not_waited_for(tmp_path: Path) -> None:
    from kernelyard.store.locks import alone

    told: list[bool] = []
    with (
        alone(tmp_path / "lock", until=lambda: False) as first,
        alone(
            tmp_path / "lock",
            until=lambda: False,
            patience_s=0.3,
            waiting=lambda: told.append(True),
            waiting_after_s=0.1,
        ) as second,
    ):
        assert (first, second, told) == (True, False, [True])
    with alone(tmp_path / "lock", until=lambda: False) as again:
        assert again


def test_who_waits_goes_on_as_soon_as_the_work_is_done(tmp_path: Path) -> None:
    from kernelyard.store.locks import alone

    with alone(tmp_path / "lock", until=lambda: False), alone(tmp_path / "lock", until=lambda: True) as held:
        assert not held


def test_a_lock_ends_with_its_process_though_a_child_of_it_lives_on(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom kernelyard.store.locks import alone\n"
        "with alone(Path(sys.argv[1]), until=lambda: False) as held:\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n        os._exit(0)\n"
        "    print(held, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "lock"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        from kernelyard.store.locks import alone

        try:
            with alone(tmp_path / "lock", until=lambda: False, patience_s=0) as held:
                assert not held
            process.kill()
            process.wait()
            with alone(tmp_path / "lock", until=lambda: False, patience_s=5) as held:
                assert held
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_an_entry_that_appears_while_it_is_looked_for_is_taken(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.provide("things", "key", fill)
    # It was not there a moment ago, when this process looked.
    monkeypatch.setattr(Store, "get", lambda *_: None)
    assert store.provide("things", "key", unexpected) == path
