"""Folders and files of the project that flags of the manifest name for the compiler to look into, or to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["flag_files", "flag_folders"]

_FOLDERS = ("-I", "-iquote", "-isystem", "-idirafter", "--include-path", "--system-include")
_FILES = ("-include", "-imacros", "--pre-include")
_HANDED_ON = ("-Xcompiler", "--compiler-options")


def flag_folders(root: Path, flags: Sequence[str]) -> tuple[str, ...]:
    """Return the include folders that flags name inside a project, relative to it; others are the machine's.

    Args:
        root: The project.
        flags: For g++, clang or nvcc; compilers run elsewhere than in the project, so only absolute paths lead there.
    """
    return tuple(_inside(root, _values(_unwrapped(flags), _FOLDERS)))


def flag_files(root: Path, flags: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a project, relative to it, that flags have the compiler read before each source."""
    words = tuple(_unwrapped(flags))
    folders = [Path(folder) for folder in flag_folders(root, words)]
    named = tuple(_values(words, _FILES))
    found = [root / folder / name for name in named for folder in folders]
    return tuple(_inside(root, [*named, *(str(path) for path in found if path.is_file())]))


def _unwrapped(flags: Iterable[str]) -> Iterator[str]:
    """Yield flags as the host compiler gets them: nvcc hands on what `-Xcompiler` has, with commas between."""
    handed_on = False
    for flag in flags:
        name, equals, value = flag.partition("=")
        if handed_on:
            yield from flag.split(",")
            handed_on = False
        elif name in _HANDED_ON and equals:
            yield from value.split(",")
        elif flag in _HANDED_ON:
            handed_on = True
        else:
            yield flag


def _values(flags: Iterable[str], options: Sequence[str]) -> Iterator[str]:
    """Yield the values of some options: a word of their own, or joined to the option, by `=` where that is long."""
    waiting = False
    for flag in flags:
        if waiting:
            yield flag
            waiting = False
        elif flag in options:
            waiting = True
        else:
            option = next((one for one in options if flag.startswith(one)), None)
            if option is not None:
                yield flag.removeprefix(option).removeprefix("=")


def _inside(root: Path, paths: Iterable[str]) -> Iterator[str]:
    own = Path(os.path.normpath(root.absolute()))
    for path in dict.fromkeys(paths):
        place = Path(os.path.normpath(path))
        if place.is_absolute() and place.is_relative_to(own):
            yield place.relative_to(own).as_posix()
