"""What a class says of its events: @outbox_event with type, key, context, version and serializer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar, is_typeddict, overload
from uuid import UUID

import msgspec

from aftercommit.errors import InvalidEvent, InvalidHeaders, InvalidName, InvalidPayloadType
from aftercommit.events.codec import Serializer
from aftercommit.events.expressions import getter_of
from aftercommit.events.fields import version_of
from aftercommit.events.names import described, name_of
from aftercommit.events.redact import error_text

C = TypeVar("C", bound=type)

#: An expression such as "order.id" or "#event.order.ref()", or a function of the object.
Getter = str | Callable[[Any], Any]

#: In the class's own namespace, so that it outlives the copy that dataclass(slots=True) and attrs make of a class.
_MARK = "__outbox_event__"


class Marks(msgspec.Struct, frozen=True):
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

    `key` and the values of `context` are expressions ("order.id", "#event.order.ref()") or functions of the object;
    both are checked here, against the class. `publish()` writes objects of marked classes, and of their subclasses, to
    the outbox.

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
            key=None if key is None else _key(kind, key),
            context=None if context is None else _context(kind, context),
            serializer=None if serializer is None else checked_serializer(serializer),
        )
        try:
            setattr(kind, _MARK, marks)
        except (TypeError, AttributeError) as error:
            raise InvalidPayloadType(
                f"{kind.__name__} takes no marks ({error})", fix="mark a class of your own that carries it"
            ) from error
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


def _key(kind: type, getter: Getter) -> Callable[[Any], Any]:
    """Takes the key of an object."""
    get = _function(kind, getter, "key")

    def key(value: Any) -> Any:
        try:
            found = get(value)
        except Exception as error:
            raise _untaken(InvalidName, f"the key of {kind.__name__}", getter, error) from error
        if found is None:
            raise InvalidName(
                f"the key of {kind.__name__} ({_shown(getter)}) is None", fix="set it, or pass key=… to write()"
            )
        return found

    return key


def _context(kind: type, context: Any) -> Callable[[Any], Mapping[str, str]]:
    """Takes the context of an object, by one function or entry by entry."""
    if isinstance(context, Mapping):
        for name in context:
            if not isinstance(name, str) or not name:
                raise InvalidPayloadType(f"the context of {kind.__name__} has the name {name!r}", fix="use strings")
        entries = {name: _entry(kind, name, getter) for name, getter in context.items()}
        return lambda value: {name: entry(value) for name, entry in entries.items()}
    if not callable(context):
        raise InvalidPayloadType(
            f"the context of {kind.__name__} is {context!r}",
            fix='pass a dict of names and attribute paths, {"customer": "order.customer_id"}, or a function',
        )
    get = _function(kind, context, "context")

    def whole(value: Any) -> Any:
        try:
            return get(value)
        except Exception as error:
            raise _untaken(InvalidHeaders, f"the context of {kind.__name__}", get, error) from error

    return whole


def _entry(kind: type, name: str, getter: Getter) -> Callable[[Any], str]:
    get, what = _function(kind, getter, name), f"the context entry {name!r} of {kind.__name__}"

    def entry(value: Any) -> str:
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

    return entry


def _function(kind: type, getter: Any, what: str) -> Callable[[Any], Any]:
    if isinstance(getter, str):
        return getter_of(kind, getter)
    if not callable(getter) or iscoroutinefunction(getter) or not _takes_one(getter):
        raise InvalidPayloadType(
            f"{what} of {kind.__name__} is {_shown(getter)}",
            fix='pass an attribute path such as "order.id", or a plain function of one argument',
        )
    return getter  # type: ignore[no-any-return]


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        signature(function).bind(None)
    except (TypeError, ValueError) as error:
        return isinstance(error, ValueError)  # a builtin without a signature
    return True


def _untaken(error_kind: type[InvalidEvent], what: str, getter: object, error: Exception) -> InvalidEvent:
    return error_kind(
        f"{what} could not be taken by {_shown(getter)}: {error_text(error)}",
        fix="make sure that every object has it, or pass it to write()",
    )


def _shown(getter: object) -> str:
    return repr(getter) if isinstance(getter, str) else described(getter)


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
