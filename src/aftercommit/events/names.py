"""The names in an event: types of events and aggregates, ids and keys, checked and bounded."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar, Final, Self
from uuid import UUID

from aftercommit.errors import InvalidName

#: The aggregate type of an event that names none.
GLOBAL: Final = "__GLOBAL__"

#: The characters of a string as a `str` and no subclass: what is delivered now is what is read back later.
#: `str(text)` would not do: for a member of `class Kind(str, Enum)` it gives "Kind.MEMBER".
plain: Final[Callable[[str], str]] = str.__str__


class EventType(str):
    """The name of a kind of event. Strings and Enum members do as well wherever one is taken."""

    __slots__ = ()

    def __new__(cls, name: str | Enum) -> Self:
        return super().__new__(cls, name_of(name, "event_type", 128))

    @property
    def name(self) -> str:
        return plain(self)


class StringEventType(EventType):
    """A kind of event whose name is known at run time only: `StringEventType.of("UserCreated")`."""

    __slots__ = ()

    @classmethod
    def of(cls, name: str) -> Self:
        return cls(name)


class AggregateType(str):
    """The name of a kind of aggregate. Strings and Enum members do as well wherever one is taken."""

    __slots__ = ()
    #: That of an event that names none.
    GLOBAL: ClassVar[AggregateType]

    def __new__(cls, name: str | Enum) -> Self:
        return super().__new__(cls, name_of(name, "aggregate_type", 64))

    @property
    def name(self) -> str:
        return plain(self)


class StringAggregateType(AggregateType):
    """A kind of aggregate whose name is known at run time only: `StringAggregateType.of("User")`."""

    __slots__ = ()

    @classmethod
    def of(cls, name: str) -> Self:
        return cls(name)


def route_name(aggregate_type: str, event_type: str) -> str:
    """What an event is routed by, in words: an aggregate type that nobody has named is left out."""
    return event_type if aggregate_type == GLOBAL else f"{aggregate_type}/{event_type}"


def name_of(value: object, field: str, limit: int) -> str:
    """The text of a name: a string, or an Enum member (its name; its value when it is a string, as in StrEnum)."""
    if type(value) is str and 0 < len(value) <= limit and value.isprintable():
        return value  # as most are
    if isinstance(value, Enum):
        value = value.value if isinstance(value, str) else value.name
    if not isinstance(value, str):
        raise InvalidName(
            f"{field} is {shown(value)} of type {type(value).__name__}",
            fix=f"pass {field} as a string or an Enum member",
        )
    return _checked_text(plain(value), field, limit)


def text_of(value: object, field: str, limit: int) -> str:
    """The text of a key or id: a string, an int or a UUID."""
    if type(value) is str and 0 < len(value) <= limit and value.isprintable():
        return value  # as most are
    if isinstance(value, UUID):
        value = str(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = _digits(value, field, limit)
    if not isinstance(value, str):
        raise InvalidName(
            f"{field} is {shown(value)} of type {type(value).__name__}",
            fix=f"pass {field} as a string, an int or a UUID",
        )
    return _checked_text(plain(value), field, limit)


def is_utf8(text: str) -> bool:
    """False for text with a lone surrogate, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """A refused value for a message: short, whatever it is."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."


def described(thing: object) -> str:
    """The name of a function or class for people."""
    return getattr(thing, "__qualname__", None) or repr(thing)


def _digits(number: int, field: str, limit: int) -> str:
    # Beyond some thousand digits Python itself refuses, with an error that says nothing of the field.
    if number.bit_length() > 4 * limit:
        raise InvalidName(
            f"{field} is an int of {number.bit_length()} bits, the limit is {limit} characters", fix=f"shorten {field}"
        )
    return int.__repr__(number)  # the digits of an IntEnum member, too


def _checked_text(text: str, field: str, limit: int) -> str:
    if not text:
        raise InvalidName(f"{field} is '', which names nothing", fix=f"pass 1 to {limit} characters as {field}")
    if len(text) > limit:
        raise InvalidName(
            f"{field} has {len(text)} characters, the limit is {limit}: {shown(text)}", fix=f"shorten {field}"
        )
    if not text.isprintable() and ("\x00" in text or not is_utf8(text)):
        raise InvalidName(
            f"{field} {text!r} has a NUL or a lone surrogate, which databases refuse", fix=f"clean {field} first"
        )
    return text


AggregateType.GLOBAL = AggregateType(GLOBAL)
