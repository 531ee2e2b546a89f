"""Whose kernels a project, a user or a machine lets be loaded: the table ``trust``. Pure data and the reading of it.

Specification: ``docs/formats/settings.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from kernelyard.errors import InputError
from kernelyard.formats.signature import PublicKey
from kernelyard.formats.sigstore_identity import GITHUB_ACTIONS, Identity
from kernelyard.formats.tables import Problems, Table
from kernelyard.formats.toml_document import parse_toml
from kernelyard.records import record

__all__ = [
    "EVIDENCE",
    "HUGGING_FACE",
    "SETTINGS",
    "Allowance",
    "Policy",
    "covers",
    "policy_of",
    "read_again",
    "read_policy",
]

#: What can be asked for, from little to much; the last three are of different kinds.
EVIDENCE = ("digest", "index", "signature", "sigstore", "lock")
#: Evidence that a hub can make up by itself, and the member that says whose signature counts for the other kinds.
_WITHOUT_SIGNERS = frozenset({"digest", "index"})
_SIGNERS = {"signature": "keys", "sigstore": "sigstore"}
#: The Hugging Face Hub, at whatever address this machine asks it.
HUGGING_FACE = "hf://"
#: The keys of a project's settings. A policy under a name that is not known must not be passed over.
SETTINGS = ("dependencies", "dependency-groups", "floor", "lockfile", "matrix", "trust", "variants")

_WORD = r"[A-Za-z0-9_*-][A-Za-z0-9._*-]*"
_PATTERN = re.compile(rf"{_WORD}(/{_WORD})?", re.ASCII)
_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:[^/@]*@)?(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
_PORTS = {"http": ":80", "https": ":443"}


@record(frozen=True, slots=True)
class Allowance:
    """Kernels that may be loaded from one hub.

    Attributes:
        hub: Its address, as :func:`hub_address` writes it, or :data:`HUGGING_FACE`.
        kernels: Patterns: ``org/*``, ``org/name``.
        consent: Whether naming them here is the user's consent to run them.
        evidence: What there has to be for them, of which one suffices; empty where nothing is asked for.
        keys: Whose signatures of an index count.
        identities: Who may sign by Sigstore.
    """

    hub: str
    kernels: tuple[str, ...]
    consent: bool = True
    evidence: tuple[str, ...] = ()
    keys: tuple[PublicKey, ...] = ()
    identities: tuple[Identity, ...] = ()


@record(frozen=True, slots=True)
class Policy:
    """What one file says.

    Attributes:
        where: The file, as messages name it.
        deny: Patterns of kernels that are not loaded from anywhere.
        allow: What may be loaded; None where that is not limited.
        evidence: What there has to be for kernels that no allowance is about.
        local: Whether folders of the user may be loaded, and used as hubs without being named.
        trust_root: A ``trusted_root.json`` of Sigstore, as it is written; None for the public one.
        members: The table itself: strings, booleans, and lists and tables of them.
    """

    where: str
    deny: tuple[str, ...] = ()
    allow: tuple[Allowance, ...] | None = None
    evidence: tuple[str, ...] = ()
    local: bool = True
    trust_root: str | None = None
    members: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def denied(self, repo: str) -> str | None:
        """Return the pattern by which a kernel is denied, None where it is not. Upper and lower case are one."""
        return next((pattern for pattern in self.deny if covers(pattern.lower(), repo.lower())), None)

    def allowance(self, hubs: Iterable[str], repo: str) -> Allowance | None:
        """Return the first allowance that is about a kernel on a hub.

        Args:
            hubs: The hub's address, and its other names.
            repo: ``org/name``.
        """
        names = {hub_address(hub) for hub in hubs}
        return next(
            (
                one
                for one in self.allow or ()
                if one.hub in names and any(covers(pattern, repo) for pattern in one.kernels)
            ),
            None,
        )


def read_policy(text: str, *, path: str, within: tuple[str, ...] = (), settings: bool = False) -> Policy | None:
    """Read the policy of a file.

    Args:
        text: The file's content.
        path: Where it stands, for messages.
        within: The tables that ``trust`` is in: ``("tool", "kernelyard")``.
        settings: Whether other settings of a project may stand beside it; what they say is not looked at.

    Returns:
        None where the file has no such table.

    Raises:
        ManifestError: It has mistakes; all that could be found are in ``errors``.
    """
    problems = Problems(path, text)
    members: Any = parse_toml(text, path=path)
    for name in within:
        members = members.get(name) if isinstance(members, Mapping) else None
    if members is None:
        return None
    if not isinstance(members, dict):
        problems.report("KY205", within, f"expected a table, found {type(members).__name__}")
        problems.raise_any()
    top = Table(members, within, problems)
    for name in SETTINGS if settings else ():
        top.expect(name)
    table = top.table("trust")
    policy = policy_of(table) if table is not None else None
    top.finish()
    problems.raise_any()
    return policy


def read_again(members: dict[str, Any], text: str, *, path: str, within: tuple[str, ...] = ()) -> Policy:
    """Return what a table ``trust`` says that :func:`read_policy` has found in a text before.

    Args:
        members: The table.
        text: The file's content.
        path: Where it stands, for messages.
        within: The tables that ``trust`` is in.

    Raises:
        ManifestError: It has mistakes after all.
    """
    problems = Problems(path, text)
    policy = policy_of(Table(members, (*within, "trust"), problems))
    problems.raise_any()
    return policy


def policy_of(table: Table) -> Policy:
    """Return what a table ``trust`` says; mistakes are reported to the table's problems."""
    evidence = _evidence(table)
    found = Policy(
        where=table.problems.path,
        deny=_patterns(table, "deny"),
        evidence=evidence,
        allow=_allow(table, evidence),
        local=table.take("local", bool) is not False,
        trust_root=table.take("trust-root", str),
        members=table.members,
    )
    table.finish()
    return found


def covers(pattern: str, repo: str) -> bool:
    """Whether a pattern ``org/name``, with ``*`` for any part of either, is one of a kernel."""
    expression = "[^/]*".join(re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(expression, repo) is not None


def hub_address(text: str) -> str:
    """Return the address or the folder of a hub in the one way that two of them are compared."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return text.rstrip("/") or "/"
    scheme, host, path = found["scheme"].lower(), found["host"].lower(), found["path"].rstrip("/")
    if scheme == "file":
        from urllib.parse import unquote

        return unquote(path) or "/"
    if scheme == "hf" and not host:
        return HUGGING_FACE
    return f"{scheme}://{host.removesuffix(_PORTS.get(scheme, ' '))}{path}"


def _allow(table: Table, otherwise: tuple[str, ...]) -> tuple[Allowance, ...] | None:
    values = table.take("allow", list)
    if values is None:
        return None
    found = []
    for number, value in enumerate(values):
        key = (*table.key, "allow", number)
        if isinstance(value, dict):
            found.append(_allowance(Table(value, key, table.problems), otherwise))
        else:
            hint = 'write [[trust.allow]], and below it hub = "..." and kernels = ["org/*"]'
            table.problems.report("KY205", key, "expected a table", hint)
    return tuple(found)


def _allowance(table: Table, otherwise: tuple[str, ...]) -> Allowance:
    hub = table.parsed("hub", _hub, hint='write "hf://", "https://host/path" or "/a/folder"')
    kernels = _patterns(table, "kernels", required=True)
    consent = table.take("consent", bool) is not False
    keys, identities = _keys(table), _identities(table)
    evidence = _evidence(table)
    # Whoever names signers wants their signatures.
    asked = (*(["signature"] if keys else []), *(["sigstore"] if identities else []))
    if "evidence" not in table.members:
        evidence = asked or otherwise
    else:
        _check_signers_count(table, evidence, asked)
    table.finish()
    return Allowance(hub or HUGGING_FACE, kernels, consent, evidence, keys, identities)


def _check_signers_count(table: Table, evidence: tuple[str, ...], asked: tuple[str, ...]) -> None:
    """Report evidence that is there without the signers who are named: a reader would think they are asked for."""
    named = next((_SIGNERS[kind] for kind in asked if kind not in evidence), _SIGNERS[asked[0]] if asked else "")
    hint = f"leave `evidence` out, or ask for {_listed(asked)}, beside which a lock may stand"
    without = tuple(kind for kind in evidence if kind in _WITHOUT_SIGNERS)
    if asked and without:
        what = f"names `{named}`, and asks for {_listed(without)}, which is there without any signature of theirs"
        table.report("KY206", "evidence", what, hint)
    elif evidence and not {*asked} <= {*evidence}:
        what = f"names `{named}`, and asks for {_listed(evidence)}, for which they do not count"
        table.report("KY206", "evidence", what, hint)


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join(f'"{kind}"' for kind in kinds)


def _hub(text: str) -> str:
    address = hub_address(text)
    if "://" not in address and not address.startswith("/"):
        raise ValueError(f"neither the address of a hub nor an absolute path: {text!r}")
    return address


def _patterns(table: Table, member: str, *, required: bool = False) -> tuple[str, ...]:
    texts = table.strings(member, required=required) or ()
    for number, text in enumerate(texts):
        if not _PATTERN.fullmatch(text):
            what = f"not a kernel or an organisation: {text!r}"
            table.problems.report("KY206", (*table.key, member, number), what, 'write "org/name", "org/*" or "*"')
    return tuple(text if "/" in text else f"{text}/*" for text in texts)


def _evidence(table: Table) -> tuple[str, ...]:
    value = table.members.get("evidence")
    if isinstance(value, list):
        texts = table.strings("evidence") or ()
        keys = [(*table.key, "evidence", number) for number in range(len(texts))]
        _check_some(table, "evidence")
    else:
        one = table.take("evidence", str)
        texts, keys = (() if one is None else (one,)), [(*table.key, "evidence")]
    found = (table.one_of(key, text, EVIDENCE, "evidence") for key, text in zip(keys, texts, strict=False))
    return tuple(text for text in found if text is not None)


def _check_some(table: Table, member: str) -> None:
    if table.members.get(member) == []:
        table.report("KY206", member, "names nothing", "leave it out where nothing is asked for")


def _keys(table: Table) -> tuple[PublicKey, ...]:
    texts = table.strings("keys") or ()
    _check_some(table, "keys")
    hint = "`kernelyard hub key show FILE` prints one"
    found = (
        table.parse((*table.key, "keys", number), text, PublicKey.parse, hint) for number, text in enumerate(texts)
    )
    return tuple(key for key in found if key is not None)


def _identities(table: Table) -> tuple[Identity, ...]:
    found = []
    _check_some(table, "sigstore")
    for number, value in enumerate(table.take("sigstore", list) or ()):
        key = (*table.key, "sigstore", number)
        if not isinstance(value, dict):
            hint = 'write { repository = "https://github.com/org/name", workflow = "..." }'
            table.problems.report("KY205", key, "expected a table", hint)
            continue
        identity = _identity(Table(value, key, table.problems))
        found += [identity] if identity is not None else []
    return tuple(found)


def _identity(table: Table) -> Identity | None:
    issuer, subject = table.take("issuer", str), table.take("subject", str)
    repository, workflow = table.take("repository", str), table.take("workflow", str)
    table.finish()
    if issuer is None and "issuer" not in table.members and (repository or workflow):
        issuer = GITHUB_ACTIONS
    try:
        return Identity(issuer or "", subject, repository, workflow)
    except InputError as error:
        table.problems.report("KY206", table.key, error.what, error.hint)
        return None
