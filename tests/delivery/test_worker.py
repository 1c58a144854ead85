"""Lanes and workers: how many run at once, in which order, and what is never started."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aftercommit import DefaultListenerRegistry, EventEnvelope, MetricsExporter
from aftercommit.delivery.chain import Delivery
from aftercommit.delivery.lanes import Lanes
from aftercommit.delivery.leases import Held, Holding, Keeper
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.worker import OutboxDispatcher
from aftercommit.events.claims import Claimed
from aftercommit.events.outcome import Done, Outcome, Release, Retry
from tests.delivery.faulty import (
    Ledger,
    Loud,
    claimed,
    count_from_here,  # noqa: F401  (used by every test here)
    faulty_store,
    keys_of,
    lanes_of,
    meter_of,
    other_tasks,
    ours,
    plain_config,
    router_of,
    with_runtime,
)
from tests.delivery.test_keeper import Renewals
from tests.delivery.test_meter import Failing
from tests.support import PATIENCE, Collector, Signal, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

NO_TIME = timedelta(0)
AMPLE = timedelta(seconds=PATIENCE)


class Suspects:
    """What the dispatcher asks of a store."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = Collector()

    async def mark_suspect(self, lease: Any, count: int = 1) -> bool:
        self.asked.add(lease if count == 1 else (lease, count))
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


class Desk:
    """A dispatcher whose outcomes go into a ledger."""

    def __init__(
        self,
        runtime: Any,
        listener: Callable[..., Any] = lambda event: None,
        *,
        store: Any = None,
        exporter: MetricsExporter | None = None,
        on_room: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.runtime = runtime
        self.held = Held(runtime)
        self.ledger = Ledger(self.held)
        config = plain_config(**options)
        self.lanes: Lanes[Holding] = lanes_of(
            runtime, hot=config.hot_queue_capacity, cold=config.cold_queue_capacity, on_room=on_room
        )
        self.meter = meter_of(runtime, exporter)
        registry = DefaultListenerRegistry().register("Happened", listener)
        self.delivery = Delivery(runtime, router_of(registry), self.meter, config)
        self.store = store or Suspects()
        self.dispatcher = OutboxDispatcher(
            runtime,
            self.store,
            self.lanes,
            self.delivery,
            self.ledger,  # type: ignore[arg-type]
            self.held,
            Ownership(runtime),
            self.meter,
            config,
        )

    def row(self, **fields: Any) -> Claimed:
        return claimed(self.runtime, **fields)

    def hot(self, count: int = 1) -> list[Claimed]:
        rows = [self.row() for _ in range(count)]
        assert all(self.dispatcher.enqueue_hot(row) for row in rows)
        return rows

    def cold(self, count: int = 1) -> list[Claimed]:
        rows = [self.row() for _ in range(count)]
        assert all(self.dispatcher.enqueue_cold(row) for row in rows)
        return rows

    def outcome(self, row: Claimed) -> Outcome | None:
        return self.ledger.outcomes().get(row.event.event_id)


# ---------------------------------------------------------------- offering


def test_a_lane_takes_what_it_has_room_for(world: World) -> None:
    """TC-122, TC-123, TC-125, TC-161"""

    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime, hot_queue_capacity=1, cold_queue_capacity=2)
        dispatcher = desk.dispatcher
        desk.hot()
        assert not dispatcher.enqueue_hot(desk.row())
        assert dispatcher.has_cold_queue_capacity()
        assert dispatcher.room() == 2
        assert dispatcher.handle(desk.row(attempts=3))
        assert dispatcher.room() == 1
        desk.cold()
        assert not dispatcher.handle(desk.row())
        assert not dispatcher.has_cold_queue_capacity()
        assert len(desk.held) == 3, "what did not fit is not held"
        assert desk.meter.counts() == {"hot_enqueued": 1, "cold_enqueued": 2}

    with_runtime(world, scenario)


def test_after_close_nothing_is_taken_and_closing_again_is_fine(world: World) -> None:
    """TC-124, TC-126"""

    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime)
        desk.dispatcher.start()
        assert desk.lanes.reserve(1) == 1
        await desk.dispatcher.close(AMPLE)
        assert not desk.dispatcher.enqueue_hot(desk.row())
        assert not desk.dispatcher.enqueue_cold(desk.row())
        late = desk.row()
        assert not desk.dispatcher.fill_hot(late), "a commit that came after close()"
        assert desk.outcome(late) == Release()
        await desk.dispatcher.close(AMPLE)
        assert (ours(), other_tasks()) == (set(), set())

    with_runtime(world, scenario)


