"""What comes back from other machines: unpacked aside, held against its digests, and only then put into ``build/``."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelyard.build.group import WORK_FOLDER
from kernelyard.build.merge import VerifiedVariant, put_together, verified
from kernelyard.build.progress import Work
from kernelyard.build.project import BuiltVariant
from kernelyard.build.source_state import SourceState
from kernelyard.errors import EnvironmentProblemError, KernelyardError, Place, VerificationError
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.paths import checked_path
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.sources import Project
from kernelyard.records import record
from kernelyard.store import writing

__all__ = ["Part", "WorkerError", "keep_logs", "receive", "worker_failure"]

_ERROR = re.compile(r"^kernelyard: (?P<said>.*?)(?:\n  `kernelyard explain [^\n]*)?\Z", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\[(KY[0-9]{3})\]")
_LINES_SHOWN = 12


@record(frozen=True, slots=True)
class Part:
    """What one task builds.

    Attributes:
        number: Of the part, from 1.
        names: Of its variants.
    """

    number: int
    names: tuple[str, ...]


class WorkerError(KernelyardError):
    """What a build on another machine ended with, as it said it: the place and the next step are in the text."""

    def __init__(self, code: str, said: str, status: int) -> None:
        super().__init__(code, said)
        self.exit_code = status

    def __str__(self) -> str:
        return self.what


def receive(
    project: Project, part: Part, answer: Mapping[str, Any], worker: str, state: SourceState
) -> tuple[BuiltVariant, ...]:
    """Put what a task has built into ``build/``.

    Args:
        project: The author's.
        part: What was asked for.
        answer: Of :func:`kernelyard.build.remote.worker.build_part`.
        worker: Its address, for messages.
        state: Of the sources that were sent, which the worker does not know.

    Raises:
        VerificationError: It is not what the worker said that it is, or not what was asked for (KY441).
        KernelyardError: What :func:`kernelyard.build.merge.put_together` raises.
    """
    if hashlib.sha256(answer["archive"]).hexdigest() != answer["sha256"]:
        raise _not_it("what came back is not what was sent", worker)
    # Not below the project: a build that starts there clears what others have left.
    temporary = Path(tempfile.gettempdir())
    with writing(temporary, elsewhere="point TMPDIR to"), tempfile.TemporaryDirectory(prefix="kernelyard-") as aside:
        folder = Path(aside).resolve() / "build"
        folder.mkdir()
        _unpack(answer["archive"], folder, worker)
        told = _told(answer["result"], worker)
        came = verified(folder)
        if {variant.name for variant in came} != set(part.names) or told.keys() != set(part.names):
            raise _not_it(f"other variants came back than {', '.join(part.names)}", worker)
        for variant in came:
            digest = variant.folder.entry().digest
            if told[variant.name]["digest"] != digest:
                raise _not_it(f"{variant.name} has another digest than the worker told", worker)
        stated = [_with_state(variant, state) for variant in came]
        merged = put_together(project, stated)
    return tuple(BuiltVariant(one.entry.name, one.path, one.entry, _work(told[one.entry.name])) for one in merged)


def worker_failure(answer: Mapping[str, Any], root: Path, part: Part, worker: str) -> KernelyardError:
    """Return what a build ended with on another machine, as the same build here would have."""
    said = str(answer["said"]).strip()
    if answer["step"] == "environment":
        lines = "".join(f"\n  {line}" for line in said.splitlines()[-_LINES_SHOWN:])
        return EnvironmentProblemError(
            "KY455",
            f"{worker} cannot make an environment with Kernelyard{lines}",
            hint="it needs Python 3.10 or newer with venv and pip, and a package index: PIP_INDEX_URL there names one",
            place=Place(worker),
        )
    found = _ERROR.search(said)
    text = found["said"] if found else "\n  ".join(said.splitlines()[-_LINES_SHOWN:])
    code = _CODE.search(text)
    text = text.replace(f"{answer['root']}/{WORK_FOLDER}/", f"{_logs(root, part)}/")
    text = text.replace(str(answer["root"]), shown_path(root))
    return WorkerError(code[1] if code else "KY456", f"{text}\n  on {worker}", int(answer["status"]))


def keep_logs(answer: Mapping[str, Any], root: Path, part: Part) -> None:
    """Keep the logs of a build on another machine, where its messages say that they are; those of earlier builds go."""
    shutil.rmtree(_logs(root, part), ignore_errors=True)
    for name, text in answer["logs"].items():
        path = _logs(root, part) / checked_path(name)
        with writing(root, elsewhere=MOVE_PROJECT):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def _logs(root: Path, part: Part) -> Path:
    return root / WORK_FOLDER / "workers" / str(part.number)


def _unpack(archive: bytes, folder: Path, worker: str) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            for about in packed:
                content = packed.extractfile(about) if about.isreg() else None
                if content is None:
                    raise _not_it(f"something else than a file came back: {about.name!r}", worker)
                path = folder / checked_path(about.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("xb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, ValueError) as error:
        raise _not_it(f"what came back cannot be read: {error}", worker) from None


def _told(result: str, worker: str) -> dict[str, dict[str, Any]]:
    try:
        return {str(one["variant"]): {"digest": str(one["digest"]), **one} for one in json.loads(result)}
    except (ValueError, TypeError, KeyError):
        raise _not_it("what the build printed is not what `build --json` prints", worker) from None


def _with_state(variant: VerifiedVariant, state: SourceState) -> VerifiedVariant:
    """Say where the sources stand in their repository: the worker had them without it."""
    path = variant.folder.path / "metadata.json"
    metadata = Metadata.from_json(path.read_bytes(), path=str(path))
    made = replace(metadata.made, dirty=state.dirty) if metadata.made is not None else None
    text = replace(metadata, source_commit=state.commit, made=made).to_json()
    path.write_bytes(text)
    (again,) = verified(variant.folder.path)
    return again


def _work(told: Mapping[str, Any]) -> Work:
    return Work(int(told.get("compiled", 0)), int(told.get("cached", 0)), float(told.get("seconds", 0.0)))


def _not_it(what: str, worker: str) -> VerificationError:
    hint = "see who else can write there, and build again"
    return VerificationError("KY441", what, hint=hint, place=Place(worker))


def parts_of(partition: Sequence[Sequence[str]]) -> tuple[Part, ...]:
    """Return the parts of a build that have anything to build."""
    return tuple(Part(number, tuple(names)) for number, names in enumerate((one for one in partition if one), 1))
