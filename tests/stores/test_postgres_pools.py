"""Connections: lent and given back, lost and replaced; those of the user stay as the user had them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy.util import greenlet_spawn

from aftercommit.errors import StoreBusy, StoreUnavailable
from aftercommit.events.claims import Settlement
from aftercommit.events.outcome import DONE
from aftercommit.stores.postgres import lenders
from aftercommit.stores.sql import connections
from aftercommit.testing.kit import LEASE, event, ids, take
from tests.servers import PrivatePostgres
from tests.stores.kit import insert
from tests.stores.postgres_kit import DRIVERS, TARGETS, Table, Way, make_impatient
from tests.stores.test_postgres_claims import Beside
from tests.support import PATIENCE


async def turns(way: Way) -> None:
    """A loop that is not blocked by a test hears what comes in."""
    for _ in range(5 if way.is_async else 0):
        await asyncio.sleep(0)


async def waited(way: Way, signal: Any) -> None:
    await asyncio.to_thread(signal.wait, PATIENCE) if way.is_async else signal.wait(PATIENCE)


async def walk(store: Any, owner: str = "alice") -> None:
    """A bit of everything that a store does with connections."""
    await insert(store, given := event())
    rows = await take(store, owner, limit=1)
    assert ids(rows) == [given.event_id]
    assert await store.renew([row.lease for row in rows], LEASE)
    assert await store.mark_suspect(rows[0].lease)
    assert not await store.settle([Settlement(row.lease, DONE) for row in rows])


# ---------------------------------------------------------------- lost


@pytest.mark.parametrize("kind", TARGETS)
def test_sessions_that_were_ended_while_idle_are_replaced_unseen(way: Way, kind: str, postgres_table: Table) -> None:
    """By an administrator, a firewall that says so, a failover: the next statement works, and the next transaction."""

    async def scenario() -> None:
        async with way.target(kind, size=3) as target, way.opened(target) as store:
            for use in (store.records.backlog, lambda: walk(store)):
                held = [await store.executor.begin() for _ in range(3)]
                for each in held:
                    await each.end()
                await turns(way)
                assert postgres_table.end_sessions(way.mark) >= 3
                await turns(way)
                await use()

    way.run(scenario)


def test_after_a_restart_of_the_server_work_goes_on(
    private_postgres: PrivatePostgres,
) -> None:
    """With every driver, over URLs, pools and engines that have idle connections; and what is said meanwhile."""
    server, table = private_postgres, Table(private_postgres.url)
    opened, tried = threading.Barrier(len(DRIVERS) + 1), threading.Barrier(len(DRIVERS) + 1)
    is_down, is_up = threading.Event(), threading.Event()

    async def scenario(way: Way) -> None:
        async with AsyncExitStack() as stack:
            stores = {}
            for kind in TARGETS:
                target = await stack.enter_async_context(way.target(kind))
                name = f"{kind}_{way.driver.replace('-', '_')}"
                stores[kind] = await stack.enter_async_context(way.opened(target, table=name, create_schema=True))
                await walk(stores[kind], way.driver)
            await waited(way, opened)
            await waited(way, is_down)
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
                await take(stores["url"], "nobody")
            assert "check that the server runs" in caught.value.fix
            await waited(way, tried)
            await waited(way, is_up)
            for kind in TARGETS:
                if kind != "pool":  # a user's pool knocks again in its own time
                    assert (await stores[kind].records.backlog()).new == 0

    ways = [Way(driver, table) for driver in DRIVERS]
    threads = [Beside(way, lambda way=way: scenario(way)) for way in ways]
    try:
        opened.wait(PATIENCE)
        table.close()
        server.stop()
        is_down.set()
        tried.wait(PATIENCE)
        server.start()
    finally:
        is_down.set()
        is_up.set()
        for thread in threads:
            thread.result()


# ---------------------------------------------------------------- none free


@pytest.mark.parametrize("kind", TARGETS)
def test_a_pool_without_a_free_connection_is_busy(way: Way, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenders, "LARGEST", 1)

    async def scenario() -> None:
        async with way.target(kind, size=1) as target, way.opened(target) as store:
            held = await store.executor.begin()
            try:
                with monkeypatch.context() as patched:
                    if kind == "engine":
                        patched.setattr(target.pool, "_timeout", 0.05)
                    else:
                        make_impatient(store.executor, patched, 0.05)
                    for work in (take, lambda store: store.executor.begin()):
                        with pytest.raises(StoreBusy, match=r"free|in use") as caught:
                            await work(store)
                        assert "keep transactions short" in caught.value.fix
                        assert "larger pool" in caught.value.fix
                assert store.is_row_fault(caught.value), "so a settle goes on row by row, and later"
            finally:
                await held.end()
            await walk(store)

    way.run(scenario)


# ---------------------------------------------------------------- given back


def lent_out(pool: Any) -> int:
    """Connections of a pool or engine that are not back, or not fit to be lent again."""
    if isinstance(pool, connections.Pool):
        return len(pool._lent)
    if hasattr(pool, "dialect"):
        return int(pool.pool.checkedout())
    if hasattr(pool, "get_stats"):
        stats = pool.get_stats()
        return int(stats["pool_size"] - stats["pool_available"])
    return int(pool.get_size() - pool.get_idle_size())


async def until_back(pool: Any) -> None:
    """psycopg's pools take them back in the background."""
    for _ in range(2000):
        if not lent_out(pool):
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{lent_out(pool)} are lent")


