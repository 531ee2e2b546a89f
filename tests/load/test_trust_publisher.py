"""Kernels of trusted publishers on the Hugging Face Hub load without consent, and no others do."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.hub import open_hub
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.transfer import Patience
from kernelyard.load import kernels
from kernelyard.load.stored.layer import export_layer
from kernelyard.load.trust import checks as trust
from kernelyard.load.trust.publisher import publisher_of
from kernelyard.store import Store
from tests.hub.hugging_face_server import Handler, Hub

FILES = 3
OVERVIEW = "GET /api/organizations/org/overview"


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelyard.hub.http.PATIENCE", Patience(first_wait_s=0.001))
    for name in ("KERNELYARD_FRESHNESS", "KERNELYARD_OFFLINE", "KERNELYARD_POLICY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def put(hugging_face: Hub, make_variant: Callable[..., Path]) -> Callable[..., None]:
    """Return a function that puts a kernel on the Hub."""

    def put(repo: str = "org/gray", number: int = 1) -> None:
        from kernelyard.hub.folder import FolderHub

        variant = make_variant(f"build{number}", files={"__init__.py": f"number = {number}\n"})
        found = FolderHub.find(variant.parent)
        assert found is not None
        files = {f"build/torch-universal/{path.name}": path.read_bytes() for path in variant.iterdir()}
        made = hugging_face.repos.get(repo) or hugging_face.make(repo)
        made.put("v1", {**files, "build/index.json": found.index.to_json()})

    return put


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what this process has settled, and what it has answered."""
    monkeypatch.setattr(trust, "_settled", {})
    monkeypatch.setattr(kernels, "_answered", {}, raising=False)


def test_a_trusted_publisher_needs_no_consent_and_costs_one_request(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    assert get_kernel("org/gray", version=1).number == 1
    assert hugging_face.requests.count(OVERVIEW) == 1
    assert len(hugging_face.requests) == 2 + FILES
    # Nor does it cost one later, in this process or another.
    for anew in (False, True):
        hugging_face.requests.clear()
        if anew:
            new_process(monkeypatch)
        assert get_kernel("org/gray", version=1).number == 1
        assert hugging_face.requests == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [("untrusted", "org is not a trusted publisher"), ("users", "org is not an organisation there, and so no trusted")],
)
def test_others_need_consent_and_it_is_said_why(
    put: Callable[..., None], hugging_face: Hub, kind: str, said: str
) -> None:
    put()
    getattr(hugging_face, kind).add("org")
    withheld: tuple[Any, ...] = (False, ["other/gray", "gray"], [])
    for consent in withheld:
        with pytest.raises(VerificationError, match=said) as caught:
            get_kernel("org/gray", version=1, trust_remote_code=consent)
        assert caught.value.code == "KY605"
        assert caught.value.exit_code == 4
    # Nothing but that was asked, and that once.
    assert hugging_face.requests == [OVERVIEW]
    given: tuple[Any, ...] = (["org/gray"], ["org"], True)
    for consent in given:
        assert get_kernel("org/gray", version=1, trust_remote_code=consent).number == 1


@pytest.mark.parametrize("said", ["yes", "org", "org/gray", 1, 0, b"org", ["org", 1], {"org": True}, object()])
def test_what_is_neither_true_nor_a_list_of_names_is_an_error_whatever_the_hub(
    put: Callable[..., None], tmp_path: Path, said: Any
) -> None:
    put()
    for where in (None, tmp_path / "hub"):
        with pytest.raises(InputError, match="neither True nor a list of names") as caught:
            get_kernel("org/gray", version=1, hub=where, trust_remote_code=said)
        assert caught.value.code == "KY653"


def test_a_list_is_in_addition_to_trusted_publishers(put: Callable[..., None]) -> None:
    put()
    assert get_kernel("org/gray", version=1, trust_remote_code=["other/kernel"]).number == 1


