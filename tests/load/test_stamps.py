"""Files are hashed once per machine; a stamp tells later processes, and whatever is odd means hashing again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, VerificationError
from kernelyard.hub.folder import FolderHub, hash_tree
from kernelyard.load import get_local_kernel
from kernelyard.load.stored import stamps
from kernelyard.load.stored.stamps import hashed, stamp_folder
from kernelyard.load.stored.verified import verify_folder

MakeVariant = Callable[..., Path]
Publish = Callable[..., str]

#: More than what is hashed without a stamp.
LARGE = "x" * 300_000


class Counter:
    """How often a folder was read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(stamps, "hash_tree", self._hash)

    def _hash(self, root: Path) -> dict[str, str]:
        self.times += 1
        return hash_tree(root)


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    monkeypatch.setenv("KERNELYARD_STATE", str(tmp_path / "state"))
    return Counter(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "kernel"
    (root / "sub").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "sub" / "large.bin").write_text(LARGE)
    settle(root)
    return root


def settle(root: Path) -> None:
    """Wait until the next change of a file would have another time."""
    youngest = max(path.stat().st_ctime_ns for path in root.rglob("*"))
    while time.time_ns() - youngest <= stamps._TICK_NS:
        time.sleep(0.01)


def stamp(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "state").rglob("*.json")
    return found


def test_a_folder_is_read_once_and_its_digests_are_told_from_then_on(folder: Path, counter: Counter) -> None:
    first, second = hashed(folder), hashed(folder)
    assert counter.times == 1
    assert first == second
    assert first.digests == hash_tree(folder)
    assert first.seen is not None


def test_stamps_are_for_this_user_and_this_machine_alone(folder: Path, counter: Counter, tmp_path: Path) -> None:
    hashed(folder)
    path = stamp(tmp_path)
    assert counter.times == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent == stamp_folder()
    assert sorted(json.loads(path.read_bytes())["files"]) == ["__init__.py", "sub/large.bin"]


def replace_with_equal_content(folder: Path) -> None:
    new = folder / "new"
    new.write_text(LARGE)
    new.replace(folder / "sub" / "large.bin")


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "sub" / "large.bin").write_text("y" * len(LARGE)),
    "time": lambda folder: os.utime(folder / "__init__.py", (1, 1)),
    "mode": lambda folder: (folder / "__init__.py").chmod(0o600),
    "another file of equal content": replace_with_equal_content,
    "a file more": lambda folder: (folder / "more.txt").write_text("x"),
    "a file less": lambda folder: (folder / "__init__.py").unlink(),
    "a link": lambda folder: (folder / "link").symlink_to("__init__.py"),
    "a linked folder": lambda folder: (folder / "link").symlink_to("sub"),
    "a second name": lambda folder: os.link(folder / "__init__.py", folder.parent / "second"),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "bytecode": lambda folder: (folder / "x.pyc").write_bytes(b""),
    "writable by others": lambda folder: (folder / "__init__.py").chmod(0o666),
    "a folder writable by others": lambda folder: (folder / "sub").chmod(0o777),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_files_are_read_again(folder: Path, counter: Counter, change: str) -> None:
    hashed(folder)
    CHANGES[change](folder)
    found = hashed(folder)
    assert counter.times == 2
    assert found.digests == hash_tree(folder)


def test_a_change_that_puts_the_time_back_is_noticed(folder: Path, counter: Counter) -> None:
    file = folder / "sub" / "large.bin"
    before = file.stat()
    hashed(folder)
    file.write_text("y" * len(LARGE))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert hashed(folder).digests == hash_tree(folder)
    assert counter.times == 2


def test_a_file_that_has_just_been_written_gets_no_stamp(folder: Path, counter: Counter) -> None:
    """Another change in the same tick of the clock would leave its time as it is."""
    (folder / "__init__.py").write_text("x = 1\n")
    assert hashed(folder).seen is None
    settle(folder)
    assert hashed(folder).seen is not None
    assert hashed(folder).seen is not None
    assert counter.times == 2


@pytest.mark.parametrize("age_s", [60, -3600, 7200])
def test_files_of_a_server_have_to_have_been_seen_as_they_are_for_a_while_whatever_its_clock_says(
    folder: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch, age_s: float
) -> None:
    monkeypatch.setattr(stamps, "_kind", lambda _: "nfs4")
    now = time.time_ns()
    monkeypatch.setattr("kernelyard.load.stored.stamps.time.time_ns", lambda: now + int(age_s * 1e9))
    clock = time.clock_gettime_ns

    def after(later_s: float) -> object:
        monkeypatch.setattr(f"{stamps.__name__}.time.clock_gettime_ns", lambda which: clock(which) + int(later_s * 1e9))
        return hashed(folder).seen

    assert [after(0.0), after(1.0)] == [None, None]
    (folder / "__init__.py").write_text("x = 1\n")
    assert [after(2.2), after(3.3)] == [None, None]
    assert counter.times == 4
    assert None not in [after(5.0), after(5.0)]
    assert counter.times == 5