def test_a_slot_that_was_reserved_is_kept(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime, hot_queue_capacity=2)
        assert desk.lanes.reserve(3) == 2
        assert not desk.dispatcher.enqueue_hot(desk.row())
        assert desk.dispatcher.fill_hot(desk.row())
        desk.lanes.cancel(1)
        desk.hot()

    with_runtime(world, scenario)


def test_the_listener_sees_the_attempts_of_a_cold_row(world: World, colour: Colouring) -> None:
    """TC-161: with attempts used up, a failure is the last."""

    async def scenario(runtime: Any) -> None:
        def fail(event: EventEnvelope) -> None:
            raise ValueError("no")

        desk = Desk(runtime, colour(fail))
        rows = [desk.row(attempts=attempts) for attempts in (0, 2)]
        for row in rows:
            desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(2)
        assert [type(desk.outcome(row)).__name__ for row in rows] == ["Retry", "Dead"]
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- working


@pytest.mark.parametrize("workers", [1, 3])
def test_the_worker_count_is_the_most_that_run_at_once(world: World, workers: int) -> None:
    """C1; as many as there are workers really run beside each other, and never one more."""

    async def scenario(runtime: Any) -> None:
        lock, running, most, entered, release = threading.Lock(), [0], [0], Collector(), Signal()

        def listener(event: EventEnvelope) -> None:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            entered.add(event)
            release.wait_here()
            with lock:
                running[0] -= 1

        desk = Desk(runtime, listener, worker_count=workers)
        desk.dispatcher.start()
        desk.hot(workers + 2)
        desk.cold(workers + 2)
        await entered.reach(workers)
        assert running[0] == workers
        release.set()
        await desk.ledger.entries.reach(2 * workers + 4)
        assert most[0] == workers
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario, threads=workers)


def test_async_handlers_keep_to_the_worker_count_too(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        running, most, entered, release = [0], [0], Collector(), Signal()

        async def listener(event: EventEnvelope) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            entered.add(event)
            await release.wait()
            running[0] -= 1

        desk = Desk(runtime, listener, worker_count=2)
        desk.dispatcher.start()
        desk.hot(6)
        await entered.reach(2)
        release.set()
        await desk.ledger.entries.reach(6)
        assert most[0] == 2
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_two_hot_to_one_cold_from_end_to_end(world: World, colour: Colouring) -> None:
    """TC-142, TC-143: one worker, both lanes full before it comes."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(lambda event: seen.add(event.event_id)), worker_count=1)
        cold, hot = keys_of(desk.cold(4)), keys_of(desk.hot(6))
        desk.dispatcher.start()
        await seen.reach(10)
        lanes = ["h" if key in hot else "c" for key in seen]
        assert lanes == list("hhchhchhcc")
        assert [key for key in seen if key in hot] == hot
        assert [key for key in seen if key in cold] == cold
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_every_event_is_delivered_once_by_many_workers(world: World, colour: Colouring) -> None:
    """TC-132, TC-133"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(lambda event: seen.add(event.event_id)))
        desk.dispatcher.start()
        expected = keys_of(desk.hot(40)) + keys_of(desk.cold(20))
        await desk.ledger.entries.reach(60)
        assert sorted(seen) == sorted(expected)
        await desk.dispatcher.close(AMPLE)
        assert len(seen) == 60
        assert set(desk.ledger.outcomes().values()) == {Done()}

    with_runtime(world, scenario)


def test_starting_twice_starts_the_workers_once(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime, worker_count=2)
        desk.dispatcher.start()
        desk.dispatcher.start()
        names = other_tasks() if world.is_async else ours()
        assert names == {"aftercommit-worker-0", "aftercommit-worker-1"}
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError, GeneratorExit])
def test_a_worker_outlives_any_error(world: World, colour: Colouring, error: type[BaseException]) -> None:
    """F57, TC-480"""

    async def scenario(runtime: Any) -> None:
        answers: list[Any] = [error, error, None]

        def listener(event: EventEnvelope) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        desk = Desk(runtime, colour(listener), worker_count=1)
        desk.dispatcher.start()
        rows = desk.hot(3)
        await desk.ledger.entries.reach(3)
        assert [type(desk.outcome(row)) for row in rows] == [Retry, Retry, Done]
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_fault_of_our_own_costs_neither_the_worker_nor_the_row(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime, worker_count=1)
        deliver, faults = desk.delivery.deliver, [LookupError("a bug")]

        async def broken(row: Claimed) -> Outcome:
            if faults:
                raise faults.pop()
            return await deliver(row)

        desk.delivery.deliver = broken  # type: ignore[method-assign]
        desk.dispatcher.start()
        rows = desk.cold(2)
        await desk.ledger.entries.reach(2)
        assert [desk.outcome(row) for row in rows] == [Release(), Done()]
        assert await desk.dispatcher.lanes.quiet(PATIENCE)
        await desk.dispatcher.close(AMPLE)

    with caplog.at_level(logging.ERROR, "aftercommit"):
        with_runtime(world, scenario)
    assert "broke off" in caplog.text


