"""The executors of SQLite: writers in line, connections clean, nothing left behind."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit.errors import OutboxError, StoreBusy, UnsupportedTransaction
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.sqlite import aio, connection, target
from aftercommit.stores.sqlite.aio import AsyncSqliteExecutor, ConnectionThread
from aftercommit.stores.sqlite.connection import Gate, gate_of
from aftercommit.stores.sqlite.executor import KEPT, SqliteExecutor
from tests.stores.kit import read, run_in
from tests.support import Signal

#: Long enough to be a wait, short enough not to be felt.
SOON = 0.05


class Opened(sqlite3.Connection):
    """A connection that is counted while it is open."""

    living: set[Opened]

    def close(self) -> None:
        type(self).living.discard(self)
        super().close()


class Bench:
    """An executor of either colour over a file with one table, and the connections that it has open."""

    def __init__(self, colour: Colour, path: Path) -> None:
        self.colour = colour
        self.path = path
        self.kind: type[Opened] = type("Counted", (Opened,), {"living": set()})
        self.executor: Any = (AsyncSqliteExecutor if colour is Colour.ASYNC else SqliteExecutor)(
            self.connect, str(path)
        )
        # It stays open: the first connection to a file sets up the log, and for a moment nobody else gets in.
        self.first = sqlite3.connect(path)
        self.first.executescript("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY)")

    def connect(self, **options: Any) -> sqlite3.Connection:
        # No busy timeout: whoever meets another writer fails at once.
        made = sqlite3.connect(self.path, timeout=0, check_same_thread=False, isolation_level=None, factory=self.kind)
        self.kind.living.add(made)
        return made

    @property
    def open_connections(self) -> int:
        return len(self.kind.living)

    def run(self, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def whole() -> Any:
            try:
                return await scenario()
            finally:
                await self.executor.close()

        return run_in(self.colour, whole())

    async def insert(self, number: int) -> None:
        await self.executor.transact(lambda tx: tx.execute("INSERT INTO t VALUES (?)", (number,)))

    def numbers(self) -> list[int]:
        return [row["n"] for row in read(self.path, "SELECT n FROM t ORDER BY n")]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[[Colour], Bench]]:
    made: list[Bench] = []

    def make(colour: Colour) -> Bench:
        made.append(Bench(colour, tmp_path / "bench.db"))
        return made[-1]

    yield make
    for each in made:
        each.first.close()


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def bench(request: pytest.FixtureRequest, make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(request.param)


@pytest.fixture
def blocking(make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(Colour.BLOCKING)


@pytest.fixture
def on_loop(make_bench: Callable[[Colour], Bench]) -> Bench:
    return make_bench(Colour.ASYNC)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", SOON)
    monkeypatch.setattr(target, "BUSY_TIMEOUT", SOON)


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("aftercommit-sqlite")]


def assert_nothing_left(bench: Bench) -> None:
    """Threads that are on their way out are waited for; one that stays makes this fail."""
    for thread in our_threads():
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} stays"
    assert bench.open_connections == 0


# ---------------------------------------------------------------- writers in line


def test_writers_of_one_process_never_find_the_database_busy(blocking: Bench) -> None:
    """Threads. Their connections wait not a moment for SQLite's lock; the gate does."""
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
        for start in range(0, 5 * KEPT, KEPT):
            await asyncio.gather(*(on_loop.insert(number) for number in range(start, start + KEPT)))

    on_loop.run(scenario)
    assert on_loop.numbers() == list(range(5 * KEPT))


def test_two_executors_of_one_file_share_a_gate(blocking: Bench) -> None:
    other = SqliteExecutor(blocking.connect, str(blocking.path))
    assert other._gate is blocking.executor._gate is gate_of(str(blocking.path))
    assert gate_of(str(blocking.path) + "x") is not other._gate


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
        assert bench.open_connections == 1

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
        target._opener(str(path))()


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


def test_only_so_many_idle_connections_are_kept(bench: Bench) -> None:
    """A burst of readers does not stay open."""
    burst = KEPT + 4
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
        assert len(bench.executor._idle) == KEPT

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


