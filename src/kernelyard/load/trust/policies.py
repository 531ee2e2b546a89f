"""The policies that hold for this process: of the project, of who runs it, of the machine. All of them have to allow.

They are looked for where a caller cannot choose: from the current folder and from the main script's folder upwards, in
``KERNELYARD_POLICY``, in the user's configuration and in the machine's. A file is read once for each time it changes.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelyard.errors import InputError, KernelyardError, Place
from kernelyard.load.trust.known_policies import known_table, remember_table
from kernelyard.records import record
from kernelyard.store import open_regular, real_path
from kernelyard.store.permissions import others_may_write, owners

if TYPE_CHECKING:
    from kernelyard.formats.policy import Policy

__all__ = ["VARIABLE", "InForce", "examined_policies", "policies"]

VARIABLE = "KERNELYARD_POLICY"
_SETTINGS_FILE, _PYPROJECT, _OWN_FILE = "kernelyard.toml", "pyproject.toml", "policy.toml"
_WITHIN = ("tool", "kernelyard")
#: For the whole machine.
_MACHINE = "/etc/kernelyard/policy.toml"
#: What our table looks like in a file for many: the head of a table, or a key. A dependency on Kernelyard alone is no
#: reason to read all of it.
_TABLE = rb"""(?mx)^\s*\[[^]\n]*\bkernelyard\b | ^[^=#\n]*\bkernelyard\b[^=\n]*= | [{,]\s*["']?kernelyard["']?\s*[.=]"""
#: A key may be written with escapes, and UTF-16 hides all: such files are read, and refused where they have to be.
_HIDDEN = rb"(?m)^[^#\n]*\\[uU]"
_HINT = "see its permissions; without knowing what it forbids nothing is loaded"


@record(frozen=True, slots=True)
class InForce:
    """A policy that holds here.

    Attributes:
        policy: What it says.
        path: The file.
        may_consent: Whether it can stand for the user's own consent. What somebody else may have written can only
            forbid.
    """

    policy: Policy
    path: Path
    may_consent: bool

    @property
    def trust_root(self) -> Path | None:
        """The trust root of Sigstore that it names, from where the file is."""
        named = self.policy.trust_root
        return None if named is None else self.path.parent / Path(named).expanduser()


def policies() -> tuple[InForce, ...]:
    """Return the policies that hold for this process.

    Raises:
        ManifestError: One has mistakes; nothing is loaded before they are mended (KY201 and others).
        InputError: One cannot be read, or the one that ``KERNELYARD_POLICY`` names is not there (KY647).
    """
    found = (_read(path, named=named) for path, named in _places())
    return tuple(one for one in found if one is not None)


def examined_policies() -> tuple[tuple[Path, InForce | KernelyardError], ...]:
    """Return the files that :func:`policies` reads and that have a policy, each with that or with what is wrong.

    Nothing is remembered of them.
    """
    found: list[tuple[Path, InForce | KernelyardError]] = []
    try:
        for text, named in _places():
            try:
                one: InForce | KernelyardError | None = _read(text, named=named, keep=False)
            except KernelyardError as error:
                one = error
            if one is not None:
                found.append((Path(text), one))
    except InputError as error:  # that the variable names a path that is none
        found.append((Path(os.environ.get(VARIABLE, "")), error))
    return tuple(found)


def _places() -> Iterator[tuple[str, bool]]:
    """Yield each file that may be one, and whether it has to be there."""
    seen: set[str] = set()
    for start in (_current_folder(), _script_folder()):
        for folder in _upwards(start) if start is not None else ():
            if folder not in seen:
                seen.add(folder)
                # As text: nearly all of them are not there, and this is asked some times in each load.
                yield os.path.join(folder, _SETTINGS_FILE), False  # noqa: PTH118
                yield os.path.join(folder, _PYPROJECT), False  # noqa: PTH118
    named = os.environ.get(VARIABLE)
    if named:
        yield str(_named(named)), True
    own = _configuration()
    if own is not None:
        yield str(own / _OWN_FILE), False
    yield _MACHINE, False


def _named(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except (OSError, RuntimeError) as error:  # the current folder is gone, or there is no such user
        what = f"{VARIABLE} names a policy that cannot be found: {error}"
        raise InputError("KY647", what, hint="name it by its absolute path", place=Place(text)) from None


def _configuration() -> Path | None:
    """Return the folder of the user's own configuration; None for a user without a home."""
    if sys.platform in {"darwin", "win32"}:  # pragma: no cover - not the systems that this is tested on
        from platformdirs import user_config_path

        return user_config_path("kernelyard", appauthor=False)
    # As that library has it, whose import takes longer than all else here.
    named = os.environ.get("XDG_CONFIG_HOME", "").strip()
    try:
        return Path(named or Path.home() / ".config", "kernelyard")
    except RuntimeError:
        return None


def _current_folder() -> str | None:
    try:
        return os.path.realpath(os.getcwd())  # noqa: PTH109
    except OSError:
        return None  # it is gone


def _script_folder() -> str | None:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return str(real_path(Path(file)).parent) if isinstance(file, str) else None
    except ValueError:
        return None  # a NUL is in it: no file has such a name


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and those above it, up to the root of a repository, the user's home, or the last there is."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 - "~" itself for a user without one
    above = ""
    while folder != above:
        yield folder
        if folder == home or os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - False if hidden
            return
        folder, above = os.path.dirname(folder), folder  # noqa: PTH120


def _read(text: str, *, named: bool, keep: bool = True) -> InForce | None:
    try:
        found = os.stat(text)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError) as error:
        if named:
            what = f"{VARIABLE} names a policy that cannot be read: {error.strerror or error}"
            hint = "name a file that is there, or unset it"
            raise InputError("KY647", what, hint=hint, place=Place(text)) from None
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and not named and os.path.basename(text) in {_SETTINGS_FILE, _PYPROJECT}:  # noqa: PTH119
            # Whoever was started in a folder of somebody else's that is closed to him is in no project there.
            return None
        what = f"whether there is a policy cannot be seen: {getattr(error, 'strerror', None) or error}"
        raise InputError("KY647", what, hint=_HINT, place=Place(text)) from None
    path = Path(text)
    policy = _parsed(path, found.st_mtime_ns, found.st_size, found.st_ino, named, keep)
    if policy is None:
        return None
    return InForce(policy, path, may_consent=_is_own(path, found))


def _is_own(path: Path, found: os.stat_result) -> bool:
    """Return whether nobody but this user and root can have written a file, or have put a link to it there."""
    if not hasattr(os, "getuid"):  # pragma: no cover - Windows
        return True
    mine = owners()
    return path.lstat().st_uid in mine and others_may_write(found, mine) is None


@lru_cache(maxsize=64)
def _parsed(  # noqa: PLR0917 - a key
    path: Path,
    mtime_ns: int,
    size: int,
    inode: int,
    named: bool,  # noqa: FBT001
    keep: bool,  # noqa: FBT001
) -> Policy | None:
    del mtime_ns, size, inode
    shared = path.name == _PYPROJECT and not named
    try:
        with open_regular(path) as file:
            content = file.read()
        if shared and not _may_have_table(content):
            return None
        text = content.decode("utf-8")
    except OSError as error:
        what = f"this policy cannot be read: {error.strerror or error}"
        raise InputError("KY647", what, hint=_HINT, place=Place(str(path))) from None
    except UnicodeDecodeError as error:
        what = f"this policy is not UTF-8: {error.reason} at byte {error.start}"
        raise InputError("KY647", what, hint="write it again as UTF-8", place=Place(str(path))) from None
    within = _WITHIN if shared else ()
    known = known_table(path, content)
    if known is not None:
        policy = None if known[0] is None else _read_again(known[0], text, path, within)
    else:
        from kernelyard.formats.policy import read_policy

        policy = read_policy(text, path=str(path), within=within, settings=shared or path.name == _SETTINGS_FILE)
        if keep:
            remember_table(path, content, None if policy is None else policy.members)
    if policy is None and named:
        hint = "write `[trust]`; docs/formats/settings.md has its keys"
        raise InputError("KY647", "this file has no table `trust`", hint=hint, place=Place(str(path)))
    return policy


def _may_have_table(content: bytes) -> bool:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    plain = content.removeprefix(codecs.BOM_UTF8)
    return re.search(_TABLE, plain) is not None or re.search(_HIDDEN, plain) is not None


def _read_again(table: dict[str, Any], text: str, path: Path, within: tuple[str, ...]) -> Policy:
    from kernelyard.formats.policy import read_again

    return read_again(table, text, path=str(path), within=within)
