"""What CMake finds out about a toolchain, kept: trying nvcc takes two seconds, and each project would do it anew.

CMake writes what it knows of compilers into its cache and beside it, and finds nothing out in a folder that has these.
They are kept by the text of the toolchain file, which names the compilers and their versions, and given to the next
project with that toolchain. Builds from a lock take nothing that another build has left.
"""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError
from kernelyard.project.cmake_lists import MACHINE_FOLDER
from kernelyard.store import Store
from kernelyard.toolchain.host import tool_version

__all__ = ["Configured"]

_KIND = "configured"
_CACHE = "CMakeCache.txt"
#: In place of the generated project's folder.
_FOLDER = "@folder@"
#: Entries that are the project's own, and CMake's defaults of them.
_OF_PROJECT = re.compile(
    r"^(?:\w+_(?:BINARY|SOURCE)_DIR|\w+_IS_TOP_LEVEL|CMAKE_PROJECT_\w+|CMAKE_\w+_LAUNCHER):.*\n", re.MULTILINE
)
_COMMENTS = re.compile(r"^(?://|#).*\n|^\n", re.MULTILINE)


class Configured:
    """What is known of one project's toolchain."""

    def __init__(self, store: Store, folder: Path, cmake: Path) -> None:
        """Look for it.

        Args:
            store: Where it is kept.
            folder: The generated project, with its toolchain file.
            cmake: The program.
        """
        toolchain = folder.joinpath(MACHINE_FOLDER, "toolchain.cmake").read_bytes()
        self._store = store
        self._folder = folder
        self._version = tool_version(cmake)
        self._key = sha256(f"{self._version}\n".encode() + toolchain).hexdigest()[:16]

    def give(self, objects: Path) -> bool:
        """Write what is known into a folder that CMake has not seen; return whether anything is."""
        kept = self._store.path(_KIND, self._key)
        try:
            texts = {path.name: path.read_text("utf-8") for path in kept.iterdir()}
        except OSError:
            return False
        for name, text in texts.items():
            path = objects / name if name == _CACHE else objects / "CMakeFiles" / self._version / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(_FOLDER, str(self._folder)), "utf-8")
        return True

    def keep(self, objects: Path) -> None:
        """Remember what CMake has found out, for the next project; a store that cannot be written does not."""
        cache = _COMMENTS.sub("", objects.joinpath(_CACHE).read_text("utf-8"))
        texts = {_CACHE: _OF_PROJECT.sub("", cache)}
        for path in (objects / "CMakeFiles" / self._version).glob("*.cmake"):
            texts[path.name] = path.read_text("utf-8")

        def fill(folder: Path) -> None:
            for name, text in texts.items():
                folder.joinpath(name).write_text(text.replace(str(self._folder), _FOLDER), "utf-8")

        with suppress(EnvironmentProblemError):
            self._store.provide(_KIND, self._key, fill)
