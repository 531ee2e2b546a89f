"""What tools that others wrote say of variants.

`auditwheel show` knows the floors by their versions of symbols, and `abi3audit` Python's limited API. Both read wheels,
so a variant's folder is put into one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.variant import VariantName
from kernelyard.toolchain.cuda_libraries import library_sonames

FLOOR = (2, 28)
#: What those bring who load a kernel. They are no libraries of a system, so that `auditwheel` would have them put into
#: the wheel: it grants no manylinux tag at all while they are outside, whatever the symbols.
BROUGHT = {"libc10.so", "libc10_cuda.so", "libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtvm_ffi.so"}
CALLING = 'extern "C" void {0}();\nextern "C" void caller() {{ {0}(); }}\n'


@dataclass(frozen=True)
class Verdict:
    """What the judges say of a variant.

    Attributes:
        symbols: The oldest glibc of a manylinux tag that all versions of symbols keep, None for none of them.
        libraries: What is needed and neither in the wheel nor on each system of the floor.
        python: What is used of Python and not of the limited API of 3.9.
    """

    symbols: tuple[int, ...] | None
    libraries: frozenset[str]
    python: frozenset[str]

    @property
    def fit(self) -> bool:
        """Whether the floor and the limited API are kept, with what is brought as if it were there."""
        return self.symbols is not None and self.symbols <= FLOOR and self.libraries <= BROUGHT and not self.python


def ask(*command: str | Path, unfit: int = 0) -> dict[str, Any]:
    """Run a judge, which says by its status whether it found something, and return its JSON."""
    program = Path(sysconfig.get_path("scripts")) / command[0]
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, unfit}, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def judge(variant: Path, folder: Path, *others: Path, system: str = DEFAULT_FLOOR) -> Verdict:
    """Have a variant judged, or several for one CPU together, by one process of each judge."""
    wheel = pack(folder, variant, *others, system=system)
    seen = ask("auditwheel", "show", "--json", wheel)
    cpu = cpu_of(variant)
    family, _, version = seen["sym_tag"].removesuffix(f"_{cpu}").partition("_")
    # Without a list for the floor all libraries are fine, or the symbols are too new for it.
    floor = seen["policy_upgrades"].get(f"{system}_{cpu}", {"libs_to_eliminate": []})
    audits = ask("abi3audit", "--report", wheel, unfit=1)["specs"][str(wheel)]["wheel"]
    python = set()
    for audited in audits:
        assert audited["result"]["baseline"] == "3.9"
        python |= {*audited["result"]["non_abi3_symbols"], *audited["result"]["future_abi3_objects"]}
    return Verdict(
        symbols=tuple(map(int, version.split("_"))) if family == "manylinux" else None,
        libraries=frozenset(floor["libs_to_eliminate"]),
        python=frozenset(python),
    )


def cpu_of(variant: Path) -> str:
    return VariantName.parse(variant.name).cpu


def pack(folder: Path, *variants: Path, system: str) -> Path:
    """Put variants for one CPU into a wheel that promises Python 3.9's limited API, and a floor.

    Without that `auditwheel` does not judge a library that asks for no libc at all.
    """
    (cpu,) = {cpu_of(variant) for variant in variants}
    tag = f"cp39-abi3-{system}_{cpu}"
    members = {
        f"judged/_{number}/{path.relative_to(variant)}": path.read_bytes()
        for number, variant in enumerate(variants)
        for path in variant.rglob("*.*")
    }
    members["judged-1.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: judged\nVersion: 1\n"
    members["judged-1.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    lines = []
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    members["judged-1.dist-info/RECORD"] = "".join([*lines, "judged-1.dist-info/RECORD,,\n"]).encode()
    path = folder / f"judged-1-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def brought_to(variant: Path) -> set[str]:
    """Return what those bring who load a variant: torch or tvm-ffi, and with CUDA the driver and torch's toolkit."""
    name = VariantName.parse(variant.name)
    cuda = {"libcuda.so.1", *library_sonames(name.backend_version).values()} if name.backend == "cuda" else set()
    return BROUGHT | cuda


def refused(variants: list[Path], system: str, folder: Path) -> list[Path]:
    """Return which of some variants for one CPU the judges refuse; all are judged together as long as they are fit."""
    verdict = judge(variants[0], folder, *variants[1:], system=system)
    kept = verdict.symbols is not None and verdict.symbols <= tuple(map(int, system.split("_")[1:]))
    if kept and not verdict.python and verdict.libraries <= set().union(*map(brought_to, variants)):
        return []
    if len(variants) == 1:
        return variants
    half = len(variants) // 2
    return [*refused(variants[:half], system, folder), *refused(variants[half:], system, folder)]
