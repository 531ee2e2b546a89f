"""A workflow for GitHub Actions that builds a project on several machines: its parts, merged and checked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from kernelyard import __version__
from kernelyard.build.git import repository_top
from kernelyard.build.project import selected
from kernelyard.build.selection import Selection
from kernelyard.build.toolchain_lock import read_lock
from kernelyard.formats.variant import VariantName
from kernelyard.project.sources import read_project
from kernelyard.records import record
from kernelyard.store import writing
from kernelyard.toolchain.parts import HOST, PartSource

__all__ = ["WorkflowOptions", "github_actions", "write_workflow"]

_BLOCK = re.compile(r"^# <objects>\n(.*?)^# </objects>\n", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"@([a-z]+)@")


@record(frozen=True, slots=True)
class WorkflowOptions:
    """How the machines build.

    Attributes:
        variants: What is built, as globs over variant names or by more; nothing for what is built by default.
        platform: That is built for.
        jobs: Compilers at the same time; None for one per core.
        locked: Whether by ``toolchain.lock``.
        pinned_compiler: Whether with the fetched g++.
        cached: Whether objects are kept; of builds from a lock they never are.
    """

    variants: Selection | Sequence[str] = ()
    platform: str = HOST
    jobs: int | None = None
    locked: bool = False
    pinned_compiler: bool = False
    cached: bool = True

    def selection(self) -> list[str]:
        """Return the options that say what is built: the same for parts and for what they come to."""
        platform = [] if self.platform == HOST else ["--platform", self.platform]
        return [*Selection.of(self.variants).options(), *platform]

    def building(self) -> list[str]:
        """Return the options of a part but for its number."""
        return [
            *self.selection(),
            *(["--jobs", str(self.jobs)] if self.jobs is not None else []),
            *(["--locked"] if self.locked else []),
            *(["--pinned-compiler"] if self.pinned_compiler else []),
            *(["--no-cache"] if not self.cached else []),
        ]


def github_actions(root: Path, source: PartSource, options: WorkflowOptions, *, shards: int | None = None) -> str:
    """Return the workflow as YAML.

    Args:
        root: The project's folder.
        source: Says for which platform.
        options: What the machines build, and how.
        shards: On how many machines; None for one per toolkit.

    Raises:
        InputError: The manifest has mistakes, or the selection matches nothing.
        MissingError: It is to build by ``toolchain.lock``, and there is none (KY353).
    """
    locked = read_lock(root).selection if options.locked else ()
    variants = options.variants or locked
    chosen = selected(read_project(root), source, variants)
    count = shards or len({VariantName.parse(entry.name).compute for entry in chosen})
    folder = root.resolve().relative_to(repository_top(root).resolve()).as_posix()
    inside = "" if folder == "." else f"{folder}/"
    inputs = (f"{inside}build.toml", f"{inside}kernelyard.toml", f"{inside}toolchain.lock")
    values = {
        "version": __version__,
        "shards": str(count),
        "numbers": ", ".join(str(number) for number in range(1, count + 1)),
        # Text in double quotes is YAML as it is JSON.
        "folder": json.dumps(folder),
        "build": json.dumps(f"{inside}build"),
        "inputs": ", ".join(_quoted(name) for name in inputs),
        "options": _words(options.building()),
        "selection": _words(options.selection()),
    }
    keep_objects = options.cached and not options.locked
    template = (files("kernelyard.build") / "templates" / "github-actions.yml.in").read_text("utf-8")
    text = _BLOCK.sub(lambda block: block[1] if keep_objects else "", template)
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), text)


def write_workflow(path: Path, text: str) -> None:
    """Write a workflow to a file, whose folder is made where it is missing.

    Raises:
        EnvironmentProblemError: It cannot be written.
    """
    with writing(path, elsewhere="name with --output"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _words(options: Sequence[str]) -> str:
    return "".join(f"{shlex.quote(word)} " for word in options)


def _quoted(name: str) -> str:
    # As expressions of GitHub Actions write a text.
    return "'" + name.replace("'", "''") + "'"
