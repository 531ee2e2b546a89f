"""What a build from a lock must not take of the machine: flags that ask for it, and files that no lock names.

What cannot be seen from here is kept away in other ways: the environment, the network, headers of the system.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernelyard.build.git import repository_top
from kernelyard.errors import BuildError, Place
from kernelyard.project.manifest_file import shown_path
from kernelyard.project.plan import ObjectGroup, VariantPlan
from kernelyard.project.plan_files import with_included
from kernelyard.project.sources import Project
from kernelyard.records import record

__all__ = ["refuse_machine", "refuse_reads"]

_CODE = "KY418"
#: `-march=native`, `-arch native`, `-Xcompiler=-mtune=native,-O3`.
_NATIVE = re.compile(r"(?:^|[=,])native(?:$|,)")
#: Options that read what no dependency file tells of.
_READS = ("@", "-B", "-ccbin", "-fauto-profile", "-fplugin", "-fprofile-use", "-optf", "-specs", "-wrapper")
_READS_LONG = ("compiler-bindir", "options-file", "specs", "sysroot")
_ABSOLUTE = re.compile(r"(?:^|[=,]|^-[A-Za-z]+)/")
#: A value that may look like anything, and the options that turn one path into another.
_NO_PATH = re.compile(r"-[DU]|-f\w+-prefix-map=")

_COMMENT = re.compile(rb"/\*.*?\*/|//[^\n]*", re.DOTALL)


@record(frozen=True, slots=True)
class _Suspect:
    pattern: re.Pattern[bytes]
    what: str
    hint: str


_SUSPECTS = (
    _Suspect(
        re.compile(rb"\b__TIMESTAMP__\b"),
        "__TIMESTAMP__ is the time at which this copy of the file was written",
        "take it out, or use __DATE__ and __TIME__: those are the same in every locked build",
    ),
    _Suspect(
        re.compile(rb"^[ \t]*#[ \t]*(?:include|include_next|import|embed)[ \t]*[\"<]/", re.MULTILINE),
        "a header that is included by an absolute path is one of this machine",
        "put it into the project, and include it by a path from there",
    ),
    _Suspect(
        re.compile(rb"\b__has_(?:include|include_next|embed)[ \t]*\([ \t]*[\"<]/"),
        "whether there is a file at an absolute path differs from machine to machine",
        "decide by a macro of `cxx-flags` or `cuda-flags`",
    ),
    _Suspect(
        re.compile(rb"\.incbin\b"),
        "the assembler reads a file with .incbin, which no dependency file tells of",
        "make an array of it, by a `generate` step for example",
    ),
)


def refuse_machine(project: Project, plans: Sequence[VariantPlan]) -> None:
    """Refuse flags and sources that take something of the machine into a build, as far as it can be told beforehand.

    Raises:
        BuildError: One does (KY418).
    """
    for plan in plans:
        for group in (plan.binding, *plan.groups):
            for flag, why in (*_of_machine(group.cxx_flags), *_of_machine(group.device_flags)):
                raise BuildError(
                    _CODE,
                    f"the flag {flag!r} {why}: a locked build gives the same bytes everywhere",
                    hint="take it out, or build without --locked",
                    place=Place(shown_path(project.root / "build.toml"), key=_key(plan, group)),
                )
            _refuse_texts(project.root / name for name in with_included(project, plan, group, group.sources))


def _key(plan: VariantPlan, group: ObjectGroup) -> str:
    if group is plan.binding:
        return "tvm-ffi" if plan.tvm_ffi else "torch"
    return f"kernel.{group.name}"


def _of_machine(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags that take something of the machine, and what."""
    for before, flag in zip(("", *flags), flags, strict=False):
        if _NO_PATH.match(flag) or before in {"-D", "-U"}:
            continue
        if _NATIVE.search(flag):
            yield flag, "asks for the CPU or GPU of the machine that builds"
        elif _reads(flag):
            yield flag, "has the compiler read something that no lock names"
        elif _ABSOLUTE.search(flag):
            yield flag, "names a path of this machine"


def _reads(flag: str) -> bool:
    if flag.startswith("--"):
        return flag.removeprefix("--").startswith(_READS_LONG)
    return flag.startswith(_READS)


def refuse_reads(project: Project, read: Iterable[Path], *, work: Path, parts: Iterable[Path]) -> None:
    """Refuse what compilers have read if it lies neither in the project nor in a part that is locked.

    Of a project in a repository its neighbours there count, too: a commit may have them, and whoever records one looks
    whether it has.

    Args:
        project: The author's.
        read: The sources and headers, as :func:`~kernelyard.build.headers.headers_read` has them.
        work: The folder of what builds make, whose texts are not the author's.
        parts: The folders of what is locked.

    Raises:
        BuildError: Something is of the machine (KY418).
    """
    locked, top = [part.resolve() for part in parts], repository_top(project.root)
    ours: list[Path] = []
    for path in read:
        real = path.resolve()
        if any(real.is_relative_to(part) for part in locked):
            continue
        if not real.is_relative_to(top):
            via = "" if real == path else f", by way of {path}"
            raise BuildError(
                _CODE,
                f"the compiler has read {real}{via}: it lies neither in the project nor in anything that is locked",
                hint="put it into the project, or see which flag or link leads there",
                place=Place(shown_path(project.root)),
            )
        if not real.is_relative_to(work):
            ours.append(path)
    _refuse_texts(ours)


def _refuse_texts(files: Iterable[Path]) -> None:
    for path in files:
        try:
            content = path.read_bytes()
        except OSError:  # whoever compiles it says so
            continue
        if not any(suspect.pattern.search(content) for suspect in _SUSPECTS):
            continue
        blanked = _COMMENT.sub(_blank, content)
        for suspect in _SUSPECTS:
            if match := suspect.pattern.search(blanked):
                line = blanked.count(b"\n", 0, match.start()) + 1
                place = Place(shown_path(Path(os.path.normpath(path))), line)
                raise BuildError(_CODE, suspect.what, hint=suspect.hint, place=place)


def _blank(comment: re.Match[bytes]) -> bytes:
    return b"\n" * comment[0].count(b"\n") or b" "
