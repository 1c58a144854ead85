"""Transactional handlers on every way to a database, whoever's transaction they take: one body for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from aftercommit.runtime.threads import run
from tests.support import Collector, World
from tests.transactions.sqlalchemy_kit import Shop

#: What a handler does: it gets the event, and a way to run SQL in its transaction.
Body = Callable[[Any, "Say"], Awaitable[object]]


class Say:
    """Runs SQL in the transaction of a handler, whatever it is."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    async def __call__(self, sql: str) -> Any:
        is_session = isinstance(self.tx, Session | AsyncSession)
        return await value_of(self.tx.execute(text(sql) if is_session else sql))

    async def insert(self, number: int) -> None:
        await self(f"INSERT INTO effect VALUES ({number})")


async def value_of(found: Any) -> Any:
    return await found if isawaitable(found) else found


class Place:
    """An outbox on a database, with a table for what handlers do."""

    def __init__(self, world: World, kind: str, shop: Shop | None = None) -> None:
        self.world, self.kind, self._shop = world, kind, shop
        self.called = Collector()

    def __repr__(self) -> str:
        return f"{self.world!r}, {self.kind}"

    def outbox(self, target: Any = None, **options: Any) -> Any:
        options = {"lock_timeout": "60s", "retry_policy": {"policy": "fixed", "delay": "1ms"}, **options}
        if self._shop is None:
            return self.world.outbox(target, **options)
        own = self._shop.engine if self.kind == "session" else self.world.url
        return self._shop.outbox(target or own, poller_enabled=True, **options)

    def run(self, scenario: Callable[[], Any]) -> None:
        async def whole() -> None:
            self.world.change("CREATE TABLE effect (n INTEGER)")
            await scenario()

        (self.world if self._shop is None else self._shop).run(whole)

    def handler(self, outbox: Any, body: Body, route: str = "A", **options: Any) -> Any:
        """Declare it in the colour of the world, with the transaction of this place."""

        def handle(event, tx):  # type: ignore[no-untyped-def]
            self.called.add(event)
            return run(body(event, Say(tx)))  # type: ignore[arg-type]

        async def handle_async(event, tx):  # type: ignore[no-untyped-def]
            self.called.add(event)
            return await body(event, Say(tx))

        handler = handle_async if self.world.is_async else handle
        if self.kind == "session":
            handler.__annotations__["tx"] = AsyncSession if self.world.is_async else Session
        return outbox.handler(route, **{"id": route, "transactional": True, **options})(handler)

    def effects(self) -> list[int]:
        """What is committed of it."""
        return sorted(row[0] for row in self.world.rows("SELECT n FROM effect"))


def place_of(way: str, kind: str, folder: Path, url: str | None) -> Place:
    shop = Shop(way, folder, url)
    return Place(shop.world, kind, shop)


def counters(outbox: Any) -> dict[str, int]:
    found: dict[str, int] = outbox._engine.meter.counts()
    return found
