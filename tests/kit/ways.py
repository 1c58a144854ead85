"""A program whose outbox is on a server that does not exist, and the ways in which a test may be written for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from aftercommit import AsyncOutbox, Outbox
from aftercommit.runtime.threads import run
from aftercommit.testing import AsyncOutboxTest, OutboxTest

#: Nobody answers there, and nobody asks.
NOWHERE = "postgresql://shop:secret@nowhere.invalid/shop"


@dataclass
class OrderPlaced:
    order_id: int
    total: int = 0


@dataclass
class OrderPaid:
    order_id: int


async def value(given: Any) -> Any:
    """What the kit gives, in either colour."""
    return await given if isawaitable(given) else given


class Way:
    """An outbox of one colour, and a test of one colour."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_async_outbox = name != "Outbox"
        self.is_async_test = name == "AsyncOutbox in an async test"

    def outbox(self, target: Any = NOWHERE, **options: Any) -> Any:
        return AsyncOutbox(target, **options) if self.is_async_outbox else Outbox(target, **options)

    def play(self, outbox: Any, scenario: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        """Run a scenario with the kit. Under threads nothing in it ever suspends."""

        async def main() -> None:
            with AsyncOutboxTest(outbox) as kit:
                await scenario(kit)

        if self.is_async_test:
            asyncio.run(main())
        else:
            with OutboxTest(outbox) as kit:
                run(scenario(kit))


WAYS = ("Outbox", "AsyncOutbox in a sync test", "AsyncOutbox in an async test")
