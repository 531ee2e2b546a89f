from __future__ import annotations

import re
import sys

import pytest

from kernelyard.formats.policy import Allowance, Policy, covers, hub_address, read_policy
from kernelyard.formats.settings import read_settings
from kernelyard.formats.signature import PublicKey
from kernelyard.formats.sigstore_identity import GITHUB_ACTIONS, Identity
from kernelyard.formats.tables import ManifestError
from tests.conftest import REPOSITORY

KEY = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
ALLOW = '[[trust.allow]]\nhub = "hf://"\nkernels = ["org/*"]\n'


def read(text: str) -> Policy:
    policy = read_policy(text, path="policy.toml")
    assert policy is not None
    return policy


def faults(text: str, *, settings: bool = False) -> list[tuple[str, str]]:
    with pytest.raises(ManifestError) as caught:
        read_policy(text, path="policy.toml", settings=settings)
    return [(error.code, str(error.place)) for error in caught.value.errors]


def test_an_empty_table_forbids_nothing() -> None:
    assert read("[trust]\n") == Policy("policy.toml")
    assert read_policy("", path="policy.toml") is None


def test_all_that_a_policy_can_say() -> None:
    text = f"""
    [trust]
    deny = ["bad-org", "org/bad", "*/backdoor"]
    evidence = "index"
    local = false
    trust-root = "root.json"

    [[trust.allow]]
    hub = "HTTPS://Kernels.Example.com:443/team/"
    kernels = ["org/*"]
    keys = ["{KEY}"]

    [[trust.allow]]
    hub = "hf://"
    kernels = ["*"]
    consent = false
    evidence = ["sigstore", "lock"]
    sigstore = [{{ repository = "https://github.com/org/name" }}, {{ issuer = "https://id", subject = "a@b" }}]

    [[trust.allow]]
    hub = "file:///srv/my%20kernels/"
    kernels = ["org"]
    """
    assert read(text) == Policy(
        "policy.toml",
        deny=("bad-org/*", "org/bad", "*/backdoor"),
        evidence=("index",),
        local=False,
        trust_root="root.json",
        allow=(
            Allowance(
                "https://kernels.example.com/team",
                ("org/*",),
                evidence=("signature",),  # who names keys wants their signatures
                keys=(PublicKey.parse(KEY),),
            ),
            Allowance(
                "hf://",
                ("*/*",),
                consent=False,
                evidence=("sigstore", "lock"),
                identities=(
                    Identity(GITHUB_ACTIONS, repository="https://github.com/org/name"),
                    Identity("https://id", subject="a@b"),
                ),
            ),
            Allowance("/srv/my kernels", ("org/*",), evidence=("index",)),
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trust = 1\n", ("KY205", "policy.toml:1:1: trust")),
        ("[trsut]\n", ("KY203", "policy.toml:1:2: trsut")),
        ("[trust]\nallowed = []\n", ("KY203", "policy.toml:2:1: trust.allowed")),
        ('[trust]\nlocal = "no"\n', ("KY205", "policy.toml:2:1: trust.local")),
        ('[trust]\nevidence = "signatures"\n', ("KY206", "policy.toml:2:1: trust.evidence")),
        ('[trust]\nevidence = ["index", "x"]\n', ("KY206", "policy.toml:2:22: trust.evidence[1]")),
        ("[trust]\nevidence = []\n", ("KY206", "policy.toml:2:1: trust.evidence")),
        ("[trust]\nevidence = 3\n", ("KY205", "policy.toml:2:1: trust.evidence")),
        ('[trust]\ndeny = ["a/b/c"]\n', ("KY206", "policy.toml:2:9: trust.deny[0]")),
        ('[trust]\ndeny = ["[ab]/c"]\n', ("KY206", "policy.toml:2:9: trust.deny[0]")),
        ('[trust]\nallow = ["org/*"]\n', ("KY205", "policy.toml:2:10: trust.allow[0]")),
        (f'{ALLOW}keys = ["ed25519:x"]\n', ("KY206", "policy.toml:4:9: trust.allow[0].keys[0]")),
        (f'{ALLOW}key = "x"\n', ("KY203", "policy.toml:4:1: trust.allow[0].key")),
        (f'{ALLOW}sigstore = [{{ subject = "a@b" }}]\n', ("KY206", "policy.toml:4:13: trust.allow[0].sigstore[0]")),
        (f'{ALLOW}sigstore = ["a@b"]\n', ("KY205", "policy.toml:4:13: trust.allow[0].sigstore[0]")),
        ('[[trust.allow]]\nhub = "hf://"\n', ("KY204", "policy.toml:1:1: trust.allow[0]")),
        ('[[trust.allow]]\nhub = "kernels"\nkernels = ["*"]\n', ("KY206", "policy.toml:2:1: trust.allow[0].hub")),
        (f"{ALLOW}keys = []\n", ("KY206", "policy.toml:4:1: trust.allow[0].keys")),
        (f"{ALLOW}sigstore = []\n", ("KY206", "policy.toml:4:1: trust.allow[0].sigstore")),
        ("[trust\n", ("KY201", "policy.toml:1:7")),
    ],
)
def test_a_mistake_is_told_at_its_place(text: str, expected: tuple[str, str]) -> None:
    assert faults(text) == [expected]


