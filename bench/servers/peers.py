"""Other libraries on the same work: a backlog in their own table, their public interface, tuned, a handler that does
nothing. Each takes part when it is installed."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final

from bench import hand
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.drains import Contest
from bench.servers.places import Absent, Postgres
from bench.sizes import Sizes

_BATCH: Final = 500
_CHUNK: Final = 1_000

#: The drivers of the outbox that stands beside them.
_OURS: Final = ("psycopg", "asyncpg")

#: Seconds between two looks whether a peer that does not end by itself is through.
_LOOK: Final = 0.005


class Peer(ABC):
    """One library. Its table is made once and filled before each of its rounds."""

    module: ClassVar[str]
    #: How much faster the outbox should be.
    goal: ClassVar[float] = 1.0
    #: Whether it gets the smaller backlog, because it takes its time.
    is_slow: ClassVar[bool] = False

    def __init__(self, place: Postgres) -> None:
        self.place = place

    @abstractmethod
    async def set_up(self) -> None: ...

    @abstractmethod
    async def fill(self, rows: int) -> None: ...

    @abstractmethod
    async def drain(self, rows: int) -> Stopwatch: ...

    def round(self, rows: int, _: Path) -> Sample:
        async def whole() -> Stopwatch:
            await self.fill(rows)
            self.place.tidy()
            return await self.drain(rows)

        return asyncio.run(whole()).sample(rows)


class Txoutbox(Peer):
    module = "txoutbox"
    goal = 1.2

    async def set_up(self) -> None:
        storage = await self._storage()
        await storage.create_schema()
        await storage.close()

    async def _storage(self) -> Any:
        from txoutbox.adapters.postgres import PostgresStorage  # noqa: PLC0415

        # Without keys there is no order to keep, and plans are made for their values.
        settings = {"plan_cache_mode": "force_custom_plan"}
        return await PostgresStorage.connect(
            self.place.url, strict_ordering=False, min_size=2, max_size=4, server_settings=settings
        )

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE outbox")
        self.place.run(
            "INSERT INTO outbox (topic, payload) SELECT 'OrderPlaced', %s::bytea FROM generate_series(1, %s)",
            (hand.text(0).encode(), rows),
        )
        self.place.run("VACUUM (ANALYZE) outbox")

    async def drain(self, rows: int) -> Stopwatch:
        from txoutbox import Relay, RelayConfig  # noqa: PLC0415

        async def publish(_: Any) -> None: ...

        storage = await self._storage()
        relay = Relay(storage, publish, config=RelayConfig(batch_size=_BATCH, concurrency=10, publish_timeout=None))
        published = 0
        with Stopwatch() as watch:
            while (done := await relay.run_once()).claimed:
                published += done.published
        await storage.close()
        assert published == rows
        return watch


class Pgqueuer(Peer):
    module = "pgqueuer"

    async def set_up(self) -> None:
        import asyncpg  # noqa: PLC0415
        from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
        from pgqueuer.queries import Queries  # noqa: PLC0415

        connection = await asyncpg.connect(self.place.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def fill(self, rows: int) -> None:
        import asyncpg  # noqa: PLC0415
        from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
        from pgqueuer.queries import Queries  # noqa: PLC0415

        connection = await asyncpg.connect(self.place.url)
        queries = Queries(AsyncpgDriver(connection))
        for numbers in _chunks(rows):
            payloads: list[bytes | None] = [hand.text(number).encode() for number in numbers]
            await queries.enqueue(["placed"] * len(payloads), payloads, [0] * len(payloads))
        await connection.close()
        self.place.run("VACUUM (ANALYZE) pgqueuer")

    async def drain(self, rows: int) -> Stopwatch:
        import asyncpg  # noqa: PLC0415
        from pgqueuer import PgQueuer  # noqa: PLC0415
        from pgqueuer.db import AsyncpgDriver  # noqa: PLC0415
        from pgqueuer.domain.types import QueueExecutionMode  # noqa: PLC0415

        connection = await asyncpg.connect(self.place.url)
        queuer, handled = PgQueuer(AsyncpgDriver(connection)), 0

        @queuer.entrypoint("placed")
        async def placed(_: Any) -> None:
            nonlocal handled
            handled += 1

        with Stopwatch() as watch:
            await queuer.qm.run(batch_size=_BATCH, mode=QueueExecutionMode.drain)
        await connection.close()
        assert handled == rows
        return watch


class Procrastinate(Peer):
    module = "procrastinate"
    goal = 25
    is_slow = True

    def _app(self) -> Any:
        from procrastinate import App, PsycopgConnector  # noqa: PLC0415

        app = App(connector=PsycopgConnector(conninfo=self.place.url, min_size=4, max_size=10))

        @app.task(name="placed")
        async def placed(**_: Any) -> None: ...

        return app

    async def set_up(self) -> None:
        async with self._app().open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE procrastinate_jobs CASCADE")
        async with self._app().open_async() as app:
            for numbers in _chunks(rows):
                await app.configure_task("placed").batch_defer_async(
                    *[{"text": hand.text(number)} for number in numbers]
                )
        self.place.run("VACUUM (ANALYZE) procrastinate_jobs")

    async def drain(self, rows: int) -> Stopwatch:
        async with self._app().open_async() as app:
            with Stopwatch() as watch:
                await app.run_worker_async(
                    wait=False, concurrency=20, listen_notify=False, install_signal_handlers=False
                )
        assert self.place.run("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'")[0][0] == rows
        return watch


class FaststreamOutbox(Peer):
    module = "faststream_outbox"
    is_slow = True

    def _parts(self) -> tuple[Any, Any, Any]:
        from faststream_outbox import OutboxBroker, make_outbox_table  # noqa: PLC0415
        from sqlalchemy import MetaData  # noqa: PLC0415
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

        metadata = MetaData()
        table = make_outbox_table(metadata, table_name="faststream")
        engine = create_async_engine(self.place.asyncpg_url)
        return engine, metadata, OutboxBroker(engine, outbox_table=table, logger=None)

    async def set_up(self) -> None:
        engine, metadata, _ = self._parts()
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        await engine.dispose()

    async def fill(self, rows: int) -> None:
        engine, _, broker = self._parts()
        for numbers in _chunks(rows):
            async with engine.begin() as connection:
                bodies = [{"text": hand.text(number)} for number in numbers]
                await broker.publish_batch(*bodies, queue="placed", session=connection)
        await engine.dispose()
        self.place.run("VACUUM (ANALYZE) faststream")

    async def drain(self, rows: int) -> Stopwatch:
        engine, _, broker = self._parts()

        @broker.subscriber(
            "placed",
            max_workers=10,
            fetch_batch_size=_BATCH,
            min_fetch_interval=0.001,
            terminal_flush_batch_size=100,
        )
        async def placed(_: dict[str, str]) -> None: ...

        with Stopwatch() as watch:
            await broker.start()
            while self.place.run("SELECT EXISTS (SELECT 1 FROM faststream)")[0][0]:  # noqa: ASYNC110  (it tells nobody)
                await asyncio.sleep(_LOOK)
        await broker.stop()
        await engine.dispose()
        return watch


_PEERS: Final = (Txoutbox, Pgqueuer, Procrastinate, FaststreamOutbox)


def _chunks(rows: int) -> Iterator[range]:
    for start in range(0, rows, _CHUNK):
        yield range(start, min(start + _CHUNK, rows))


def postgres_peers(sizes: Sizes, workshop: Path) -> list[Line]:
    """The drain of a started outbox beside each peer that is installed."""
    found = [peer for peer in _PEERS if find_spec(peer.module)]
    if not found:
        raise Absent(f"none is installed: {', '.join(peer.module for peer in _PEERS)}")
    for peer in found:
        logging.getLogger(peer.module).setLevel(logging.ERROR)
    with Postgres.opened() as place:
        peers = [peer(place) for peer in found]
        for peer in peers:
            asyncio.run(peer.set_up())
        rivals: dict[str, Rival[Sample]] = {
            name: Contest(place, drivers.named(place, name), sizes.server_backlog).started(batch_size=_BATCH)
            for name in _OURS
        }
        for peer in peers:
            rivals[peer.module] = partial(peer.round, sizes.peer_backlog if peer.is_slow else sizes.server_backlog)
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "postgres_peers",
            f"{name}, started, batch {_BATCH} / {peer.module}",
            samples[name],
            samples[peer.module],
            rival=peer.module,
            unit="rows/s",
            goal=Goal("ratio", target=peer.goal),
        )
        for peer in peers
        for name in _OURS
    ]
