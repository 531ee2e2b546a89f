"""Tools that others wrote for the same questions come to the same answers.

`auditwheel show` knows the floors by their versions of symbols, and `abi3audit` Python's limited API. Both read wheels,
so a variant's folder is put into one. Where a judge sees more or less than `check` does, its test says so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelyard.build.project import build_project
from kernelyard.check import check_variant, gather
from kernelyard.errors import KernelyardError
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.variant import VariantName
from kernelyard.toolchain.cuda_libraries import library_sonames
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.slow]

MakeVariant = Callable[..., Path]
Sample = Callable[[str], Path]

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


# What is built with Kernelyard


def test_a_build_for_the_stable_abi_is_fit(built_img2gray: Path, tmp_path: Path) -> None:
    (variant,) = (built_img2gray / "build").glob("torch-stable-abi211-cpu-*")
    assert check_variant(gather(variant)) == ()
    verdict = judge(variant, tmp_path)
    assert verdict.fit
    assert "libtorch_cpu.so" in verdict.libraries


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("img2gray", "torch-stable-abi211-cu130-x86_64-linux"),
        ("axpy", "torch211-cxx11-cpu-x86_64-linux"),
        ("scale", "tvm-ffi01-cpu-x86_64-linux"),
        ("img2gray", "torch-stable-abi211-cpu-aarch64-linux"),
    ],
)
def test_so_are_builds_for_cuda_the_full_abi_tvm_ffi_and_another_cpu(
    sample: Sample, source: PartSource, tmp_path: Path, name: str, variant: str
) -> None:
    root = sample(name)
    if name == "img2gray":  # for one capability instead of all
        manifest = root / "build.toml"
        manifest.write_text(manifest.read_text().replace('"cuda"\n', '"cuda"\ncuda-capabilities = ["8.0"]\n'))
    own = PartSource(source.store, platform=f"{VariantName.parse(variant).cpu}-linux")
    (built,) = build_project(root, source=own, variants=[variant])
    assert check_variant(gather(built.path)) == ()
    verdict = judge(built.path, tmp_path)
    assert verdict.fit
    assert verdict.libraries


# What was made to be unfit


@pytest.fixture
def newer_libc() -> None:
    version = (os.confstr("CS_GNU_LIBC_VERSION") or "0").split()[-1]
    if tuple(map(int, version.split("."))) < (2, 34):
        pytest.skip("this libc is not newer than the floor")


@pytest.mark.usefixtures("newer_libc")
def test_what_is_linked_as_the_machine_does_it_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path) -> None:
    text = """
    #include <cmath>
    #include <sys/stat.h>
    #include <thread>
    double run(double x) {
      struct stat status;
      std::thread([&] { x = std::pow(x, stat("/", &status)); }).join();
      return x;
    }
    """
    variant = make_variant(text, "-lstdc++", "-lm", "-lc", "-lgcc_s")
    assert {finding.code for finding in check_variant(gather(variant))} == {"KY101"}
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.symbols is not None
    assert verdict.symbols > FLOOR


@pytest.mark.parametrize("name", ["PyUnicode_AsUTF8AndSize", "_PyDict_GetItem_KnownHash"])
def test_python_beyond_the_limited_api_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path, name: str) -> None:
    variant = make_variant(CALLING.format(name))
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY107"]
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.python == {name}


def test_a_library_that_nobody_brings_is_refused_by_all(make_variant: MakeVariant, tmp_path: Path) -> None:
    variant = make_variant("int run() { return 1; }", linked=["libtorch_cpu.so", "libstray.so.1"])
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY103"]
    verdict = judge(variant, tmp_path)
    assert not verdict.fit
    assert verdict.libraries - BROUGHT == {"libstray.so.1"}


# Where the answers differ


def test_a_name_without_a_version_is_seen_by_check_alone(make_variant: MakeVariant, tmp_path: Path) -> None:
    """`auditwheel` compares versions of symbols, and this reference has none."""
    variant = make_variant(CALLING.format("arc4random"))
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY102"]
    assert judge(variant, tmp_path).fit


def test_other_libraries_of_the_floor_are_kept_out_by_check_alone(make_variant: MakeVariant, tmp_path: Path) -> None:
    """manylinux counts X11, OpenGL, GLib, expat and zlib to a system; a container with only Python has none of them."""
    variant = make_variant("int run() { return 1; }", linked=["libtorch_cpu.so", "libGL.so.1", "libz.so.1"])
    assert [finding.code for finding in check_variant(gather(variant))] == ["KY103", "KY103"]
    assert judge(variant, tmp_path).fit


# Everything that was built


#: What is in none of the folders that tests build into, and has thousands of files.
NO_BUILDS = {".kernelyard", "include", "torch-headers", "toolkits", "compilers", "objects"}


def variants_below(folder: Path) -> Iterator[Path]:
    """Yield the folders of variants with a library: those of other processes, too, and what tests have spoilt."""
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in NO_BUILDS]
        if "metadata.json" in files and any(name.endswith(".so") for name in files):
            yield Path(root)


def passes_checks(variant: Path) -> bool:
    try:
        VariantName.parse(variant.name)
        return not check_variant(gather(variant))
    except (KernelyardError, ValueError):
        return False


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


@pytest.mark.last
@pytest.mark.usefixtures("built_img2gray")
def test_every_library_that_tests_have_built_is_fit(
    kept_builds: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    together: dict[tuple[str, str], list[Path]] = {}
    seen: set[str] = set()
    for variant in (*kept_builds.glob("*/*"), *variants_below(tmp_path_factory.getbasetemp())):
        digests = {hashlib.sha256(library.read_bytes()).hexdigest() for library in variant.rglob("*.so")}
        if not digests <= seen and passes_checks(variant):
            seen |= digests
            facts = gather(variant).metadata.facts
            system = facts.floor if facts is not None else None
            together.setdefault((cpu_of(variant), system or DEFAULT_FLOOR), []).append(variant)
    assert together
    unfit = [variant for (_, system), built in together.items() for variant in refused(built, system, tmp_path)]
    assert unfit == []


def test_one_that_is_refused_is_named_among_many(
    built_tiny: Path, built_img2gray: Path, make_variant: MakeVariant, tmp_path: Path
) -> None:
    unfit = make_variant(CALLING.format("PyUnicode_AsUTF8AndSize"), name="torch211-cxx11-cpu-x86_64-linux")
    fit = [*built_tiny.glob("build/*-cpu-x86_64-*"), *built_img2gray.glob("build/*-cpu-x86_64-*")]
    assert len(fit) == 2
    assert refused([fit[0], unfit, fit[1]], DEFAULT_FLOOR, tmp_path) == [unfit]
    assert refused(fit, DEFAULT_FLOOR, tmp_path) == []
