"""oban: queues of jobs over psycopg, woken by NOTIFY."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import oban
import psycopg
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench import hand
from bench.peers.peer import Handler, Peer, chunks
from bench.servers.hand_postgres import BUSINESS

#: Its handlers are found by name, so whoever serves says here what to do.
_HANDLERS: Final[list[Handler]] = []


@oban.worker(queue="placed")
class Placed:
    async def process(self, job: Any) -> None:
        _HANDLERS[-1](job.args)


class Oban(Peer):
    is_slow = True

    def _pool(self) -> AsyncConnectionPool[Any]:
        return AsyncConnectionPool(self.place.url, min_size=4, max_size=10, open=False)

    async def set_up(self) -> None:
        async with self._pool() as pool:
            await install(pool)

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE oban_jobs")
        async with self._pool() as pool, oban.Oban(pool=pool) as client:
            for numbers in chunks(rows):
                await client.enqueue_many(*[Placed.new(hand.payload(number)) for number in numbers])
        self.place.run("VACUUM (ANALYZE) oban_jobs")

    def is_pending(self) -> bool:
        return self.is_any("oban_jobs WHERE state <> 'completed'")

    @asynccontextmanager
    async def serving(self, handler: Handler) -> AsyncIterator[None]:
        _HANDLERS.append(handler)
        queues: dict[str, Any] = {"placed": {"limit": 100, "debounce_interval": 0.001}}
        async with self._pool() as pool, oban.Oban(pool=pool, queues=queues):
            yield

    async def writer(self) -> _Writer:
        pool = self._pool()
        await pool.open()
        client = await oban.Oban(pool=pool, name="writer").start()
        return _Writer(pool, client, await psycopg.AsyncConnection.connect(self.place.url))


class _Writer:
    def __init__(self, pool: Any, client: Any, connection: Any) -> None:
        self._pool = pool
        self._client = client
        self._connection = connection

    async def write(self, number: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute(BUSINESS, hand.order(number))
            await self._client.enqueue(Placed.new(hand.payload(number)), conn=self._connection)

    async def close(self) -> None:
        await self._connection.close()
        await self._client.stop()
        await self._pool.close()
