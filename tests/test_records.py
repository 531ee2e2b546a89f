"""Records do as frozen dataclasses with slots do, which they are made beside here."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Generic, TypeVar

import pytest

from kernelyard.records import record

T = TypeVar("T")


@record(frozen=True, slots=True)
class Tile:
    """A part of a matrix."""

    name: str
    rows: int = 8
    tags: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)

    @property
    def size(self) -> int:
        return self.rows * self.rows


@dataclass(frozen=True, slots=True)
class Other:
    """The same, made by dataclass."""

    name: str
    rows: int = 8
    tags: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)


@record(frozen=True, slots=True)
class Point:
    """A place, which can be used as a key."""

    x: int
    y: int = 0


@record(frozen=True, slots=True)
class Labelled(Point):
    label: str = ""


@record(frozen=True, slots=True)
class Nothing:
    """Without a field."""


@record(frozen=True, slots=True)
class Box(Generic[T]):
    """Of something."""

    content: T


@record(frozen=True, slots=True)
class Checked:
    """Has rules of its own."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checked) and self.value % 10 == other.value % 10

    def __hash__(self) -> int:
        return self.value % 10

    def __repr__(self) -> str:
        return f"<{self.value}>"


@pytest.mark.parametrize("kind", [Tile, Other])
def test_arguments_are_taken_by_place_and_by_name_and_defaults_are_made_anew(kind: type[Tile]) -> None:
    one = kind("a")
    assert (one.name, one.rows, one.tags, one.note) == ("a", 8, [], "")
    assert kind("b").tags is not one.tags
    two = kind("a", 4, note="n", tags=["t"])
    assert (two.name, two.rows, two.tags, two.note) == ("a", 4, ["t"], "n")
    assert kind("a", 4, ["t"], "n") == two
    for args, named in (((), {}), (("a", 1, [], "", 5), {}), (("a",), {"name": "b"}), (("a",), {"color": 1})):
        with pytest.raises(TypeError, match=f"^{kind.__name__}.*(argument|arguments)"):
            kind(*args, **named)


@pytest.mark.parametrize("kind", [Tile, Other])
def test_nothing_can_be_set_or_deleted(kind: type[Tile]) -> None:
    one = kind("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'rows'"):
        one.rows = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'rows'"):
        del one.rows
    with pytest.raises((FrozenInstanceError, TypeError)):
        one.color = "red"  # type: ignore[attr-defined]
    assert one.rows == 8
    assert not hasattr(one, "__dict__")


def test_equality_hash_and_text_go_by_the_fields_that_count() -> None:
    assert Tile("a", note="x") == Tile("a", note="y")
    assert Tile("a") != Tile("a", 9)
    assert Tile("a") != ("a", 8, [], "")  # type: ignore[comparison-overlap]
    assert Point(1) != Labelled(1)
    assert {Point(1): "one"}[Point(1, 0)] == "one"
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(Tile("a"))
    assert (
        repr(Tile("a", note="x"))
        == repr(Other("a", note="x")).replace("Other", "Tile")
        == ("Tile(name='a', rows=8, tags=[])")
    )
    assert (repr(Nothing()), repr(Labelled(1, label="l"))) == ("Nothing()", "Labelled(x=1, y=0, label='l')")


def test_what_takes_dataclasses_takes_records() -> None:
    one = Tile("a", 4, ["t"], "n")
    assert is_dataclass(one)
    assert [each.name for each in fields(Tile)] == ["name", "rows", "tags", "note"]
    assert asdict(one) == {"name": "a", "rows": 4, "tags": ["t"], "note": "n"}
    assert replace(one, rows=5) == Tile("a", 5, ["t"])
    with pytest.raises(TypeError, match="color"):
        replace(one, color=1)  # type: ignore[call-arg]
    match one:
        case Tile(name, 4):
            assert name == "a"
        case _:
            pytest.fail("not matched")
    ours, theirs = (inspect.signature(kind).parameters for kind in (Tile, Other))
    assert [(each.name, each.kind, each.annotation) for each in ours.values()] == [
        (each.name, each.kind, each.annotation) for each in theirs.values()
    ]
    assert [each.default for each in ours.values()] == [inspect.Parameter.empty, 8, ..., ""]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_records_can_be_sent_to_another_process(protocol: int) -> None:
    one = Tile("a", 4, ["t"], "n")
    again = pickle.loads(pickle.dumps(one, protocol))  # noqa: S301 - our own
    assert (again, again.note) == (one, "n")
    assert again.tags is not one.tags


def test_copies_are_shallow_or_deep() -> None:
    one = Tile("a", 4, ["t"], "n")
    assert copy.copy(one).tags is one.tags
    assert copy.deepcopy(one) == one
    assert copy.deepcopy(one).tags is not one.tags


def test_methods_of_a_class_stay_its_own() -> None:
    assert Tile("a", 3).size == 9
    assert Checked(3) == Checked(13)
    assert len({Checked(3), Checked(13)}) == 1
    assert repr(Checked(3)) == "<3>"
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    assert Box[int](3).content == 3
    assert Labelled(1, 2, "l").y == 2


def test_a_record_is_frozen_and_has_slots() -> None:
    with pytest.raises(TypeError, match="take dataclass"):
        record(frozen=False, slots=True)
