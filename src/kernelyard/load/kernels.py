"""The functions that programs call to get a kernel: those of the ``kernels`` package, and what is ours."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from kernelyard.errors import InputError
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.wanted import Wanted
from kernelyard.hub import open_hub
from kernelyard.load.importing.forks import fork_safe_lock
from kernelyard.load.importing.importer import imported
from kernelyard.load.loading import Request, install, load, load_from
from kernelyard.load.overrides import local_override
from kernelyard.load.resolve.remembered import freshness
from kernelyard.load.resolve.resolution import Terms
from kernelyard.load.resolve.unchanged import Seen, look

if TYPE_CHECKING:
    from kernelyard.load.variants import VariantAccepted, VariantRejected

__all__ = ["get_kernel", "get_kernel_variants", "get_local_kernel", "has_kernel", "install_kernel"]

#: What `trust_remote_code` takes.
Trust = bool | Sequence[str]
#: A GPU: a number, ``cuda:1``, or a ``torch.device``.
Device = int | str | object
UserAgent = str | Mapping[str, str] | None

#: A call that has been answered in this process -> the module, what it is known by, until when that holds, and for
#: how long as what is seen of the hub is the same.
_answered: dict[tuple[object, ...], tuple[ModuleType, str, float, Seen | None]] = {}
_lock = fork_safe_lock()
_LONGEST_S = 60.0
#: Environment variables that decide what a call is answered.
_DECIDING = ("KERNELYARD_HUB", "HF_ENDPOINT", "LOCAL_KERNELS", "KERNELYARD_FRESHNESS", "KERNELYARD_POLICY")


def get_kernel(  # noqa: PLR0917 - the order of the arguments is that of the `kernels` package
    repo_id: str,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,  # noqa: FBT002
    *,
    check_arch: bool = True,
    device: Device | None = None,
    hub: str | Path | None = None,
    refresh: bool = False,
) -> ModuleType:
    """Fetch a kernel from a hub if it is not in the store, verify it, import it once, and return the module.

    Equal code is one module. Where this process has loaded it already, from whatever place, that module is returned
    as it is: its ``__kernel__`` still says where it came from the first time.

    Which revision a version is at is remembered for ``KERNELYARD_FRESHNESS`` seconds (600), and for longer where the
    hub cannot be reached, which a warning tells, or may not be asked (``KERNELYARD_OFFLINE``, ``HF_HUB_OFFLINE``). A
    folder that ``LOCAL_KERNELS`` names for the kernel takes the hub's place.

    If the best variant turns out not to load, the next is tried, with a warning; for a range, the next older release.

    Args:
        repo_id: ``org/name``.
        revision: A branch, a tag, a revision's id or at least 4 digits that it begins with. Give this or ``version``.
        version: N stands for the newest revision of version N; a text such as ``">=1.1,<1.3"``, ``"~=1.2"`` or
            ``"1.1.2"`` for the newest such release that has a variant for this machine.
        backend: Only a variant for this backend (``cpu``, ``cuda``) will do; None takes the best for this machine.
        user_agent: Taken for the sake of programs that pass it; nothing of it is sent.
        trust_remote_code: Consent to run what a hub hands out that is not in the user's own file system: True, or a
            list of the kernels (``org/name``) and organisations (``org``) that it is given for.
        check_arch: Whether a variant has to have code for the GPUs; False is for kernels that compile it themselves.
        device: The GPU that the kernel has to serve: a number, ``cuda:1``, a ``torch.device``; one that is visible.
            None stands for all of them, and for the CPU where there are none.
        hub: A folder or an address; None stands for ``KERNELYARD_HUB``, then the Hugging Face Hub.
        refresh: Ask the hub, whatever is remembered of it.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        MissingError: The kernel or the revision is not there, or has no variant for this machine; also a
            FileNotFoundError, and a ValueError where that is for a version or a backend that was asked for.
        EnvironmentProblemError: The hub cannot be reached, or the store cannot be written; also an OSError.
        VerificationError: Bytes are not the published ones, or the kernel is not trusted; also a ValueError.
        LoadError: The kernel's own code failed, or Python packages that it needs are missing; also an ImportError.
    """
    del user_agent
    terms = _terms(backend, device, check_arch=check_arch)
    request = Request(repo_id, Wanted.parse(version, revision), terms, hub, trust_remote_code, refresh)
    key = _key(request)
    module = None if refresh else _answer(key)
    if module is None:
        seen = look(hub, repo_id)
        module = load(request)
        if key is not None:
            _keep(key, request, module, seen)
    return module


def get_local_kernel(
    repo_path: str | Path,
    backend: str | None = None,
    *,
    trust_remote_code: Trust = False,
    user_agent: UserAgent = None,
    check_arch: bool = True,
    device: Device | None = None,
    hub: str | Path | None = None,
) -> ModuleType:
    """Import the best variant of a folder: of its ``build`` folder, of the folder itself, or the folder as a variant.

    It is loaded where it is. Where its ``metadata.json`` has a digest, the files must match it. If this process has
    loaded equal code already, from whatever place, that module is returned with its first ``__kernel__``.

    Args:
        repo_path: The folder.
        backend: Only a variant for this backend will do.
        trust_remote_code: Consent for the kernels that it needs, as in :func:`get_kernel`; they come from a hub.
        user_agent: Taken for the sake of programs that pass it; nothing of it is sent.
        check_arch: As in :func:`get_kernel`.
        device: As in :func:`get_kernel`.
        hub: Where the kernels that it needs come from.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        InputError: An argument is wrong; also a ValueError.
        EnvironmentProblemError: The folder or a file in it cannot be read; also an OSError.
        MissingError: There is no variant, or none for this machine; also a FileNotFoundError.
        VerificationError: A file differs from the digest; also a ValueError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    del user_agent
    known = f"known are {', '.join(BACKENDS)}; leave out the name of a package, which `kernels` took before 0.14"
    terms = _terms(backend, device, check_arch=check_arch, known=known)
    return load_from(repo_path, Request("", Wanted(), terms, hub, trust_remote_code))


