"""A kernel project from nothing: it builds, tests and loads as it is.

What is written stands in ``templates``, one folder per layer; which layers a framework has is said here. Templates know
``@placeholders@`` and lines ``@if WORDS@`` ... ``@end@``; one that comes out empty is left out.
"""

from __future__ import annotations

import errno
import keyword
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.tables import nearest
from kernelyard.formats.variant import BACKENDS, Framework
from kernelyard.records import record
from kernelyard.store import writing

__all__ = ["BACKENDS_OF", "NewProject", "init_project", "kernel_repo"]

_logger = logging.getLogger("kernelyard.author")

#: Framework -> backends that there are templates for.
BACKENDS_OF: Mapping[Framework, tuple[str, ...]] = {
    "torch-stable-abi": ("cpu", "cuda"),
    "torch": ("cpu", "cuda"),
    "tvm-ffi": ("cpu", "cuda"),
    "torch-noarch": ("cpu", "cuda", "rocm", "xpu", "metal"),
}
_LAYERS: Mapping[Framework, tuple[str, ...]] = {
    "torch-stable-abi": ("any", "compiled", "torch-any", "torch-python", "torch-stable-abi"),
    "torch": ("any", "compiled", "torch-any", "torch-python", "torch"),
    "tvm-ffi": ("any", "compiled", "tvm-ffi"),
    "torch-noarch": ("any", "torch-any", "torch-noarch"),
}

_TEMPLATES = Path(__file__).with_name("templates")

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
_ORG = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_LICENCE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.+-]*[A-Za-z0-9+])?", re.ASCII)
#: A package of this name beside the kernel's would hide the one that the kernel imports.
_TAKEN = {"kernels", "kernelyard", "torch", "triton", "tvm-ffi"}
#: What may be in a folder before: a repository that has just been made on some website.
_HARMLESS = re.compile(
    r"\.git(?:hub|ignore|attributes)?|\.DS_Store|(?:README|LICEN[CS]E|COPYING)(?:\.\w+)?", re.IGNORECASE
)

_CONDITION = re.compile(r"@(?:if (?P<words>[a-z -]+)|end)@")
_PLACEHOLDER = re.compile(r"@([a-z_]+)@")


@record(frozen=True, slots=True)
class NewProject:
    """A project that was made.

    Attributes:
        folder: Where, as the user wrote it.
        repo: Its place on a hub, ``org/name``.
        files: What was written, by paths relative to the folder.
        kept: What would have been written and was there already.
    """

    folder: Path
    repo: str
    files: tuple[str, ...]
    kept: tuple[str, ...]


def init_project(
    repo: str,
    folder: Path | None = None,
    *,
    backends: Sequence[str] = ("cpu", "cuda"),
    framework: Framework = "torch-stable-abi",
    licence: str = "Apache-2.0",
    flake: bool = False,
) -> NewProject:
    """Make a kernel project, whole or not at all. No file that exists is touched.

    Args:
        repo: ``org/name`` on a hub; capitals and underscores in the name are replaced.
        folder: Where; None for the name of the kernel in the current folder.
        backends: What it is built for, in the order in which the manifest will list them.
        framework: How it binds.
        licence: An SPDX identifier.
        flake: Whether to add a ``flake.nix`` for kernel-builder.

    Raises:
        InputError: The name is not valid (KY731), the folder has other things in it (KY732), there is no template for a
            backend (KY733), or the licence is not an identifier (KY734).
        EnvironmentProblemError: The folder cannot be written.
    """
    org, name = kernel_repo(repo)
    if f"{org}/{name}" != repo:
        _logger.info("names of kernels are lower case with dashes: %s is made as %s/%s", repo, org, name)
    _check_backends(backends, framework)
    licence = _checked_licence(licence)
    values = {
        "backends": ", ".join(backends),
        "backends_toml": ", ".join(f'"{backend}"' for backend in backends),
        "licence": licence,
        "licence_lower": licence.lower(),
        "name": name,
        "py": name.replace("-", "_"),
        "repo": f"{org}/{name}",
    }
    layers = [*_LAYERS[framework], "licence-apache" if licence == "Apache-2.0" else "licence-other"]
    words = {*backends, framework} | ({"flake"} if flake else set())
    rendered = _render_layers([*layers, "flake"] if flake else layers, values, words)
    target = Path(name) if folder is None else folder
    written, kept = _write_project(target, rendered)
    return NewProject(target, values["repo"], written, kept)


def kernel_repo(repo: str) -> tuple[str, str]:
    """Return organisation and name of a kernel, the name in the form that manifests take.

    Raises:
        InputError: It is not ``org/name``, or the name is not valid even so (KY731).
    """
    org, slash, given = repo.partition("/")
    if not slash or "/" in given or not _ORG.fullmatch(org):
        proposed = _nearest_name(given if slash else org)
        place = org if slash and _ORG.fullmatch(org) else "your-organisation"
        raise InputError("KY731", f"not of the form ORG/NAME: {repo!r}", hint=f"for example {place}/{proposed}")
    name = given.lower().replace("_", "-")
    if not _NAME.fullmatch(name):
        rule = "two or more letters, digits and dashes, a letter first and no dash last"
        raise InputError(
            "KY731",
            f"not a name for a kernel: {given!r}; {rule}",
            hint=f"the nearest that is one: {org}/{_nearest_name(name)}",
        )
    if _taken(name):
        raise InputError(
            "KY731",
            f"{name!r} cannot be the name of the kernel's Python package: it means something else to Python",
            hint=f"the nearest that can: {org}/{name}-kernel",
        )
    return org, name