# ---------------------------------------------------------------- leases


def test_an_event_whose_lease_may_be_over_is_not_started(world: World, colour: Colouring) -> None:
    """F20: it waited in memory past its deadline; it goes back to the table."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(seen.add))
        fresh, stale = desk.row(), desk.row(valid_for=-1)
        assert desk.dispatcher.enqueue_cold(stale)
        assert desk.dispatcher.enqueue_cold(fresh)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(2)
        assert (desk.outcome(stale), desk.outcome(fresh)) == (Release(), Done())
        assert seen == [fresh.event]
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_commit_that_took_longer_than_the_lease_is_left_to_the_table(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime, hot_queue_capacity=1)
        stale = desk.row(valid_for=-1)
        assert not desk.dispatcher.enqueue_hot(stale)
        assert desk.outcome(stale) == Release()
        assert len(desk.held) == 0
        desk.hot()  # the slot is free again

    with_runtime(world, scenario)


def test_one_row_is_in_memory_once(world: World, colour: Colouring) -> None:
    """TC-475, promise 5: whichever lane it came by, and whatever the other brings."""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(seen.add), hot_queue_capacity=2)
        row = desk.row()
        assert desk.dispatcher.enqueue_hot(row)
        assert desk.dispatcher.enqueue_cold(claimed(runtime, row.event, epoch=2)), "it is taken care of"
        assert desk.dispatcher.enqueue_hot(row)
        assert (desk.dispatcher.lanes.hot_depth, desk.dispatcher.lanes.cold_depth) == (1, 0)
        desk.hot()  # the slot of the second is free again
        desk.dispatcher.start()
        await desk.ledger.entries.reach(2)
        await desk.dispatcher.close(AMPLE)
        assert len(seen) == 2
        assert [event.event_id for event in seen].count(row.event.event_id) == 1

    with_runtime(world, scenario)


def test_a_claim_of_a_held_row_replaces_its_epoch_and_an_older_one_does_not(world: World) -> None:
    """The newest lease is the one that stands on the row."""

    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime)
        row = desk.row(epoch=3)
        desk.dispatcher.enqueue_cold(row)
        newer = claimed(runtime, row.event, epoch=5, valid_for=99)
        desk.dispatcher.enqueue_cold(newer)
        desk.dispatcher.enqueue_cold(claimed(runtime, row.event, epoch=4, valid_for=1))
        desk.dispatcher.start()
        await desk.ledger.entries.reach(1)
        ((holding, _),) = desk.ledger.entries
        assert holding.lease == newer.lease
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_suspect_is_announced_before_it_runs(world: World, colour: Colouring) -> None:
    """Promise 4a"""

    async def scenario(runtime: Any) -> None:
        order = Collector()
        desk = Desk(runtime, colour(lambda event: order.add("ran")), worker_count=1)
        mark = desk.store.mark_suspect

        async def marked(lease: Any) -> bool:
            order.add("marked")
            return await mark(lease)

        desk.store.mark_suspect = marked
        suspect, innocent = desk.row(is_suspect=True), desk.row()
        for row in (suspect, innocent):
            desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(2)
        assert [lease.key for lease in desk.store.asked] == [suspect.lease.key]
        assert order == ["marked", "ran", "ran"]
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_suspect_whose_lease_is_lost_does_not_run(world: World, colour: Colouring) -> None:
    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(seen.add), store=Suspects(False, True))
        lost, kept = desk.row(is_suspect=True), desk.row(is_suspect=True)
        for row in (lost, kept):
            desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(1)
        await desk.dispatcher.close(AMPLE)
        assert seen == [kept.event]
        assert desk.outcome(lost) is None
        assert desk.meter.counts()["lease_lost"] == 1
        assert keys_of(desk.held._rows.values()) == keys_of([kept]), "it is another holder's; the other is not settled"

    with_runtime(world, scenario)


def test_a_suspect_that_is_claimed_anew_while_it_is_marked_is_given_back(world: World) -> None:
    """The mark came under the old lease and was refused. The new one must not stay in the table without a holder."""

    async def scenario(runtime: Any) -> None:
        seen, event = Collector(), EventEnvelope.of_json("Happened", "{}")

        class Slow(Suspects):
            async def mark_suspect(self, lease: Any, count: int = 1) -> bool:
                assert desk.held.admit([claimed(runtime, event, epoch=lease.epoch + 1)]) == []
                return False

        desk = Desk(runtime, seen.add, store=Slow())
        row = claimed(runtime, event, is_suspect=True)
        desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(1)
        assert desk.outcome(row) == Release()
        assert [holding.lease.epoch for holding in desk.held._rows.values()] == [2]
        assert seen == []
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_suspect_that_hangs_lets_the_next_one_begin_after_a_lease(world: World) -> None:
    """Promise 4a, through the keeper: both have begun before in a process that ended."""

    async def scenario(runtime: Any) -> None:
        begun = Collector()
        hung, next_one = (claimed(runtime, is_suspect=True, abandoned=1) for _ in range(2))
        go_on = Signal()

        def listener(event: EventEnvelope) -> None:
            begun.add(event.event_id)
            if event.event_id == hung.event.event_id:
                go_on.wait_here()

        desk = Desk(runtime, listener)
        keeper = Keeper(runtime, Renewals(), desk.held, desk.lanes, lock_timeout=AMPLE)  # type: ignore[arg-type]
        for row in (hung, next_one):
            desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await begun.reach(1)
        await keeper.work()
        assert begun == [hung.event.event_id]
        clock = runtime.clock
        runtime.clock = lambda: clock() + AMPLE.total_seconds()
        await keeper.work()
        await desk.ledger.entries.reach(1)
        assert begun == [hung.event.event_id, next_one.event.event_id]
        assert desk.store.asked == [hung.lease, (hung.lease, -1), next_one.lease], "it is not to blame for the other"
        assert desk.outcome(next_one) == Done()
        go_on.set()
        await desk.ledger.entries.reach(2)
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


def test_a_suspect_that_could_not_be_announced_does_not_run(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, seen.add, store=Suspects(ConnectionError("away")))
        row = desk.row(is_suspect=True)
        desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await desk.ledger.entries.reach(1)
        assert desk.outcome(row) == Release()
        assert seen == []
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- room


def test_a_full_cold_lane_asks_to_be_filled_when_half_of_it_is_free(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        room, entered, release = Collector(), Collector(), Signal()

        def listener(event: EventEnvelope) -> None:
            entered.add(event)
            release.wait_here()

        desk = Desk(runtime, listener, worker_count=1, cold_queue_capacity=4, on_room=lambda: room.add(len(entered)))
        desk.cold(4)
        assert desk.dispatcher.room() == 0
        desk.dispatcher.start()
        await entered.reach(1)
        assert room == []
        release.set()
        await desk.ledger.entries.reach(4)
        assert len(room) == 1
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- ending


def test_close_finishes_what_waits(world: World, colour: Colouring) -> None:
    """TC-134"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(seen.add), worker_count=1)
        desk.dispatcher.start()
        desk.hot(5)
        desk.cold(5)
        await desk.dispatcher.close(AMPLE)
        assert len(seen) == 10
        assert set(desk.ledger.outcomes().values()) == {Done()}
        assert [name for name in ours() | other_tasks() if "worker" in name] == []

    with_runtime(world, scenario)