def has_kernel(
    repo_id: str,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    *,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
    device: Device | None = None,
    hub: str | Path | None = None,
    refresh: bool = False,
) -> bool:
    """Say whether a kernel, and each kernel that it needs, has a variant that runs here; nothing is imported.

    :func:`get_kernel_variants` tells why not. The arguments are those of :func:`get_kernel`.

    Returns:
        False only if there are variants and none of them runs here.

    Raises:
        KernelyardError: What :func:`get_kernel` raises when the kernel or the version is not there, when it is not
            trusted, or when the hub cannot be reached.
    """
    from kernelyard.load.variants import is_loadable

    terms = _terms(backend, device, check_arch=check_arch)
    return is_loadable(Request(repo_id, Wanted.parse(version, revision), terms, hub, trust_remote_code, refresh))


def get_kernel_variants(
    repo_id: str | Path,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    *,
    trust_remote_code: Trust = True,
    check_arch: bool = True,
    device: Device | None = None,
    hub: str | Path | None = None,
    refresh: bool = False,
) -> list[VariantAccepted | VariantRejected]:
    """Return what is said of each variant of a kernel: those that run here first, the best leading.

    Nothing is imported and no variant is fetched, so it needs no consent. Of a range of releases it is about the one
    that :func:`get_kernel` would take, or about the newest if none has a variant that runs here.

    Args:
        repo_id: ``org/name``, or a folder, for which neither ``version`` nor ``revision`` is given.
        revision: As in :func:`get_kernel`, like all that follow.
        version: See there.
        backend: See there.
        trust_remote_code: See there.
        check_arch: See there.
        device: See there.
        hub: See there.
        refresh: See there.

    Raises:
        KernelyardError: As :func:`get_kernel`, but not where no variant fits.
    """
    from kernelyard.load.variants import decisions, is_path

    terms = _terms(backend, device, check_arch=check_arch)
    if is_path(repo_id):
        if version is not None or revision is not None:
            raise InputError("KY505", f"a folder has no versions: {repo_id}", hint="leave out version and revision")
        return decisions(Request("", Wanted(), terms), repo_id)
    return decisions(Request(str(repo_id), Wanted.parse(version, revision), terms, hub, trust_remote_code, refresh))


