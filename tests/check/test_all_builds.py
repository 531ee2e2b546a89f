"""Everything that tests have built is judged at the end: what passes our checks is fit for tools of others as well."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelyard.check import check_variant, gather
from kernelyard.errors import KernelyardError
from kernelyard.formats.floor import DEFAULT_FLOOR
from kernelyard.formats.variant import VariantName
from tests.check.judges import CALLING, cpu_of, refused
from tests.last import wait_for_others

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.slow]

MakeVariant = Callable[..., Path]

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


@pytest.mark.last
@pytest.mark.usefixtures("built_img2gray")
def test_every_library_that_tests_have_built_is_fit(
    kept_builds: Path, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    wait_for_others(pytestconfig)
    together: dict[tuple[str, str], list[Path]] = {}
    seen: set[str] = set()
    for variant in (*kept_builds.glob("*/*"), *variants_below(kept_builds.parent)):
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
