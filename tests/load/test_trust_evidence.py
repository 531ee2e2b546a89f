"""What `kernelyard info` says of who has signed a kernel, and what it verifies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelyard import get_kernel
from kernelyard.formats.index import Index
from kernelyard.formats.signature import SigningKey, sign_index
from kernelyard.formats.sigstore_identity import GITHUB_ACTIONS, Identity
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load.trust.evidence import evidence_of
from tests.conftest import Command

pytest.importorskip("cryptography")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, go there, and keep out what this user has."""
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "project"


@pytest.fixture
def put(tmp_path: Path, make_variant: Callable[..., Path]) -> Callable[..., None]:
    """Return a function that publishes `org/my-gray`, signed by some keys and changed afterwards."""

    def put(*keys: SigningKey, change: Callable[[Index], Index] = lambda index: index, **files: bytes) -> None:
        variant = make_variant()
        for name, content in files.items():
            (variant / name.replace("_dot_", ".")).write_bytes(content)
        found = FolderHub.find(variant.parent)
        assert found is not None
        publication = Publication("org/my-gray", change(sign_index(found.index, keys)), found.files, "v1")
        StaticHub(DirectoryReader(tmp_path / "hub")).publish(publication)

    return put


@pytest.fixture
def info(
    kernelyard: Command, web_hub: str, project: Path, tmp_path: Path
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """Return a function that runs the command as text and as JSON, and answers its status and both."""
    own = {name: str(tmp_path / name.lower()) for name in ("KERNELYARD_STATE", "KERNELYARD_CACHE", "XDG_CONFIG_HOME")}

    def info(*options: str) -> tuple[int, dict[str, Any], str]:
        arguments = ("info", "org/my-gray", "--hub", web_hub, *options)
        text = kernelyard(*arguments, cwd=project, env=own)
        as_json = kernelyard(*arguments, "--json", cwd=project, env=own)
        assert text.returncode == as_json.returncode
        assert "Traceback" not in text.stderr + as_json.stderr
        return text.returncode, json.loads(as_json.stdout or "{}"), text.stdout

    return info


def test_what_speaks_for_a_kernel_is_plain_data(put: Callable[..., None], web_hub: str, project: Path) -> None:
    key, other = SigningKey.new(), SigningKey.new()
    put(key)
    get_kernel("org/my-gray", version=1, hub=web_hub, trust_remote_code=True)
    put(key, other)
    policy = project / "kernelyard.toml"
    policy.write_text(f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["*"]\nkeys = ["{other.public}"]\n')
    hub = open_hub(web_hub)
    evidence = evidence_of(hub, hub.resolve("org/my-gray", version=1))
    said = {one.pop("key"): one for one in evidence.pop("signatures")}
    assert said == {
        str(key.public): {"id": key.public.id, "holds": True, "why": None, "seen": True, "named-by": []},
        str(other.public): {
            "id": other.public.id,
            "holds": True,
            "why": None,
            "seen": False,
            "named-by": [str(policy)],
        },
    }
    assert evidence == {
        "index": True,
        "seen-keys": [str(key.public)],
        "consent": {"given": True, "forbidden": False, "why": "a policy names it"},
        "policies": [{"file": str(policy), "asks-for": ["signature"]}],
    }
    json.dumps(evidence)


def test_info_names_the_signers_and_verify_says_that_they_hold(
    put: Callable[..., None], info: Callable[..., tuple[int, dict[str, Any], str]]
) -> None:
    key = SigningKey.new()
    put(key)
    for options in ((), ("--verify",)):
        status, described, text = info(*options)
        assert status == 0
        assert described["signed-by"] == [str(key.public)]
        assert f"signed-by       {key.public}: holds; a key that nobody here has named\n" in text
        assert "consent         needed: it needs a policy that names it, or trust_remote_code\n" in text
    assert described["evidence"]["wrong"] == []
    assert text.endswith("all that is said of it holds\n")


def test_explain_says_who_signed_what_a_machine_would_get(
    put: Callable[..., None], kernelyard: Command, web_hub: str, project: Path, tmp_path: Path
) -> None:
    key = SigningKey.new()
    put(key)
    policy = project / "kernelyard.toml"
    policy.write_text('[trust]\ndeny = ["org"]\n')
    own = {name: str(tmp_path / name.lower()) for name in ("KERNELYARD_STATE", "KERNELYARD_CACHE", "XDG_CONFIG_HOME")}
    arguments = ("explain", "org/my-gray", "--hub", web_hub)
    text = kernelyard(*arguments, cwd=project, env=own)
    assert text.returncode == 4, text.stderr
    # It is no more than would be said of a load: no variant is called the best of what is forbidden.
    (row,) = (line.split(maxsplit=2) for line in text.stdout.splitlines() if line.startswith("torch-universal"))
    assert row == ["torch-universal", "no", "A policy forbids it (KY640)."]
    assert f"{policy}: org/my-gray is denied here by 'org' in `deny` [KY640]\n" in text.stdout
    assert f"signed-by       {key.public}: holds; a key that nobody here has named\n" in text.stdout
    assert f"consent         forbidden: {policy}: org/my-gray is denied here by 'org' in `deny`\n" in text.stdout
    evidence = json.loads(kernelyard(*arguments, "--json", cwd=project, env=own).stdout)["evidence"]
    assert [one["key"] for one in evidence["signatures"]] == [str(key.public)]


def test_verify_ends_in_4_where_a_signature_does_not_hold(
    put: Callable[..., None], info: Callable[..., tuple[int, dict[str, Any], str]]
) -> None:
    put(SigningKey.new(), change=lambda index: replace(index, license="changed"))
    status, described, text = info()
    assert status == 0
    assert "does not hold" in text
    status, described, text = info("--verify")
    assert status == 4
    assert any("is not one of this document" in one for one in described["evidence"]["wrong"])
    assert "wrong: the signature by ed25519:" in text


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('evidence = "lock"\n', "than is asked for: lock"),
        ('deny = ["org"]\n', "is denied here by 'org' in"),
        ('evidence = "sigstore"\n', "torch-universal: is not signed by Sigstore"),
        ("allow = []\n", "is not among what this policy allows"),
    ],
)
def test_verify_ends_in_4_where_a_policy_asks_for_more(
    put: Callable[..., None],
    info: Callable[..., tuple[int, dict[str, Any], str]],
    project: Path,
    rule: str,
    message: str,
) -> None:
    put()
    (project / "kernelyard.toml").write_text(f"[trust]\n{rule}")
    assert info()[0] == 0
    status, described, text = info("--verify")
    assert status == 4
    assert message in text
    assert any(message in one for one in described["evidence"]["wrong"])


