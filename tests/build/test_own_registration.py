"""Kernels that carry a `registration.h` of their own, as kernel-builder writes it beside the sources."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.torch]

REGISTRATION = """\
#pragma once
#include <Python.h>
struct _object;
using PyObject = _object;  // as torch's headers do

#define CONCAT_(A, B) A##B
#define CONCAT(A, B) CONCAT_(A, B)
#define STRINGIFY_(A) #A
#define STRINGIFY(A) STRINGIFY_(A)
#define REGISTER_EXTENSION(NAME)                                                                      \\
  PyMODINIT_FUNC CONCAT(PyInit_, NAME)() {                                                            \\
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, STRINGIFY(NAME), "theirs", 0, nullptr}; \\
    return PyModule_Create(&module);                                                                  \\
  }
"""
LOAD = """\
import importlib.machinery, importlib.util, pathlib, sys
import torch  # an extension needs its libraries
path = pathlib.Path(sys.argv[1])
name = path.name.partition(".")[0]
loader = importlib.machinery.ExtensionFileLoader(name, str(path))
module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
loader.exec_module(module)
print(module.__name__ == name, module.__doc__)
"""


def test_its_macros_get_the_real_name_and_its_module_is_the_one_that_is_imported(
    sample: Callable[[str], Path], source: PartSource
) -> None:
    pytest.importorskip("torch")
    root = sample("tiny")
    (root / "torch-ext" / "registration.h").write_text(REGISTRATION, "utf-8")
    (built,) = build_project(root, source=source, variants=["*cpu*"])
    (extension,) = built.path.glob("*.so")
    done = subprocess.run([sys.executable, "-c", LOAD, extension], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["True", "theirs"], "")
