from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelyard.errors import InputError, KernelyardError, VerificationError
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.http import HttpReader
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

Publish = Callable[..., str]


def state(root: Path) -> dict[str, bytes]:
    """Return what readers see: everything but what belongs to publishers."""
    files = (path for path in root.rglob("*") if path.is_file())
    seen = {path.relative_to(root).as_posix(): path.read_bytes() for path in files}
    return {path: content for path, content in seen.items() if "/." not in f"/{path}"}


def find(build: Path) -> FolderHub:
    folder = FolderHub.find(build)
    assert folder is not None
    return folder


def test_the_log_tells_every_move(tmp_path: Path, publish: Publish) -> None:
    first, second = publish(tmp_path / "hub", 1), publish(tmp_path / "hub", 2)
    refs = json.loads((tmp_path / "hub/kernels/org/gray/refs.json").read_bytes())
    assert refs["branches"] == {"v1": second}
    assert [(move["ref"], move["from"], move["to"]) for move in refs["log"]] == [
        ("v1", None, first),
        ("v1", first, second),
    ]
    assert all(move["time"].endswith("Z") for move in refs["log"])


def test_publishing_the_same_again_changes_nothing(tmp_path: Path, make_build: Callable[..., Path]) -> None:
    build, root = find(make_build()), tmp_path / "hub"
    hub = StaticHub(DirectoryReader(root))
    id_ = hub.publish(Publication("org/gray", build.index, build.files, "v1")).revision.id
    before = state(root)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*.json")}
    assert hub.publish(Publication("org/gray", build.index, build.files, "v1")).revision.id == id_
    assert state(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.json")} == times | {
        path: path.stat().st_mtime_ns for path in root.rglob("index.json")
    }