# ---------------------------------------------------------------- transactions that the user steers


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
        assert bench.open_connections == 1

    bench.run(scenario)
    assert bench.numbers() == [1, 11, 12, 13]


def test_an_open_transaction_that_ends_without_commit_is_rolled_back(bench: Bench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute("INSERT INTO t VALUES (1)")
        await opened.end()
        assert not opened.is_open
        await bench.insert(3)
        assert bench.open_connections == 1

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
        assert (bench.open_connections, len(bench.executor._idle)) == (1, 1)

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
        assert len(bench.executor._idle) == 1, "it is not given back twice"

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


@pytest.mark.parametrize("sql", ["COMMIT", "  rollback;", "\nBEGIN IMMEDIATE", "savepoint x", "RELEASE x", "End"])
def test_statements_that_steer_the_transaction_are_refused(bench: Bench, sql: str) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        with pytest.raises(UnsupportedTransaction, match="unseen"):
            await opened.query(sql)
        assert opened.is_open
        await opened.end()

    bench.run(scenario)


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
        (sqlite3.IntegrityError("constraint"), True),
        (sqlite3.DataError("too big"), True),
        (OverflowError("int too large"), True),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate"), True),
        (sqlite3.OperationalError("database is locked"), False),
        (sqlite3.OperationalError("disk is full"), False),
        (StoreBusy("busy"), False),
        (OSError("gone"), False),
        (ValueError("no"), False),
    ],
    ids=repr,
)
def test_a_row_is_to_blame_for_its_values_only(bench: Bench, error: Exception, expected: bool) -> None:
    assert bench.executor.is_row_fault(error) is expected


# ---------------------------------------------------------------- cancellation


def test_a_cancelled_transaction_goes_on_to_its_end(on_loop: Bench) -> None:
    """The caller leaves at once; the work is committed and the connection given back."""
    inside, may_go_on, given = Signal(), Signal(), Signal()
    give = on_loop.executor._give
    on_loop.executor._give = lambda *lent: (give(*lent), given.set())

    async def work(tx: Any) -> None:
        await tx.execute("INSERT INTO t VALUES (1)")
        inside.set()
        may_go_on.wait_here()

    async def scenario() -> None:
        task = asyncio.create_task(on_loop.executor.transact(work))
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert on_loop.numbers() == []
        assert not given.is_set
        may_go_on.set()
        await given.wait()
        assert on_loop.numbers() == [1]
        await on_loop.insert(2)
        assert on_loop.open_connections == 1

    on_loop.run(scenario)
    assert on_loop.numbers() == [1, 2]


