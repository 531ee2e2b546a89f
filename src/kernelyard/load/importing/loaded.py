"""The kernels that this process has imported, and what each module says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from kernelyard.errors import LoadError, Place
from kernelyard.formats import metadata as file_format
from kernelyard.load.importing.depends import exposed
from kernelyard.load.importing.described import KernelDependency, Metadata
from kernelyard.load.importing.forks import fork_safe_lock
from kernelyard.load.importing.importer import import_once, imported
from kernelyard.load.stored.verified import VerifiedTree, package_root
from kernelyard.records import record

__all__ = ["LoadedKernel", "RepoInfo", "get_loaded_kernels", "load_tree"]


@record(frozen=True, slots=True)
class RepoInfo:
    """Where on a hub a kernel came from: ``org/name``, and the revision's id."""

    repo_id: str
    revision: str


@record(frozen=True, slots=True)
class LoadedKernel:
    """A kernel that this process has imported.

    Attributes:
        metadata: What the variant says of itself.
        module: The module, or what the kernel has put in its place in ``sys.modules``.
        repo_info: Where it came from; None for a local folder.
        digest: The identity of its code.
        variant: Name of the variant.
        origin: The folder it was imported from.
        verification: What vouches for its files: ``hub-index``, ``lock``, ``digest`` (in its metadata),
            ``unverified-local``.
        verdict: What the choice among the variants said of this one, as a full sentence.
        hub: The hub that it came from, an address without credentials or a folder; None for a local folder.
        release: ``X.Y.Z`` where its revision on that hub is a release.
        signed_by: The keys that were verified to vouch for the hub's index; empty where none is known, or where none
            was asked, as for a hub in a folder and for a lock.
    """

    metadata: Metadata
    module: ModuleType
    repo_info: RepoInfo | None
    digest: str
    variant: str
    origin: Path
    verification: str
    verdict: str = ""
    hub: str | None = None
    release: str | None = None
    signed_by: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.digest, self.variant, self.origin))

    def __repr__(self) -> str:
        if self.revision is None:
            return f"<LoadedKernel {self.metadata.name}: {self.variant}, from {self.origin}>"
        release = f" {self.release}" if self.release else ""
        return f"<LoadedKernel {self.repo}{release} (revision {self.revision[:12]}): {self.variant}, from {self.hub}>"

    @property
    def repo(self) -> str | None:
        """``org/name`` on the hub that it came from; None for a local folder."""
        return self.repo_info.repo_id if self.repo_info else None

    @property
    def revision(self) -> str | None:
        """The id of the revision on that hub; None for a local folder."""
        return self.repo_info.revision if self.repo_info else None


_loaded: dict[str, LoadedKernel] = {}
#: What was made for a module before its body ran, by identity. A kernel may remove its `__kernel__`, or itself.
_described: dict[str, LoadedKernel] = {}
_lock = fork_safe_lock()


def get_loaded_kernels() -> list[LoadedKernel]:
    """Return the kernels that this process has imported, in the order in which they were."""
    with _lock:
        return list(_loaded.values())


def load_tree(
    tree: VerifiedTree,
    metadata: file_format.Metadata,
    variant: str,
    repo_info: RepoInfo | None,
    verdict: str = "",
    *,
    dependencies: Mapping[KernelDependency, ModuleType] | None = None,
    hub: str | None = None,
    release: str | None = None,
    signed_by: tuple[str, ...] = (),
) -> ModuleType:
    """Import a verified variant, or return the module that this process has of the same content.

    Args:
        tree: Its files.
        metadata: Its ``metadata.json``.
        variant: Its name.
        repo_info: Where it came from; None for a local folder.
        verdict: Why it was chosen.
        dependencies: The kernels that it needs, which its body gets by :func:`kernelyard.get_kernel_dep`.
        hub: Where the hub is.
        release: Its number, where the revision is one.
        signed_by: The keys that were verified to vouch for it.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        VerificationError: The kernel's id belongs to something else (KY603), or a file has changed (KY602).
        LoadError: The kernel's own code failed, or it has no package (KY604).
    """
    prefix = package_root(tree, metadata)
    if prefix is None:
        raise LoadError("KY604", "the variant has no __init__.py", hint="build it again", place=Place(str(tree.root)))

    said = Metadata.of(metadata, path=str(tree.root / "metadata.json"))

    def prepare(module: ModuleType) -> None:
        described = LoadedKernel(
            metadata=said,
            module=module,
            repo_info=repo_info,
            digest=tree.identity,
            variant=variant,
            origin=tree.root,
            verification=tree.verification,
            verdict=verdict,
            hub=hub,
            release=release,
            signed_by=signed_by,
        )
        module.__kernel__ = described  # type: ignore[attr-defined]
        with _lock:
            _described[tree.identity] = described

    with exposed(dependencies or {}):
        module = import_once(metadata.id, tree, prefix, prepare)
    # A kernel that asks for itself while its body runs gets itself unfinished, as everywhere in Python.
    if imported(tree.identity) is module:
        _register(module, _described[tree.identity])
    return module


def _register(module: ModuleType, described: LoadedKernel) -> None:
    if described.module is not module:
        described = replace(described, module=module)
    with _lock:
        if _loaded.setdefault(described.digest, described) is not described:
            return
    if getattr(module, "__kernel__", None) is not described:
        # Removed by the kernel, or the kernel has put in its place what may not take an attribute.
        with suppress(AttributeError, TypeError):
            module.__kernel__ = described  # type: ignore[attr-defined]