def test_files_of_a_server_that_are_days_old_get_a_stamp_at_first_sight(
    folder: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "_kind", lambda _: "nfs")
    now = time.time_ns()
    monkeypatch.setattr("kernelyard.load.stored.stamps.time.time_ns", lambda: now + 90_000 * 10**9)
    assert hashed(folder).seen is not None
    assert hashed(folder).seen is not None
    assert counter.times == 1


@pytest.mark.parametrize("kind", ["fuse.sshfs", "vfat", "cifs", ""])
def test_where_the_time_of_the_last_change_can_be_set_there_are_no_stamps(
    folder: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(stamps, "_kind", lambda _: kind)
    now = time.time_ns()
    monkeypatch.setattr("kernelyard.load.stored.stamps.time.time_ns", lambda: now + 90_000 * 10**9)
    assert [hashed(folder).seen for _ in range(2)] == [None, None]
    assert counter.times == 2


def test_the_file_system_of_a_folder_is_told_by_the_table_of_mounts() -> None:
    assert stamps.is_local(Path("/dev/shm"))
    assert not stamps.is_local(Path("/proc/self"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def lie(path: Path) -> None:
    content = json.loads(path.read_bytes())
    content["files"]["__init__.py"][4] = "no digest"
    path.write_text(json.dumps(content))


def of_another_folder(path: Path) -> None:
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, "root": content["root"] + "x"}))


def readable(path: Path) -> None:
    path.chmod(0o640)


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.write_text("[]")


