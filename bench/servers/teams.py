"""Who writes: clients by hand, clients of one outbox, and clients whose own transactions the outbox joins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.servers.clients import Opens


class Owned:
    """`with outbox.transaction()`."""

    def __init__(self, outbox: Outbox, business: str) -> None:
        self._outbox = outbox
        self._business = business

    def write(self, number: int, key: str | None = None) -> None:
        with self._outbox.transaction() as tx:
            tx.execute(self._business, hand.order(number))
            self._outbox.write("OrderPlaced", hand.payload(number), key=key)

    def close(self) -> None:
        """The outbox has the connection."""


class AsyncOwned:
    """The same, awaited."""

    def __init__(self, outbox: AsyncOutbox, business: str) -> None:
        self._outbox = outbox
        self._business = business

    async def write(self, number: int, key: str | None = None) -> None:
        async with self._outbox.transaction() as tx:
            await tx.execute(self._business, hand.order(number))
            await self._outbox.write("OrderPlaced", hand.payload(number), key=key)

    async def close(self) -> None:
        """The outbox has the connection."""


class Pooled:
    """By hand, on another connection of a pool each time."""

    def __init__(self, by_hand: Any, pool: Any) -> None:
        self._by_hand = by_hand
        self._pool = pool

    async def write(self, number: int) -> None:
        async with self._pool.acquire() as self._by_hand.connection:
            await self._by_hand.write(number)

    async def close(self) -> None:
        """The pool has the connection."""


def joined(by_hand: Any, outbox: Any) -> Any:
    """By hand but for the event, which the outbox writes on the same connection."""
    by_hand.event = lambda number: outbox.write("OrderPlaced", hand.payload(number), tx=by_hand.connection)
    return by_hand


# ---------------------------------------------------------------- threads


@contextmanager
def by_hand(make: Callable[[], Any]) -> Iterator[Opens]:
    yield lambda: make().open()


@contextmanager
def owned(url: str, business: str) -> Iterator[Opens]:
    outbox = Outbox(url)
    yield lambda: Owned(outbox, business)
    outbox.close()


@contextmanager
def joining(url: str, make: Callable[[], Any]) -> Iterator[Opens]:
    outbox = Outbox(url)
    yield lambda: joined(make().open(), outbox)
    outbox.close()


# ---------------------------------------------------------------- asyncio


@asynccontextmanager
async def by_hand_async(make: Callable[[], Any]) -> AsyncIterator[Opens]:
    yield lambda: make().open()


@asynccontextmanager
async def by_hand_in_asyncpg_pool(make: Callable[[], Any], url: str, clients: int) -> AsyncIterator[Opens]:
    """By hand on a connection that is taken from the pool for each transaction, and given back."""
    async with asyncpg.create_pool(url, min_size=clients, max_size=clients + 1) as pool:

        async def opens() -> Pooled:
            return Pooled(make(), pool)

        yield opens


@asynccontextmanager
async def owned_async(url: str, business: str) -> AsyncIterator[Opens]:
    outbox = AsyncOutbox(url)

    async def opens() -> AsyncOwned:
        return AsyncOwned(outbox, business)

    yield opens
    await outbox.close()


@asynccontextmanager
async def owned_in_asyncpg_pool(url: str, business: str, clients: int) -> AsyncIterator[Opens]:
    """The user's pool as asyncpg makes it, with its statement cache, and a connection for each client."""
    async with asyncpg.create_pool(url, min_size=clients, max_size=clients + 1) as pool:
        outbox = AsyncOutbox(pool)

        async def opens() -> AsyncOwned:
            return AsyncOwned(outbox, business)

        yield opens
        await outbox.close()


@asynccontextmanager
async def joining_async(url: str, make: Callable[[], Any]) -> AsyncIterator[Opens]:
    outbox = AsyncOutbox(url)

    async def opens() -> Any:
        return joined(await make().open(), outbox)

    yield opens
    await outbox.close()
