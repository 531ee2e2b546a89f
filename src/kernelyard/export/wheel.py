"""One variant as a wheel: its files as they are, as a package that is imported by the kernel's name."""

from __future__ import annotations

import json
import keyword
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import IO

from kernelyard.check import gather
from kernelyard.check.facts import found_facts
from kernelyard.errors import InputError, Place, VerificationError
from kernelyard.export.archive import write_wheel
from kernelyard.export.core_metadata import OLDEST_PYTHON, render_metadata, required_packages
from kernelyard.export.tags import Tags, tags_of
from kernelyard.export.wheel_version import wheel_version
from kernelyard.formats.digest import UNHASHED
from kernelyard.formats.index import Index, VariantEntry, revision_id
from kernelyard.formats.metadata import Metadata
from kernelyard.formats.variant import InvalidVariantName, VariantName
from kernelyard.load.stored.fetch import metadata_of
from kernelyard.load.stored.verified import VerifiedTree, package_root
from kernelyard.records import record
from kernelyard.store import hash_file, open_regular, writing

__all__ = ["INFORMATION", "LICENCE", "Origin", "Wheel", "distribution_name", "licence_files", "wheel_of"]

#: Where a wheel has what is known of the kernel, below its `.dist-info`.
INFORMATION = "kernelyard"
FORMAT = 1

LICENCE = re.compile(r"(licen[cs]e|copying|notice)([-_][\w.-]*)?(\.(txt|md|rst))?", re.IGNORECASE | re.ASCII)
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
#: What every kernel imports: a package of such a name would be put in the place of the real one.
_TAKEN = frozenset({"kernelyard", "kernels", "numpy", "torch", "triton", "tvm_ffi"})


@record(frozen=True, slots=True)
class Origin:
    """Where the variant of a wheel comes from.

    Attributes:
        repo: ``org/name``; None for a folder of the user.
        revision: The id of the revision.
        release: ``X.Y.Z`` where the revision is a release.
        document: The exact bytes of the published index, None where there is none.
    """

    repo: str | None
    revision: str
    release: str | None = None
    document: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.repo or 'a folder'}, {f'release {self.release}, ' if self.release else ''}`{self.revision}`"


@record(frozen=True, slots=True)
class Wheel:
    """A wheel that was written.

    Attributes:
        path: The file.
        sha256: Of the file.
        distribution: Name of the distribution, as the publisher writes it.
        version: Of the wheel, with its local label.
        package: What is imported.
        tags: In the name of the file.
        requires: Other packages, PEP 508.
        requires_python: A specifier.
    """

    path: Path
    sha256: str
    distribution: str
    version: str
    package: str
    tags: Tags
    requires: tuple[str, ...]
    requires_python: str


def wheel_of(
    tree: VerifiedTree,
    entry: VariantEntry,
    index: Index,
    origin: Origin,
    destination: Path,
    *,
    distribution: str | None = None,
    licences: Mapping[str, bytes] | None = None,
) -> Wheel:
    """Write the wheel of one variant. The same variant of the same revision is the same bytes.

    Args:
        tree: The variant's files; what is read from it is verified.
        entry: The variant, as the index lists it.
        index: Of the kernel.
        origin: Where it comes from.
        destination: The folder to write to; it is made. A file of the wheel's name there is replaced.
        distribution: Name of the distribution; by default the kernel's.
        licences: Name -> content of licence files that the variant does not have itself.

    Raises:
        InputError: A name is not fit for a package (KY802), or the variant for a wheel (KY803).
        LoadError: The variant has no ``metadata.json`` (KY604).
        VerificationError: A file has changed since it was verified, or the variant says something else of itself than
            its index (KY602).
        EnvironmentProblemError: The folder cannot be written.
    """
    metadata = metadata_of(tree, entry, index)
    _refuse_dependencies(metadata, Place(str(tree.root / "metadata.json")))
    package, prefix = _package(tree, metadata)
    wheel = _described(
        tree, entry, origin, distribution=distribution_name(index, distribution), package=package, folder=destination
    )
    found = {**(licences or {}), **licence_files(tree, prefix)}
    information = {
        "METADATA": render_metadata(
            distribution=wheel.distribution,
            version=wheel.version,
            package=package,
            variant=entry.name,
            revision=str(origin),
            metadata=metadata,
            requires_python=wheel.requires_python,
            requires=wheel.requires,
            licences=sorted(found),
        ),
        "WHEEL": _wheel_file(wheel.tags),
        **{f"licenses/{path}": content for path, content in found.items()},
        f"{INFORMATION}/provenance.json": _provenance(entry, origin, package, nested=bool(prefix)),
        **{f"{INFORMATION}/{path}": tree.read(path) for path in UNHASHED if path in tree.files},
    }
    if origin.document is not None:
        information[f"{INFORMATION}/index.json"] = origin.document
    members = {f"{package}/{path.removeprefix(prefix)}": path for path in tree.files if path.startswith(prefix)}
    return replace(wheel, sha256=_write(tree, members, information, wheel.path))


