"""A PostgreSQL table seen behind the store's back, and the ways that lead to it: drivers, pools and engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.postgres.asyncpg_driver import AsyncpgPool
from aftercommit.stores.sql import connections
from tests.databases import LOOKS_ON, cleared
from tests.stores.kit import run_in
from tests.support import World

#: The ways to speak to PostgreSQL: scheme of the URL, and colour.
DRIVERS = {
    "psycopg": ("postgresql", Colour.BLOCKING),
    "psycopg-async": ("postgresql", Colour.ASYNC),
    "asyncpg": ("postgresql+asyncpg", Colour.ASYNC),
}

#: Those that can be cancelled.
ASYNC_DRIVERS = [name for name, (_, colour) in DRIVERS.items() if colour is Colour.ASYNC]

TIMES = frozenset({"occurred_at", "scheduled_at", "created_at", "available_at", "done_at", "locked_at", "lease_until"})

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Table:
    """`outbox_event` of one database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row, application_name=LOOKS_ON)
        self.connection.execute("SET TIME ZONE 'UTC'")

    def close(self) -> None:
        self.connection.close()

    def read(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        return self.connection.execute(sql, parameters or None).fetchall()

    def value(self, sql: str, *parameters: object) -> Any:
        return next(iter(self.read(sql, *parameters)[0].values()))

    def execute(self, sql: str, *parameters: object) -> int:
        return self.connection.execute(sql, parameters or None).rowcount

    def clear(self) -> None:
        """No rows, and no tables of other names. A few rows are deleted faster than a table is truncated."""
        self.execute(cleared(self.connection))

    def rows(self) -> list[dict[str, Any]]:
        return [
            {name: micros(value) if name in TIMES else value for name, value in row.items()}
            for row in self.read("SELECT * FROM outbox_event ORDER BY position")
        ]

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        sets = ", ".join(f"{name} = %s" for name in columns)
        values = [instant(value) if name in TIMES else value for name, value in columns.items()]
        sql = f"UPDATE outbox_event SET {sets} WHERE %s::text IS NULL OR event_id = %s"
        assert self.execute(sql, *values, event_id, event_id)

    def now(self) -> int:
        found = micros(self.value("SELECT clock_timestamp()"))
        assert found is not None
        return found

    def sessions(self, mark: str) -> list[dict[str, Any]]:
        """Those whose application name says that they are of this test."""
        sql = "SELECT pid, state, xact_start, wait_event_type FROM pg_stat_activity WHERE application_name = %s"
        return self.read(f"{sql} AND datname = current_database()", mark)

    def end_sessions(self, mark: str) -> int:
        """Returns when they are gone; how many."""
        sql = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
        return len(self.read(f"{sql} AND datname = current_database()", mark))

    def fill(self, prefix: str, count: int, **columns: str) -> None:
        """So many rows; columns are SQL expressions, in which `n` counts them."""
        given = {
            "event_id": f"'{prefix}-' || n",
            "event_type": "'T'",
            "aggregate_type": "'__GLOBAL__'",
            "partition_no": "7",
            "payload": "'{}'",
            "content_type": "'application/json'",
            "occurred_at": "now()",
            "created_at": "now() - interval '1 hour'",
            "available_at": "now() - interval '1 hour' + n * interval '1 microsecond'",
            **columns,
        }
        names, values = ", ".join(given), ", ".join(given.values())
        self.execute(f"INSERT INTO outbox_event ({names}) SELECT {values} FROM generate_series(1, {count}) AS n")


def make_impatient(executor: Any, patched: pytest.MonkeyPatch, seconds: float = 0.2) -> None:
    """From now on it waits only so long for a connection. Not from the beginning: where much else goes on, it takes
    longer than that to make one."""
    pool = executor._lender._pool
    if isinstance(pool, connections.Pool):
        patched.setattr(connections, "PATIENCE", seconds)
    else:
        patched.setattr(pool if isinstance(pool, AsyncpgPool) else pool.pool, "timeout", seconds)


def micros(value: datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // timedelta(microseconds=1)


def instant(value: int | None) -> datetime | None:
    return None if value is None else EPOCH + timedelta(microseconds=value)


class Way:
    """One driver to one database. Its sessions carry a mark in their application name."""

    mark = "aftercommit-test"

    def __init__(self, driver: str, table: Table) -> None:
        self.driver = driver
        self.scheme, self.colour = DRIVERS[driver]
        self.table = table
        self.plain = f"{table.url}?application_name={self.mark}"
        self.url = self.at(self.plain)

    def __repr__(self) -> str:
        return f"Way({self.driver})"

    @property
    def is_async(self) -> bool:
        return self.colour is Colour.ASYNC

    def at(self, url: str) -> str:
        return urlsplit(url)._replace(scheme=self.scheme).geturl()

    def world(self, folder: Path) -> World:
        """A runtime of this colour for tests of whole outboxes."""
        return World("asyncio" if self.is_async else "threads", folder, "postgres", self.table.url)

    def store(self, target: Any = None, **options: Any) -> Any:
        return open_store(self.url if target is None else target, self.colour, **options)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return run_in(self.colour, scenario())

    @asynccontextmanager
    async def opened(self, target: Any = None, **options: Any) -> AsyncIterator[Any]:
        store = self.store(target, **options)
        try:
            await store.open()
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def pool(self, size: int = 2, url: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """A user's own pool with the driver's own defaults."""
        url = url or self.plain
        if self.driver == "psycopg":
            with psycopg_pool.ConnectionPool(url, min_size=size, max_size=size, **options) as blocking:
                blocking.wait()
                yield blocking
        elif self.driver == "psycopg-async":
            async with psycopg_pool.AsyncConnectionPool(url, min_size=size, max_size=size, **options) as waiting:
                await waiting.wait()
                yield waiting
        else:
            async with asyncpg.create_pool(url, min_size=size, max_size=size, **options) as pool:
                yield pool

    @asynccontextmanager
    async def engine(self, size: int = 2, **options: Any) -> AsyncIterator[Any]:
        """A user's own SQLAlchemy engine with the driver's own defaults."""
        scheme = "postgresql+asyncpg" if self.driver == "asyncpg" else "postgresql+psycopg"
        url = urlsplit(self.table.url)._replace(scheme=scheme).geturl()
        server = {"application_name": self.mark}
        given = {
            "pool_size": size,
            "max_overflow": 0,
            "connect_args": {"server_settings": server} if self.driver == "asyncpg" else server,
            **options,
        }
        if not self.is_async:
            blocking = create_engine(url, **given)
            yield blocking
            blocking.dispose()
        else:
            engine = create_async_engine(url, **given)
            yield engine
            await engine.dispose()

    @asynccontextmanager
    async def target(self, kind: str, size: int = 2) -> AsyncIterator[Any]:
        """What an outbox is given: a URL, a pool or an engine."""
        if kind == "url":
            yield self.url
        else:
            async with (self.pool if kind == "pool" else self.engine)(size) as lent:
                yield lent


#: What an outbox can be given to reach a database.
TARGETS = ["url", "pool", "engine"]
