"""What a client remembers of hubs: the highest state that it saw of each kernel, so that a roll-back is noticed.

The log of a kernel on a static hub is only ever appended to. Whoever serves an older log, or another one, hands out old
kernels as if they were current: a server that was broken into, a backup that was put back, a cache that is stale.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

from kernelyard.errors import InputError, Place, VerificationError
from kernelyard.formats.fields import canonical_json, parse_json_object
from kernelyard.hub.own_file import read_own, write_own
from kernelyard.hub.refs import Refs
from kernelyard.records import record
from kernelyard.store import Store, absolute_path, own_folder

__all__ = ["Memory"]

_logger = logging.getLogger("kernelyard.hub")


@record(frozen=True, slots=True)
class Memory:
    """The states that were seen, a small file for each kernel of each hub.

    Attributes:
        root: The folder of the files; it is made when something is first remembered.
    """

    root: Path

    @classmethod
    def default(cls) -> Memory:
        """Return the user's: below ``KERNELYARD_STATE``, else ``KERNELYARD_CACHE``, else the user's state directory.

        Raises:
            InputError: ``KERNELYARD_STATE`` or ``KERNELYARD_CACHE`` leads nowhere (KY302).
            EnvironmentProblemError: None of them is set, and the user has no home (KY302).
        """
        configured = os.environ.get("KERNELYARD_STATE")
        if configured:
            return cls(absolute_path(configured, code="KY302") / "hubs")
        if os.environ.get("KERNELYARD_CACHE"):
            return cls(Store.default().root / "state" / "hubs")
        from platformdirs import user_state_path

        return cls(own_folder(user_state_path) / "hubs")

    def check(self, location: str, refs: Refs) -> None:
        """Hold what a hub shows against what was seen, and remember it where it is more.

        Raises:
            VerificationError: It is less, or something else (KY514).
        """
        if refs.untold:
            raise VerificationError(
                "KY514",
                f"the hub's log does not tell how {refs.untold[0]} of {refs.kernel} came to be where it is",
                hint="ask its owner; `kernelyard hub verify` tells what else is wrong",
                place=Place(location),
            )
        path = self.path(location, refs.kernel)
        count, history = self._read(path)
        if count is not None and (len(refs.log) < count or refs.history(count) != history):
            older = len(refs.log) < count
            entries = f"{len(refs.log)} {'entry' if len(refs.log) == 1 else 'entries'}"
            said = f"{entries} in its log where {count} were seen" if older else "another log than was seen"
            raise VerificationError(
                "KY514",
                f"the hub shows {'an older' if older else 'a rewritten'} state of {refs.kernel}: {said}",
                hint=f"ask its owner; if the hub was restored or made anew, "
                f"`kernelyard hub forget {refs.kernel} --hub {location}`",
                place=Place(location),
            )
        if count is None or len(refs.log) > count:
            self._write(path, location, refs)

    def forget(self, location: str, repo: str) -> bool:
        """Forget what was seen of a kernel; answer whether anything was.

        Raises:
            OSError: It cannot be removed.
        """
        path = self.path(location, repo)
        known = path.is_file()
        path.unlink(missing_ok=True)
        return known

    def path(self, location: str, repo: str) -> Path:
        """Return the file that keeps what was seen of a kernel."""
        digest = hashlib.sha256(f"{location}\n{repo}".encode()).hexdigest()
        return self.root / f"{digest[:32]}.json"

    @staticmethod
    def _read(path: Path) -> tuple[int | None, str]:
        try:
            content = read_own(path)
            if content is None:
                return None, ""
            fields = parse_json_object(content, code="KY514", path=str(path))
            return fields.required("entries", int), fields.required("history", str)
        except (OSError, InputError):
            # Nothing was seen yet, or what was kept is lost: this time is the first.
            return None, ""

    def _write(self, path: Path, location: str, refs: Refs) -> None:
        seen = {"location": location, "kernel": refs.kernel, "entries": len(refs.log), "history": refs.history()}
        try:
            write_own(path, canonical_json(seen))
        except OSError as error:
            # A read-only home is no reason not to load a kernel.
            _logger.debug("what was seen of %s cannot be kept: %s", refs.kernel, error)
