"""Frozen dataclasses at a tenth of the cost: what ``dataclass`` compiles for each class is written here, for all.

Compiling takes most of a millisecond per class, and a process that loads a kernel meets sixty. Type checkers see
:func:`dataclasses.dataclass` and nothing else; ``fields``, ``replace``, ``asdict``, ``match``, ``copy`` and ``pickle``
do as with it.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["record"]

T = TypeVar("T")


class _Shape:
    """What the shared methods have to know of a class.

    Attributes:
        names: Of its fields.
        puts: What sets each of them, although the class is frozen.
        defaults: Name -> value, of those that have one.
        factories: Name -> function that makes one.
        compared: Returns what two of a class are equal by.
        shown: Names of the fields that ``repr`` shows.
    """

    __slots__ = ("compared", "defaults", "factories", "names", "puts", "shown")

    def __init__(self, cls: type) -> None:
        all_fields: tuple[Field[Any], ...] = fields(cls)
        self.names = tuple(one.name for one in all_fields)
        self.puts = tuple(getattr(cls, name).__set__ for name in self.names)
        self.defaults = {one.name: one.default for one in all_fields if one.default is not MISSING}
        factories = ((one.name, one.default_factory) for one in all_fields)
        self.factories = {name: factory for name, factory in factories if factory is not MISSING}
        compared = [one.name for one in all_fields if one.compare]
        self.compared = attrgetter(*compared) if compared else lambda _: ()
        self.shown = tuple(one.name for one in all_fields if one.repr)

    def bind(self, cls: type, args: tuple[object, ...], named: dict[str, object]) -> list[object]:
        """Return a value for each field, from the arguments of a call.

        Raises:
            TypeError: There are too many, too few, or unknown ones.
        """
        if len(args) > len(self.names):
            raise TypeError(f"{cls.__name__}() takes {len(self.names)} arguments but {len(args)} were given")
        values = list(args)
        for name in self.names[len(args) :]:
            if name in named:
                values.append(named.pop(name))
            elif name in self.defaults:
                values.append(self.defaults[name])
            elif name in self.factories:
                values.append(self.factories[name]())
            else:
                raise TypeError(f"{cls.__name__}() missing required argument: {name!r}")
        for name in named:
            what = "multiple values for" if name in self.names else "an unexpected keyword"
            raise TypeError(f"{cls.__name__}() got {what} argument {name!r}")
        return values


class _Signature:
    """Tells ``help`` and :mod:`inspect` the arguments of a class, when they ask."""

    def __get__(self, instance: object, owner: type) -> object:
        if owner.__init__ is not _init:  # type: ignore[misc]
            raise AttributeError("__signature__")
        from inspect import Parameter, Signature

        shape: _Shape = owner.__record__  # type: ignore[attr-defined]
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature(
            [
                Parameter(
                    one.name,
                    kind,
                    default=shape.defaults.get(one.name, ... if one.name in shape.factories else Parameter.empty),
                    annotation=one.type,
                )
                for one in fields(owner)
            ],
            return_annotation=None,
        )


def _init(self: Any, /, *args: object, **named: object) -> None:
    shape = self.__record__
    values = args if len(args) == len(shape.names) and not named else shape.bind(type(self), args, named)
    for put, value in zip(shape.puts, values):  # noqa: B905 - there is one for each
        put(self, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _eq(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented  # type: ignore[no-any-return]
    compared = self.__record__.compared
    return bool(compared(self) == compared(other))


def _hash(self: Any) -> int:
    return hash(self.__record__.compared(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__record__.shown)
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: object, name: str, value: object) -> NoReturn:
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> NoReturn:
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, name) for name in self.__record__.names]


def _setstate(self: Any, state: list[object]) -> None:
    for put, value in zip(self.__record__.puts, state, strict=True):
        put(self, value)


_METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
    "__signature__": _Signature(),
}

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen: bool, slots: bool) -> Callable[[type[T]], type[T]]:
        """Return the decorator of a class whose annotations are its fields, as ``dataclass(frozen=True, slots=True)``.

        Args:
            frozen: True; for those who read, and for type checkers.
            slots: True as well.
        """
        if not (frozen and slots):
            raise TypeError("a record is frozen and has slots; take dataclass")

        def decorate(cls: type[T]) -> type[T]:
            own = cls.__dict__
            methods = {name: method for name, method in _METHODS.items() if name not in own}
            if own.get("__hash__") is None:
                methods["__hash__"] = _hash
            if not cls.__doc__:
                cls.__doc__ = cls.__name__  # or dataclass would make one, which takes longer than all else
            made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
            for name, method in methods.items():
                setattr(made, name, method)
            made.__record__ = _Shape(made)
            return made

        return decorate
