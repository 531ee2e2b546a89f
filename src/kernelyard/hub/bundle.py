"""Single-file bundles: kernels on their way to where there is no network.

A bundle is an uncompressed tar of a static hub with the chosen kernels, its members in the order of their names and
without times, owners and permissions: the same kernels are the same bytes.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.hub.mirror import Mirrored, Selection, mirror
from kernelyard.hub.protocol import Hub, check_repo
from kernelyard.hub.publish import ASIDE, make_hub
from kernelyard.hub.static import DirectoryReader, StaticHub
from kernelyard.hub.tar import ELSEWHERE, beside, read_tar, take_file, write_tar
from kernelyard.hub.verify import kernels_in
from kernelyard.store import writing

__all__ = ["export_bundle", "import_bundle"]

_MEMBER = re.compile(
    r"hub\.json"
    r"|blobs/sha256/[0-9a-f]{2}/[0-9a-f]{64}"
    r"|kernels/(?P<repo>[^/]+/[^/]+)/(refs\.json|revisions/[0-9a-f]{64}/index\.json)",
    re.ASCII,
)
_LARGEST_DOCUMENT = 64 << 20
_WRITER = "`kernelyard export` writes one"


def export_bundle(source: Hub, selections: Sequence[Selection], path: Path) -> tuple[Mirrored, ...]:
    """Write kernels of a hub into one file.

    Args:
        source: A hub of any kind.
        selections: What of which kernels.
        path: The file; one that is there is replaced when the new one is whole.

    Raises:
        InputError: There is something at its place that is no file (KY516).
        KernelyardError: What :func:`kernelyard.hub.mirror.mirror` raises.
    """
    if path.exists() and not path.is_file():
        # It would be replaced: a pipe, or a device of the machine's.
        raise InputError("KY516", "this is no file", hint="name a new file", place=Place(str(path)))
    with beside(path) as folder:
        hub, aside = folder / "hub", folder / "bundle"
        done = tuple(mirror(source, hub, selection, dated=True, elsewhere=ELSEWHERE) for selection in selections)
        write_tar(hub, _members(hub), aside)
        aside.replace(path)
    return done


def import_bundle(path: Path, root: Path) -> tuple[Mirrored, ...]:
    """Put what is in a bundle into a static hub, each byte verified as if it came from a hub.

    No branch, and no withdrawal, becomes what it was before: what the hub has of a later time stays
    (:attr:`Mirrored.kept`), and what the bundle has of it can be had by its id.

    Args:
        path: The bundle.
        root: The folder of the hub; a new one is made.

    Raises:
        InputError: It is no bundle, or holds something else too (KY516).
        KernelyardError: What :func:`kernelyard.hub.mirror.mirror` raises.
    """
    with writing(root, elsewhere="import into"):
        make_hub(root)
        folder = root / ASIDE / f"import-{uuid.uuid4().hex}"
        try:
            with read_tar(path) as tar:
                _unpack(tar, folder, path)
            if not (folder / "hub.json").is_file():
                raise InputError("KY516", "not a bundle: it has no hub.json", hint=_WRITER, place=Place(str(path)))
            hub = StaticHub(DirectoryReader(folder))
            hub.check_format()
            repos = kernels_in(hub)
            selections = [Selection(repo) for repo in repos]
            return tuple(mirror(hub, root, selection, dated=True, elsewhere="import into") for selection in selections)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _members(hub: Path) -> Iterator[str]:
    for path in hub.rglob("*"):
        name = path.relative_to(hub).as_posix()
        if path.is_file() and _MEMBER.fullmatch(name):
            yield name


def _unpack(tar: tarfile.TarFile, folder: Path, path: Path) -> None:
    for member in tar:
        known = _MEMBER.fullmatch(member.name)
        if known is None or not member.isreg():
            what = f"a bundle does not hold such a thing: {member.name!r}"
            raise InputError("KY516", what, hint="do not trust its sender", place=Place(str(path)))
        if known["repo"] is not None:
            check_repo(known["repo"])
        if not member.name.startswith("blobs/") and member.size > _LARGEST_DOCUMENT:
            raise InputError("KY516", f"{member.name} is larger than 64 MiB", place=Place(str(path)))
        take_file(tar, member, folder / member.name)
