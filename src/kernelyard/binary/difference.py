"""How two files differ, in sentences: what a person would look for, and never a dump of bytes.

Of two libraries it is told what the dynamic linker sees, then which device code, sections and texts differ; of two text
files a short difference of their lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from itertools import islice, takewhile

from kernelyard.binary.elf import DynamicSymbol, Elf, parse_elf
from kernelyard.binary.fatbin import DeviceCode, parse_device_code
from kernelyard.binary.image import ELF_MAGIC, BinaryError, Image
from kernelyard.errors import printable
from kernelyard.records import record

__all__ = ["Names", "file_difference"]

#: Of one kind: more than that are counted.
_MOST = 5
_MOST_LINES = 20
#: The time that a short difference of lines takes grows with the square of their number.
_MOST_LINES_COMPARED = 5_000
_LONGEST = 120
#: As `strings` has it, but longer: machine code is full of short ones.
_TEXT = re.compile(rb"[\t\x20-\x7e]{8,}")
#: What a linker makes of all else: tables of names and relocations, addresses. They differ as soon as anything moves.
_LINKERS = re.compile(r"\.(dyn(str|sym|amic)|(gnu\.)?hash|gnu\.version(_r)?|rela?\..*|plt.*|got.*|eh_frame_hdr|\w+tab)")
#: Machine code, and device code, which is compressed: what looks like a text there is none.
_WITHOUT_TEXTS = frozenset({".text", ".nv_fatbin", "__nv_relfatbin"})


@record(frozen=True, slots=True)
class Names:
    """What the two files are called in sentences."""

    one: str = "the first"
    other: str = "the second"


def file_difference(one: bytes, other: bytes, names: Names | None = None) -> tuple[str, ...]:
    """Return how two files differ, nothing where they are identical.

    Args:
        one: The content of the first.
        other: The content of the second.
        names: What they are called.
    """
    if one == other:
        return ()
    return tuple(_printable_lines(sentence) for sentence in _difference(one, other, names or Names()))


def _difference(one: bytes, other: bytes, names: Names) -> Iterable[str]:
    if one[:4] == other[:4] == ELF_MAGIC:
        try:
            return tuple(_elf_difference(one, other, names)) or (_bytes_difference(one, other, names),)
        except BinaryError as error:
            return (f"{_bytes_difference(one, other, names)}; more cannot be told, for one is damaged: {error.what}",)
    texts = _as_text(one), _as_text(other)
    if texts[0] is not None and texts[1] is not None:
        return _text_difference(texts[0], texts[1], names)
    return (_bytes_difference(one, other, names),)


def _printable_lines(sentence: str) -> str:
    return "\n".join(map(printable, sentence.split("\n")))


def _as_text(content: bytes) -> str | None:
    try:
        return None if b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None


def _text_difference(one: str, other: str, names: Names) -> Iterator[str]:
    lines = one.splitlines(), other.splitlines()
    if lines[0] == lines[1]:
        yield "the lines are the same, their ends differ"
        return
    if max(map(len, lines)) > _MOST_LINES_COMPARED:
        yield _first_difference(lines[0], lines[1], names)
        return
    shown = [
        _short(line) for line in islice(unified_diff(*lines, names.one, names.other, n=1, lineterm=""), _MOST_LINES + 1)
    ]
    yield "\n".join(shown[:_MOST_LINES] + (["..."] if len(shown) > _MOST_LINES else []))


def _first_difference(one: Sequence[str], other: Sequence[str], names: Names) -> str:
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    mine, theirs = (_short(repr(lines[same])) if same < len(lines) else "the end" for lines in (one, other))
    return f"line {same + 1:,} is the first that differs: {mine} in {names.one}, {theirs} in {names.other}"


def _bytes_difference(one: bytes, other: bytes, names: Names) -> str:
    if len(one) != len(other):
        return f"{_count(len(one), 'byte')} in {names.one}, {_count(len(other), 'byte')} in {names.other}"
    first, count = _differing(one, other)
    return f"{_count(count, 'byte')} of {len(one):,} differ, the first at offset {first:#x}"


def _differing(one: bytes, other: bytes) -> tuple[int, int]:
    """Return the offset of the first byte that differs between contents of one size, and how many do."""
    # As two large numbers: byte by byte in Python takes a second for every ten megabytes.
    mixed = (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
    return len(mixed) - len(mixed.lstrip(b"\0")), len(mixed) - mixed.count(0)


def _elf_difference(one: bytes, other: bytes, names: Names) -> Iterator[str]:
    images = Image(one), Image(other)
    kinds = [(image.machine, image.bits, image.type) for image in images]
    if kinds[0] != kinds[1]:
        yield f"they are for different machines or of different kinds: {_machine(images[0])} and {_machine(images[1])}"
        return
    if images[0].type != _RELOCATABLE:
        yield from _linkage(parse_elf(one), parse_elf(other), names)
    yield from _device_code(parse_device_code(one), parse_device_code(other), names)
    yield from _sections(images[0], images[1], names)


_RELOCATABLE = 1


def _machine(image: Image) -> str:
    return f"machine {image.machine}, {image.bits} bits, type {image.type}"


def _linkage(one: Elf, other: Elf, names: Names) -> Iterator[str]:
    for what, mine, theirs in (
        ("own name", one.soname, other.soname),
        ("search path (RPATH)", one.rpath, other.rpath),
        ("search path (RUNPATH)", one.runpath, other.runpath),
        ("dynamic linker", one.interpreter, other.interpreter),
        ("stack is executable", one.executable_stack, other.executable_stack),
        ("code is written to at load", one.text_relocations, other.text_relocations),
        ("static TLS", one.static_tls, other.static_tls),
    ):
        if mine != theirs:
            yield f"{what}: {_value(mine)} in {names.one}, {_value(theirs)} in {names.other}"
    yield from _only("needed library", one.needed, other.needed, names)
    if one.needed != other.needed and sorted(one.needed) == sorted(other.needed):
        yield f"needed libraries are in another order: {', '.join(one.needed)}; {', '.join(other.needed)}"
    yield from _only("needed version", _versions(one), _versions(other), names)
    yield from _only("undefined symbol", map(_versioned, one.undefined), map(_versioned, other.undefined), names)
    yield from _only("exported symbol", map(_versioned, one.exported), map(_versioned, other.exported), names)
    sizes = {symbol.name: symbol.size for symbol in one.exported}
    for symbol in other.exported:
        if symbol.size != sizes.get(symbol.name, symbol.size):
            mine, theirs = _count(sizes[symbol.name], "byte"), _count(symbol.size, "byte")
            yield f"exported symbol {symbol.name}: {mine} in {names.one}, {theirs} in {names.other}"


def _versions(elf: Elf) -> list[str]:
    return [f"{version} of {library}" for library, versions in elf.version_needs.items() for version in versions]


def _versioned(symbol: DynamicSymbol) -> str:
    return f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name


def _device_code(one: tuple[DeviceCode, ...], other: tuple[DeviceCode, ...], names: Names) -> Iterator[str]:
    mine, theirs = _by_kind(one), _by_kind(other)
    yield from _only("device code", mine.elements(), theirs.elements(), names)
    if mine == theirs:
        sizes = _sizes(one), _sizes(other)
        for kind in mine:
            if sizes[0][kind] != sizes[1][kind]:
                sums = [_count(sum(of[kind]), "byte") for of in sizes]
                yield f"device code {kind}: {sums[0]} in {names.one}, {sums[1]} in {names.other}"


def _by_kind(codes: Iterable[DeviceCode]) -> Counter[str]:
    return Counter(map(_kind, codes))


def _kind(code: DeviceCode) -> str:
    return f"{code.kind} {code.capability}" + (f" (PTX {code.ptx_isa})" if code.ptx_isa else "")


def _sizes(codes: Iterable[DeviceCode]) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for code in codes:
        sizes.setdefault(_kind(code), []).append(code.size)
    return sizes


def _sections(one: Image, other: Image, names: Names) -> Iterator[str]:
    contents = _contents(one), _contents(other)
    yield from _only("section", contents[0], contents[1], names)
    changed = [name for name in contents[0] if name in contents[1] and contents[0][name] != contents[1][name]]
    own = [name for name in changed if not _LINKERS.fullmatch(name)]
    for name in own:
        yield f"section {name}: {_bytes_difference(contents[0][name], contents[1][name], names)}"
    if len(own) < len(changed):
        yield f"tables of the linker differ: {', '.join(name for name in changed if name not in own)}"
    # Paths and times end up in texts: those tell more than where they stand.
    mine, theirs = (_texts(of[name] for name in own if name not in _WITHOUT_TEXTS) for of in contents)
    yield from _only("text", mine, theirs, names)


def _contents(image: Image) -> dict[str, bytes]:
    sections = image.sections()
    found: dict[str, bytes] = {}
    for section in sections:
        name = image.section_name(section, sections)
        found[name] = found.get(name, b"") + image.read(*image.section_extent(section))
    return found


def _texts(contents: Iterable[bytes]) -> list[str]:
    found = {match.decode() for content in contents for match in _TEXT.findall(content)}
    return sorted((repr(_short(text)) for text in found), key=lambda text: ("/" not in text, text))


def _only(what: str, one: Iterable[str], other: Iterable[str], names: Names) -> Iterator[str]:
    """Say what is in one of two collections only, each as often as it is there."""
    mine, theirs = Counter(list(one)), Counter(list(other))
    for name, found in ((names.one, mine - theirs), (names.other, theirs - mine)):
        listed = list(found.elements())
        if listed:
            more = f", and {len(listed) - _MOST:,} more" if len(listed) > _MOST else ""
            yield f"{what} only in {name}: {', '.join(listed[:_MOST])}{more}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
