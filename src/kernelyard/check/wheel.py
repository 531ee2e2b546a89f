"""A variant in a wheel that ``to-wheel`` made, put back into the folder that it was."""

from __future__ import annotations

import base64
import csv
import email
import io
import re
import zipfile
from hashlib import sha256
from pathlib import Path

from kernelyard.errors import InputError, MissingError, Place, VerificationError
from kernelyard.formats.digest import UNHASHED, tree_digest
from kernelyard.formats.fields import Fields, parse_json_object
from kernelyard.formats.paths import checked_path
from kernelyard.hub.folder import hash_tree

__all__ = ["unpack_variant"]

_CODE = "KY804"
_HINT = "make it again"
#: What `to-wheel` writes into the folder of the metadata.
_KNOWN = re.compile(
    r"METADATA|WHEEL|RECORD|licenses/[^/]+|kernelyard/(provenance|metadata|index)\.json|kernelyard/metadata\.json\.sigstore"
)
_INFORMATION = re.compile(r"([^/]+\.dist-info)/kernelyard/provenance\.json")


def unpack_variant(wheel: Path, folder: Path) -> Path:
    """Unpack the variant in a wheel below a folder, and return where it is: its name is the variant's.

    Raises:
        MissingError: There is no such file (KY804).
        InputError: It is no wheel, or none that was made of a kernel (KY804).
        VerificationError: The files in it are not those that it lists, or not those of the variant (KY804).
    """
    place = Place(str(wheel))
    try:
        with zipfile.ZipFile(wheel) as archive:
            information = [found[1] for name in archive.namelist() if (found := _INFORMATION.fullmatch(name))]
            if len(information) != 1:
                hint = "name one that `kernelyard to-wheel` has written"
                raise InputError(_CODE, "not a wheel of a kernel", hint=hint, place=place)
            return _unpack(archive, information[0], folder, place)
    except FileNotFoundError as error:
        raise MissingError(_CODE, "there is no such wheel", place=place) from error
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        if isinstance(error, (InputError, VerificationError)):
            raise
        raise InputError(_CODE, f"not a wheel: {error}", hint=_HINT, place=place) from error


def _unpack(archive: zipfile.ZipFile, information: str, folder: Path, place: Place) -> Path:
    _check_record(archive, f"{information}/RECORD", place)
    name = f"{information}/kernelyard/provenance.json"
    provenance = parse_json_object(archive.read(name), code=_CODE, path=f"{place.path}/{name}")
    variant = folder / _one_name(provenance, "variant")
    package = _one_name(provenance, "package")
    _check_members(archive, package, information, place)
    _check_names(archive, information, place)
    _check_index(archive, information, provenance, place)
    top = variant / package if provenance.required("nested", bool) else variant
    for path in archive.namelist():
        if path.startswith(f"{package}/"):
            _write(archive, path, top / checked_path(path.removeprefix(f"{package}/")))
    for path in UNHASHED:
        if f"{information}/kernelyard/{path}" in archive.namelist():
            _write(archive, f"{information}/kernelyard/{path}", variant / path)
    if tree_digest(hash_tree(variant)) != provenance.required("digest", str):
        what = "the package in it is not the variant that it was made of"
        raise VerificationError(_CODE, what, hint=_HINT, place=place)
    return variant


def _check_record(archive: zipfile.ZipFile, record: str, place: Place) -> None:
    """Compare the members with ``RECORD``, which installers go by."""
    rows = csv.reader(io.StringIO(archive.read(record).decode()))
    listed = {path: digest for path, digest, _ in rows}
    names = archive.namelist()
    for path in sorted({*names, *listed}):
        if path not in listed:
            what = f"{path} is in it, and RECORD does not list it"
        elif names.count(path) != 1:
            what = f"RECORD lists {path}, which is in it {names.count(path)} times"
        elif path != record and listed[path] != _digest(archive, path):
            what = f"{path} is not the file that RECORD lists"
        else:
            continue
        raise VerificationError(_CODE, what, hint=_HINT, place=place)


def _check_members(archive: zipfile.ZipFile, package: str, information: str, place: Place) -> None:
    """Refuse what an installer would put beside the package: modules, `.pth` files, programs, entry points."""
    for path in archive.namelist():
        inside = path.removeprefix(f"{information}/")
        if not path.startswith(f"{package}/") and not (inside != path and _KNOWN.fullmatch(inside)):
            what = f"{path} is neither of the package {package} nor of what `to-wheel` writes beside it"
            raise VerificationError(_CODE, what, hint=_HINT, place=place)


def _check_names(archive: zipfile.ZipFile, information: str, place: Place) -> None:
    """Compare what the wheel is called with what it says of itself, which is what installers and resolvers read."""
    name, _, rest = Path(place.path).stem.partition("-")
    version, _, tags = rest.partition("-")
    metadata = email.message_from_bytes(archive.read(f"{information}/METADATA"))
    wheel = email.message_from_bytes(archive.read(f"{information}/WHEEL"))
    for member, said, called in (
        ("the folder of its metadata", information, f"{name}-{version}.dist-info"),
        ("the name in METADATA", _normal(str(metadata["Name"])), _normal(name)),
        ("the version in METADATA", str(metadata["Version"]), version),
        ("the tag in WHEEL", ", ".join(wheel.get_all("Tag", [])), tags),
    ):
        if said != called:
            what = f"{member} is {said!r}, and by the name of the file it is {called!r}"
            raise VerificationError(_CODE, what, hint=_HINT, place=place)


def _check_index(archive: zipfile.ZipFile, information: str, provenance: Fields, place: Place) -> None:
    """Compare the published index that is enclosed with the digest of it."""
    name = f"{information}/kernelyard/index.json"
    found = sha256(archive.read(name)).hexdigest() if name in archive.namelist() else None
    if found != provenance.optional("index", str):
        raise VerificationError(_CODE, "the index in it is not the published one", hint=_HINT, place=place)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _digest(archive: zipfile.ZipFile, path: str) -> str:
    digest = sha256()
    with archive.open(path) as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return f"sha256={base64.urlsafe_b64encode(digest.digest()).rstrip(b'=').decode()}"


def _write(archive: zipfile.ZipFile, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(path) as content, target.open("wb") as written:
        while chunk := content.read(1 << 20):
            written.write(chunk)


def _one_name(provenance: Fields, member: str) -> str:
    name = provenance.required(member, str)
    try:
        is_one = "/" not in checked_path(name)
    except ValueError:
        is_one = False
    if not is_one:
        raise provenance.error(member, f"not a name: {name!r}")
    return name
