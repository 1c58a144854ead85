"""The classes of payloads: what a handler's annotation names, and what type checkers let through as an event."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Protocol, TypeAlias, Union, get_args, get_origin, is_typeddict

import msgspec

from aftercommit.errors import InvalidPayloadType
from aftercommit.events.classes import marks_of
from aftercommit.events.codec import is_model
from aftercommit.events.names import name_of

_DECODABLE: Final = (
    msgspec.inspect.StructType,
    msgspec.inspect.DataclassType,  # attrs classes are told as these
    msgspec.inspect.TypedDictType,
    msgspec.inspect.NamedTupleType,
)


def classes(annotation: Any) -> Iterator[Any]:
    """The classes that an annotation names: itself, or the members of a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from classes(get_args(annotation)[0])
    elif origin is Union or origin is types.UnionType:
        for member in get_args(annotation):
            yield from classes(member)
    else:
        yield annotation


def family(annotation: Any) -> Iterator[Any]:
    """The classes of an annotation and all their subclasses, as far as they exist now."""
    waiting = list(classes(annotation))
    while waiting:
        kind = waiting.pop(0)
        yield kind
        if isinstance(kind, type) and not is_typeddict(kind):
            waiting.extend(kind.__subclasses__())


def named(annotation: Any, event_type: str) -> list[Any]:
    """Those of the family that have this name."""
    # Of each the last: dataclass(slots=True) leaves behind the class that it has copied.
    found = {full_name(plain(kind)): kind for kind in family(annotation) if event_type_of(plain(kind)) == event_type}
    return list(found.values())


def event_type_of(kind: type) -> str:
    """The name that events of a class are stored under."""
    marks = marks_of(kind)
    return (marks and marks.type) or name_of(kind.__name__, "event_type", 128)


def plain(kind: Any) -> type:
    """The class itself, also of a generic alias such as Changed[int]."""
    bare = get_origin(kind) or kind
    if not isinstance(bare, type):
        raise InvalidPayloadType(f"{bare!r} is no class of payloads", fix="name a class")
    return bare


def is_plain_data(kind: Any) -> bool:
    """Types that are no classes of somebody's own, and have no name or version: dict, list[int], Any."""
    return kind is Any or getattr(get_origin(kind) or kind, "__module__", "") == "builtins"


def fault_of(kind: Any) -> str | None:
    """What is wrong with a class, if neither msgspec nor pydantic can make objects of it."""
    if is_model(kind):
        return None
    try:
        info = msgspec.inspect.type_info(kind)
    except Exception as error:  # a field of a type that is not defined yet, or that msgspec refuses
        return str(error) or type(error).__name__
    return None if isinstance(info, _DECODABLE) else "it declares no fields"


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# For type checkers: the kinds of objects that are events by themselves, told by what their libraries give them.


class DataclassObject(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class AttrsObject(Protocol):
    __attrs_attrs__: ClassVar[Any]


class ModelObject(Protocol):
    __pydantic_fields__: ClassVar[dict[str, Any]]


class NamedTupleObject(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


class MessageObject(Protocol):
    """An object of a generated Protobuf class, for serializers of that format."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802  (Protobuf's name)


#: What write() takes without a name and a payload.
EventObject: TypeAlias = DataclassObject | AttrsObject | ModelObject | NamedTupleObject | MessageObject | msgspec.Struct
