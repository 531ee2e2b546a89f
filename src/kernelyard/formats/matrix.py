"""Which torches, toolkits and platforms are built for: ``matrix.toml`` of the package, of a team or of a project.

All have one format. A later one adds to an earlier one, or narrows it. Specification: ``docs/matrix.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kernelyard.formats.editions import parse_toml
from kernelyard.formats.ranges import VersionRange
from kernelyard.formats.tables import Problems, Table
from kernelyard.formats.versions import Version
from kernelyard.records import record

__all__ = ["MatrixRules", "Narrowing", "PlatformRule", "ToolkitRule", "TorchRule", "matrix_rules", "read_matrix_rules"]

K = TypeVar("K")
T = TypeVar("T")

_BOUND_HINT = 'for example ">=2.13", "13.0" or ">=2.11,<2.14"'


@record(frozen=True, slots=True)
class TorchRule:
    """What is to know of one version of torch.

    Attributes:
        cuda: The major versions of CUDA that there are builds of it for; None where nothing is said.
        default: Whether it is built for where nothing is selected; None where nothing is said.
    """

    cuda: tuple[int, ...] | None = None
    default: bool | None = None


@record(frozen=True, slots=True)
class ToolkitRule:
    """What is to know of one CUDA toolkit.

    Attributes:
        static_runtime: Whether its runtime can be linked in.
        default: Whether it is built with where nothing is selected.
    """

    static_runtime: bool | None = None
    default: bool | None = None


@record(frozen=True, slots=True)
class PlatformRule:
    """What is to know of one platform.

    Attributes:
        cuda_from: The first torch whose headers for it know CUDA; None for all.
    """

    cuda_from: Version | None = None


@record(frozen=True, slots=True)
class Narrowing:
    """What one file leaves of the matrix. Of each kind, None leaves all.

    Attributes:
        where: The file, as messages name it.
        torch: One of these ranges has a torch that is kept.
        cuda: One of these ranges has a toolkit that is kept.
        platforms: Those that are kept.
    """

    where: str
    torch: tuple[VersionRange, ...] | None = None
    cuda: tuple[VersionRange, ...] | None = None
    platforms: tuple[str, ...] | None = None


@record(frozen=True, slots=True)
class MatrixRules:
    """What one file says, or several that were laid over each other.

    Attributes:
        torch: Versions of torch.
        cuda: Versions of the toolkit.
        platforms: By name: ``x86_64-linux``.
        stable_abi_headers: The oldest torch whose headers the stable ABI is built with.
        tvm_ffi: The version that variants for tvm-ffi are named after.
        narrowings: What is left of all that.
    """

    torch: Mapping[Version, TorchRule]
    cuda: Mapping[Version, ToolkitRule]
    platforms: Mapping[str, PlatformRule]
    stable_abi_headers: Version | None = None
    tvm_ffi: Version | None = None
    narrowings: tuple[Narrowing, ...] = ()

    def under(self, other: MatrixRules) -> MatrixRules:
        """Return these rules with those of another file laid over them: what that says counts, where it says it."""
        return MatrixRules(
            torch=_laid(self.torch, other.torch, _torch_over),
            cuda=_laid(self.cuda, other.cuda, _toolkit_over),
            platforms=_laid(self.platforms, other.platforms, _platform_over),
            stable_abi_headers=other.stable_abi_headers or self.stable_abi_headers,
            tvm_ffi=other.tvm_ffi or self.tvm_ffi,
            narrowings=(*self.narrowings, *other.narrowings),
        )


def read_matrix_rules(text: str, *, path: str, known: MatrixRules | None = None) -> MatrixRules:
    """Read a file of its own.

    Args:
        text: The file's content.
        path: Where it stands, for messages.
        known: What versions and platforms there are; None takes all that the file names.

    Raises:
        ManifestError: It has mistakes; all that could be found are in ``errors``.
    """
    problems = Problems(path, text)
    rules = matrix_rules(Table(parse_toml(text, path=path), (), problems), known)
    problems.raise_any()
    return rules


def matrix_rules(table: Table, known: MatrixRules | None = None) -> MatrixRules:
    """Return what a table says; mistakes are reported to the table's problems.

    Args:
        table: A whole file, or a table of a project's settings.
        known: What versions and platforms there are; None takes all that it names.
    """
    torch = _versions(table, "torch", _torch, known.torch if known else None)
    cuda = _versions(table, "cuda", _toolkit, known.cuda if known else None)
    platforms = _platforms(table, known)
    stable_abi = _one(table, "stable-abi", "headers", known.torch if known else None)
    tvm_ffi = _one(table, "tvm-ffi", "version", None)
    narrowing = _narrowing(table, known)
    table.finish()
    return MatrixRules(torch, cuda, platforms, stable_abi, tvm_ffi, narrowing)


def _versions(
    table: Table, member: str, read: Callable[[Table], T], known: Mapping[Version, object] | None
) -> dict[Version, T]:
    found: dict[Version, T] = {}
    inner = table.table(member)
    for name in inner.members if inner is not None else ():
        assert inner is not None  # noqa: S101 - it has members
        of_one = inner.table(name)
        version = inner.parse((*inner.key, name), name, Version)
        if version is not None and known is not None and version not in known:
            inner.report("KY206", name, f"{_NOUN[member]} {version} is not known", _hint(inner, name, known))
        elif of_one is not None and version is not None:
            found[version] = read(of_one)
    return found


def _hint(table: Table, name: str, known: Mapping[Version, object]) -> str:
    """Return what is known; or, of `cuda.12.4` without quotes, which is a table in a table, how it is written."""
    members = table.members[name]
    minor = next((member for member in members if member.isdecimal()), None) if isinstance(members, dict) else None
    if minor is not None:
        return f'write the version in quotes: {table.key[-1]}."{name}.{minor}"'
    return f"known are {', '.join(map(str, sorted(known)))}"


_NOUN = {"torch": "torch", "cuda": "CUDA"}


def _torch(table: Table) -> TorchRule:
    majors = table.take("cuda", list)
    for number, value in enumerate(majors or ()):
        if type(value) is not int:
            what = "expected the major version of CUDA, an integer"
            table.problems.report("KY205", (*table.key, "cuda", number), what)
    default = table.take("default", bool)
    table.finish()
    numbers = tuple(value for value in majors if type(value) is int) if majors is not None else None
    return TorchRule(numbers, default)


def _toolkit(table: Table) -> ToolkitRule:
    rule = ToolkitRule(table.take("static-runtime", bool), table.take("default", bool))
    table.finish()
    return rule


def _platforms(table: Table, known: MatrixRules | None) -> dict[str, PlatformRule]:
    found = {}
    inner = table.table("platform")
    for name in inner.members if inner is not None else ():
        assert inner is not None  # noqa: S101 - it has members
        of_one = inner.table(name)
        if known is not None and inner.one_of((*inner.key, name), name, known.platforms, "platform") is None:
            continue
        if of_one is not None:
            found[name] = PlatformRule(of_one.parsed("cuda-from", Version))
            of_one.finish()
    return found


def _one(table: Table, member: str, key: str, known: Mapping[Version, object] | None) -> Version | None:
    inner = table.table(member)
    if inner is None:
        return None
    version = inner.parsed(key, Version, required=True)
    if version is not None and known is not None and version not in known:
        inner.report("KY206", key, f"torch {version} is not known", f"known are {', '.join(map(str, sorted(known)))}")
    inner.finish()
    return version


def _narrowing(table: Table, known: MatrixRules | None) -> tuple[Narrowing, ...]:
    inner = table.table("only")
    if inner is None:
        return ()
    torch = _ranges(inner, "torch", known.torch if known else None)
    cuda = _ranges(inner, "cuda", known.cuda if known else None)
    platforms = inner.strings("platforms")
    if platforms == () and inner.members.get("platforms") == []:
        inner.report("KY206", "platforms", "an empty list leaves nothing", "leave `platforms` out to keep all")
    for number, name in enumerate(platforms or ()):
        if known is not None:
            inner.one_of((*inner.key, "platforms", number), name, known.platforms, "platform")
    inner.finish()
    return (Narrowing(table.problems.path, torch, cuda, platforms),)


def _ranges(table: Table, member: str, known: Mapping[Version, object] | None) -> tuple[VersionRange, ...] | None:
    texts = table.strings(member)
    if texts is None:
        return None
    if not texts:
        table.report("KY206", member, "an empty list leaves nothing", f"leave `{member}` out to keep all")
    found = []
    for number, text in enumerate(texts):
        key = (*table.key, member, number)
        parsed = table.parse(key, text, VersionRange.parse, _BOUND_HINT)
        if parsed is None:
            continue
        # A narrowing that leaves nothing is a slip of the pen: `cuda = ["12.5"]`.
        if known is not None and not any(version in parsed for version in known):
            shown = ", ".join(map(str, sorted(known)))
            what = f"no version of {_NOUN[member]} is in {text!r}"
            table.problems.report("KY206", key, what, f"known are {shown}")
        found.append(parsed)
    return tuple(found)


def _laid(below: Mapping[K, T], above: Mapping[K, T], merge: Callable[[T, T], T]) -> dict[K, T]:
    return {**below, **{key: merge(below[key], rule) if key in below else rule for key, rule in above.items()}}


def _torch_over(below: TorchRule, above: TorchRule) -> TorchRule:
    return TorchRule(_said(above.cuda, below.cuda), _said(above.default, below.default))


def _toolkit_over(below: ToolkitRule, above: ToolkitRule) -> ToolkitRule:
    return ToolkitRule(_said(above.static_runtime, below.static_runtime), _said(above.default, below.default))


def _platform_over(below: PlatformRule, above: PlatformRule) -> PlatformRule:
    return PlatformRule(_said(above.cuda_from, below.cuda_from))


def _said(above: T | None, below: T | None) -> T | None:
    return below if above is None else above