@pytest.mark.parametrize(
    ("signers", "evidence", "told"),
    [
        ("keys", '"index"', 'names `keys`, and asks for "index", which is there without any signature of theirs'),
        (
            "keys",
            '["signature", "digest"]',
            'names `keys`, and asks for "digest", which is there without any signature',
        ),
        ("keys", '"lock"', 'names `keys`, and asks for "lock", for which they do not count'),
        ("keys", '["sigstore", "lock"]', 'names `keys`, and asks for "sigstore" or "lock", for which they do not'),
        ("sigstore", '"index"', 'names `sigstore`, and asks for "index", which is there without any signature'),
        ("keys sigstore", '"signature"', 'names `sigstore`, and asks for "signature", for which they do not count'),
    ],
)
def test_signers_that_are_named_for_nothing_are_a_mistake(signers: str, evidence: str, told: str) -> None:
    named = {"keys": f'keys = ["{KEY}"]\n', "sigstore": 'sigstore = [{ repository = "https://github.com/o/n" }]\n'}
    text = ALLOW + "".join(named[one] for one in signers.split()) + f"evidence = {evidence}\n"
    line = text[: text.index("evidence")].count("\n") + 1
    with pytest.raises(ManifestError) as caught:
        read(text)
    (error,) = caught.value.errors
    assert (error.code, str(error.place)) == ("KY206", f"policy.toml:{line}:1: trust.allow[0].evidence")
    assert error.what.startswith(told)
    assert error.hint.startswith("leave `evidence` out, or ask for ")


@pytest.mark.parametrize("evidence", ['"signature"', '["signature", "lock"]'])
def test_signers_that_are_named_count_where_their_signature_is_asked_for(evidence: str) -> None:
    (one,) = read(f'{ALLOW}keys = ["{KEY}"]\nevidence = {evidence}\n').allow or ()
    assert one.keys == (PublicKey.parse(KEY),)
    assert one.evidence[0] == "signature"


def test_other_settings_may_stand_beside_it_where_there_are_settings() -> None:
    text = (
        f'floor = "anything"\nlockfile = 1\n[matrix]\nnot-looked-at = 1\n[dependencies]\n[dependency-groups]\n{ALLOW}'
    )
    found = read_policy(text, path="kernelyard.toml", settings=True)
    assert found is not None
    assert found.allow == (Allowance("hf://", ("org/*",)),)
    # What is written beside it under no known name may have been meant to be it.
    assert faults("trusts = {}\n", settings=True) == [("KY203", "policy.toml:1:1: trusts")]
    assert faults("floor = 1\n") == [("KY203", "policy.toml:1:1: floor")]


