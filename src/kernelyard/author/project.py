"""The project that an author works in: CMake's and pip's files for one variant, of the torch that is installed here.

It is the project that ``build`` compiles, for one variant and with the same toolchain, and what ``pip install -e .``
needs beside it. A kernel that is installed from it is called ``dev``: one that was built for publication and is loaded
in the same process has another name, so neither gets in the other's way.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelyard.build.alone import alone
from kernelyard.build.generate_step import run_steps
from kernelyard.build.identity import header_libraries
from kernelyard.build.matrix import default_cuda, has_old_string, within
from kernelyard.build.project import ASIDE, WORK_FOLDER, refuse_odd_path
from kernelyard.check.files import EXTENSION_FILE
from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.formats.manifest import Manifest, TorchNoarch, TorchSettings, TvmFfiSettings
from kernelyard.formats.tables import nearest
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.project.cmake_lists import MACHINE_FOLDER, render_cmake_lists
from kernelyard.project.describe import describe_build
from kernelyard.project.generate import MOVE_PROJECT, extension_name_files, project_files, render_ops
from kernelyard.project.installed_torch import InstalledTorch, find_installed_torch
from kernelyard.project.machine_files import machine_files, machine_files_of_torch
from kernelyard.project.pip_files import pip_files
from kernelyard.project.plan import VariantPlan, plan_variant
from kernelyard.project.sources import Project, read_project
from kernelyard.project.written_files import write_recorded
from kernelyard.records import record
from kernelyard.store import writing
from kernelyard.toolchain.assemble import assemble
from kernelyard.toolchain.headers import TorchHeaders
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_cuda, known_torch

__all__ = ["GeneratedProject", "generate_project"]

_logger = logging.getLogger("kernelyard.author")

#: Where the project is written by default, and where objects go of one that stands beside the sources.
_FOLDER, _OBJECTS = f"{WORK_FOLDER}/project", f"{WORK_FOLDER}/in-place"
_TVM_FFI = Version("0.1")
#: The newest of each that torch has builds for; for the name of a variant on a machine that has none.
_NEWEST = {"rocm": Version("7.2"), "xpu": Version("2026.0")}
_BUILT_HERE = ("cpu", "cuda")
#: Prints the folder that an interpreter would import torch from, and imports nothing.
_WHERE_TORCH_IS = (
    "import importlib.util, pathlib; spec = importlib.util.find_spec('torch'); "
    "print(pathlib.Path(spec.origin).parents[1] if spec and spec.origin else '')"
)
_RELEASE = re.compile(r"\d+(\.\d+)*(\+.*)?", re.ASCII)


@record(frozen=True, slots=True)
class GeneratedProject:
    """A project that was generated.

    Attributes:
        folder: Where it stands.
        variant: What it builds.
        headers: What it is compiled against, in words; None where nothing is compiled, or where it cannot be here.
        files: All its files, relative to ``folder``.
        changed: Those that were not there before or had another text.
        complete: Whether it can be compiled here: what names this machine is among the files, or not needed.
    """

    folder: Path
    variant: str
    headers: str | None
    files: tuple[str, ...]
    changed: frozenset[str]
    complete: bool


@record(frozen=True, slots=True)
class _Target:
    """What the project is for.

    Attributes:
        variant: The variant.
        headers: The version of torch or tvm-ffi to plan with; None for noarch.
        torch: The installed torch whose files are used; None for those that are fetched, or for none.
    """

    variant: VariantName
    headers: Version | None
    torch: InstalledTorch | None


def generate_project(
    root: Path,
    *,
    source: PartSource,
    in_place: bool = False,
    backend: str | None = None,
    torch: Version | None = None,
    python: str | None = None,
    capabilities: Sequence[str] = (),
    force: bool = False,
) -> GeneratedProject:
    """Write the project of a kernel for one variant.

    Args:
        root: The kernel's folder.
        source: Provides toolkits and headers.
        in_place: Whether it is written beside the sources, in place of a folder of its own.
        backend: Of the variant; None for that of the installed torch.
        torch: The version to compile against, whose headers are fetched; None for the installed torch.
        python: The interpreter whose torch is meant; None for this one, or that of the active environment.
        capabilities: CUDA capabilities to compile for in place of the manifest's.
        force: Whether files of the author's that are in the way are replaced.

    Raises:
        InputError: The manifest has mistakes, has no such backend (KY401), or files are in the way (KY404).
        EnvironmentProblemError: The installed torch does not fit (KY405); compiler, network, disk or permissions.
    """
    root = root.resolve()
    refuse_odd_path(root, source.store.root)
    project = read_project(root)
    installed = None if torch is not None else find_installed_torch(_site_of(python))
    if python is not None and installed is None:
        raise EnvironmentProblemError(
            "KY405", f"{python} has no torch", hint="name the headers to fetch with --torch X.Y"
        )
    own_cuda = source.cuda_home.version if source.cuda_home is not None else None
    target = _choose(project.manifest, source.platform, installed, backend, torch, own_cuda=own_cuda)
    folder = root if in_place else root / _FOLDER
    plan = plan_variant(project, target.variant, target.headers, only=capabilities)
    for decision in plan.decisions:
        _logger.warning("%s: %s", plan.name, decision)
    with writing(root / WORK_FOLDER, elsewhere=MOVE_PROJECT):
        root.joinpath(WORK_FOLDER).mkdir(exist_ok=True)
    with alone(root / WORK_FOLDER / "lock"):
        run_steps(project, [target.variant], aside=root / WORK_FOLDER / ASIDE)
        of_machine = dict(_machine_files(source, plan, target)) if plan.compiled else {}
        texts = _texts(project, plan, in_place=in_place, complete=bool(of_machine))
        links = {"compile_commands.json": f"{_OBJECTS}/compile_commands.json"} if in_place and plan.compiled else {}
        if of_machine:
            of_machine[f"{MACHINE_FOLDER}/.gitignore"] = "*\n"
        changed = write_recorded(root, folder, {**texts, **of_machine}, links, force=force)
        if f"{MACHINE_FOLDER}/toolchain.cmake" in changed:
            # CMake would go on with the compilers that it found before.
            (root / (_OBJECTS if in_place else f"{_FOLDER}/objects") / "CMakeCache.txt").unlink(missing_ok=True)
    names = tuple(sorted({**texts, **of_machine, **links}))
    headers = _described(plan, target) if of_machine else None
    return GeneratedProject(folder, plan.name, headers, names, changed, bool(of_machine) or not plan.compiled)


def _texts(project: Project, plan: VariantPlan, *, in_place: bool, complete: bool) -> dict[str, str]:
    """Return path in the generated project -> text, for all that is of no machine."""
    up = "." if in_place else "/".join([".."] * len(Path(_FOLDER).parts))
    name = f"_{project.manifest.general.python_name}_{plan.backend}_dev"
    objects = _OBJECTS if in_place else "objects"
    folder = f"cmake/variants/{plan.name}" if plan.compiled else f"{objects}/{plan.name}"
    texts = {
        f"{folder}/_ops.py": render_ops(plan.framework, name),
        f"{folder}/metadata.json": describe_build(project, plan, name).to_json().decode(),
        **pip_files(project, plan, up=up, objects=objects, variant_folder=folder, complete=complete),
    }
    if not plan.compiled:
        return texts
    extension = EXTENSION_FILE[plan.framework].format(name)
    texts["CMakeLists.txt"] = render_cmake_lists(project, [plan], up, install=extension)
    named = {} if plan.tvm_ffi else extension_name_files(plan.name, name)
    return texts | project_files(project, [plan]) | named


def _machine_files(source: PartSource, plan: VariantPlan, target: _Target) -> Mapping[str, str]:
    """Return the files that name what this machine has; none where it has nothing for the backend."""
    if plan.backend not in _BUILT_HERE:
        return machine_files_of_torch(target.torch, plan.backend, header_libraries(plan)) if target.torch else {}
    torch: Version | TorchHeaders | None = Version(plan.torch) if plan.torch else None
    if plan.torch and target.torch is not None:
        torch = _headers_of(target.torch)
    toolchain = assemble(
        source,
        backend=plan.backend,
        cuda=target.variant.backend_version,
        torch=[torch] if torch is not None else [],
        stable_abi=Version(plan.stable_abi) if plan.stable_abi else None,
        libraries=header_libraries(plan),
        linked=plan.link,
        floor=plan.floor,
    )
    return machine_files(toolchain)


def _headers_of(torch: InstalledTorch) -> TorchHeaders:
    nightly = _RELEASE.fullmatch(torch.build) is None
    return TorchHeaders(torch.version, torch.folder / "include", torch.cxx_standard, f"of {torch.build}", nightly)


def _described(plan: VariantPlan, target: _Target) -> str:
    if target.torch is not None:
        return f"torch {target.torch.build}, as installed in {target.torch.folder.parent}"
    if not plan.torch:
        return f"the headers of tvm-ffi {plan.tvm_ffi}"
    return f"the headers of torch {plan.torch}, which were fetched"


def _choose(
    manifest: Manifest,
    platform: str,
    installed: InstalledTorch | None,
    backend: str | None,
    torch: Version | None,
    *,
    own_cuda: Version | None = None,
) -> _Target:
    """Choose the variant: that of the installed torch where the kernel has it."""
    chosen = _choose_backend(manifest, installed, backend)
    settings = manifest.framework
    if isinstance(settings, TorchNoarch):
        return _Target(VariantName("torch-noarch", None, None, chosen, None, "", ""), None, None)
    cpu, os_name = ("aarch64", "darwin") if chosen == "metal" else platform.split("-")
    used = installed if installed is not None and installed.serves(chosen) else None
    if isinstance(settings, TvmFfiSettings):
        version, headers, used = _TVM_FFI, _TVM_FFI, None if chosen in _BUILT_HERE else used
    else:
        headers = _torch_version(settings, chosen, torch, used=used, installed=installed)
        version = settings.stable_abi.get(chosen, headers)
    framework = manifest.framework_of(chosen)
    variant = VariantName(
        framework=framework,
        framework_version=version,
        cxx11_abi=_has_cxx11_abi(headers, platform, used) if framework == "torch" and os_name == "linux" else None,
        backend=chosen,
        backend_version=own_cuda if chosen == "cuda" and own_cuda is not None else _backend_version(chosen, installed),
        cpu=cpu,
        os=os_name,
    )
    return _Target(variant, headers, used)


def _has_cxx11_abi(headers: Version, platform: str, used: InstalledTorch | None) -> bool:
    """Whether the std::string is that of C++11: of the torch that is used, or of the wheel whose headers are."""
    if used is not None and used.cxx11_abi is not None:
        return used.cxx11_abi
    return not has_old_string(headers, platform)


def _choose_backend(manifest: Manifest, installed: InstalledTorch | None, backend: str | None) -> str:
    backends = manifest.general.backends
    if backend is not None:
        if backend not in backends:
            hint = nearest(backend, backends) or f"the manifest has {', '.join(backends)}"
            raise InputError("KY401", f"the kernel has no backend {backend!r}", hint=hint)
        return backend
    if installed is not None and installed.backend in backends:
        return installed.backend
    if installed is not None and "cpu" in backends:
        return "cpu"
    return next((name for name in _BUILT_HERE if name in backends), backends[0])


def _torch_version(
    settings: TorchSettings,
    backend: str,
    torch: Version | None,
    *,
    used: InstalledTorch | None,
    installed: InstalledTorch | None,
) -> Version:
    """Return the version of torch to compile against, two numbers.

    Without one that is asked for or can be used: the version that is installed, though for another backend; else the
    oldest promised of a stable-ABI build, as `build` takes it, and the newest of others.
    """
    least, most = settings.minver, settings.maxver
    target = settings.stable_abi.get(backend)
    fitting = [version for version in map(Version, known_torch()) if _fits(version, least, most, target)]
    if torch is None and used is None:
        if not fitting:
            hint = f"supported are {', '.join(known_torch())}"
            raise EnvironmentProblemError("KY405", "no supported torch is in the manifest's bounds", hint=hint)
        if installed is not None and _two_numbers(installed.version) in fitting:
            return _two_numbers(installed.version)
        return max(fitting) if target is None else min(fitting)
    chosen = _two_numbers(torch if torch is not None else used.version if used is not None else max(fitting))
    if not _fits(chosen, least, most, target):
        asked = " and ".join(
            [f"stable-abi {target}"] * (target is not None)
            + [f"minver {least}"] * (least is not None)
            + [f"maxver {most}"] * (most is not None)
        )
        hint = f"for another one say --torch {max(fitting)}" if fitting else "see minver, maxver and stable-abi"
        place = Place("build.toml", key="torch")
        raise EnvironmentProblemError("KY405", f"torch {chosen} does not fit {asked}", hint=hint, place=place)
    return chosen


def _fits(version: Version, least: Version | None, most: Version | None, target: Version | None) -> bool:
    return within(version, least, most) and (target is None or version >= target)


def _two_numbers(version: Version) -> Version:
    return Version(f"{version.major}.{version.minor}")


def _backend_version(backend: str, installed: InstalledTorch | None) -> Version | None:
    """Return the version of the toolkit: of CUDA the newest known one with the major version of the installed torch."""
    of_torch = installed.backend_version if installed is not None and installed.backend == backend else None
    if backend != "cuda":
        return of_torch or _NEWEST.get(backend)
    if of_torch is None:
        return default_cuda()
    known = sorted(map(Version, known_cuda()))
    same_major = [version for version in known if version.major == of_torch.major]
    # None known: the message about a toolkit that cannot be had says the rest.
    return max((version for version in same_major if version <= of_torch), default=(same_major or [of_torch])[0])


def _site_of(python: str | None) -> Path | None:
    """Return where an interpreter's packages are; None for the one that runs this."""
    if python is None:
        active = os.environ.get("VIRTUAL_ENV")
        if active is None or find_installed_torch() is not None:
            return None
        # Kernelyard may be installed on its own, apart from the environment that an author works in.
        return next(iter(sorted(Path(active).glob("lib/python3*/site-packages"))), None)
    program = shutil.which(python)
    command = [program or python, "-c", _WHERE_TORCH_IS]
    try:
        said = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(
            "KY405", f"{python} is no Python: {error}", hint="name an interpreter, such as .venv/bin/python"
        ) from None
    return Path(said.strip() or os.devnull)
