"""One event in every shape that a payload class may have. Without postponed annotations: pydantic reads them."""

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pydantic.dataclasses


@dataclasses.dataclass
class Line:
    article: str
    price: Decimal


@dataclasses.dataclass
class OrderData:
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


@dataclasses.dataclass(frozen=True, slots=True)
class OrderSlots:
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


class OrderStruct(msgspec.Struct):
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


@attrs.define
class OrderAttrs:
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


@attrs.frozen(slots=False)
class OrderFrozenAttrs:
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


class OrderTuple(NamedTuple):
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


class OrderModel(pydantic.BaseModel):
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


class StrictOrderModel(OrderModel):
    model_config = pydantic.ConfigDict(strict=True, frozen=True, extra="forbid")


@pydantic.dataclasses.dataclass
class OrderPydanticData:
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


class OrderDict(TypedDict):
    number: int
    placed: datetime
    id: UUID
    lines: list[Line]


@dataclasses.dataclass
class Wrapped:
    """A model inside of a dataclass."""

    order: OrderModel
    more: list[OrderModel]


CLASSES: list[Any] = [
    OrderData,
    OrderSlots,
    OrderStruct,
    OrderAttrs,
    OrderFrozenAttrs,
    OrderTuple,
    OrderModel,
    StrictOrderModel,
    OrderPydanticData,
    OrderDict,
]


def order(kind: Any, number: int = 7) -> Any:
    return kind(
        number=number,
        placed=datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        id=UUID(int=2**127 + 1),
        lines=[Line("pen 🖊", Decimal("1.10")), Line("", Decimal("1E+3"))],
    )
