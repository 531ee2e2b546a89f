"""All that an author's commands run in: the environment, its variables, and the kernel built and importable."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kernelyard.author.choice import Choice, choose_variant
from kernelyard.author.interpreter import find_interpreter
from kernelyard.author.work_environment import WorkEnvironment, provide_environment
from kernelyard.build.project import WORK_FOLDER, build_project
from kernelyard.build.toolchain_lock import LOCK_FILE, check_current, read_lock
from kernelyard.errors import EnvironmentProblemError, KernelyardError
from kernelyard.formats.facts import Facts
from kernelyard.formats.versions import Version
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.project.sources import Project, read_project
from kernelyard.records import record
from kernelyard.store import Store, writing
from kernelyard.toolchain.host import find_tools
from kernelyard.toolchain.local_cuda import find_toolkit
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_cuda

__all__ = ["Workplace", "build", "importable", "open_workplace", "requirements_of", "variables"]

_logger = logging.getLogger("kernelyard.author")


@record(frozen=True, slots=True)
class Workplace:
    """What commands of an author run in.

    Attributes:
        kernel: The kernel's name.
        choice: The variant that is worked on.
        environment: The virtual environment.
        programs: The folders that come first on its ``PATH``.
        variables: All environment variables.
    """

    kernel: str
    choice: Choice
    environment: WorkEnvironment
    programs: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def said(self) -> str:
        """Say in a sentence what this is."""
        torch = self.environment.torch
        with_torch = f"torch {torch.version} of {self.environment.torch_from}" if torch is not None else "no torch"
        obstacle = f" It is only to be built here: {self.choice.obstacle}" if self.choice.obstacle else ""
        return f"{self.kernel}: {self.choice.variant} with {with_torch}.{obstacle}"


def open_workplace(
    root: Path,
    *,
    patterns: Sequence[str] = (),
    torch: Version | None = None,
    python: str | None = None,
    download: bool = True,
    compiling: bool = True,
) -> Workplace:
    """Make everything ready to work on a kernel, but do not build it.

    Args:
        root: The project's folder.
        patterns: Globs over variant names; the best of what they match is worked on.
        torch: The torch to work with; None takes that at hand where it serves.
        python: The interpreter whose torch is meant; None for this one, or that of the active environment.
        download: Whether torch and other packages may be fetched.
        compiling: Whether anything is to be compiled: a toolkit that is not there is fetched for that only.

    Raises:
        InputError: The manifest has mistakes, or no variant is meant (KY401, KY402, KY741).
        MissingError: Something is to be fetched and may not be (KY742).
        EnvironmentProblemError: The environment cannot be made; compiler, network, disk or permissions.
    """
    root = root.resolve()
    project, store = read_project(root), Store.default()
    base = find_interpreter(python)
    choice = choose_variant(project, base.system, PartSource(store), patterns=patterns, torch=torch)
    environment = provide_environment(
        root,
        base,
        store,
        name=project.manifest.general.name,
        torch=choice.torch,
        requirements=requirements_of(choice.facts),
        download=download,
    )
    source = _source(root, store, choice.variant)
    tools = _provide_tools(environment, source)
    toolkit = _toolkit(choice.facts, source, fetch=compiling)
    kernel = importable(project, choice.variant)
    if not tools:
        _logger.info("CMake and Ninja are not installed: pip install 'kernelyard[build]'")
    name = project.manifest.general.name
    own = {"VIRTUAL_ENV_PROMPT": name, "KERNELYARD_VARIANT": choice.variant}
    programs = _programs(environment, toolkit)
    return Workplace(name, choice, environment, programs, variables(environment, kernel, toolkit) | own)


def build(root: Path, workplace: Workplace) -> None:
    """Build the variant of a workplace; what has not changed is not compiled again.

    Raises:
        KernelyardError: As :func:`kernelyard.build.project.build_project` does.
    """
    # The object cache costs more than it saves where the same file is compiled over and over.
    build_project(root, source=PartSource(Store.default()), variants=[workplace.choice.variant], cached=False)


def requirements_of(facts: Facts) -> tuple[str, ...]:
    """Return what a variant needs beside torch, as of PEP 508."""
    own = tuple(name for name in facts.requirements or () if not name.startswith(("torch", "apache-tvm-ffi")))
    if facts.framework == "tvm-ffi":
        return f"apache-tvm-ffi=={facts.framework_version}.*", *own
    return own


def importable(project: Project, variant: str) -> Path:
    """Return a folder for the module path, from which a variant is imported by the name of the kernel's package.

    It is what an installation would be: a link to the variant's folder, which builds replace.
    """
    name = project.manifest.general.python_name
    folder = project.root / WORK_FOLDER / "importable" / variant
    target = f"../../../build/{variant}"
    with writing(folder, elsewhere=MOVE_PROJECT):
        folder.mkdir(parents=True, exist_ok=True)
        _link(folder / name, target)
    return folder


def variables(environment: WorkEnvironment, kernel: Path, toolkit: Path | None = None) -> dict[str, str]:
    """Return the variables of this process, changed as little as the environment asks for.

    Args:
        environment: Whose programs come first.
        kernel: The folder from which the kernel is imported.
        toolkit: The CUDA toolkit.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    if toolkit is not None:
        kept["CUDA_HOME"] = kept["CUDA_PATH"] = str(toolkit)
    programs = _programs(environment, toolkit)
    path = [*programs, *(entry for entry in kept.get("PATH", os.defpath).split(os.pathsep) if entry not in programs)]
    modules = [str(kernel), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(modules)),
        "VIRTUAL_ENV": str(environment.folder),
    }


def _programs(environment: WorkEnvironment, toolkit: Path | None) -> tuple[str, ...]:
    folders = (environment.folder, *([toolkit] if toolkit is not None else []))
    return tuple(str(folder / "bin") for folder in folders)


def _source(root: Path, store: Store, variant: str) -> PartSource:
    """Return where tools come from: from what the project's lock names, where it has the variant."""
    if not (root / LOCK_FILE).exists():
        return PartSource(store)
    try:
        lock = read_lock(root)
        check_current(lock, PartSource(store).platform)
    except KernelyardError as error:
        _logger.warning("%s is left aside: %s", LOCK_FILE, error.what)
        return PartSource(store)
    if variant not in lock.variants:
        _logger.warning("%s is left aside: it does not have %s", LOCK_FILE, variant)
        return PartSource(store)
    return PartSource(store, lock=lock)


def _provide_tools(environment: WorkEnvironment, source: PartSource) -> bool:
    """Put CMake and Ninja among the environment's programs; return whether they are there."""
    if source.lock is not None:
        tools = {name: source.tool(name)[0] for name in ("cmake", "ninja")}
    else:
        try:
            found = find_tools()
        except EnvironmentProblemError:
            return False
        tools = {"cmake": found.cmake, "ninja": found.ninja}
    for name, program in tools.items():
        if program.parent != environment.folder / "bin":
            _link(environment.folder / "bin" / name, str(program))
    return True


def _toolkit(facts: Facts, source: PartSource, *, fetch: bool) -> Path | None:
    version = facts.backend_version
    if facts.backend != "cuda" or version is None:
        return None
    if f"{version.major}.{version.minor}" in known_cuda() and (fetch or source.has_cuda(version)):
        return source.cuda(version).root
    found = find_toolkit(version)
    return found.root if found is not None else None


def _link(path: Path, target: str) -> None:
    with suppress(OSError):
        if os.fspath(path.readlink()) == target:
            return
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    aside.symlink_to(target)
    aside.replace(path)
