"""What is in the store, or on a hub, and is not what was published: it is refused with status 4, and its file is named.

What is tried here by the command on a store that was filled before is tried elsewhere for folders (test_local.py),
while a process runs (test_hostile.py, test_importer.py), with stamps (test_stamps.py) and in layers (test_layers.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command

FILES = {"sub/__init__.py": "", "sub/deep.py": "X = 1\n", "table.txt": "1 2\n", "native.abi3.so": "not opened"}


class Store:
    """A store with one kernel that was fetched before, and the command that loads it again."""

    def __init__(self, kernelyard: Command, root: Path) -> None:
        self.root = root
        self.mark = root / "evil-code-ran"
        self.evil = f"open({str(self.mark)!r}, 'w').close()\n"
        self._kernelyard = kernelyard

    def load(self, version: str = "1") -> tuple[int, str]:
        own = {"KERNELYARD_CACHE": str(self.root / "store"), "XDG_CONFIG_HOME": str(self.root / "config")}
        arguments = ("get", "org/gray", "--version", version, "--hub", self.root / "hub")
        done = self._kernelyard(*arguments, cwd=self.root, env=own)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    def variants(self) -> list[Path]:
        return sorted((self.root / "store/variants").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    def refused(self, path: Path) -> str:
        status, said = self.load()
        assert status == 4, said
        assert str(path) in said
        assert not self.mark.exists()
        return said


@pytest.fixture
def store(kernelyard: Command, tmp_path: Path, make_variant: Callable[..., Path], publish: Callable[..., str]) -> Store:
    publish(make_variant(files=FILES, id_="_gray_a").parent)
    made = Store(kernelyard, tmp_path)
    assert made.load() == (0, "")
    return made


def change_keeping_its_time(file: Path, content: str) -> None:
    before = file.stat()
    file.write_text(content.ljust(before.st_size, "#")[: max(before.st_size, len(content))])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("name", ["__init__.py", "sub/deep.py", "native.abi3.so", "table.txt", "metadata.json"])
def test_a_file_of_the_store_that_was_changed_is_refused(store: Store, name: str) -> None:
    (variant,) = store.variants()
    change_keeping_its_time(variant / name, store.evil)
    said = store.refused(variant / name)
    assert "is not the file that the index of the hub names [KY602]" in said
    assert f"delete the folder {variant} and load the kernel again" in said
    # What it says to do helps.
    shutil.rmtree(variant)
    assert store.load()[0] == 0


@pytest.mark.parametrize(
    "name", ["planted.py", "sub/planted.py", "json.py", "native.so", "sub/__init__.abi3.so", "planted.pth", ".hidden"]
)
def test_a_file_that_was_planted_is_refused(store: Store, name: str) -> None:
    (variant,) = store.variants()
    (variant / name).write_text(store.evil)
    assert "does not belong here" in store.refused(variant / name)


@pytest.mark.parametrize("name", ["__pycache__/__init__.cpython-{}.pyc", "sub/deep.pyc", "planted.pyc"])
def test_bytecode_that_was_planted_is_refused(store: Store, name: str) -> None:
    import importlib.util
    import marshal
    import sys

    (variant,) = store.variants()
    file = variant / name.format("".join(map(str, sys.version_info[:2])))
    file.parent.mkdir(exist_ok=True)
    code = marshal.dumps(compile(store.evil, "evil", "exec"))
    # Unchecked: an import would take it whatever the source is.
    file.write_bytes(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code)
    assert "bytecode" in store.refused(file)
    own = {"KERNELYARD_CACHE": str(store.root / "store")}
    verified = store._kernelyard("cache", "verify", env=own)
    assert (verified.returncode, f"{file}: is bytecode" in verified.stdout + verified.stderr) == (4, True)


@pytest.mark.parametrize("name", ["__init__.py", "table.txt", "metadata.json"])
def test_a_file_that_was_taken_away_is_missed(store: Store, name: str) -> None:
    (variant,) = store.variants()
    (variant / name).unlink()
    assert "is missing" in store.refused(variant / name)


def test_a_variant_in_the_place_of_another_is_refused(
    store: Store, make_variant: Callable[..., Path], publish: Callable[..., str]
) -> None:
    publish(make_variant("other", files={**FILES, "__init__.py": store.evil}, id_="_gray_b").parent, branch="v1-old")
    (first,) = store.variants()
    own = {"KERNELYARD_CACHE": str(store.root / "store")}
    fetched = store._kernelyard("get", "org/gray", "--revision", "v1-old", "--hub", store.root / "hub", env=own)
    assert fetched.returncode == 0, fetched.stderr
    store.mark.unlink()
    (second,) = [path for path in store.variants() if path != first]
    first.rename(store.root / "kept")
    second.rename(first)
    store.refused(first / "__init__.py")


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_a_linked_directory_is_refused(store: Store, same: bool) -> None:  # noqa: FBT001
    (variant,) = store.variants()
    (variant / "sub").rename(store.root / "elsewhere")
    if not same:
        (store.root / "elsewhere/deep.py").write_text(store.evil)
    (variant / "sub").symlink_to(store.root / "elsewhere")
    said = store.refused(variant / "sub")
    assert "is missing" in said or "is a link" in said


def test_a_linked_directory_that_was_planted_is_refused(store: Store) -> None:
    (variant,) = store.variants()
    (store.root / "elsewhere").mkdir()
    (store.root / "elsewhere/__init__.py").write_text(store.evil)
    (variant / "planted").symlink_to(store.root / "elsewhere")
    assert "is a link, which the store has none of" in store.refused(variant / "planted")


def test_a_linked_file_is_refused(store: Store) -> None:
    (variant,) = store.variants()
    (variant / "table.txt").rename(store.root / "elsewhere.txt")
    (variant / "table.txt").symlink_to(store.root / "elsewhere.txt")
    assert "is a link, which the store has none of" in store.refused(variant / "table.txt")


def test_what_is_changed_by_another_name_is_refused(store: Store) -> None:
    (variant,) = store.variants()
    file = variant / "sub/deep.py"
    outside = store.root / "outside.py"
    os.link(file, outside)
    assert store.load()[0] == 0  # a second name alone is no change
    change_keeping_its_time(outside, store.evil)
    store.refused(file)
    file.unlink()
    outside.write_text(store.evil)
    os.link(outside, file)
    store.refused(file)


@pytest.mark.parametrize("what", ["index", "blob", "refs"])
def test_a_hub_that_hands_out_something_else_is_refused(store: Store, what: str) -> None:
    shutil.rmtree(store.root / "store")
    hub = store.root / "hub"
    if what == "index":
        (file,) = hub.rglob("index.json")
        document = json.loads(file.read_bytes())
        document["license"] = "other"
        file.write_text(json.dumps(document))
    elif what == "refs":
        (file,) = hub.rglob("index.json")
        other = file.parent.with_name("0" * 64)
        file.parent.rename(other)
        (refs,) = hub.rglob("refs.json")
        refs.write_text(refs.read_text().replace(file.parent.name, other.name))
        file = other / "index.json"
    else:
        (file,) = [path for path in hub.rglob("*") if path.is_file() and path.read_bytes() == b"1 2\n"]
        file.write_text("3 4\n")
    said = store.refused(file)
    assert "KY503" in said
    assert not list((store.root / "store").glob("variants/*/"))
