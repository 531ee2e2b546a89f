from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kernelyard.formats.metadata import Metadata
from kernelyard.hub.folder import hash_tree
from kernelyard.toolchain.stub import write_empty_stub

CXX = os.environ.get("CXX", "g++")
ID = "_gray_cpu_1"


def write_metadata(variant: Path, *, archs: tuple[str, ...] | None = None, backend: str = "cpu") -> None:
    metadata = Metadata(
        name="gray",
        id=ID,
        version=1,
        license="MIT",
        backend=backend,
        archs=archs,
        digest_algorithm="sha256",
        digest={path: digest for path, digest in hash_tree(variant).items() if path != "metadata.json"},
    )
    (variant / "metadata.json").write_bytes(metadata.to_json())


@pytest.fixture
def promise() -> Callable[..., None]:
    """Return the function that writes the metadata of a variant anew, digest and all."""
    return write_metadata


@pytest.fixture
def make_variant(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that compiles a library as it stands, outside of Kernelyard, and makes a variant of it."""

    def make(
        text: str,
        *flags: str,
        name: str = "torch-stable-abi211-cpu-x86_64-linux",
        archs: tuple[str, ...] | None = None,
        backend: str = "cpu",
        linked: Sequence[str] | None = None,
    ) -> Path:
        variant = tmp_path / "build" / name
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text("")
        source = tmp_path / "source.cpp"
        source.write_text(text)
        library = variant / f"{ID}.abi3.so"
        if linked is None:
            linked = ["libtorch_cpu.so"] if name.startswith("torch") else []
        needed = [str(write_empty_stub(tmp_path / soname, soname)) for soname in linked]
        files = [str(source), "-o", str(library), "-Wl,--no-as-needed", *needed]
        # Nothing of the machine's own is linked, but for what a test asks for.
        command = [CXX, "-shared", "-fPIC", "-nostdlib", "-O1", "-Wl,-z,noexecstack", *files, *flags]
        subprocess.run(command, check=True, capture_output=True)
        write_metadata(variant, archs=archs, backend=backend)
        return variant

    return make
