"""tx=connection of each driver, inside the caller's own transaction: rows are born free, and the poller looks soon."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import psycopg
import pytest

from aftercommit import NotInTransaction, UnsupportedTransaction
from tests.conftest import WAYS
from tests.servers import pymysql_connect
from tests.stores.mysql_kit import parts_of
from tests.support import Collector, World


class Caller:
    """A connection of the caller's, steered by statements; `commit()` and `close()` as the driver has them."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    async def run(self, sql: str) -> None:
        if hasattr(self.raw, "cursor") and not isinstance(self.raw, asyncpg.Connection):
            cursor = self.raw.cursor()
            await _done(cursor.execute(sql))
            await _done(cursor.close())
        else:
            await self.raw.execute(sql)

    async def close(self) -> None:
        await _done(self.raw.ensure_closed() if hasattr(self.raw, "ensure_closed") else self.raw.close())


async def _done(value: Any) -> Any:
    return await value if isawaitable(value) else value


async def _asyncmy(url: str, autocommit: bool) -> Any:
    return await asyncmy.connect(**parts_of(url), charset="utf8mb4", autocommit=autocommit)


def _sqlite(world: World, autocommit: bool) -> sqlite3.Connection:
    return sqlite3.connect(world.path, timeout=20, isolation_level=None if autocommit else "DEFERRED")


async def _connect(world: World, *, autocommit: bool) -> Any:
    plain = urlsplit(world.url)._replace(scheme="postgresql").geturl()
    match world.database, world.name, urlsplit(world.url).scheme:
        case "sqlite", _, _:
            return _sqlite(world, autocommit)
        case "postgres", "threads", _:
            return psycopg.connect(plain, autocommit=autocommit)
        case "postgres", _, "postgresql":
            return await psycopg.AsyncConnection.connect(plain, autocommit=autocommit)
        case "postgres", _, _:
            return await asyncpg.connect(plain)
        case _, "threads", _:
            return pymysql_connect(world.url, charset="utf8mb4", autocommit=autocommit)
        case _:
            return await _asyncmy(world.url, autocommit)


@asynccontextmanager
async def calling(world: World, *, autocommit: bool) -> AsyncIterator[Caller]:
    caller = Caller(await _connect(world, autocommit=autocommit))
    try:
        yield caller
    finally:
        await caller.close()


@pytest.fixture(params=["sqlite-threads", "sqlite-asyncio", *WAYS])
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every driver."""
    if request.param.startswith("sqlite"):
        yield World(request.param.removeprefix("sqlite-"), tmp_path)
        return
    database, runtime, scheme = WAYS[request.param]
    url: str = request.getfixturevalue("postgres_url" if database == "postgres" else "mysql_url")
    made = World(runtime, tmp_path, database, urlsplit(url)._replace(scheme=scheme).geturl())
    made.somebody.clear()
    yield made
    made.somebody.close()


def is_asyncpg(world: World) -> bool:
    return "asyncpg" in world.url


def playing(world: World, scenario: Callable[[Any, Collector], Awaitable[None]]) -> None:
    """With a started outbox that looks by itself once a minute only."""
    seen = Collector()

    async def whole() -> None:
        outbox = world.outbox(poll_interval="60s")
        outbox.register("T", lambda event: seen.add(event.payload_json))
        await outbox.start()
        await scenario(outbox, seen)

    world.run(whole)


def committed(world: World) -> list[str]:
    return [row["payload"] for row in world.rows()]


@pytest.mark.parametrize("autocommit", [False, True])
def test_an_event_is_part_of_a_transaction_that_was_begun(any_world: World, autocommit: bool) -> None:
    if is_asyncpg(any_world) and not autocommit:
        pytest.skip("which has no other mode")

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=autocommit) as caller:
            await caller.run("BEGIN")
            await outbox.write("T", "1", tx=caller.raw)
            await caller.run("ROLLBACK")
            await caller.run("BEGIN")
            await outbox.write("T", "2", tx=caller.raw)
            assert committed(any_world) == []
            await caller.run("COMMIT")
            await seen.reach(1)
        assert list(seen) == committed(any_world) == ["2"]
        assert any_world.rows("SELECT lease_epoch FROM outbox_event")[0][0] == 1  # born free, and claimed

    playing(any_world, scenario)


def test_a_connection_that_begins_by_itself_is_in_a_transaction(any_world: World) -> None:
    if is_asyncpg(any_world):
        pytest.skip("which begins nothing by itself")

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=False) as caller:
            await outbox.write("T", "1", tx=caller.raw)
            assert committed(any_world) == []
            await _done(caller.raw.commit())
            await seen.reach(1)
            await outbox.write("T", "2", tx=caller.raw)
            await _done(caller.raw.rollback())
        assert list(seen) == committed(any_world) == ["1"]

    playing(any_world, scenario)


def test_autocommit_without_begin_is_refused_before_anything_is_written(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            with pytest.raises(NotInTransaction, match="BEGIN"):
                await outbox.write("T", "1", tx=caller.raw)
            await caller.run("BEGIN")
            await caller.run("COMMIT")
            with pytest.raises(NotInTransaction):
                await outbox.write_all([], tx=caller.raw)
        assert committed(any_world) == []

    playing(any_world, scenario)


def test_a_closed_connection_is_refused(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
        with pytest.raises(NotInTransaction):
            await outbox.write("T", "1", tx=caller.raw)

    playing(any_world, scenario)


def test_a_failed_transaction_takes_nothing_more(any_world: World) -> None:
    if any_world.database != "postgres":
        pytest.skip("where a failed statement undoes itself alone")
    # asyncpg keeps to itself that it has failed; the server does not.
    refusal = asyncpg.InFailedSQLTransactionError if is_asyncpg(any_world) else NotInTransaction

    async def scenario(outbox: Any, seen: Collector) -> None:
        async with calling(any_world, autocommit=True) as caller:
            await caller.run("BEGIN")
            with pytest.raises(Exception, match="nowhere"):
                await caller.run("SELECT * FROM nowhere")
            with pytest.raises(refusal):
                await outbox.write("T", "1", tx=caller.raw)
            await caller.run("ROLLBACK")
            await caller.run("BEGIN")
            await outbox.write("T", "2", tx=caller.raw)
            await caller.run("COMMIT")
            await seen.reach(1)
        assert committed(any_world) == ["2"]

    playing(any_world, scenario)


def test_a_connection_of_another_driver_is_refused(any_world: World) -> None:
    async def scenario(outbox: Any, seen: Collector) -> None:
        other: Any = sqlite3.connect(":memory:") if any_world.database != "sqlite" else object()
        with pytest.raises(UnsupportedTransaction, match=type(other).__qualname__):
            await outbox.write("T", "1", tx=other)
        if isinstance(other, sqlite3.Connection):
            other.close()

    playing(any_world, scenario)
