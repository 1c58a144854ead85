"""Transactions of the user and connections of the caller on SQL Server, over a stand-in for the driver."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aftercommit.errors import TransactionEnded
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from tests.stores.sqlserver_kit import (
    INSERT,
    SELECT,
    Connection,
    Cursor,
    Error,
    IntegrityError,
    Server,
    SqlServerBench,
    refused,
)
from tests.support import Signal


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def bench(request: pytest.FixtureRequest) -> SqlServerBench:
    return SqlServerBench(request.param)


@pytest.fixture
def on_loop() -> SqlServerBench:
    return SqlServerBench(Colour.ASYNC)


# ---------------------------------------------------------------- transactions of the user


def test_a_transaction_of_the_user(bench: SqlServerBench) -> None:
    """Savepoints are not released: there is no such statement."""

    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute(INSERT, (1,))
        await opened.savepoint("a_1")
        await opened.execute(INSERT, (2,))
        await opened.rollback_to("a_1")
        await opened.savepoint("a_2")
        assert (await opened.query(INSERT, (3,))).rowcount == 1
        await opened.release("a_2")
        assert (await opened.query(SELECT)).rows == [(1,), (3,)]
        assert opened.is_open
        await opened.commit()
        assert not opened.is_open
        await opened.end()

    bench.run(scenario)
    assert bench.server.committed == [1, 3]
    assert bench.server.said[1:6] == [
        INSERT,
        "SAVE TRANSACTION [a_1]",
        INSERT,
        "ROLLBACK TRANSACTION [a_1]",
        "SAVE TRANSACTION [a_2]",
    ]


def test_a_transaction_that_is_not_committed_is_undone(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute(INSERT, (1,))
        await opened.end()
        await opened.end()
        await bench.insert_as_user(2)

    bench.run(scenario)
    assert bench.server.committed == [2]
    assert len(bench.server.connections) == 1


def test_nothing_is_written_after_the_server_has_rolled_back(bench: SqlServerBench) -> None:
    """In autocommit mode the next statement would be saved by itself."""

    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute(INSERT, (1,))
        bench.server.fail(SELECT, refused(Error, "22018", 245, "Conversion failed."), ends_transaction=True)
        with pytest.raises(Error, match="245"):
            await opened.query(SELECT)
        assert not opened.is_open
        for attempt in (opened.execute(INSERT, (2,)), opened.execute_many(INSERT, [(3,)]), opened.commit()):
            with pytest.raises(TransactionEnded, match="rolled it back"):
                await attempt
        await opened.end()
        await bench.insert(4)

    bench.run(scenario)
    assert bench.server.committed == [4]


def test_a_commit_that_finds_no_transaction_raises(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute(INSERT, (1,))
        bench.server.connections[0].undo()  # unseen
        with pytest.raises(TransactionEnded) as caught:
            await opened.commit()
        assert isinstance(caught.value.__cause__, Error)
        await opened.end()

    bench.run(scenario)
    assert bench.server.committed == []


def test_what_the_user_does_on_the_connection_itself_is_seen(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        ended = await bench.executor.begin()
        ended.connection.cursor().execute("COMMIT TRANSACTION")
        assert not ended.is_open
        await ended.end()
        nested = await bench.executor.begin()
        nested.connection.cursor().execute("BEGIN TRANSACTION")
        await nested.execute(INSERT, (1,))
        assert nested.is_open
        with pytest.raises(TransactionEnded, match="begun inside"):
            await nested.commit()
        await nested.end()
        closed = await bench.executor.begin()
        closed.connection.close()
        assert not closed.is_open
        await closed.end()
        await bench.insert(2)

    bench.run(scenario)
    assert bench.server.committed == [2]


def test_a_connection_that_was_handed_out_commits_as_others(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        opened.connection.cursor().execute(INSERT, (1,))
        await opened.commit()
        before = len(bench.server.log)
        await bench.insert_as_user(2)
        assert "SELECT @@TRANCOUNT" not in bench.server.log[before:], "it is ours again"

    bench.run(scenario)
    assert bench.server.committed == [1, 2]
    assert len(bench.server.connections) == 1


# ---------------------------------------------------------------- many


def test_many_rows_are_written_all_or_none_and_the_rest_stands(bench: SqlServerBench) -> None:
    async def work(tx: Any) -> None:
        await tx.execute(INSERT, (1,))
        with pytest.raises(IntegrityError):
            await tx.execute_many(INSERT, [(2,), (3,), (1,)])
        assert await tx.execute_many(INSERT, [(4,), (5,)]) == 2

    bench.run(lambda: bench.executor.transact(work))
    assert bench.server.committed == [1, 4, 5]


def test_many_rows_whose_error_ends_the_transaction(bench: SqlServerBench) -> None:
    async def work(tx: Any) -> None:
        bench.server.fail(INSERT, refused(Error, "22018", 245, "Conversion failed."), ends_transaction=True)
        await tx.execute_many(INSERT, [(2,), (3,)])

    async def scenario() -> None:
        with pytest.raises(Error, match="245"):
            await bench.executor.transact(work)

    bench.run(scenario)
    assert bench.server.committed == []
    assert "ROLLBACK TRANSACTION aftercommit_many" not in bench.server.said


# ---------------------------------------------------------------- the caller's own connection


def test_a_connection_of_the_caller_is_adopted(bench: SqlServerBench) -> None:
    raw = Server().connect()
    tx = bench.executor.adopt(raw)
    assert (tx.is_active, tx.is_begun) == (False, False), "every statement would be saved by itself"
    raw.autocommit = False
    assert (tx.is_active, tx.is_begun) == (True, False), "the driver begins before the INSERT"
    assert run(tx.execute(INSERT, (1,))) == 1
    assert (tx.is_active, tx.is_begun) == (True, True)
    assert run(tx.fetch(SELECT)) == [(1,)]
    raw.close()
    assert (tx.is_active, tx.is_begun) == (False, False)
    assert bench.executor.adopt(object()) is None


@pytest.mark.parametrize("is_begun", [True, False])
def test_many_rows_on_the_callers_connection_are_all_or_none(bench: SqlServerBench, is_begun: bool) -> None:
    server = Server()
    raw = server.connect()
    raw.autocommit = False
    tx = bench.executor.adopt(raw)
    if is_begun:
        run(tx.execute(INSERT, (0,)))
    with pytest.raises(IntegrityError):
        run(tx.execute_many(INSERT, [(1,), (2,), (1,)]))
    assert raw.pending == ([0] if is_begun else [])
    assert run(tx.execute_many(INSERT, [(1,), (2,)])) == 2
    assert raw.pending == ([0, 1, 2] if is_begun else [1, 2])


# ---------------------------------------------------------------- cancellation


def test_a_begin_that_is_cancelled_leaves_no_transaction(on_loop: SqlServerBench) -> None:
    inside, may_go_on, given = Signal(), Signal(), Signal()

    def slow(connection: Connection, sql: str) -> None:
        if sql.endswith("BEGIN TRANSACTION") and not inside.is_set:
            inside.set()
            may_go_on.wait_here()

    async def scenario() -> None:
        on_loop.server.before = slow
        give = on_loop.executor._lent.give

        async def noted(*lent: Any, **how: Any) -> None:
            await give(*lent, **how)
            given.set()

        on_loop.executor._lent.give = noted
        task = asyncio.create_task(on_loop.executor.begin())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        await given.wait()
        assert [each.depth for each in on_loop.server.open] == [0]
        await on_loop.insert_as_user(1)

    on_loop.run(scenario)
    assert on_loop.server.committed == [1]
    assert len(on_loop.server.connections) == 1


def test_a_commit_that_is_cancelled_runs_to_its_end(on_loop: SqlServerBench) -> None:
    inside, may_go_on = Signal(), Signal()

    def slow(connection: Connection, sql: str) -> None:
        if sql == "COMMIT TRANSACTION":
            inside.set()
            may_go_on.wait_here()

    async def scenario() -> None:
        opened = await on_loop.executor.begin()
        await opened.execute(INSERT, (1,))
        on_loop.server.before = slow
        task = asyncio.create_task(opened.commit())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        await opened.end()
        assert len(on_loop.executor._lent._idle) == 1

    on_loop.run(scenario)
    assert on_loop.server.committed == [1]


def test_an_interrupt_after_the_servers_begin_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the server's answer and the next line."""
    bench = SqlServerBench(Colour.BLOCKING)
    close = Cursor.close

    def interrupted(cursor: Cursor) -> None:
        monkeypatch.setattr(Cursor, "close", close)
        raise KeyboardInterrupt

    async def scenario() -> None:
        await bench.insert_as_user(1)
        monkeypatch.setattr(Cursor, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await bench.executor.begin()
        assert bench.server.open == []
        await bench.insert_as_user(2)

    bench.run(scenario)
    assert bench.server.committed == [1, 2]