def _taken(name: str) -> bool:
    return name in _TAKEN or keyword.iskeyword(name.replace("-", "_"))


def _nearest_name(text: str) -> str:
    words = re.findall(r"[a-z0-9]+", text.lower(), re.ASCII)
    name = "-".join(words) or "kernel"
    if not name[0].isalpha():
        name = f"kernel-{name}"
    return name if len(name) > 1 and not _taken(name) else f"{name}-kernel"


def _check_backends(backends: Sequence[str], framework: Framework) -> None:
    known = BACKENDS_OF[framework]
    if not backends:
        raise InputError("KY733", "no backend is named", hint=f"of {framework} there are {', '.join(known)}")
    for backend in backends:
        if backend in known:
            continue
        if backend not in BACKENDS:
            hint = nearest(backend, BACKENDS) or f"there are {', '.join(known)}"
            raise InputError("KY733", f"there is no backend {backend!r}", hint=hint)
        others = [other for other in BACKENDS_OF if backend in BACKENDS_OF[other]]
        raise InputError(
            "KY733",
            f"there is no template of {framework} for {backend}, only for {', '.join(known)}",
            hint=f"--framework {others[0]} has one"
            if others
            else f"begin with --backends {known[0]}, and write the sections for {backend} by hand",
        )


def _checked_licence(licence: str) -> str:
    if not _LICENCE.fullmatch(licence):
        raise InputError(
            "KY734",
            f"not an SPDX identifier: {licence!r}",
            hint="for example Apache-2.0, MIT or BSD-3-Clause; all are at https://spdx.org/licenses",
        )
    return "Apache-2.0" if licence.lower() == "apache-2.0" else licence


def _render_layers(layers: Sequence[str], values: Mapping[str, str], words: set[str]) -> dict[str, str]:
    """Return path -> text of all files of some layers."""
    rendered = {}
    for layer in layers:
        folder = _TEMPLATES / layer
        for template in sorted(folder.rglob("*.in")):
            text = _render(template.read_text("utf-8"), values, words)
            if text:
                path = template.relative_to(folder).as_posix().removesuffix(".in")
                rendered[_render(path, values, words)] = text
    return rendered


def _render(template: str, values: Mapping[str, str], words: set[str]) -> str:
    kept, wanted = [], True
    for line in template.splitlines(keepends=True):
        if condition := _CONDITION.fullmatch(line.strip()):
            wanted = condition["words"] is None or _holds(condition["words"], words)
        elif wanted:
            kept.append(line)
    return _PLACEHOLDER.sub(lambda match: values[match[1]], "".join(kept))


def _holds(condition: str, words: set[str]) -> bool:
    """Whether ``a and not b or c`` is true, where a word is true if it is among ``words``."""
    return any(
        all((term.removeprefix("not ") in words) is not term.startswith("not ") for term in group.split(" and "))
        for group in condition.split(" or ")
    )


def _write_project(folder: Path, rendered: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write all files or none; return which were written, and which were kept as they are."""
    with writing(folder, elsewhere="give as FOLDER"):
        if folder.is_dir() and any(folder.iterdir()):
            strangers = sorted(entry.name for entry in folder.iterdir() if not _HARMLESS.fullmatch(entry.name))
            if strangers:
                raise _occupied(folder, f"there is something in it already: {_some(strangers)}")
            kept = tuple(path for path in rendered if (folder / path).exists())
            written = {path: text for path, text in rendered.items() if path not in kept}
            _write_new(folder, written)
            return tuple(sorted(written)), kept
        _write_aside(folder, rendered)
        return tuple(sorted(rendered)), ()


def _write_aside(folder: Path, rendered: Mapping[str, str]) -> None:
    """Write a new folder, with the parents that are missing, beside the topmost of them, and rename that."""
    if folder.is_dir():
        # Empty, and perhaps the current folder of a shell, which would be left in one that was replaced.
        _write_new(folder, rendered)
        return
    folder = folder.absolute()
    top = next(path for path in (folder, *folder.parents) if path.parent.is_dir())
    if os.path.lexists(top):
        raise _occupied(top, "this is not a folder")
    aside = top.with_name(f".{top.name}.{secrets.token_hex(4)}")
    try:
        aside.mkdir()
        inside = aside / folder.relative_to(top)
        inside.mkdir(parents=True, exist_ok=True)
        _write_new(inside, rendered)
        aside.rename(top)
    except OSError as error:
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}:
            raise _occupied(folder, "somebody else has just made it") from None
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_new(folder: Path, rendered: Mapping[str, str]) -> None:
    """Write files that are not there, the manifest last; if that fails, remove those that were written."""
    made: list[Path] = []
    try:
        for path in sorted(rendered, key=lambda path: (path == "build.toml", path)):
            file = folder / path
            for parent in reversed(file.relative_to(folder).parents[:-1]):
                if not (folder / parent).is_dir():
                    (folder / parent).mkdir()
                    made.append(folder / parent)
            with file.open("x", encoding="utf-8", newline="\n") as stream:
                made.append(file)
                stream.write(rendered[path])
    except BaseException as error:
        for done in reversed(made):
            if done.is_dir():
                done.rmdir()
            else:
                done.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise _occupied(folder, f"{error.filename} has just been made by somebody else") from None
        raise


def _occupied(folder: Path, what: str) -> InputError:
    hint = "give another FOLDER; one with nothing but .git, README and LICENSE will do"
    return InputError("KY732", what, hint=hint, place=Place(str(folder)))


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
