"""Which variants of a kernel there are, and which of them run here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError
from kernelyard.formats.facts import Facts
from kernelyard.hub import Hub
from kernelyard.hub.folder import FolderVariant
from kernelyard.hub.protocol import check_repo
from kernelyard.load.choice.rules import Candidate, Verdict
from kernelyard.load.choice.unusable import is_refusal
from kernelyard.load.folders import find_folder
from kernelyard.load.importing.depends import Chain
from kernelyard.load.importing.described import KernelDependency, Metadata
from kernelyard.load.loading import Request, choices, folder_for, needed_by
from kernelyard.load.resolve.resolution import Choice, judged
from kernelyard.records import record

__all__ = ["Variant", "VariantAccepted", "VariantRejected", "decisions", "is_loadable", "is_path"]


@record(frozen=True, slots=True)
class Variant:
    """One build of a kernel.

    Attributes:
        variant_str: Its name: ``torch-stable-abi211-cu130-x86_64-linux``.
        facts: What is known of it; None for one that cannot be read.
    """

    variant_str: str
    facts: Facts | None = None

    def __str__(self) -> str:
        return self.variant_str


@record(frozen=True, slots=True)
class VariantAccepted:
    """A variant that runs here.

    Attributes:
        variant: The variant.
        reason: Why, as a full sentence; also what it does not serve, where that is something.
    """

    variant: Variant
    reason: str = ""


@record(frozen=True, slots=True)
class VariantRejected:
    """A variant that does not run here.

    Attributes:
        variant: The variant.
        reason: Why not, as a full sentence.
        cure: What would have to change, where something can.
    """

    variant: Variant
    reason: str
    cure: str = ""


def is_path(repo_or_path: str | Path) -> bool:
    """Say whether a folder is meant, and not a kernel on a hub: any text but ``org/name``, and any path.

    Raises:
        InputError: It is neither a text nor a path (KY504).
    """
    if isinstance(repo_or_path, Path):
        return True
    if not isinstance(repo_or_path, str):
        check_repo(repo_or_path)
    try:
        check_repo(repo_or_path)
    except InputError:
        return True
    return False


def decisions(request: Request, folder: str | Path | None = None) -> list[VariantAccepted | VariantRejected]:
    """Return what is said of each variant of what is asked for: those that run first, the best leading.

    Args:
        request: What is asked for.
        folder: Where to look instead of on the hub.
    """
    folder = folder if folder is not None else folder_for(request)
    if folder is not None:
        found = find_folder(folder)
        return _decided(judged(found.variants, request.terms, found.broken), found.variants)
    _, choice = next(choices(request, or_refused=True))
    return _decided(choice.verdicts, choice.revision.index.variants)


def is_loadable(request: Request) -> bool:
    """Say whether a variant of a kernel, and of each kernel that it needs, runs here."""
    folder = folder_for(request)
    if folder is not None:
        found = find_folder(folder)
        by_name = {variant.name: variant for variant in found.variants}
        usable = (by_name[verdict.variant] for verdict in judged(found.variants, request.terms) if verdict.usable)
        return any(_has_all(request, *_needed_by_folder(request, variant)) for variant in usable)
    try:
        return any(
            _is_complete(request, source, choice, verdict)
            for source, choice in choices(request)
            for verdict in choice.usable
        )
    except KernelyardError as error:
        if not is_refusal(error):
            raise
        return False


def _is_complete(request: Request, source: Hub, choice: Choice, verdict: Verdict) -> bool:
    """Say whether a variant runs by all that is known once its metadata is read, and so do the kernels it needs."""
    try:
        needed, chain = needed_by(source, choice.revision, verdict, request)
    except KernelyardError as error:
        if not is_refusal(error):
            raise
        return False
    return _has_all(request, needed, chain)


def _needed_by_folder(request: Request, variant: FolderVariant) -> tuple[list[KernelDependency], Chain]:
    path = variant.path / "metadata.json"
    needed = Metadata.of(variant.metadata, path=str(path)).kernel_depends
    return needed, request.chain.with_(str(variant.path), str(variant.path))


def _has_all(request: Request, needed: Iterable[KernelDependency], chain: Chain) -> bool:
    return all(is_loadable(request.for_needed(one, chain)) for one in needed)


def _decided(verdicts: Iterable[Verdict], variants: Iterable[Candidate]) -> list[VariantAccepted | VariantRejected]:
    facts = {variant.name: variant.facts for variant in variants}
    return [
        VariantAccepted(Variant(verdict.variant, facts.get(verdict.variant)), verdict.reason)
        if verdict.usable
        else VariantRejected(Variant(verdict.variant, facts.get(verdict.variant)), verdict.reason, verdict.cure)
        for verdict in verdicts
    ]