def test_the_settings_of_a_project_have_it_too() -> None:
    settings = read_settings(ALLOW, path="kernelyard.toml")
    assert settings is not None
    assert settings.trust == Policy("kernelyard.toml", allow=(Allowance("hf://", ("org/*",)),))
    with pytest.raises(ManifestError, match="unknown key `alow`"):
        read_settings("[trust]\nalow = []\n", path="kernelyard.toml")


@pytest.mark.parametrize(
    ("pattern", "repo", "is_covered"),
    [
        ("org/name", "org/name", True),
        ("org/name", "org/Name", False),
        ("org/*", "org/name", True),
        ("org/*", "org2/name", False),
        ("*/*", "org/name", True),
        ("org/flash-*", "org/flash-attn", True),
        ("org/flash-*", "org/gray", False),
        ("o.g/*", "org/x", False),
        ("*/name", "a/b/name", False),
    ],
)
def test_a_pattern_is_of_whole_names(pattern: str, repo: str, is_covered: bool) -> None:  # noqa: FBT001
    assert covers(pattern, repo) is is_covered


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("https://host/a/", "HTTPS://HOST:443/a", True),
        ("https://user:secret@host/a", "https://host/a", True),
        ("https://host/a", "https://host/A", False),
        ("https://host/a", "https://host/a/b", False),
        ("https://host", "http://host", False),
        ("http://host:8000", "http://host", False),
        ("https://host.evil", "https://host", False),
        ("file:///srv/a", "/srv/a/", True),
        ("hf://", "HF://", True),
        ("git+https://host/{repo}.git", "git+https://HOST/{repo}.git", True),
    ],
)
def test_hubs_are_the_same_by_their_address(one: str, other: str, are_same: bool) -> None:  # noqa: FBT001
    assert (hub_address(one) == hub_address(other)) is are_same


def test_the_first_allowance_that_is_about_a_kernel_counts() -> None:
    text = f'{ALLOW}[[trust.allow]]\nhub = "hf://"\nkernels = ["*"]\nevidence = "lock"\n'
    policy = read(text)
    one, two = policy.allow or ()
    assert policy.allowance(["https://huggingface.co", "hf://"], "org/a") is one
    assert policy.allowance(["hf://"], "other/a") is two
    assert policy.allowance(["https://huggingface.co"], "org/a") is None


def test_what_is_denied_is_denied_in_capitals_too() -> None:
    policy = read('[trust]\ndeny = ["Bad-Org", "org/bad"]\n')
    assert policy.denied("bad-org/x") == "Bad-Org/*"
    assert policy.denied("ORG/Bad") == "org/bad"
    assert policy.denied("org/good") is None


def test_without_the_packages_for_building_mistakes_are_told_by_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tomli", "tree_sitter", "tree_sitter_toml"):
        monkeypatch.setitem(sys.modules, name, None)
    if sys.version_info >= (3, 11):
        assert faults("[trust]\nlocl = 1\nlocal = 2\n") == [
            ("KY205", "policy.toml: trust.local"),
            ("KY203", "policy.toml: trust.locl"),
        ]
        assert faults("[trust]\nlocal = \n") == [("KY201", "policy.toml:2:9")]
        with pytest.raises(ManifestError, match="not valid TOML"):
            read_policy("[trust", path="policy.toml")


def test_the_policies_in_the_documentation_are_what_they_say() -> None:
    pages = [(REPOSITORY / "docs" / name).read_text("utf-8") for name in ("formats/settings.md", "signatures.md")]
    texts = [text for page in pages for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "trust" in text]
    first, second = map(read, texts)
    assert [one.hub for one in first.allow or ()] == ["https://kernels.example.com", "hf://", "hf://"]
    assert [one.evidence for one in first.allow or ()] == [("signature",), ("sigstore", "lock"), ("index",)]
    assert [one.consent for one in first.allow or ()] == [True, True, False]
    assert first.denied("bad-org/any") == "bad-org/*"
    assert [one.evidence for one in second.allow or ()] == [("sigstore",)]
