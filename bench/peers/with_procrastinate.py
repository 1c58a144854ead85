"""procrastinate: tasks by NOTIFY, one at a time from the table, many at once in the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from bench import hand
from bench.peers.peer import Handler, Peer, chunks
from bench.servers.hand_postgres import BUSINESS


class Procrastinate(Peer):
    goal = 25
    is_slow = True

    def app(self, handler: Handler = lambda _: None) -> Any:
        app = App(connector=PsycopgConnector(conninfo=self.place.url, min_size=4, max_size=10))

        @app.task(name="placed")
        async def placed(**payload: Any) -> None:
            handler(payload)

        return app

    async def set_up(self) -> None:
        async with self.app().open_async() as app:
            await app.schema_manager.apply_schema_async()

    async def fill(self, rows: int) -> None:
        self.place.run("TRUNCATE TABLE procrastinate_jobs CASCADE")
        async with self.app().open_async() as app:
            for numbers in chunks(rows):
                payloads = [hand.payload(number) for number in numbers]
                await app.configure_task("placed").batch_defer_async(*payloads)
        self.place.run("VACUUM (ANALYZE) procrastinate_jobs")

    def is_pending(self) -> bool:
        return self.is_any("procrastinate_jobs WHERE status IN ('todo', 'doing')")

    @asynccontextmanager
    async def serving(self, handler: Handler) -> AsyncIterator[None]:
        async with self.app(handler).open_async() as app:
            task = asyncio.create_task(app.run_worker_async(concurrency=20, install_signal_handlers=False))
            yield
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def writer(self) -> _Writer:
        app = self.app()
        await app.open_async()
        return _Writer(app, await psycopg.AsyncConnection.connect(self.place.url))


class _Writer:
    def __init__(self, app: Any, connection: Any) -> None:
        self._app = app
        self._connection = connection

    async def write(self, number: int) -> None:
        async with self._connection.transaction():
            await self._connection.execute(BUSINESS, hand.order(number))
            task = self._app.configure_task("placed", connection=self._connection)
            await task.defer_async(**hand.payload(number))

    async def close(self) -> None:
        await self._connection.close()
        await self._app.close_async()
