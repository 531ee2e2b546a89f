"""Digests of folders, remembered by a stamp, so that one process per machine reads a kernel and the others do not.

A stamp says which digests the files of a folder had, and by what it would be noticed that one has changed since: size,
times and inode of each (:mod:`kernelyard.load.stored.survey`), and that there is nothing else in the folder. It is kept
where only this user can write, for this machine since it was started. Whatever is wrong with a stamp, or does not fit,
means that the files are hashed again, and nothing else. What that is worth against whom is said in ``docs/store.md``.

The times of a file tell of a change only if it came in another tick of the file system's clock than the one before. So
a stamp is taken only of files that had been as they are for longer than a tick when hashing began; git's index has the
same rule ("racy git"). Where the clock is a server's, that is not read off the times: files have to have been seen as
they are by this machine, for so long by its own clock.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import KernelyardError
from kernelyard.hub.folder import hash_tree
from kernelyard.hub.memory import Memory
from kernelyard.hub.own_file import read_own, write_own
from kernelyard.load.stored.survey import Signature, survey
from kernelyard.records import record
from kernelyard.store import make_folder, open_regular
from kernelyard.store.permissions import unsafe_above

__all__ = ["Hashed", "hashed", "hashed_as_seen", "is_local", "is_settled", "stamp_folder"]

_FORMAT = 1
_DIGEST = r"(?a)[0-9a-f]{64}"
#: A stamp of 100,000 files.
_MOST_BYTES = 32 << 20
#: Fewer bytes are hashed as fast as their stamp is read.
_WORTH_A_STAMP = 256 << 10
#: To hash more bytes takes longer than a tick: it is worth waiting for its end.
_WORTH_WAITING = 64 << 20
#: Longer than a tick of the clocks of today's file systems, which is that of the kernel: 1 to 10 ms.
_TICK_NS = 50_000_000
#: Where times are whole seconds: FAT counts in twos.
_COARSE_NS = 2_100_000_000
#: No server's clock is off by as much.
_OLD_NS = 24 * 3600 * 1_000_000_000
#: File systems whose times are this machine's.
_LOCAL = frozenset(
    {
        *("apfs", "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "overlay"),
        *("ramfs", "rootfs", "squashfs", "tmpfs", "xfs", "zfs"),
    }
)
#: File systems whose server keeps the time of the last change, and how long a file has to have been seen unchanged:
#: where one server's clock gives all times, longer than its tick; where each machine's does, as those may differ.
#: All others get no stamps. Many (sshfs, FAT, what is mounted of a cloud) show the time of the content in the place of
#: that of the change, and any program can set that one back.
_SERVED_NS = dict.fromkeys(("nfs", "nfs4", "virtiofs"), _COARSE_NS) | dict.fromkeys(
    ("beegfs", "ceph", "gfs2", "gpfs", "lustre", "ocfs2"), 600_000_000_000
)
#: File systems as `statfs` tells them (linux/magic.h).
_NUMBERS = {
    0x9123683E: "btrfs",
    0xEF53: "ext4",
    0xF2F52010: "f2fs",
    0x6969: "nfs",
    0x794C7630: "overlay",
    0x73717368: "squashfs",
    0x01021994: "tmpfs",
    0x58465342: "xfs",
    0x2FC12FC1: "zfs",
}


@record(frozen=True, slots=True)
class Hashed:
    """What is in a folder.

    Attributes:
        digests: Relative POSIX path -> sha256, as :func:`kernelyard.hub.folder.hash_tree` has it.
        seen: By what a change since would be noticed; None where that takes hashing again.
    """

    digests: Mapping[str, str]
    seen: Mapping[str, Signature] | None


def hashed(root: Path) -> Hashed:
    """Return the digests of a folder's files, reading them only if no stamp tells; raises what :func:`hash_tree` does.

    Of processes that begin at once, one reads and the others wait for its stamp.
    """
    return hashed_as_seen(root, survey(root))


def hashed_as_seen(root: Path, seen: Mapping[str, Signature] | None) -> Hashed:
    """Return what :func:`hashed` does, of a folder that has just been looked at.

    Args:
        root: The folder.
        seen: What :func:`survey` has said of it.
    """
    if seen is None:
        return Hashed(hash_tree(root), None)
    size = sum(one[0] for one in seen.values())
    folder = stamp_folder() if size >= _WORTH_A_STAMP else None
    if folder is None:
        return _read_files(root, seen, settled=_is_settled(root, seen, size, None))
    path = folder / f"{sha256(os.fsencode(root)).hexdigest()[:32]}.json"
    digests = _stamped(path, root, seen)
    if digests is not None:
        return Hashed(digests, seen)
    if not _is_settled(root, seen, size, path.with_suffix(".seen")):
        return _read_files(root, seen, settled=False)
    from kernelyard.store.locks import alone

    with alone(path.with_suffix(".lock"), until=lambda: _stamped(path, root, seen) is not None):
        digests = _stamped(path, root, seen)
        if digests is not None:
            return Hashed(digests, seen)
        found = _read_files(root, seen, settled=True)
        if found.seen is not None:
            _stamp(path, root, found)
        return found


def stamp_folder() -> Path | None:
    """Return where this user keeps stamps on this machine; None where there is no place for them.

    That is with what is remembered of hubs; where that cannot be written, in ``XDG_RUNTIME_DIR`` or the folder for
    temporary files.
    """
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows has no inodes to go by
        return None
    mine = f"{_machine()}-{os.geteuid()}"
    for above in _places():
        folder = above / mine
        if _is_private(folder):
            return folder
    return None


def _places() -> list[Path]:
    places = []
    with suppress(KernelyardError, RuntimeError):
        places.append(Memory.default().root.parent / "stamps")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places.append(Path(runtime) / "kernelyard")
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - what stands there is looked at
    places.append(Path(temporary) / f"kernelyard-{os.geteuid()}")
    return places


def _is_private(folder: Path) -> bool:
    """Make a folder for this user alone, and return whether it is one."""
    try:
        found = folder.lstat()
    except OSError:
        try:
            make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
        except OSError:
            return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.geteuid()
        and not found.st_mode & 0o077
        and os.access(folder, os.W_OK)
        and unsafe_above(folder) is None
    )


def _machine() -> str:
    """Return what tells this machine, since it was started, from others that share a home."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except (OSError, ValueError):
        import platform

        text = platform.node()
    return sha256(text.strip().encode()).hexdigest()[:16]


