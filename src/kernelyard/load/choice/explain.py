"""Why a machine gets this variant of a kernel, or none: what is decided, with nothing downloaded or run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from kernelyard.errors import KernelyardError, MissingError
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import Hub, Revision, open_hub
from kernelyard.hub.protocol import check_repo
from kernelyard.load.choice.choose import choose, nearest_cure
from kernelyard.load.choice.rules import Verdict
from kernelyard.load.folders import find_folder
from kernelyard.load.overrides import local_override
from kernelyard.load.resolve.known import ask_or_recall
from kernelyard.load.system.description import System
from kernelyard.load.trust.allowed import check_allowed
from kernelyard.load.trust.checks import check_local
from kernelyard.load.trust.refused import allowed, trusted
from kernelyard.records import record
from kernelyard.store import absolute_path

__all__ = ["Explanation", "explain_folder", "explain_kernel"]


@record(frozen=True, slots=True)
class Explanation:
    """What is said of a kernel's variants on a system.

    Attributes:
        of: The kernel, or the folder.
        revision: The revision that would be taken or, where none has a usable variant, the first that was looked at;
            None for a folder.
        verdicts: Of its variants: the usable ones first, the best leading; then the others, the nearest leading.
        passed_over: Newer revisions that were asked for, none of whose variants is usable.
        distrust: Why none of those that would run is taken, where that is for want of trust. Consent does not count:
            whoever calls may give it.
    """

    of: str
    revision: Revision | None
    verdicts: tuple[Verdict, ...]
    passed_over: tuple[Revision, ...] = ()
    distrust: KernelyardError | None = None

    @property
    def best(self) -> Verdict | None:
        """The variant that would be taken; None if there is none."""
        return self.verdicts[0] if self.verdicts and self.verdicts[0].usable else None

    @property
    def cure(self) -> str:
        """Where no variant is usable, what would make the nearest one so; else an empty text."""
        if self.distrust is not None:
            return self.distrust.hint
        return "" if self.best is not None else nearest_cure(self.verdicts)


def explain_folder(
    path: str | Path, system: System, *, backend: str | None = None, device: object = None, repo: str | None = None
) -> Explanation:
    """Explain what is in a folder.

    Args:
        path: The folder.
        system: The machine that is meant.
        backend: Only variants for this backend will do.
        device: The GPU that matters, as in :func:`kernelyard.load.choice.choose.choose`.
        repo: The kernel that it stands for, where it does.

    Raises:
        MissingError, InputError, EnvironmentProblemError: As :func:`kernelyard.load.folders.find_folder` does.
        InputError: ``device`` names no GPU (KY623).
    """
    found = find_folder(path)
    verdicts = choose(found.variants, system, backend, device=device)
    verdicts, distrust = allowed(partial(check_local, absolute_path(path, code="KY607"), repo), verdicts)
    broken = (Verdict(one.name, usable=False, reason=one.reason) for one in found.broken)
    return Explanation(str(found.path), None, (*verdicts, *broken), distrust=distrust)


def explain_kernel(
    repo: str,
    system: System,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    device: object = None,
    hub: str | Path | None = None,
) -> Explanation:
    """Explain what a hub has, or the folder that ``LOCAL_KERNELS`` puts in its place.

    Where the hub cannot be asked or does not answer, it is what is known of it here.

    Args:
        repo: ``org/name``.
        system: The machine that is meant.
        version: As in ``get_kernel``; without it and ``revision`` the newest version.
        revision: As in ``get_kernel``.
        backend: Only variants for this backend will do.
        device: The GPU that matters, as in :func:`kernelyard.load.choice.choose.choose`.
        hub: A folder or an address; None for the usual one.

    Raises:
        InputError, MissingError, EnvironmentProblemError, VerificationError: As ``Hub.candidates`` does.
        InputError: ``device`` names no GPU (KY623), or a policy has mistakes or cannot be read (KY647, KY2xx).
    """
    folder = local_override(check_repo(repo))
    if folder is not None:
        return explain_folder(folder, system, backend=backend, device=device, repo=repo)
    source = open_hub(hub)

    def explain(asked: Hub) -> Explanation:
        judged = (
            (found, _verdicts(asked, found, system, backend, device))
            for found in _candidates(asked, repo, version, revision)
        )
        return _explained(source, repo, judged, revision)

    return ask_or_recall(source, repo, explain)


def _explained(
    source: Hub, repo: str, candidates: Iterable[tuple[Revision, tuple[Verdict, ...]]], revision: str | None
) -> Explanation:
    passed_over: list[Explanation] = []
    for found, judged in candidates:
        verdicts, distrust = allowed(partial(check_allowed, source, repo), judged)
        if distrust is None:
            verdicts, distrust = trusted(source, found, verdicts, pinned=revision == found.id)
        explained = Explanation(repo, found, verdicts, distrust=distrust)
        # What is not trusted ends it for `get_kernel` as well: no older release is taken in its place.
        if explained.best is not None or distrust is not None:
            return replace(explained, passed_over=tuple(one.revision for one in passed_over if one.revision))
        passed_over.append(explained)
    # What is newest is nearest to what was asked for; there is at least one.
    return passed_over[0]


def _candidates(source: Hub, repo: str, version: int | str | None, revision: str | None) -> Iterator[Revision]:
    if version is not None or revision is not None:
        yield from source.candidates(repo, Wanted.parse(version, revision))
        return
    refs = source.refs(repo)
    if not refs.versions:
        raise MissingError("KY501", f"{repo} has no versions", hint="name a branch or a tag with --revision")
    branch = f"v{refs.versions[-1]}"
    yield source.read(refs, refs.branches[branch], branch)


def _verdicts(source: Hub, found: Revision, system: System, backend: str | None, device: object) -> tuple[Verdict, ...]:
    """Judge what an index lists. Where a hub had to make it up, what would be taken is read until that stands."""
    variants = {entry.name: entry for entry in found.index.variants}
    while True:
        verdicts = choose(variants.values(), system, backend, device=device)
        best = verdicts[0] if verdicts and verdicts[0].usable else None
        if best is None or variants[best.variant].id:
            return verdicts
        variants[best.variant] = source.variant(found, best.variant)
