"""pgqueuer: batches of jobs, woken by NOTIFY from a trigger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench import hand
from bench.peers.peer import BATCH, Handler, Peer, chunks, parse
from bench.servers.hand_postgres import BUSINESS, numbered


class Pgqueuer(Peer):
    async def set_up(self) -> None:
        connection = await asyncpg.connect(self.place.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE pgqueuer")
        connection = await asyncpg.connect(self.place.url)
        queries = Queries(AsyncpgDriver(connection))
        for numbers in chunks(rows):
            payloads: list[bytes | None] = [hand.text(number).encode() for number in numbers]
            await queries.enqueue(["placed"] * len(payloads), payloads, [0] * len(payloads))
        await connection.close()
        self.place.run("VACUUM (ANALYZE) pgqueuer")

    def is_pending(self) -> bool:
        return self.is_any("pgqueuer")

    @asynccontextmanager
    async def serving(self, handler: Handler) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self.place.url)
        queuer = PgQueuer(AsyncpgDriver(connection))

        @queuer.entrypoint("placed")
        async def placed(job: Any) -> None:
            handler(parse(job.payload))

        task = asyncio.create_task(queuer.qm.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=1)))
        yield
        queuer.qm.shutdown.set()
        await task
        await connection.close()

    async def writer(self) -> _Writer:
        return _Writer(await asyncpg.connect(self.place.url))


class _Writer:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._queries = Queries(AsyncpgDriver(connection))

    async def write(self, number: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute(numbered(BUSINESS), *hand.order(number))
            await self._queries.enqueue("placed", hand.encode(hand.payload(number)))

    async def close(self) -> None:
        await self._connection.close()