async def everything(store: Any) -> None:
    await walk(store)
    for ends_well in (True, False):
        opened = await store.executor.begin()
        await opened.query("SELECT 1")
        await opened.savepoint("s")
        with pytest.raises(Exception, match="no_such_table"):
            await opened.query("SELECT * FROM no_such_table")
        await opened.rollback_to("s")
        await (opened.commit() if ends_well else opened.end())
    with pytest.raises(Exception, match="no_such_table"):
        await store.executor.fetch("SELECT * FROM no_such_table")
    with pytest.raises(ZeroDivisionError):
        await store.executor.transact(_divide)


async def _divide(_: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("autocommit", [False, True])
def test_psycopgs_connections_come_back_as_they_were(postgres_table: Table, autocommit: bool) -> None:
    way = Way("psycopg", postgres_table)
    kept = {"autocommit": autocommit, "row_factory": dict_row, "prepare_threshold": 3}

    async def scenario() -> None:
        async with way.pool(1, kwargs=kept, configure=serializable) as pool, way.opened(pool) as store:
            with pool.connection() as connection:
                session = connection.info.backend_pid
            await everything(store)
            assert lent_out(pool) == 0
            with pool.connection() as connection:
                assert connection.info.backend_pid == session, "nobody had to replace it"
                assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
                assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE
                assert {name: getattr(connection, name) for name in kept} == kept
                assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}

    def serializable(connection: Any) -> None:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    way.run(scenario)


@pytest.mark.parametrize("autocommit", [False, True])
def test_psycopgs_async_connections_come_back_as_they_were(postgres_table: Table, autocommit: bool) -> None:
    way = Way("psycopg-async", postgres_table)
    kept = {"autocommit": autocommit, "row_factory": dict_row, "prepare_threshold": 3}

    async def scenario() -> None:
        async with way.pool(1, kwargs=kept, configure=serializable) as pool, way.opened(pool) as store:
            async with pool.connection() as connection:
                session = connection.info.backend_pid
            await everything(store)
            await until_back(pool)
            async with pool.connection() as connection:
                assert connection.info.backend_pid == session, "nobody had to replace it"
                assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
                assert connection.isolation_level is psycopg.IsolationLevel.SERIALIZABLE
                assert {name: getattr(connection, name) for name in kept} == kept

    async def serializable(connection: Any) -> None:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)

    way.run(scenario)


def test_asyncpgs_connections_come_back_as_they_were(postgres_table: Table) -> None:
    way = Way("asyncpg", postgres_table)

    async def scenario() -> None:
        async with way.pool(1) as pool, way.opened(pool) as store:
            session = await pool.fetchval("SELECT pg_backend_pid()")
            await everything(store)
            await until_back(pool)
            async with pool.acquire() as connection:
                assert connection.get_server_pid() == session
                assert not connection.is_in_transaction()

    way.run(scenario)


def test_an_engines_connections_come_back_as_they_were(way: Way) -> None:
    async def scenario() -> None:
        async with way.engine(1) as engine, way.opened(engine) as store:
            await everything(store)
            await until_back(engine)
            lent = engine.raw_connection() if not way.is_async else await engine.raw_connection()
            connection = lent.driver_connection
            if way.driver == "asyncpg":
                assert not connection.is_in_transaction()
            else:
                assert not connection.autocommit
                assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
            await greenlet_spawn(lent.close) if way.is_async else lent.close()
            assert len(way.table.sessions(way.mark)) == 1

    way.run(scenario)


def test_a_closed_store_leaves_no_session(way: Way) -> None:
    async def scenario() -> None:
        store = way.store()
        await store.open()
        held = [await store.executor.begin() for _ in range(3)]
        for each in held:
            await each.end()
        assert len(way.table.sessions(way.mark)) == 3
        await store.close()
        await store.close()

    way.run(scenario)
    until_gone(way)


def until_gone(way: Way) -> None:
    """A server notices that a client has gone a moment after it went."""
    pause = threading.Event()
    for _ in range(2000):
        if not way.table.sessions(way.mark):
            return
        pause.wait(0.002)
    raise AssertionError("sessions are left")


@pytest.mark.parametrize("kind", ["pool", "engine"])
def test_what_was_given_is_not_closed(way: Way, kind: str) -> None:
    async def scenario() -> None:
        async with way.target(kind) as target:
            for _ in range(2):
                async with way.opened(target) as store:
                    await walk(store)
            await until_back(target)

    way.run(scenario)