def test_a_kill_at_any_step_leaves_the_previous_state(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "hub"
    old = publish(root, 0)
    rename = os.replace
    for step in range(1, 20):
        steps = 0

        def die(source: Path, target: Path, *, step: int = step) -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                raise KeyboardInterrupt
            rename(source, target)

        monkeypatch.setattr(os, "replace", die)
        try:
            new = publish(root, step)
        except KeyboardInterrupt:
            assert open_hub(root).resolve("org/gray", version=1).id == old
            continue
        break
    # Two files of the variant are new each time, of which metadata.json is the same; the index; the branch.
    assert step == 4
    assert open_hub(root).resolve("org/gray", version=1).id == new


def test_a_kill_while_the_hub_is_made_does_not_spoil_the_folder(
    tmp_path: Path, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            publish(tmp_path / "hub", 1)
    (tmp_path / "hub/.aside/left-behind").write_text("half")
    id_ = publish(tmp_path / "hub", 2)
    assert open_hub(tmp_path / "hub").resolve("org/gray", version=1).id == id_


PUBLISH_MANY = """
import sys
from pathlib import Path
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

root, build, name = sys.argv[1:]
folder = FolderHub.find(Path(build))
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    StaticHub(DirectoryReader(Path(root))).publish(
        Publication("org/gray", folder.index, folder.files, f"{name}-{number}")
    )
"""


def test_publishers_at_the_same_time_do_not_lose_each_others_moves(
    tmp_path: Path, make_build: Callable[..., Path]
) -> None:
    processes = []
    for number in range(3):
        build = make_build(f"build-{number}", source=f"x = {number}\n")
        command = [sys.executable, "-c", PUBLISH_MANY, str(tmp_path / "hub"), str(build), f"dev-{number}"]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    refs = json.loads((tmp_path / "hub/kernels/org/gray/refs.json").read_bytes())
    assert len(refs["branches"]) == 30
    assert len(refs["log"]) == 30
    assert open_hub(tmp_path / "hub").resolve("org/gray", revision="dev-2-9").index.name == "gray"


def test_a_file_that_changed_after_the_index_was_made_is_not_published(
    tmp_path: Path, make_build: Callable[..., Path]
) -> None:
    path = make_build()
    build = find(path)
    index, files = build.index, build.files
    (path / "torch-universal/__init__.py").write_text("x = 9\n")
    with pytest.raises(VerificationError, match=r"__init__\.py is not the published file"):
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(Publication("org/gray", index, files, "v1"))
    assert "kernels/org/gray/refs.json" not in state(tmp_path / "hub")


def test_a_folder_with_other_things_is_not_made_a_hub(tmp_path: Path, publish: Publish) -> None:
    root = tmp_path / "home"
    root.mkdir()
    (root / "photo.jpg").write_bytes(b"x")
    with pytest.raises(InputError, match=r"not empty: it holds photo\.jpg") as caught:
        publish(root, 1)
    assert caught.value.code == "KY507"
    assert sorted(path.name for path in root.iterdir()) == ["photo.jpg"]


def test_what_is_not_fit_to_be_published_is_refused(
    tmp_path: Path, make_build: Callable[..., Path], publish: Publish
) -> None:
    hub = StaticHub(DirectoryReader(tmp_path / "hub"))
    build = find(make_build())
    whole = Publication("org/gray", build.index, build.files, "v1")
    cases: list[tuple[str, Callable[[], object]]] = [
        ("KY509", lambda: publish(tmp_path / "hub", 7, version=2, branch="v1")),
        ("KY509", lambda: hub.publish(Publication("org/gray", build.index, {}, "v1"))),
        ("KY509", lambda: hub.publish(Publication("org/gray", build.index, build.files, ""))),
        ("KY504", lambda: hub.publish(Publication("gray", build.index, build.files, "v1"))),
        ("KY509", lambda: StaticHub(HttpReader("http://127.0.0.1:1")).publish(whole)),
    ]
    for code, call in cases:
        with pytest.raises(KernelyardError) as caught:
            call()
        assert caught.value.code == code
    assert not (tmp_path / "hub").exists()


def test_a_variant_with_another_name_is_not_published(tmp_path: Path, make_build: Callable[..., Path]) -> None:
    from dataclasses import replace

    build = find(make_build())
    index = replace(build.index, variants=(replace(build.index.variants[0], name="mine"),))
    with pytest.raises(InputError) as caught:
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(Publication("org/gray", index, build.files, "v1"))
    assert caught.value.code == "KY211"


def test_variants_of_two_kernels_in_one_folder_are_refused(make_build: Callable[..., Path], tmp_path: Path) -> None:
    make_build("one")
    other = make_build("two", kernel="other") / "torch-universal"
    other.rename(tmp_path / "one" / "torch-cpu")
    with pytest.raises(InputError, match="variants of different kernels"):
        _ = find(tmp_path / "one").index


PUBLISH_ONE = """
import sys
from pathlib import Path
from kernelyard.errors import KernelyardError
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub

root, build, expected = sys.argv[1:]
folder = FolderHub.find(Path(build))
publication = Publication("org/gray", folder.index, folder.files, "v1", expected)
print("ready", flush=True)
sys.stdin.readline()
try:
    print("won", StaticHub(DirectoryReader(Path(root))).publish(publication).revision.id)
except KernelyardError as error:
    print(error.code, error.exit_code)
"""


def test_of_publishers_that_start_from_the_same_state_one_wins_and_the_others_are_told(
    tmp_path: Path, make_build: Callable[..., Path], publish: Publish
) -> None:
    root = tmp_path / "hub"
    base = publish(root, 0)
    processes = []
    for number in range(4):
        build = make_build(f"own-{number}", source=f"y = {number}\n")
        command = [sys.executable, "-c", PUBLISH_ONE, str(root), str(build), base]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].split() for process in processes]
    ((_, winner),) = [words for words in said if words[0] == "won"]
    assert sorted(words for words in said if words[0] != "won") == [["KY512", "3"]] * 3
    assert open_hub(root).resolve("org/gray", version=1).id == winner
    assert len(json.loads((root / "kernels/org/gray/refs.json").read_bytes())["log"]) == 2
