"""Choosing among the variants of the matrix: by name, by backend, by torch, by toolkit, or what this machine needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from kernelyard.build.matrix import MatrixEntry, default_names, serves_torch
from kernelyard.build.this_machine import can_be_fetched, variant_for
from kernelyard.errors import InputError
from kernelyard.formats.matrix import MatrixRules
from kernelyard.formats.ranges import VersionRange
from kernelyard.formats.tables import nearest
from kernelyard.formats.versions import Version
from kernelyard.load.system.description import System, describe_system
from kernelyard.records import record
from kernelyard.toolchain.matrix_rules import known_rules

__all__ = ["Selection", "matching", "select"]


@record(frozen=True, slots=True)
class Selection:
    """What is asked for of the matrix. Of each kind nothing stands for all; what is given of several has to be met.

    Attributes:
        globs: Over the whole names of variants.
        backend: Names of backends.
        torch: Ranges of torch that a variant is to run with; one for the stable ABI runs with all later ones too.
        cuda: Ranges of the toolkit; only variants for CUDA are meant then, unless ``backend`` names others.
        this_machine: Only what a torch and the GPUs that it sees need.
        machine: These; None for those of this process.
    """

    globs: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    torch: tuple[VersionRange, ...] = ()
    cuda: tuple[VersionRange, ...] = ()
    this_machine: bool = False
    machine: System | None = None

    @classmethod
    def parse(
        cls,
        *,
        globs: Iterable[str] = (),
        backend: Iterable[str] = (),
        torch: Iterable[str] = (),
        cuda: Iterable[str] = (),
        this_machine: bool = False,
        machine: System | None = None,
    ) -> Selection:
        """Read what was typed.

        Raises:
            InputError: A range of versions is none (KY401).
        """
        return cls(
            tuple(globs),
            tuple(backend),
            tuple(_range(text, "torch") for text in torch),
            tuple(_range(text, "cuda") for text in cuda),
            this_machine=this_machine,
            machine=machine,
        )

    def __bool__(self) -> bool:
        return bool(self.globs or self.backend or self.torch or self.cuda or self.this_machine)

    @classmethod
    def of(cls, selection: Selection | Sequence[str]) -> Selection:
        """Return a selection; globs stand for one of these alone."""
        return selection if isinstance(selection, Selection) else cls(globs=tuple(selection))

    @property
    def globs_alone(self) -> bool:
        """Whether nothing but names is asked for."""
        return not (self.backend or self.torch or self.cuda or self.this_machine)

    def options(self) -> list[str]:
        """Return the options of a command that ask for the same."""
        asked = {"--variant": self.globs, "--backend": self.backend, "--torch": self.torch, "--cuda": self.cuda}
        words = [word for option, values in asked.items() for value in values for word in (option, str(value))]
        return [*words, *(["--this-machine"] if self.this_machine else [])]


def select(
    entries: Sequence[MatrixEntry],
    selection: Selection | Sequence[str],
    *,
    rules: MatrixRules | None = None,
    cuda: Version | None = None,
) -> tuple[MatrixEntry, ...]:
    """Return the entries that are asked for; where nothing is, what is built by default.

    A glob or a range of toolkits that has some of what is built by default takes those only: ``*-cuda-*`` and ``*`` are
    not meant to fetch every toolkit there is. Of a torch it takes the toolkit that is the default for it.

    Args:
        entries: Of the matrix.
        selection: What is asked for; globs over names stand for a selection of these.
        rules: What the matrix was made by; None for those of the package alone.
        cuda: The toolkit that is built with by default; None for the usual one.

    Raises:
        InputError: Nothing is what is asked for (KY401), or only what cannot be built here, or nothing can, or the
            toolkit that was asked for cannot be used (KY402).
    """
    asked = Selection.of(selection)
    if not asked:
        _refuse_left_out(entries)
        usable = tuple(entry for entry in entries if entry.obstacle is None and entry.by_default)
        if not usable:
            raise InputError("KY402", f"nothing can be built here: {_reasons(entries) or 'the matrix is empty'}")
        return usable
    kept = _by_properties(entries, asked)
    if asked.this_machine:
        return (variant_for(asked.machine or describe_system(), matching(kept, Selection(globs=asked.globs))),)
    if asked.globs:
        return _unique(entry for glob in asked.globs for entry in _by_glob(kept, glob))
    _refuse_impossible(kept)
    if asked.cuda:
        others = [entry for entry in kept if _backend(entry) != "cuda"]
        of_cuda = [entry for wanted in asked.cuda for entry in _by_toolkit(kept, wanted)]
        return _unique([*of_cuda, *_preferred(others)])
    _refuse_left_out(kept)
    if asked.torch:
        return _by_default_of_torch(kept, rules or known_rules(), cuda)
    return _preferred(kept)


def matching(entries: Sequence[MatrixEntry], selection: Selection) -> tuple[MatrixEntry, ...]:
    """Return all entries that are asked for, whether they are built by default or not, and can be built or not.

    Raises:
        InputError: Nothing is what is asked for (KY401).
    """
    kept = _by_properties(entries, selection)
    if not selection.globs:
        return tuple(kept)
    return _unique(entry for glob in selection.globs for entry in _named(kept, glob))


def _range(text: str, option: str) -> VersionRange:
    try:
        return VersionRange.parse(text)
    except ValueError as error:
        hint = f"for example --{option} {_EXAMPLES[option]}"
        raise InputError("KY401", str(error), hint=hint) from None


_EXAMPLES = {"torch": "2.13 or --torch '>=2.13'", "cuda": "13.0 or --cuda 12"}


def _by_properties(entries: Sequence[MatrixEntry], asked: Selection) -> list[MatrixEntry]:
    """Return what is for the backends, torches and toolkits asked for.

    Raises:
        InputError: There is no such variant (KY401).
    """
    kept = list(entries)
    if asked.backend:
        backends = sorted({_backend(entry) for entry in kept})
        for name in asked.backend:
            if name not in backends:
                hint = nearest(name, backends) or f"it has {', '.join(backends)}"
                raise InputError("KY401", f"the kernel has no variant for the backend {name!r}", hint=hint)
        kept = [entry for entry in kept if _backend(entry) in asked.backend]
    if asked.torch:
        known = known_rules().torch
        there = [entry for entry in kept if entry.variant is not None]
        kept = [entry for entry in there if entry.variant and serves_torch(entry.variant, asked.torch, known)]
        if not kept:
            what = f"no variant is for torch {_joined(asked.torch)}"
            raise InputError("KY401", what, hint=f"there are variants for {_torches(there)}")
    if asked.cuda:
        there = [entry for entry in kept if _backend(entry) == "cuda"]
        others = [entry for entry in kept if _backend(entry) in asked.backend and _backend(entry) != "cuda"]
        found = [entry for entry in there if _has_toolkit(entry, asked.cuda)]
        if not found:
            what = f"no variant is for CUDA {_joined(asked.cuda)}"
            raise InputError("KY401", what, hint=_toolkits_hint(there, asked.cuda[0]))
        kept = [*found, *others]
    return kept


def _has_toolkit(entry: MatrixEntry, wanted: Iterable[VersionRange]) -> bool:
    if entry.variant is None:
        return False
    toolkit = entry.variant.backend_version
    return toolkit is None or any(toolkit in one for one in wanted)


def _torches(entries: Iterable[MatrixEntry]) -> str:
    variants = [entry.variant for entry in entries if entry.variant is not None]
    exact = sorted({one.framework_version for one in variants if one.framework == "torch" and one.framework_version})
    open_ = [one.framework_version for one in variants if one.framework == "torch-stable-abi" and one.framework_version]
    texts = [", ".join(map(str, exact))] if exact else []
    texts += [f"{min(open_)} and later"] if open_ else []
    return "torch " + ", and ".join(texts) if texts else "no torch in particular"


def _toolkits_hint(entries: Iterable[MatrixEntry], asked: VersionRange) -> str:
    found = {entry.variant.backend_version for entry in entries if entry.variant is not None}
    known = sorted(toolkit for toolkit in found if toolkit is not None)
    if not known:
        return "there are no variants for CUDA"
    _, bound = asked.clauses[0]
    older = [toolkit for toolkit in known if toolkit.major == bound.major and toolkit <= bound]
    serves = f"a variant for CUDA {older[-1]} serves it too; " if older and asked.names_one else ""
    return f"{serves}there are variants for CUDA {', '.join(map(str, known))}"


def _joined(ranges: Iterable[VersionRange]) -> str:
    return " or ".join(map(str, ranges))


def _backend(entry: MatrixEntry) -> str:
    return entry.variant.backend if entry.variant is not None else entry.name


def _named(entries: Sequence[MatrixEntry], glob: str) -> list[MatrixEntry]:
    """Return the entries that a glob names.

    Raises:
        InputError: There are none (KY401).
    """
    found = [entry for entry in entries if fnmatchcase(entry.name, glob)]
    if not found:
        names = [entry.name for entry in entries]
        hint = nearest(glob, names) or f"the matrix has {_few(names)}"
        if any(fnmatchcase(name, f"*{glob}*") for name in names):
            hint = f"a glob is for the whole name: --variant '*{glob}*'"
        raise InputError("KY401", f"no variant matches {glob!r}", hint=hint)
    return found


def _few(names: Sequence[str]) -> str:
    """Return names as a message can bear them: a kernel may have a hundred variants."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more: see `kernelyard variants --all`"


