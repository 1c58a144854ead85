"""The executors for SQL Server over a stand-in for the driver (see sqlserver_kit): what they say, when they give up."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aftercommit.errors import TransactionEnded, UnsupportedTransaction
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.connection_thread import abandoned
from aftercommit.stores.retrying import TRIES
from aftercommit.stores.sqlserver.connection import LOCK_TIMEOUT, SESSION
from tests.stores.sqlserver_kit import (
    INSERT,
    SELECT,
    Connection,
    Cursor,
    Error,
    IntegrityError,
    OperationalError,
    Server,
    SqlServerBench,
    deadlock,
    lost,
    refused,
)
from tests.support import Signal


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def bench(request: pytest.FixtureRequest) -> SqlServerBench:
    return SqlServerBench(request.param)


@pytest.fixture
def on_loop() -> SqlServerBench:
    return SqlServerBench(Colour.ASYNC)


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
        await bench.insert(1)
        bench.server.kill()
        await bench.insert(2)
        bench.server.kill()
        assert await bench.executor.fetch(SELECT) == [(1,), (2,)]
        bench.server.kill()
        opened = await bench.executor.begin()
        assert opened.is_open
        await opened.execute(INSERT, (3,))
        await opened.commit()
        assert len(bench.server.open) == 1

    bench.run(scenario)
    assert bench.server.committed == [1, 2, 3]
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


def test_close_leaves_no_connection_and_no_thread(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await bench.insert(1)
        assert len(bench.server.open) == 2
        await bench.executor.close()
        assert len(bench.server.open) == 1, "the one that is out"
        await opened.execute(INSERT, (2,))
        await opened.commit()
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
        "SAVE TRANSACTION a_1",
        INSERT,
        "ROLLBACK TRANSACTION a_1",
        "SAVE TRANSACTION a_2",
    ]


def test_a_transaction_that_is_not_committed_is_undone(bench: SqlServerBench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute(INSERT, (1,))
        await opened.end()
        await opened.end()
        await bench.insert(2)

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
        await bench.insert(2)
        assert "SELECT @@TRANCOUNT" not in bench.server.log[before:], "it is ours again"

    bench.run(scenario)
    assert bench.server.committed == [1, 2]
    assert len(bench.server.connections) == 1


@pytest.mark.parametrize("sql", ["COMMIT", "begin transaction", "/* x */ ROLLBACK TRANSACTION"])
def test_sql_text_does_not_steer_the_transaction(bench: SqlServerBench, sql: str) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        with pytest.raises(UnsupportedTransaction):
            await opened.query(sql)
        await opened.end()

    bench.run(scenario)


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
        give = on_loop.executor._give
        on_loop.executor._give = lambda *lent: (give(*lent), given.set())
        task = asyncio.create_task(on_loop.executor.begin())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        await given.wait()
        assert [each.depth for each in on_loop.server.open] == [0]
        await on_loop.insert(1)

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
        assert len(on_loop.executor._idle) == 1

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
        await bench.insert(1)
        monkeypatch.setattr(Cursor, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await bench.executor.begin()
        assert bench.server.open == []
        await bench.insert(2)

    bench.run(scenario)
    assert bench.server.committed == [1, 2]
