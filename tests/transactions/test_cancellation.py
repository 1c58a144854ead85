"""A task may be cancelled at every await of a transaction: it ends clean, and what was committed is delivered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope, NotInTransaction
from aftercommit.stores.sqlite.write_lock import WriteLock
from tests.support import PATIENCE, Collector, Signal, World
from tests.transactions.kit import Fates, free_slots, hot_count, listening, payloads

CAPACITY = 50


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World("asyncio", tmp_path)


class CancelledAt:
    """Awaits a coroutine and cancels its own task at one of the suspensions.

    Early: when it begins to wait, so that what it waits for is abandoned. Late: when what it waits for has come and
    the task has not run on yet, so that the answer is thrown away.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], suspension: int, moment: str) -> None:
        self._work = work
        self._suspension = suspension
        self._moment = moment
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                awaited = resume()
            except StopIteration as stop:
                return stop.value
            self.count += 1
            if self.count == self._suspension:
                self._cancel(awaited)
            try:
                yield awaited
            except BaseException as error:
                resume = partial(steps.throw, error)
            else:
                resume = partial(next, steps)

    def _cancel(self, awaited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._moment == "early":
            task.cancel()
        elif awaited is None:  # it only lets others run, and goes on in the next turn of the loop
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            awaited.add_done_callback(lambda _: task.cancel())


def in_transactions(outbox: Any) -> int:
    """How many connections of the outbox are in a transaction."""
    executor = outbox._store.executor
    return sum(
        link._link.raw is not None and not link._link.is_clean
        for pool in (executor._own, executor._lent)
        for link in (*pool._idle, *pool._lent)
    )


@pytest.mark.parametrize("moment", ["early", "late"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_transaction_is_committed_and_delivered_or_has_never_been(
    world: World, moment: str, times: int
) -> None:
    """At every await: of begin, execute, write, the savepoint, its release, commit and the giving back."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            async with outbox.transaction() as tx:
                await tx.execute("CREATE TABLE business (number INTEGER)")
            outcomes: list[str] = []
            suspension, is_over = 0, False
            while not is_over:
                suspension += 1
                fates = Fates()
                is_over, was_cancelled = await one_round(outbox, suspension, fates)
                outcomes.append(
                    await judged(outbox, fates, seen, str(suspension), outcomes.count("committed"), was_cancelled)
                )
            assert {"never", "committed"} == set(outcomes)
            # Committed although cancelled: the shield held, and the cancellation came afterwards.
            assert outcomes.count("committed") >= 2
            assert suspension >= 8, "begin, execute, write, savepoint, write, release, commit, and one without"
            assert hot_count(outbox) == 2 * outcomes.count("committed")

    async def one_round(outbox: Any, suspension: int, fates: Fates) -> tuple[bool, bool]:
        """Whether it came to its end before that suspension, and whether it ended as cancelled."""
        name = str(suspension)

        async def block() -> None:
            async with outbox.transaction() as tx:
                fates.follow(tx, name)
                await tx.execute("INSERT INTO business VALUES (?)", (suspension,))
                await outbox.write("T", name)
                async with outbox.transaction():
                    await outbox.write("T", name)

        work = CancelledAt(block(), suspension, moment)

        async def main() -> None:
            await work

        task = asyncio.create_task(main())
        if times == 2:  # what cleans up is cancelled, too
            asyncio.get_running_loop().call_soon(partial(_cancel_again, task, work, suspension))
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        assert done, "the transaction hangs"
        assert task.cancelled() or task.exception() is None
        return work.count < suspension, task.cancelled()

    async def judged(outbox: Any, fates: Fates, seen: Collector, name: str, before: int, was_cancelled: bool) -> str:
        async with outbox.transaction():  # nobody holds the database
            assert in_transactions(outbox) == 1
        business = world.rows("SELECT count(*) FROM business WHERE number = ?", int(name))[0][0]
        events = world.rows("SELECT count(*) FROM outbox_event WHERE payload = ?", name)[0][0]
        assert (business, events) in ((1, 2), (0, 0))
        assert len(fates.committed) == business
        assert len(fates.committed) + len(fates.rolled_back) <= 1
        if not business:
            assert was_cancelled
        await seen.reach(2 * (before + business))
        await world.until_settled(2 * (before + business))
        assert len(seen) == 2 * (before + business)
        assert free_slots(outbox) == CAPACITY
        return "committed" if business else "never"

    world.run(scenario)


def _cancel_again(task: asyncio.Task[Any], work: CancelledAt, suspension: int) -> None:
    """Once more on the next turn of the loop after the first one, as an impatient caller does."""
    if task.done():
        return
    if work.count >= suspension:
        task.cancel()
    else:
        asyncio.get_running_loop().call_soon(_cancel_again, task, work, suspension)


class Blocked:
    """A connection's thread that does nothing until it is let go."""

    def __init__(self, tx: Any) -> None:
        self._gate = threading.Event()
        tx.tx._link.post(lambda: self._gate.wait(PATIENCE))

    def let_go(self) -> None:
        self._gate.set()


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_write_that_was_given_up_in_a_block_that_commits_is_delivered_all_the_same(
    world: World, is_batch: bool
) -> None:
    """The INSERT was under way when its await was cancelled, and it is in the transaction: from memory, at once."""

    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            async with outbox.transaction() as tx:
                blocked = Blocked(tx)
                loop = asyncio.get_running_loop()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(None) as limit:
                        limit.reschedule(loop.time() + 0.005)
                        loop.call_later(0.02, blocked.let_go)
                        await (
                            outbox.write_all([EventEnvelope.of_json("T", "1"), EventEnvelope.of_json("T", "2")])
                            if is_batch
                            else outbox.write("T", "1")
                        )
                await outbox.write("T", "3")
            count = len(world.rows())
            assert count == (3 if is_batch else 2), "the INSERT was not under way"
            await world.until_settled(count)
            assert free_slots(outbox) == CAPACITY
            assert hot_count(outbox) == count
        assert payloads(seen) == (["1", "2", "3"] if is_batch else ["1", "3"])

    world.run(scenario)


def test_a_write_that_was_given_up_in_a_block_that_rolls_back_is_gone(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox:
            with pytest.raises(TimeoutError):
                async with outbox.transaction() as tx:
                    blocked = Blocked(tx)
                    async with asyncio.timeout(0.005):
                        asyncio.get_running_loop().call_later(0.02, blocked.let_go)
                        await outbox.write("T", "1")
            assert world.rows() == []
            assert free_slots(outbox) == CAPACITY
        assert seen == []

    world.run(scenario)


def test_a_write_that_was_given_up_and_failed_keeps_no_slot(world: World) -> None:
    """Cancelled in the INSERT, and then the INSERT is refused: nothing is there, nothing is held."""

    async def scenario() -> None:
        outbox, _ = listening(world, hot_queue_capacity=CAPACITY)
        async with outbox, outbox.transaction() as tx:
            await tx.execute(
                "CREATE TEMP TRIGGER refuse BEFORE INSERT ON outbox_event BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
            blocked = Blocked(tx)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    asyncio.get_running_loop().call_later(0.02, blocked.let_go)
                    await outbox.write("T", "1")
            assert free_slots(outbox) == CAPACITY
            await tx.execute("DROP TRIGGER refuse")
            await outbox.write("T", "2")
        assert [row["payload"] for row in world.rows()] == ["2"]

    world.run(scenario)


def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_never_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """begin() waits for another transaction of this process; given up, it must not take the database later."""

    async def scenario() -> None:
        outbox = world.outbox()
        in_line, wait = Signal(), WriteLock.wait
        async with outbox.transaction():
            monkeypatch.setattr(WriteLock, "wait", lambda lock: (in_line.set(), wait(lock)))
            waiting = asyncio.create_task(outbox.begin())
            await in_line.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await outbox.write("T", "1")
        async with outbox.transaction():
            await outbox.write("T", "2")
        assert [row["payload"] for row in world.rows()] == ["1", "2"]
        with pytest.raises(NotInTransaction):
            outbox.write("T", "3")

    world.run(scenario)