_SHOWN = 6


def _by_glob(entries: Sequence[MatrixEntry], glob: str) -> tuple[MatrixEntry, ...]:
    found = _named(entries, glob)
    _refuse_impossible(found)
    if len(found) > 1:
        _refuse_left_out(found)
    return _preferred(found)


def _by_toolkit(entries: Sequence[MatrixEntry], wanted: VersionRange) -> tuple[MatrixEntry, ...]:
    found = [entry for entry in entries if _backend(entry) == "cuda" and _has_toolkit(entry, [wanted])]
    if wanted.names_one:
        _refuse_impossible(found)
        return _preferred(found)
    fetched = [entry for entry in found if can_be_fetched(entry) and entry.obstacle is None]
    return _preferred(fetched if fetched and not any(map(_is_default, found)) else found)


def _by_default_of_torch(
    entries: Sequence[MatrixEntry], rules: MatrixRules, cuda: Version | None
) -> tuple[MatrixEntry, ...]:
    """Return, for each torch and backend, the variants with the toolkit that is the default for it."""
    groups: dict[tuple[object, ...], list[MatrixEntry]] = {}
    for entry in entries:
        if entry.variant is not None:
            key = entry.variant.backend, entry.variant.framework, entry.variant.framework_version
            groups.setdefault(key, []).append(entry)
    chosen = []
    for group in groups.values():
        names = default_names(group, rules, cuda) if group[0].headers is not None else {group[0].name}
        chosen += [entry for entry in group if entry.name in names and entry.obstacle is None]
    return tuple(chosen)


