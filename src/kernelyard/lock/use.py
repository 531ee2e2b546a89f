"""The functions by which programs get kernels that are locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from kernelyard.errors import InputError
from kernelyard.formats.lock import KernelLock
from kernelyard.formats.variant import BACKENDS
from kernelyard.hub.protocol import check_repo
from kernelyard.load.importing.forks import fork_safe_lock
from kernelyard.load.resolve.resolution import Terms
from kernelyard.lock.find import FoundLock, caller_of, find_lock
from kernelyard.lock.locked import Use, load_locked

__all__ = ["get_locked_kernel", "load_kernel", "read_found"]

#: Path of a lock -> its content when it was last read, and what that says.
_parsed: dict[str, tuple[bytes, KernelLock]] = {}
#: A call -> the lock it was answered by, and the module.
_answered: dict[tuple[object, ...], tuple[KernelLock, ModuleType]] = {}
_guard = fork_safe_lock()


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: str | Path | None = None,
    backend: str | None = None,
    device: object = None,
    check_arch: bool = True,
    hub: str | Path | None = None,
    trust_remote_code: bool | Sequence[str] = True,
    user_agent: str | Mapping[str, str] | None = None,
) -> ModuleType:
    """Return a kernel at the revision that the caller's project has locked, fetching what is missing.

    Every file is held against the sha256 in the lock, whatever the hub says today. A lock is the project's own review,
    so no further consent is asked for; what a policy forbids stays forbidden.

    Args:
        repo_id: ``org/name``.
        lockfile: The lock, or the folder it is in; None finds that of the module that calls (``docs/lock.md``).
        backend: Only a variant for this backend (``cpu``, ``cuda``) will do; None takes the best for this machine.
        device: The GPU that it has to serve, as in :func:`kernelyard.get_kernel`.
        check_arch: Whether code for the GPUs is asked for at all.
        hub: Where to fetch from, in place of the hub that the lock names: a mirror.
        trust_remote_code: Taken for the sake of programs that pass it; the lock is the consent.
        user_agent: Taken for the sake of programs that pass it; nothing of it is sent.

    Returns:
        The module, or what the kernel has put in its place. Its ``__kernel__`` is the :class:`LoadedKernel`.

    Raises:
        MissingError: There is no lock (KY700), the kernel is not in it (KY705) or not on the hub any more (KY716), a
            mirror does not have it (KY725), the hub's folder is not there (KY726), or no variant runs here (KY601);
            also a FileNotFoundError.
        InputError: The lock is none (KY701 to KY704); also a ValueError.
        VerificationError: Bytes are not those of the lock (KY503, KY602, KY717), or a policy forbids the kernel.
        EnvironmentProblemError: The hub cannot be reached, and it is not in the store; also an OSError.
        LoadError: The kernel's own code failed; also an ImportError.
    """
    del trust_remote_code, user_agent
    terms = _terms(backend, device, check_arch=check_arch)
    return _answer(check_repo(repo_id), lockfile, Use(terms, hub=hub))


def load_kernel(
    repo_id: str,
    *,
    lockfile: str | Path | None = None,
    backend: str | None = None,
    device: object = None,
    check_arch: bool = True,
) -> ModuleType:
    """Return a kernel that the caller's project has locked, from the store and the layers alone: no hub is asked.

    ``kernelyard download`` brings what is locked there. Otherwise as :func:`get_locked_kernel`, whose arguments these
    are.

    Raises:
        MissingError: As :func:`get_locked_kernel`, or the kernel is not here (KY709).
        KernelyardError: As :func:`get_locked_kernel`.
    """
    terms = _terms(backend, device, check_arch=check_arch)
    return _answer(check_repo(repo_id), lockfile, Use(terms, may_ask=False))


def read_found(found: FoundLock) -> KernelLock:
    """Return what a lock says; it is read again only when its content is another.

    Raises:
        InputError: It is none (KY701 to KY704).
    """
    known = _parsed.get(found.path)
    if known is not None and known[0] == found.content:
        return known[1]
    lock = KernelLock.from_json(found.content, path=found.path)
    _parsed[found.path] = found.content, lock
    return lock


def _answer(repo: str, lockfile: str | Path | None, use: Use) -> ModuleType:
    lock = read_found(find_lock(lockfile, caller_of()))
    call = (lock.path, repo, str(use.terms), use.hub, use.may_ask)
    answered = _answered.get(call)
    if answered is not None and answered[0] is lock:
        return answered[1]
    module = load_locked(lock, lock.find(repo), use)
    with _guard:
        _answered[call] = lock, module
    return module


def _terms(backend: str | None, device: object, *, check_arch: bool) -> Terms:
    if backend is not None and backend not in BACKENDS:
        raise InputError("KY606", f"unknown backend {backend!r}", hint=f"known are {', '.join(BACKENDS)}")
    return Terms(backend, device, check_arch)
