"""Transactions that the user steers, on a connection of the store or on one of the user's own."""

from __future__ import annotations

import sqlite3

import pytest

from aftercommit.errors import StoreBusy
from aftercommit.stores.sql.execution import Fault
from tests.stores.bench import Bench


def test_an_open_transaction_commits_and_gives_its_connection_back(bench: Bench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        assert opened.is_open
        assert await opened.execute("INSERT INTO t VALUES (1)") == 1
        assert await opened.execute_many("INSERT INTO t VALUES (?)", [(2,), (3,)]) == 2
        assert await opened.fetch("SELECT n FROM t ORDER BY n") == [(1,), (2,), (3,)]
        result = await opened.query("UPDATE t SET n = n + 10 RETURNING n")
        assert sorted(result.rows) == [(11,), (12,), (13,)]
        assert bench.numbers() == []
        await opened.commit()
        assert not opened.is_open
        await bench.insert(1)
        assert [len(pool._idle) for pool in bench.pools] == [1, 1]
        assert bench.open_connections == 2

    bench.run(scenario)
    assert bench.numbers() == [1, 11, 12, 13]


def test_an_open_transaction_that_ends_without_commit_is_rolled_back(bench: Bench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute("INSERT INTO t VALUES (1)")
        await opened.end()
        assert not opened.is_open
        await bench.insert(3)
        assert [len(pool._idle) for pool in bench.pools] == [1, 1]
        assert bench.open_connections == 2

    bench.run(scenario)
    assert bench.numbers() == [3]


def test_a_commit_that_fails_leaves_the_transaction_to_be_ended(bench: Bench) -> None:
    """The connection is given back once, by the end."""

    async def scenario() -> None:
        bench.first.execute("CREATE TABLE child (n REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
        opened = await bench.executor.begin()
        await opened.execute("PRAGMA defer_foreign_keys = ON")
        await opened.execute("INSERT INTO child VALUES (7)")
        with pytest.raises(sqlite3.IntegrityError):
            await opened.commit()
        assert opened.is_open
        await opened.end()
        await bench.insert(1)
        assert [len(pool._idle) for pool in bench.pools] == [1, 1]
        assert bench.open_connections == 2

    connect = bench.connect

    def with_foreign_keys() -> sqlite3.Connection:
        made = connect()
        made.execute("PRAGMA foreign_keys = ON")
        return made

    bench.executor._connect = with_foreign_keys
    bench.run(scenario)
    assert bench.numbers() == [1]


def test_the_end_of_a_transaction_that_was_committed_hurts_nobody(bench: Bench) -> None:
    """Who was interrupted in a commit cannot know; by then somebody else may have the connection."""

    async def scenario() -> None:
        first = await bench.executor.begin()
        await first.execute("INSERT INTO t VALUES (1)")
        await first.commit()
        second = await bench.executor.begin()
        await second.execute("INSERT INTO t VALUES (2)")
        assert bench.open_connections == 1, "the second has the connection of the first"
        await first.end()
        assert second.is_open
        await second.commit()
        assert len(bench.executor._lent._idle) == 1, "it is not given back twice"

    bench.run(scenario)
    assert bench.numbers() == [1, 2]


def test_savepoints_keep_and_undo(bench: Bench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        for number, is_kept in ((1, True), (2, False), (3, True)):
            await opened.savepoint("level")
            await opened.execute("INSERT INTO t VALUES (?)", (number,))
            await (opened.release if is_kept else opened.rollback_to)("level")
        await opened.commit()

    bench.run(scenario)
    assert bench.numbers() == [1, 3]


@pytest.mark.parametrize("mode", ["open", "implicit"])
def test_a_refused_row_takes_its_batch_but_not_the_callers_transaction(bench: Bench, mode: str) -> None:
    """On a connection of the caller's own, begun or not."""
    own = sqlite3.connect(bench.path)
    tx = bench.executor.adopt(own)

    async def scenario() -> None:
        if mode == "open":
            await tx.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.IntegrityError):
            await tx.execute_many("INSERT INTO t VALUES (?)", [(2,), (3,), (2,)])
        assert own.in_transaction == (mode == "open")
        await tx.execute_many("INSERT INTO t VALUES (?)", [(4,), (5,)])
        assert own.in_transaction, "nothing was committed for the caller"
        own.rollback() if mode == "implicit" else own.commit()

    bench.run(scenario)
    own.close()
    assert bench.numbers() == ([1, 4, 5] if mode == "open" else [])


def test_a_statement_that_ends_the_transaction_shows_its_own_error(bench: Bench) -> None:
    """As a full disk does: there is no savepoint any more to go back to."""
    own = sqlite3.connect(bench.path, isolation_level=None)
    own.execute("CREATE TRIGGER over BEFORE INSERT ON t WHEN new.n = 3 BEGIN SELECT RAISE(ROLLBACK, 'disk'); END")
    own.execute("BEGIN")

    async def scenario() -> None:
        with pytest.raises(sqlite3.IntegrityError, match="disk"):
            await bench.executor.adopt(own).execute_many("INSERT INTO t VALUES (?)", [(2,), (3,)])

    bench.run(scenario)
    assert not own.in_transaction
    own.close()


def test_only_connections_of_the_driver_are_adopted(bench: Bench) -> None:
    for thing in (None, "connection", object(), bench.executor):
        assert bench.executor.adopt(thing) is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (sqlite3.IntegrityError("constraint"), Fault.ROW),
        (sqlite3.DataError("too big"), Fault.ROW),
        (OverflowError("int too large"), Fault.ROW),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate"), Fault.ROW),
        (sqlite3.OperationalError("no such table: outbox_event"), Fault.MISSING_TABLE),
        (sqlite3.OperationalError("database is locked"), Fault.OTHER),
        (sqlite3.OperationalError("disk is full"), Fault.OTHER),
        (StoreBusy("busy"), Fault.OTHER),
        (OSError("gone"), Fault.OTHER),
        (ValueError("no"), Fault.OTHER),
    ],
    ids=repr,
)
def test_a_row_is_to_blame_for_its_values_only(bench: Bench, error: Exception, expected: Fault) -> None:
    assert bench.executor.fault_of(error) is expected


def test_faults_of_one_row_are_those_that_the_other_rows_can_go_on_without() -> None:
    assert {fault for fault in Fault if fault.is_of_one_row} == {Fault.ROW, Fault.BUSY, Fault.CONFLICT}
