"""The author's own tests against each variant that was built, each in an environment with the torch it is for."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Literal

from kernelyard.author import pytest_counts
from kernelyard.author.choice import choose_variant, judge_with, torch_for
from kernelyard.author.interpreter import Interpreter, find_interpreter
from kernelyard.author.work_environment import WorkEnvironment, provide_environment
from kernelyard.author.workplace import importable, requirements_of, variables
from kernelyard.build.project import build_project
from kernelyard.errors import InputError, KernelyardError, MissingError, Place
from kernelyard.formats.tables import nearest
from kernelyard.hub.folder import FolderHub, FolderVariant
from kernelyard.project.sources import Project, read_project
from kernelyard.records import record
from kernelyard.store import Store
from kernelyard.toolchain.parts import PartSource

__all__ = ["TestRun", "run_tests"]

_logger = logging.getLogger("kernelyard.author")

#: What pytest exits with when it found no tests.
_NONE_FOUND = 5
_TESTS = "tests"


@record(frozen=True, slots=True)
class TestRun:
    """What came of the tests of one variant.

    Attributes:
        variant: Its name.
        torch: The torch that they ran with; None where they did not run.
        status: What pytest exited with; None where the tests did not run.
        passed: How many tests passed.
        failed: How many failed, or could not even begin.
        skipped: How many were skipped.
        seconds: How long pytest took.
        reason: Why they did not run, or did not end as they should, as a sentence; empty where there is nothing to say.
    """

    __test__ = False

    variant: str
    torch: str | None = None
    status: int | None = None
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def outcome(self) -> Literal["passed", "failed", "not run"]:
        """What it comes to; that no test was found is a failure."""
        if self.status is None:
            return "not run"
        return "passed" if self.status == 0 else "failed"


def run_tests(
    root: Path,
    *,
    patterns: Sequence[str] = (),
    python: str | None = None,
    build: bool = False,
    others: bool = False,
    download: bool = True,
    arguments: Sequence[str] = (),
    quiet: bool = False,
) -> Iterator[TestRun]:
    """Run the tests of a project against its built variants, and yield what came of each, in the order of their names.

    Args:
        root: The project's folder.
        patterns: Globs over variant names; none for those that run with the torch at hand.
        python: The interpreter whose torch is at hand; None for this one, or that of the active environment.
        build: Whether to build what is meant first: of no globs, the best variant with the torch at hand.
        others: Whether variants that want another torch are tried as well; those that are asked for by name are.
        download: Whether what is missing may be fetched.
        arguments: For pytest.
        quiet: Whether pytest's output goes to stderr.

    Raises:
        InputError: The manifest has mistakes, or a glob matches nothing that was built (KY401).
        MissingError: Nothing was built (KY607), or there are no tests (KY746).
        KernelyardError: As :func:`kernelyard.build.project.build_project` does, where it is to be built.
    """
    root = root.resolve()
    project = read_project(root)
    if not (root / _TESTS).is_dir() and not arguments:
        hint = f"pytest looks for test_*.py in {_TESTS}/; `kernelyard init` makes some that show how"
        raise MissingError("KY746", "the kernel has no tests", hint=hint, place=Place(str(root / _TESTS)))
    base = find_interpreter(python)
    if build:
        source = PartSource(Store.default())
        wanted = patterns or [choose_variant(project, base.system, source).variant]
        build_project(root, source=source, variants=wanted)
    chosen = _chosen(root, patterns)
    options = _Options(tuple(arguments), others=others or bool(patterns), download=download, quiet=quiet)
    for variant in chosen:
        yield _tried(project, variant, base, options)


@record(frozen=True, slots=True)
class _Options:
    arguments: tuple[str, ...]
    others: bool
    download: bool
    quiet: bool


def _chosen(root: Path, patterns: Sequence[str]) -> list[FolderVariant]:
    found = FolderHub.find(root)
    if found is None or not found.variants:
        hint = f"kernelyard build {quote(str(root))}, or pass --build"
        raise MissingError("KY607", "nothing is built yet", hint=hint, place=Place(str(root / "build")))
    for broken in found.broken:
        _logger.warning("%s is left out: %s", broken.name, broken.reason)
    if not patterns:
        return list(found.variants)
    names = [variant.name for variant in found.variants]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            hint = nearest(pattern, names) or f"built are {', '.join(names)}"
            raise InputError("KY401", f"no variant that was built matches {pattern!r}", hint=hint)
    return [one for one in found.variants if any(fnmatchcase(one.name, pattern) for pattern in patterns)]


def _tried(project: Project, variant: FolderVariant, base: Interpreter, options: _Options) -> TestRun:
    """Try one variant; what keeps it from being tried is no reason not to try the next."""
    facts = variant.facts
    here = judge_with(facts, base.system, base.system.torch) if base.system.torch is not None else None
    torch = None
    if here is None or not here.usable:
        torch = torch_for(facts)
        elsewhere = judge_with(facts, base.system, torch)
        if not elsewhere.usable:
            return TestRun(variant.name, reason=elsewhere.reason)
        if not options.others:
            reason = here.reason if here is not None else "There is no torch at hand."
            return TestRun(variant.name, reason=f"{reason} With --all, torch {torch} is fetched for it.")
    try:
        environment = provide_environment(
            project.root,
            base,
            Store.default(),
            name=project.manifest.general.name,
            torch=torch,
            requirements=requirements_of(facts),
            download=options.download,
        )
    except KernelyardError as error:
        return TestRun(variant.name, reason=f"{error.what[:1].upper()}{error.what[1:]}.")
    if torch is not None and environment.torch is not None:
        found = judge_with(facts, base.system, environment.torch)
        if not found.usable:
            return TestRun(variant.name, reason=f"That torch was installed, but: {found.reason}")
    return _run(project, variant, environment, options)


def _run(project: Project, variant: FolderVariant, environment: WorkEnvironment, options: _Options) -> TestRun:
    torch = environment.torch.version if environment.torch is not None else ""
    _logger.info("== %s with torch %s", variant.name, torch)
    own = {"KERNELYARD_VARIANT": variant.name, "KERNEL_BUILD": str(variant.path), "KERNEL_INSTALLED": "1"}
    if variant.facts.backend == "cpu":
        # It is for machines without a GPU: tests that look for one are not meant for it.
        own["CUDA_VISIBLE_DEVICES"] = ""
    with TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        command = [
            str(environment.python),
            "-m",
            "pytest",
            "-p",
            pytest_counts.__name__,
            *([] if _names_tests(project.root, options.arguments) else [_TESTS]),
            *options.arguments,
        ]
        started = time.monotonic()
        status = subprocess.run(
            command,
            cwd=project.root,
            env=variables(environment, importable(project, variant.name)) | own | {pytest_counts.COUNTS: str(counts)},
            stdout=sys.stderr if options.quiet else None,
            check=False,
        ).returncode
        seconds = time.monotonic() - started
        passed, failed, skipped = _read(counts)
    reason = "" if status in {0, 1} else _UNUSUAL.get(status, f"pytest exited with {status}.")
    if status == 0 and not passed:
        reason = "All were skipped: nothing was tried."
    return TestRun(variant.name, torch, status, passed, failed, skipped, seconds, reason)


#: What other statuses of pytest mean.
_UNUSUAL = {
    2: "The tests could not be collected, or were interrupted.",
    3: "pytest itself failed.",
    4: "pytest did not understand its arguments.",
    _NONE_FOUND: "No tests were found.",
}


def _names_tests(root: Path, arguments: Sequence[str]) -> bool:
    """Whether pytest is told itself where tests are."""
    return any((root / argument.partition("::")[0]).exists() for argument in arguments if not argument.startswith("-"))


def _read(counts: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped; nothing where pytest did not come that far."""
    try:
        told = json.loads(counts.read_bytes())
    except (OSError, ValueError):
        return 0, 0, 0
    return told["passed"], told["failed"], told["skipped"]