@pytest.mark.parametrize("by", ["ours", "stranger"])
def test_verify_verifies_signatures_by_sigstore_of_all_variants(  # noqa: PLR0917 - the surroundings
    make_variant: Callable[..., Path],
    add_digest: Callable[..., None],
    publish: Callable[..., str],
    info: Callable[..., tuple[int, dict[str, Any], str]],
    project: Path,
    web_hub: str,
    by: str,
) -> None:
    pytest.importorskip("sigstore")
    from tests.hub.sigstore_authority import Authority

    signer = Identity(GITHUB_ACTIONS, repository=f"https://github.com/{by}/kernels")
    authority = Authority()
    authority.write_root(project / "root.json")
    variant = make_variant()
    add_digest(variant)
    (variant / "metadata.json.sigstore").write_bytes(authority.sign((variant / "metadata.json").read_bytes(), signer))
    publish(variant.parent, repo="org/my-gray")
    status, described, text = info("--verify")
    assert (status, described["evidence"]["variants"]["torch-universal"]["holds"]) == (0, None)
    assert "sigstore        torch-universal: not verified: no policy names who may sign\n" in text
    (project / "kernelyard.toml").write_text(
        f'[trust]\ntrust-root = "root.json"\n[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["*"]\n'
        'sigstore = [{ repository = "https://github.com/ours/kernels" }]\n'
    )
    status, described, text = info("--verify")
    if by == "ours":
        assert status == 0
        assert "torch-universal: holds: one of https://github.com/ours/kernels\n" in text
    else:
        assert status == 4
        assert described["evidence"]["variants"]["torch-universal"]["holds"] is False
        assert "by https://github.com/stranger/kernels" in text


def test_of_a_folder_there_is_nothing_to_verify(
    make_variant: Callable[..., Path], kernelyard: Command, project: Path, tmp_path: Path
) -> None:
    own = {"KERNELYARD_CACHE": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = kernelyard("info", make_variant().parent, "--verify", cwd=project, env=own)
    assert done.returncode == 0, done.stderr
    assert "consent         not needed: a folder is the user's own\n" in done.stdout
