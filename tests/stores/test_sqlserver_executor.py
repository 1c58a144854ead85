"""The executors for SQL Server over a stand-in for the driver (see sqlserver_kit): what they say, when they give up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from aftercommit.errors import StoreBusy
from aftercommit.ports import Colour
from aftercommit.stores.sql import connections
from aftercommit.stores.sql.connections import LARGEST, TRIES, abandoned
from aftercommit.stores.sqlserver.connection import LOCK_TIMEOUT, SESSION
from tests.stores.sqlserver_kit import (
    INSERT,
    SELECT,
    Connection,
    Cursor,
    Error,
    IntegrityError,
    OperationalError,
    SqlServerBench,
    deadlock,
    lost,
    refused,
)


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def bench(request: pytest.FixtureRequest) -> SqlServerBench:
    return SqlServerBench(request.param)


def assert_nothing_left(bench: SqlServerBench) -> None:
    """Threads that are on their way out are waited for."""
    for thread in threading.enumerate():
        if thread.name.startswith("aftercommit-sqlserver"):
            thread.join(5)
            assert not thread.is_alive(), f"{thread.name} stays"
    assert bench.server.open == []


# ---------------------------------------------------------------- statements and transactions


def test_a_statement_of_its_own_needs_no_transaction(bench: SqlServerBench) -> None:
    """One round trip, after one that wakes the connection and sets its session."""

    async def scenario() -> None:
        assert await bench.executor.execute(INSERT, (1,)) == 1
        assert await bench.executor.fetch(SELECT, writes=False) == [(1,)]
        assert await bench.executor.transact(lambda tx: tx.fetch(SELECT), writes=False) == [(1,)]

    bench.run(scenario)
    assert bench.server.said == ["session", INSERT, "session", SELECT, "session", SELECT]
    assert len(bench.server.connections) == 1


def test_a_transaction_is_begun_and_committed(bench: SqlServerBench) -> None:
    bench.run(lambda: bench.insert(1, 2))
    assert bench.server.said == ["begin", INSERT, INSERT, "commit"]
    assert bench.server.committed == [1, 2]


def test_the_session_is_set_for_every_use_of_a_connection() -> None:
    """Whatever the user before has left behind."""
    for setting in ("XACT_ABORT", "IMPLICIT_TRANSACTIONS", f"LOCK_TIMEOUT {LOCK_TIMEOUT}", "READ COMMITTED"):
        assert setting in SESSION


@pytest.mark.parametrize("error", [IntegrityError, SystemExit])
def test_a_failed_transaction_is_rolled_back_and_leaves_a_clean_connection(
    bench: SqlServerBench, error: type[BaseException]
) -> None:
    async def work(tx: Any) -> None:
        await tx.execute(INSERT, (1,))
        if error is SystemExit:
            raise SystemExit(3)
        await tx.execute(INSERT, (1,))

    async def scenario() -> None:
        with pytest.raises(error):
            await bench.executor.transact(work)
        await bench.insert(5)

    bench.run(scenario)
    assert bench.server.committed == [5]
    assert len(bench.server.connections) == 1, "the same one is used again"
    assert "rollback" in bench.server.said


def test_an_error_of_a_later_statement_of_a_batch_is_raised(
    bench: SqlServerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver tells of it only when its result is asked for."""

    def second(cursor: Cursor) -> bool:
        if cursor._connection.server.log[-1] == INSERT:
            raise refused(Error, "22001", 2628, "String or binary data would be truncated.")
        return False

    async def scenario() -> None:
        monkeypatch.setattr(Cursor, "nextset", second)
        with pytest.raises(Error, match="2628"):
            await bench.executor.execute(INSERT, (1,))
        with pytest.raises(Error, match="2628"):
            await bench.executor.fetch(INSERT, (2,))
        opened = await bench.executor.begin()
        with pytest.raises(Error, match="2628"):
            await opened.query(INSERT, (3,))
        with pytest.raises(Error, match="2628"):
            await opened.execute_many(INSERT, [(4,), (5,)])
        await opened.end()

    bench.run(scenario)


# ---------------------------------------------------------------- deadlocks


def test_a_deadlock_is_answered_by_another_try_from_the_start(bench: SqlServerBench) -> None:
    attempts: list[int] = []

    async def work(tx: Any) -> int:
        attempts.append(len(attempts))
        await tx.execute(INSERT, (len(attempts),))
        await tx.fetch(SELECT)
        return len(attempts)

    async def scenario() -> None:
        bench.server.fail(SELECT, deadlock(), times=2, ends_transaction=True)
        assert await bench.executor.transact(work) == 3

    bench.run(scenario)
    assert bench.server.committed == [3]
    assert bench.server.said.count("begin") == 3