def _preferred(entries: Sequence[MatrixEntry]) -> tuple[MatrixEntry, ...]:
    """Return those of some entries that are built by default, or all that can be where none is."""
    possible = tuple(entry for entry in entries if entry.obstacle is None)
    usual = tuple(entry for entry in possible if entry.by_default)
    return usual or possible


def _reasons(entries: Iterable[MatrixEntry]) -> str:
    """Return why variants cannot be built, each reason once."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry.obstacle is not None:
            names.setdefault(entry.obstacle, []).append(entry.name)
    return "; ".join(f"{some[0] if len(some) == 1 else f'{len(some)} variants'}: {why}" for why, some in names.items())


def _refuse_impossible(entries: Sequence[MatrixEntry]) -> None:
    if entries and all(entry.obstacle is not None for entry in entries):
        raise InputError("KY402", f"{entries[0].name} cannot be built here: {entries[0].obstacle}")


def _refuse_left_out(entries: Sequence[MatrixEntry]) -> None:
    """Refuse to build others in silence where what was asked for cannot be built."""
    left_out = next((entry for entry in entries if entry.by_default and entry.obstacle is not None), None)
    if left_out is not None:
        what = f"the CUDA toolkit that was asked for cannot be used, {left_out.name}: {left_out.obstacle}"
        hint = "ask for a toolkit that the manifest allows, change its bounds, or name other variants with --variant"
        raise InputError("KY402", what, hint=hint)


def _unique(entries: Iterable[MatrixEntry]) -> tuple[MatrixEntry, ...]:
    return tuple({entry.name: entry for entry in entries}.values())


def _is_default(entry: MatrixEntry) -> bool:
    return entry.by_default and entry.obstacle is None
