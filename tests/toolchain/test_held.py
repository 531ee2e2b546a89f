"""What a lock says of parts, and what Kernelyard itself makes, held against a store that others may write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.errors import VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, ToolchainLock
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.locked import check_part
from kernelyard.toolchain.part import Part, provide_part
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.torch_stubs import provide_torch_stubs

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
WHEEL = Ingredient("wheel", "some", "1.0", "some-1.0-py3-none-any.whl", A, 10, B, "first-use")
PACKAGE = Ingredient("debian", "libc6", "2.31", "pool/main/libc6.deb", C, 20, None, "pin")


def fill(folder: Path) -> Iterator[Ingredient]:
    yield WHEEL
    folder.joinpath("a.h").write_text("int a;\n")
    yield PACKAGE


@pytest.fixture
def part(tmp_path: Path) -> Part:
    return provide_part(Store(tmp_path), "parts", "a-1", fill)


def lock_of(part: Part, *archives: Ingredient) -> ToolchainLock:
    named = {archive.file: archive for archive in archives or part.ingredients}
    return ToolchainLock("1", A, "x86_64-linux", (), named, {part.id: LockedPart(tuple(named), part.tree)}, {})


def refused(of: Callable[[], object]) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        of()
    assert caught.value.code == "KY355"
    return caught.value


def test_a_part_that_is_what_is_locked_is_taken(part: Part) -> None:
    check_part(lock_of(part), part)
    # An index that does not tell digests leaves the part, or the lock, without one.
    check_part(lock_of(part, PACKAGE, replace(WHEEL, sha256=None, size=None)), part)
    check_part(lock_of(part), replace(part, ingredients=(PACKAGE, replace(WHEEL, sha256=None, size=None))))
    check_part(lock_of(part, PACKAGE, replace(WHEEL, trust="table")), part)


@pytest.mark.parametrize(
    "archives",
    [
        (PACKAGE,),
        (PACKAGE, WHEEL, replace(WHEEL, file="more-1.0-py3-none-any.whl")),
        (PACKAGE, replace(WHEEL, sha256=C)),
        (PACKAGE, replace(WHEEL, record=C)),
        (PACKAGE, replace(WHEEL, name="other")),
        (PACKAGE, replace(WHEEL, version="2")),
        (replace(PACKAGE, sha256=A), WHEEL),
        (PACKAGE, replace(WHEEL, file="some-1.0-cp312-none-any.whl")),
    ],
)
def test_a_part_that_was_taken_from_other_archives_is_refused(part: Part, archives: tuple[Ingredient, ...]) -> None:
    error = refused(lambda: check_part(lock_of(part, *archives), part))
    assert "not taken from the archives that are locked" in error.what
    assert str(part.path) in error.hint


def test_a_description_with_another_digest_than_the_files_have_is_refused(part: Part) -> None:
    error = refused(lambda: check_part(lock_of(part), replace(part, tree=A)))
    assert "has not the digest of its files" in error.what


# What is made here


def locked_source(store: Store) -> PartSource:
    return PartSource(store, lock=ToolchainLock("1", A, "x86_64-linux", (), {}, {}, {}))


def write_a(folder: Path) -> None:
    folder.joinpath("a").write_text("a")


@pytest.mark.parametrize("change", ["content", "more", "less", "link"])
def test_what_is_made_here_is_compared_with_what_would_be_made_now(tmp_path: Path, change: str) -> None:
    source = locked_source(Store(tmp_path))
    path = source.make("stubs", "x", write_a)
    assert source.make("stubs", "x", write_a) == path
    file = path / "a"
    if change == "more":
        path.joinpath("b").touch()
    else:
        file.unlink()
    if change == "content":
        file.write_text("b")
    elif change == "link":
        tmp_path.joinpath("elsewhere").write_text("a")
        file.symlink_to(tmp_path / "elsewhere")
    error = refused(lambda: source.make("stubs", "x", write_a))
    assert "stubs/x are not those that Kernelyard makes" in error.what
    assert str(path) in error.hint
    # Without a lock nothing is promised, and what is there is taken.
    assert PartSource(source.store).make("stubs", "x", write_a) == path


@pytest.mark.parametrize("release", [Version("2.12.1"), None])
def test_a_planted_stub_of_torch_is_refused(tmp_path: Path, release: Version | None) -> None:
    source = locked_source(Store(tmp_path))
    stubs = provide_torch_stubs(source.make, release, backend="cuda", cpu="x86_64", brought=["cublasCreate_v2"])
    again = provide_torch_stubs(source.make, release, backend="cuda", cpu="x86_64", brought=["cublasCreate_v2"])
    assert again == stubs
    planted = stubs.libraries[2]
    planted.write_bytes(planted.read_bytes() + b"\0")
    refused(lambda: provide_torch_stubs(source.make, release, backend="cpu", cpu="x86_64", brought=["cublasCreate_v2"]))
