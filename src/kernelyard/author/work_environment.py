"""A virtual environment to work on a kernel in, made once for what is in it.

It is a layer: its own packages are few, and torch is that of the interpreter it stands on, or one in the store that
all projects share. So what an author installs in it stays in it, and a torch is fetched once.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from filelock import FileLock

import kernelyard
from kernelyard.author.interpreter import RECORD, Interpreter
from kernelyard.author.packages import Download, download_text, install, to_install, uninstall
from kernelyard.build.project import WORK_FOLDER
from kernelyard.errors import EnvironmentProblemError, MissingError, Place
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import Torch, describe_torch
from kernelyard.project.generate import MOVE_PROJECT
from kernelyard.records import record
from kernelyard.store import Store, writing

__all__ = ["TEST_REQUIREMENTS", "WorkEnvironment", "provide_environment"]

_logger = logging.getLogger("kernelyard.author")

#: What the author's own tests need beside pytest and torch, in the form of pip; the file need not be there.
TEST_REQUIREMENTS = "tests/requirements.txt"

#: Changes when environments are laid out in another way.
_LAYOUT = 1
#: From this Python on, a new environment has pip alone.
_WITHOUT_SETUPTOOLS = (3, 12)


@record(frozen=True, slots=True)
class WorkEnvironment:
    """A virtual environment that is whole.

    Attributes:
        folder: Where it is.
        torch: The torch that it imports; None where it has none.
        torch_from: Where that comes from: an environment's folder, or a place in the store.
        is_new: Whether it was made by this call.
    """

    folder: Path
    torch: Torch | None
    torch_from: Path
    is_new: bool

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


def provide_environment(
    root: Path,
    base: Interpreter,
    store: Store,
    *,
    name: str,
    torch: Version | None,
    requirements: Sequence[str] = (),
    download: bool = True,
) -> WorkEnvironment:
    """Return the environment of a project with a certain torch, making it where it is not there.

    How much will be fetched is logged before anything is.

    Args:
        root: The project's folder.
        base: What it stands on.
        store: Where a torch that is fetched is kept.
        name: What prompts call it.
        torch: The torch to install; None for that of ``base``.
        requirements: What else it is to have, as of PEP 508.
        download: Whether anything may be fetched.

    Raises:
        MissingError: Something is to be fetched and may not be (KY742).
        EnvironmentProblemError: It cannot be made (KY743), pip fails (KY712), disk or permissions.
    """
    root = root.resolve()
    wanted = sorted({*requirements, "pytest", *_own_requirements()})
    listed = root / TEST_REQUIREMENTS
    described = {
        "layout": _LAYOUT,
        "name": name,
        "python": [str(base.python), *base.system.python],
        "sites": [] if torch is not None else list(map(str, base.sites)),
        "torch": str(torch) if torch is not None else None,
        "requirements": wanted,
        "listed": listed.read_text("utf-8") if listed.is_file() else None,
        "kernelyard": str(_package()),
    }
    key = sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
    folder = root / WORK_FOLDER / "environments" / key
    found = _read(folder)
    if found is not None:
        return found
    with writing(folder, elsewhere=MOVE_PROJECT):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            found = _read(folder)
            if found is not None:
                return found
            listing = ("-r", str(listed)) if listed.is_file() else ()
            _make(folder, base, store, name=name, torch=torch, wanted=(*wanted, *listing), download=download)
            made = _read(folder, is_new=True)
    if made is None:
        raise EnvironmentProblemError("KY743", "the environment was made, but is not whole", place=Place(str(folder)))
    return made


def _read(folder: Path, *, is_new: bool = False) -> WorkEnvironment | None:
    """Return an environment if it is whole, and what it stands on is still there."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
        sites = list(map(Path, record["sites"]))
        torch_from = Path(record["torch-from"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (folder / "bin" / "python").exists() or not all(site.is_dir() for site in sites):
        return None
    own = next(folder.glob("lib/python*/site-packages"), folder)
    torch = next(filter(None, (describe_torch(site / "torch") for site in (own, *sites))), None)
    return WorkEnvironment(folder, torch, torch_from, is_new)


def _make(
    folder: Path,
    base: Interpreter,
    store: Store,
    *,
    name: str,
    torch: Version | None,
    wanted: Sequence[str],
    download: bool,
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _logger.info("making an environment for %s, once, in %s", name, folder)
    try:
        _make_venv(folder, base, name)
        python = folder / "bin" / "python"
        if base.system.python < _WITHOUT_SETUPTOOLS:
            uninstall(python, "setuptools")  # it would hide the newer one below
        sites, torch_from = base.sites, base.prefix
        if torch is not None:
            packages = _provide_torch(python, store, torch, download=download)
            sites, torch_from = (packages,), packages
        _layer(folder, sites)
        lacking = to_install(python, wanted)
        if lacking:
            _refuse_download(lacking, download=download)
            names = ", ".join(found.name for found in lacking)
            _logger.info("installing %s into the environment: %s", names, download_text(lacking))
            install(python, wanted)
        record = {"python": str(base.python), "sites": list(map(str, sites)), "torch-from": str(torch_from)}
        aside = folder / f"{RECORD}.new"
        aside.write_text(json.dumps(record), "utf-8")
        aside.replace(folder / RECORD)  # last: what has it is whole
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_venv(folder: Path, base: Interpreter, name: str) -> None:
    command = [os.fspath(base.python), "-m", "venv", "--prompt", name, os.fspath(folder)]
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    try:
        subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stdout", None) or getattr(error, "stderr", None) or str(error)).strip()
        hint = "on Debian and Ubuntu: `apt install python3-venv`; elsewhere name another Python with --python"
        what = f"{base.python} cannot make a virtual environment: {said.splitlines()[0] if said else error}"
        raise EnvironmentProblemError("KY743", what, hint=hint, place=Place(str(folder))) from None


def _provide_torch(python: Path, store: Store, torch: Version, *, download: bool) -> Path:
    """Return a folder of the store with a torch and all that it needs, as this machine's pip would install it."""
    wanted = (f"torch=={torch}", "numpy")
    downloads = to_install(python, wanted)
    made_of = sorted(f"{found.name} {found.version} {found.url}" for found in downloads)
    key = f"torch-{torch}-{sha256(repr(made_of).encode()).hexdigest()[:16]}"
    if store.get("environments", key) is None:
        _refuse_download(downloads, download=download)
        _logger.info("torch %s is fetched once for all projects: %s", torch, download_text(downloads))
    return store.provide("environments", key, lambda folder: install(python, wanted, target=folder))


def _refuse_download(downloads: Sequence[Download], *, download: bool) -> None:
    if not download:
        names = ", ".join(f"{found.name} {found.version}" for found in downloads[:3])
        more = f" and {len(downloads) - 3} more" if len(downloads) > 3 else ""  # noqa: PLR2004 - as many as are named
        what = f"the environment lacks {names}{more} ({download_text(downloads)})"
        raise MissingError("KY742", what, hint="leave --no-download out to fetch it")


def _layer(folder: Path, sites: Sequence[Path]) -> None:
    """Have an environment import what it does not have itself from other places."""
    own = next(folder.glob("lib/python*/site-packages"))
    link = folder / "kernelyard-itself"
    link.mkdir()
    (link / "kernelyard").symlink_to(_package())
    # addsitedir, for the .pth files in there: editable installations are such. The last is for a Python that does not
    # have Kernelyard: a link, so that no pip takes it for installed here and writes into it.
    lines = [f"import site; site.addsitedir({str(site)!r})\n" for site in sites]
    own.joinpath("kernelyard-layers.pth").write_text("".join([*lines, f"{link}\n"]), "utf-8")


def _package() -> Path:
    return Path(kernelyard.__file__).resolve().parent


def _own_requirements() -> list[str]:
    """Return what Kernelyard itself needs."""
    try:
        return [text for text in requires("kernelyard") or () if "extra ==" not in text]
    except PackageNotFoundError:
        return []
