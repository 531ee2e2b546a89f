"""Adding kernels to what a project declares, and taking them out, leaving every other byte of the file as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from kernelyard.errors import InputError, Place
from kernelyard.formats.dependencies import MAIN, Dependency
from kernelyard.formats.toml_edit import TomlText
from kernelyard.lock.project import OWN_FILE, PYPROJECT, Project, read_project, read_text, shown
from kernelyard.lock.written import write_whole
from kernelyard.records import record

__all__ = ["Edit", "declare", "undeclare"]

_OURS = ("tool", "kernelyard")
_THEIRS = ("tool", "kernels")
_GROUPS = "dependency-groups"


@record(frozen=True, slots=True)
class Edit:
    """A file that was changed, and how to take that back.

    Attributes:
        path: The file.
        before: Its content; None where there was no file.
        where: The table, as messages name it.
    """

    path: Path
    before: bytes | None
    where: str

    def undo(self) -> None:
        """Put the file back."""
        if self.before is None:
            self.path.unlink(missing_ok=True)
        else:
            write_whole(self.path, self.before)


def declare(root: Path, dependency: Dependency, group: str = MAIN) -> Edit:
    """Write a kernel into a project's file, in place of what it says of that kernel in the same group.

    Args:
        root: The folder of the project.
        dependency: What to declare.
        group: The group that is to have it.

    Raises:
        InputError: The file has mistakes; ``dependency`` is one (KY706).
    """
    project = read_project(root)
    file = _file(project)
    before = read_text(file)
    text = (before or b"").decode()
    tables = tuple(_tables(file, group))
    value = _value(dependency)
    edited = TomlText(text)
    for table in tables:
        if edited.has_own_table((*table, dependency.repo)):
            edited.remove_table((*table, dependency.repo))
            text = edited.text()
            edited = TomlText(text)
        elif dependency.repo in (edited.keys(table) or ()):
            edited.set_value((*table, dependency.repo), value)
            return _written(project, file, before, edited, table)
    table = _best_table(edited, tables, plain=value.isdecimal())
    _insert(edited, table, json.dumps(dependency.repo), value)
    if edited.keys(table) is None:
        edited = TomlText(edited.text())
        edited.insert_first(table, json.dumps(dependency.repo), value)
    return _written(project, file, before, edited, table)


def undeclare(root: Path, repo: str, group: str | None = None) -> Edit:
    """Take a kernel out of a project's file, from all groups or from one.

    Raises:
        InputError: It is not declared there (KY714), or the file has mistakes.
    """
    project = read_project(root)
    file = project.declared_in
    before = None if file is None else read_text(file)
    if file is not None and before is not None:
        edited = TomlText(before.decode())
        groups = [group] if group is not None else [MAIN, *_group_names(edited, file)]
        found = None
        for table in (table for one in groups for table in _tables(file, one)):
            if edited.has_own_table((*table, repo)):
                edited.remove_table((*table, repo))
                found = table
            elif repo in (edited.keys(table) or ()):
                edited.remove((*table, repo))
                found = table
        if found is not None:
            return _written(project, file, before, edited, found)
    known = ", ".join(one.repo for one in project.dependencies) or "none at all"
    what = f"{repo} is not declared" + (f" in the group {group}" if group not in {None, MAIN} else "")
    raise InputError("KY714", what, hint=f"declared are: {known}", place=Place(shown(file or root)))


def _file(project: Project) -> Path:
    if project.declared_in is not None:
        return project.declared_in
    own, shared = project.root / OWN_FILE, project.root / PYPROJECT
    # Settings stand in one of the two, not in both; where there is a file for them, so do kernels.
    return shared if shared.is_file() and not own.is_file() else own


def _tables(file: Path, group: str) -> Iterator[tuple[str, ...]]:
    """Yield the tables of a file that a group may be in."""
    base = () if file.name == OWN_FILE else _OURS
    if group != MAIN:
        yield (*base, _GROUPS, group)
        return
    yield (*base, "dependencies")
    if base:
        yield (*_THEIRS, "dependencies")


def _group_names(edited: TomlText, file: Path) -> list[str]:
    base = () if file.name == OWN_FILE else _OURS
    return edited.tables_in((*base, _GROUPS))


def _best_table(edited: TomlText, tables: tuple[tuple[str, ...], ...], *, plain: bool) -> tuple[str, ...]:
    """Return the table to add to: the first that there is. That of the `kernels` package takes plain numbers only."""
    for table in tables:
        if edited.keys(table) is not None and (plain or table[:2] != _THEIRS):
            return table
    return tables[0]


def _insert(edited: TomlText, table: tuple[str, ...], name: str, value: str) -> None:
    """Add a key: in its place where the others are sorted, else below them."""
    keys = edited.keys(table)
    if keys is None:
        edited.append_table(".".join(json.dumps(part) if not _is_bare(part) else part for part in table))
    elif not keys:
        edited.insert_first(table, name, value)
    else:
        repo = json.loads(name)
        later = next((key for key in keys if key > repo), None) if list(keys) == sorted(keys) else None
        if later is not None:
            edited.insert_before((*table, later), name, value)
        else:
            edited.insert_after((*table, keys[-1]), name, value)


def _written(project: Project, file: Path, before: bytes | None, edited: TomlText, table: tuple[str, ...]) -> Edit:
    edit = Edit(file, before, f"[{'.'.join(table)}] of {shown(file)}")
    write_whole(file, edited.text().lstrip("\n").encode() if before is None else edited.text().encode())
    try:
        read_project(project.root)
    except InputError:
        edit.undo()
        raise
    return edit


def _value(dependency: Dependency) -> str:
    members = {name: value for name, value in dependency.to_json().items() if name != "groups"}
    if dependency.trust:
        members["trust"] = True
    if list(members) == ["version"]:
        return _toml(members["version"])
    return "{ " + ", ".join(f"{name} = {_toml(value)}" for name, value in members.items()) + " }"


def _toml(value: object) -> str:
    # Strings, numbers, booleans and lists of these are written in TOML as in JSON.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_bare(part: str) -> bool:
    return part.replace("-", "").replace("_", "").isalnum() and part.isascii()
