"""The Debian mirrors that this machine's apt is told to use, read from its files: apt itself need not be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from kernelyard.records import record

__all__ = ["AptSource", "apt_proxy", "apt_sources"]

#: A source of another distribution, or of a vendor who publishes beside Debian, does not have Debian's packages.
_SUITE = re.compile(r"(bullseye|bookworm|trixie|forky|duke|sid|(old){0,2}stable|testing|unstable)(-[\w/-]+)?")
_ONE_LINE = re.compile(r"deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)\s+(.*)")
#: Texts come first: what looks like a comment inside of one is an address.
_WORD = re.compile(r'"[^"]*"|//[^\n]*|#[^\n]*|/\*.*?\*/|[{};]|[^\s{};"]+', re.DOTALL)


@record(frozen=True, slots=True)
class AptSource:
    """A place that packages come from.

    Attributes:
        address: Of the mirror, ending in a slash.
        suite: ``bookworm``, ``bookworm-updates``.
        components: ``main``, ``non-free``, ...
    """

    address: str
    suite: str
    components: tuple[str, ...]


def apt_sources(folder: Path = Path("/etc/apt")) -> tuple[AptSource, ...]:
    """Return the sources of Debian packages over HTTP, in the order of apt's files.

    A file that cannot be read says nothing; apt itself reports it. Lists of mirrors (``mirror+file:``) are not read.
    """
    parts = folder / "sources.list.d"
    found: list[AptSource] = []
    for path in (folder / "sources.list", *sorted(parts.glob("*.list"))):
        found += _one_line_sources(_text(path))
    for path in sorted(parts.glob("*.sources")):
        found += _stanza_sources(_text(path))
    return tuple(
        source
        for source in found
        if source.address.startswith(("http://", "https://"))
        and _SUITE.fullmatch(source.suite)
        and "main" in source.components
    )


def _one_line_sources(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        if match := _ONE_LINE.fullmatch(line.partition("#")[0].strip()):
            yield AptSource(_folder(match[1]), match[2], tuple(match[3].split()))


def _stanza_sources(text: str) -> Iterator[AptSource]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", lines):
        fields = {
            match[1].lower(): match[2].split() for match in re.finditer(r"(?m)^([\w-]+):(.*(?:\n[ \t].*)*)", stanza)
        }
        if "deb" not in fields.get("types", []) or fields.get("enabled") in (["no"], ["false"], ["0"]):
            continue
        for address in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield AptSource(_folder(address), suite, tuple(fields.get("components", [])))


def _folder(address: str) -> str:
    return address.rstrip("/") + "/"


def apt_proxy(url: str, folder: Path = Path("/etc/apt")) -> str | None:
    """Return the proxy that apt is told to use for an address; ``""`` for none at all, None where nothing is said."""
    settings: dict[str, str] = {}
    files = (path for path in sorted((folder / "apt.conf.d").glob("*")) if path.suffix in {"", ".conf"})
    for path in (*files, folder / "apt.conf"):
        settings |= _settings(_text(path))
    server = urlsplit(url).hostname or ""
    schemes = ("https", "http") if url.startswith("https:") else ("http",)
    for scheme in schemes:
        for name in (f"acquire::{scheme}::proxy::{server}", f"acquire::{scheme}::proxy"):
            if name in settings:
                return "" if settings[name] in {"DIRECT", "false"} else settings[name]
    return None


def _settings(text: str) -> dict[str, str]:
    """Return the values of an apt configuration by their names in small letters: ``acquire::http::proxy``."""
    settings, outer, words = {}, [], list[str]()
    for word in _WORD.findall(text):
        if word.startswith(("//", "#", "/*")):
            continue
        if word == "{":
            outer.append("::".join(words).lower())
            words = []
        elif word in {";", "}"}:
            # A name alone, without a value, sets nothing.
            if len(words) > 1:
                settings["::".join([*outer, words[0].lower()])] = words[-1]
            if word == "}" and outer:
                outer.pop()
            words = []
        else:
            words.append(word.strip('"'))
    return settings


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