def install_kernel(
    repo_id: str,
    *older: NoReturn,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    local_files_only: bool = False,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
    validate_dependencies: bool = False,
    check_arch: bool = True,
    device: Device | None = None,
    hub: str | Path | None = None,
    refresh: bool = False,
) -> Path:
    """Fetch a kernel and the kernels that it needs into the store, verified, and import nothing.

    Args:
        repo_id: As in :func:`get_kernel`, like all that are not named here.
        older: Nothing: before 0.14 the package `kernels` took the revision by position, and returned a pair.
        revision: See there.
        version: See there.
        backend: See there.
        local_files_only: Ask no hub: answer from the store alone.
        user_agent: See there.
        trust_remote_code: See there.
        validate_dependencies: Whether the Python packages that it needs have to be installed by now.
        check_arch: See there.
        device: See there.
        hub: See there.
        refresh: See there.

    Returns:
        The folder of the variant in the store. It is the store's: it is read, and never changed.

    Raises:
        KernelyardError: As :func:`get_kernel`; an OfflineError (KY532) if ``local_files_only`` and it is not here.
    """
    from kernelyard.hub.offline import no_requests

    if older:
        what = f"install_kernel takes the revision by name, and returns a folder: {', '.join(map(repr, older))}"
        raise InputError("KY505", what, hint=f"write install_kernel({repo_id!r}, revision=...)")
    del user_agent
    terms = replace(_terms(backend, device, check_arch=check_arch), check_requirements=validate_dependencies)
    request = Request(repo_id, Wanted.parse(version, revision), terms, hub, trust_remote_code, refresh)
    if not local_files_only:
        return install(request)
    with no_requests("local_files_only"):
        return install(request)


def _terms(
    backend: str | None, device: object, *, check_arch: bool, known: str = f"known are {', '.join(BACKENDS)}"
) -> Terms:
    if backend is not None and backend not in BACKENDS:
        raise InputError("KY606", f"Invalid backend {backend!r}", hint=known)
    return Terms(backend, device, check_arch)


def _key(request: Request) -> tuple[object, ...] | None:
    """Return what a call is recognised by when it is repeated; None for one that cannot be."""
    trust = tuple(request.trust) if isinstance(request.trust, list) else request.trust
    # Of things that are equal, such as 1 and True, one can be what nobody may ask for.
    kinds = type(request.terms.device), type(request.trust)
    asked = request.repo, request.wanted, request.terms, str(request.hub), trust, kinds
    key = (*asked, *map(os.environ.get, _DECIDING))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _answer(key: tuple[object, ...] | None) -> ModuleType | None:
    found = _answered.get(key) if key is not None else None
    if found is None or time.monotonic() > found[2] or imported(found[1]) is not found[0]:
        return None
    return found[0] if found[3] is None or found[3].is_same else None


def _keep(key: tuple[object, ...], request: Request, module: ModuleType, seen: Seen | None) -> None:
    described = getattr(module, "__kernel__", None)
    if described is None or local_override(request.repo) is not None:
        return
    # What is in a folder may be another build by the next call; so may be a kernel that has moved to another name.
    if open_hub(request.hub).is_local and (seen is None or described.repo != request.repo):
        return
    until = time.monotonic() + min(freshness() / 10, _LONGEST_S)
    with _lock:
        _answered[key] = module, described.digest, until, seen
