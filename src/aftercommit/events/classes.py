"""What a class says of its events: @outbox_event with type, key, context, version and serializer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, is_typeddict, overload
from uuid import UUID

from aftercommit.errors import InvalidEvent, InvalidHeaders, InvalidName, InvalidPayloadType
from aftercommit.events.fields import version_of
from aftercommit.events.names import name_of
from aftercommit.events.paths import path_getter
from aftercommit.events.redact import error_text
from aftercommit.events.serializers import Serializer

C = TypeVar("C", bound=type)

#: An attribute path such as "order.id", or a function of the object.
Getter = str | Callable[[Any], Any]

#: In the class's own namespace, so that it outlives the copy that dataclass(slots=True) and attrs make of a class.
_MARK = "__outbox_event__"


@dataclass(frozen=True, slots=True)
class Marks:
    """What is declared for a class. A subclass has its own type and version, and inherits the rest."""

    type: str | None = None
    version: int = 1
    key: Callable[[Any], Any] | None = None
    context: Callable[[Any], Mapping[str, str]] | None = None
    serializer: Serializer | None = None


@overload
def outbox_event(kind: C, /) -> C: ...


@overload
def outbox_event(
    *,
    type: str | Enum | None = None,
    key: Getter | None = None,
    context: Mapping[str, Getter] | Callable[[Any], Mapping[str, str]] | None = None,
    version: int = 1,
    serializer: Serializer | None = None,
) -> Callable[[C], C]: ...


def outbox_event(
    kind: Any = None,
    /,
    *,
    type: str | Enum | None = None,
    key: Getter | None = None,
    context: Mapping[str, Getter] | Callable[[Any], Mapping[str, str]] | None = None,
    version: int = 1,
    serializer: Serializer | None = None,
) -> Any:
    """Say how objects of a class are written: under which type, with which key and context, in which format.

    `key` and the values of `context` are attribute paths ("order.id") or functions of the object; both are checked
    here, against the class. `publish()` writes objects of marked classes, and of their subclasses, to the outbox.

    >>> @outbox_event(type="order.placed", key="order_id")
    ... class OrderPlaced:
    ...     order_id: int
    """

    def mark(kind: C) -> C:
        if not isinstance(kind, _TYPE):
            raise InvalidPayloadType(f"@outbox_event was put on {kind!r}, which is no class", fix="put it on a class")
        _refuse_on_dicts(kind, key=key, context=context, serializer=serializer)
        marks = Marks(
            type=None if type is None else name_of(type, "event_type", 128),
            version=_version(kind, version),
            key=None if key is None else _Key(kind, key),
            context=None if context is None else _context(kind, context),
            serializer=None if serializer is None else checked_serializer(serializer),
        )
        _set(kind, marks)
        return kind

    return mark if kind is None else mark(kind)


_TYPE = type


def marks_of(kind: type) -> Marks | None:
    """What holds for a class; None when neither it nor a base of it is marked."""
    declared = [vars(base)[_MARK] for base in kind.__mro__ if _MARK in vars(base)]
    if not declared:
        return None
    own = declared[0] if _MARK in vars(kind) else Marks()
    return Marks(
        own.type,
        own.version,
        next((marks.key for marks in declared if marks.key), None),
        next((marks.context for marks in declared if marks.context), None),
        next((marks.serializer for marks in declared if marks.serializer), None),
    )


def checked_serializer(serializer: Any) -> Serializer:
    """An object with the three parts of a serializer."""
    if isinstance(serializer, type) or not isinstance(serializer, Serializer):
        raise InvalidPayloadType(
            f"the serializer {serializer!r} has no content_type, encode() and decode()",
            fix="pass an object such as JsonSerializer()",
        )
    name_of(serializer.content_type, "content_type", 128)
    return serializer


class _Key:
    """The key of an object."""

    def __init__(self, kind: type, getter: Getter) -> None:
        self._name = kind.__name__
        self._getter = getter
        self._get = _function(kind, getter, "key")

    def __call__(self, value: Any) -> Any:
        try:
            key = self._get(value)
        except Exception as error:
            raise _untaken(InvalidName, f"the key of {self._name}", self._getter, error) from error
        if key is None:
            raise InvalidName(
                f"the key of {self._name} ({_shown(self._getter)}) is None", fix="set it, or pass key=… to write()"
            )
        return key


class _Entries:
    """The context of an object, entry by entry."""

    def __init__(self, kind: type, entries: Mapping[str, Getter]) -> None:
        self._name = kind.__name__
        self._entries = [(name, getter, _function(kind, getter, name)) for name, getter in entries.items()]

    def __call__(self, value: Any) -> dict[str, str]:
        return {name: self._entry(name, getter, get, value) for name, getter, get in self._entries}

    def _entry(self, name: str, getter: Getter, get: Callable[[Any], Any], value: Any) -> str:
        what = f"the context entry {name!r} of {self._name}"
        try:
            found = get(value)
        except Exception as error:
            raise _untaken(InvalidHeaders, what, getter, error) from error
        if isinstance(found, int | UUID) and not isinstance(found, bool | Enum):
            return str(found)
        if not isinstance(found, str):
            raise InvalidHeaders(
                f"{what} ({_shown(getter)}) is of type {_TYPE(found).__name__}",
                fix="give a string, an int or a UUID, or leave the entry out",
            )
        return found


class _Whole:
    """The context of an object, by one function."""

    def __init__(self, kind: type, getter: Callable[[Any], Any]) -> None:
        self._name = kind.__name__
        self._get = _function(kind, getter, "context")

    def __call__(self, value: Any) -> Any:
        try:
            return self._get(value)
        except Exception as error:
            raise _untaken(InvalidHeaders, f"the context of {self._name}", self._get, error) from error


def _context(kind: type, context: Any) -> Callable[[Any], Mapping[str, str]]:
    if not isinstance(context, Mapping):
        if not callable(context):
            raise InvalidPayloadType(
                f"the context of {kind.__name__} is {context!r}",
                fix='pass a dict of names and attribute paths, {"customer": "order.customer_id"}, or a function',
            )
        return _Whole(kind, context)
    for name in context:
        if not isinstance(name, str) or not name:
            raise InvalidPayloadType(f"the context of {kind.__name__} has the name {name!r}", fix="use strings")
    return _Entries(kind, context)


def _function(kind: type, getter: Any, what: str) -> Callable[[Any], Any]:
    if isinstance(getter, str):
        return path_getter(kind, getter)
    if not callable(getter) or iscoroutinefunction(getter) or not _takes_one(getter):
        raise InvalidPayloadType(
            f"{what} of {kind.__name__} is {_shown(getter)}",
            fix='pass an attribute path such as "order.id", or a plain function of one argument',
        )
    return getter  # type: ignore[no-any-return]


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _untaken(error_kind: type[InvalidEvent], what: str, getter: object, error: Exception) -> InvalidEvent:
    return error_kind(
        f"{what} could not be taken by {_shown(getter)}: {error_text(error)}",
        fix="make sure that every object has it, or pass it to write()",
    )


def _shown(getter: object) -> str:
    return repr(getter) if isinstance(getter, str) else getattr(getter, "__qualname__", None) or repr(getter)


def _version(kind: type, version: int) -> int:
    try:
        return version_of(version)
    except InvalidEvent as error:
        raise InvalidPayloadType(f"the version of {kind.__name__} is {version!r}", fix=error.fix) from error


def _refuse_on_dicts(kind: type, **declared: object) -> None:
    given = [name for name, value in declared.items() if value is not None]
    if given and is_typeddict(kind):
        raise InvalidPayloadType(
            f"{kind.__name__} is a TypedDict, whose objects are plain dicts, so {', '.join(given)} would never be used",
            fix="declare only type and version, or use a dataclass",
        )


def _set(kind: type, marks: Marks) -> None:
    try:
        setattr(kind, _MARK, marks)
    except (TypeError, AttributeError) as error:
        raise InvalidPayloadType(
            f"{kind.__name__} takes no marks ({error})", fix="mark a class of your own that carries it"
        ) from error
