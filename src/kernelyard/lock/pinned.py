"""One kernel of a hub as a lock has it: every file of every variant, and what the variants need themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from kernelyard.errors import InputError, MissingError, Place, VerificationError
from kernelyard.formats.dependencies import Dependency
from kernelyard.formats.digest import UNHASHED, base64_of_hex
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.index import VariantEntry
from kernelyard.formats.lock import LockedKernel
from kernelyard.formats.wanted import Wanted, newest_first
from kernelyard.hub import Hub, Revision
from kernelyard.records import record

__all__ = ["Pinned", "check_digest", "mapped", "pin"]

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16


@record(frozen=True, slots=True)
class Pinned:
    """A kernel without its needs locked, and what these are.

    Attributes:
        kernel: As the lock has it, but for ``needs``.
        needs: ``org/name`` and what is asked for, of any of its variants, sorted.
        withdrawn: Why the release was withdrawn; None where it was not.
    """

    kernel: LockedKernel
    needs: tuple[tuple[str, Wanted], ...]
    withdrawn: str | None


def pin(source: Hub, hub: str, repo: str, wanted: Wanted, declared: Dependency | None) -> Pinned:
    """Return the best revision that is asked for and has a variant that is to be locked.

    Args:
        source: The hub.
        hub: How the lock names it.
        repo: ``org/name``.
        wanted: What is asked for.
        declared: The declaration, which may narrow the variants; None for what only other kernels need.

    Raises:
        MissingError: There is none (KY501), or none has such a variant (KY715).
        VerificationError: It is not signed by whom it was before (KY645), or a policy asks for more evidence (KY644).
        KernelyardError: What :meth:`Hub.candidates` and :meth:`Hub.variant` raise.
    """
    from kernelyard.load.trust.checks import check_evidence

    seen = 0
    for found in source.candidates(repo, wanted):
        seen += 1
        taken = [
            entry.name
            for entry in found.index.variants
            if declared is None or declared.takes(entry.name, entry.facts.backend)
        ]
        if taken:
            check_evidence(source, found, way="locking", pinned=wanted.revision == found.id)
            return _pin(source, hub, found, _entries(source, found, taken), declared)
    narrowed = "" if declared is None else ", ".join(filter(None, (declared.backend, *declared.variants)))
    what = f"{repo} has no variant for {narrowed} in {wanted}" if narrowed else f"{repo} has no variants in {wanted}"
    hint = "`kernelyard info` lists its variants" if seen else "check the name and the version"
    raise MissingError("KY715", what, hint=hint)


def _entries(source: Hub, found: Revision, names: list[str]) -> list[VariantEntry]:
    """Return variants with all their files, which a hub without an index has to read."""
    from kernelyard.hub.hugging_face import HuggingFaceHub

    # Hundreds of small files of one kernel, each a request. Other hubs know, or read from this machine.
    at_once = _AT_ONCE if isinstance(source, HuggingFaceHub) and found.document is None else 1
    return list(mapped(lambda name: source.variant(found, name), names, at_once=at_once))


def _pin(source: Hub, hub: str, found: Revision, entries: list[VariantEntry], declared: Dependency | None) -> Pinned:
    document = found.document
    tagged = newest_first([found.ref or ""])
    kernel = LockedKernel(
        repo=found.repo,
        hub=hub,
        revision=found.id,
        version=found.index.version,
        release=found.index.release or (tagged[0][1:] if tagged and "." in tagged[0] else None),
        index=None if document is None else (sha256(document).hexdigest(), len(document)),
        declared=declared,
        contents=LockedKernel.contents_of({entry.name: entry.files for entry in entries}),
    )
    needs = sorted(set(_needs(source, found, entries)), key=lambda need: (need[0], str(need[1])))
    return Pinned(kernel, tuple(needs), found.withdrawn)


def _needs(source: Hub, found: Revision, entries: list[VariantEntry]) -> Iterable[tuple[str, Wanted]]:
    """Read the ``metadata.json`` of all variants: only it says what a variant needs, each something else."""
    with tempfile.TemporaryDirectory(prefix="kernelyard-") as folder:

        def read(entry: VariantEntry) -> tuple[tuple[str, Wanted], ...]:
            file = next((file for file in entry.files if file.path == "metadata.json"), None)
            if file is None:
                return ()
            destination = Path(folder, entry.name)
            source.fetch_file(found, entry.name, file, destination)
            fields = parse_json_object(
                destination.read_bytes(), code="KY212", path=f"metadata.json of {entry.name} of {found.repo}"
            )
            check_digest(entry, fields)
            return _depends(fields)

        for needs in mapped(read, entries, at_once=1 if source.is_local else _AT_ONCE):
            yield from needs


def check_digest(entry: VariantEntry, fields: Fields) -> None:
    """Refuse to write down bytes that are not those that their publisher has signed for.

    Raises:
        VerificationError: The digest in the ``metadata.json`` is of other files (KY503).
    """
    digest = fields.members.get("digest")
    if not isinstance(digest, dict) or digest.get("algorithm") != "sha256":
        return
    expected = {file.path: base64_of_hex(file.sha256) for file in entry.files if file.path not in UNHASHED}
    said = digest.get("files")
    if said == expected:
        return
    said = said if isinstance(said, dict) else {}
    wrong = min(path for path in {*expected, *said} if expected.get(path, "") != said.get(path, ""))
    what = f"{entry.name}/{wrong} is not what the digest in the variant's metadata.json says"
    raise VerificationError("KY503", what, hint="tell the owner of the kernel", place=Place(fields.path))


def _depends(fields: Fields) -> tuple[tuple[str, Wanted], ...]:
    """Return the kernels that a ``metadata.json`` names in ``kernel-depends``.

    Raises:
        InputError: It is malformed (KY212).
    """
    if fields.members.get("kernel-depends") is None:
        return ()
    found = []
    for one in fields.tables("kernel-depends"):
        version, revision = one.optional("version", int), one.optional("revision", str)
        try:
            found.append((one.required("repo-id", str), Wanted.parse(version, revision)))
        except InputError as error:
            raise one.error("", error.what) from None
    return tuple(found)


def mapped(function: Callable[[T], R], items: Iterable[T], *, at_once: int) -> Iterable[R]:
    """Return the results in the order of the items, working at several at once."""
    if at_once == 1:
        return map(function, items)
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))
