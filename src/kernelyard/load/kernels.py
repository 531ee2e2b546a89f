"""The functions that programs call to get a kernel."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from kernelyard.errors import InputError, MissingError, Place
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import open_hub
from kernelyard.hub.folder import FolderHub
from kernelyard.hub.protocol import check_repo
from kernelyard.load.fetch import check_backends, fetch_variant, metadata_of
from kernelyard.load.importer import imported
from kernelyard.load.loaded import RepoInfo, load_tree
from kernelyard.load.resolve import best, resolve
from kernelyard.load.trust import check_consent, check_evidence
from kernelyard.load.verified import verify_folder
from kernelyard.store import absolute_path

__all__ = ["get_kernel", "get_local_kernel"]


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    hub: str | Path | None = None,
    trust_remote_code: bool = False,
    refresh: bool = False,
) -> ModuleType:
    """Fetch a kernel from a hub if it is not in the store, verify it, import it once, and return the module.

    Equal code is one module. Where this process has loaded it already, from whatever place, that module is returned
    as it is: its ``__kernel__`` still says where it came from the first time.

    Which revision a version is at is remembered for ``KERNELYARD_FRESHNESS`` seconds (600), and for longer where the
    hub cannot be reached, which a warning tells, or may not be asked (``KERNELYARD_OFFLINE``, ``HF_HUB_OFFLINE``).

    Args:
        repo_id: ``org/name``.
        version: N stands for the newest revision of version N; a text such as ``">=1.1,<1.3"``, ``"~=1.2"`` or
            ``"1.1.2"`` for the newest such release that has a variant for this machine. Give this or ``revision``.
        revision: A branch, a tag, a revision's id or the beginning of one.
        backend: Only a variant for this backend (``cpu``, ``cuda``) will do; None takes the best for this machine.
        hub: A folder or an address; None stands for ``KERNELYARD_HUB``, then the Hugging Face Hub.
        trust_remote_code: Consent to run what a hub hands out that is not in the user's own file system.
        refresh: Ask the hub, whatever is remembered of it.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        MissingError: The kernel or the revision is not there, or has no variant for this machine; also a
            FileNotFoundError.
        EnvironmentProblemError: The hub cannot be reached, or the store cannot be written; also an OSError.
        VerificationError: Bytes are not the published ones, or the hub needs consent; also a ValueError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    _check_backend(backend)
    source = open_hub(hub)
    check_consent(source, repo_id, trust_remote_code)
    choice = next(resolve(source, check_repo(repo_id), Wanted.parse(version, revision), backend, refresh=refresh))
    found, verdict = choice.revision, choice.usable[0]
    check_evidence(source, found)
    entry = source.variant(found, verdict.variant)
    module = imported(entry.digest)
    if module is not None:
        return module
    tree = fetch_variant(source, found, entry)
    metadata = metadata_of(tree, entry, found.index)
    return load_tree(tree, metadata, entry.name, RepoInfo(repo_id, found.id), verdict.reason)


def get_local_kernel(path: str | Path, *, backend: str | None = None) -> ModuleType:
    """Import the best variant of a folder: of its ``build`` folder, of the folder itself, or the folder as a variant.

    It is loaded where it is. Where its ``metadata.json`` has a digest, the files must match it. If this process has
    loaded equal code already, from whatever place, that module is returned with its first ``__kernel__``.

    Args:
        path: The folder.
        backend: Only a variant for this backend will do.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        EnvironmentProblemError: The folder or a file in it cannot be read; also an OSError.
        MissingError: There is no variant, or none for this machine; also a FileNotFoundError.
        VerificationError: A file differs from the digest; also a ValueError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    _check_backend(backend)
    folder = absolute_path(path, code="KY607")
    found = FolderHub.find(folder)
    if found is None:
        what = "there is no variant of a kernel here" if folder.is_dir() else "there is no such folder"
        hint = "name a kernel's folder, its build folder, or one variant's folder"
        raise MissingError("KY607", what, hint=hint, place=Place(str(folder)))
    by_name = {variant.name: variant for variant in found.variants}
    verdict = best(str(folder), found.variants, backend, found.broken)[0]
    variant = by_name[verdict.variant]
    tree = verify_folder(variant)
    check_backends(variant.metadata, variant.facts, Place(str(variant.path / "metadata.json")))
    return load_tree(tree, variant.metadata, variant.name, None, verdict.reason)


def _check_backend(backend: str | None) -> None:
    if backend is not None and backend not in BACKENDS:
        raise InputError("KY606", f"unknown backend {backend!r}", hint=f"known are {', '.join(BACKENDS)}")
