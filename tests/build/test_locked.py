"""Builds from a toolchain.lock: exactly what it names, the same bytes everywhere, and no network once it is fetched."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernelyard.build.headers import headers_read
from kernelyard.build.project import build_project
from kernelyard.build.toolchain_lock import make_lock, make_ready, read_lock, write_lock
from kernelyard.errors import InputError, KernelyardError, MissingError, VerificationError
from kernelyard.formats.index import Index
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.toolchain_lock import LockedPart, ToolchainLock
from kernelyard.formats.versions import Version
from kernelyard.hub.folder import hash_tree
from kernelyard.store import Store
from kernelyard.toolchain.parts import PartSource

if TYPE_CHECKING:
    from tests.conftest import Command

pytestmark = [pytest.mark.compile, pytest.mark.network]

CPU = "torch-stable-abi211-cpu-x86_64-linux"
#: Where a source stands, and where a header of torch's does, which checks an index.
TELLS_WHERE = """
#include <torch/headeronly/core/TensorAccessor.h>
const char *where() { return __FILE__; }
void check_index(long index) { torch::headeronly::detail::HeaderOnlyIndexBoundsCheck<2, long> check(index); }
"""

#: What nvcc names after the path of the source: symbols that are static or in a namespace without a name.
DEVICE_CODE = """
namespace { __device__ int counter; }
static __device__ float table[4];
__global__ void probe(int *out) { out[0] = atomicAdd(&counter, 1) + static_cast<int>(table[out[1] & 3]); }
const char *launch_probe(int *out) { probe<<<1, 1>>>(out); return __FILE__; }
"""
#: When it was compiled, for the host and for the device, whose code may be compressed: in 1970, both times.
TELLS_WHEN = """
__device__ const char when_device[] = "device: " __DATE__ " " __TIME__;
__global__ void tell(char *out) { out[threadIdx.x] = when_device[threadIdx.x]; }
extern "C" const char when_host[] = "host: " __DATE__ " " __TIME__;
const char *launch_tell(char *out) { tell<<<1, 8>>>(out); return when_host; }
"""


@pytest.fixture(scope="module")
def tiny_lock(source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> ToolchainLock:
    """The lock of `tiny` for the CPU."""
    from tests.conftest import copy_sample

    project = copy_sample("tiny", tmp_path_factory.mktemp("lock") / "tiny")
    return make_lock(project, source, selection=["*-cpu-*"])


@pytest.fixture
def locked(sample: Callable[[str], Path], tiny_lock: ToolchainLock) -> Path:
    """`tiny` with its lock."""
    project = sample("tiny")
    write_lock(project, tiny_lock)
    return project


def failure(of: Callable[[], object], kind: type[KernelyardError], code: str) -> KernelyardError:
    with pytest.raises(KernelyardError) as caught:
        of()
    assert (type(caught.value), caught.value.code) == (kind, code)
    return caught.value


def test_a_lock_names_all_that_a_build_uses(tiny_lock: ToolchainLock) -> None:
    assert tiny_lock.selection == ("*-cpu-*",)
    (variant,) = tiny_lock.variants.values()
    assert variant.uses.keys() == {"cmake", "compiler", "floor", "ninja", "torch", "torch-stubs"}
    of_parts = {role for role, use in variant.uses.items() if use.part}
    assert of_parts == {"cmake", "compiler", "ninja", "torch"}
    assert {archive.trust for archive in tiny_lock.archives.values()} == {"table", "pin"}


def test_a_build_from_a_lock_says_so(locked: Path, source: PartSource, tiny_lock: ToolchainLock) -> None:
    (built,) = build_project(locked, source=source, locked=True)
    assert built.name == CPU
    metadata = Metadata.from_json((built.path / "metadata.json").read_bytes(), path="metadata.json")
    made = metadata.made
    assert made is not None
    assert made.toolchain_lock == tiny_lock.digest
    assert made.object_cache is False
    assert made.tools.keys() == tiny_lock.variants[CPU].uses.keys()
    assert made.tools["cmake"].startswith("cmake ")
    index = Index.from_json((locked / "build" / "index.json").read_bytes(), path="index.json")
    assert index.toolchain_lock == tiny_lock.digest


def test_a_build_without_a_lock_says_so_too(built_tiny: Path) -> None:
    metadata = Metadata.from_json((built_tiny / "build" / CPU / "metadata.json").read_bytes(), path="metadata.json")
    assert metadata.made is not None
    assert metadata.made.toolchain_lock is None
    assert {"cmake", "compiler", "ninja"} <= metadata.made.tools.keys()
    index = Index.from_json((built_tiny / "build" / "index.json").read_bytes(), path="index.json")
    assert index.toolchain_lock is None


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the store is on another disk
        shutil.copy2(source, target)


def copy_parts(lock: ToolchainLock, store: Store, root: Path) -> Store:
    """Return a store elsewhere, with all that a lock names and nothing else."""
    copy = Store(root)
    for part in lock.parts:
        kind, key = part.split("/")
        shutil.copytree(store.path(kind, key), copy.path(kind, key), symlinks=True, copy_function=link)
    return copy


def test_the_bytes_are_the_same_whoever_builds_and_wherever(
    sample: Callable[[str], Path],
    source: PartSource,
    tiny_lock: ToolchainLock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = sample("tiny")
    with first.joinpath("torch-ext", "binding.cpp").open("a", encoding="utf-8") as file:
        file.write(TELLS_WHERE)
    second = tmp_path / "mein Läger ☃" / "other name"
    shutil.copytree(first, second)
    other_store = copy_parts(tiny_lock, source.store, tmp_path / "store ☃ two")
    write_lock(first, tiny_lock)
    write_lock(second, tiny_lock)
    (one,) = build_project(first, source=source, locked=True, jobs=1)
    before = os.umask(0o077)
    try:
        for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "HOME"):
            monkeypatch.setenv(name, str(tmp_path))
        monkeypatch.setenv("LANG", "de_DE.UTF-8")
        monkeypatch.setenv("CXX", "clang++")
        (other,) = build_project(second, source=PartSource(other_store), locked=True, jobs=2)
    finally:
        os.umask(before)
    assert hash_tree(one.path) == hash_tree(other.path)
    extension = next(one.path.glob("*.so")).read_bytes()
    assert b"./torch-ext/binding.cpp" in extension
    assert b"kernelyard/torch-headers/" in extension
    for path in one.path.rglob("*"):
        content = path.read_bytes()
        assert str(source.store.root).encode() not in content
        assert str(tmp_path).encode() not in content


@pytest.mark.slow
def test_the_bytes_of_device_code_are_the_same_wherever_it_is_built(
    sample: Callable[[str], Path], source: PartSource, tmp_path: Path
) -> None:
    first = sample("tiny")
    with first.joinpath("csrc", "answer.cu").open("a", encoding="utf-8") as file:
        file.write(DEVICE_CODE + TELLS_WHEN)
    write_lock(first, make_lock(first, source, selection=["*-cu130-*"]))
    second = tmp_path / "mein Läger ☃" / "other name"
    shutil.copytree(first, second)
    other = PartSource(copy_parts(read_lock(first), source.store, tmp_path / "store ☃ two"))
    (one,) = build_project(first, source=source, locked=True, capabilities=["9.0"])
    (two,) = build_project(second, source=other, locked=True, capabilities=["9.0"])
    assert hash_tree(one.path) == hash_tree(two.path)
    extension = next(one.path.glob("*.so")).read_bytes()
    assert b"./csrc/answer.cu" in extension
    assert b"host: Jan  1 1970 00:00:00" in extension
    assert str(tmp_path).encode() not in extension


def test_every_header_that_is_read_lies_in_a_locked_tree_or_in_the_project(
    locked: Path, source: PartSource, tiny_lock: ToolchainLock
) -> None:
    build_project(locked, source=source, locked=True)
    objects = locked / ".kernelyard" / "locked" / "cpu" / "objects"
    ninja = next(source.store.path(*part.split("/")) for part in tiny_lock.parts if "/ninja-" in part) / "ninja"
    read = {path.resolve() for path in headers_read(objects, ninja)}
    assert len(read) > 5
    trees = [locked.resolve(), *(source.store.path(*part.split("/")).resolve() for part in tiny_lock.parts)]
    assert [path for path in read if not any(path.is_relative_to(tree) for tree in trees)] == []
    assert any("sysroot" in path.parts for path in read)


def test_a_build_needs_no_network_once_the_lock_is_fetched(
    locked: Path, tmp_path: Path, tiny_lock: ToolchainLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty store, which the lock alone fills."""
    store = Store(tmp_path / "empty")
    fetching = PartSource(store, lock=tiny_lock)
    for variant in tiny_lock.variants.values():
        make_ready(fetching, variant.request)
    assert 50e6 < fetching.bytes_fetched < 150e6
    for name in ("PIP_INDEX_URL", "KERNELYARD_DEBIAN_MIRROR", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/simple")
    offline = PartSource(store)
    (built,) = build_project(locked, source=offline, locked=True)
    assert built.name == CPU
    assert offline.bytes_fetched == 0


# What is refused


def test_without_a_lock_nothing_is_built(sample: Callable[[str], Path], source: PartSource) -> None:
    project = sample("tiny")
    failure(lambda: build_project(project, source=source, locked=True), MissingError, "KY353")
    assert not (project / "build").exists()


def test_a_variant_that_is_not_locked_is_refused(locked: Path, source: PartSource) -> None:
    error = failure(
        lambda: build_project(locked, source=source, variants=["*-cu130-*"], locked=True), InputError, "KY354"
    )
    assert "the lock does not have this variant" in error.what


def test_a_manifest_that_asks_for_something_else_by_now_is_refused(locked: Path, source: PartSource) -> None:
    manifest = locked / "build.toml"
    manifest.write_text(manifest.read_text("utf-8").replace("depends = []", 'depends = ["cutlass_3_8"]'), "utf-8")
    error = failure(lambda: build_project(locked, source=source, locked=True), InputError, "KY354")
    assert "the project asks for something else" in error.what
    assert "kernelyard toolchain update" in error.hint


def with_another_content(lock: ToolchainLock, role: str) -> tuple[str, ToolchainLock]:
    """Return the id of the part in a role, and the lock with another digest of its files."""
    variant = lock.variants[CPU]
    part = variant.uses[role].part
    assert part is not None
    changed = {**variant.uses, role: replace(variant.uses[role], digest="0" * 64)}
    parts = {**lock.parts, part: LockedPart(lock.parts[part].archives, "0" * 64)}
    return part, replace(lock, parts=parts, variants={CPU: replace(variant, uses=changed)})


@pytest.mark.parametrize("role", ["compiler", "cmake", "ninja", "torch"])
def test_a_part_with_another_content_is_refused(
    locked: Path, source: PartSource, tiny_lock: ToolchainLock, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    part, changed = with_another_content(tiny_lock, role)
    write_lock(locked, changed)
    assert read_lock(locked) == changed
    error = failure(lambda: build_project(locked, source=source, locked=True), VerificationError, "KY351")
    assert error.place is not None
    assert error.place.key == f"parts.{part}"
    # Of a recipe that nobody knows the lock and the store are all there is.
    monkeypatch.setattr("kernelyard.toolchain.trust.known_trees", dict)
    error = failure(lambda: build_project(locked, source=source, locked=True), VerificationError, "KY355")
    assert part in error.what
    assert not (locked / "build").exists()


@pytest.mark.parametrize("role", ["floor", "torch-stubs"])
def test_what_kernelyard_carries_must_be_what_is_locked(
    locked: Path, source: PartSource, tiny_lock: ToolchainLock, role: str
) -> None:
    variant = tiny_lock.variants[CPU]
    other = replace(variant.uses[role], digest="0" * 64)
    write_lock(locked, replace(tiny_lock, variants={CPU: replace(variant, uses={**variant.uses, role: other})}))
    error = failure(lambda: build_project(locked, source=source, locked=True), VerificationError, "KY355")
    assert f"{role} is not what is locked" in error.what


@pytest.mark.parametrize(
    "planted", ["floors/manylinux_2_28-*/libfloor_compat.a", "floors/*/libm.so", "stubs/torch-2.11.0-*/libc10.so"]
)
def test_what_is_made_here_must_be_what_kernelyard_makes(
    locked: Path, kernelyard: Command, tiny_lock: ToolchainLock, store_root: Path, planted: str
) -> None:
    """In a store that others may write to: a planted archive would be in every kernel."""
    store = copy_parts(tiny_lock, Store(store_root), locked / ".store")
    request = tiny_lock.variants[CPU].request
    make_ready(PartSource(store), request)
    ((file,), verify) = store.root.glob(planted), ("toolchain", "verify")
    where = {"KERNELYARD_CACHE": str(store.root)}
    assert kernelyard(*verify, cwd=locked, env=where).returncode == 0
    file.write_bytes(file.read_bytes() + b"\n")
    name = file.parent.relative_to(store.root).as_posix()
    done = kernelyard(*verify, cwd=locked, env=where)
    assert (done.returncode, f"differs  {name}" in done.stdout) == (4, True), done.stderr
    error = failure(lambda: build_project(locked, source=PartSource(store), locked=True), VerificationError, "KY355")
    assert f"{name} are not those that Kernelyard makes" in error.what
    assert not (locked / "build").exists()
    failure(lambda: make_ready(PartSource(store, lock=tiny_lock), request), VerificationError, "KY355")


# The commands


def test_the_commands_tell_what_they_do(locked: Path, kernelyard: Command, tiny_lock: ToolchainLock) -> None:
    (locked / "toolchain.lock").unlink()
    done = kernelyard("toolchain", "lock", "--variant", "*-cpu-*", cwd=locked)
    assert done.returncode == 0, done.stderr
    assert f"1 variant, {len(tiny_lock.parts)} parts" in done.stdout
    assert read_lock(locked) == tiny_lock
    assert kernelyard("toolchain", "update", cwd=locked).stdout == "nothing changed\n"
    assert "0 B were fetched" in kernelyard("toolchain", "fetch", cwd=locked).stdout
    done = kernelyard("toolchain", "verify", "--json", cwd=locked)
    verdicts = json.loads(done.stdout)
    assert {verdict["name"] for verdict in verdicts if verdict["kind"] == "part"} == tiny_lock.parts.keys()
    made = {verdict["name"].rpartition("-")[0] for verdict in verdicts if verdict["kind"] == "made"}
    assert made == {"floors/manylinux_2_28-x86_64", "stubs/torch-2.11.0-x86_64", "stubs/torch-x86_64"}
    assert {verdict["verdict"] for verdict in verdicts} == {"same"}


def test_lock_says_which_variants_are_gone(locked: Path, kernelyard: Command, tiny_lock: ToolchainLock) -> None:
    """Those of another --variant: the new lock is for what it is told now."""
    other = CPU.replace("cpu", "cu130")
    variant = tiny_lock.variants[CPU]
    request = replace(variant.request, backend="cuda", cuda=Version("13.0"))
    both = {CPU: variant, other: replace(variant, request=request)}
    write_lock(locked, replace(tiny_lock, selection=("*",), variants=both))
    done = kernelyard("toolchain", "lock", "--variant", CPU, cwd=locked)
    assert done.returncode == 0, done.stderr
    assert f"gone: {other}" in done.stdout
    assert "to have it too: kernelyard toolchain lock --variant '*'\n" in done.stdout
    assert read_lock(locked).variants.keys() == {CPU}
    done = kernelyard("toolchain", "lock", "--variant", CPU, cwd=locked)
    assert "gone" not in done.stdout


def test_fetch_holds_what_kernelyard_carries_against_the_lock_too(
    locked: Path, kernelyard: Command, tiny_lock: ToolchainLock
) -> None:
    variant = tiny_lock.variants[CPU]
    other = replace(variant.uses["floor"], digest="0" * 64)
    write_lock(locked, replace(tiny_lock, variants={CPU: replace(variant, uses={**variant.uses, "floor": other})}))
    done = kernelyard("toolchain", "fetch", cwd=locked)
    assert (done.returncode, "floor is not what is locked" in done.stderr) == (4, True)


def test_a_lock_of_another_kernelyard_is_compared_as_far_as_it_goes(
    locked: Path, kernelyard: Command, tiny_lock: ToolchainLock
) -> None:
    write_lock(locked, replace(tiny_lock, kernelyard="0.0.1"))
    done = kernelyard("toolchain", "verify", "--json", cwd=locked)
    assert done.returncode == 0, done.stderr
    assert {verdict["name"] for verdict in json.loads(done.stdout)} == tiny_lock.parts.keys()
    assert "of Kernelyard 0.0.1" in done.stderr


def test_update_says_what_changed(locked: Path, kernelyard: Command, tiny_lock: ToolchainLock) -> None:
    variant = tiny_lock.variants[CPU]
    older = replace(variant.uses["floor"], digest="0" * 64)
    write_lock(locked, replace(tiny_lock, variants={CPU: replace(variant, uses={**variant.uses, "floor": older})}))
    done = kernelyard("toolchain", "update", cwd=locked)
    assert re.fullmatch(rf"floor: (.+) \(0{{12}}\) -> \1 \(\w{{12}}\)  \({CPU}\)\n", done.stdout)
    assert read_lock(locked) == tiny_lock


def test_show_says_why_and_fetches_nothing(locked: Path, kernelyard: Command, tmp_path: Path) -> None:
    done = kernelyard(
        *("toolchain", "show", "--variant", "*-cpu-*", "--json"),
        cwd=locked,
        env={"KERNELYARD_CACHE": str(tmp_path / "empty"), "PIP_INDEX_URL": "http://127.0.0.1:1/simple"},
    )
    assert done.returncode == 0, done.stderr
    ((variant, steps),) = ((found["variant"], found["steps"]) for found in json.loads(done.stdout))
    assert variant == CPU
    by_role = {step["role"]: step for step in steps}
    assert by_role["torch"]["where"] == "not here yet"
    assert "the package index" in by_role["torch"]["looked"][1]
    assert by_role["compiler"]["why"]
    done = kernelyard("toolchain", "show", "--variant", "*-cpu-*", cwd=locked)
    assert "taken because: " in done.stdout
    assert "builds with --locked take what toolchain.lock names instead" in done.stderr


def test_verify_exits_with_its_own_status_where_something_differs(
    locked: Path, kernelyard: Command, tmp_path: Path, tiny_lock: ToolchainLock, source: PartSource
) -> None:
    store = Store(tmp_path / "changed")
    torch = tiny_lock.variants[CPU].uses["torch"].part
    assert torch is not None
    kind, key = torch.split("/")
    shutil.copytree(source.store.path(kind, key), store.path(kind, key), copy_function=link)
    header = store.path(kind, key) / "torch" / "all.h"
    header.unlink(missing_ok=True)
    header.write_text("// mine\n")
    done = kernelyard("toolchain", "verify", cwd=locked, env={"KERNELYARD_CACHE": str(store.root)})
    assert done.returncode == 4, done.stderr
    assert f"differs  {torch}" in done.stdout
    assert done.stdout.count("absent") == len(tiny_lock.parts) - 1
    assert "floors/" not in done.stdout  # what it is made with is not here to be compared
    failure(lambda: build_project(locked, source=PartSource(store), locked=True), VerificationError, "KY355")


@pytest.mark.slow
def test_whole_archives_are_compared_too(locked: Path, kernelyard: Command, tiny_lock: ToolchainLock) -> None:
    done = kernelyard("toolchain", "verify", "--full", "--json", cwd=locked)
    assert done.returncode == 0, done.stderr
    verdicts = {verdict["name"]: verdict["verdict"] for verdict in json.loads(done.stdout)}
    assert verdicts.items() >= dict.fromkeys((*tiny_lock.parts, *tiny_lock.archives), "same").items()
    assert set(verdicts.values()) == {"same"}


def test_a_merge_conflict_in_the_lock_is_told_with_its_line(locked: Path, kernelyard: Command) -> None:
    lock = locked / "toolchain.lock"
    lock.write_text("<<<<<<< ours\n" + lock.read_text("utf-8"), "utf-8")
    done = kernelyard("build", "--locked", cwd=locked)
    assert done.returncode == 2
    assert "toolchain.lock:1:1" in done.stderr
    assert "KY352" in done.stderr
    error = failure(lambda: read_lock(locked), InputError, "KY352")
    assert error.place is not None
    assert error.place.line == 1
