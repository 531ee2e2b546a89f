"""Going over a whole static hub: is every document and every byte what it should be?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import InputError, KernelyardError, MissingError, Place
from kernelyard.formats.index import FileEntry
from kernelyard.hub.protocol import Revision
from kernelyard.hub.refs import Refs, check_ref
from kernelyard.hub.static import DirectoryReader, StaticHub, blob_path
from kernelyard.records import record

__all__ = ["HubFinding", "HubReport", "kernels_in", "revisions_in", "verify_hub"]

_THREADS = 4


@record(frozen=True, slots=True)
class HubFinding:
    """Something that is wrong: where, and what, without a full stop."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@record(frozen=True, slots=True)
class HubReport:
    """What was gone over.

    Attributes:
        kernels: Their names.
        revisions: How many were read.
        files: How many different contents were hashed.
        size: Their bytes.
        cleaned: How many revisions only the log names and a cleaning has taken: no fault.
        findings: All that is wrong.
    """

    kernels: tuple[str, ...]
    revisions: int
    files: int
    size: int
    cleaned: int
    findings: tuple[HubFinding, ...]


def verify_hub(hub: StaticHub, repos: Sequence[str] = ()) -> HubReport:
    """Read and hash all that the kernels of a hub name.

    Args:
        hub: In a folder, or over HTTP.
        repos: The kernels; none for all, which only a folder can tell.

    Raises:
        InputError: There is no hub (KY507), or over HTTP no kernels are named (KY505).
        EnvironmentProblemError: It cannot be reached (KY502).
    """
    hub.check_format()
    names = tuple(repos) or kernels_in(hub)
    findings: list[HubFinding] = []
    entries: dict[tuple[str, int], str] = {}
    revisions = cleaned = 0
    for repo in names:
        try:
            refs = hub.refs(repo)
        except KernelyardError as error:
            findings.append(_finding(error, f"{repo}/refs.json"))
            continue
        findings += _wrong_in_log(refs)
        live = {*refs.branches.values(), *refs.tags.values()}
        for id_ in sorted(refs.ids):
            try:
                found = hub.read(refs, id_, None)
                revisions += 1
            except MissingError as error:
                if id_ in live:
                    findings.append(_finding(error, repo))
                cleaned += id_ not in live
                continue
            except KernelyardError as error:
                findings.append(_finding(error, repo))
                continue
            findings += _misplaced(refs, found)
            for file in _files(found):
                entries.setdefault((file.sha256, file.size), f"{repo} {id_[:12]} {file.path}")
    with ThreadPoolExecutor(_THREADS) as pool:
        wrong = pool.map(lambda key: _wrong_blob(hub, key[0], key[1], entries[key]), entries)
        findings += [finding for finding in wrong if finding is not None]
    size = sum(size for _, size in entries)
    return HubReport(names, revisions, len(entries), size, cleaned, tuple(findings))


def kernels_in(hub: StaticHub) -> tuple[str, ...]:
    """Return the names of all kernels of a hub in a folder.

    Raises:
        InputError: The hub is read over HTTP, which cannot list (KY505).
    """
    if not isinstance(hub.reader, DirectoryReader):
        hint = "name them: org/name"
        raise InputError(
            "KY505", "the kernels of a hub over HTTP cannot be listed", hint=hint, place=Place(hub.location)
        )
    found = sorted(path.parent for path in (hub.reader.root / "kernels").glob("[!.]*/[!.]*/refs.json"))
    return tuple(f"{folder.parent.name}/{folder.name}" for folder in found)


def revisions_in(root: Path, repo: str) -> Iterator[Path]:
    """Yield the folders of all revisions of a kernel that are in a hub's folder, named or not."""
    folder = root / "kernels" / repo / "revisions"
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _files(found: Revision) -> Iterable[FileEntry]:
    return (file for _, file in found.index.all_files)


def _wrong_in_log(refs: Refs) -> Iterator[HubFinding]:
    at: dict[str, str] = {}
    for change in refs.log:
        if at.get(change.ref) != change.before:
            yield HubFinding(
                f"{refs.kernel}/refs.json", f"the log does not tell how {change.ref} came to {change.before}"
            )
        at[change.ref] = change.after
    for name in refs.untold:
        yield HubFinding(f"{refs.kernel}/refs.json", f"{name} is not as the log says")


def _misplaced(refs: Refs, found: Revision) -> list[HubFinding]:
    names = [name for name, id_ in (*refs.branches.items(), *refs.tags.items()) if id_ == found.id]
    return [finding for name in names for finding in _misplaced_ref(name, found)]


def _misplaced_ref(name: str, found: Revision) -> tuple[HubFinding, ...]:
    try:
        check_ref(found.repo, name, found.index, f"{found.repo}/refs.json")
    except KernelyardError as error:
        return (_finding(error, found.repo),)
    return ()


def _wrong_blob(hub: StaticHub, digest: str, size: int, named_by: str) -> HubFinding | None:
    where = blob_path(digest)
    hashed, count = sha256(), 0
    try:
        with hub.reader.open(where) as answer:
            for chunk in answer.chunks:
                count += len(chunk)
                hashed.update(chunk)
                if count > size:
                    break
    except FileNotFoundError:
        return HubFinding(where, f"is missing; {named_by} needs it")
    except KernelyardError as error:
        return _finding(error, where)
    if (count, hashed.hexdigest()) == (size, digest):
        return None
    found = f"more than {size} bytes" if count > size else f"{count} bytes with sha256 {hashed.hexdigest()}"
    return HubFinding(where, f"has {found}; {named_by} needs {size} bytes with sha256 {digest}")


def _finding(error: KernelyardError, where: str) -> HubFinding:
    return HubFinding(str(error.place) if error.place else where, error.what)
