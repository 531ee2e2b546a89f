"""What does not know torch is compiled once, however many torch versions a kernel is built for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.build.project import build_project
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network]

Sample = Callable[[str], Path]


def steps(root: Path, compute: str) -> list[str]:
    """Return what Ninja did, by the last word of its descriptions."""
    log = (root / ".kernelyard" / compute / "build.log").read_text()
    # Step 0 is CMake, where the project has changed.
    return sorted(name.removesuffix(".o") for name in re.findall(r"^\[[1-9]\d*/\d+\] .*/(.+)", log, re.MULTILINE))


def test_of_one_section_the_sources_without_torch_are_compiled_once_for_two_variants(
    sample: Sample, source: PartSource
) -> None:
    root = sample("blend")
    built = build_project(root, source=source, variants=["torch211-*-cpu-*", "torch213-*-cpu-*"])
    assert len({variant.entry.id for variant in built}) == 2
    # An #include by a macro counts as torch.
    twice = ["by_macro.cpp", "glue.cpp", "binding.cpp", "extension_name.cpp", "extension.so"]
    assert steps(root, "cpu") == sorted(["plain.cpp", *twice, *twice])
    assert "[11/11] Linking" in (root / ".kernelyard" / "cpu" / "build.log").read_text()


def test_an_edited_source_without_torch_is_compiled_once_and_linked_twice(sample: Sample, source: PartSource) -> None:
    root = sample("blend")
    variants = ["torch211-*-cpu-*", "torch213-*-cpu-*"]
    before = {variant.name: variant.entry.id for variant in build_project(root, source=source, variants=variants)}
    (root / "csrc" / "plain.cpp").write_text("int plain() { return 40; }\n")
    after = {variant.name: variant.entry.id for variant in build_project(root, source=source, variants=variants)}
    assert not set(before.values()) & set(after.values())
    assert steps(root, "cpu") == sorted(["plain.cpp", *["extension_name.cpp", "extension.so"] * 2])


def test_a_source_that_begins_to_include_torch_is_compiled_for_each_variant(sample: Sample, source: PartSource) -> None:
    root = sample("blend")
    variants = ["torch211-*-cpu-*", "torch213-*-cpu-*"]
    build_project(root, source=source, variants=variants)
    (root / "csrc" / "plain.cpp").write_text('#include "glue.h"\nint plain() { return 40; }\n')
    build_project(root, source=source, variants=variants)
    assert steps(root, "cpu").count("plain.cpp") == 2


def test_cpp_without_torch_in_a_cuda_section_has_the_toolkits_headers(sample: Sample, source: PartSource) -> None:
    root = sample("blend")
    build_project(root, source=source, variants=["torch211-*-cu130-*"])
    commands = json.loads((root / ".kernelyard" / "cu130" / "objects" / "compile_commands.json").read_bytes())
    of = {Path(entry["file"]).name: entry["command"] for entry in commands}
    assert "torch-headers" not in of["host.cpp"]
    assert "torch-headers" in of["glue.cpp"]
