"""What tests of ordered delivery share: an outbox that never polls by itself, and events that are numbers of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aftercommit import Fixed
from tests.support import Collector, World, painted

#: Long enough that whatever comes was called for, and not found by a look in between.
NEVER = "1h"

#: (key, number) pairs.
Seen = list[tuple[str, int]]


def ordered(world: World, handler: Callable[[Any], Any] | None = None, *, colour: str = "sync", **options: Any) -> Any:
    """An ordered outbox with one handler for `Counted`."""
    if world.database != "sqlite":
        make_ordered(world)
    settings = {"poll_interval": NEVER, "retry_policy": Fixed("20ms", max_attempts=3), **options}
    outbox = world.outbox(ordered=True, **settings)
    if handler is not None:
        outbox.handler("Counted", id="count")(painted(colour, handler))
    return outbox


def make_ordered(world: World) -> None:
    """The tables of a server are kept from test to test, and remember whether they are ordered."""
    with suppress(Exception):  # there are none yet
        world.change("UPDATE outbox_schema SET value = '1' WHERE name = 'ordered'")


async def write(outbox: Any, *numbers: int, key: str | None = "a", **fields: Any) -> list[str]:
    """In one transaction."""
    async with outbox.transaction():
        return [await outbox.write("Counted", str(number), key=key, **fields) for number in numbers]


def number_of(event: Any) -> int:
    return int(event.payload_json)


def of_key(seen: Iterable[tuple[str, int]], key: str) -> list[int]:
    return [number for each, number in seen if each == key]


class Handler:
    """Notes what it did; fails, waits or ends for ever on demand."""

    def __init__(self) -> None:
        self.seen = Collector()
        self.tries = Collector()
        self.fails: dict[int, int] = {}

    def __call__(self, event: Any) -> None:
        number = number_of(event)
        self.tries.add((event.key, number))
        if self.fails.get(number, 0) > 0:
            self.fails[number] -= 1
            raise RuntimeError(f"not yet: {number}")
        self.seen.add((event.key, number))