def _described(
    tree: VerifiedTree, entry: VariantEntry, origin: Origin, *, distribution: str, package: str, folder: Path
) -> Wheel:
    """Return what the wheel of a variant is going to be, without its digest."""
    name = _variant_name(entry)
    evidence = gather(tree.root, name=entry.name)
    facts = found_facts(evidence, entry.facts) if evidence.libraries else entry.facts
    version = wheel_version(evidence.metadata.version, origin.revision, origin.release, name)
    tags = tags_of(evidence, name, entry.facts)
    return Wheel(
        path=folder / f"{_escaped(distribution)}-{version}-{tags}.whl",
        sha256="",
        distribution=distribution,
        version=version,
        package=package,
        tags=tags,
        requires=required_packages(facts),
        requires_python=f">={facts.python or OLDEST_PYTHON}",
    )


def _write(tree: VerifiedTree, members: Mapping[str, str], information: Mapping[str, bytes], file: Path) -> str:
    """Write a wheel whose members are files of a tree, and return its sha256."""
    opened = {member: partial(open_regular, tree.root / path) for member, path in members.items()}
    stem = "-".join(file.name.split("-")[:2])
    with _put_in_place(file) as (target, path):
        written = write_wheel(target, opened, information, folder=f"{stem}.dist-info")
        for member, origin in members.items():
            if written[member] != tree.files[origin]:
                place = Place(str(tree.root / origin))
                what = "this file has changed since it was verified"
                raise VerificationError("KY602", what, hint=tree.way_out, place=place)
        target.flush()
        return hash_file(path)


def _escaped(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution).lower()


def distribution_name(index: Index, given: str | None) -> str:
    """Return the name of the distribution.

    Raises:
        InputError: It is none that installers take (KY802).
    """
    name = index.name if given is None else given
    if not _DISTRIBUTION.fullmatch(name):
        what = f"not a name for a distribution: {name!r}"
        raise InputError("KY802", what, hint="name another one with --name")
    return name


def licence_files(tree: VerifiedTree, prefix: str) -> dict[str, bytes]:
    """Return the licence files at the top of a variant's package: name -> content."""
    names = (path.removeprefix(prefix) for path in tree.files if path.startswith(prefix))
    return {name: tree.read(prefix + name) for name in names if LICENCE.fullmatch(name)}


def _variant_name(entry: VariantEntry) -> VariantName:
    try:
        return VariantName.parse(entry.name)
    except InvalidVariantName as error:
        raise InputError("KY803", str(error), hint="use a later version of Kernelyard") from None


def _refuse_dependencies(metadata: Metadata, place: Place) -> None:
    if metadata.kernel_depends:
        names = ", ".join(str(one.get("repo-id")) for one in metadata.kernel_depends)
        what = f"the variant asks the loader for other kernels while it is imported, and a package has none: {names}"
        raise InputError("KY803", what, hint="load it from its hub", place=place)


def _package(tree: VerifiedTree, metadata: Metadata) -> tuple[str, str]:
    """Return the name that is imported, and the folder of the package inside the variant: empty or ``name/``."""
    package = metadata.name.replace("-", "_")
    if not (package.isascii() and package.isidentifier()) or keyword.iskeyword(package):
        what = f"the name of the kernel cannot be imported: {package!r}"
        raise InputError("KY802", what, hint="the author must give it another name")
    if package in sys.stdlib_module_names or package in _TAKEN:
        what = f"the package {package!r} would take the place of another one of that name"
        raise InputError("KY802", what, hint="load the kernel from its hub, where its name is not what is imported")
    prefix = package_root(tree, metadata)
    place = Place(str(tree.root))
    if prefix is None:
        raise InputError("KY803", "the variant has no __init__.py", hint="build it again", place=place)
    outside = [path for path in tree.files if not path.startswith(prefix) and path not in UNHASHED]
    if outside:
        what = f"the variant has files beside its package {prefix[:-1]}, such as {outside[0]}"
        hint = "a wheel has no place for them: the author must put them into the package"
        raise InputError("KY803", what, hint=hint, place=place)
    return package, prefix


def _wheel_file(tags: Tags) -> bytes:
    from kernelyard import __version__

    pure = "true" if tags.platform == "any" else "false"
    return (f"Wheel-Version: 1.0\nGenerator: kernelyard {__version__}\nRoot-Is-Purelib: {pure}\nTag: {tags}\n").encode()


def _provenance(entry: VariantEntry, origin: Origin, package: str, *, nested: bool) -> bytes:
    document = {
        "format": FORMAT,
        "repo": origin.repo,
        "revision": origin.revision,
        "release": origin.release,
        "variant": entry.name,
        "id": entry.id,
        "digest": entry.digest,
        "package": package,
        "nested": nested,
        "index": None if origin.document is None else revision_id(origin.document),
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


@contextmanager
def _put_in_place(file: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a file beside the one that is to be written, which takes its name when all went well."""
    with writing(file.parent, elsewhere="name with --dest"):
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            with aside.open("wb") as target:
                yield target, aside
            aside.replace(file)
        finally:
            aside.unlink(missing_ok=True)