def test_a_begin_that_is_cancelled_leaves_no_transaction(on_loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while it waits at the gate; it gets in afterwards, and goes out again."""
    waiting, given = Signal(), Signal()

    async def scenario() -> None:
        first = await on_loop.executor.begin()
        enter = Gate.enter
        monkeypatch.setattr(Gate, "enter", lambda gate: (waiting.set(), enter(gate)))
        task = asyncio.create_task(on_loop.executor.begin())
        await waiting.wait()
        give = on_loop.executor._give
        on_loop.executor._give = lambda *lent: (give(*lent), given.set())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not given.is_set
        await first.execute("INSERT INTO t VALUES (1)")
        await first.commit()
        await given.wait()
        await on_loop.insert(2)
        assert [made.in_transaction for made in on_loop.kind.living] == [False, False]
        assert on_loop.open_connections == 2

    on_loop.run(scenario)
    assert on_loop.numbers() == [1, 2]


def test_a_commit_that_is_cancelled_is_committed_and_ends_once(on_loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio.run() does at its end, to shielded tasks too. The caller then ends what it takes for open."""
    inside, may_go_on = Signal(), Signal()
    commit = connection.SqliteConnection.commit

    def slow(one: connection.SqliteConnection) -> None:
        inside.set()
        may_go_on.wait_here()
        commit(one)

    async def scenario() -> None:
        opened = await on_loop.executor.begin()
        await opened.execute("INSERT INTO t VALUES (1)")
        monkeypatch.setattr(connection.SqliteConnection, "commit", slow)
        task = asyncio.create_task(opened.commit())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        await opened.end()
        assert len(on_loop.executor._idle) == 1

    on_loop.run(scenario)
    assert on_loop.numbers() == [1]


def test_a_loop_that_has_closed_does_not_hurt_the_thread(on_loop: Bench) -> None:
    """A work that outlives its loop ends all the same."""
    inside, may_go_on, given = Signal(), Signal(), Signal()
    give = on_loop.executor._give
    on_loop.executor._give = lambda *lent: (give(*lent), given.set())

    async def work(tx: Any) -> None:
        inside.set()
        may_go_on.wait_here()
        await tx.execute("INSERT INTO t VALUES (1)")

    async def scenario() -> None:
        task = asyncio.create_task(on_loop.executor.transact(work))
        await inside.wait()
        task.cancel()

    asyncio.run(scenario())
    may_go_on.set()
    given.wait_here()
    on_loop.run(lambda: on_loop.insert(2))
    assert on_loop.numbers() == [1, 2]


# ---------------------------------------------------------------- nothing left behind


def test_close_leaves_no_thread_and_no_connection(bench: Bench) -> None:
    """Promise 15; again is fine, and the next use opens anew."""

    async def scenario() -> None:
        for turn in range(3):
            opened = await bench.executor.begin()
            await bench.executor.transact(lambda tx: tx.fetch("SELECT 1"), writes=False)
            await opened.end()
            assert bench.open_connections == 2
            assert len(our_threads()) == (2 if bench.colour is Colour.ASYNC else 0)
            await bench.insert(turn)
            await bench.executor.close()
            await bench.executor.close()
            assert (bench.open_connections, our_threads()) == (0, [])

    bench.run(scenario)
    assert bench.numbers() == [0, 1, 2]


def test_a_connection_that_is_out_at_close_is_closed_when_it_comes_back(bench: Bench) -> None:
    async def scenario() -> None:
        opened = await bench.executor.begin()
        await opened.execute("INSERT INTO t VALUES (1)")
        await bench.executor.close()
        assert bench.open_connections == 1
        await opened.commit()
        assert_nothing_left(bench)

    bench.run(scenario)
    assert bench.numbers() == [1]


def test_close_does_not_miss_a_connection_that_comes_back_meanwhile(bench: Bench) -> None:
    """The interleaving is forced: close() begins when the connection is on its way to the others."""
    closers: list[threading.Thread] = []
    give = bench.executor._give

    class Meddled(list[Any]):
        is_armed = False

        def __len__(self) -> int:
            if self.is_armed and not closers:
                closers.append(threading.Thread(target=lambda: run_in(bench.colour, bench.executor.close())))
                closers[0].start()
                closers[0].join(0.2)  # it is through by now, or waits until the connection is back
            return super().__len__()

    def armed(*lent: Any) -> None:
        Meddled.is_armed = True
        give(*lent)

    bench.executor._idle, bench.executor._give = Meddled(), armed
    run_in(bench.colour, bench.insert(1))
    assert len(closers) == 1
    closers[0].join(20)
    assert_nothing_left(bench)


def test_a_connection_thread_closes_its_connection_on_its_own_thread(on_loop: Bench) -> None:
    """So connections that are bound to one thread would do as well."""
    used_on: list[str] = []
    close = Opened.close

    def noted(made: Opened) -> None:
        used_on.append(threading.current_thread().name)
        close(made)

    on_loop.kind.close = noted  # type: ignore[method-assign]
    on_loop.run(lambda: on_loop.insert(1))
    assert [name.rpartition("-")[0] for name in used_on] == ["aftercommit-sqlite"]


def test_the_modules_of_the_blocking_executor_do_not_load_asyncio() -> None:
    """A program of threads does not pay for the loop that it never runs."""
    program = (
        "import sys; from aftercommit.stores.detect import open_store; from aftercommit.ports import Colour;"
        "open_store('sqlite://', Colour.BLOCKING); sys.exit('asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert aio.ConnectionThread is ConnectionThread
