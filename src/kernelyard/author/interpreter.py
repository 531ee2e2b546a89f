"""The Python that a development environment stands on: the one that runs Kernelyard, the active one, a named one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelyard.errors import InputError
from kernelyard.load.system.description import System, describe_system, describe_torch
from kernelyard.records import record

__all__ = ["RECORD", "Interpreter", "find_interpreter"]

#: In an environment that Kernelyard has made: what it stands on, written last.
RECORD = "kernelyard.json"

#: What a folder of installed packages is called; all else on the module path is of the standard library or the user's.
_SITES = {"site-packages", "dist-packages"}
#: Run by other interpreters, which need not have Kernelyard.
_DESCRIBE = """
import importlib.metadata, importlib.util, json, os, re, sys, sysconfig
torch = importlib.util.find_spec("torch")
print(json.dumps({
    "version": sys.version_info[:3],
    "prefix": sys.prefix,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "path": sys.path,
    "torch": torch and torch.origin,
    "packages": {
        re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower(): found.version
        for found in importlib.metadata.distributions() if found.metadata["Name"]
    },
}))
"""


@record(frozen=True, slots=True)
class Interpreter:
    """A Python with what is installed in it.

    Attributes:
        python: The program.
        prefix: Its environment's folder.
        sites: The folders of its packages, in the order of its module path.
        system: The machine as kernels in it see it.
    """

    python: Path
    prefix: Path
    sites: tuple[Path, ...]
    system: System


def find_interpreter(named: str | None = None) -> Interpreter:
    """Return the Python that an author works with.

    Kernelyard may be installed apart from it: where the Python that runs this has no torch and that of the active
    environment has, it is the latter.

    Args:
        named: A program, on ``PATH`` or by its path, that is meant instead.

    Raises:
        InputError: What is named is no Python (KY405).
    """
    if named is not None:
        return _ask(named)
    own = Interpreter(Path(sys.executable), Path(sys.prefix), _sites(sys.path), describe_system())
    active = os.environ.get("VIRTUAL_ENV")
    if own.system.torch is not None or active is None or Path(active).resolve() == Path(sys.prefix).resolve():
        return own
    try:
        other = _ask(_below(Path(active)))
    except InputError:
        return own  # the environment was removed while it was active
    return other if other.system.torch is not None else own


def _below(environment: Path) -> str:
    """Return the Python of an environment or, of one that Kernelyard has made, the one that it stands on."""
    try:
        return str(json.loads((environment / RECORD).read_bytes())["python"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(environment / "bin" / "python")


def _ask(named: str) -> Interpreter:
    program = shutil.which(named)
    # Whole, and with its links: `bin/python` of an environment is one, and says which environment it is by its place.
    python = Path(program or named).absolute()
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    try:
        done = subprocess.run(
            [python, "-c", _DESCRIBE], capture_output=True, check=True, text=True, timeout=60, env=environment
        )
        told = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        hint = "name an interpreter, such as .venv/bin/python"
        raise InputError("KY405", f"{named} is no Python: {error}", hint=hint) from None
    return Interpreter(python, Path(told["prefix"]), _sites(told["path"]), _system(told))


def _system(told: dict[str, Any]) -> System:
    packages: dict[str, str] = told["packages"]
    origin = told["torch"]
    return replace(
        describe_system(),
        python=tuple(told["version"][:2]),
        free_threaded=told["free_threaded"],
        torch=describe_torch(Path(origin).parent, version=packages.get("torch")) if origin else None,
        tvm_ffi=packages.get("apache-tvm-ffi"),
        packages=tuple(packages.items()),
    )


def _sites(path: list[str]) -> tuple[Path, ...]:
    return tuple(Path(entry) for entry in path if Path(entry).name in _SITES and Path(entry).is_dir())
