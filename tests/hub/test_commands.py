"""The real command: versions, releases, looking after a hub, keys, bundles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Publish = Callable[..., str]


@pytest.fixture
def root(tmp_path: Path, publish: Publish) -> Path:
    publish(tmp_path / "hub", 1, release="1.0.0")
    publish(tmp_path / "hub", 2, release="1.1.0")
    publish(tmp_path / "hub", 3, version=2)
    return tmp_path / "hub"


@pytest.fixture
def run(kernelyard: Any, root: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs the command with the hub, expects a status, and answers what it printed."""

    def run(*arguments: str | Path, status: int = 0, hub: Path | str | None = root) -> str:
        env = {"KERNELYARD_CACHE": str(tmp_path / "store"), **({"KERNELYARD_HUB": str(hub)} if hub else {})}
        done = kernelyard(*arguments, env=env)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return str(done.stdout if status == 0 else done.stdout + done.stderr)

    return run


Run = Callable[..., str]


def test_versions_shows_what_there_is_and_what_runs_here(run: Run) -> None:
    run("yank", "org/gray", "1.0.0", "--reason", "wrong results")
    head, *rows = run("versions", "org/gray").splitlines()
    assert head.split() == ["revision", "published", "variants", "on", "this", "machine"]
    assert [row.split()[0] for row in rows] == ["v2", "v1", "1.1.0", "1.0.0"]
    assert all("torch-universal" in row for row in rows)
    assert rows[3].endswith("(withdrawn: wrong results)")
    listed = json.loads(run("versions", "org/gray", "--json"))
    assert [(one["ref"], one["kind"], one["withdrawn"]) for one in listed] == [
        ("v2", "version", None),
        ("v1", "version", None),
        ("v1.1.0", "release", None),
        ("v1.0.0", "release", "wrong results"),
    ]
    assert [variant["variant"] for variant in listed[0]["variants"]] == ["torch-universal"]


def test_versions_of_a_folder_are_what_was_built_there(run: Run, tmp_path: Path) -> None:
    (one,) = json.loads(run("versions", tmp_path / "build-3", "--json", hub=None))
    assert (one["ref"], one["kind"], one["best"]) == ("v2", "version", "torch-universal")


def test_info_says_what_a_kernel_is_on_a_hub_and_in_a_folder(run: Run, tmp_path: Path) -> None:
    text = run("info", "org/gray", "--version", "~=1.0")
    assert "release         1.1.0" in text
    assert "torch-universal" in text
    newest = json.loads(run("info", "org/gray", "--json"))
    assert (newest["version"], newest["found-by"], newest["release"], newest["repo"]) == (2, "v2", None, "org/gray")
    assert newest["variants"][0]["files"].keys() == {"__init__.py", "metadata.json"}
    local = json.loads(run("info", tmp_path / "build-1", "--json", hub=None))
    assert (local["name"], local["repo"], local["version"], local["backends"]) == ("gray", None, 1, ["universal"])
    assert "[KY501]" in run("info", "org/none", status=1)


def test_get_takes_a_range(run: Run) -> None:
    assert json.loads(run("get", "org/gray", "--version", ">=1.0,<1.1", "--json"))["revision"].isalnum()
    assert "it has 1.1.0, 1.0.0" in run("get", "org/gray", "--version", ">=3", status=1)
    assert "[KY505]" in run("get", "org/gray", "--version", "one", status=2)


def test_yank_and_its_undoing_are_told(run: Run) -> None:
    assert run("yank", "org/gray", "1.0.0", "--reason", "bad") == "org/gray 1.0.0 is withdrawn: bad\n"
    assert run("yank", "org/gray", "1.0.0", "--reason", "bad") == "org/gray 1.0.0 was already withdrawn: bad\n"
    assert json.loads(run("yank", "org/gray", "v1.0.0", "--undo", "--json"))["withdrawn"] is False
    assert "give either --reason TEXT or --undo" in run("yank", "org/gray", "1.0.0", status=2)
    assert "[KY501]" in run("yank", "org/gray", "7.0.0", "--reason", "x", status=1)


def test_hub_verify_ends_with_4_where_something_is_wrong(run: Run, root: Path) -> None:
    assert run("hub", "verify").startswith("in order: 1 kernel, 3 revisions, 5 files, ")
    blob = next(path for path in (root / "blobs").rglob("*") if path.is_file())
    blob.write_bytes(b"")
    report = json.loads(run("hub", "verify", "--json", status=4))
    assert [finding["where"] for finding in report["findings"]] == [blob.relative_to(root).as_posix()]


def test_hub_verify_takes_a_place_before_kernels(kernelyard: Any, run: Run, root: Path, tmp_path: Path) -> None:
    whole = "in order: 1 kernel, 3 revisions, "
    assert run("hub", "verify", root, hub=None).startswith(whole)
    assert run("hub", "verify", root, "org/gray", hub=None).startswith(whole)
    assert run("hub", "verify", f"file://{root}", hub=tmp_path / "nothing").startswith(whole)
    assert run("hub", "verify", "org/gray").startswith(whole)
    # A folder that is called like a kernel, and one that is no hub.
    (tmp_path / "here/org").mkdir(parents=True)
    (tmp_path / "here/org/gray").symlink_to(root)
    assert kernelyard("hub", "verify", "org/gray", cwd=tmp_path / "here").stdout.startswith(whole)
    assert "[KY507]" in run("hub", "verify", tmp_path / "nothing", status=2)