def _read_files(root: Path, seen: Mapping[str, Signature], *, settled: bool) -> Hashed:
    digests = hash_tree(root)
    if settled and digests.keys() == seen.keys() and survey(root) == seen:
        return Hashed(digests, seen)
    return Hashed(digests, None)


def is_settled(root: Path, seen: Mapping[str, Signature], size: int) -> bool:
    """Return whether the next change of any file would have another time; wait for that where it comes soon.

    Args:
        root: The folder. Where times are not of this machine's clock, the answer is no.
        seen: Of its files.
        size: Of all of them, in bytes; there is no wait for what is read again in less time.
    """
    return is_local(root) and _is_settled_here(seen, size)


def _is_settled_here(seen: Mapping[str, Signature], size: int) -> bool:
    is_coarse = any(changed % 1_000_000_000 == 0 for _, _, changed, _ in seen.values())
    tick = _COARSE_NS if is_coarse else _TICK_NS
    age = _age_ns(seen)
    if age < 0:
        return False
    if age <= tick and size >= _WORTH_WAITING and not is_coarse:
        time.sleep((tick - age) / 1e9 + 0.001)
        return True
    return age > tick


def _is_settled(root: Path, seen: Mapping[str, Signature], size: int, note: Path | None) -> bool:
    """Return the same as :func:`is_settled`, also for the files of a server, if there is a file to note them in."""
    kind = _kind(root)
    if kind in _LOCAL:
        return _is_settled_here(seen, size)
    rest_ns = _SERVED_NS.get(kind)
    if rest_ns is None:
        return False
    if _age_ns(seen) > _OLD_NS:
        return True
    if note is None:
        return False
    left_ns = rest_ns - _seen_for_ns(note, seen)
    if left_ns > 0 and rest_ns == _COARSE_NS and size >= _WORTH_WAITING:
        # Many machines have many processes that would all read the files.
        time.sleep(left_ns / 1e9 + 0.001)
        return True
    return left_ns <= 0


def _seen_for_ns(note: Path, seen: Mapping[str, Signature]) -> int:
    """Return for how long this machine has seen files as they are, by its own clock; what is new to it is noted."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    now = time.clock_gettime_ns(clock)
    state = sha256(json.dumps(sorted(seen.items())).encode()).hexdigest()
    with suppress(OSError, ValueError, LookupError, TypeError):
        noted = json.loads(read_own(note) or b"")
        if noted["state"] == state:
            return max(0, now - int(noted["since"]))
    with suppress(OSError):
        write_own(note, json.dumps({"state": state, "since": now}).encode())
    return 0


def _age_ns(seen: Mapping[str, Signature]) -> int:
    return time.time_ns() - max((changed for _, _, changed, _ in seen.values()), default=0)


def is_local(root: Path) -> bool:
    """Return whether the times of a folder's files are of this machine's clock, going by the table of mounts."""
    return _kind(root) in _LOCAL


def _kind(root: Path) -> str:
    """Return the name of the file system that a folder is on; nothing where it is not known."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape", "surrogateescape")
        # Of mounts on one point the last one covers the others.
        if root.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    # After a chroot the file system that its root is on is in no table.
    return kind or _NUMBERS.get(_kind_number(root) or 0, "")


def _kind_number(root: Path) -> int | None:
    """Return the number by which Linux tells the kind of the file system that a folder is on."""
    import ctypes

    answer = (ctypes.c_long * 32)()
    try:
        failed = ctypes.CDLL(None).statfs(os.fsencode(root), ctypes.byref(answer))
    except (OSError, AttributeError):
        return None
    return None if failed else answer[0] & 0xFFFFFFFF


def _stamped(path: Path, root: Path, seen: Mapping[str, Signature]) -> dict[str, str] | None:
    """Return the digests that a stamp tells, if it is ours and fits."""
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & 0o077 or not 0 < found.st_size < _MOST_BYTES:
                return None
            content = json.loads(file.read())
        if content["format"] != _FORMAT or content["root"] != os.fspath(root):
            return None
        files = content["files"]
        if {name: tuple(values[:4]) for name, values in files.items()} != seen:
            return None
        digests = {name: values[4] for name, values in sorted(files.items())}
        if not all(re.fullmatch(_DIGEST, digest) for digest in digests.values()):
            return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return digests


def _stamp(path: Path, root: Path, found: Hashed) -> None:
    assert found.seen is not None  # noqa: S101 - for the type checker
    files = {name: [*found.seen[name], digest] for name, digest in found.digests.items()}
    content = json.dumps({"format": _FORMAT, "root": os.fspath(root), "files": files})
    with suppress(OSError):  # a full disk costs the stamp, not the kernel
        write_own(path, content.encode())
