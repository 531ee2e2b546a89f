"""Kernels that look like those which the tests of the package `kernels` load from the Hugging Face Hub.

They are Python alone and run on the CPU. They are in the layouts of kernel-builder, without an index of ours.
"""

from __future__ import annotations

import json
from typing import Any

from tests.hub.hugging_face_server import Hub

__all__ = ["fill"]

RELU = """
import torch

def relu(x, out=None):
    result = torch.relu(x)
    return result if out is None else out.copy_(result)
"""
SILU_AND_MUL = """
import torch.nn.functional as F

def silu_and_mul(x):
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]
"""
UNTRUSTED = "kernels-test-untrusted"


def fill(hub: Hub) -> None:
    """Put them on a hub, where one organisation is not trusted."""
    hub.untrusted.add(UNTRUSTED)
    relu = hub.make("kernels-community/relu")
    for branch in ("main", "v1"):
        relu.put(branch, _variant("relu", RELU, name="torch-cpu"))
    versions = hub.make("kernels-test/versions")
    for number in (1, 2, 10):
        versions.put(f"v{number}", _variant("versions", f"def version():\n    return {number}\n", version=number))
    flattened = hub.make("kernels-test/flattened-build")
    flattened.put("pre-flattening", _variant("flattened-build", SILU_AND_MUL, inner="flattened_build/"))
    compatible = {"build/torch-universal/flattened_build/__init__.py": b"raise RuntimeError('the old way')\n"}
    for branch, more in (("main", compatible), ("without-compat-module", {})):
        flattened.put(branch, {**_variant("flattened-build", SILU_AND_MUL, own=branch), **more})
    old = _variant("only-torch-2-4", "", name="torch24-cxx11-cu121-x86_64-linux", backend="cuda")
    hub.make("kernels-test/only-torch-2.4").put("main", old)
    hub.make("kernels-test/silu-and-mul").put("v1", _variant("silu-and-mul", SILU_AND_MUL))
    needs = {"python-dep": ["einops", "nvidia-cutlass-dsl"], "python-invalid-dep": ["kepler-22b"]}
    for name, packages in needs.items():
        hub.make(f"kernels-test/{name}").put("main", _variant(name, "", packages=packages))
    tvm_ffi = _variant("relu-tvm-ffi", RELU, name="tvm-ffi01-cpu-x86_64-linux")
    hub.make("kernels-test/relu-tvm-ffi").put("v1", tvm_ffi)
    for name in ("not-a-trused-org-kernel", "ci-test-kernel"):
        hub.make(f"{UNTRUSTED}/{name}").put("v1", _variant(name, ""))


def _variant(
    kernel: str,
    body: str,
    *,
    name: str = "torch-universal",
    backend: str = "cpu",
    version: int = 1,
    inner: str = "",
    own: str = "",
    packages: list[str] | None = None,
) -> dict[str, bytes]:
    id_ = f"_{kernel.replace('-', '_')}_{backend}_{version}{own.replace('-', '_')}{'_nested' if inner else ''}"
    metadata: dict[str, Any] = {"name": kernel, "id": id_, "version": version, "license": "Apache-2.0"}
    metadata |= {"python-depends": packages or [], "kernel-depends": [], "backend": {"type": backend}}
    return {
        f"build/{name}/{inner}__init__.py": f"# {own}\n{body}".encode(),
        f"build/{name}/metadata.json": json.dumps(metadata).encode(),
    }
