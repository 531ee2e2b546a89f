"""What lets ``pip install -e .`` install a generated project: ``pyproject.toml``, and ``setup.py`` for old habits.

The build back-end is scikit-build-core. It runs CMake the way CMake's users know it (``CMAKE_ARGS``, launchers such as
ccache by CMake's own variables, ``CMAKE_BUILD_TYPE``), keeps the objects from one installation to the next, and makes
editable installations in which Python finds the author's files where they are, so that nothing has to be written into
the source folders. With setuptools all of that would be code of ours in ``setup.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import PurePosixPath

from kernelyard import __version__
from kernelyard.formats.python_depends import package_requirements
from kernelyard.project.describe import requirements
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project

__all__ = ["pip_files"]


def pip_files(
    project: Project, plan: VariantPlan, *, up: str, objects: str, variant_folder: str, complete: bool
) -> dict[str, str]:
    """Return path in the generated project -> text.

    Args:
        project: The author's.
        plan: Of the variant that is installed.
        up: The way from the generated project to the author's: ``../..``, or ``.``.
        objects: Where the objects are kept, relative to the generated project.
        variant_folder: Where ``_ops.py`` of the variant is, relative to the generated project.
        complete: Whether the torch is there that it is built with: of another one nothing is asked.
    """
    general = project.manifest.general
    package = PurePosixPath(up) / project.package.relative_to(project.root)
    values = {
        "version": __version__,
        "name": _toml(general.python_name),
        "kernel": general.name,
        "major": str(general.version),
        "dependencies": _toml(_dependencies(project, plan, complete=complete)),
        "package": _toml(str(package)),
        "ops": _toml(str(package / "_ops.py")),
        "backend": "".join(f"{line}\n" for line in _of_framework(project, plan, objects, variant_folder)),
    }
    return {
        "pyproject.toml": _filled("pyproject.toml.in", values),
        "setup.py": _filled("setup.py.in", {"below": "" if up == "." else f" / {_toml(up)}"}),
    }


def _of_framework(project: Project, plan: VariantPlan, objects: str, variant_folder: str) -> Iterable[str]:
    if not plan.compiled:
        package = project.manifest.general.python_name
        files = {f"{variant_folder}/{name}": f"{package}/{name}" for name in ("_ops.py", "metadata.json")}
        yield "wheel.cmake = false"
        yield f"wheel.force-include = {{{', '.join(f'{_toml(path)} = {_toml(to)}' for path, to in files.items())}}}"
        return
    # The Python part is for any Python; the extension keeps to the stable ABI, or, for tvm-ffi, knows no Python at all.
    yield f"wheel.py-api = {_toml('py3' if plan.tvm_ffi else 'cp39')}"
    yield f"build-dir = {_toml(objects)}"
    yield 'install.components = ["kernel"]'
    # In an isolated build scikit-build-core removes CMake's cache, with the folder that objects are in by default,
    # because paths into the former isolated environment may be in it. So the objects are elsewhere: CMake 4.2 can.
    yield 'cmake.version = ">=4.2"'
    yield 'cmake.define.CMAKE_INTERMEDIATE_DIR_STRATEGY = "SHORT"'


def _dependencies(project: Project, plan: VariantPlan, *, complete: bool) -> list[str]:
    from packaging.requirements import Requirement

    framework = "torch"
    if plan.tvm_ffi:
        framework = f"apache-tvm-ffi=={plan.tvm_ffi}.*"
    elif plan.stable_abi:
        framework = f"torch>={plan.stable_abi}"
    elif plan.torch and complete:
        framework = f"torch=={plan.torch}.*"
    others = package_requirements(requirements(project.manifest, plan.backend))
    name = Requirement(framework).name
    return [framework, *(text for text in others if text != name)]


def _toml(value: object) -> str:
    # Strings and lists of strings are written in TOML as in JSON.
    return json.dumps(value, ensure_ascii=False)


def _filled(template: str, values: dict[str, str]) -> str:
    text = (files("kernelyard.project") / "templates" / template).read_text("utf-8")
    # In one pass: what is filled in is not looked through again.
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)
