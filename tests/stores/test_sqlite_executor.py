"""The executors of SQLite: writers in line, connections clean and used again."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit.errors import OutboxError, StoreBusy
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.connections import LARGEST
from aftercommit.stores.sqlite import target
from aftercommit.stores.sqlite.executor import SqliteExecutor
from aftercommit.stores.sqlite.write_lock import write_lock_of
from tests.stores.bench import Bench, assert_nothing_left

# ---------------------------------------------------------------- writers in line


def test_writers_of_one_process_never_find_the_database_busy(blocking: Bench) -> None:
    """Threads. Their connections wait not a moment for SQLite's lock; the write lock does."""
    start, problems = threading.Barrier(4), []

    def write(first: int) -> None:
        start.wait()
        try:
            for number in range(first, first + 25):
                run(blocking.insert(number))
        except Exception as error:
            problems.append(error)

    writers = [threading.Thread(target=write, args=(25 * each,)) for each in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    run(blocking.executor.close())
    assert problems == []
    assert blocking.numbers() == list(range(100))


def test_tasks_never_find_the_database_busy(on_loop: Bench) -> None:
    """As many as have a connection that is kept: one that closes locks its file for a moment."""

    async def scenario() -> None:
        for start in range(0, 5 * LARGEST, LARGEST):
            await asyncio.gather(*(on_loop.insert(number) for number in range(start, start + LARGEST)))

    on_loop.run(scenario)
    assert on_loop.numbers() == list(range(5 * LARGEST))


def test_two_executors_of_one_file_share_a_write_lock(blocking: Bench) -> None:
    other = SqliteExecutor(blocking.connect, str(blocking.path))
    assert other._write_lock is blocking.executor._write_lock is write_lock_of(str(blocking.path))
    assert write_lock_of(str(blocking.path) + "x") is not other._write_lock


def test_a_transaction_inside_another_is_told_so(bench: Bench, short_patience: None) -> None:
    """A wait for oneself ends, with the advice."""

    async def scenario() -> None:
        outer = await bench.executor.begin()
        with pytest.raises(StoreBusy, match="this process") as caught:
            await bench.insert(1)
        assert "through its tx" in caught.value.fix
        await outer.end()
        await bench.insert(2)

    bench.run(scenario)
    assert bench.numbers() == [2]


def test_readers_do_not_wait_for_a_writer(bench: Bench, short_patience: None) -> None:
    async def scenario() -> None:
        outer = await bench.executor.begin()
        await outer.execute("INSERT INTO t VALUES (1)")
        seen = await bench.executor.transact(lambda tx: tx.fetch("SELECT count(*) FROM t"), writes=False)
        assert seen == [(0,)]
        await outer.commit()

    bench.run(scenario)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """A process that holds the write lock of a file until it is told to end."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    started: list[subprocess.Popen[str]] = []

    def hold(path: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.communicate()


def test_another_process_that_holds_the_lock_is_named(
    bench: Bench, short_patience: None, elsewhere: Callable[[Path], subprocess.Popen[str]]
) -> None:
    """F91: as StoreBusy, and the connection is good for the next."""

    async def scenario() -> None:
        await bench.insert(1)
        holder = elsewhere(bench.path)
        with pytest.raises(StoreBusy, match="another process") as caught:
            await bench.insert(2)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        assert "transactions short" in caught.value.fix
        with pytest.raises(StoreBusy):
            await bench.executor.begin()
        holder.communicate()
        await bench.insert(3)
        assert [len(pool._idle) for pool in bench.pools] == [1, 1]
        assert bench.open_connections == 2

    bench.run(scenario)
    assert bench.numbers() == [1, 3]


def test_a_file_that_is_locked_when_it_is_opened_is_busy(
    tmp_path: Path, short_patience: None, elsewhere: Callable[[Path], subprocess.Popen[str]]
) -> None:
    """Somebody writes in it who does not use WAL yet."""
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as setup:
        setup.execute("CREATE TABLE t (n)")
    setup.close()
    elsewhere(path)
    with pytest.raises(StoreBusy, match="another process"):
        target.opener(str(path))()


# ---------------------------------------------------------------- connections are clean


class Deliberate(Exception):
    """Raised to fail."""


async def fail_after_insert(tx: Any) -> None:
    await tx.execute("INSERT INTO t VALUES (1)")
    raise Deliberate


async def fail_in_sql(tx: Any) -> None:
    await tx.execute("INSERT INTO t VALUES (1)")
    await tx.execute("INSERT INTO t VALUES (1)")


async def exit_after_insert(tx: Any) -> None:
    await tx.execute("INSERT INTO t VALUES (1)")
    raise SystemExit(3)


async def fail_in_commit(tx: Any) -> None:
    await tx.execute("INSERT INTO child VALUES (7)")


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (fail_after_insert, Deliberate),
        (fail_in_sql, sqlite3.IntegrityError),
        (exit_after_insert, SystemExit),
        (fail_in_commit, sqlite3.IntegrityError),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_failed_transaction_leaves_a_clean_connection(bench: Bench, work: Any, error: type[BaseException]) -> None:
    connect = bench.connect

    def with_foreign_keys() -> sqlite3.Connection:
        made = connect()
        made.execute("PRAGMA foreign_keys = ON")
        made.execute("CREATE TABLE IF NOT EXISTS child (n REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
        return made

    bench.executor._connect = with_foreign_keys

    async def scenario() -> None:
        with pytest.raises(error):
            await bench.executor.transact(work)
        assert bench.open_connections == 1
        assert [made.in_transaction for made in bench.kind.living] == [False]
        await bench.insert(5)
        assert bench.open_connections == 1, "the same one is used again"

    bench.run(scenario)
    assert bench.numbers() == [5]


def test_connections_are_used_again(bench: Bench) -> None:
    async def scenario() -> None:
        for number in range(10):
            await bench.insert(number)
        assert bench.open_connections == 1

    bench.run(scenario)
    assert bench.open_connections == 0


def test_a_burst_is_served_by_the_connections_of_the_last_one(bench: Bench) -> None:
    burst = LARGEST
    inside = threading.Barrier(burst)

    async def work(tx: Any) -> None:
        inside.wait(20)

    async def scenario() -> None:
        if bench.colour is Colour.ASYNC:
            await asyncio.gather(*(bench.executor.transact(work, writes=False) for _ in range(burst)))
            return
        readers = [
            threading.Thread(target=lambda: run(bench.executor.transact(work, writes=False))) for _ in range(burst)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    async def whole() -> None:
        await scenario()
        kept = set(bench.executor._own._idle)
        assert len(kept) == LARGEST
        await scenario()
        assert set(bench.executor._own._idle) == kept

    bench.run(whole)
    assert_nothing_left(bench)


def test_a_connection_that_cannot_be_opened_is_tried_again(bench: Bench) -> None:
    connect, failures = bench.connect, [OutboxError("not now"), OutboxError("not now")]

    def flaky() -> sqlite3.Connection:
        if failures:
            raise failures.pop()
        return connect()

    bench.executor._connect = flaky

    async def scenario() -> None:
        with pytest.raises(OutboxError, match="not now"):
            await bench.insert(1)
        with pytest.raises(OutboxError, match="not now"):
            await bench.executor.begin()
        await bench.insert(2)

    bench.run(scenario)
    assert bench.numbers() == [2]
