"""Places that kernels are published to and fetched from. Specification of the static hub: ``docs/formats/hub.md``.

A new kind is one module that implements :mod:`kernelyard.hub.protocol`, and one line in :func:`open_hub`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from kernelyard.errors import EnvironmentProblemError, InputError, Place
from kernelyard.hub.protocol import Hub, Publication, Published, PublishingHub, Revision
from kernelyard.store import absolute_path

__all__ = ["Hub", "Publication", "Published", "PublishingHub", "Revision", "open_hub"]


def open_hub(location: str | Path | None = None) -> Hub:
    """Return the hub at a location; nothing is read from it yet, except to see what a folder holds.

    Args:
        location: A folder (a static hub, or a ``build/`` folder), ``file://``, ``http://`` or ``https://``; ``hf://``
            for the Hugging Face Hub, as is its address (``HF_ENDPOINT``); ``git+https://``, ``git+ssh://`` or
            ``git+file://`` for repositories of git. None stands for the environment variable
            ``KERNELYARD_HUB``, and where that is not set for the Hugging Face Hub.

    Raises:
        InputError: The location is of an unknown kind (KY506).
        EnvironmentProblemError: A folder cannot be looked into (KY502).
    """
    if location is None:
        location = os.environ.get("KERNELYARD_HUB", "")
        if not location:
            location = "hf://"
    if isinstance(location, str) and "://" in location:
        return _open_address(location)
    return _open_folder(absolute_path(location, code="KY506"))


def _open_address(address: str) -> Hub:
    scheme, _, rest = address.partition("://")
    if scheme.lower() == "file":
        from urllib.parse import unquote

        host, slash, path = rest.partition("/")
        if slash and host in {"", "localhost"}:
            return _open_folder(absolute_path("/" + unquote(path), code="KY506"))
        raise InputError("KY506", f"not the address of a local folder: {address!r}", hint="write file:///the/folder")
    found = _open_hugging_face(scheme.lower(), address, rest)
    if found is not None:
        return found
    if scheme.lower() in {"http", "https"}:
        from kernelyard.hub.http import HttpReader
        from kernelyard.hub.static import StaticHub

        return StaticHub(HttpReader(address))
    if scheme.lower().startswith("git+"):
        from kernelyard.hub.git import GitHub
        from kernelyard.hub.git_access import GitPlace

        return GitHub(GitPlace.parse(address))
    from kernelyard.hub.http import without_password

    raise InputError(
        "KY506",
        f"not an address of a hub: {without_password(address)!r}",
        hint="known are folders, file://, http://, https://, hf:// and git+https://, git+ssh://, git+file://",
    )


def _open_hugging_face(scheme: str, address: str, rest: str) -> Hub | None:
    """Return the Hugging Face Hub, if an address is its: by its own scheme, or the address that it is asked at."""
    if scheme not in {"hf", "http", "https"} or (scheme == "hf" and rest.strip("/")):
        return None
    from kernelyard.hub.hugging_face_address import DEFAULT_ENDPOINT, endpoint

    configured = endpoint()
    if scheme != "hf" and address.rstrip("/") not in {configured, DEFAULT_ENDPOINT}:
        return None
    # Only here: for who uses another hub these modules would take as long as a kernel takes to load.
    from kernelyard.hub.hugging_face import HuggingFaceHub
    from kernelyard.hub.hugging_face_access import Settings

    settings = Settings.from_environment()
    own = configured if scheme == "hf" else address.rstrip("/")
    # The token is for the endpoint that the user has set, and for no other.
    token = settings.token if own == configured else None
    return HuggingFaceHub(replace(settings, endpoint=own, token=token))


def _open_folder(path: Path) -> Hub:
    from kernelyard.hub.folder import FolderHub
    from kernelyard.hub.static import DirectoryReader, StaticHub

    try:
        is_static = (path / "hub.json").is_file()
    except OSError as error:
        what = f"the hub cannot be looked into: {error.strerror or error}"
        hint = "check the path and its permissions"
        raise EnvironmentProblemError("KY502", what, hint=hint, place=Place(str(path))) from error
    if not is_static:
        folder = FolderHub.find(path)
        if folder is not None:
            return folder
    return StaticHub(DirectoryReader(path))