def test_hub_gc_counts_and_removes(run: Run, root: Path) -> None:
    (root / ".aside" / "half").write_bytes(b"1234")
    nothing = "0 revisions, 0 files, 0 half-made files, 0 B"
    assert run("hub", "gc") == f"removed: {nothing}\n"
    one = "0 revisions, 0 files, 1 half-made file, 4 B"
    assert run("hub", "gc", "--grace", "0", "--dry-run") == f"would be removed: {one}\n"
    assert run("hub", "gc", "--grace", "0") == f"removed: {one}\n"


def test_mirror_export_and_import_carry_kernels_on(run: Run, root: Path, tmp_path: Path) -> None:
    assert run("hub", "mirror", root, tmp_path / "copy").startswith("org/gray v1, v2, v1.0.0, v1.1.0: 5 files, ")
    bundle = tmp_path / "gray.tar"
    said = run("export", "org/gray", "--version", "~=1.0", "-o", bundle, hub=tmp_path / "copy")
    assert said.splitlines()[0] == "org/gray v1.1.0, v1.0.0"
    assert run("import", bundle, hub=tmp_path / "inside").startswith("org/gray v1.0.0, v1.1.0: 3 files, ")
    assert run("import", bundle, hub=tmp_path / "inside") == "org/gray v1.0.0, v1.1.0: all there already\n"
    bundle.write_bytes(b"no")
    assert "[KY516]" in run("import", bundle, hub=tmp_path / "inside", status=2)


def test_what_an_older_bundle_does_not_set_back_is_told(
    kernelyard: Any, root: Path, publish: Publish, tmp_path: Path
) -> None:
    for number in (4, 5):
        publish(root, number, version=2)
        kernelyard("export", "org/gray", "--version", "2", "-o", tmp_path / f"{number}.tar", "--hub", root)
    inside = tmp_path / "inside"
    assert kernelyard("import", tmp_path / "5.tar", "--hub", inside).stderr == ""
    # By the second the two may have been published at the same time; then it is known by where the branch was.
    kernelyard("import", tmp_path / "4.tar", "--hub", tmp_path / "second")
    kernelyard("import", tmp_path / "5.tar", "--hub", tmp_path / "second")
    done = kernelyard("import", tmp_path / "4.tar", "--hub", tmp_path / "second")
    assert (done.returncode, done.stdout) == (0, "org/gray v2: all there already\n")
    assert done.stderr == f"org/gray: {tmp_path / 'second'} has something newer of v2, and keeps it\n"
    shown = json.loads(kernelyard("import", tmp_path / "4.tar", "--hub", tmp_path / "second", "--json").stdout)
    assert [one["kept"] for one in shown] == [["v2"]]


def test_a_roll_back_ends_with_4_and_can_be_forgotten(
    run: Run, root: Path, serve: Callable[[Path], str], publish: Publish
) -> None:
    address = serve(root)
    refs = root / "kernels/org/gray/refs.json"
    before = refs.read_bytes()
    publish(root, 9)
    run("versions", "org/gray", hub=address)
    refs.write_bytes(before)
    assert "[KY514]" in run("versions", "org/gray", hub=address, status=4)
    assert run("hub", "forget", "org/gray", hub=address) == f"forgotten: org/gray on {address}\n"
    run("versions", "org/gray", hub=address)


def test_what_is_forgotten_of_a_kernel_is_what_its_versions_were_at_too(
    run: Run, root: Path, serve: Callable[[Path], str], publish: Publish
) -> None:
    address = serve(root)
    get = ("get", "org/gray", "--version", "1", "--trust-remote-code", "--json")
    first = json.loads(run(*get, hub=address))["revision"]
    new = publish(root, 9)
    assert json.loads(run(*get, hub=address))["revision"] == first
    run("hub", "forget", "org/gray", hub=address)
    assert json.loads(run(*get, hub=address))["revision"] == new


def test_keys_are_made_shown_and_rotated(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    public = run("hub", "key", "new", tmp_path / "key")
    assert public.startswith("ed25519:")
    assert run("hub", "key", "show", tmp_path / "key") == public == (tmp_path / "key.pub").read_text()
    assert run("hub", "key", "rotate", tmp_path / "key", tmp_path / "next") != public
    assert "[KY515]" in run("hub", "key", "new", tmp_path / "key", status=2)
    told = run("hub", "key", "new", tmp_path / "nodir/key", status=2).splitlines()
    assert told[:2] == [
        f"kernelyard: {tmp_path / 'nodir'}: there is no such folder to write the key to [KY515]",
        "  make it, or name a file in another",
    ]


def test_what_cannot_be_written_is_told(run: Run, root: Path, serve: Callable[[Path], str]) -> None:
    address = serve(root)
    assert "[KY509]" in run("yank", "org/gray", "1.0.0", "--reason", "x", hub=address, status=2)
    assert "[KY506]" in run("hub", "gc", hub=address, status=2)
    assert "[KY505]" in run("hub", "verify", hub=address, status=2)
    assert "[KY506]" in run("hub", "verify", hub=None, status=2)
