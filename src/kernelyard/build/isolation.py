"""What keeps a program away from the network and from what the user has set."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from functools import cache

__all__ = ["HERMETIC_UMASK", "hermetic_environment", "without_network"]

_logger = logging.getLogger("kernelyard.build")

#: Of a build from a lock: files can be read by everybody, whoever builds.
HERMETIC_UMASK = 0o022


@cache
def without_network() -> tuple[str, ...]:
    """Return what to put before a command to run it without network; nothing where the system does not let us."""
    unshare = shutil.which("unshare")
    if unshare is not None:
        # A network namespace of its own has no way out; a user namespace is what lets everybody make one. Root needs
        # none, and would lose in it what root may do with files of other users.
        isolated = (unshare, *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--")
        try:
            subprocess.run([*isolated, "true"], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            pass
        else:
            return isolated
    _logger.info("this system has no way to take the network from a program")
    return ()


def hermetic_environment() -> dict[str, str]:
    """Return all that a program of a build from a lock gets of this process's environment, and of its own."""
    kept = {name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}
    return {"PATH": os.defpath, "TZ": "UTC", **kept}