def test_close_gives_back_what_it_cannot_finish(world: World) -> None:
    """F22, TC-477"""

    async def scenario(runtime: Any) -> None:
        entered, release = Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()

        desk = Desk(runtime, listener, worker_count=1)
        desk.dispatcher.start()
        running = desk.hot()[0]
        await entered.wait()
        waiting = desk.hot(2) + desk.cold(2)
        closing = runtime.spawn("closing", lambda: desk.dispatcher.close(NO_TIME))
        await desk.ledger.entries.reach(4)
        assert [desk.outcome(row) for row in waiting] == [Release()] * 4
        release.set()
        assert await closing.join(PATIENCE)
        assert desk.outcome(running) == Done()

    with_runtime(world, scenario)


def test_close_begins_nothing_after_its_time_is_over(world: World, colour: Colouring) -> None:
    """A worker has taken the event and not yet begun: an interrupt would come too early for it."""

    async def scenario(runtime: Any) -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        class Slow(Suspects):
            async def mark_suspect(self, lease: Any, count: int = 1) -> bool:
                entered.set()
                await release.wait()
                return True

        desk = Desk(runtime, colour(seen.add), store=Slow())
        interrupted, interrupt = Signal(), runtime.interrupt

        def interrupting() -> None:
            interrupt()
            interrupted.set()

        runtime.interrupt = interrupting
        row = desk.row(is_suspect=True)
        desk.dispatcher.enqueue_cold(row)
        desk.dispatcher.start()
        await entered.wait()
        closing = runtime.spawn("closing", lambda: desk.dispatcher.close(NO_TIME))
        await interrupted.wait()
        release.set()
        assert await closing.join(PATIENCE)
        assert seen == []
        assert desk.outcome(row) == Release(was_marked=True), "it was counted as a suspect, and has killed nobody"

    with_runtime(world, scenario)


