"""Which kernels a project declares, in ``pyproject.toml`` or ``kernelyard.toml``. Specification: ``docs/lock.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from kernelyard.errors import InputError
from kernelyard.formats.fields import Fields
from kernelyard.formats.tables import Table
from kernelyard.formats.variant import BACKENDS
from kernelyard.formats.wanted import Wanted
from kernelyard.records import record

__all__ = ["INCLUDE", "MAIN", "Dependency", "merged", "read_dependencies", "read_groups"]

#: What is declared in no group is in this one.
MAIN = "main"
#: In a group: the groups whose kernels it has as well.
INCLUDE = "include-group"

_REPO = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_GROUP = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_CREDENTIALS = re.compile(r"[A-Za-z0-9+.-]+://[^/@]*@", re.ASCII)


@record(frozen=True, slots=True)
class Dependency:
    """A kernel that a project declares.

    Attributes:
        repo: ``org/name``.
        version: As it was written: a number, a release, or a range. Exactly one of this and ``revision`` is set.
        revision: A branch, a tag, or a revision's id.
        hub: Where it is; None for the hub that is set when it is locked.
        backend: Only variants for this backend are locked, and universal ones.
        variants: Globs; only variants with such names are locked. Empty for all.
        optional: Whether a program does without it where none of its variants fits.
        marker: PEP 508; where it is false, the kernel is not downloaded.
        groups: Names of the groups that have it, sorted; :data:`MAIN` for what is in none.
        trust: Whether the project consents to run what the hub hands out. It is no part of the lock, which is itself
            the consent to exactly the bytes that it names.
    """

    repo: str
    version: int | str | None = None
    revision: str | None = None
    hub: str | None = None
    backend: str | None = None
    variants: tuple[str, ...] = ()
    optional: bool = False
    marker: str | None = None
    groups: tuple[str, ...] = (MAIN,)
    trust: bool = False

    @property
    def wanted(self) -> Wanted:
        """What is asked of the hub."""
        return Wanted.parse(self.version, self.revision)

    @property
    def what(self) -> str:
        """What is asked for, as messages name it."""
        return f"revision {self.revision}" if self.version is None else str(self.version)

    def takes(self, variant: str, backend: str) -> bool:
        """Whether a variant, of a backend, is to be locked."""
        if self.backend is not None and backend not in {self.backend, "universal"}:
            return False
        return not self.variants or any(fnmatchcase(variant, glob) for glob in self.variants)

    def applies(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether the marker is true in an environment (PEP 508); None stands for this interpreter's.

        Raises:
            ValueError: It is no marker, or compares what cannot be compared.
        """
        if self.marker is None:
            return True
        from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

        try:
            return Marker(self.marker).evaluate(None if environment is None else dict(environment))
        except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName) as error:
            raise ValueError(f"not a marker: {self.marker!r} ({str(error).splitlines()[0]})") from None

    def to_json(self) -> dict[str, Any]:
        """Return what the lock says of it; what is as usual is left out."""
        members: dict[str, Any] = {"version": self.version, "revision": self.revision, "hub": self.hub}
        members |= {"backend": self.backend, "variants": list(self.variants), "optional": self.optional}
        members |= {"marker": self.marker, "groups": list(self.groups) if self.groups != (MAIN,) else []}
        # The number 0 is a version.
        return {name: value for name, value in members.items() if value not in (None, [], "") and value is not False}

    @classmethod
    def from_json(cls, repo: str, fields: Fields) -> Dependency:
        """Read what a lock says of it.

        Raises:
            InputError: A member is of the wrong type; with the code of the document.
        """
        written = isinstance(fields.members.get("version"), str)
        read = cls(
            repo,
            version=fields.optional("version", str) if written else fields.optional("version", int),
            revision=fields.optional("revision", str),
            hub=fields.optional("hub", str),
            backend=fields.optional("backend", str),
            variants=fields.strings("variants") or (),
            optional=bool(fields.optional("optional", bool)),
            marker=fields.optional("marker", str),
            groups=fields.strings("groups") or (MAIN,),
        )
        if (read.version is None) == (read.revision is None):
            raise fields.error("", "expected a version or a revision")
        return read


