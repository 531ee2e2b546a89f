"""What comes of the recipes is known by its digest, part by part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.errors import VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, ToolchainLock
from kernelyard.store import Store
from kernelyard.toolchain.part import Part
from kernelyard.toolchain.recipes import NamesOnly, recipe_parts
from kernelyard.toolchain.trust import check_trees, known_trees, vouched_tree
from kernelyard.toolchain.verify import verify_names

A = "a" * 64
PLATFORMS = ("x86_64-linux", "aarch64-linux")
KNOWN = next(id_ for id_ in known_trees() if id_.startswith("compilers/"))
WHEEL = Ingredient("wheel", "some", "1.0", "some-1.0-py3-none-any.whl", A, 10, A, "first-use")


def ids(platform: str) -> set[str]:
    return {part.id for part in recipe_parts(NamesOnly(Store(Path("/nowhere")), platform=platform))}


def lock_with(id_: str, tree: str) -> ToolchainLock:
    part = LockedPart((WHEEL.file,), tree)
    return ToolchainLock("1", A, "x86_64-linux", (), {WHEEL.file: WHEEL}, {id_: part}, {})


def test_the_tree_of_every_part_is_known() -> None:
    """Where this fails, a recipe has changed: `scripts/refresh-trees` fetches what the table lacks."""
    assert known_trees().keys() == {id_ for platform in PLATFORMS for id_ in ids(platform)}


def test_parts_that_are_taken_from_wheels_for_a_platform_are_not_shared_between_platforms() -> None:
    shared = {id_.partition("-")[0] for id_ in ids("x86_64-linux") & ids("aarch64-linux")}
    assert shared == {"tools/cmake", "tools/ninja", "headers/nvidia"}  # programs for here, and one wheel for all


def test_a_lock_with_other_files_in_a_known_part_is_refused_whatever_the_store_has() -> None:
    lock = lock_with(KNOWN, A)
    with pytest.raises(VerificationError) as caught:
        check_trees(lock)
    assert caught.value.code == "KY351"
    assert caught.value.place is not None
    assert caught.value.place.key == f"parts.{KNOWN}"
    assert [(found.name, found.verdict) for found in verify_names(lock)] == [(KNOWN, "differs")]
    for good in (lock_with(KNOWN, known_trees()[KNOWN]), lock_with("compilers/of-mine", A)):
        check_trees(good)
        assert list(verify_names(good)) == []


def test_a_part_with_other_files_is_not_locked_anew() -> None:
    part = Part(Path("/store") / KNOWN, (WHEEL,), known_trees()[KNOWN])
    assert vouched_tree(part) == part.tree
    with pytest.raises(VerificationError) as caught:
        vouched_tree(replace(part, tree=A))
    assert (caught.value.code, "remove /store/compilers/" in caught.value.hint) == ("KY351", True)
    assert vouched_tree(Part(Path("/store/compilers/mine"), (), A)) == A
