from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.errors import EnvironmentProblemError, KernelyardError, VerificationError
from kernelyard.store import Store
from kernelyard.toolchain.deb_package import Selection
from kernelyard.toolchain.debian_mirror import DebianPin
from kernelyard.toolchain.debian_packages import DebianPackages, known_debian

if TYPE_CHECKING:
    from tests.toolchain.debian.conftest import MirrorServer, Pieces


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store, whose path has a space and letters that are not ASCII."""
    return Store(tmp_path / "mein Läger ☃")


@pytest.fixture
def pins(mirror: MirrorServer, pieces: Pieces) -> list[DebianPin]:
    """Return the pins of two packages on the mirror: a libc and its headers."""
    libc = [pieces.member("./lib/libc.so.6", b"libc", mode=0o755), pieces.member("./usr/share/doc/x", b"doc")]
    headers = [pieces.member("./usr/include/stdio.h", b"stdio"), pieces.link("./usr/lib/libc.so", "/lib/libc.so.6")]
    return [mirror.add("libc6", pieces.deb(libc)), mirror.add("libc6-dev", pieces.deb(headers, suffix=".gz"))]


SYSROOT = [Selection(("lib", "usr/include", "usr/lib"))]


def entries(store: Store) -> list[str]:
    """Return everything in the store that is an entry or on the way to become one."""
    return [path.name for path in store.root.glob("*/*") if path.parent.name != "locks"]


def failure(of: Callable[[], object], kind: type[KernelyardError] = EnvironmentProblemError) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert type(caught.value) is kind
    return caught.value


def test_packages_are_unpacked_into_one_folder_of_the_store(
    mirror: MirrorServer, store: Store, pins: list[DebianPin], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kernelyard.toolchain")
    source = DebianPackages(store)
    root = source.provide("sysroots", "sysroot-x86_64", pins, SYSROOT)
    assert root.parent == store.root / "sysroots"
    assert root.name.startswith("sysroot-x86_64-")
    assert root.joinpath("usr/lib/libc.so").read_bytes() == b"libc"
    assert root.joinpath("usr/include/stdio.h").read_bytes() == b"stdio"
    assert not root.joinpath("usr/share").exists()
    assert source.bytes_fetched == sum(pin.size for pin in pins)
    assert "libc6 1:1.0+b1~2 (amd64): 1 files, 0.0 MB" in caplog.messages
    assert len(mirror.requests) == 2


def test_what_is_in_the_store_needs_no_mirror(
    mirror: MirrorServer, store: Store, pins: list[DebianPin], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = DebianPackages(store).provide("sysroots", "s", pins, SYSROOT)
    monkeypatch.setenv("KERNELYARD_DEBIAN_MIRROR", "not an address")
    offline = DebianPackages(store)
    assert offline.provide("sysroots", "s", pins, SYSROOT) == root
    assert (offline.bytes_fetched, len(mirror.requests)) == (0, 2)


def test_other_packages_and_other_selections_are_other_entries(store: Store, pins: list[DebianPin]) -> None:
    source = DebianPackages(store)
    roots = {
        source.provide("sysroots", "s", pins, SYSROOT),
        source.provide("sysroots", "s", pins),
        source.provide("sysroots", "s", pins, [Selection(into="other")]),
        source.provide("sysroots", "s", pins[:1]),
    }
    assert len(roots) == 4


def test_a_named_mirror_is_used(
    start_mirror: Callable[[], MirrorServer], pieces: Pieces, store: Store, tmp_path: Path
) -> None:
    named = start_mirror()
    pin = named.add("x", pieces.deb({"a": b"a"}))
    assert DebianPackages(store, mirror=named.url).extract([pin], tmp_path) == ("a",)


def test_what_fails_half_way_is_not_there_and_is_whole_the_next_time(
    mirror: MirrorServer, store: Store, pins: list[DebianPin]
) -> None:
    taken = mirror.files.pop(pins[1].filename)
    source = DebianPackages(store)
    assert failure(lambda: source.provide("sysroots", "s", pins, SYSROOT)).code == "KY343"
    assert entries(store) == []
    mirror.files[pins[1].filename] = taken[:-1] + b"?"
    assert failure(lambda: source.provide("sysroots", "s", pins, SYSROOT), VerificationError).code == "KY345"
    assert entries(store) == []
    mirror.files[pins[1].filename] = taken
    assert source.provide("sysroots", "s", pins, SYSROOT).joinpath("usr/include/stdio.h").is_file()


def test_a_package_that_is_what_was_pinned_but_hostile_leaves_nothing(
    mirror: MirrorServer, pieces: Pieces, store: Store
) -> None:
    pin = mirror.add("x", pieces.deb([pieces.member("good", b"g"), pieces.member("../../evil", b"x")]))
    assert failure(lambda: DebianPackages(store).provide("sysroots", "s", [pin])).code == "KY344"
    assert entries(store) == []
    assert not list(store.root.parent.rglob("evil"))


def test_a_package_of_which_nothing_is_taken_is_a_mistake(store: Store, pins: list[DebianPin], tmp_path: Path) -> None:
    error = failure(lambda: DebianPackages(store).extract(pins, tmp_path, [Selection(("lib",))]))
    assert error.code == "KY344"
    assert "libc6-dev 1:1.0+b1~2 (amd64) has none of the files wanted of it" in str(error)


def test_what_no_package_has_is_a_mistake(store: Store, pins: list[DebianPin], tmp_path: Path) -> None:
    selections = [*SYSROOT, Selection(("libexec",), strip="usr/")]
    error = failure(lambda: DebianPackages(store).extract(pins, tmp_path, selections))
    assert error.code == "KY344"
    assert "none of the packages has usr/libexec" in str(error)


# The pins that ship


def test_the_sets_that_toolchains_need_are_pinned() -> None:
    assert known_debian().keys() >= {
        *("cuda-12.4-x86_64", "cuda-12.4-aarch64", "cuda-11.8-x86_64", "cuda-11.8-aarch64"),
        *("gcc-12-x86_64", "gcc-11-x86_64", "gcc-12-cross-aarch64", "gcc-11-cross-aarch64"),
        *("sysroot-x86_64", "sysroot-aarch64"),
    }
    assert {pin.version.partition("~")[0] for pin in known_debian()["cuda-12.4-x86_64"]} == {"12.4.131"}
    assert {pin.version.partition("~")[0] for pin in known_debian()["cuda-11.8-aarch64"]} == {"11.8.89"}


@pytest.mark.parametrize("title", known_debian())
def test_every_pin_is_whole(title: str) -> None:
    found = known_debian()[title]
    assert len({pin.name for pin in found}) == len(found) > 0
    for pin in found:
        assert re.fullmatch(r"pool/[a-z-]+/[a-z0-9]+/[a-z0-9+.-]+/[\w+.~-]+\.deb", pin.filename)
        assert re.fullmatch(r"[0-9a-f]{64}", pin.sha256)
        assert pin.size > 1000
        assert pin.architecture in ({"arm64", "all"} if title in AARCH64 else {"amd64", "all"})


AARCH64 = {"cuda-12.4-aarch64", "cuda-11.8-aarch64", "sysroot-aarch64"}
