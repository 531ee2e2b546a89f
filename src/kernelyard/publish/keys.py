"""Files of keys that publications are signed with."""

from __future__ import annotations

import os
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.signature import CODE, PublicKey, SigningKey
from kernelyard.store import open_regular, writing

__all__ = ["new_key", "public_key", "read_key", "rotate_key"]

_LARGEST = 1 << 20
_PUBLIC = b"ed25519:"


def new_key(path: Path) -> PublicKey:
    """Make a key and write it to a file that only its owner may read; the public one is beside it, with ``.pub``.

    Raises:
        InputError: There is such a file already, or not its folder (KY515).
        EnvironmentProblemError: It cannot be written, or ``cryptography`` is not installed (KY515).
    """
    return _write(path, SigningKey.new())


def rotate_key(old: Path, new: Path) -> PublicKey:
    """Make a key that takes the place of another, with the older one's word for it.

    Raises:
        InputError: The old file is no key, or there is a new one already (KY515).
        EnvironmentProblemError: A file cannot be read or written.
    """
    return _write(new, read_key(old).endorse(SigningKey.new()))


def public_key(path: Path) -> PublicKey:
    """Return the public part of a key, from the file of the secret or from the one beside it.

    Raises:
        InputError, EnvironmentProblemError: As :func:`read_key` does.
    """
    _, text = _read(path)
    if not text.startswith(_PUBLIC):
        return read_key(path).public
    try:
        return PublicKey.parse(text.decode("ascii"))
    except ValueError:
        what = "this is the beginning of a public key, and what follows is none"
        raise InputError(CODE, what, hint="ask for it once more", place=Place(str(path))) from None


def read_key(path: Path) -> SigningKey:
    """Read a key to sign with.

    Raises:
        InputError: The file is no key (KY515).
        EnvironmentProblemError: It cannot be read, or others may read it too (KY515).
    """
    place = Place(str(path))
    mode, text = _read(path)
    if text.startswith(_PUBLIC):
        hint = f"name the secret, perhaps {path.with_suffix('')}"
        raise InputError(CODE, "this is the public part of a key", hint=hint, place=place)
    if os.name == "posix" and mode & 0o077:
        hint = f"chmod 600 {path}; if others had the time to copy it, `kernelyard hub key rotate`"
        raise EnvironmentProblemError(CODE, "others than its owner may read this key", hint=hint, place=place)
    return SigningKey.from_json(text, path=str(path))


def _read(path: Path) -> tuple[int, bytes]:
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_mode, file.read(_LARGEST)
    except OSError as error:
        hint = "`kernelyard hub key new FILE` makes one"
        what = f"the key cannot be read: {error.strerror or error}"
        raise EnvironmentProblemError(CODE, what, hint=hint, place=Place(str(path))) from error


def _write(path: Path, key: SigningKey) -> PublicKey:
    public = key.public
    with writing(path.parent, elsewhere="write the key to"):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            what = "there is a file already, and a key that is overwritten is lost"
            raise InputError(CODE, what, hint="name another file", place=Place(str(path))) from None
        except FileNotFoundError:
            what, hint = "there is no such folder to write the key to", "make it, or name a file in another"
            raise InputError(CODE, what, hint=hint, place=Place(str(path.absolute().parent))) from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key.to_json())
            path.with_name(f"{path.name}.pub").write_text(f"{public}\n", "utf-8")
        except OSError:
            path.unlink()  # half a key, which would keep the next from its place
            raise
    return public
