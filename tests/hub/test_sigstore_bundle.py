"""Bundles by Sigstore, of an authority of our own. Real ones, of its library's own tests, are used where
`SIGSTORE_ASSETS` names their folder: `test/assets` of sigstore-python.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.formats.sigstore_identity import GITHUB_ACTIONS, KERNELS_COMMUNITY, Identity
from kernelyard.hub.sigstore_bundle import verify_bundle

SIGNER = Identity("https://github.com/login/oauth", subject="a@tny.town")


def test_without_the_extra_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sigstore", "sigstore.errors"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EnvironmentProblemError, match="not installed") as caught:
        verify_bundle(b"{}", b"{}", [SIGNER])
    assert caught.value.code == "KY535"


def test_who_may_sign_has_to_be_named() -> None:
    with pytest.raises(InputError) as caught:
        verify_bundle(b"{}", b"{}", [])
    assert caught.value.code == "KY534"
    # An issuer alone vouches for anybody.
    with pytest.raises(InputError) as caught:
        Identity(GITHUB_ACTIONS)
    assert caught.value.code == "KY534"


@pytest.mark.parametrize("identity", [*KERNELS_COMMUNITY, SIGNER], ids=str)
def test_a_bundle_holds_for_who_signed_these_bytes_and_for_nobody_else(identity: Identity, tmp_path: Path) -> None:
    pytest.importorskip("sigstore")
    from tests.hub.sigstore_authority import Authority

    authority = Authority()
    root = authority.write_root(tmp_path / "root.json")
    bundle = authority.sign(b"{}", identity)
    verify_bundle(b"{}", bundle, [SIGNER, *KERNELS_COMMUNITY], trust_root=root)
    others = [one for one in (*KERNELS_COMMUNITY, SIGNER) if one != identity]
    others += [replace(identity, issuer="https://other"), replace(identity, repository="https://github.com/a/b")]
    with pytest.raises(VerificationError, match="it calls itself one by") as caught:
        verify_bundle(b"{}", bundle, others, trust_root=root)
    assert caught.value.code == "KY536"
    assert str(identity) in caught.value.what
    other_root = Authority().write_root(tmp_path / "other.json")
    for document, trusted in ((b"{} ", root), (b"{}", other_root)):
        with pytest.raises(VerificationError):
            verify_bundle(document, bundle, [identity], trust_root=trusted)


@pytest.fixture
def assets() -> Path:
    pytest.importorskip("sigstore")
    folder = os.environ.get("SIGSTORE_ASSETS")
    if not folder:
        pytest.skip("SIGSTORE_ASSETS does not name test/assets of sigstore-python")
    return Path(folder)


def test_real_bundles_hold_for_their_signer_bytes_and_root_alone(assets: Path) -> None:
    document, bundle = ((assets / name).read_bytes() for name in ("bundle.txt", "bundle.txt.sigstore"))
    root = max((assets / "staging-tuf" / "targets").glob("ed6a9cf4*.trusted_root.json"))
    verify_bundle(document, bundle, [replace(SIGNER, subject="b@tny.town"), SIGNER], trust_root=root)
    for identity in (
        replace(SIGNER, subject="b@tny.town"),
        replace(SIGNER, issuer=GITHUB_ACTIONS),
        replace(SIGNER, repository="https://github.com/org/name"),
        replace(SIGNER, workflow="https://github.com/org/name/.github/workflows/build.yaml@refs/heads/main"),
    ):
        with pytest.raises(VerificationError) as caught:
            verify_bundle(document, bundle, [identity], trust_root=root)
        assert caught.value.code == "KY536"
    for wrong in ((document + b" ", bundle), (document, b"{}"), (document, b"<html>")):
        with pytest.raises(VerificationError) as caught:
            verify_bundle(*wrong, [SIGNER], trust_root=root)
        assert caught.value.code == "KY536"
    with pytest.raises(InputError) as refused:
        verify_bundle(document, bundle, [SIGNER], trust_root=assets / "bundle.txt")
    assert refused.value.code == "KY534"


def test_a_real_bundle_of_a_workflow_holds_with_the_public_root_and_no_network(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nor is anything written, which not everybody could.
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    document, bundle = ((assets / f"bundle_v3_github.whl{end}").read_bytes() for end in ("", ".sigstore"))
    repository = "https://github.com/trailofbits/rfc8785.py"
    workflow = f"{repository}/.github/workflows/release.yml@refs/tags/v0.1.2"
    verify_bundle(document, bundle, [Identity(GITHUB_ACTIONS, repository=repository, workflow=workflow)])
    with pytest.raises(VerificationError, match=workflow):
        verify_bundle(document, bundle, KERNELS_COMMUNITY)
    assert not (tmp_path / "home").exists()


def test_the_public_root_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sigstore")
    from tests.hub.sigstore_authority import Authority

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    # What it does not vouch for does not hold.
    with pytest.raises(VerificationError) as caught:
        verify_bundle(b"{}", Authority().sign(b"{}", SIGNER), [SIGNER])
    assert caught.value.code == "KY536"
    assert not (tmp_path / "home").exists()
