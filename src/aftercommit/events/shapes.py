"""For type checkers: the kinds of objects that are events by themselves, told by what their libraries give them."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec


class DataclassObject(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class AttrsObject(Protocol):
    """An object of an attrs class."""

    __attrs_attrs__: ClassVar[Any]


class ModelObject(Protocol):
    """An object of a pydantic model."""

    __pydantic_fields__: ClassVar[dict[str, Any]]


class NamedTupleObject(Protocol):
    """An object of a NamedTuple class."""

    def _asdict(self) -> dict[str, Any]: ...


class MessageObject(Protocol):
    """An object of a generated Protobuf class, for serializers of that format."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802  (Protobuf's name)


#: What write() takes without a name and a payload.
EventObject: TypeAlias = DataclassObject | AttrsObject | ModelObject | NamedTupleObject | MessageObject | msgspec.Struct
