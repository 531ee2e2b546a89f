"""What is on this machine for kernels, what is missing, and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernelyard import __version__
from kernelyard.errors import KernelyardError
from kernelyard.hub.http import without_password
from kernelyard.hub.offline import offline_variable
from kernelyard.load.choice.advice import Advice, advise
from kernelyard.load.choice.device_code import newest_ptx
from kernelyard.load.system.description import System, describe_system
from kernelyard.load.system.document import FORMAT, system_to_json
from kernelyard.load.system.packages import installed_packages
from kernelyard.records import record
from kernelyard.store import Store

__all__ = ["Examination", "examine"]

#: What decides where kernels come from and what is remembered; their values are shown.
_VARIABLES = (
    "KERNELYARD_HUB",
    "KERNELYARD_CACHE",
    "KERNELYARD_LAYERS",
    "KERNELYARD_TRUST_STORE",
    "KERNELYARD_OFFLINE",
    "KERNELYARD_FRESHNESS",
    "KERNELYARD_TIMEOUT",
    "KERNELYARD_POLICY",
    "KERNELYARD_LOCKFILE",
    "KERNELYARD_STATE",
    "LOCAL_KERNELS",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_OFFLINE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)
#: Of these it is only said whether they are set.
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_PROGRAMS = ("git", "git-lfs")
#: What the extra `build` brings, of the modules that the toolchain cannot do without.
_BUILD = ("requests", "pypi_simple")


@record(frozen=True, slots=True)
class Examination:
    """What was found.

    Attributes:
        system: This machine and Python, with all installed packages.
        hub: Where kernels come from that are asked for without naming one; None where that is no hub.
        policies: File of each policy that holds here -> whether it does, or what is wrong with it.
        store: The folder of the store; None where there can be none.
        layers: The read-only stores below it.
        variables: Environment variables that matter and are set -> value; of secrets ``(set)``.
        programs: Program -> what it says of its version; None where it is not there.
        author: What building takes of this machine, name -> what it is; None without the extra ``build``.
        advice: What stands in the way, the serious first.
    """

    system: System
    hub: str | None
    policies: dict[str, str]
    store: str | None
    layers: tuple[str, ...]
    variables: dict[str, str]
    programs: dict[str, str | None]
    author: dict[str, str] | None
    advice: tuple[Advice, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``--system FILE`` reads; it takes the member ``system`` and ``format``."""
        return {
            "format": FORMAT,
            "kernelyard": __version__,
            "system": system_to_json(self.system),
            "ptx-isa": str(newest_ptx(self.system.driver)) if self.system.driver is not None else None,
            "hub": self.hub,
            "policies": self.policies,
            "store": self.store,
            "layers": list(self.layers),
            "variables": self.variables,
            "programs": self.programs,
            "author": self.author,
            "advice": [asdict(advice) for advice in self.advice],
        }


def examine() -> Examination:
    """Look at this machine. Nothing is changed, and no hub is asked."""
    system = replace(describe_system(), packages=tuple(sorted(installed_packages().items())))
    store, layers, of_store = _store()
    hub, of_hub = _hub()
    laws, of_policies = _policies()
    programs = {name: _version_of(name) for name in _PROGRAMS}
    author = dict(_of_author()) if all(find_spec(module) is not None for module in _BUILD) else None
    advice = (*of_policies, *of_hub, *advise(system), *of_store, *_of_surroundings(programs, author))
    return Examination(
        system=system,
        hub=hub,
        policies=laws,
        store=store,
        layers=layers,
        variables=_variables(),
        programs=programs,
        author=author,
        advice=tuple(sorted(advice, key=lambda one: not one.serious)),
    )


def _store() -> tuple[str | None, tuple[str, ...], tuple[Advice, ...]]:
    from kernelyard.store.permissions import check_store

    try:
        store = Store.default()
        troubles = [trouble for root in (store.root, *store.layers) if (trouble := _refused(check_store, root))]
    except KernelyardError as error:
        return None, (), (Advice(f"There is no store: {error.what}.", error.hint),)
    advice = [_advice(error) for error in troubles]
    advice += [one for layer in store.layers if (one := _of_layer(layer)) is not None]
    if not _is_writable(store.root):
        advice.append(
            Advice(f"The store in {store.root} cannot be written.", "point KERNELYARD_CACHE to another folder")
        )
    return str(store.root), tuple(map(str, store.layers)), tuple(advice)


