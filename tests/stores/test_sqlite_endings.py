"""What is left when callers are cancelled and executors closed: the work done, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

from aftercommit.ports import Colour
from aftercommit.stores.sqlite.executor import OpenSqliteTransaction
from aftercommit.stores.sqlite.write_lock import WriteLock
from tests.stores.bench import Bench, Opened, assert_nothing_left, our_threads
from tests.stores.kit import run_in
from tests.support import Signal


def noting(give: Any, given: Signal) -> Any:
    """How a pool takes a connection back, with a signal when it has."""

    async def noted(*lent: Any, **how: Any) -> None:
        await give(*lent, **how)
        given.set()

    return noted


# ---------------------------------------------------------------- cancellation


def test_a_cancelled_transaction_goes_on_to_its_end(on_loop: Bench) -> None:
    """The caller leaves at once; the work is committed and the connection given back."""
    inside, may_go_on, given = Signal(), Signal(), Signal()
    on_loop.executor._own.give = noting(on_loop.executor._own.give, given)

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
    """Cancelled while it waits for the write lock; it gets it afterwards, and lets it go."""
    waiting, given = Signal(), Signal()

    async def scenario() -> None:
        first = await on_loop.executor.begin()
        wait = WriteLock.wait
        monkeypatch.setattr(WriteLock, "wait", lambda lock: (waiting.set(), wait(lock)))
        on_loop.executor._lent.give = noting(on_loop.executor._lent.give, given)
        task = asyncio.create_task(on_loop.executor.begin())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not given.is_set
        await first.execute("INSERT INTO t VALUES (1)")
        await first.commit()
        await given.wait()
        await on_loop.insert(2)
        assert [made.in_transaction for made in on_loop.kind.living] == [False, False, False]
        assert on_loop.open_connections == 3, "two for users, one of the store's own"

    on_loop.run(scenario)
    assert on_loop.numbers() == [1, 2]


def test_a_commit_that_is_cancelled_is_committed_and_ends_once(on_loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asyncio.run() does at its end, to shielded tasks too. The caller then ends what it takes for open."""
    inside, may_go_on = Signal(), Signal()
    commit = OpenSqliteTransaction.commit

    async def slow(one: OpenSqliteTransaction) -> None:
        inside.set()
        may_go_on.wait_here()
        await commit(one)

    async def scenario() -> None:
        opened = await on_loop.executor.begin()
        await opened.execute("INSERT INTO t VALUES (1)")
        monkeypatch.setattr(OpenSqliteTransaction, "commit", slow)
        task = asyncio.create_task(opened.commit())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go_on.set()
        await opened.end()
        assert len(on_loop.executor._lent._idle) == 1

    on_loop.run(scenario)
    assert on_loop.numbers() == [1]


def test_a_loop_that_has_closed_does_not_hurt_the_thread(on_loop: Bench) -> None:
    """A work that outlives its loop ends all the same."""
    inside, may_go_on, given = Signal(), Signal(), Signal()
    on_loop.executor._own.give = noting(on_loop.executor._own.give, given)

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
    pool = bench.executor._own
    give = pool.give

    class Meddled(list[Any]):
        is_armed = False

        def append(self, one: Any) -> None:
            if self.is_armed and not closers:
                closers.append(threading.Thread(target=lambda: run_in(bench.colour, bench.executor.close())))
                closers[0].start()
                closers[0].join(0.2)  # it is through by now, or waits until the connection is back
            super().append(one)

    async def armed(*lent: Any, **how: Any) -> None:
        Meddled.is_armed = True
        await give(*lent, **how)

    pool._idle, pool.give = Meddled(), armed
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
