from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.check import check_variant, gather

Promise = Callable[..., None]


def found(tmp_path: Path, promise: Promise, source: str) -> list[str]:
    variant = tmp_path / "torch-cpu"
    variant.mkdir()
    variant.joinpath("__init__.py").write_text("")
    variant.joinpath("op.py").write_text(source)
    promise(variant)
    return [finding.what for finding in check_variant(gather(variant)) if finding.code == "KY119"]


@pytest.mark.parametrize(
    "call",
    [
        '@torch.library.custom_op("mine::relu", mutates_args=())\ndef f(x): ...',
        'from torch.library import custom_op as op\n@op(name="mine::relu", mutates_args=())\ndef f(x): ...',
        '@torch.library.register_fake("mine::relu")\ndef f(x): ...',
        'torch.library.define("mine::relu", "(Tensor x) -> Tensor")',
        'if True:\n    torch.library.impl("mine::relu", "cpu", f)',
        'torch.library.register_autograd("mine::relu", f)',
        'torch.library.Library("mine", "FRAGMENT")',
        'from torch.library import triton_op\n@triton_op(f"mine::relu_{1}", mutates_args={})\ndef f(x): ...',
        'torch.library.Library(ns="mine", kind="DEF")',
        'from torch import library\nlibrary.define("mine" + "::relu", "() -> ()")',
        'torch.library.define("mine::%s" % "relu", "() -> ()")',
    ],
)
def test_an_operator_in_a_namespace_that_is_written_out_is_refused(tmp_path: Path, promise: Promise, call: str) -> None:
    (what,) = found(tmp_path, promise, f"import torch\n{call}\n")
    assert "'mine'" in what
    assert "line 2" in what or "line 3" in what


@pytest.mark.parametrize(
    "call",
    [
        '@torch.library.custom_op(add_op_namespace_prefix("relu"), mutates_args=())\ndef f(x): ...',
        "@torch.library.register_fake(ops.relu)\ndef f(x): ...",
        '@f.register_kernel("cuda")\ndef g(x): ...',
        '@torch.library.custom_op(f"{space}::relu", mutates_args=())\ndef f(x): ...',
        'torch.library.Library(ops.__name__, "FRAGMENT")',
        'torch.library.Library("aten", "IMPL")',
        '@torch.library.register_fake("aten::relu")\ndef f(x): ...',
        'book.Library("Alexandria", "FRAGMENT")',
        'generator.define("std::vector")',
        "lib.define('f(str x=\"a::b\") -> Tensor')",
        '@torch.library.register_fake("torchvision::nms")\ndef f(x): ...',
        'print("mine::relu")',
    ],
)
def test_what_is_the_builds_own_or_not_known_passes(tmp_path: Path, promise: Promise, call: str) -> None:
    assert found(tmp_path, promise, call) == []
