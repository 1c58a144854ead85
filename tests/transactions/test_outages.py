"""When the database is away, full or a former primary: one error of ours with the driver's as its cause, whichever
driver it is, and the next transaction begins on another connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncmy
import asyncpg
import psycopg
import psycopg_pool
import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from aftercommit import AsyncOutbox, StoreFull, StoreReadOnly, StoreUnavailable
from aftercommit.events.claims import Settlement
from aftercommit.events.outcome import DONE
from aftercommit.testing.kit import event, take
from tests.promises.sessions import kill_sessions, sessions
from tests.promises.waiting import until
from tests.servers import pymysql_connect
from tests.stores.kit import insert
from tests.support import World
from tests.transactions.kit import step_aside

DRIVERS = (psycopg.Error, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVERS += (pymysql.Error, asyncmy.errors.Error, OSError)

# ---------------------------------------------------------------- a session ends


async def query(outbox: Any, tx: Any) -> None:
    await tx.execute("SELECT 1")


async def write(outbox: Any, tx: Any) -> None:
    await outbox.write("T", "{}")


async def nest(outbox: Any, tx: Any) -> None:
    async with outbox.transaction():
        pass


async def commit(outbox: Any, tx: Any) -> None:
    await tx.commit()


def test_a_session_that_ends_in_a_transaction_is_unavailable(server_world: World) -> None:
    """Whether the driver has heard of it, as asyncpg does, or finds out; and the block after it works."""
    world = server_world

    async def scenario() -> None:
        outbox = world.outbox()
        for step in (query, write, nest, commit):
            for turns in (0, 5):
                with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
                    await interrupted(outbox, step, turns)
                assert isinstance(caught.value.__cause__, DRIVERS)
        async with outbox.transaction():
            await outbox.write("T", "{}")

    async def interrupted(outbox: Any, step: Callable[[Any, Any], Awaitable[None]], turns: int) -> None:
        async with outbox.transaction() as tx:
            await tx.execute("SELECT 1")
            assert kill_sessions(world)
            until(lambda: not sessions(world), what="the end of all sessions")
            for _ in range(turns):
                await step_aside(world)
            await step(outbox, tx)

    world.run(scenario)
    assert len(world.rows()) == 1


def test_an_error_of_a_users_statement_stays_the_drivers_own(server_world: World) -> None:
    """What the user did wrong is between the user and the driver."""
    world = server_world

    async def scenario() -> None:
        outbox = world.outbox()
        for sql in ("SELECT * FROM no_such_table", "SELECT nonsense("):
            with pytest.raises(DRIVERS):
                async with outbox.transaction() as tx:
                    await tx.execute(sql)

    world.run(scenario)


# ---------------------------------------------------------------- no connection is left


class User:
    """Somebody with a login of their own, and all rights."""

    def __init__(self, world: World) -> None:
        self.name, self._world = f"user_{uuid4().hex[:8]}", world
        url = urlsplit(world.url)
        port = url.port or {"postgres": 5432, "mariadb": 3306}[world.database]
        self.url = url._replace(netloc=f"{self.name}:secret@{url.hostname}:{port}").geturl()
        self.is_postgres = world.database == "postgres"
        if self.is_postgres:
            world.change(f"CREATE ROLE {self.name} LOGIN PASSWORD 'secret' IN ROLE pg_read_all_data, pg_write_all_data")
        else:
            world.change(f"CREATE USER {self.name} IDENTIFIED BY 'secret'")
            world.change(f"GRANT ALL ON {url.path[1:]}.* TO {self.name}")

    def hold_all(self) -> Any:
        """One connection, which is all that they may have."""
        parts = urlsplit(self.url)
        if self.is_postgres:
            self._world.change(f"ALTER ROLE {self.name} CONNECTION LIMIT 1")
            return psycopg.connect(parts._replace(scheme="postgresql").geturl())
        self._world.change(f"ALTER USER {self.name} WITH MAX_USER_CONNECTIONS 1")
        return pymysql_connect(self.url)

    def lock_out(self) -> None:
        self._world.change(f"ALTER {'ROLE' if self.is_postgres else 'USER'} {self.name} {self._locked}")
        kill_sessions(self._world)

    @property
    def _locked(self) -> str:
        return "CONNECTION LIMIT 0" if self.is_postgres else "ACCOUNT LOCK"

    def remove(self) -> None:
        kill_sessions(self._world)
        self._world.change(f"DROP USER {self.name}")


@pytest.fixture
def user(server_world: World) -> Iterator[User]:
    user = User(server_world)
    yield user
    user.remove()


@pytest.mark.parametrize("kind", ["url", "engine", "pool"])
def test_a_server_without_a_connection_left_is_unavailable(server_world: World, user: User, kind: str) -> None:
    world = server_world
    if kind == "pool" and not user.is_postgres:
        return  # there is no such pool that an outbox takes

    async def scenario() -> None:
        held = user.hold_all()
        async with Target(world, user.url, kind) as target:
            outbox = world.outbox(target)
            with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
                async with outbox.transaction():
                    pass
        assert "connections left" in caught.value.fix
        assert caught.value.__cause__ is not None
        held.close()

    world.run(scenario)


async def as_it_is(_: object) -> None:
    """What is set in a session stays."""


class Target:
    """What an outbox is given, opened and closed."""

    def __init__(self, world: World, url: str, kind: str) -> None:
        self._world, self._url, self._kind = world, url, kind
        self._closes: Callable[[], Any] = lambda: None

    async def __aenter__(self) -> Any:
        if self._kind == "url":
            return self._url
        return await self._pool() if self._kind == "pool" else self._engine()

    async def _pool(self) -> Any:
        plain = urlsplit(self._url)._replace(scheme="postgresql").geturl()
        if "asyncpg" in self._url:
            made: Any = await asyncpg.create_pool(plain, min_size=0, reset=as_it_is)
        else:
            kind: Any = psycopg_pool.AsyncConnectionPool if self._world.is_async else psycopg_pool.ConnectionPool
            made = kind(plain, min_size=0, max_size=1, timeout=0.2, open=False)
            waiting = made.open()
            await waiting if self._world.is_async else None
        self._closes = made.close
        return made

    def _engine(self) -> Any:
        drivers = {
            "mysql": "mysql+asyncmy" if self._world.is_async else "mysql+pymysql",
            "postgresql": "postgresql+psycopg",
        }
        parts = urlsplit(self._url)
        url = parts._replace(scheme=drivers.get(parts.scheme, parts.scheme)).geturl()
        made: Any = (create_async_engine if self._world.is_async else create_engine)(url)
        self._closes = made.dispose
        return made

    async def __aexit__(self, *_: object) -> None:
        if (waiting := self._closes()) is not None:
            await waiting


def test_health_goes_red_when_no_connection_can_be_had(server_world: World, user: User) -> None:
    """The poller hears at once that there is none, and does not stand in line for it."""
    world = server_world

    async def scenario() -> None:
        await world.outbox().create_schema()
        outbox = world.outbox(user.url, poll_interval="20ms")
        outbox.register("T", lambda _: None)
        await outbox.start()
        assert outbox.health().is_healthy
        user.lock_out()
        await until_true(world, lambda: any("poller has failed" in each for each in outbox.health().problems))

    world.run(scenario)


async def until_true(world: World, is_true: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, is_true, what="health") if world.is_async else until(is_true, what="health")


# ---------------------------------------------------------------- a switchover

READ_ONLY = {
    "postgres": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


@pytest.mark.parametrize("kind", ["url", "engine", "pool"])
def test_a_connection_that_takes_no_writes_is_not_lent_again(server_world: World, kind: str) -> None:
    """A session of a former primary stays read-only; a new one leads to the new primary."""
    world = server_world
    if kind == "pool" and world.database == "mariadb":
        return

    async def scenario() -> None:
        await world.outbox().create_schema()
        async with Target(world, world.url, kind) as target:
            outbox = world.outbox(target, create_schema=False)
            async with outbox.transaction() as tx:
                await tx.execute(READ_ONLY[world.database])
            with pytest.raises(StoreReadOnly):
                async with outbox.transaction():
                    await outbox.write("T", "{}")
            async with outbox.transaction():
                await outbox.write("T", "{}")
            await outbox.close()

    world.run(scenario)
    assert len(world.rows()) == 1


def test_a_connection_of_the_store_that_takes_no_writes_is_not_used_again(server_world: World) -> None:
    """In a transaction, and as a statement of its own."""
    world = server_world

    async def scenario() -> None:
        store = world.outbox()._store
        await store.open()
        await insert(store, event())
        await store.executor.execute(READ_ONLY[world.database])
        with pytest.raises(StoreReadOnly):
            await take(store)
        (row,) = await take(store)
        await store.executor.execute(READ_ONLY[world.database])
        with pytest.raises(DRIVERS):
            await store.settle([Settlement(row.lease, DONE)])
        assert not await store.settle([Settlement(row.lease, DONE)])

    world.run(scenario)


# ---------------------------------------------------------------- one event loop after another


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "mysql"])
def test_sessions_of_event_loops_that_have_ended_end(request: pytest.FixtureRequest, scheme: str) -> None:
    """One global outbox, and asyncio.run() again and again, with several transactions at once."""
    url = request.getfixturevalue("mysql_url" if scheme == "mysql" else "postgres_url")
    database = "mariadb" if scheme == "mysql" else "postgres"
    world = World("asyncio", request.getfixturevalue("tmp_path"), database, url)
    before, outbox = sessions(world), AsyncOutbox(urlsplit(url)._replace(scheme=scheme).geturl())

    async def write_one(has_met: asyncio.Barrier) -> None:
        async with outbox.transaction():
            await outbox.write("T", "{}")
            await has_met.wait()

    async def write_some(count: int) -> None:
        has_met = asyncio.Barrier(count)
        await asyncio.gather(*[write_one(has_met) for _ in range(count)])

    asyncio.run(outbox.create_schema())
    for count in (3, 1, 1):
        asyncio.run(write_some(count))
    # MySQL's store has a connection beside those that users get.
    until(lambda: len(sessions(world) - before) <= (2 if scheme == "mysql" else 1), what="the end of idle sessions")
    asyncio.run(outbox.close())
    until(lambda: not sessions(world) - before, what="the end of all sessions")
    world.somebody.close()


# ---------------------------------------------------------------- a full disk


async def statement(outbox: Any, tx: Any) -> None:
    await tx.execute("INSERT INTO business VALUES (zeroblob(100000))")


async def event_of_many_pages(outbox: Any, tx: Any) -> None:
    await outbox.write("T", {"text": "x" * 100_000})


@pytest.mark.parametrize("step", [statement, event_of_many_pages], ids=lambda step: step.__name__)
def test_a_full_database_is_said_to_be_full(world: World, step: Callable[[Any, Any], Awaitable[None]]) -> None:
    """SQLite rolls all of it back by itself, and goes on when there is room."""

    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction() as tx:
            await tx.execute("CREATE TABLE business (bulk BLOB)")
            (pages,) = (await tx.execute("PRAGMA page_count")).rows[0]
        async with outbox.transaction() as tx:
            await tx.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreFull, match="no room left") as caught:
            async with outbox.transaction() as tx:
                await step(outbox, tx)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        async with outbox.transaction() as tx:
            await tx.execute("PRAGMA max_page_count = 100000")
            await step(outbox, tx)

    world.run(scenario)
