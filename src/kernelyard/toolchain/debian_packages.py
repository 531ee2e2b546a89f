"""The parts of a toolchain that come from Debian packages: CUDA's older compilers, a host compiler, a system root."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import tomli

from kernelyard.errors import EnvironmentProblemError
from kernelyard.store import Store, writing
from kernelyard.toolchain.deb_package import DebPackage, Selection
from kernelyard.toolchain.debian_mirror import DebianMirror, DebianPin
from kernelyard.toolchain.part import Ingredient

__all__ = ["DebianPackages", "as_ingredient", "known_debian"]

_logger = logging.getLogger("kernelyard.toolchain")


@cache
def known_debian() -> Mapping[str, tuple[DebianPin, ...]]:
    """Return the sets of packages that are pinned, by name: ``sysroot-x86_64`` (``debian_pins.toml``)."""
    text = files("kernelyard.toolchain").joinpath("debian_pins.toml").read_text("utf-8")
    return {name: tuple(DebianPin(**pin) for pin in pins) for name, pins in tomli.loads(text)["packages"].items()}


def as_ingredient(pin: DebianPin) -> Ingredient:
    """Describe a package as an ingredient of a part: it is compared with the pin before it is opened."""
    return Ingredient(
        kind="debian",
        name=pin.name,
        version=pin.version,
        file=pin.filename,
        sha256=pin.sha256,
        size=pin.size,
        record=None,
        trust="pin",
    )


class DebianPackages:
    """Unpacks pinned Debian packages, fetching them from a mirror.

    Attributes:
        store: Where what is unpacked is kept.
    """

    def __init__(self, store: Store, *, mirror: str | None = None) -> None:
        self.store = store
        self._address = mirror
        self._mirror: DebianMirror | None = None

    @property
    def bytes_fetched(self) -> int:
        """Bytes that came over the network so far."""
        return self._mirror.bytes_fetched if self._mirror else 0

    @property
    def mirror(self) -> DebianMirror:
        """The mirror; none is looked for before a package is missing."""
        if self._mirror is None:
            self._mirror = DebianMirror(self._address)
        return self._mirror

    def provide(
        self, kind: str, name: str, pins: Sequence[DebianPin], selections: Sequence[Selection] = (Selection(),)
    ) -> Path:
        """Return a folder of the store with members of some packages, filling it where it is missing.

        Args:
            kind: Of the entry in the store: ``compilers``, ``sysroots``.
            name: For eyes; the key in the store gets a digest of what it is made of, too.
            pins: The packages.
            selections: Which members, and where they go.

        Raises:
            EnvironmentProblemError: As `extract`, or the store cannot be written.
            VerificationError: As `extract`.
        """
        made_of = sha256(repr((_LAYOUT, [pin.sha256 for pin in pins], list(selections))).encode()).hexdigest()

        def fill(folder: Path) -> None:
            self.extract(pins, folder, selections)

        return self.store.provide(kind, f"{name}-{made_of[:16]}", fill)

    def extract(
        self, pins: Iterable[DebianPin], folder: Path, selections: Sequence[Selection] = (Selection(),)
    ) -> tuple[str, ...]:
        """Fetch packages and write members of them below a folder, each package verified before it is opened.

        Returns:
            The paths of what was written, below the folder.

        Raises:
            EnvironmentProblemError: There is no mirror (KY341, KY342), it lacks a package (KY343), or a package is not
                what it should be or has nothing of what is wanted (KY344).
            VerificationError: The bytes are not those that are pinned (KY345).
        """
        written: list[str] = []
        for pin in pins:
            written += self._extract(pin, folder, selections)
        for selection in selections:
            for entry in selection.take:
                place = selection.place(entry)
                if place and not any(path == place or path.startswith(place + "/") for path in written):
                    what = f"none of the packages has {selection.strip}{entry}"
                    raise EnvironmentProblemError("KY344", what, hint=_UPGRADE)
        return tuple(written)

    def _extract(self, pin: DebianPin, folder: Path, selections: Sequence[Selection]) -> tuple[str, ...]:
        with writing(Path(tempfile.gettempdir()), elsewhere="point TMPDIR to"):
            aside = tempfile.TemporaryFile()  # noqa: SIM115 - closed below; `writing` is not for what is done meanwhile
        with aside:
            self.mirror.download(pin, aside)
            written = DebPackage(aside, str(pin)).extract(folder, selections)
        if not written:
            raise EnvironmentProblemError("KY344", f"{pin} has none of the files wanted of it", hint=_UPGRADE)
        _logger.info("%s: %d files, %.1f MB", pin, len(written), pin.size / 1e6)
        return written


#: Changes whenever `DebPackage` writes something else, so that folders written otherwise are not taken for the same.
_LAYOUT = 1
_UPGRADE = "the recipe and the packages do not fit together; upgrade Kernelyard"
