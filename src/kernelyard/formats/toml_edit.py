"""Changing a TOML document so that every byte that is not meant stays as it is.

The places come from tree-sitter, as in :mod:`kernelyard.formats.toml_places`. A library that holds a document as data,
such as tomlkit, keeps comments too, but puts new keys at the end of a table: behind the comment of the next one, and
behind the tables below it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kernelyard.formats.toml_places import KeyPath, written_keys
from kernelyard.records import record

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["TomlText"]


@record(frozen=True, slots=True)
class _Pair:
    """One ``key = value``: where it is, the last part of its key, and its value."""

    node: Node
    last: Node
    value: Node

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.node.start_byte

    @property
    def end(self) -> int:
        """Where its value ends: the node has the comment behind it too."""
        return self.value.end_byte

    @property
    def inline(self) -> bool:
        """Whether it stands between braces."""
        return self.node.parent is not None and self.node.parent.type == "inline_table"


class TomlText:
    """A valid TOML document and changes to it. Paths are those of the document as it was given.

    Arrays of tables are not looked into.
    """

    def __init__(self, text: str) -> None:
        import tree_sitter_toml
        from tree_sitter import Language, Parser

        self._bytes = text.encode()
        self._newline = b"\r\n" if b"\r\n" in self._bytes else b"\n"
        self._edits: list[tuple[int, int, bytes]] = []
        self._pairs: dict[KeyPath, _Pair] = {}
        self._tables: dict[KeyPath, Node] = {}
        self._parts: dict[KeyPath, list[Node]] = defaultdict(list)
        for node in Parser(Language(tree_sitter_toml.language())).parse(self._bytes).root_node.named_children:
            if node.type == "pair":
                self._walk_pair((), node)
            elif node.type == "table":
                self._walk_table(node)

    def text(self) -> str:
        """Return the document with all changes."""
        changed, end = b"", 0
        for start, stop, replacement in sorted(self._edits, key=lambda edit: edit[0]):
            changed += self._bytes[end:start] + replacement
            end = stop
        return (changed + self._bytes[end:]).decode()

    def rename(self, path: KeyPath, name: str) -> None:
        """Change the last part of a key wherever it is written."""
        for part in self._parts[path]:
            self._replace(part, name)

    def set_value(self, path: KeyPath, value: str) -> None:
        """Change the value of a key."""
        self._replace(self._pairs[path].value, value)

    def set_element(self, path: KeyPath, number: int, value: str) -> None:
        """Change an element of a list."""
        self._replace(_elements(self._pairs[path].value)[number], value)

    def remove_element(self, path: KeyPath, number: int) -> None:
        """Take an element out of a list; comments between the elements stay."""
        siblings = [child for child in self._pairs[path].value.children if child.type != "comment"]
        at = siblings.index(_elements(self._pairs[path].value)[number])
        comma = next((node for node in (siblings[at + 1], siblings[at - 1]) if node.type == ","), None)
        start, stop = siblings[at].start_byte, siblings[at].end_byte
        if comma is not None and comma.start_byte > start:
            blank = len(self._bytes[comma.end_byte :]) - len(self._bytes[comma.end_byte :].lstrip(b" \t"))
            stop = comma.end_byte + blank
        elif comma is not None:
            self._edits.append((comma.start_byte, comma.end_byte, b""))
        self._edits.append((*self._widened(start, stop), b""))

    def remove(self, path: KeyPath) -> None:
        """Take a key out, with its line; a comment at the end of the line stays."""
        pair = self._pairs[path]
        if not pair.inline:
            rest = self._bytes[pair.end : self._line_end(pair.end)]
            blank = len(rest) - len(rest.lstrip(b" \t"))
            self._edits.append((*self._widened(pair.start, pair.end + blank), b""))
            return
        after, before = pair.node.next_named_sibling, pair.node.prev_sibling
        if after is not None:
            self._edits.append((pair.start, after.start_byte, b""))
        else:
            start = before.start_byte if before is not None and before.type == "," else pair.start
            self._edits.append((start, pair.end, b""))

    def insert_after(self, path: KeyPath, name: str, value: str) -> None:
        """Add a key to the same table, on the line below."""
        pair = self._pairs[path]
        if pair.inline:
            self._insert(pair.end, f", {name} = {value}".encode())
        else:
            self._insert(self._line_end(pair.end), self._newline + self._line(pair, name, value))

    def insert_before(self, path: KeyPath, name: str, value: str) -> None:
        """Add a key to the same table, on the line above."""
        pair = self._pairs[path]
        if pair.inline:
            self._insert(pair.start, f"{name} = {value}, ".encode())
        else:
            self._insert(self._line_start(pair.start), self._line(pair, name, value) + self._newline)

    def keys(self, path: KeyPath) -> tuple[str, ...] | None:
        """Return the keys that stand directly in a table, in their order; None where there is no such table."""
        found = tuple(str(pair[-1]) for pair in self._pairs if pair[:-1] == path)
        written = path in self._tables or (path in self._pairs and self._pairs[path].value.type == "inline_table")
        return found if found or written else None

    def tables_in(self, path: KeyPath) -> list[str]:
        """Return the names of the tables in a table, however they are written."""
        below = (*self._tables, *(pair[:-1] for pair in self._pairs))
        return list(
            dict.fromkeys(str(one[len(path)]) for one in below if one[: len(path)] == path and len(one) > len(path))
        )

    def has_own_table(self, path: KeyPath) -> bool:
        """Whether a table stands under a header of its own."""
        return path in self._tables

    def insert_first(self, path: KeyPath, name: str, value: str) -> None:
        """Add a key to a table that has none."""
        if path in self._tables:
            header = self._tables[path].named_children[0]
            self._insert(self._line_end(header.end_byte), self._newline + f"{name} = {value}".encode())
        else:
            self._replace(self._pairs[path].value, f"{{ {name} = {value} }}")

    def remove_table(self, path: KeyPath) -> None:
        """Take a table out that stands under a header of its own, with its keys; comments below its last key stay."""
        table = self._tables[path]
        inside = [child for child in table.named_children if child.type == "pair"]
        stop = inside[-1].end_byte if inside else table.named_children[0].end_byte
        end = self._line_end(stop)
        start = self._line_start(table.start_byte)
        before = self._bytes[:start]
        if before.endswith(self._newline * 2) or not before:
            # The blank line that parts it from what is above goes with it.
            start -= len(self._newline) if before else 0
        self._edits.append((start, min(end + len(self._newline), len(self._bytes)), b""))

    def append_table(self, name: str) -> None:
        """Add an empty table at the end."""
        tail = b"" if self._bytes.endswith(b"\n") else self._newline
        self._insert(len(self._bytes), tail + self._newline + f"[{name}]".encode() + self._newline)

    def copy_table(self, path: KeyPath, name: str) -> bool:
        """Add a copy of a table below it, under another name; return whether it is written so that this can be done."""
        pair, table = self._pairs.get(path), self._tables.get(path)
        if pair is not None:
            start, stop, last = pair.start, pair.end, pair.last
            between = b", " if pair.inline else self._newline
        elif table is not None:
            inside = [child for child in table.named_children if child.type == "pair"]
            start, stop = (
                table.start_byte,
                (inside[-1].named_children[1] if inside else table.named_children[0]).end_byte,
            )
            last, between = self._parts[path][-1], self._newline * 2
        else:
            return False
        if pair is None or not pair.inline:
            stop = self._line_end(stop)
        copy = self._bytes[start : last.start_byte] + name.encode() + self._bytes[last.end_byte : stop]
        self._insert(stop, between + copy)
        return True

    def _walk_table(self, node: Node) -> None:
        path = self._walk_key((), node.named_children[0])[0]
        self._tables[path] = node
        for child in node.named_children[1:]:
            if child.type == "pair":
                self._walk_pair(path, child)

    def _walk_pair(self, base: KeyPath, node: Node) -> None:
        path, last = self._walk_key(base, node.named_children[0])
        value = node.named_children[1]
        self._pairs[path] = _Pair(node, last, value)
        if value.type == "inline_table":
            for child in value.named_children:
                if child.type == "pair":
                    self._walk_pair(path, child)

    def _walk_key(self, base: KeyPath, node: Node) -> tuple[KeyPath, Node]:
        path, last = base, node
        for name, part in written_keys(node):
            path, last = (*path, name), part
            self._parts[path].append(part)
        return path, last

    def _insert(self, at: int, what: bytes) -> None:
        self._edits.append((at, at, what))

    def _replace(self, node: Node, what: str) -> None:
        self._edits.append((node.start_byte, node.end_byte, what.encode()))

    def _line(self, pair: _Pair, name: str, value: str) -> bytes:
        """Return a line of the same table: as far in, and with the same key before the last part."""
        start = self._line_start(pair.start)
        return self._bytes[start : pair.last.start_byte] + f"{name} = {value}".encode()

    def _line_start(self, at: int) -> int:
        return self._bytes.rfind(b"\n", 0, at) + 1

    def _line_end(self, at: int) -> int:
        """Return where the line ends, before its line break."""
        found = self._bytes.find(b"\n", at)
        end = len(self._bytes) if found < 0 else found
        return end - 1 if self._bytes[at:end].endswith(b"\r") else end

    def _widened(self, start: int, stop: int) -> tuple[int, int]:
        """Return the whole line, with its break, if there is nothing else on it."""
        line, end = self._line_start(start), self._line_end(stop)
        if self._bytes[line:start].strip() or self._bytes[stop:end].strip():
            return start, stop
        return line, min(end + len(self._newline), len(self._bytes))


def _elements(array: Node) -> list[Node]:
    return [child for child in array.named_children if child.type != "comment"]
