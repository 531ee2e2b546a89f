"""Entries of a store: by kind and key, whole or not there.

Every entry is a folder that is filled aside and renamed into place when it is whole. The rename alone makes that
correct: a process that is killed leaves nothing under an entry's name. The lock only keeps two processes from doing
the same work twice, so a file system without locks costs time and nothing else. ``docs/store.md`` says the rest.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, KernelyardError, Place, VerificationError
from kernelyard.records import record
from kernelyard.store.files import absolute_path, answering, look_anew, make_folder, no_answer, remove_folder, writing
from kernelyard.store.permissions import check_store

__all__ = ["LAYERED", "Entry", "Store", "own_folder", "pass_over"]

#: What kernels are loaded from. Read-only layers are looked into for these, and each file of these is on the disk
#: before the rename is. Toolchain parts are not: their ten thousand files would cost a minute, and they have records.
LAYERED = frozenset({"variants", "indexes"})
#: Besides entries a store has folders in which it works.
_WORKING = ("aside", "locks", "state")
_ABANDONED_AFTER_S = 24 * 3600
#: How exactly it is known when an entry was last used.
_USED_WITHIN_S = 3600
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_logger = logging.getLogger("kernelyard.store")
#: Layers of which a warning has told that they do not answer.
_silent: set[Path] = set()
#: Layers that were looked at, whether they are there.
_looked_at: set[Path] = set()


@record(frozen=True, slots=True)
class Entry:
    """An entry that is there.

    Attributes:
        kind: ``variants``, ``toolkits``, ...
        key: Its name among its kind.
        path: Its folder.
        used: When it was last used, in seconds since 1970, to the hour; in a layer, when it was made.
    """

    kind: str
    key: str
    path: Path
    used: float


class Store:
    """Entries by kind and key below one folder, and read-only layers below it.

    Attributes:
        root: The folder. It is made when something is first written.
        layers: Folders of the same form that are only read, in the order in which they are looked into.
        elsewhere: How the user names another folder for it, as in :func:`writing`.
    """

    def __init__(
        self, root: Path, layers: tuple[Path, ...] = (), *, elsewhere: str = "point KERNELYARD_CACHE to"
    ) -> None:
        self.root = root
        self.layers = layers
        self.elsewhere = elsewhere

    @classmethod
    def default(cls) -> Store:
        """Return the user's store: ``KERNELYARD_CACHE``, or ``kernelyard`` in the user's cache directory.

        Its layers are the folders of ``KERNELYARD_LAYERS``, separated as in ``PATH``.

        Raises:
            InputError: ``KERNELYARD_CACHE`` or ``KERNELYARD_LAYERS`` leads nowhere (KY302).
            EnvironmentProblemError: The first is not set, and the user has no home (KY302).
        """
        layers = tuple(
            absolute_path(one, code="KY302") for one in os.environ.get("KERNELYARD_LAYERS", "").split(os.pathsep) if one
        )
        for layer in layers:
            _look_at(layer)
        configured = os.environ.get("KERNELYARD_CACHE")
        if configured:
            return cls(absolute_path(configured, code="KY302"), layers)
        from platformdirs import user_cache_path

        return cls(own_folder(user_cache_path), layers)

    def path(self, kind: str, key: str) -> Path:
        """Return where an entry stands in the store itself, whether it exists or not."""
        return self.root / kind / key

    def get(self, kind: str, key: str) -> Path | None:
        """Return an entry's folder, or None. A folder that is there is whole.

        Raises:
            EnvironmentProblemError: Others can write the store or the layer that has it (KY303), or the file system of
                the store does not answer (KY305). A layer that does not answer is passed over, with a warning.
        """
        for root in self._roots(kind):
            path = root / kind / key
            try:
                found = _entry(path)
            except OSError as error:
                silence = no_answer(error, path)
                if root is self.root and silence is not None:
                    raise silence from error
                pass_over(root, error)
                continue
            if found is not None:
                check_store(root, kind)
                if root is self.root:
                    _note_use(path, found)
                return path
        return None

    def provide(self, kind: str, key: str, fill: Callable[[Path], None], *, again: bool = False) -> Path:
        """Return an entry's folder, filling it first where neither the store nor a layer has it.

        Args:
            kind: Of the entry: ``variants``, ``toolkits``, ...
            key: Its name among its kind; a content digest, or a text that determines the content.
            fill: Writes the content into the empty folder it is given.
            again: Fill another one whatever is seen there, and put it there if nothing is: what another machine has
                removed is seen on a network file system for some time.

        Raises:
            EnvironmentProblemError: The store cannot be written, the disk is full (KY301, KY302), or others can write
                the store (KY303); its file system does not answer (KY305).
            VerificationError: A link or a file is in the place of a kernel or an index (KY602).
        """
        final = self.path(kind, key)
        with writing(self.root, elsewhere=self.elsewhere):
            there = None if again else self.get(kind, key)
            if there is not None:
                return there
            check_store(self.root, kind, *_WORKING)
            # Another process may have put it there since it was looked for.
            if final.is_symlink() or (final.exists() and _entry(final) is None):
                raise _not_an_entry(final, kind)
            for folder in (final.parent, self.root / "aside", self.root / "locks"):
                make_folder(folder)
        lock = self.root / "locks" / sha256(f"{kind}/{key}".encode()).hexdigest()[:32]

        def tell() -> None:
            _logger.warning("waiting for another process that is fetching %s/%s and holds %s", kind, key, lock)

        from kernelyard.store.locks import alone

        def is_there() -> bool:
            with answering(final):
                return not again and _entry(final) is not None

        with alone(lock, until=is_there, waiting=tell):
            # Another machine may have put it there.
            look_anew(final.parent)
            if not is_there():
                self._remove_abandoned()
                self._fill(final, fill, sealed=kind in LAYERED)
        return final

    def entries(self) -> Iterator[Entry]:
        """Yield what is in the store itself, by kind and key."""
        for kind in _names(self.root):
            if kind in _WORKING:
                continue
            for key in _names(self.root / kind):
                path = self.root / kind / key
                found = _entry(path)
                if found is not None:
                    yield Entry(kind, key, path, found.st_mtime)

    def remove(self, entry: Entry) -> bool:
        """Remove an entry; answer whether it was. It is not while a process that has loaded it is alive.

        Raises:
            EnvironmentProblemError: The store cannot be written (KY302).
        """
        from kernelyard.store.locks import nobody_holds

        with writing(self.root, elsewhere=self.elsewhere):
            make_folder(self.root / "aside")
            aside = self.root / "aside" / uuid.uuid4().hex
            try:
                with nobody_holds(entry.path) as free:
                    if not free:
                        return False
                    # In one step: nobody finds half of it.
                    entry.path.rename(aside)
            except FileNotFoundError:
                return False
            remove_folder(aside)
        return True

    def _roots(self, kind: str) -> tuple[Path, ...]:
        return (self.root, *self.layers) if kind in LAYERED else (self.root,)

    def _fill(self, final: Path, fill: Callable[[Path], None], *, sealed: bool) -> None:
        aside = self.root / "aside" / uuid.uuid4().hex
        try:
            with writing(self.root, elsewhere=self.elsewhere):
                aside.mkdir()
                loose = aside.stat().st_mode & _WRITABLE_BY_OTHERS
                fill(aside)
                if sealed or loose:
                    _seal(aside, to_disk=sealed)
                try:
                    aside.rename(final)
                except OSError:
                    # Without working locks another process may have been faster; its entry is as good as ours. Not all
                    # file systems call that ENOTEMPTY: for sshfs it is not permitted.
                    if _entry(final) is None:
                        raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """Remove what processes that were killed have left aside."""
        oldest = time.time() - _ABANDONED_AFTER_S
        for folder in (self.root / "aside").iterdir():
            try:
                abandoned = folder.stat().st_mtime < oldest
            except FileNotFoundError:
                continue
            if abandoned:
                with suppress(OSError):
                    remove_folder(folder)


def own_folder(of_user: Callable[..., Path]) -> Path:
    """Return the folder of a user's, by a function of platformdirs.

    Where the user has no home but ``KERNELYARD_LAYERS`` are there, as in a container that is started as any user, it is
    one below which nothing can be: what is in the layers is loaded, and nothing is kept.

    Raises:
        EnvironmentProblemError: The user has no home (KY302).
    """
    try:
        folder = of_user("kernelyard", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Older platformdirs answer a path that begins with `~`, which would be made in the current folder.
    if folder.is_absolute():
        return folder
    if os.environ.get("KERNELYARD_LAYERS"):
        return Path(os.devnull) / "kernelyard"
    hint = "set HOME, or point KERNELYARD_CACHE to a folder of your own"
    raise EnvironmentProblemError("KY302", "there is no home directory to keep the store in", hint=hint)


def _look_at(layer: Path) -> None:
    """Warn, once in a process, of a layer from which nothing can be loaded: a slip would cost a fetch, and no word."""
    if layer in _looked_at:
        return
    _looked_at.add(layer)
    with suppress(OSError):  # what does not answer is told of when it is looked into
        if layer.is_file():
            _logger.warning("nothing is taken from the layer %s: it is a file, and has to be unpacked", layer)
        elif not layer.exists():
            _logger.warning("there is no layer %s, which KERNELYARD_LAYERS names", layer)


def _entry(path: Path) -> os.stat_result | None:
    # What a link points to has not been filled by a store, and can change without it.
    try:
        found = path.lstat()
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and no_answer(error, path) is not None:
            raise
        return None
    return found if stat.S_ISDIR(found.st_mode) else None


def pass_over(layer: Path, error: OSError) -> None:
    """Warn once that a layer is on a file system that does not answer, if that is what the error says."""
    if layer not in _silent and no_answer(error, layer) is not None:
        _silent.add(layer)
        _logger.warning("nothing is taken from the layer %s: %s", layer, error.strerror)


def _not_an_entry(path: Path, kind: str) -> KernelyardError:
    """Return the error for what no store has put into the place of an entry: of a kernel it is one of its bytes."""
    what = f"no entry of the store, for it is {'a link' if path.is_symlink() else 'not a folder'}"
    error = VerificationError if kind in LAYERED else EnvironmentProblemError
    return error("KY602" if kind in LAYERED else "KY302", what, hint="remove it", place=Place(str(path)))


def _note_use(path: Path, found: os.stat_result) -> None:
    now = time.time()
    if not 0 <= now - found.st_mtime < _USED_WITHIN_S:
        with suppress(OSError):  # a store that is read-only is used all the same
            os.utime(path)


def _names(folder: Path) -> list[str]:
    try:
        with answering(folder):
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted
    except EnvironmentProblemError:
        raise
    except OSError:
        return []


def _seal(folder: Path, *, to_disk: bool) -> None:
    """Take from others what a loose umask has given them, and have files on the disk before their folder has a name.

    After a power cut an entry is whole or not there: a file system may bring a rename to the disk before the bytes.
    """
    for path, _, names in os.walk(folder, topdown=False):
        for name in names:
            _seal_one(Path(path, name), to_disk=to_disk)
        _seal_one(Path(path), to_disk=to_disk)


def _seal_one(path: Path, *, to_disk: bool) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return
    if found.st_mode & _WRITABLE_BY_OTHERS:
        path.chmod(stat.S_IMODE(found.st_mode) & ~_WRITABLE_BY_OTHERS)
    if to_disk:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