def of_somebody_else(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("harm", [truncate, lie, of_another_folder, readable, linked, of_somebody_else])
def test_a_bad_stamp_means_hashing_again(
    folder: Path, counter: Counter, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    first = hashed(folder)
    harm(stamp(tmp_path))
    assert hashed(folder) == first
    assert counter.times == 2
    assert hashed(folder) == first
    assert counter.times == 2


@pytest.mark.parametrize("harm", ["mode", "owner", "file", "above"])
def test_a_folder_of_stamps_that_is_not_ours_alone_is_not_used(
    folder: Path, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    hashed(folder)
    path = stamp(tmp_path).parent
    if harm == "mode":
        path.chmod(0o770)
    elif harm == "above":
        path.parent.chmod(0o777)
    elif harm == "file":
        path.rename(path.with_name("moved"))
        path.write_text("")
    elif os.geteuid():
        pytest.skip("only root can give a folder away")
    else:
        os.chown(path, 12345, 12345)
    hashed(folder)
    assert counter.times == 2
    assert stamp_folder() == tmp_path / "tmp" / f"kernelyard-{os.geteuid()}" / path.name


def test_without_any_place_for_stamps_files_are_read_each_time(
    folder: Path, counter: Counter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("KERNELYARD_STATE", "TMPDIR", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    assert stamp_folder() is None
    assert hashed(folder) == hashed(folder)
    assert counter.times == 2


def test_small_kernels_get_no_stamp(tmp_path: Path, counter: Counter, make_variant: MakeVariant) -> None:
    get_local_kernel(make_variant())
    assert counter.times == 1
    assert list((tmp_path / "state" / "stamps").rglob("*.json")) == []


PROGRAM = """
import os, sys
from pathlib import Path
from kernelyard.load.stored import stamps
from kernelyard.hub.folder import hash_tree

def counted(root):
    with open(sys.argv[2], "a") as log:
        log.write("read\\n")
    return hash_tree(root)

stamps.hash_tree = counted
print("ready", flush=True)
sys.stdin.readline()
print(stamps.hashed(Path(sys.argv[1])).digests["large.bin"], flush=True)
"""


def test_of_eight_processes_at_once_one_reads_the_files(tmp_path: Path) -> None:
    root, log = tmp_path / "kernel", tmp_path / "log"
    root.mkdir()
    (root / "large.bin").write_bytes(bytes(64 << 20))
    settle(root)
    command = [sys.executable, "-c", PROGRAM, str(root), str(log)]
    environment = os.environ | {"KERNELYARD_STATE": str(tmp_path / "state")}
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(8)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        answers = [process.communicate("\n", timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert answers == ["3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351\n"] * 8
    assert log.read_text().splitlines() == ["read"]


def test_a_local_kernel_that_was_changed_is_noticed_in_spite_of_its_stamp(
    make_variant: MakeVariant, add_digest: Callable[..., None], counter: Counter
) -> None:
    variant = make_variant(files={"data.txt": LARGE})
    add_digest(variant)
    settle(variant)
    hub = FolderHub.find(variant)
    assert hub is not None
    assert verify_folder(hub.variants[0]).verification == "digest"
    assert verify_folder(hub.variants[0]).verification == "digest"
    assert counter.times == 1
    (variant / "data.txt").write_text("y" * len(LARGE))
    with pytest.raises(VerificationError, match="is not the file that the digest") as caught:
        verify_folder(hub.variants[0])
    assert caught.value.place is not None
    assert caught.value.place.path == str(variant / "data.txt")


def load_from_store(make_variant: MakeVariant, publish: Publish, tmp_path: Path) -> Path:
    """Publish a kernel and load it once, so that it has a stamp; return its folder in the store."""
    publish(make_variant(files={"data.txt": LARGE, "__init__.py": "raise RuntimeError('loaded')\n"}).parent)
    load(tmp_path)
    (entry,) = (tmp_path / "store" / "variants").iterdir()
    settle(entry)
    load(tmp_path)
    return entry


def load(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="loaded"):
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")


def test_a_kernel_in_the_store_is_read_once(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, counter: Counter
) -> None:
    load_from_store(make_variant, publish, tmp_path)
    times = counter.times
    load(tmp_path)
    assert counter.times == times


def add_link(entry: Path) -> Path:
    target = entry.parent.parent / "elsewhere"
    target.mkdir()
    (entry / "sub").symlink_to(target)
    return entry / "sub"


def swap_for_link(entry: Path) -> Path:
    (entry / "data.txt").rename(entry.parent.parent / "moved")
    (entry / "data.txt").symlink_to(entry.parent.parent / "moved")
    return entry / "data.txt"


def swap_for_hard_link(entry: Path) -> Path:
    other = entry.parent.parent / "other"
    other.write_text("y" * len(LARGE))
    (entry / "data.txt").unlink()
    (entry / "data.txt").hardlink_to(other)
    return entry / "data.txt"


def change(entry: Path) -> Path:
    with (entry / "data.txt").open("r+") as file:
        file.write("y")
    return entry / "data.txt"


def remove(entry: Path) -> Path:
    (entry / "metadata.json").unlink()
    return entry / "metadata.json"


def plant(entry: Path) -> Path:
    (entry / "sitecustomize.py").write_text("")
    return entry / "sitecustomize.py"


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("harm", [add_link, swap_for_link, swap_for_hard_link, change, remove, plant])
def test_a_store_that_was_tampered_with_is_refused_in_spite_of_its_stamp(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, harm: Callable[[Path], Path]
) -> None:
    entry = load_from_store(make_variant, publish, tmp_path)
    file = harm(entry)
    with pytest.raises(VerificationError) as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert (caught.value.code, caught.value.exit_code) == ("KY602", 4)
    assert caught.value.place is not None
    assert caught.value.place.path == str(file)


def test_a_second_name_of_a_file_means_reading_it_in_every_process(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, counter: Counter
) -> None:
    """Backups and tools that save space make them. Through it the file can be changed, which its time would tell."""
    entry = load_from_store(make_variant, publish, tmp_path)
    os.link(entry / "data.txt", tmp_path / "second name")
    for _ in range(2):
        times = counter.times
        load(tmp_path)
        assert counter.times == times + 1


def test_a_file_of_the_store_that_others_may_write_is_refused(
    make_variant: MakeVariant, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = load_from_store(make_variant, publish, tmp_path)
    (entry / "data.txt").chmod(0o666)
    with pytest.raises(EnvironmentProblemError, match="can be written by everybody") as caught:
        get_kernel("org/gray", version=1, hub=tmp_path / "hub")
    assert caught.value.code == "KY303"
    assert f"chmod -R go-w {entry}" in caught.value.hint
    monkeypatch.setenv("KERNELYARD_TRUST_STORE", str(tmp_path / "store"))
    load(tmp_path)


def test_a_library_is_opened_without_hashing_it_again_unless_something_has_changed(
    make_variant: MakeVariant, tmp_path: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = make_variant(files={"lib.so": "\x7fELF" + LARGE, "other.so": "\x7fELF"})
    settle(variant)
    hub = FolderHub.find(variant)
    assert hub is not None
    tree = verify_folder(hub.variants[0])
    assert counter.times == 1
    with monkeypatch.context() as patch:
        patch.setattr("kernelyard.load.stored.verified.hash_file", lambda _: pytest.fail("hashed again"))
        assert tree.check("lib.so") == variant / "lib.so"
        tree.check_libraries()
    (variant / "other.so").chmod(0o600)  # hashed again, and found to be the same
    tree.check("lib.so")
    tree.check_libraries()
    (variant / "other.so").write_text("\x7fELX")
    with pytest.raises(VerificationError, match="has changed since") as caught:
        tree.check("other.so")
    assert caught.value.code == "KY602"
    variant.parent.rename(tmp_path / "elsewhere")  # in a folder that was exchanged the inodes are others
    shutil.copytree(tmp_path / "elsewhere", variant.parent)
    (variant / "lib.so").write_text("\x7fELF" + LARGE.replace("x", "y"))
    with pytest.raises(VerificationError, match="has changed since"):
        tree.check("lib.so")
