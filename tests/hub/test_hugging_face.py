"""Reading from a Hugging Face Hub on this machine: what is asked, what is verified, and what its refusals mean."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, KernelyardError, MissingError, VerificationError
from kernelyard.hub import Publication, open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.hugging_face import HuggingFaceHub
from kernelyard.hub.hugging_face_access import Settings
from tests.hub.hugging_face_server import EXPIRED, READER, TOKEN, Handler, Hub

REPO = "org/gray"
PLATFORM = "x86_64-linux"


@pytest.fixture(autouse=True)
def _endpoint(hugging_face: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hugging_face.endpoint)
    monkeypatch.setenv("KERNELYARD_CACHE", str(tmp_path / "store"))
    monkeypatch.delenv("KERNELYARD_HUB", raising=False)


def variant(
    kernel: str, source: str, *, backend: str = "cpu", digest: str | None = None, **files: str
) -> dict[str, bytes]:
    """Return the files of a variant as kernel-builder lays it out."""
    made = {"__init__.py": source, **files}
    contents = {path: text.encode() for path, text in made.items()}
    metadata: dict[str, Any] = {"name": kernel, "id": f"_{kernel}_{uuid.uuid4().hex[:7]}", "version": 1}
    metadata |= {"license": "MIT", "python-depends": [], "backend": {"type": backend}}
    if digest is not None:
        table = {
            path: base64.b64encode(hashlib.new(digest, content).digest()).decode()
            for path, content in sorted(contents.items())
        }
        metadata["digest"] = {"algorithm": digest, "files": table}
    return {**contents, "metadata.json": json.dumps(metadata).encode()}


def build(folder: Path, variants: dict[str, dict[str, bytes]]) -> FolderHub:
    for name, files in variants.items():
        for path, content in files.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_bytes(content)
    found = FolderHub.find(folder)
    assert found is not None
    return found


def below(name: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"build/{name}/{path}": content for path, content in files.items()}


def publish(hub: Hub, folder: Path, files: dict[str, bytes], release: str | None = None) -> str:
    built = build(folder, {"torch-universal": files})
    publication = Publication(REPO, replace(built.index, release=release), built.files, "v1")
    return HuggingFaceHub(Settings(hub.endpoint, TOKEN)).publish(publication).revision.id


def asked(hub: Hub) -> list[str]:
    """Return what the Hub itself was asked; the store that it sends clients to for large files is another host."""
    return [line for line in hub.requests if " /objects/" not in line]


def six_files(number: int) -> dict[str, bytes]:
    files = variant(
        "gray", f"number = {number}\n", **{f"part{part}.py": f"p = {part}, {number}\n" for part in range(3)}
    )
    return {**files, "data.bin": f"{number}".encode() * 20_000}


@pytest.mark.parametrize(
    ("request_", "learning"),
    [
        ({"version": 1}, 1),
        ({"revision": "v1"}, 1),
        ({"revision": "v1.1.0"}, 1),
        ({"version": "1.1.0"}, 2),
        ({"version": ">=1.0,<2"}, 2),
    ],
)
def test_a_cold_load_costs_one_request_or_two_and_one_for_each_file(
    hugging_face: Hub, tmp_path: Path, request_: dict[str, Any], learning: int
) -> None:
    own = uuid.uuid4().int % 10**9
    for number in (0, 1):
        id_ = publish(hugging_face, tmp_path / f"build{number}", six_files(own + number), f"1.{number}.0")
    hugging_face.requests.clear()
    module = get_kernel(REPO, trust_remote_code=True, **request_)
    assert module.number == own + 1
    assert len(asked(hugging_face)) == learning + 6
    assert not [line for line in hugging_face.requests if line.startswith("HEAD")]
    # What is in the store is not fetched again, and what is known of a commit is not asked again.
    hugging_face.requests.clear()
    get_kernel(REPO, trust_remote_code=True, **request_)
    assert asked(hugging_face) == []
    get_kernel(REPO, trust_remote_code=True, refresh=True, **request_)
    assert len(asked(hugging_face)) == 1
    hugging_face.requests.clear()
    get_kernel(REPO, trust_remote_code=True, revision=id_)
    assert hugging_face.requests == []


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("torch-universal", variant("gray", "kind = 'universal'\n")),
        ("torch-cpu", variant("gray", "kind = 'cpu'\n", digest="sha256")),
        ("torch-cpu", variant("gray", "kind = 'sha512'\n", digest="sha512")),
        (f"torch-stable-abi29-cpu-{PLATFORM}", variant("gray", "kind = 'stable'\n", digest="sha256")),
        (f"tvm-ffi01-cpu-{PLATFORM}", variant("gray", "kind = 'tvm'\n")),
        (
            "torch-cpu",
            {
                f"gray/{path}" if path != "metadata.json" else path: content
                for path, content in variant(
                    "gray", "kind = 'nested'\nfrom .layers import x\n", **{"layers.py": "x = 1\n"}
                ).items()
            },
        ),
    ],
    ids=["universal", "cpu", "sha512", "stable-abi", "tvm-ffi", "nested"],
)
@pytest.mark.torch
def test_kernels_without_an_index_are_loaded_by_the_ids_of_the_commit(
    hugging_face: Hub, name: str, files: dict[str, bytes]
) -> None:
    repo = hugging_face.make(REPO)
    # Equal code is one module in a process, and these have been loaded by nobody.
    own = uuid.uuid4().hex
    package = "gray/" if "gray/__init__.py" in files else ""
    content = files[f"{package}__init__.py"] + f"own = {own!r}\n".encode()
    if b"digest" in files["metadata.json"]:
        algorithm = json.loads(files["metadata.json"])["digest"]["algorithm"]
        files = variant("gray", content.decode(), digest=algorithm)
    else:
        files = {**files, f"{package}__init__.py": content}
    rest = {
        "build/torch29-cxx11-cu128-x86_64-linux/metadata.json": files["metadata.json"],
        "build/torch29-cxx11-cu128-x86_64-linux/_gray.abi3.so": b"\x7fELF" * 5000,
        "build/torch-cpu/__pycache__/x.pyc": b"bytecode",
        "build/half-made/x.py": b"",
        "build/torch-rocm/__init__.py": b"without metadata",
        **{f"docs/{number}.md": b"x" for number in range(30)},
    }
    id_ = repo.put("v1", {**below(name, files), **rest})
    module = get_kernel(REPO, version=1, trust_remote_code=True)
    assert module.own == own
    assert module.__kernel__.variant == name
    assert module.__kernel__.repo_info.revision == id_
    # The index that is not there, the listing, a metadata.json for the name, whether it has moved, and the files.
    assert len(asked(hugging_face)) <= 4 + len(files)
    hugging_face.requests.clear()
    get_kernel(REPO, revision=id_, trust_remote_code=True)
    assert hugging_face.requests == []


def test_a_listing_comes_in_pages(hugging_face: Hub) -> None:
    repo = hugging_face.make(REPO)
    parts = {f"part{number}.py": f"x = {number}\n" for number in range(50)}
    repo.put("v1", below("torch-universal", variant("gray", "x = 1\n", **parts)))
    hub = open_hub()
    found = hub.resolve(REPO, version=1)
    assert found.document is None
    assert len(hub.variant(found, "torch-universal").files) == 52
    assert len([line for line in hugging_face.requests if "/tree/" in line]) == 3


def other(content: bytes) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.answer(content, headers={"Content-Type": "text/plain", "X-Repo-Commit": "0" * 40})

    return answer


@pytest.mark.parametrize("wrong", [b"x = 2\n", b"x = 1\n# and more", b""])
def test_a_file_that_is_not_the_one_of_the_commit_is_refused(hugging_face: Hub, tmp_path: Path, wrong: bytes) -> None:
    hugging_face.make(REPO).put("v1", below("torch-universal", variant("gray", "x = 1\n")))
    hugging_face.troubles.append((r"resolve/.*/__init__\.py", other(wrong)))
    with pytest.raises(VerificationError) as caught:
        get_kernel(REPO, version=1, trust_remote_code=True)
    assert caught.value.code == "KY503"
    del hugging_face.repos[REPO], hugging_face.troubles[:]
    publish(hugging_face, tmp_path / "build", variant("gray", "x = 1\n"))
    hugging_face.troubles.append((r"resolve/.*/__init__\.py", other(wrong)))
    with pytest.raises(VerificationError) as caught:
        get_kernel(REPO, version=1, trust_remote_code=True)
    assert caught.value.code == "KY503"


@pytest.mark.parametrize("path", ["build/torch-universal/../../../x", "/etc/passwd", "build/torch-cpu/\x00", "C:/x"])
def test_a_listing_that_names_what_is_outside_is_refused(hugging_face: Hub, path: str) -> None:
    hugging_face.make(REPO).put("v1", {**below("torch-universal", variant("gray", "x = 1\n")), path: b"x"})
    entry = {"type": "file", "path": path, "size": 1, "oid": "0" * 40}
    hugging_face.troubles.append(("/tree/", lambda handler: handler.answer([entry])))
    with pytest.raises(EnvironmentProblemError) as caught:
        open_hub().resolve(REPO, version=1)
    assert caught.value.code == "KY502"


@pytest.mark.parametrize("answer", [b"{}", b"[1]", b'[{"type": "file"}]', b"nonsense", b'{"branches": 1, "tags": []}'])
@pytest.mark.parametrize("what", ["/tree/", "/refs", "/commits/"])
def test_nonsense_is_told(hugging_face: Hub, answer: bytes, what: str) -> None:
    repo = hugging_face.make(REPO)
    id_ = repo.put("v1", below("torch-universal", variant("gray", "x = 1\n")))
    repo.put("v1", below("torch-universal", variant("gray", "x = 2\n")))
    hugging_face.troubles.append((what, lambda handler: handler.answer(answer)))
    with pytest.raises(EnvironmentProblemError) as caught:
        open_hub().resolve(REPO, revision=id_[:12])
    assert caught.value.code == "KY502"


def test_a_next_page_elsewhere_does_not_get_the_token(hugging_face: Hub) -> None:
    hugging_face.make(REPO).put("v1", below("torch-universal", variant("gray", "x = 1\n")))
    link = {"Link": f'<{hugging_face.cdn}/more>; rel="next"'}
    hugging_face.troubles.append(("/tree/", lambda handler: handler.answer([], headers=link)))
    with pytest.raises(EnvironmentProblemError, match="the next page is said to be elsewhere"):
        HuggingFaceHub(Settings(hugging_face.endpoint, READER)).resolve(REPO, version=1)
    assert not [line for line in hugging_face.requests if "/more" in line]


def test_an_endless_index_is_refused(hugging_face: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hugging_face, tmp_path / "build", six_files(1))
    for module in ("transfer", "hugging_face_access"):
        monkeypatch.setattr(f"kernelyard.hub.{module}.LARGEST_DOCUMENT", 500)
    with pytest.raises(InputError) as caught:
        open_hub().resolve(REPO, version=1)
    assert caught.value.code == "KY507"


def test_files_that_differ_from_the_publishers_own_digest_are_refused(hugging_face: Hub) -> None:
    files = variant("gray", "x = 1\n", digest="sha256") | {"__init__.py": b"x = 2\n"}
    hugging_face.make(REPO).put("v1", below("torch-universal", files))
    with pytest.raises(VerificationError, match="digest in the variant's metadata") as caught:
        get_kernel(REPO, version=1, trust_remote_code=True)
    assert caught.value.code == "KY503"


def test_the_token_goes_to_the_hub_and_to_no_other_host(
    hugging_face: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", READER)
    publish(hugging_face, tmp_path / "build", six_files(uuid.uuid4().int % 10**9))
    hugging_face.repos[REPO].private = True
    hugging_face.authorizations.clear()
    get_kernel(REPO, version=1, trust_remote_code=True)
    elsewhere = [sent for line, sent in hugging_face.authorizations if " /objects/" in line]
    assert elsewhere == [None]
    assert {sent for line, sent in hugging_face.authorizations if " /objects/" not in line} == {f"Bearer {READER}"}


@pytest.mark.parametrize("parts", [1, 100], ids=["small-index", "index-in-lfs"])
@pytest.mark.parametrize("caches", [False, True])
def test_the_commit_is_known_behind_redirects(hugging_face: Hub, tmp_path: Path, parts: int, *, caches: bool) -> None:
    own = uuid.uuid4().hex
    files = variant("gray", f"own = {own!r}\n", **{f"part{number}.py": f"x = {number}\n" for number in range(parts)})
    id_ = publish(hugging_face, tmp_path / "build", files)
    assert hugging_face.repos[REPO].commits[id_].tree["build/index.json"].lfs == (parts == 100)
    hugging_face.repos[REPO].private = True
    hugging_face.caches = caches
    hub = HuggingFaceHub(Settings(hugging_face.endpoint, READER))
    found = hub.resolve(REPO, version=1)
    assert found.id == id_
    for entry in found.index.variants[0].files:
        hub.fetch_file(found, "torch-universal", entry, tmp_path / "got" / entry.path)
        assert (tmp_path / "got" / entry.path).read_bytes() == files[entry.path]


@pytest.mark.parametrize(
    ("token", "settings", "code", "hint"),
    [
        (None, {"private": True}, "KY501", "hf auth login"),
        (EXPIRED, {}, "KY531", "it may have expired"),
        (None, {"gated": True}, "KY531", "ask for it at"),
        (READER, {"gated": True}, "KY531", "ask for it at"),
    ],
)
def test_a_refusal_says_what_to_do(
    hugging_face: Hub, token: str | None, settings: dict[str, bool], code: str, hint: str
) -> None:
    hugging_face.make(REPO, **settings)
    hub = HuggingFaceHub(Settings(hugging_face.endpoint, token))
    for ask in (lambda: hub.resolve(REPO, version=1), lambda: hub.refs(REPO)):
        with pytest.raises(KernelyardError) as caught:
            ask()
        assert caught.value.code == code
        assert hint in caught.value.hint
        assert "hf_" not in str(caught.value)


@pytest.mark.parametrize("token", ["hf_\N{LATIN SMALL LETTER U WITH DIAERESIS}\N{EURO SIGN}", "hf_a b", "hf_a\x00b"])
def test_a_token_that_cannot_be_one_is_told_without_it(hugging_face: Hub, token: str) -> None:
    hugging_face.make(REPO)
    with pytest.raises(EnvironmentProblemError, match="characters that none has") as caught:
        HuggingFaceHub(Settings(hugging_face.endpoint, token)).resolve(REPO, version=1)
    assert (caught.value.code, caught.value.exit_code) == ("KY531", 3)
    assert token not in str(caught.value)
    assert hugging_face.requests == []


def test_what_is_not_there_is_said_with_what_is(hugging_face: Hub) -> None:
    repo = hugging_face.make(REPO)
    repo.put("v2", {"x": b""})
    with pytest.raises(MissingError, match="has no version 1") as caught:
        open_hub().resolve(REPO, version=1)
    assert caught.value.hint == "it has 2"
    with pytest.raises(MissingError, match="has no builds") as caught:
        open_hub().resolve(REPO, version=2)


def test_a_branch_of_another_version_is_refused(hugging_face: Hub) -> None:
    hugging_face.make(REPO).put("v2", below("torch-universal", variant("gray", "x = 1\n")))
    with pytest.raises(InputError) as caught:
        open_hub().resolve(REPO, version=2)
    assert caught.value.code == "KY507"


def test_an_ambiguous_short_id_is_refused_with_the_candidates(hugging_face: Hub) -> None:
    repo = hugging_face.make(REPO)
    number = 0
    ids: dict[str, str] = {}
    while True:
        id_ = repo.put("v1", below("torch-universal", variant("gray", f"x = {number}\n")))
        if id_[:4] in ids:
            break
        ids[id_[:4]] = id_
        number += 1
    with pytest.raises(InputError) as caught:
        open_hub().resolve(REPO, revision=id_[:4])
    assert caught.value.code == "KY508"
    assert id_[:16] in caught.value.what
    assert ids[id_[:4]][:16] in caught.value.what


def passing(answer: Callable[[Handler], None], hub: Hub, times: int = 1) -> Callable[[Handler], None]:
    """Return trouble that ends after some times."""
    left = [times]

    def answered(handler: Handler) -> None:
        left[0] -= 1
        if left[0] <= 0:
            hub.troubles.clear()
        answer(handler)

    return answered


def busy(handler: Handler) -> None:
    handler.error(429, message="slow down", **{"Retry-After": "0"})


def down(handler: Handler) -> None:
    handler.error(503)


def cut(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.close_connection = True


def page(handler: Handler) -> None:
    handler.answer(b"<html>log in</html>", headers={"Content-Type": "text/html"})


@pytest.mark.parametrize("trouble", [busy, down, cut])
@pytest.mark.parametrize("what", [r"index\.json", r"__init__\.py", "/refs"])
def test_trouble_that_passes_is_waited_for(
    hugging_face: Hub, tmp_path: Path, trouble: Callable[[Handler], None], what: str
) -> None:
    own = uuid.uuid4().hex
    publish(hugging_face, tmp_path / "build", variant("gray", f"own = {own!r}\n"), "1.0.0")
    hugging_face.troubles.append((what, passing(trouble, hugging_face)))
    assert get_kernel(REPO, version="1.0.0", trust_remote_code=True).own == own
    assert hugging_face.troubles == []


@pytest.mark.parametrize("trouble", [busy, down, cut, page])
@pytest.mark.parametrize("what", [r"index\.json", r"__init__\.py", "/refs"])
def test_trouble_that_stays_is_told_and_nothing_is_kept(
    hugging_face: Hub, tmp_path: Path, trouble: Callable[[Handler], None], what: str
) -> None:
    publish(hugging_face, tmp_path / "build", variant("gray", f"own = {uuid.uuid4().hex!r}\n"), "1.0.0")
    hugging_face.troubles.append((what, trouble))
    with pytest.raises(EnvironmentProblemError) as caught:
        get_kernel(REPO, version="1.0.0", trust_remote_code=True)
    assert (caught.value.code, caught.value.exit_code) == ("KY502", 3)
    assert not list((tmp_path / "store").rglob("__init__.py"))


def test_offline_nothing_is_asked_and_what_is_known_is_loaded(
    hugging_face: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = uuid.uuid4().hex
    id_ = publish(hugging_face, tmp_path / "build", variant("gray", f"own = {own!r}\n"))
    get_kernel(REPO, version=1, trust_remote_code=True)
    hugging_face.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert get_kernel(REPO, revision=id_, trust_remote_code=True).own == own
    assert get_kernel(REPO, version=1, trust_remote_code=True).own == own
    with pytest.raises(EnvironmentProblemError) as caught:
        get_kernel(REPO, version=2, trust_remote_code=True)
    assert caught.value.code == "KY532"
    assert hugging_face.requests == []


def test_what_others_may_have_written_is_not_taken_for_what_was_read(hugging_face: Hub, tmp_path: Path) -> None:
    id_ = publish(hugging_face, tmp_path / "build", variant("gray", "x = 1\n"))
    hub = open_hub()
    hub.resolve(REPO, version=1)
    (kept,) = (tmp_path / "state" / "revisions").iterdir()
    hugging_face.requests.clear()
    hub.resolve(REPO, revision=id_)
    assert hugging_face.requests == []
    kept.chmod(0o666)
    hub.resolve(REPO, revision=id_)
    assert len(hugging_face.requests) == 1


SHOW = """
import json, sys
from kernelyard.hub.hugging_face_access import Settings
ours = Settings.from_environment()
assert "huggingface_hub" not in sys.modules
from huggingface_hub import constants
from huggingface_hub.utils._headers import get_token_to_send
theirs = [constants.ENDPOINT, get_token_to_send(None), constants.HF_HUB_OFFLINE]
print(json.dumps([[ours.endpoint, ours.token, ours.offline], theirs]))
"""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"HF_TOKEN": " hf_one\n", "HF_ENDPOINT": "https://hub.example/"},
        {"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "hf_old"},
        {"HF_TOKEN": "hf_one", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"},
        {"HF_HOME": "{home}/elsewhere"},
        {"HF_HOME": "$HOME/elsewhere"},
        {"XDG_CACHE_HOME": "{home}/xdg"},
        {"HF_TOKEN_PATH": "~/mine"},
        {"HF_HUB_OFFLINE": "yes"},
        {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"},
    ],
)
def test_the_settings_are_those_of_the_library(tmp_path: Path, environment: dict[str, str]) -> None:
    for path in (".cache/huggingface/token", "elsewhere/token", "xdg/huggingface/token", "mine"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"hf_of_{path.replace('/', '_')}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "XDG_"))}
    given = {name: value.format(home=tmp_path) for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env={**kept, "HOME": str(tmp_path), **given}, capture_output=True, check=True
    )
    ours, theirs = json.loads(done.stdout)
    assert ours == theirs
