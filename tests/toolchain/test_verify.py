"""Whether a store and an index have what a lock names, and what a preview says without fetching anything."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError, VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, LockedVariant, Request, ToolchainLock, Use
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.choose_compiler import choose_compiler
from kernelyard.toolchain.part import Part
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_torch
from kernelyard.toolchain.trail import Preview
from kernelyard.toolchain.trust import check_archives, known_packages, known_wheels, vouched
from kernelyard.toolchain.verify import verify_archives, verify_made, verify_names, verify_parts

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

FILE = f"torch-{known_torch()['2.11']['version']}-cp312-cp312-manylinux_2_28_x86_64.whl"
MEMBERS = {"torch/include/a.h": b"int a;\n", "torch/lib/x.so": bytes(300_000)}


@pytest.fixture
def source(server: IndexServer, tmp_path: Path) -> PartSource:
    server.add("torch", FILE, server.wheel(MEMBERS))
    return PartSource(Store(tmp_path / "store"))


@pytest.fixture
def part(source: PartSource) -> Part:
    part = source.torch_headers(Version("2.11")).part
    assert part is not None
    return part


def lock_of(part: Part) -> ToolchainLock:
    archives = {ingredient.file: ingredient for ingredient in part.ingredients}
    parts = {part.id: LockedPart(tuple(archives), part.tree)}
    return ToolchainLock("1", "0" * 64, "x86_64-linux", (), archives, parts, {})


def test_a_part_is_the_same_until_a_file_of_it_changes(source: PartSource, part: Part) -> None:
    lock = lock_of(part)
    assert [(found.name, found.verdict) for found in verify_parts(source, lock)] == [(part.id, "same")]
    part.path.joinpath("a.h").write_text("int b;\n")
    (found,) = verify_parts(source, lock)
    assert found.verdict == "differs"
    assert str(part.path) in found.detail


def test_a_part_that_is_not_there_is_absent_and_is_not_fetched(server: IndexServer, part: Part, tmp_path: Path) -> None:
    count = len(server.requests)
    (found,) = verify_parts(PartSource(Store(tmp_path / "other")), lock_of(part))
    assert (found.name, found.verdict) == (part.id, "absent")
    assert len(server.requests) == count


def test_an_archive_is_fetched_whole_and_compared(server: IndexServer, source: PartSource, part: Part) -> None:
    server.requests.clear()
    (found,) = verify_archives(source, lock_of(part))
    assert (found.name, found.kind, found.verdict) == (FILE, "archive", "same")
    (request,) = server.file_requests
    assert (request.range, request.sent) == (None, len(server.files[FILE][1]))


@pytest.mark.parametrize("index_knows", [True, False])
def test_an_archive_that_is_another_by_now_is_found_out(
    server: IndexServer,
    source: PartSource,
    part: Part,
    index_knows: bool,  # noqa: FBT001
) -> None:
    """Only whole does it show: what differs is a member that no part was taken from."""
    server.add("torch", FILE, server.wheel({**MEMBERS, "torch/lib/x.so": bytes(299_999) + b"x"}))
    server.digests = index_knows
    (found,) = verify_archives(source, lock_of(part))
    assert found.verdict == "differs"
    assert FILE in found.detail


def test_a_record_that_was_not_the_one_in_the_whole_file_is_found_out(source: PartSource, part: Part) -> None:
    """As from a server that answers ranges otherwise than whole requests."""
    archive = replace(part.ingredients[0], record="0" * 64)
    (found,) = verify_archives(source, replace(lock_of(part), archives={FILE: archive}))
    assert (found.verdict, "its RECORD is another" in found.detail) == ("differs", True)


def test_an_archive_that_the_index_has_no_more_is_an_error(server: IndexServer, source: PartSource, part: Part) -> None:
    del server.files[FILE]
    server.add("torch", FILE.replace("cp312", "cp311"), server.wheel(MEMBERS))
    with pytest.raises(EnvironmentProblemError) as caught:
        list(verify_archives(source, lock_of(part)))
    assert (caught.value.code, FILE in caught.value.what) == ("KY312", True)


def test_a_package_that_kernelyard_does_not_know_is_found_out(source: PartSource, part: Part) -> None:
    package = Ingredient("debian", "x", "1", "pool/x_1_amd64.deb", "0" * 64, 10, None, "pin")
    (found,) = verify_archives(source, replace(lock_of(part), archives={package.file: package}))
    assert (found.verdict, package.file in found.detail) == ("differs", True)


# What is known by now


def known() -> Ingredient:
    return next(iter(known_wheels().values()))


def test_a_part_that_was_fetched_before_its_wheel_was_known_is_vouched_for(part: Part) -> None:
    assert vouched(replace(known(), trust="first-use"), part) == known()
    assert vouched(replace(known(), trust="first-use", sha256=None, size=None), part) == known()
    unknown = replace(known(), file="other.whl", trust="first-use")
    assert vouched(unknown, part) == unknown


@pytest.mark.parametrize("member", ["sha256", "record"])
def test_what_was_taken_from_another_wheel_than_the_known_one_is_refused(part: Part, member: str) -> None:
    other = replace(known(), **{member: "0" * 64})  # type: ignore[arg-type]  # by its name
    with pytest.raises(VerificationError) as caught:
        vouched(other, part)
    assert (caught.value.code, part.id in caught.value.what, str(part.path) in caught.value.hint) == (
        "KY351",
        True,
        True,
    )
    with pytest.raises(VerificationError) as caught:
        check_archives(replace(lock_of(part), archives={other.file: other}))
    assert caught.value.code == "KY351"
    assert caught.value.place is not None
    assert caught.value.place.key == f"archives.{other.file}"
    check_archives(replace(lock_of(part), archives={known().file: known()}))


def package() -> Ingredient:
    return next(iter(known_packages().values()))


@pytest.mark.parametrize(
    "archive",
    [
        replace(package(), sha256="0" * 64),
        replace(package(), version="9"),
        replace(package(), size=1),
        replace(package(), file="pool/main/x_1_amd64.deb"),
        replace(known(), version="9"),
        replace(known(), name="other"),
        replace(known(), size=1),
        replace(known(), file="other-1-py3-none-any.whl"),  # which would vouch for itself
    ],
)
def test_all_that_a_lock_says_of_what_is_known_must_be_so(part: Part, archive: Ingredient) -> None:
    lock = replace(lock_of(part), archives={archive.file: archive}, parts={})
    with pytest.raises(VerificationError) as caught:
        check_archives(lock)
    assert caught.value.code == "KY351"
    assert [(found.name, found.verdict) for found in verify_names(lock)] == [(archive.file, "differs")]


def test_what_is_known_and_what_nobody_knows_may_be_in_a_lock(part: Part) -> None:
    unknown = replace(known(), file="other-1-py3-none-any.whl", trust="first-use")
    lock = replace(lock_of(part), archives={one.file: one for one in (package(), known(), unknown)}, parts={})
    check_archives(lock)
    assert list(verify_names(lock)) == []


def test_a_part_that_was_taken_from_another_package_is_refused_also_by_a_new_lock(part: Part) -> None:
    assert vouched(package(), part) == package()
    for other in (replace(package(), sha256="0" * 64), replace(package(), file="pool/x_1_amd64.deb")):
        with pytest.raises(VerificationError) as caught:
            vouched(other, part)
        assert caught.value.code == "KY351"


def test_a_part_that_cannot_be_read_differs(source: PartSource, part: Part) -> None:
    os.mkfifo(part.path / "pipe")
    (found,) = verify_parts(source, lock_of(part))
    assert found.verdict == "differs"


def test_nothing_is_said_of_what_would_be_made_of_parts_that_differ(source: PartSource, part: Part) -> None:
    """Nor is any of it run."""
    name, variant = next(iter(lock_with(part).variants.items()))
    assert list(verify_made(source, lock_with(part), set())) == []
    (found,) = verify_made(source, lock_with(part), {part.id})
    assert (found.name, found.kind, found.verdict) == (name, "variant", "differs")
    assert "the lock has no part tools/cmake" in found.detail
    assert variant.uses["torch"].part == part.id


def lock_with(part: Part) -> ToolchainLock:
    variant = LockedVariant(
        Request("cpu", None, Version("2.11"), Version("2.11")), {"torch": Use("torch", part.tree, part.id)}
    )
    return replace(lock_of(part), variants={"torch-stable-abi211-cpu-x86_64-linux": variant})


def test_a_preview_on_a_machine_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EnvironmentProblemError) as caught:
        choose_compiler(Preview(Store(tmp_path / "store")), None)
    assert (caught.value.code, "the pinned one has not been fetched yet" in str(caught.value)) == ("KY321", True)


def test_a_preview_fetches_nothing(server: IndexServer, source: PartSource) -> None:
    preview = Preview(source.store)
    headers = preview.torch_headers(Version("2.11"))
    assert preview.missing == {f"torch-headers/{headers.root.name}"}
    assert server.requests == []
    source.torch_headers(Version("2.11"))
    again = Preview(source.store)
    assert again.torch_headers(Version("2.11")).digest != ""
    assert again.missing == set()