def _of_layer(layer: Path) -> Advice | None:
    if layer.is_dir():
        return None
    if layer.is_file():
        what = f"The layer {layer} is a file, from which nothing is loaded."
        return Advice(what, "unpack it, and name the folder in KERNELYARD_LAYERS")
    return Advice(f"There is no layer {layer}.", "mend the path in KERNELYARD_LAYERS, or take it out")


def _hub() -> tuple[str | None, tuple[Advice, ...]]:
    from kernelyard.hub import open_hub

    try:
        return open_hub().location, ()
    except KernelyardError as error:
        return None, (_advice(error),)


def _policies() -> tuple[dict[str, str], tuple[Advice, ...]]:
    from kernelyard.load.trust.policies import examined_policies

    found: dict[str, str] = {}
    advice: list[Advice] = []
    for path, one in examined_policies():
        if isinstance(one, KernelyardError):
            found[str(path)] = "has mistakes"
            first, _, rest = str(one).partition("\n")
            advice.append(Advice(f"Nothing is loaded before this policy is mended: {first}", rest.strip()))
        else:
            found[str(path)] = "holds" if one.may_consent else "holds, and only forbids: others may write it"
    return found, tuple(advice)


def _advice(error: KernelyardError) -> Advice:
    return Advice(f"{error.what[:1].upper()}{error.what[1:]}.", error.hint)


def _refused(check: Any, root: Any) -> KernelyardError | None:
    try:
        check(root)
    except KernelyardError as error:
        return error
    return None


def _is_writable(folder: Any) -> bool:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _variables() -> dict[str, str]:
    found = {name: without_password(os.environ[name]) for name in _VARIABLES if name in os.environ}
    return found | {name: "(set)" for name in _SECRETS if os.environ.get(name)}


def _version_of(program: str) -> str | None:
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    # git says `git version 2.39.5`, and git-lfs `git-lfs/3.4.0 (...)`.
    return done.stdout.partition("\n")[0].strip().removeprefix(f"{program} version ").removeprefix(f"{program}/")


def _of_author() -> Iterator[tuple[str, str]]:
    from kernelyard.toolchain.host import find_compiler, find_tools, tool_version
    from kernelyard.toolchain.local_cuda import found_toolkits

    try:
        compiler = find_compiler()
        yield "compiler", f"{compiler.kind} {compiler.version}, {compiler.path}"
    except KernelyardError as error:
        yield "compiler", f"none: {error.what}"
    try:
        tools = find_tools()
        yield "cmake", f"{tool_version(tools.cmake)}, {tools.cmake}"
        yield "ninja", f"{tool_version(tools.ninja)}, {tools.ninja}"
    except KernelyardError as error:
        yield "cmake", f"none: {error.what}"
    toolkits = [f"{found.version}, {found.root} (by {found.said_by})" for found in found_toolkits()]
    yield "CUDA", "; ".join(toolkits) or "no toolkit on this machine; builds fetch one"


def _of_surroundings(programs: dict[str, str | None], author: dict[str, str] | None) -> Iterator[Advice]:
    try:
        offline = offline_variable()
    except KernelyardError as error:
        offline = None
        yield _advice(error)
    if offline is not None:
        yield Advice(f"{offline} forbids to ask any hub.", f"unset {offline} to fetch what is not here", serious=False)
    if programs["git"] is not None and programs["git-lfs"] is None:
        what = "There is git and no git-lfs: kernels on git hubs whose files are in LFS cannot be fetched."
        yield Advice(what, "install git-lfs if you use such a hub", serious=False)
    if author is None:
        step = f"to build kernels: {os.path.basename(sys.executable)} -m pip install 'kernelyard[build]'"  # noqa: PTH119
        yield Advice("What building takes is not installed.", step, serious=False)
    elif author["compiler"].startswith("none"):
        yield Advice("There is no C++ compiler to build with.", "install g++ 11 or later", serious=False)
