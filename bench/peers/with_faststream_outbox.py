"""faststream-outbox: a broker over SQLAlchemy and asyncpg."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import create_async_engine

from bench import hand
from bench.peers.peer import BATCH, Handler, Peer, chunks
from bench.servers.places import Postgres

_BUSINESS = text("INSERT INTO orders (id, customer, total) VALUES (:id, :customer, :total)")


def _parts(place: Postgres) -> tuple[Any, Any, Any]:
    metadata = MetaData()
    table = make_outbox_table(metadata, table_name="faststream")
    # A connection for each of its workers, for its fetches and for a writer.
    engine = create_async_engine(place.asyncpg_url, pool_size=14)
    return engine, metadata, OutboxBroker(engine, outbox_table=table, logger=None)


class FaststreamOutbox(Peer):
    is_slow = True

    async def set_up(self) -> None:
        engine, metadata, _ = _parts(self.place)
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        await engine.dispose()

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE faststream")
        engine, _, broker = _parts(self.place)
        for numbers in chunks(rows):
            async with engine.begin() as connection:
                bodies = [hand.payload(number) for number in numbers]
                await broker.publish_batch(*bodies, queue="placed", session=connection)
        await engine.dispose()
        self.place.run("VACUUM (ANALYZE) faststream")

    def is_pending(self) -> bool:
        return self.is_any("faststream")

    @asynccontextmanager
    async def serving(self, handler: Handler) -> AsyncIterator[None]:
        engine, _, broker = _parts(self.place)

        @broker.subscriber(
            "placed",
            max_workers=10,
            fetch_batch_size=BATCH,
            min_fetch_interval=0.001,
            terminal_flush_batch_size=100,
        )
        async def placed(body: dict[str, Any]) -> None:
            handler(body)

        await broker.start()
        yield
        await broker.stop()
        await engine.dispose()

    async def writer(self) -> _Writer:
        engine, _, broker = _parts(self.place)
        return _Writer(engine, broker)


class _Writer:
    def __init__(self, engine: Any, broker: Any) -> None:
        self._engine = engine
        self._broker = broker

    async def write(self, number: int) -> None:
        names = ("id", "customer", "total")
        async with self._engine.begin() as connection:
            await connection.execute(_BUSINESS, dict(zip(names, hand.order(number), strict=True)))
            await self._broker.publish(hand.payload(number), queue="placed", session=connection)

    async def close(self) -> None:
        await self._engine.dispose()