def test_a_statement_of_its_own_is_tried_again_too(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        bench.server.fail(INSERT, deadlock(), times=TRIES - 1)
        await bench.executor.execute(INSERT, (1,))
        bench.server.fail(SELECT, deadlock())
        assert await bench.executor.fetch(SELECT) == [(1,)]

    bench.run(scenario)
    assert bench.server.said.count(INSERT) == TRIES


def test_deadlocks_without_end_are_told(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        bench.server.fail(INSERT, deadlock(), times=100, ends_transaction=True)
        with pytest.raises(Error, match="1205"):
            await bench.insert(1)

    bench.run(scenario)
    assert bench.server.said.count("begin") == TRIES


def test_other_errors_are_not_tried_again(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        bench.server.fail(INSERT, refused(Error, "HYT00", 1222, "Lock request time out period exceeded."))
        with pytest.raises(Error, match="1222"):
            await bench.insert(1)

    bench.run(scenario)
    assert bench.server.said == ["begin", INSERT, "rollback"]


# ---------------------------------------------------------------- connections


def test_an_idle_connection_that_was_killed_is_replaced(bench: SqlServerBench) -> None:
    """By the next use, whatever that is; nobody hears of it."""

    async def scenario() -> None:
        await bench.insert_as_user(0)
        await bench.insert(1)
        bench.server.kill()
        await bench.insert(2)
        bench.server.kill()
        assert await bench.executor.fetch(SELECT) == [(0,), (1,), (2,)]
        bench.server.kill()
        opened = await bench.executor.begin()
        assert opened.is_open
        await opened.execute(INSERT, (3,))
        await opened.commit()
        assert [each.is_dead for each in bench.server.open] == [True, False], "the store's own is not used yet"

    bench.run(scenario)
    assert bench.server.committed == [0, 1, 2, 3]
    assert_nothing_left(bench)


@pytest.mark.parametrize("word", [INSERT, "COMMIT"])
def test_a_connection_that_breaks_is_not_given_back(bench: SqlServerBench, word: str) -> None:
    def cut(connection: Connection, sql: str) -> None:
        if sql.startswith(word) and len(bench.server.connections) == 1:
            connection.undo()
            connection.is_dead = True
            raise lost()

    async def scenario() -> None:
        bench.server.before = cut
        with pytest.raises(OperationalError):
            await bench.insert(1)
        await bench.insert(2)

    bench.run(scenario)
    assert bench.server.committed == [2]
    assert len(bench.server.connections) == 2
    assert_nothing_left(bench)


def test_a_server_that_cannot_be_reached_is_tried_again_by_the_next(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        bench.server.connecting = [lost(), lost()]
        with pytest.raises(OperationalError):
            await bench.executor.fetch(SELECT)
        with pytest.raises(OperationalError):
            await bench.executor.begin()
        await bench.insert(1)

    bench.run(scenario)
    assert bench.server.committed == [1]


def test_only_so_many_connections_are_opened(bench: SqlServerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes in vain is told, and the store has its own."""
    monkeypatch.setattr(connections, "PATIENCE", 0.05)

    async def scenario() -> None:
        held = [await bench.executor.begin() for _ in range(LARGEST)]
        with pytest.raises(StoreBusy, match=f"all {LARGEST} connections"):
            await bench.executor.begin()
        assert len(bench.server.connections) == LARGEST
        await bench.insert(1)
        await held.pop().end()
        await bench.insert_as_user(2)
        for each in held:
            await each.end()
        assert len(bench.server.connections) == LARGEST + 1

    bench.run(scenario)
    assert bench.server.committed == [1, 2]
    assert_nothing_left(bench)


def test_close_leaves_no_connection_and_no_thread(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await bench.insert(1)
        assert len(bench.server.open) == 2
        await bench.executor.close()
        assert len(bench.server.open) == 1, "the one that is out"
        await opened.execute(INSERT, (2,))
        await opened.commit()
        assert bench.executor._lent._idle == [], "it has come back too late"
        await bench.executor.close()
        await bench.insert(3)

    bench.run(scenario)
    assert_nothing_left(bench)
    assert bench.server.committed == [1, 2, 3]


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        await bench.insert(1)
        (parents,) = bench.server.open
        before = len(abandoned)
        bench.executor.abandon()
        said = len(bench.server.log)
        await bench.insert(2)
        assert not parents.closed
        assert len(abandoned) == before + 1
        assert bench.server.log[said:][0] != SESSION
        assert len(bench.server.open) == 2

    bench.run(scenario)
    assert len(bench.server.open) == 1


def test_a_connection_that_takes_no_writes_is_not_lent_again(bench: SqlServerBench) -> None:
    """After a switchover it stays with the former primary; a new one leads to the new one."""
    read_only = refused(Error, "42000", 3906, "Failed to update database because it is read-only.")

    async def scenario() -> None:
        for insert in (bench.insert, bench.insert_as_user):
            bench.server.fail("INSERT", read_only)
            with pytest.raises(Error, match="read-only"):
                await insert(len(bench.server.connections))
            await insert(len(bench.server.connections))

    bench.run(scenario)
    assert (len(bench.server.connections), len(bench.server.committed)) == (4, 2)
