"""Kernels to be put on git hubs: made here, with files for LFS where they are asked for."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication

REPO = "org/gray"
SIZE = 300_000


def binary(text: str, size: int = SIZE) -> bytes:
    """Return bytes that look like a library's, other ones for each text."""
    block = sha256(text.encode()).digest()
    return (b"\x7fELF\0" + block * (size // len(block) + 1))[:size]


def make(
    folder: Path,
    text: str,
    *,
    backends: tuple[str, ...] = ("cpu", "cuda"),
    large: bool = True,
    files: Mapping[str, bytes] | None = None,
    release: str | None = None,
    **changes: object,
) -> Publication:
    """Write variants whose files hold a text, and answer their publication."""
    for backend in backends:
        variant = folder / text / f"torch-{backend}"
        variant.mkdir(parents=True)
        (variant / "__init__.py").write_text(f"text = {text!r}\n")
        if large:
            (variant / "_gray.abi3.so").write_bytes(binary(f"{text} {backend}"))
        for name, content in (files or {}).items():
            (variant / name).parent.mkdir(parents=True, exist_ok=True)
            (variant / name).write_bytes(content)
        metadata = {
            "name": "gray",
            "id": f"_gray_{backend}_{sha256(text.encode()).hexdigest()[:7]}",
            "version": 1,
            "license": "MIT",
        }
        (variant / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": backend}}))
    built = FolderHub.find(folder / text)
    assert built is not None
    made = Publication(REPO, replace(built.index, release=release), built.files, "v1")
    return replace(made, **changes)  # type: ignore[arg-type]


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run git in a folder, as Ann, with nobody's settings."""
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    for kind in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{kind}_NAME": "Ann", f"GIT_{kind}_EMAIL": "ann@example.org"}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True, input=stdin
    )
    return done.stdout.strip()


def paths(repository: Path, commit: str) -> set[str]:
    """Return the paths of all files of a commit."""
    return set(git(repository, "ls-tree", "-r", "--name-only", commit).splitlines())
