"""The keys that a kernel was first seen signed with have to vouch for it from then on; policies may ask for others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import ANY

import pytest

from kernelyard import get_kernel, get_kernel_variants, get_locked_kernel, has_kernel
from kernelyard.errors import EnvironmentProblemError, InputError, VerificationError
from kernelyard.formats.index import Index
from kernelyard.formats.signature import SigningKey, sign_index
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import Publication
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.load import kernels
from kernelyard.load.resolve.remembered import doubt
from kernelyard.load.trust import checks as trust
from kernelyard.load.trust import policies
from kernelyard.load.trust.checks import check_evidence
from kernelyard.load.trust.signers import Signers, forget_signers
from kernelyard.load.variants import VariantRejected
from kernelyard.lock.locking import lock_project
from kernelyard.lock.resolve import Request

pytest.importorskip("cryptography")

Put = Callable[..., str]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a project, go there, and keep out what this user and this machine have."""
    (tmp_path / "project/.git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "0")
    monkeypatch.setattr(policies, "_MACHINE", str(tmp_path / "machine" / "policy.toml"))
    monkeypatch.setattr(trust, "_settled", {})
    monkeypatch.setattr(kernels, "_answered", {}, raising=False)
    return tmp_path / "project"


@pytest.fixture
def put(tmp_path: Path, make_variant: Callable[..., Path]) -> Put:
    """Return a function that publishes a number, signed by some keys, and answers the revision's id."""

    def put(number: int, *keys: SigningKey, change: Callable[[Index], Index] = lambda index: index) -> str:
        variant = make_variant(f"build{number}", files={"__init__.py": f"number = {number}\n"})
        found = FolderHub.find(variant.parent)
        assert found is not None
        index = change(sign_index(found.index, keys))
        hub = StaticHub(DirectoryReader(tmp_path / "hub"))
        return hub.publish(Publication("org/gray", index, found.files, "v1")).revision.id

    return put


@pytest.fixture
def load(web_hub: str) -> Callable[..., ModuleType]:
    return partial(get_kernel, "org/gray", hub=web_hub, trust_remote_code=True)


def refused(load: Callable[..., ModuleType], code: str, message: str, **request: Any) -> VerificationError:
    with pytest.raises(VerificationError, match=message) as caught:
        load(**(request or {"version": 1}))
    assert caught.value.code == code
    assert caught.value.exit_code == 4
    return caught.value


def test_what_was_seen_signed_has_to_stay_signed_by_the_same_key(put: Put, load: Callable[..., ModuleType]) -> None:
    key, other = SigningKey.new(), SigningKey.new()
    for number, keys in ((1, [key]), (2, [key]), (3, [other, key])):
        put(number, *keys)
        assert load(version=1).number == number
    put(4, other)
    error = refused(load, "KY645", "is signed by other keys than before")
    assert str(key.public) in error.what
    assert "kernelyard hub forget org/gray" in error.hint
    put(5)
    refused(load, "KY645", "is not signed any more")
    put(6, key)
    assert load(version=1).number == 6


def test_what_was_refused_is_not_remembered_and_the_next_call_asks_again(
    put: Put, load: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch, web_hub: str
) -> None:
    key = SigningKey.new()
    put(1, key)
    load(version=1)
    put(2)
    doubt(open_hub(web_hub), "org/gray")
    monkeypatch.setenv("KERNELYARD_FRESHNESS", "3600")
    refused(load, "KY645", "is not signed any more")
    refused(load, "KY645", "is not signed any more")
    # The hub is mended.
    put(3, key)
    assert load(version=1).number == 3
    # What was remembered before is trusted no longer, by a policy that has come since: the hub is asked, and has it.
    other = SigningKey.new()
    put(4, other)
    rule = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["*"]\nkeys = ["{other.public}"]\n'
    Path("kernelyard.toml").write_text(rule)
    trust._settled.clear()
    kernels._answered.clear()
    assert load(version=1).number == 4


def test_what_was_trusted_before_loads_while_the_hub_that_shows_something_else_may_not_be_asked(
    put: Put, load: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    put(2)
    refused(load, "KY645", "is not signed any more")
    monkeypatch.setenv("KERNELYARD_OFFLINE", "1")
    assert load(version=1).number == 1


def test_explain_the_error_and_the_list_of_variants_tell_the_same_of_what_is_not_trusted(
    put: Put, load: Callable[..., ModuleType], kernelyard: Run, web_hub: str, make_variant: Callable[..., Path]
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    make_variant("build2", name="torch-cpu")
    make_variant("build2", name="torch-xpu")
    put(2)
    error = refused(load, "KY645", "is not signed any more")
    told, *rows = error.what.splitlines()
    assert [row.split(maxsplit=2) for row in rows] == [
        ["torch-cpu", "no", "Its signatures are not those that it has to have (KY645)."],
        ["torch-universal", "no", "Its signatures are not those that it has to have (KY645)."],
        ["torch-xpu", "no", ANY],
    ]
    done = kernelyard("explain", "org/gray", "--hub", web_hub, env=dict(os.environ))
    assert done.returncode == 4
    assert [row.split(maxsplit=2) for row in done.stdout.splitlines()[3:6]] == [row.split(maxsplit=2) for row in rows]
    assert f"{told.removesuffix(':')} [KY645]" in done.stdout
    assert error.hint in done.stdout
    document = json.loads(kernelyard("explain", "org/gray", "--hub", web_hub, "--json", env=dict(os.environ)).stdout)
    assert (document["best"], document["cure"]) == (None, error.hint)
    assert document["distrust"] == {"code": "KY645", "what": told.removesuffix(":")}
    (one, two, _) = get_kernel_variants("org/gray", version=1, hub=web_hub)
    assert isinstance(one, VariantRejected)
    assert isinstance(two, VariantRejected)
    assert (one.reason, one.cure) == ("Its signatures are not those that it has to have (KY645).", error.hint)
    with pytest.raises(VerificationError, match="is not signed any more"):
        has_kernel("org/gray", version=1, hub=web_hub, trust_remote_code=True)


def test_all_keys_that_were_seen_first_have_to_vouch(put: Put, load: Callable[..., ModuleType]) -> None:
    one, two = SigningKey.new(), SigningKey.new()
    put(1, one, two)
    load(version=1)
    put(2, one)
    error = refused(load, "KY645", "signed by other keys")
    assert str(two.public) in error.what
    assert str(one.public) not in error.what


def test_a_rotated_key_is_accepted_for_the_word_of_the_old_one(put: Put, load: Callable[..., ModuleType]) -> None:
    old, stranger = SigningKey.new(), SigningKey.new()
    put(1, old)
    load(version=1)
    put(2, old.endorse(SigningKey.new()).endorse(SigningKey.new()))
    assert load(version=1).number == 2
    put(3, stranger.endorse(SigningKey.new()))
    refused(load, "KY645", "signed by other keys")


def test_what_was_seen_unsigned_may_be_signed_later(put: Put, load: Callable[..., ModuleType]) -> None:
    key = SigningKey.new()
    put(1)
    load(version=1)
    put(2, key)
    load(version=1)
    put(3)
    refused(load, "KY645", "is not signed any more")


def test_an_index_that_was_changed_after_it_was_signed_is_refused(
    put: Put, load: Callable[..., ModuleType], web_hub: str
) -> None:
    put(1, SigningKey.new(), change=lambda index: replace(index, license="changed"))
    refused(load, "KY645", "the index of org/gray is not what was signed: the signature by ed25519:")
    assert Signers.of(open_hub(web_hub), "org/gray").keys == ()


def test_a_signature_of_a_kind_that_is_not_known_does_no_harm(put: Put, load: Callable[..., ModuleType]) -> None:
    put(1, change=lambda index: replace(index, signatures=({"algorithm": "of tomorrow", "key": "x"},)))
    assert load(version=1).number == 1


def test_a_loaded_kernel_says_by_whose_signature(
    put: Put, load: Callable[..., ModuleType], project: Path, web_hub: str, tmp_path: Path
) -> None:
    key, other = SigningKey.new(), SigningKey.new()
    put(1)
    assert load(version=1).__kernel__.signed_by == ()
    put(2, key)
    assert load(version=1).__kernel__.signed_by == (str(key.public),)
    put(3, other, key)
    # The key that was seen first was asked; what else has signed it was not.
    assert load(version=1).__kernel__.signed_by == (str(key.public),)
    rule = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/gray"]\nkeys = ["{other.public}"]\n'
    (project / "kernelyard.toml").write_text(rule)
    trust._settled.clear()
    put(4, other)
    assert load(version=1).__kernel__.signed_by == (str(other.public),)
    (project / "kernelyard.toml").unlink()
    # Of a hub in a folder no signature is looked at.
    put(5, key)
    assert load(version=1, hub=tmp_path / "hub").__kernel__.signed_by == ()


def test_a_whole_id_of_a_static_hub_vouches_without_a_key(put: Put, load: Callable[..., ModuleType]) -> None:
    unsigned = put(1)
    put(2, SigningKey.new())
    load(version=1)
    refused(load, "KY645", "is not signed any more", revision=unsigned[:12])
    assert load(revision=unsigned).number == 1


def test_a_lock_vouches_without_a_key(put: Put, load: Callable[..., ModuleType], web_hub: str) -> None:
    put(1, SigningKey.new())
    load(version=1)
    put(2)
    hub = open_hub(web_hub)
    found = hub.resolve("org/gray", version=1)
    check_evidence(hub, found, way="lock")
    with pytest.raises(VerificationError):
        check_evidence(hub, found)


def test_what_is_not_signed_as_before_is_not_locked_either(
    put: Put, load: Callable[..., ModuleType], web_hub: str, project: Path
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    put(2)
    declared = f'{{ version = 1, hub = "{web_hub}", trust = true }}'
    (project / "pyproject.toml").write_text(f'[tool.kernelyard.dependencies]\n"org/gray" = {declared}\n')
    with pytest.raises(VerificationError, match="is not signed any more"):
        lock_project(project, Request())
    forget_signers(open_hub(web_hub), "org/gray")
    (project / "kernelyard.toml").write_text('[trust]\nevidence = "lock"\n')
    lock_project(project, Request())
    assert get_locked_kernel("org/gray", lockfile=project).number == 2


def test_keys_are_remembered_for_each_hub_and_kernel_and_can_be_forgotten(
    put: Put, load: Callable[..., ModuleType], web_hub: str, tmp_path: Path
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    put(2, SigningKey.new())
    # Another hub is another place, and a folder is the user's own.
    assert Signers.of(open_hub(f"{web_hub}/other"), "org/gray").keys == ()
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").number == 2
    put(3)
    assert get_kernel("org/gray", version=1, hub=tmp_path / "hub").number == 3
    put(4, SigningKey.new())
    refused(load, "KY645", "other keys")
    assert forget_signers(open_hub(web_hub), "org/gray") is True
    assert forget_signers(open_hub(web_hub), "org/gray") is False
    assert load(version=1).number == 4


@pytest.mark.parametrize("harm", ["shared", "broken", "of another"])
def test_keys_that_others_may_have_written_are_not_believed(
    put: Put, load: Callable[..., ModuleType], web_hub: str, harm: str
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    path = Signers.of(open_hub(web_hub), "org/gray").path
    assert path.stat().st_mode & 0o777 == 0o600
    if harm == "shared":
        path.chmod(0o666)
    else:
        path.write_text("{" if harm == "broken" else json.dumps({**json.loads(path.read_bytes()), "kernel": "a/b"}))
    assert Signers.of(open_hub(web_hub), "org/gray").keys == ()


def test_a_policy_that_names_keys_wants_their_signature(
    put: Put, load: Callable[..., ModuleType], project: Path, web_hub: str
) -> None:
    key, other = SigningKey.new(), SigningKey.new()

    def write(*keys: SigningKey) -> None:
        names = ", ".join(f'"{one.public}"' for one in keys)
        rule = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/gray"]\nkeys = [{names}]\n'
        (project / "kernelyard.toml").write_text(rule)
        trust._settled.clear()

    write(key)
    put(1)
    error = refused(load, "KY644", "less evidence for org/gray .* than is asked for: signature; there is an index")
    assert str(error.place) == str(project / "kernelyard.toml")
    put(2, other)
    refused(load, "KY644", "with 1 signatures, by no key that it names")
    put(3, key)
    assert load(version=1).number == 3
    put(4, key.endorse(SigningKey.new()))
    assert load(version=1).number == 4
    # Once a policy names the new key, it does not matter which one was seen.
    (project / "kernelyard.toml").unlink()
    put(5, other)
    refused(load, "KY645", "signed by other keys")
    write(other)
    assert load(version=1).number == 5


def test_a_policy_whose_keys_would_not_count_lets_nothing_be_loaded(
    put: Put, load: Callable[..., ModuleType], project: Path, web_hub: str
) -> None:
    key = SigningKey.new()
    put(1)
    rule = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["org/gray"]\nkeys = ["{key.public}"]\n'
    (project / "kernelyard.toml").write_text(f'{rule}evidence = "index"\n')
    with pytest.raises(InputError, match='names `keys`, and asks for "index", which is there without') as caught:
        load(version=1)
    assert (caught.value.code, str(caught.value.place)) == (
        "KY206",
        f"{project}/kernelyard.toml:5:1: trust.allow[0].evidence",
    )
    (project / "kernelyard.toml").write_text(f'{rule}evidence = ["signature", "lock"]\n')
    refused(load, "KY644", "asked for: signature or lock; there is an index")
    put(2, key)
    assert load(version=1).number == 2


def test_a_policy_that_asks_for_a_signature_and_names_no_key_is_told_as_that(
    put: Put, load: Callable[..., ModuleType], project: Path
) -> None:
    put(1, SigningKey.new())
    (project / "kernelyard.toml").write_text('[trust]\nevidence = "signature"\n')
    error = refused(load, "KY644", "there is an index, and the policy names no key for it")
    assert error.hint.endswith("name the publisher's keys in [[trust.allow]]")


@pytest.mark.parametrize("reason", ["seen", "named"])
def test_a_signature_that_is_needed_and_cannot_be_verified_is_trouble(  # noqa: PLR0917 - the surroundings
    put: Put,
    load: Callable[..., ModuleType],
    project: Path,
    web_hub: str,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    key = SigningKey.new()
    put(1, key)
    if reason == "named":
        rule = f'[[trust.allow]]\nhub = "{web_hub}"\nkernels = ["*"]\nkeys = ["{key.public}"]\n'
        (project / "kernelyard.toml").write_text(rule)
    else:
        load(version=1)
        put(2, key)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(EnvironmentProblemError) as caught:
        load(version=1)
    assert caught.value.code == "KY646"
    assert caught.value.hint == "pip install 'kernelyard[sign]'"


def test_without_cryptography_signatures_that_nobody_needs_do_no_harm(
    put: Put, load: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1, SigningKey.new())
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    assert load(version=1).number == 1


def test_what_was_verified_is_not_verified_again(
    put: Put, load: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(1, SigningKey.new())
    load(version=1)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    trust._settled.clear()
    assert load(version=1).number == 1


@pytest.mark.parametrize("evidence", ["index", "lock"])
def test_a_policy_can_ask_for_a_lock_or_an_index(
    put: Put, load: Callable[..., ModuleType], project: Path, web_hub: str, evidence: str
) -> None:
    put(1)
    (project / "kernelyard.toml").write_text(f'[trust]\nevidence = "{evidence}"\n')
    if evidence == "index":
        assert load(version=1).number == 1
        return
    error = refused(load, "KY644", "than is asked for: lock; there is an index")
    assert "lock it with `kernelyard add org/gray`, and load it with `get_locked_kernel`" in error.hint
    assert "sign" not in error.hint
    hub = open_hub(web_hub)
    check_evidence(hub, hub.resolve("org/gray", version=1), way="lock")
