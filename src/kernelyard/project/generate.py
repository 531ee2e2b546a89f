"""Writing the CMake project of some variants: what an author builds by hand is what is shipped."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from kernelyard.formats.variant import VariantName
from kernelyard.project.cmake_lists import cmake_framework, has_own_registration, render_cmake_lists
from kernelyard.project.machine_files import machine_files
from kernelyard.project.plan import VariantPlan
from kernelyard.project.sources import Project
from kernelyard.store import writing
from kernelyard.toolchain.assemble import Toolchain

__all__ = ["MOVE_PROJECT", "extension_name_files", "project_files", "render_ops", "write_files", "write_project"]

#: What to do where a project's folder cannot be written; for :func:`kernelyard.store.writing`.
MOVE_PROJECT = "move the project to"
#: What a backend's module needs beside it.
_OF_BACKEND = {"rocm": ("hipify.py",), "metal": ("metallib.cmake", "metallib.h.in")}


def write_project(project: Project, plans: Sequence[VariantPlan], toolchain: Toolchain, folder: Path) -> frozenset[str]:
    """Write the project that ``build`` compiles. Files that would not change are left alone: CMake sees nothing new.

    Args:
        project: The author's.
        plans: Of variants of one backend version.
        toolchain: That all of them are built with.
        folder: Where to; it lies below the author's project.

    Returns:
        The names of the files that were written.

    Raises:
        EnvironmentProblemError: The folder cannot be written.
    """
    up = "/".join([".."] * len(folder.relative_to(project.root).parts))
    texts = project_files(project, plans) | machine_files(toolchain)
    texts["CMakeLists.txt"] = render_cmake_lists(project, plans, up)
    return write_files(folder, texts)


def project_files(project: Project, plans: Sequence[VariantPlan]) -> dict[str, str]:
    """Return path in the generated project -> text, for all that ``CMakeLists.txt`` needs and is of no machine."""
    framework, backend = cmake_framework(plans[0]), plans[0].backend
    exports = f"exports-{framework}.{_exports_suffix(plans[0])}"
    names = {"cmake/kernelyard.cmake": "kernelyard.cmake"}
    if framework == "torch":
        names["cmake/include/registration.h"] = "registration.h"
    names[f"cmake/{exports}"] = exports
    if backend != "cpu":
        names[f"cmake/kernelyard-{backend}.cmake"] = f"kernelyard-{backend}.cmake"
    names |= {f"cmake/{name}": name for name in _OF_BACKEND.get(backend, ())}
    if any(has_own_registration(project, plan.binding, source) for plan in plans for source in plan.binding.sources):
        names["cmake/own-registration/Python.h"] = "Python.h"
    return {name: _template(template) for name, template in names.items()}


def _exports_suffix(plan: VariantPlan) -> str:
    # Linkers for macOS take a list, those for Linux a script.
    return "exp" if VariantName.parse(plan.name).os == "darwin" else "map"


def extension_name_files(variant: str, name: str) -> dict[str, str]:
    """Return path in the generated project -> text, for the files that alone know a variant's unique name."""
    folder = f"cmake/variants/{variant}"
    return {
        f"{folder}/extension_name.cpp": _template("extension_name.cpp.in").replace("@extension_name@", name),
        f"{folder}/extension_name.h": f"#define TORCH_EXTENSION_NAME {name}\n",
    }


def render_ops(framework: str, name: str) -> str:
    """Return ``_ops.py`` of a variant."""
    kind = {"torch-stable-abi": "torch", "torch-noarch": "noarch"}.get(framework, framework)
    return _template(f"_ops-{kind}.py.in").replace("@extension_name@", name)


def write_files(folder: Path, texts: Mapping[str, str]) -> frozenset[str]:
    """Write files below a folder, each whole or not at all; those that have their text already are left alone.

    Returns:
        The names of those that were written.

    Raises:
        EnvironmentProblemError: The folder cannot be written.
    """
    with writing(folder, elsewhere=MOVE_PROJECT):
        return frozenset(name for name, text in texts.items() if _write_changed(folder / name, text))


def _template(name: str) -> str:
    return (files("kernelyard.project") / "templates" / name).read_text("utf-8")


def _write_changed(path: Path, text: str) -> bool:
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(text, "utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return True