def read_dependencies(table: Table, *, group: str = MAIN) -> tuple[Dependency, ...]:
    """Return the kernels of a table; mistakes are reported to its problems.

    Args:
        table: ``dependencies``, or one of the groups.
        group: Of those that name none themselves.
    """
    found = []
    for repo in table.members:
        if repo == INCLUDE:
            continue
        table.expect(repo)
        if not _REPO.fullmatch(repo):
            table.report("KY706", repo, f"not the name of a kernel: {repo!r}", 'write it as "org/name", in quotes')
            continue
        dependency = _dependency(repo, table, group)
        if dependency is not None:
            found.append(dependency)
    return tuple(found)


def read_groups(table: Table) -> tuple[Dependency, ...]:
    """Return the kernels of all groups; a group that includes another is named by the other's kernels as well."""
    own: dict[str, tuple[Dependency, ...]] = {}
    includes: dict[str, tuple[str, ...]] = {}
    for name in table.members:
        group = table.table(name)
        if group is None:
            continue
        if not _GROUP.fullmatch(name) or name == MAIN:
            table.report("KY706", name, f"not the name of a group: {name!r}", "use letters, digits, '.', '_' and '-'")
        included = group.members.get(INCLUDE)
        if isinstance(included, str):
            group.expect(INCLUDE)
            includes[name] = (included,)
        else:
            includes[name] = group.strings(INCLUDE) or ()
        own[name] = read_dependencies(group, group=name)
    for name, included in includes.items():
        for other in included:
            if other not in own:
                known = ", ".join(own)
                table.report("KY706", name, f"includes a group that there is not: {other!r}", f"known are {known}")
    found: list[Dependency] = []
    for name, dependencies in own.items():
        having = tuple(sorted(other for other in own if name in _closure(other, includes)))
        found += [replace(one, groups=having if one.groups == (name,) else one.groups) for one in dependencies]
    return tuple(found)


def merged(
    dependencies: Iterable[Dependency],
) -> tuple[tuple[Dependency, ...], tuple[str, ...]]:
    """Return each kernel once, sorted, with all groups that have it; and the names of those declared differently."""
    found: dict[str, Dependency] = {}
    differing: list[str] = []
    for one in dependencies:
        known = found.get(one.repo, one)
        if replace(known, groups=one.groups) != one:
            differing.append(one.repo)
        found[one.repo] = replace(known, groups=tuple(sorted({*known.groups, *one.groups})))
    return tuple(found[repo] for repo in sorted(found)), tuple(sorted(set(differing)))


def _closure(name: str, includes: Mapping[str, tuple[str, ...]]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += includes.get(one, ())
    return reached


def _dependency(repo: str, table: Table, group: str) -> Dependency | None:
    value = table.members[repo]
    if type(value) in {int, str}:
        return _checked(Dependency(repo, version=value, groups=(group,)), table, repo)
    own = table.table(repo)
    if own is None:
        return None
    is_number = isinstance(own.members.get("version"), int)
    dependency = Dependency(
        repo,
        version=own.take("version", int) if is_number else own.take("version", str),
        revision=own.take("revision", str),
        hub=own.take("hub", str),
        backend=own.take("backend", str),
        variants=own.strings("variants") or (),
        optional=bool(own.take("optional", bool)),
        marker=own.parsed("marker", _marker, hint="as in PEP 508: sys_platform == 'linux'"),
        groups=(own.take("group", str) or group,),
        trust=bool(own.take("trust", bool)),
    )
    own.finish()
    if dependency.backend is not None:
        own.one_of((*own.key, "backend"), dependency.backend, BACKENDS, "backend")
    if dependency.hub is not None and _CREDENTIALS.match(dependency.hub):
        what = "an address with a user or a password, which would end up in the lock"
        own.report("KY706", "hub", what, "write it without; credentials come from where the hub's kind looks for them")
    return _checked(dependency, table, repo)


def _checked(dependency: Dependency, table: Table, repo: str) -> Dependency | None:
    try:
        # Checks it; the text stays as it was written, and so does what the lock says.
        _ = dependency.wanted
    except InputError as error:
        table.report("KY706", repo, f"{repo}: {error.what}", 'write 1, "1.1.2", ">=1.1,<1.3", or { revision = "..." }')
        return None
    return dependency


def _marker(text: str) -> str:
    # What cannot be compared shows only when it is.
    Dependency("", marker=text).applies()
    # As it was written: how a marker is printed is for each release of `packaging` to say.
    return text
