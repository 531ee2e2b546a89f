"""The same sources and the same lock give the same bytes, whoever builds, wherever and whenever: no object is shared.

`hidden` is full of what compilers make names of from a path: static device symbols, anonymous namespaces, `__FILE__`.
Whether another Linux gives the same is for `scripts/reproduce`; see docs/reproducible.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelyard.binary.difference import Names
from kernelyard.build.project import build_project
from kernelyard.build.toolchain_lock import make_lock, read_lock, write_lock
from kernelyard.hub.folder import FolderHub, FolderVariant
from kernelyard.publish.compare import variant_differences
from kernelyard.toolchain.parts import PartSource

pytestmark = [pytest.mark.compile, pytest.mark.network, pytest.mark.slow]

#: Without rights that root has; the number is the same on every Linux.
NOBODY = 65534
VARIANTS = ("*-cpu-*", "*-cu130-*")


@dataclass(frozen=True, slots=True)
class Built:
    """A project with its lock that has been built, and where its parts are."""

    project: Path
    store: Path

    def variants(self) -> dict[str, FolderVariant]:
        found = FolderHub.find(self.project / "build")
        assert found is not None
        return {variant.name: variant for variant in found.variants}


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def built(request: pytest.FixtureRequest, source: PartSource, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """`hidden`, built with two compilers at a time; the stable ABI for one backend and the full one for the other."""
    from tests.conftest import copy_sample

    project = copy_sample("hidden", tmp_path_factory.mktemp("first") / "hidden")
    manifest = project / "build.toml"
    stable, text = f'stable-abi = {{ {request.param} = "2.11" }}', manifest.read_text("utf-8")
    text = re.sub("stable-abi = .*", f'{stable}\nminver = "2.11"\nmaxver = "2.11"', text)
    manifest.write_text(text, "utf-8")
    write_lock(project, make_lock(project, source, selection=VARIANTS))
    build_project(project, source=source, locked=True, jobs=2)
    return Built(project, source.store.root)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that everybody can get to, which those of pytest are not; its name has a space and other letters."""
    with tempfile.TemporaryDirectory(prefix="kernelyard reproducible ä☃ ") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def harmful(folder: Path) -> dict[str, str]:
    """Surroundings in which nobody would want to build: each of these changes what a compiler does, if it sees it."""
    headers, libraries = folder / "headers", folder / "libraries"
    for name in ("cassert", "assert.h", "map", "stdexcept", "cuda_runtime.h", "crt/host_config.h"):
        headers.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        headers.joinpath(name).write_text("#error this header is of the user's surroundings\n", "utf-8")
    libraries.mkdir()
    for name in ("libstdc++.so", "libm.so", "libcudart_static.a"):
        libraries.joinpath(name).write_text("no library", "utf-8")
    temporary = folder / "other temporary"
    temporary.mkdir()
    include = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
    library = ("LIBRARY_PATH", "LD_RUN_PATH")
    flags = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "CUDAFLAGS", "LDFLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
    return {
        **dict.fromkeys(include, str(headers)),
        **dict.fromkeys(library, str(libraries)),
        **dict.fromkeys(flags, "-g -DHARM"),
        **dict.fromkeys(("CC", "CXX", "CUDACXX", "CUDAHOSTCXX"), "/bin/false"),
        "CMAKE_BUILD_TYPE": "Debug",
        "CMAKE_GENERATOR": "Unix Makefiles",
        "HOME": str(folder),
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": "C.UTF-8",
        "SOURCE_DATE_EPOCH": "1000000000",
        "TMPDIR": str(temporary),
        "TZ": "Asia/Kolkata",
    }


def build_elsewhere(built: Built, folder: Path, *, user: int | None = None) -> Built:
    """Build a copy by the real command: in another folder, with one compiler at a time, in harmful surroundings.

    Another user gets a store of their own.
    """
    left = shutil.ignore_patterns("build", ".kernelyard")
    project = Path(shutil.copytree(built.project, folder / "ein anderer Ordner ü" / "x", ignore=left))
    store = built.store if user is None else _copied_parts(built, folder / "store")
    environment = harmful(folder) | {"PATH": os.defpath, "KERNELYARD_CACHE": str(store)}
    command: list[str | Path] = [sys.executable, "-m", "kernelyard", "build", "--locked", "--jobs", "1", "."]
    if user is not None:
        subprocess.run(["chown", "-R", f"{user}:{user}", folder], check=True)
        command = [*_become(user), *command]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300, umask=0o077
    )
    assert done.returncode == 0, done.stderr
    return Built(project, store)


def _copied_parts(built: Built, store: Path) -> Path:
    """Copy what is locked: the store may be in root's home, and compilers ask whether they may read a file."""
    for part in read_lock(built.project).parts:
        shutil.copytree(built.store / part, store / part, symlinks=True)
    return store


def _become(user: int) -> list[str]:
    """Return what runs a command as another user, who may read what root may: this Python can be in root's home."""
    may_read = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may_read]


def differences(one: Built, other: Built) -> dict[str, dict[str, tuple[str, ...]]]:
    mine, theirs = one.variants(), other.variants()
    assert mine.keys() == theirs.keys()
    assert len(mine) == 2
    return {
        name: found
        for name, variant in mine.items()
        if (found := variant_differences(variant, theirs[name], Names("first", "second")))
    }


def test_surroundings_make_no_difference(built: Built, elsewhere: Path) -> None:
    assert differences(built, build_elsewhere(built, elsewhere)) == {}


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can become somebody else")
@pytest.mark.parametrize("built", ["cpu"], indirect=True)
def test_another_user_makes_no_difference(built: Built, elsewhere: Path) -> None:
    assert differences(built, build_elsewhere(built, elsewhere, user=NOBODY)) == {}


def test_no_file_tells_where_it_was_built(built: Built) -> None:
    for variant in built.variants().values():
        (extension,) = variant.path.glob("*.so")
        content = extension.read_bytes()
        assert b"csrc/where.h" in content, "the name of a source is in it, from the project on"
        for path in (built.project.parent, built.store, Path.home()):
            assert str(path).encode() not in content


def test_static_names_of_two_sources_do_not_meet(built: Built) -> None:
    """Were their names not made of the path that was given in its place, they would be the same."""
    objects = built.project / ".kernelyard" / "locked" / "cu130" / "objects"
    names = [re.findall(rb"_GLOBAL__N__[0-9a-zA-Z_]+", path.read_bytes()) for path in sorted(objects.rglob("*.cu.o"))]
    assert len(names) == 2
    assert all(names)
    assert not set(names[0]) & set(names[1])
