"""Where the settings of a project stand: a file of their own, or a table of ``pyproject.toml``."""

from __future__ import annotations

from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.settings import Settings, read_settings
from kernelyard.project.manifest_file import shown_path
from kernelyard.store import open_regular
from kernelyard.toolchain.matrix_rules import known_rules

__all__ = ["SETTINGS_FILE", "read_settings_of", "settings_files"]

#: Beside the manifest.
SETTINGS_FILE = "kernelyard.toml"
_PYPROJECT = "pyproject.toml"
_TABLE = ("tool", "kernelyard")


def read_settings_of(root: Path) -> Settings:
    """Return the settings of a project's folder.

    Raises:
        ManifestError: They have mistakes.
        InputError: A file cannot be read, or both have settings (KY239).
    """
    own, shared = root / SETTINGS_FILE, root / _PYPROJECT
    text, shared_text = _text(own), _text(shared)
    found = read_settings(text, path=shown_path(own), known=known_rules()) if text is not None else None
    # Most of that file is for others: what has nothing of ours may have mistakes of theirs.
    if shared_text is not None and "kernelyard" in shared_text:
        in_shared = read_settings(shared_text, path=shown_path(shared), within=_TABLE, known=known_rules())
        if found is not None and in_shared is not None:
            what = f"there are settings here, and in {SETTINGS_FILE} too"
            hint = f"move those of [{'.'.join(_TABLE)}] to {SETTINGS_FILE}, or the other way round"
            raise InputError("KY239", what, hint=hint, place=Place(shown_path(shared), key=".".join(_TABLE)))
        found = found or in_shared
    return found or Settings()


def settings_files(root: Path) -> tuple[Path, ...]:
    """Return the files of a project's folder that have settings, as long as :func:`read_settings_of` reads them."""
    if (root / SETTINGS_FILE).exists():
        return (root / SETTINGS_FILE,)
    shared = _text(root / _PYPROJECT)
    if shared is None or "kernelyard" not in shared:
        return ()
    return (root / _PYPROJECT,) if read_settings(shared, path=_PYPROJECT, within=_TABLE) is not None else ()


def _text(path: Path) -> str | None:
    try:
        with open_regular(path) as file:
            return file.read().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        what, place = f"cannot be read: {error.strerror}", Place(shown_path(path))
        raise InputError("KY239", what, hint="see its permissions", place=place) from None
    except UnicodeDecodeError as error:
        what = f"not UTF-8: {error.reason} at byte {error.start}"
        raise InputError("KY239", what, place=Place(shown_path(path))) from None
