"""What vouches for a wheel: the table of those that are known, a lock, the index, or nothing."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernelyard.errors import KernelyardError, VerificationError
from kernelyard.formats.ingredient import Ingredient
from kernelyard.formats.toolchain_lock import LockedPart, ToolchainLock
from kernelyard.formats.versions import Version
from kernelyard.store import Store
from kernelyard.toolchain.locked import locked_wheel
from kernelyard.toolchain.package_index import PackageIndex
from kernelyard.toolchain.parts import PartSource
from kernelyard.toolchain.pins import known_cuda, known_torch
from kernelyard.toolchain.remote_wheel import RemoteWheel
from kernelyard.toolchain.trust import known_wheels

if TYPE_CHECKING:
    from tests.toolchain.conftest import IndexServer

FILE = f"torch-{known_torch()['2.11']['version']}-cp312-cp312-manylinux_2_28_x86_64.whl"
MEMBERS = {"torch/include/a.h": b"int a;\n", "torch/lib/x.so": bytes(300_000)}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def wheel(server: IndexServer) -> bytes:
    content = server.wheel(MEMBERS)
    server.add("torch", FILE, content)
    return content


def as_known(server: IndexServer, content: bytes) -> Ingredient:
    """Return what a table would say of a wheel."""
    server.add("known", "known-1.0-py3-none-any.whl", content)
    index = PackageIndex()
    opened = RemoteWheel(index, index.find_wheel("known", "1.0", platform="x86_64-linux"), whole=True)
    version = known_torch()["2.11"]["version"]
    size, record = len(content), opened.record_digest
    return Ingredient("wheel", "torch", version, FILE, digest(content), size, record, "table")


@pytest.fixture
def source(tmp_path: Path) -> PartSource:
    return PartSource(Store(tmp_path / "store"))


def headers(source: PartSource) -> Ingredient:
    part = source.torch_headers(Version("2.11")).part
    assert part is not None
    (ingredient,) = part.ingredients
    return ingredient


def know(monkeypatch: pytest.MonkeyPatch, *known: Ingredient) -> None:
    monkeypatch.setattr("kernelyard.toolchain.parts.known_wheels", lambda: {wheel.file: wheel for wheel in known})


def refused(of: Callable[[], object], code: str) -> KernelyardError:
    with pytest.raises(VerificationError) as caught:
        of()
    assert (caught.value.code, caught.value.exit_code) == (code, 4)
    return caught.value


def test_a_wheel_that_nobody_knows_is_taken_on_first_use_and_that_is_said(
    wheel: bytes, source: PartSource, caplog: pytest.LogCaptureFixture
) -> None:
    ingredient = headers(source)
    assert (ingredient.trust, ingredient.sha256, ingredient.size) == ("first-use", digest(wheel), len(wheel))
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert f"{FILE} is taken on first use" in warning.getMessage()
    caplog.clear()
    assert headers(PartSource(source.store)) == ingredient
    assert caplog.records == []


def test_a_wheel_that_came_whole_is_vouched_for_by_the_index(
    server: IndexServer, wheel: bytes, source: PartSource, caplog: pytest.LogCaptureFixture
) -> None:
    server.ranges = False
    assert (headers(source).trust, headers(source).sha256) == ("index", digest(wheel))
    assert "first use" not in caplog.text


@pytest.mark.usefixtures("wheel")
def test_a_whole_wheel_of_which_the_index_says_nothing_is_first_use(server: IndexServer, source: PartSource) -> None:
    server.ranges = server.digests = False
    assert headers(source).trust == "first-use"


def test_a_wheel_that_is_known_is_vouched_for_by_the_table(
    server: IndexServer,
    wheel: bytes,
    source: PartSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = as_known(server, wheel)
    know(monkeypatch, known)
    assert headers(source) == known
    assert "first use" not in caplog.text


def test_what_the_index_does_not_say_of_a_known_wheel_is_known_all_the_same(
    server: IndexServer, wheel: bytes, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = as_known(server, wheel)
    know(monkeypatch, known)
    server.sizes = server.digests = False
    assert headers(source) == known


@pytest.mark.parametrize("digests", [True, False])
def test_another_wheel_under_a_known_name_is_refused(
    server: IndexServer,
    wheel: bytes,
    source: PartSource,
    monkeypatch: pytest.MonkeyPatch,
    digests: bool,  # noqa: FBT001
) -> None:
    """Of the same size and with a RECORD that fits its members: nothing inside of it tells."""
    know(monkeypatch, as_known(server, wheel))
    other = server.wheel({**MEMBERS, "torch/include/a.h": b"int b;\n"})
    assert len(other) == len(wheel)
    server.add("torch", FILE, other)
    server.digests = digests
    error = refused(lambda: source.torch_headers(Version("2.11")), "KY351")
    assert f"{FILE} is not the wheel that Kernelyard knows" in str(error)
    assert ("the index names another sha256" if digests else "its RECORD is another") in str(error)
    assert not list(source.store.root.glob("torch-headers/*"))


def test_an_index_that_names_another_size_of_a_known_wheel_is_refused(
    server: IndexServer, wheel: bytes, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = as_known(server, wheel)
    know(monkeypatch, replace(known, size=len(wheel) + 1))
    error = refused(lambda: source.torch_headers(Version("2.11")), "KY351")
    assert f"another size, {len(wheel)} and not {len(wheel) + 1}" in str(error)


def test_a_known_wheel_that_is_served_whole_and_differs_is_refused(
    server: IndexServer, wheel: bytes, source: PartSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, as_known(server, wheel))
    server.add("torch", FILE, server.wheel({**MEMBERS, "torch/lib/x.so": bytes(299_999) + b"x"}))
    server.digests = server.ranges = False
    refused(lambda: source.torch_headers(Version("2.11")), "KY314")


def test_a_wheel_that_is_read_whole_takes_one_request_and_no_ranges(server: IndexServer, wheel: bytes) -> None:
    index = PackageIndex()
    link = index.find_wheel("torch", known_torch()["2.11"]["version"], platform="x86_64-linux", python=["cp312"])
    opened = RemoteWheel(index, link, whole=True)
    assert opened.read("torch/include/a.h") == b"int a;\n"
    assert opened.trust == "index"
    (request,) = server.file_requests
    assert (request.range, request.sent) == (None, len(wheel))


# By a lock


def lock_of(part: Any, *archives: Ingredient) -> ToolchainLock:
    return ToolchainLock(
        kernelyard="1",
        templates="0" * 64,
        platform="x86_64-linux",
        selection=(),
        archives={archive.file: archive for archive in archives},
        parts={part.id: LockedPart(tuple(archive.file for archive in archives), part.tree)},
        variants={},
    )


def test_a_lock_names_the_wheel_whatever_else_the_index_has_by_now(
    server: IndexServer, wheel: bytes, tmp_path: Path
) -> None:
    server.files[FILE.replace("cp312", "cp313")] = server.files.pop(FILE)
    first = PartSource(Store(tmp_path / "first"))
    part = first.torch_headers(Version("2.11")).part
    assert part is not None
    assert "cp313" in part.ingredients[0].file
    server.add("torch", FILE, wheel)
    again = PartSource(Store(tmp_path / "again"), lock=lock_of(part, *part.ingredients))
    other = again.torch_headers(Version("2.11")).part
    assert other is not None
    assert other.ingredients == part.ingredients


def test_a_lock_can_name_the_wheels_of_a_release_for_two_platforms(server: IndexServer, wheel: bytes) -> None:
    here = as_known(server, wheel)
    there = replace(here, file=FILE.replace("x86_64", "aarch64"))
    for_all = replace(here, name="other", file="other-1-py3-none-any.whl")
    archives = {archive.file: archive for archive in (there, here, for_all)}
    lock = ToolchainLock("1", "0" * 64, "aarch64-linux", (), archives, {}, {})
    found = [locked_wheel(lock, "torch", here.version, platform=f"{cpu}-linux") for cpu in ("x86_64", "aarch64")]
    assert found == [here, there]
    assert locked_wheel(lock, "other", here.version, platform="aarch64-linux") == for_all
    refused(lambda: locked_wheel(lock, "torch", here.version, platform="riscv64-linux"), "KY355")


@pytest.mark.usefixtures("wheel")
def test_a_wheel_whose_record_is_not_the_locked_one_is_refused(
    server: IndexServer, source: PartSource, tmp_path: Path
) -> None:
    server.digests = False
    part = source.torch_headers(Version("2.11")).part
    assert part is not None
    server.add("torch", FILE, server.wheel({**MEMBERS, "torch/include/a.h": b"int b;\n"}))
    again = PartSource(Store(tmp_path / "again"), lock=lock_of(part, *part.ingredients))
    error = refused(lambda: again.torch_headers(Version("2.11")), "KY351")
    assert "not the wheel that was taken before" in str(error)


@pytest.mark.usefixtures("wheel")
def test_a_file_of_a_part_that_was_changed_in_the_store_is_noticed_with_a_lock(source: PartSource) -> None:
    part = source.torch_headers(Version("2.11")).part
    assert part is not None
    locked = PartSource(source.store, lock=lock_of(part, *part.ingredients))
    assert locked.torch_headers(Version("2.11")).part == part
    part.path.joinpath("a.h").write_text("int b;\n")
    error = refused(lambda: locked.torch_headers(Version("2.11")), "KY355")
    assert part.id in str(error)
    assert str(part.path) in error.hint


@pytest.mark.usefixtures("wheel")
def test_a_part_and_a_wheel_that_the_lock_does_not_have_are_refused(source: PartSource, tmp_path: Path) -> None:
    part = source.torch_headers(Version("2.11")).part
    assert part is not None
    empty = replace(lock_of(part), parts={})
    error = refused(lambda: PartSource(source.store, lock=empty).torch_headers(Version("2.11")), "KY355")
    assert f"the lock has no part {part.id}" in str(error)
    error = refused(lambda: PartSource(Store(tmp_path / "empty"), lock=empty).torch_headers(Version("2.11")), "KY355")
    assert "the lock has no wheel of torch" in str(error)


# The table itself


def test_the_table_has_every_wheel_that_a_recipe_for_x86_64_names() -> None:
    known = {(wheel.name, wheel.version) for wheel in known_wheels().values()}
    wheels = {(wheel["project"], wheel["version"]) for pin in known_cuda().values() for wheel in pin["wheels"]}
    torch = {("torch", pin["version"]) for pin in known_torch().values()}
    assert (wheels | torch) - known == set()


def test_an_entry_of_the_table_is_whole() -> None:
    for file, wheel in known_wheels().items():
        project = file.partition("-")[0].replace("_", "-")
        assert (wheel.kind, wheel.trust, wheel.name) == ("wheel", "table", project)
        assert file.split("-")[1] == wheel.version
        assert all(len(bytes.fromhex(text or "")) == 32 for text in (wheel.sha256, wheel.record))
        assert wheel.size is not None
        assert wheel.size > 1000


def test_the_table_is_written_one_wheel_a_line() -> None:
    path = Path(__file__).parents[2] / "src" / "kernelyard" / "toolchain" / "records.json"
    head, *lines, end = path.read_text("utf-8").splitlines()
    assert (head, end) == ('{"format": 1, "wheels": {', "}}")
    assert [next(iter(json.loads(f"{{{line.rstrip(',')}}}"))) for line in lines] == sorted(known_wheels())