def test_a_publisher_is_asked_for_again_when_the_answer_is_not_fresh(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    get_kernel("org/gray", version=1)
    hugging_face.untrusted.add("org")
    new_process(monkeypatch)
    get_kernel("org/gray", version=1)
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    new_process(monkeypatch)
    with pytest.raises(VerificationError, match="not a trusted publisher"):
        get_kernel("org/gray", version=1)


def test_an_answer_holds_for_a_moment_within_a_process_without_a_look_at_any_file(
    put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    source = open_hub()
    trust.check_consent(source, "org/gray", None)
    asked: list[int] = []

    def policies() -> tuple[()]:
        asked.append(1)
        return ()

    monkeypatch.setattr(trust, "policies", policies)
    trust.check_consent(source, "org/gray", None)
    assert asked == []
    trust.check_consent(source, "org/gray", ["another"])
    assert asked == [1]


@pytest.mark.parametrize("trouble", ["down", "error", "nonsense"])
def test_a_hub_that_cannot_be_asked_is_trouble_and_no_word_against_a_publisher(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    put()
    if trouble == "down":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    else:
        answer = {"error": lambda asked: asked.error(500), "nonsense": lambda asked: asked.answer(b"[]")}[trouble]
        hugging_face.troubles.append(("overview", answer))
    with pytest.raises(EnvironmentProblemError) as caught:
        get_kernel("org/gray", version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY642", 3)


def test_a_publisher_that_was_trusted_is_while_the_hub_is_down(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    get_kernel("org/gray", version=1)
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    hugging_face.troubles.append(("", lambda asked: asked.error(503)))
    assert get_kernel("org/gray", version=1).number == 1
    with pytest.raises(EnvironmentProblemError):
        get_kernel("org/gray", version=1, refresh=True)


@pytest.mark.parametrize("variable", ["KERNELYARD_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_the_same_is_trusted_as_online(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    put("org/gray", 1)
    put("stranger/gray", 2)
    hugging_face.untrusted.add("stranger")
    get_kernel("org/gray", version=1)
    get_kernel("stranger/gray", version=1, trust_remote_code=True)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    new_process(monkeypatch)
    hugging_face.requests.clear()
    assert get_kernel("org/gray", version=1).number == 1
    # Nobody has asked who that is, so it is not known; once it is, that is what counts.
    with pytest.raises(EnvironmentProblemError, match=f"{variable} is set") as unknown:
        get_kernel("stranger/gray", version=1)
    assert unknown.value.code == "KY642"
    monkeypatch.delenv(variable)
    new_process(monkeypatch)
    with pytest.raises(VerificationError):
        get_kernel("stranger/gray", version=1)
    monkeypatch.setenv(variable, "1")
    hugging_face.requests.clear()
    with pytest.raises(VerificationError, match="stranger is not a trusted publisher") as caught:
        get_kernel("stranger/gray", version=1)
    assert caught.value.code == "KY605"
    assert get_kernel("stranger/gray", version=1, trust_remote_code=True).number == 2
    assert hugging_face.requests == []


@pytest.mark.parametrize("harm", ["shared", "of another", "broken"])
def test_what_others_may_have_written_of_a_publisher_is_not_believed(
    put: Callable[..., None], hugging_face: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, harm: str
) -> None:
    put()
    get_kernel("org/gray", version=1)
    hugging_face.untrusted.add("org")
    (kept,) = (tmp_path / "state" / "publishers").glob("*.json")
    if harm == "shared":
        kept.chmod(0o666)
    elif harm == "of another":
        kept.write_text(json.dumps({**json.loads(kept.read_bytes()), "organisation": "other"}))
    else:
        kept.write_text("{")
    new_process(monkeypatch)
    with pytest.raises(VerificationError, match="not a trusted publisher"):
        get_kernel("org/gray", version=1)


@pytest.mark.parametrize("exported", [True, False])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_layer_says_who_was_trusted_when_it_was_made(
    put: Callable[..., None],
    hugging_face: Hub,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    trusted: bool,
    exported: bool,
) -> None:
    monkeypatch.delenv("KERNELYARD_STATE")
    put()
    if not trusted:
        hugging_face.untrusted.add("org")
        with pytest.raises(VerificationError):
            get_kernel("org/gray", version=1)
    get_kernel("org/gray", version=1, trust_remote_code=not trusted)
    if exported:
        export_layer(Store.default(), tmp_path / "layer", ["org/gray"])
        assert len(list((tmp_path / "layer/state/publishers").iterdir())) == 1
        shutil.rmtree(tmp_path / "store")
    else:
        shutil.move(tmp_path / "store", tmp_path / "layer")
    monkeypatch.setenv("KERNELYARD_LAYERS", str(tmp_path / "layer"))
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    new_process(monkeypatch)
    hugging_face.requests.clear()
    if trusted:
        assert get_kernel("org/gray", version=1).number == 1
    else:
        with pytest.raises(VerificationError, match="org is not a trusted publisher"):
            get_kernel("org/gray", version=1)
    assert hugging_face.requests == []


def test_of_many_that_begin_at_once_one_asks_who_is_trusted(hugging_face: Hub) -> None:
    def answer(asked: Handler) -> None:
        time.sleep(0.2)
        asked.overview("org")

    hugging_face.troubles.append(("overview", answer))
    source = HuggingFaceHub()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: publisher_of(source, "org"), range(8)))
    assert [one.trusted for one in found if one is not None] == [True] * 8
    assert hugging_face.requests == [OVERVIEW]


def test_over_plain_http_nobody_is_a_trusted_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    with pytest.raises(VerificationError, match="over plain http:// nobody is a trusted publisher") as caught:
        get_kernel("org/gray", version=1)
    assert caught.value.code == "KY605"


def test_another_hub_takes_consent_whoever_the_kernel_is_called_after(web_hub: str) -> None:
    with pytest.raises(VerificationError, match=r"would come from http://127") as caught:
        get_kernel("kernels-community/gray", version=1, hub=web_hub)
    assert caught.value.code == "KY605"


def test_a_name_that_is_no_kernel_asks_for_nothing(hugging_face: Hub) -> None:
    request: dict[str, Any] = {"version": 1}
    with pytest.raises(InputError, match="not the name of a kernel"):
        get_kernel("../../whoami", **request)
    assert hugging_face.requests == []


@pytest.mark.parametrize("at", ["index", "file"])
def test_a_kernel_that_has_become_somebody_else_s_is_not_followed(
    put: Callable[..., None], hugging_face: Hub, at: str
) -> None:
    put("org/gray")
    put("stranger/gray")
    hugging_face.untrusted.add("stranger")

    def send_on(asked: Handler) -> None:
        location = hugging_face.endpoint + asked.path.replace("/org/gray/", "/stranger/gray/")
        asked.answer(b"", 307, {"Location": location})

    hugging_face.troubles.append((r"/kernels/org/gray/.*" + ("index" if at == "index" else r"\.py"), send_on))
    with pytest.raises(VerificationError, match="org/gray is stranger/gray on this hub now") as caught:
        get_kernel("org/gray", version=1)
    assert caught.value.code == "KY649"
    assert not [line for line in hugging_face.requests if "stranger" in line]
