"""What is in the store needs no hub, in whatever words it was fetched, and with a hub in trouble it is taken."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel, get_kernel_variants, has_kernel, install_kernel
from kernelyard.errors import InputError
from kernelyard.hub.transfer import Patience
from kernelyard.load.resolve.resolution import OfflineError
from tests.hub.hugging_face_server import Handler, Hub

MakeVariant = Callable[..., Path]
VARIABLES = ("KERNELYARD_OFFLINE", "HF_HUB_OFFLINE")


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "TRANSFORMERS_OFFLINE", "KERNELYARD_FRESHNESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("kernelyard.load.resolve.resolution._warned", set())
    monkeypatch.setattr("kernelyard.hub.http.PATIENCE", Patience(first_wait_s=0.001))


@pytest.fixture
def gray(hugging_face: Hub) -> Hub:
    """A hub with `org/gray` as kernel-builder lays it out: `v1` has a variant for all and one for the CPU."""
    metadata = {"name": "gray", "version": 1, "license": "MIT", "python-depends": [], "backend": {"type": "cpu"}}
    tree: dict[str, bytes] = {}
    for variant in ("torch-cpu", "torch-universal"):
        name = variant.partition("-")[2]
        tree[f"build/{variant}/metadata.json"] = json.dumps({**metadata, "id": f"_gray_{name}"}).encode()
        tree[f"build/{variant}/__init__.py"] = f"name = {name!r}\n".encode()
    hugging_face.make("org/gray").put("v1", tree)
    return hugging_face


def down(hub: Hub) -> None:
    """Let the hub answer nothing but trouble from now on."""

    def refuse(handler: Handler) -> None:
        handler.error(503)

    hub.troubles.append((".", refuse))


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelyard.load.kernels._answered", {})
    monkeypatch.setattr("kernelyard.load.importing.importer._claims", {})
    monkeypatch.setattr("kernelyard.load.importing.loaded._loaded", {})
    for name in [name for name in sys.modules if name.startswith("_gray_")]:
        del sys.modules[name]


def commit(hub: Hub) -> str:
    return hub.repos["org/gray"].branches["v1"]


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize(
    ("filled", "asked"),
    [
        ("version", "version"),
        ("version", "branch"),
        ("version", "commit"),
        ("branch", "version"),
        ("branch", "branch"),
        ("branch", "commit"),
        ("commit", "commit"),
    ],
)
def test_what_was_fetched_in_one_way_is_there_offline_in_another(
    gray: Hub, variable: str, filled: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: dict[str, dict[str, Any]] = {
        "version": {"version": 1},
        "branch": {"revision": "v1"},
        "commit": {"revision": commit(gray)},
    }
    get_kernel("org/gray", **ways[filled])
    new_process(monkeypatch)
    monkeypatch.setenv(variable, "1")
    gray.requests.clear()
    module = get_kernel("org/gray", **ways[asked])
    assert module.__kernel__.revision == commit(gray)
    assert has_kernel("org/gray", **ways[asked])
    assert install_kernel("org/gray", **ways[asked]) == module.__kernel__.origin
    names = [decision.variant.variant_str for decision in get_kernel_variants("org/gray", **ways[asked])]
    assert names == ["torch-cpu", "torch-universal"]
    assert gray.requests == []


def test_a_commit_that_was_fetched_does_not_tell_what_a_version_is(gray: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    get_kernel("org/gray", revision=commit(gray))
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    with pytest.raises(OfflineError, match="KERNELYARD_OFFLINE") as caught:
        get_kernel("org/gray", version=1)
    # The public loader says it by these two, for a version and for a revision.
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FileNotFoundError)


def test_offline_a_variant_that_is_here_takes_the_place_of_a_better_one_that_is_not(
    tmp_path: Path,
    web_hub: str,
    make_variant: MakeVariant,
    publish: Callable[..., str],
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load = partial(get_kernel, "org/gray", version=1, hub=web_hub, trust_remote_code=True)
    universal = make_variant(id_="_gray_any")
    publish(universal.parent)
    load()
    # The next state has a better variant, of which the hub loses a file, so that fetching it dies half-way.
    make_variant(name="torch-cpu", id_="_gray_cpu", files={"_ops.py": "better = True\n"})
    id_ = publish(universal.parent)
    blobs = [path for path in (tmp_path / "hub/blobs").rglob("*") if path.is_file()]
    next(path for path in blobs if b"better" in path.read_bytes()).unlink()
    new_process(monkeypatch)
    assert load(refresh=True).__kernel__.variant == "torch-universal"
    new_process(monkeypatch)
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    caplog.clear()
    module = load()
    assert (module.__kernel__.variant, module.__kernel__.revision) == ("torch-universal", id_)
    (warning,) = caplog.messages
    assert "torch-cpu of org/gray" in warning
    assert len(list((tmp_path / "store/variants").iterdir())) == 1


def test_with_the_hub_down_what_is_here_loads_with_one_warning(
    gray: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    get_kernel("org/gray", version=1)
    down(gray)
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    new_process(monkeypatch)
    assert get_kernel("org/gray", version=1).name == "cpu"
    assert get_kernel("org/gray", revision="v1").name == "cpu"
    assert get_kernel("org/gray", revision=commit(gray)).name == "cpu"
    (warning,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert (warning.name, warning.levelname) == ("kernelyard.load", "WARNING")
    # Which hub, and what is taken in place of its answer.
    assert warning.getMessage().startswith(f"{gray.endpoint}: ")
    taken = f"taken is what was there before: org/gray (v1, revision {commit(gray)[:12]})"
    assert warning.getMessage().endswith(taken)


def test_local_files_only_asks_no_hub(gray: Hub, tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match="local_files_only") as caught:
        install_kernel("org/gray", version=1, local_files_only=True)
    assert caught.value.code == "KY642"
    with pytest.raises(OfflineError, match="local_files_only") as caught:
        install_kernel("org/gray", version=1, local_files_only=True, trust_remote_code=True)
    assert caught.value.code == "KY532"
    assert gray.requests == []
    path = install_kernel("org/gray", version=1)
    gray.requests.clear()
    assert install_kernel("org/gray", version=1, local_files_only=True) == path
    assert install_kernel("org/gray", revision=commit(gray), local_files_only=True) == path
    assert gray.requests == []
    assert path.parent == tmp_path / "store/variants"


def test_a_hub_that_does_not_list_branches_still_has_its_files(gray: Hub) -> None:
    def refuse(handler: Handler) -> None:
        handler.error(404)

    gray.troubles.append((r"/refs$", refuse))
    assert get_kernel("org/gray", version=1).name == "cpu"
    assert has_kernel("org/gray", version=1)
    assert get_kernel("org/gray", revision="v1").__kernel__.revision == commit(gray)


def test_the_id_of_what_a_version_was_at_is_known_of_every_kind_of_hub(
    web_hub: str, make_variant: MakeVariant, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = publish(make_variant().parent)
    load = partial(get_kernel, "org/gray", hub=web_hub, trust_remote_code=True)
    module = load(version=1)
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    assert load(revision=id_) is module
    with pytest.raises(OfflineError):
        load(revision=id_[:12])


def test_an_answer_that_is_kept_in_memory_ages(
    web_hub: str, make_variant: MakeVariant, publish: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = partial(get_kernel, "org/gray", version=1, hub=web_hub, trust_remote_code=True)
    publish(make_variant("one", files={"__init__.py": "number = 1\n"}).parent)
    assert load().number == 1
    publish(make_variant("two", files={"__init__.py": "number = 2\n"}).parent)
    assert load().number == 1
    for clock in (time.monotonic, time.time):
        now = clock() + 700
        monkeypatch.setattr(f"time.{clock.__name__}", lambda now=now: now)
    assert load().number == 2


@pytest.mark.parametrize("trouble", ["offline", "down"])
def test_that_nobody_knows_whether_a_kernel_has_moved_is_no_reason_not_to_load_it(
    gray: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: str
) -> None:
    get_kernel("org/gray", version=1)
    for file in (tmp_path / "state/statuses").iterdir():
        file.unlink()
    new_process(monkeypatch)
    if trouble == "offline":
        monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    else:
        down(gray)
        monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    assert get_kernel("org/gray", version=1).name == "cpu"


def test_a_variable_that_says_neither_yes_nor_no_is_refused(
    gray: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for text in ("2", "ture", "offline"):
        monkeypatch.setenv("KERNELYARD_OFFLINE", text)
        with pytest.raises(InputError, match="KERNELYARD_OFFLINE") as caught:
            get_kernel("org/gray", version=1)
        assert caught.value.code == "KY650"
    assert gray.requests == []
    for text in ("0", "false", "No", "OFF", ""):
        monkeypatch.setenv("KERNELYARD_OFFLINE", text)
        assert install_kernel("org/gray", version=1).is_relative_to(tmp_path)
    monkeypatch.setenv("KERNELYARD_OFFLINE", "Yes")
    gray.requests.clear()
    assert install_kernel("org/gray", version=1).is_relative_to(tmp_path)
    with pytest.raises(OfflineError):
        install_kernel("org/gray", version=2)
    assert gray.requests == []


def test_of_a_hub_that_does_not_answer_only_the_first_question_is_waited_for(
    gray: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kernelyard.hub.silence._HASTE_S", 0.1)
    monkeypatch.setattr("kernelyard.hub.silence._silent", {})
    get_kernel("org/gray", version=1)
    speaks = threading.Event()

    def wait(handler: Handler) -> None:
        speaks.wait()
        handler.error(503)

    gray.troubles.append((".", wait))
    gray.requests.clear()
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    try:
        for _ in range(2):
            new_process(monkeypatch)
            # Whether its publisher is trusted is asked first, and remembered as well.
            assert get_kernel("org/gray", version=1).name == "cpu"
        assert len(gray.requests) == 1
    finally:
        speaks.set()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "taken is what was there before" in warning
