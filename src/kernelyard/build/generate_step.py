"""Running the ``generate`` steps of a manifest: each once for each state of what it reads, and with nothing else.

A step runs in a fresh folder that holds copies of its inputs, so a file that it does not declare is not there and the
command fails at once, on the author's machine, and not with whoever builds it after them.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kernelyard.build.isolation import without_network
from kernelyard.errors import BuildError, Place
from kernelyard.formats.manifest import KernelSection
from kernelyard.formats.variant import VariantName
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.generated_files import Step, section_steps
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.plan import sections_of_variant
from kernelyard.project.sources import Project
from kernelyard.store import writing

__all__ = ["run_steps"]

_logger = logging.getLogger("kernelyard.build")

_LINES_SHOWN = 12
_PYTHON = ("python", "python3")
_HERMETIC = (
    "a step sees copies of its `inputs` and of the files that its command names, and nothing else of the project: "
    "list every file that it reads in `inputs`. It has no network, and of the environment PATH only"
)
#: Besides PATH. The last two are Python's: sets in the same order every time, and no packages of the user's home.
_ENVIRONMENT = {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1"}


def run_steps(project: Project, variants: Iterable[VariantName], *, aside: Path, locked: bool = False) -> None:
    """Write the files that sections of some variants generate, where they have not been written before.

    Args:
        project: The author's.
        variants: That will be built.
        aside: A folder on the project's file system, for what is not finished.
        locked: Whether the build is from a lock: files that are there are written anew then, for nobody vouches for
            them, and no program but Python is run.

    Raises:
        InputError: A file that a step reads is not there (KY208).
        BuildError: A command fails (KY416), does not write what it promises (KY415), or is not for a locked build
            (KY418).
        EnvironmentProblemError: The disk is full or a folder cannot be written.
    """
    sections = {section.name: section for variant in variants for section in sections_of_variant(project, variant)}
    for section in sections.values():
        for number, step in enumerate(section_steps(project.root, section)):
            program = step.generate.command[0]
            if locked and program not in _PYTHON:
                what = f"runs {program!r}, a program of this machine, and no lock names it"
                hint = "write it in Python, or generate the files beforehand and commit them"
                raise _error(project.root, step, "KY418", what, hint)
            if locked or not (project.root / step.folder).is_dir():
                with writing(project.root, elsewhere=MOVE_PROJECT):
                    _run_step(project.root, section, step, number, aside)


def _run_step(root: Path, section: KernelSection, step: Step, number: int, aside: Path) -> None:
    _logger.info("generating %s", ", ".join(step.generate.outputs))
    # Not below the project: `../../csrc/x.h` must not lead to it.
    with tempfile.TemporaryDirectory(prefix="kernelyard-generate-") as name:
        folder = Path(name).resolve()
        for inside, file in step.inputs.items():
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / file, folder / inside)  # with its permissions: it may be the program
        for output in step.generate.outputs:
            (folder / output).parent.mkdir(parents=True, exist_ok=True)
        _execute(root, step, folder)
        if section_steps(root, section)[number].key != step.key:
            raise _error(root, step, "KY416", "its inputs were changed while it ran", "build again")
        _keep(root, step, folder, aside / uuid.uuid4().hex)


def _execute(root: Path, step: Step, folder: Path) -> None:
    program, *arguments = step.generate.command
    if program in _PYTHON:
        program = sys.executable
    environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT}
    try:
        process = subprocess.Popen(
            [*without_network(), program, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _error(root, step, "KY416", f"cannot be run: {error}", _HERMETIC) from None
    with process:
        try:
            said, _ = process.communicate()
        except BaseException:
            # With all that it has started: nothing of it may go on writing.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = said.replace(str(folder), ".").strip().splitlines()[-_LINES_SHOWN:]
        shown = "".join(f"\n  {line}" for line in lines)
        raise _error(root, step, "KY416", f"failed with status {process.returncode}{shown}", _HERMETIC)


def _keep(root: Path, step: Step, folder: Path, aside: Path) -> None:
    """Put the outputs into their place: all of them or none."""
    final = root / step.folder
    missing = [output for output in step.generate.outputs if not _is_plain_file(folder / output)]
    if missing:
        hint = "`outputs` lists files that the command writes, relative to the folder that it runs in"
        raise _error(root, step, "KY415", f"did not write {', '.join(missing)}", hint)
    if final.is_dir():
        if all(_has_same(folder / output, final / output) for output in step.generate.outputs):
            return  # with their times: nothing need be compiled again
        shutil.rmtree(final)
    try:
        for output in step.generate.outputs:
            (aside / output).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / output, aside / output)
        final.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _has_same(one: Path, other: Path) -> bool:
    return _is_plain_file(other) and one.read_bytes() == other.read_bytes()


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _error(root: Path, step: Step, code: str, what: str, hint: str) -> BuildError:
    place = Place(shown_path(root / "build.toml"), key=f"kernel.{step.section}.generate")
    return BuildError(code, f"the step `{shlex.join(step.generate.command)}` {what}", hint=hint, place=place)
