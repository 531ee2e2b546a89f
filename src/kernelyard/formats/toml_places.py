"""Where each key of a TOML document stands, so that a message can say ``build.toml:12:3``.

No TOML reader for Python keeps positions. The document is parsed a second time by tree-sitter, and only once there is
something to report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["KeyPath", "find_places", "written_keys"]

#: Keys and positions in lists from the top of the document down.
KeyPath: TypeAlias = tuple["str | int", ...]


def find_places(text: str) -> dict[KeyPath, tuple[int, int]]:
    """Return line and column, counted from 1 and in characters, of every key and list element of a valid document."""
    import tree_sitter_toml
    from tree_sitter import Language, Parser

    encoded = text.encode()
    walk = _Walk(encoded.split(b"\n"))
    for node in Parser(Language(tree_sitter_toml.language())).parse(encoded).root_node.named_children:
        if node.type == "pair":
            walk.pair((), node)
        elif node.type in {"table", "table_array_element"}:
            walk.table(node)
    return walk.places


class _Walk:
    """One walk over the syntax tree, collecting places."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines
        self.places: dict[KeyPath, tuple[int, int]] = {}
        self.array_lengths: dict[KeyPath, int] = defaultdict(int)

    def mark(self, path: KeyPath, node: Node) -> None:
        row, column = node.start_point
        characters = len(self.lines[row][:column].decode(errors="replace"))
        self.places.setdefault(path, (row + 1, characters + 1))

    def enter(self, base: KeyPath, node: Node) -> KeyPath:
        path = base
        for key, at in written_keys(node):
            # A table below an array of tables belongs to the newest element.
            if length := self.array_lengths.get(path):
                path = (*path, length - 1)
            path = (*path, key)
            self.mark(path, at)
        return path

    def table(self, node: Node) -> None:
        base = self.enter((), node.named_children[0])
        if node.type == "table_array_element":
            self.array_lengths[base] += 1
            base = (*base, self.array_lengths[base] - 1)
            self.mark(base, node)
        for child in node.named_children[1:]:
            if child.type == "pair":
                self.pair(base, child)

    def pair(self, base: KeyPath, node: Node) -> None:
        # A comment at the end of the line is the last child.
        self.value(self.enter(base, node.named_children[0]), node.named_children[1])

    def value(self, path: KeyPath, node: Node) -> None:
        if node.type == "inline_table":
            for child in node.named_children:
                if child.type == "pair":
                    self.pair(path, child)
        elif node.type == "array":
            elements = [child for child in node.named_children if child.type != "comment"]
            for number, child in enumerate(elements):
                self.mark((*path, number), child)
                self.value((*path, number), child)


def written_keys(node: Node) -> Iterator[tuple[str, Node]]:
    """Yield the parts of a key, which may be dotted and quoted, each with its node."""
    import tomli

    waiting = [node]  # not recursion: a key can have more parts than Python has stack
    while waiting:
        part = waiting.pop()
        if part.type == "dotted_key":
            waiting += reversed(part.named_children)
            continue
        written = (part.text or b"").decode()
        yield written if part.type == "bare_key" else next(iter(tomli.loads(f"{written} = 0"))), part
