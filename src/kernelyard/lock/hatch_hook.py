"""A build hook of Hatchling that puts a project's ``kernels.lock`` into the metadata of its wheels.

It is used where the project says ``[tool.hatch.build.hooks.kernelyard]``, and imported in every build by Hatchling in
an environment that has Kernelyard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

__all__ = ["LockBuildHook", "hatch_register_build_hook"]

_LOCK_FILE = "kernels.lock"


class LockBuildHook(BuildHookInterface):  # type: ignore[misc]  # Hatchling is there only where it builds
    """Adds the lock to wheels; an sdist has it as any other file of the project."""

    PLUGIN_NAME = "kernelyard"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the lock among the files of a wheel.

        Args:
            version: ``standard`` or ``editable``.
            build_data: What Hatchling builds from.

        Raises:
            SystemExit: The project has no lock, or it cannot be read.
        """
        if self.target_name != "wheel":
            return
        lock = Path(self.root, _LOCK_FILE)
        if not lock.is_file():
            self.app.abort(f"{lock} is not there; run `kernelyard lock` in the project")
        try:
            with lock.open("rb") as file:
                file.read(1)
        except OSError as error:
            why = error.strerror or str(error)
            self.app.abort(f"{lock} cannot be read: {why}; see to it, or run `kernelyard lock` anew")
        name = getattr(self.build_config.builder, "artifact_project_id", self.build_config.builder.project_id)
        included = "force_include_editable" if version == "editable" else "force_include"
        build_data[included][str(lock)] = f"{name}.dist-info/{_LOCK_FILE}"


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[LockBuildHook]:
    """Return the hook."""
    return LockBuildHook
