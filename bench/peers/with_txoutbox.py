"""txoutbox: claims in rounds, woken by the program after its commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from txoutbox import Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage

from bench import hand
from bench.peers.peer import BATCH, Handler, Peer, parse
from bench.servers.hand_postgres import BUSINESS, numbered


class Txoutbox(Peer):
    goal = 1.2
    #: Without keys there is no order to keep.
    is_strict = False

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self._relay: Relay | None = None

    async def _storage(self) -> PostgresStorage:
        # Plans are made for their values: one that was made on an empty table goes wrong later.
        settings = {"plan_cache_mode": "force_custom_plan"}
        return await PostgresStorage.connect(
            self.place.url, strict_ordering=self.is_strict, min_size=2, max_size=4, server_settings=settings
        )

    async def set_up(self) -> None:
        storage = await self._storage()
        await storage.create_schema()
        await storage.close()

    async def fill(self, rows: int) -> None:
        key = "'key-' || number %% 1000" if self.is_strict else "NULL"
        self.place.run("TRUNCATE TABLE outbox")
        self.place.run(
            f"INSERT INTO outbox (topic, key, payload) SELECT 'placed', {key}, %s::bytea "
            "FROM generate_series(1, %s) AS number",
            (hand.text(0).encode(), rows),
        )
        self.place.run("VACUUM (ANALYZE) outbox")

    def is_pending(self) -> bool:
        return self.is_any("outbox WHERE status = 'pending'")

    @asynccontextmanager
    async def serving(self, handler: Handler) -> AsyncIterator[None]:
        async def publish(message: Any) -> None:
            handler(parse(message.payload))

        storage = await self._storage()
        config = RelayConfig(batch_size=BATCH, concurrency=10, publish_timeout=None)
        self._relay = Relay(storage, publish, config=config)
        task = asyncio.create_task(self._relay.run())
        yield
        self._relay.stop()
        await task
        await storage.close()

    def committed(self) -> None:
        if self._relay is not None:
            self._relay.wake()

    async def writer(self) -> _Writer:
        return _Writer(await self._storage(), await asyncpg.connect(self.place.url))


class Strict(Txoutbox):
    """In order of its keys."""

    is_strict = True


class _Writer:
    def __init__(self, storage: PostgresStorage, connection: Any) -> None:
        self._storage = storage
        self._connection = connection

    async def write(self, number: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute(numbered(BUSINESS), *hand.order(number))
            await self._storage.insert(self._connection, "placed", hand.encode(hand.payload(number)))

    async def close(self) -> None:
        await self._connection.close()
        await self._storage.close()
