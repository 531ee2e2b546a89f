"""Asking a hub for what is locked, and what it means for a lock when a hub does not have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, MissingError
from kernelyard.formats.lock import KernelLock, LockedKernel
from kernelyard.hub import Hub, Revision, open_hub
from kernelyard.hub.offline import offline_variable
from kernelyard.hub.refs import Refs
from kernelyard.lock.resolve import hub_at

__all__ = ["PublishedKernel", "source_of"]

_NOT_ASKED = "unset it and run `kernelyard download`, or set KERNELYARD_LAYERS to where it was downloaded to"


def source_of(lock: KernelLock, kernel: LockedKernel, mirror: str | Path | None) -> Hub:
    """Return the hub of a locked kernel, or the mirror that is named in its place.

    Raises:
        InputError, EnvironmentProblemError: As :func:`open_hub` does.
    """
    return hub_at(kernel.hub, Path(lock.path).absolute().parent) if mirror is None else open_hub(mirror)


class PublishedKernel:
    """A kernel of a lock, as a hub has it or not.

    Attributes:
        source: The hub, from :func:`source_of`.
        absence: What it said when it did not have the kernel.

    Args:
        lock: The lock.
        kernel: Of the lock.
        source: The hub.
        is_mirror: Whether it is asked in place of the one that the lock names.
        looked: Says where the kernel was looked for before.
    """

    def __init__(
        self, lock: KernelLock, kernel: LockedKernel, source: Hub, *, is_mirror: bool, looked: Callable[[], str]
    ) -> None:
        self._lock = lock
        self._kernel = kernel
        self._is_mirror = is_mirror
        self._looked = looked
        self._asked: Revision | None = None
        self.source = source
        self.absence: MissingError | None = None

    @property
    def name(self) -> str:
        """What it is, as messages name it."""
        release = f"{self._kernel.release}, " if self._kernel.release else ""
        return f"{self._kernel.repo} ({release}revision {self._kernel.revision[:12]}, locked in {self._lock.path})"

    @property
    def asked(self) -> Revision | None:
        """The revision, if the hub has been asked."""
        return self._asked

    def revision(self) -> Revision:
        """Return the revision that is locked; the hub is asked once.

        Raises:
            MissingError: The hub does not have it (KY716), a mirror does not (KY725), or the hub is a folder that is
                not there (KY726).
            EnvironmentProblemError: The hub cannot be reached (KY502), or may not be asked (KY532).
        """
        if self._asked is None:
            variable = None if self.source.is_local else offline_variable()
            if variable is not None:
                what = f"{self.name} is not in {self._looked()}, and {variable} is set"
                raise EnvironmentProblemError("KY532", what, hint=_NOT_ASKED)
            with self.telling_of_absence():
                self._asked = self.source.read(Refs(self._kernel.repo), self._kernel.revision, None)
        return self._asked

    @contextmanager
    def telling_of_absence(self) -> Iterator[None]:
        """Turn what a hub says of a kernel that it does not have into what that means for a lock."""
        try:
            yield
        except MissingError as error:
            self.absence = self._absent(error)
            raise self.absence from error

    def _absent(self, error: MissingError) -> MissingError:
        place, hub = self.source.location, self._kernel.hub
        if self._is_mirror:
            what = f"{self.name} is not on {place}, which is asked in place of {hub}: {error.what}"
            hint = f"copy it there with `kernelyard hub mirror`, or leave out the mirror: locked is what {hub} has"
            return MissingError("KY725", what, hint=hint)
        folder = Path(place)
        if folder.is_absolute() and not folder.is_dir():
            what = f"{self.name} is on the hub {hub}, a folder that is not there: {place}"
            if place != hub:
                what += f"; the lock names it as seen from {Path(self._lock.path).absolute().parent}"
            hint = "put the lock or the hub back, name another place of the hub with --hub (hub=), or lock anew"
            return MissingError("KY726", what, hint=hint)
        what = f"{self.name} is not on {place} any more: {error.what}"
        hint = (
            f"nor is it in {self._looked()}; take it from a machine that has it with `kernelyard download --dest`, "
            "or lock another with `kernelyard lock --update`"
        )
        return MissingError("KY716", what, hint=hint)