def test_close_of_a_dispatcher_that_never_ran_gives_everything_back(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        desk = Desk(runtime)
        rows = desk.hot(2) + desk.cold(2)
        await desk.dispatcher.close(AMPLE)
        assert [desk.outcome(row) for row in rows] == [Release()] * 4

    with_runtime(world, scenario)


def test_close_does_not_wait_for_workers_that_wait_for_the_settler(world: World) -> None:
    """With the store away, workers pause until outcomes are written. close() has to come first."""

    async def scenario(runtime: Any) -> None:
        paused = Collector()
        desk = Desk(runtime, worker_count=2)
        settler = _SettlerAway(runtime, paused)
        desk.dispatcher._settler = settler
        desk.dispatcher.start()
        desk.hot(4)
        await paused.reach(2)
        closing = runtime.spawn("closing", lambda: desk.dispatcher.close(NO_TIME))
        assert await closing.join(5), "close() waits for workers that wait for a store that is away"
        assert len(settler.entries) == 4

    with_runtime(world, scenario)


class _SettlerAway(Ledger):
    """As the settler does when outcomes have reached its capacity and cannot be written."""

    has_space = False

    def __init__(self, runtime: Any, paused: Collector) -> None:
        super().__init__()
        self._space = runtime.monitor()
        self._passes = False
        self._paused = paused

    async def space(self) -> None:
        self._paused.add(None)
        await self._space.wait_for(lambda: self._passes)

    def let_all_pass(self) -> None:
        with self._space:
            self._passes = True
            self._space.notify_all()


# ---------------------------------------------------------------- metrics


def test_depths_and_latency_are_recorded(world: World) -> None:
    """TC-245, C12"""

    async def scenario(runtime: Any) -> None:
        exporter = Loud()
        desk = Desk(runtime, exporter=exporter, worker_count=1)
        desk.hot(2)
        desk.cold(1)
        assert exporter.named("record_queue_depths") == [(1, 0), (2, 0), (2, 1)]
        desk.dispatcher.start()
        await desk.ledger.entries.reach(3)
        await desk.dispatcher.close(AMPLE)
        assert exporter.named("record_queue_depths")[-1] == (0, 0)
        assert exporter.named("increment_hot_enqueued") == [()] * 2
        assert exporter.named("increment_cold_enqueued") == [()]
        latencies = [value for (value,) in exporter.named("record_dispatch_latency_ms")]
        assert len(latencies) == 3
        assert all(0 <= value < PATIENCE * 1000 for value in latencies)

    with_runtime(world, scenario)


def test_an_exporter_that_raises_changes_no_delivery(world: World, colour: Colouring) -> None:
    """F68"""

    async def scenario(runtime: Any) -> None:
        seen = Collector()
        desk = Desk(runtime, colour(seen.add), exporter=Failing())
        desk.dispatcher.start()
        desk.hot(3)
        desk.cold(3)
        await desk.ledger.entries.reach(6)
        assert set(desk.ledger.outcomes().values()) == {Done()}
        await desk.dispatcher.close(AMPLE)

    with_runtime(world, scenario)


# ---------------------------------------------------------------- by the whole outbox


def test_a_hot_event_is_handed_over_and_nobody_waits_with_a_timeout(world: World, colour: Colouring) -> None:
    """A started outbox with every interval at an hour: whatever is delivered soon was handed over."""

    async def scenario() -> None:
        seen, timeouts = Collector(), []
        outbox = world.outbox(faulty_store(world), poll_interval="1h", worker_count=2)
        outbox.register("Happened", colour(seen.add))
        async with outbox:
            monitor = outbox._engine.dispatcher.lanes._monitor
            wait_for = monitor.wait_for

            async def watched(predicate: Any, timeout: float | None = None) -> Any:
                timeouts.append(timeout)
                return await wait_for(predicate, timeout)

            monitor.wait_for = watched
            for number in range(6):
                async with outbox.transaction():
                    await outbox.write("Happened", {})
                await seen.reach(number + 1)
            await world.until_settled(6)
        assert timeouts
        assert set(timeouts) == {None}

    world.run(scenario)
