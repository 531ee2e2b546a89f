"""A locked set as one file: exported where the hub is, imported where nothing is."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelyard.errors import InputError, VerificationError
from kernelyard.export.layer import export_layer, import_layer, is_layer
from kernelyard.formats.lock import KernelLock
from kernelyard.hub.tar import beside
from kernelyard.load.system.description import describe_system
from kernelyard.lock.lock_at import read_lock_at
from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request
from kernelyard.lock.targets import Target
from kernelyard.lock.use import load_kernel
from kernelyard.store import Store
from tests.lock.conftest import Publish

Write = Callable[[str], Path]
HERE = Target(describe_system(), is_here=True)


@pytest.fixture
def lock(publish: Publish, project: Write) -> KernelLock:
    publish("org/common", source="SHADE = 7\n")
    publish(needs=[{"repo-id": "org/common", "version": 1}])
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    lock_project(folder, Request())
    return read_lock_at(folder)


@pytest.fixture
def bundle(lock: KernelLock, tmp_path: Path) -> Path:
    export_layer(lock, HERE, tmp_path / "kernels.tar")
    return tmp_path / "kernels.tar"


def rewritten(bundle: Path, change: Callable[[str, bytes], tuple[str, bytes]]) -> Path:
    """Write the bundle anew, each file as `change` has it."""
    other = bundle.with_name("changed.tar")
    with tarfile.open(bundle) as old, tarfile.open(other, "w") as new:
        for member in old:
            content = old.extractfile(member)
            assert content is not None
            name, data = change(member.name, content.read())
            info = tarfile.TarInfo(name)
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))
    return other


def test_what_was_exported_loads_where_there_is_no_hub(lock: KernelLock, bundle: Path, hub: Path) -> None:
    shutil.rmtree(hub)
    assert is_layer(bundle)
    done = import_layer(bundle, Store.default())
    assert (list(done.lock.kernels), done.variants, done.new) == (list(lock.kernels), 2, 2)
    assert load_kernel("org/gray", lockfile=lock.path).RELEASE == "1.0.0"
    assert import_layer(bundle, Store.default()).new == 0


def test_what_is_there_already_is_verified_too(bundle: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "layer")
    import_layer(bundle, store)
    damaged = next(store.root.glob("variants/*/__init__.py"))
    damaged.chmod(0o644)
    damaged.write_text("something else")
    with pytest.raises(VerificationError, match="not the file that the bundle names") as caught:
        import_layer(bundle, store)
    assert (caught.value.code, str(damaged.parent) in caught.value.hint) == ("KY602", True)


def test_groups_say_what_is_exported_and_what_is_in_the_file_is_told(
    publish: Publish, project: Callable[[str, str], Path], kernelyard: Any, hub: Path, tmp_path: Path
) -> None:
    for name in ("gray", "sort"):
        publish(f"org/{name}")
    root = project('[dependencies]\n"org/gray" = 1\n[dependency-groups.bench]\n"org/sort" = 1\n', "kernelyard.toml")
    lock_project(root, Request())
    env = {"KERNELYARD_CACHE": str(tmp_path / "here"), "KERNELYARD_HUB": str(hub)}
    for options, expected in {
        (): ["org/gray"],
        ("--group", "bench"): ["org/gray", "org/sort"],
        ("--only-group", "bench", "--all-variants"): ["org/sort"],
    }.items():
        done = kernelyard("export", "--lock", root, "-o", tmp_path / "set.tar", *options, env=env)
        assert done.returncode == 0, done.stderr
        put = kernelyard("import", tmp_path / "set.tar", "--json", env=env)
        assert json.loads(put.stdout)["kernels"] == expected
    shown = kernelyard("import", tmp_path / "set.tar", env=env).stdout.splitlines()
    assert (shown[0], len(shown)) == ("org/sort", 2)


@pytest.mark.parametrize("command", [["download"], ["export", "-o", "set.tar", "--lock"]])
@pytest.mark.parametrize("option", [["--backend", "cpu"], ["--torch", "2.13"]])
def test_options_that_say_nothing_together_are_refused(
    lock: KernelLock, kernelyard: Any, command: list[str], option: list[str]
) -> None:
    refused = kernelyard(*command, lock.path, "--all-variants", *option)
    assert (refused.returncode, "[KY001]" in refused.stderr) == (2, True)


def test_what_is_no_place_for_a_bundle_is_refused_and_left(lock: KernelLock, kernelyard: Any, tmp_path: Path) -> None:
    before = Path(lock.path).read_bytes()
    for source in (lock.path, Path(lock.path).parent):
        for output, words in (
            (lock.path, "is the lock that is to be exported"),
            (tmp_path, "is a folder"),
            (tmp_path / "nothing/set.tar", "is not a folder"),
        ):
            refused = kernelyard("export", "--lock", source, "-o", output)
            assert (refused.returncode, "[KY001]" in refused.stderr, words in refused.stderr) == (2, True, True)
    assert Path(lock.path).read_bytes() == before


@pytest.mark.parametrize("kind", ["locked", "hub"])
def test_what_a_killed_export_has_left_goes_with_the_next_and_what_another_is_at_work_on_stays(
    lock: KernelLock, kernelyard: Any, hub: Path, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "out/set.tar"
    target.parent.mkdir()
    (target.parent / ".set.tar.sig").write_text("mine")
    dying = (
        "import os, signal, sys; from pathlib import Path; from kernelyard.hub.tar import beside\n"
        "with beside(Path(sys.argv[1])) as folder: (folder / 'x').mkdir(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", dying, target], check=False).returncode == -signal.SIGKILL
    (left,) = (one for one in target.parent.iterdir() if one.is_dir())
    assert [one.name for one in left.iterdir()] == ["x"]
    what = ("--lock", lock.path) if kind == "locked" else ("org/gray", "--hub", str(hub))
    done = kernelyard("export", *what, "-o", target)
    assert (done.returncode, left.exists()) == (0, False), done.stderr
    with beside(target) as folder:
        assert kernelyard("export", *what, "-o", target).returncode == 0
        assert folder.is_dir()
    assert sorted(one.name for one in target.parent.iterdir()) == [".set.tar.sig", "set.tar"]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["export", "--lock", "{lock}", "-o", "{out}/set.tar"], "{out}"),
        (["export", "org/gray", "-o", "{out}/set.tar"], "{out}"),
        (["download", "{lock}", "--dest", "{out}/layer"], "{out}/layer"),
        (["hub", "mirror", "{hub}", "{out}/hub"], "{out}/hub"),
    ],
    ids=["locked", "hub", "download", "mirror"],
)
@pytest.mark.parametrize("trouble", ["disk", "limit"])
def test_a_full_disk_is_the_one_that_was_to_be_written_to(  # noqa: PLR0917
    publish: Publish, project: Write, hub: Path, tmp_path: Path, arguments: list[str], place: str, trouble: str
) -> None:
    publish(source=f"X = '{'x' * 400_000}'\n")
    folder = project('[tool.kernelyard.dependencies]\n"org/gray" = 1\n')
    lock_project(folder, Request())
    out = tmp_path / "out"
    out.mkdir()
    names = {"out": str(out), "lock": str(folder), "hub": str(hub)}
    given = [one.format(**names) for one in arguments]
    command = shlex.join([sys.executable, "-m", "kernelyard", *given])
    if trouble == "disk":
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            pytest.skip("a small disk is mounted by root alone")
        script = f"mount -t tmpfs -o size=200k none {shlex.quote(str(out))} || exit 77; {command}"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
        if done.returncode == 77 or done.stderr.startswith("unshare:"):
            pytest.skip("nothing can be mounted here")
    else:
        done = subprocess.run(["bash", "-c", f"ulimit -f 100; {command}"], capture_output=True, text=True, check=False)
    told = done.stderr.splitlines()
    what = "the disk is full" if trouble == "disk" else "the disk, or a limit of yours, takes no file that is so large"
    assert (done.returncode, told[0]) == (3, f"kernelyard: {place.format(**names)}: {what} [KY301]"), done.stderr
    verb = "mirror" if arguments[0] == "hub" else arguments[0]
    assert f"{verb} to " in told[1]
    assert "KERNELYARD_CACHE" not in told[1]
    assert not [one for one in out.iterdir() if one.name.startswith(".")]


def test_the_same_lock_is_the_same_bytes(lock: KernelLock, bundle: Path, tmp_path: Path) -> None:
    export_layer(lock, HERE, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize("what", ["source", "index", "name"])
def test_what_was_changed_on_its_way_is_refused(bundle: Path, what: str) -> None:
    def change(name: str, data: bytes) -> tuple[str, bytes]:
        if what == "source" and name.endswith("__init__.py"):
            return name, data + b"import os\n"
        if what == "index" and name.startswith("indexes/"):
            return name, data.replace(b"torch-universal", b"torch-universa1")
        if what == "name" and name.startswith("variants/"):
            return name.replace("__init__.py", "other.py"), data
        return name, data

    with pytest.raises(VerificationError) as caught:
        import_layer(rewritten(bundle, change), Store.default())
    assert (caught.value.code, caught.value.exit_code) == ("KY503", 4)
    assert not Store.default().path("variants", "").exists()


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "variants/short/x.py", "state/hubs/x.json"])
def test_what_does_not_belong_in_a_bundle_is_refused(bundle: Path, name: str, tmp_path: Path) -> None:
    def change(own: str, data: bytes) -> tuple[str, bytes]:
        return (name if own.endswith("metadata.json") else own), data

    with pytest.raises(InputError) as caught:
        import_layer(rewritten(bundle, change), Store(tmp_path / "empty"))
    assert caught.value.code == "KY516"
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("zeros", "nothing is in it"),
        ("empty", "empty file"),
        ("folder", "it is a folder"),
        ("pipe", "Not a regular file"),
        ("text", "truncated header"),
    ],
)
def test_what_is_no_bundle_is_told_before_anything_else_is_asked(
    kernelyard: Any, tmp_path: Path, what: str, why: str
) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes({"zeros": bytes(20480), "empty": b"", "text": b"no"}[what])
    done = kernelyard("import", path)
    told = f"kernelyard: {path}: not a bundle: {why} [KY516]\n  `kernelyard export` writes one\n"
    assert (done.returncode, done.stderr.startswith(told)) == (2, True), done.stderr
    for use in (is_layer, lambda path: import_layer(path, Store(tmp_path / "layer"))):
        with pytest.raises(InputError) as caught:
            use(path)
        assert caught.value.code == "KY516"


def test_a_cut_bundle_is_refused(bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:900])
    with pytest.raises(InputError) as caught:
        import_layer(bundle, Store.default())
    assert caught.value.code == "KY516"


def test_the_commands_carry_a_locked_set(lock: KernelLock, kernelyard: Any, tmp_path: Path, hub: Path) -> None:
    env = {"KERNELYARD_CACHE": str(tmp_path / "here"), "KERNELYARD_HUB": str(hub)}
    bundle = tmp_path / "set.tar"
    done = kernelyard("export", "--lock", Path(lock.path).parent, "-o", bundle, "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert {one["repo"] for one in json.loads(done.stdout)["kernels"]} == {"org/common", "org/gray"}
    there = {"KERNELYARD_CACHE": str(tmp_path / "there")}
    put = kernelyard("import", bundle, "--json", env=there)
    assert put.returncode == 0, put.stderr
    told = json.loads(put.stdout)
    assert (told["store"], told["variants"], told["new"]) == (str(tmp_path / "there"), 2, 2)
    layer = kernelyard("import", bundle, "--dest", tmp_path / "layer", env=there)
    assert layer.stdout.splitlines()[-1].startswith(f"{tmp_path / 'layer'}: 2 variants, 2 new, ")
    refused = kernelyard("import", bundle, "--hub", tmp_path / "hub2", env=there)
    assert (refused.returncode, "[KY516]" in refused.stderr) == (2, True)
