"""Events to handle, and the short ways to write and look at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic

from aftercommit import EventStatus
from tests.support import World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass
class OrderPlaced:
    order_id: int


class OrderShipped(msgspec.Struct):
    order_id: int


class OrderPaid(pydantic.BaseModel):
    order_id: int


@attrs.define
class OrderReturned:
    order_id: int


class OrderLost(TypedDict):
    order_id: int


@dataclass
class Parcel:
    weight: int


@dataclass
class Letter(Parcel):
    stamp: str


class Deliberate(Exception):
    """Raised by handlers."""


def declare(handlers: Any, colour: Colouring, function: Callable[..., Any], *route: Any, **options: Any) -> Any:
    """Declare a lambda or a function of either colour under a name."""
    return handlers.handler(*(route or ("A",)), **{"id": "h", **options})(colour(function))


async def write(outbox: Any, *events: Any, **fields: Any) -> None:
    """Write in one transaction: objects as they are, names with an empty payload."""
    async with outbox.transaction():
        for event in events:
            await (outbox.write(event, {}, **fields) if isinstance(event, str) else outbox.write(event, **fields))


def rows(world: World) -> list[tuple[str, str]]:
    """(handler id, status) of all rows, in the order of writing."""
    return [(row["handler_id"], EventStatus(row["status"]).name) for row in world.rows()]


def due_now(world: World) -> None:
    world.change("UPDATE outbox_event SET available_at = 0 WHERE status IN (0, 2)")


async def drain_all(world: World, outbox: Any, rounds: int = 20) -> None:
    """Deliver until nothing is left that could fall due."""
    for _ in range(rounds):
        due_now(world)
        await outbox.drain()
        if not world.rows("SELECT 1 FROM outbox_event WHERE status IN (0, 2)"):
            return
    raise AssertionError(f"still open: {rows(world)}")
