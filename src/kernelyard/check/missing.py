"""What is wrong with a name that a binary refers to and nothing offers, and what to do.

The check of a finished library says it, and so does a build whose link failed over that name.
"""

from __future__ import annotations

import shutil
import subprocess

from kernelyard.check.evidence import Finding
from kernelyard.check.owners import OPENMP, VariantTorch, shim_version, symbol_owner, torch_of
from kernelyard.formats.floor import DEFAULT_FLOOR, FLOORS
from kernelyard.formats.variant import VariantName
from kernelyard.formats.versions import Version
from kernelyard.toolchain.cuda_libraries import library_of_symbol, library_sonames
from kernelyard.toolchain.floor import load_floor
from kernelyard.toolchain.python_abi import PYTHON, python_stable_abi
from kernelyard.toolchain.torch_exports import releases_with

__all__ = ["missing_name", "unknown_name"]

#: That there are tables of floors for.
_FLOOR_CPUS = ("x86_64", "aarch64")
#: The CPU whose torch has names that those of others do not have: of its vector instructions.
_MOST_NAMES = "x86_64"
_DEFINE_IT = "define it, or list the source that does in `src`"
_OTHER_NAME = (
    "torch declares it and does not export it: do without it; or it is yours, and `src` does not list what defines it"
)


def missing_name(name: str, variant: VariantName, where: str, *, floor: str = DEFAULT_FLOOR) -> Finding:
    """Return the finding for a name that a variant must not refer to.

    Args:
        name: As it is in the binary.
        variant: Whose library or object it is.
        where: The library, or the source.
        floor: That the variant keeps.
    """
    owner, stable = symbol_owner(name), variant.framework == "torch-stable-abi"
    torch = torch_of(variant)
    if owner == "python":
        return _not_in_python(name, where)
    if owner == "torch-c++" and stable:
        return Finding(
            "KY109",
            f"uses {_readable(name)} of torch's C++ interface, but promises the stable ABI",
            where,
            "use torch/csrc/stable/*.h only, or take stable-abi out of the manifest",
        )
    since, promised = shim_version(name), variant.framework_version
    if stable and since is not None and promised is not None and since > promised:
        return Finding(
            "KY117",
            f"uses {name}, which is in torch since {since}, but promises to run on torch {promised}",
            where,
            f'raise stable-abi to "{since}", or do without it',
        )
    if torch is not None and name.startswith(OPENMP):
        return Finding(
            "KY118",
            f"refers to {name}, which the OpenMP that comes with torch does not have",
            where,
            "torch comes with the libgomp of GCC 9: what later compilers and OpenMP 5.0 added is not there",
        )
    if torch is not None and owner is not None and owner.startswith("torch"):
        return _not_in_torch(name, torch, where)
    return unknown_name(name, variant, where, floor=floor)


def unknown_name(name: str, variant: VariantName, where: str, *, floor: str = DEFAULT_FLOOR) -> Finding:
    """Return the finding for a name of which nobody whom the variant asks knows anything."""
    if (newer := _newer_floor(name, floor, variant.cpu)) is not None:
        return Finding(
            "KY102",
            f"refers to {_readable(name)}, which is in {newer}, and the variant promises to run on {floor}",
            where,
            f'do without it, or set floor = "{newer}" in kernelyard.toml: the kernel then runs on no older system',
        )
    of_toolkit = library_of_symbol(name)
    linkable = of_toolkit in library_sonames(variant.backend_version) if variant.backend == "cuda" else False
    return Finding(
        "KY102",
        f"refers to {_readable(name)}, which neither {floor}, Python nor torch offers",
        where,
        f'add link = ["{of_toolkit}"] to its section, or, if it is yours, {_DEFINE_IT}' if linkable else _DEFINE_IT,
    )


def _newer_floor(name: str, floor: str, cpu: str) -> str | None:
    """Return the oldest floor above one that offers a name to linkers, where that one does not have it at all."""
    if cpu not in _FLOOR_CPUS or load_floor(floor, cpu).providers(name):
        return None
    for newer in FLOORS[FLOORS.index(floor) + 1 :]:
        libraries = load_floor(newer, cpu).libraries.values()
        if any(symbols[name].linkable for symbols in libraries if name in symbols):
            return newer
    return None


def _not_in_python(name: str, where: str) -> Finding:
    added = python_stable_abi().get(name)
    hint = "do not use it" if added is not None else f"do not use it; or, if it is yours, {_DEFINE_IT}"
    since = "is not part of Python's stable ABI" if added is None else f"is new in Python {added[0]}.{added[1]}"
    return Finding("KY107", f"{name} {since}; builds promise {PYTHON[0]}.{PYTHON[1]}", where, hint)


def _not_in_torch(name: str, torch: VariantTorch, where: str) -> Finding:
    history, hint = _history(name, torch)
    return Finding(
        "KY118", f"refers to {_readable(name)}, which torch {torch.release} does not have: {history}", where, hint
    )


def _history(name: str, torch: VariantTorch) -> tuple[str, str]:
    """Return which torch has a name that the one in question does not have, and what to do."""
    known, having = torch.releases_with(), torch.releases_with(name)
    if not having and torch.release in releases_with([name], cpu=torch.cpu):
        return "only one with CUDA does", 'use it in sections with backend = "cuda" only'
    if not having and torch.cpu != _MOST_NAMES and torch.release in releases_with([name], cpu=_MOST_NAMES):
        hint = f"do without it on {torch.cpu}: sections can be for one CPU (`when`)"
        return f"only that for {_MOST_NAMES} does", hint
    if not having:
        return f"no other from {known[0]} to {known[-1]} does", _OTHER_NAME
    first, last = having[0], having[-1]
    if first > torch.release:
        return f"it is new in torch {_minor(first)}", f'set minver = "{_minor(first)}" in [torch], or do without it'
    if last < torch.release:
        gone = next(release for release in known if release > last)
        return f"it is gone since torch {_minor(gone)}", f'set maxver = "{_minor(last)}" in [torch], or do without it'
    return f"it is in torch {', '.join(map(_minor, having))}", "do without it"


def _minor(release: Version) -> str:
    return f"{release.major}.{release.minor}"


def _readable(name: str) -> str:
    """Return a mangled name as C++ writes it, with the name itself, where the machine can tell."""
    program = shutil.which("c++filt") if name.startswith("_Z") else None
    if program is None:
        return name
    done = subprocess.run([program, name], capture_output=True, text=True, check=False)
    written = done.stdout.strip()
    return f"`{written}` ({name})" if written and written != name else name
