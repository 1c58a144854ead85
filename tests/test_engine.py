"""All services together: delivering by hand, ending cleanly, and saying how it goes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from aftercommit import EventEnvelope, EventStatus, Fixed, NoRetry, RetryAfter
from tests.delivery.faulty import (
    Loud,
    Unreachable,
    count_from_here,  # noqa: F401  (used by every test here)
    faulty_store,
    other_tasks,
    ours,
    short_pauses,  # noqa: F401  (used by every test here)
    until,
)
from tests.delivery.test_meter import COUNTERS, GAUGES, Failing
from tests.support import PATIENCE, Collector, Signal, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]


async def write(outbox: Any, *kinds: str, **fields: Any) -> list[str]:
    async with outbox.transaction():
        return [await outbox.write(kind, {}, **fields) for kind in kinds]


def free(world: World) -> list[bool]:
    return [row["locked_by"] is None for row in world.rows()]


class Blocking:
    """A sync listener that waits to be let go."""

    def __init__(self) -> None:
        self.entered, self.release, self.seen = Signal(), Signal(), Collector()

    def __call__(self, event: EventEnvelope) -> None:
        self.seen.add(event.event_id)
        self.entered.set()
        self.release.wait_here()


class Sleeping:
    """An async listener that waits to be cancelled."""

    def __init__(self) -> None:
        self.entered, self.cancelled, self.seen = Signal(), Signal(), Collector()

    async def __call__(self, event: EventEnvelope) -> None:
        self.seen.add(event.event_id)
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


# ---------------------------------------------------------------- drain


@pytest.fixture(params=["started", "not started"])
def is_started(request: pytest.FixtureRequest) -> bool:
    return request.param == "started"


def test_drain_delivers_until_nothing_is_due_and_says_what_it_did(
    world: World, colour: Colouring, is_started: bool
) -> None:
    async def scenario() -> None:
        def fail(event: EventEnvelope) -> None:
            raise ValueError("no")

        outbox = world.outbox(poll_interval="1h", retry_policy=Fixed("1h"), batch_size=2, unroutable_grace=0)
        outbox.register("Good", colour(lambda event: None))
        outbox.register("Bad", colour(fail))
        outbox.register("Later", colour(lambda event: RetryAfter("1h")))
        await write(outbox, *["Good"] * 5, "Bad", "Bad", "Later", "Unknown")
        if is_started:
            await outbox.start()
        result = await outbox.drain(PATIENCE)
        assert result.is_complete
        assert sorted(world.statuses()) == [1] * 5 + [2] * 3 + [3]
        counts = (result.delivered, result.retried, result.deferred, result.dead)
        if not is_started:  # else some of it was under way before drain() was called
            assert counts == (5, 2, 1, 1)
        assert (await outbox.drain()).is_complete, "and there is nothing left to do"

    world.run(scenario)


def test_drain_of_an_empty_table_is_complete_at_once(world: World, is_started: bool) -> None:
    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h")
        outbox.register("Good", lambda event: None)
        if is_started:
            await outbox.start()
        result = await outbox.drain()
        assert (result.delivered, result.is_complete) == (0, True)

    world.run(scenario)


def test_drain_stops_when_its_time_is_over(world: World, is_started: bool) -> None:
    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h", batch_size=1)
        blocking = Blocking()
        if is_started:
            outbox.register("Good", blocking)
            await outbox.start()
            await write(outbox, "Good")
            await blocking.entered.wait()
            assert not (await outbox.drain("20ms")).is_complete
            blocking.release.set()
            assert (await outbox.drain(PATIENCE)).is_complete
            return
        clock = outbox._current().runtime.clock
        late = [0.0]

        def slow(event: EventEnvelope) -> None:
            late[0] += 1.0

        outbox._current().runtime.clock = lambda: clock() + late[0]
        outbox.register("Good", slow)
        await write(outbox, *["Good"] * 5)
        result = await outbox.drain("1.5s")
        assert (result.delivered, result.is_complete) == (2, False)

    world.run(scenario)


def test_drain_does_not_mistake_a_full_lane_for_an_empty_table(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h", cold_queue_capacity=1, worker_count=1, batch_size=3)
        outbox.register("Good", colour(lambda event: None))
        await write(outbox, *["Good"] * 12)
        await outbox.start()
        assert (await outbox.drain(PATIENCE)).is_complete
        assert world.statuses() == [1] * 12

    world.run(scenario)


def test_drain_does_not_mistake_a_look_behind_the_floor_for_a_whole_one(world: World) -> None:
    """A row that becomes free before the floor is seen by the next whole look, and drain() waits for that."""

    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poller_enabled=False, hot_path=False, batch_size=1)
        outbox.register("Good", lambda event: None)
        await write(outbox, "Good")
        await write(outbox, "Good", deliver_after="1h")
        claim, partial = store.claim, Collector()

        async def meddling(request: Any) -> Any:
            if request.floor is not None:
                partial.add(request)
                world.change("UPDATE outbox_event SET available_at = 1 WHERE status = 0")
            return await claim(request)

        store.claim = meddling  # type: ignore[method-assign]
        await outbox.start()
        result = await outbox.drain(PATIENCE)
        assert partial, "there was a look behind the floor"
        assert (result.delivered, result.is_complete) == (2, True)

    world.run(scenario)


def test_drain_is_not_complete_when_the_table_could_not_be_read(world: World, is_started: bool) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Good", lambda event: None)
        await write(outbox, "Good")
        store.fail("claim", times=inf)
        if is_started:
            await outbox.start()
            assert not (await outbox.drain("300ms")).is_complete
        else:
            with pytest.raises(Unreachable):
                await outbox.drain()
        store.heal()
        assert (await outbox.drain(PATIENCE)).is_complete
        assert world.statuses() == [1]

    world.run(scenario)


def test_drain_runs_a_handler_that_writes_what_it_then_delivers(
    world: World, colour: Colouring, is_started: bool
) -> None:
    """F70: a handler may use the outbox that calls it."""

    async def scenario() -> None:
        outbox = world.outbox(poll_interval="1h")
        first, second = _chained(world, outbox, colour)
        outbox.register("First", first)
        outbox.register("Second", second.add)
        await write(outbox, "First", "First")
        if is_started:
            await outbox.start()
        assert (await outbox.drain(PATIENCE)).is_complete
        assert len(second) == 2
        assert world.statuses() == [1] * 4

    world.run(scenario)


def _chained(world: World, outbox: Any, colour: Colouring) -> tuple[Any, Collector]:
    """A listener of this world's own colour that writes in a transaction of its own."""
    seen = Collector()
    if world.is_async:

        async def first(event: EventEnvelope) -> None:
            async with outbox.transaction():
                await outbox.write("Second", {"of": event.event_id})

        return first, seen

    def sync_first(event: EventEnvelope) -> None:
        with outbox.plain.transaction():
            outbox.plain.write("Second", {"of": event.event_id})

    return colour(sync_first), seen


def test_a_handler_that_writes_two_for_one_is_bounded(world: World) -> None:
    """F71, promise 9: memory holds both lanes and what runs; the rest waits in the table."""

    async def scenario() -> None:
        outbox = world.outbox(hot_queue_capacity=5, cold_queue_capacity=5, worker_count=2, poll_interval="1h")
        most, seen, limit = [0], Collector(), 60

        def two_for_one(event: EventEnvelope) -> None:
            seen.add(event.event_id)
            most[0] = max(most[0], len(outbox._engine.held))

        async def async_bomb(event: EventEnvelope) -> None:
            two_for_one(event)
            if len(seen) < limit:
                await write(outbox, "Bomb", "Bomb")

        def bomb(event: EventEnvelope) -> None:
            two_for_one(event)
            if len(seen) < limit:
                with outbox.plain.transaction():
                    for _ in range(2):
                        outbox.plain.write("Bomb", {})

        outbox.register("Bomb", async_bomb if world.is_async else bomb)
        await outbox.start()
        await write(outbox, "Bomb")
        await seen.reach(limit)
        assert (await outbox.drain(PATIENCE)).is_complete
        assert len(seen) == len(set(seen)) == len(world.rows())
        # What is settled but not yet let go of is held, too: at most as many outcomes as both lanes hold.
        assert most[0] <= 2 * (5 + 5) + 2

    world.run(scenario)


# ---------------------------------------------------------------- poll


def test_poll_delivers_in_the_callers_thread_when_not_started(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(batch_size=2)
        outbox.register("Good", colour(lambda event: seen.add(threading.current_thread().name)))
        await write(outbox, *["Good"] * 3)
        assert [await outbox.poll() for _ in range(3)] == [2, 1, 0]
        assert len(set(seen)) == 1
        if not world.is_async and colour(len) is len:
            assert seen[0] == threading.current_thread().name
        assert world.statuses() == [1, 1, 1]

    world.run(scenario)


@pytest.mark.parametrize("poller_enabled", [True, False])
def test_poll_gives_to_the_workers_when_started(world: World, poller_enabled: bool) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h", poller_enabled=poller_enabled, hot_path=False)
        outbox.register("Good", seen.add)
        elsewhere = world.outbox()
        await outbox.start()
        assert await outbox.poll() == 0
        await write(elsewhere, "Good", "Good")
        assert await outbox.poll() == 2
        await world.until_settled(2)

    world.run(scenario)


def test_an_outcome_that_poll_could_not_write_is_written_by_the_next(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store)
        outbox.register("Good", colour(seen.add))
        await write(outbox, "Good")
        store.fail("settle")
        with pytest.raises(Unreachable):
            await outbox.poll()
        assert world.statuses() == [0]
        assert await outbox.poll() == 0
        assert world.statuses() == [1]
        assert len(seen) == 1

    world.run(scenario)


def test_an_outcome_of_a_suspect_that_poll_could_not_write_is_written_by_the_next(
    world: World, colour: Colouring
) -> None:
    """Promises 4a and 6: it was taken over from a dead process; its outcome is not given up for a release."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(store)
        outbox.register("Good", colour(seen.add))
        await write(outbox, "Good")
        world.change("UPDATE outbox_event SET locked_by = 'dead', lease_until = 1, lease_epoch = 5")
        fault = store.fail("settle", times=2)
        with pytest.raises(Unreachable):
            await outbox.poll()
        assert await outbox.poll() == 0
        assert len(store.calls["mark_suspect"]) == 1
        assert fault.fired == 2
        assert world.statuses() == [1]
        assert len(seen) == 1
        assert (await outbox.stats()).counters == {"dispatch_success": 1}

    world.run(scenario)


def test_ctrl_c_in_a_handler_ends_poll_and_gives_everything_back(tmp_path: Path) -> None:
    world = World("threads", tmp_path)

    async def scenario() -> None:
        def stopped(event: EventEnvelope) -> None:
            raise KeyboardInterrupt

        outbox = world.outbox()
        outbox.register("Good", stopped)
        await write(outbox, *["Good"] * 3)
        with pytest.raises(KeyboardInterrupt):
            await outbox.poll()
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(0, 0)] * 3
        assert free(world) == [True] * 3

    world.run(scenario)


def test_a_suspect_whose_delivery_the_caller_ended_has_not_killed_anybody(world: World) -> None:
    """Promise 4a: Ctrl-C and a cancellation are reports too; a few of them must not make the event dead."""

    async def scenario() -> None:
        sleeping = Sleeping()

        def stopped(event: EventEnvelope) -> None:
            raise KeyboardInterrupt

        outbox = world.outbox()
        outbox.register("Good", sleeping if world.is_async else stopped)
        await write(outbox, "Good")
        world.change("UPDATE outbox_event SET locked_by = 'dead', lease_until = 1, lease_epoch = 5")
        if world.is_async:
            polling = asyncio.ensure_future(outbox.poll())
            await sleeping.entered.wait()
            assert world.rows()[0]["abandoned"] == 1
            polling.cancel()
            await asyncio.wait({polling})
        else:
            with pytest.raises(KeyboardInterrupt):
                await outbox.poll()
        row = world.rows()[0]
        assert (row["status"], row["locked_by"], row["abandoned"]) == (EventStatus.NEW, None, 0)

    world.run(scenario)


def test_a_cancelled_poll_gives_everything_back(tmp_path: Path) -> None:
    """F61: the handler is cancelled, its row and those behind it are free, and they are delivered next time."""
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        sleeping = Sleeping()
        outbox = world.outbox()
        outbox.register("Good", sleeping)
        await write(outbox, *["Good"] * 3)
        polling = asyncio.ensure_future(outbox.poll())
        await sleeping.entered.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert sleeping.cancelled.is_set
        assert free(world) == [True] * 3
        assert {row["attempts"] for row in world.rows()} == {0}
        again = asyncio.ensure_future(outbox.poll())
        await sleeping.seen.reach(2)
        again.cancel()
        await asyncio.wait({again})

    world.run(scenario)


def test_a_poll_that_is_cancelled_while_it_claims_keeps_nothing(tmp_path: Path) -> None:
    """F61: the claim comes to its end in the database, and what it took is given back."""
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store)
        outbox.register("Good", lambda event: None)
        await write(outbox, *["Good"] * 3)
        fault = store.hold("claim", late=True)
        polling = asyncio.ensure_future(outbox.poll())
        await fault.entered.wait()
        assert free(world) == [False] * 3
        polling.cancel()
        fault.release.set()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert free(world) == [True] * 3
        assert await outbox.poll() == 3
        assert world.statuses() == [1] * 3

    world.run(scenario)


# ---------------------------------------------------------------- the end


def test_close_finishes_what_waits_and_leaves_nothing_behind(world: World, colour: Colouring) -> None:
    """C13, TC-134, promise 15"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h", purge_retention="7d")
        outbox.register("Good", colour(lambda event: seen.add(event.event_id)))
        await outbox.start()
        await write(outbox, *["Good"] * 30)
        await outbox.close()
        assert len(seen) == 30
        assert world.statuses() == [1] * 30
        assert (ours(), other_tasks()) == (set(), set())

    world.run(scenario)


def test_close_gives_back_what_it_could_not_begin(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """F22, TC-477, promise 15: free at once, uncounted, and somebody else's at once."""

    async def scenario() -> None:
        blocking, taken = Blocking(), Collector()
        outbox = world.outbox(poll_interval="1h", worker_count=1, drain_timeout=0)
        outbox.register("Good", blocking)
        await outbox.start()
        await write(outbox, *["Good"] * 4)
        await blocking.entered.wait()
        clock = outbox._engine.runtime.clock
        started = clock()
        await outbox.close()
        assert clock() - started < PATIENCE, "drain_timeout is over, and a last chance of a second"
        assert free(world) == [False, True, True, True]
        assert {row["attempts"] for row in world.rows()} == {0}
        other = world.outbox()
        other.register("Good", lambda event: taken.add(event.event_id))
        assert await other.poll() == 3
        assert len(taken) == 3
        blocking.release.set()

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    stuck = [record for record in caplog.records if "still runs after close()" in record.getMessage()]
    assert [record.levelname for record in stuck] == ["WARNING"]
    assert "Good" in stuck[0].getMessage()


def test_close_cancels_async_handlers_and_gives_their_rows_back(world: World) -> None:
    """Promise 15: not an attempt, not a failure."""

    async def scenario() -> None:
        sleeping = Sleeping()
        outbox = world.outbox(poll_interval="1h", worker_count=2, drain_timeout=0, max_attempts=1)
        outbox.register("Good", sleeping)
        await outbox.start()
        await write(outbox, *["Good"] * 5)
        await sleeping.seen.reach(2)
        await outbox.close()
        assert sleeping.cancelled.is_set
        assert len(sleeping.seen) == 2
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(0, 0)] * 5
        assert free(world) == [True] * 5
        assert (ours(), other_tasks()) == (set(), set())

    world.run(scenario)


def test_an_async_handler_that_is_done_with_its_clean_up_is_done(world: World) -> None:
    async def scenario() -> None:
        entered = Signal()

        async def listener(event: EventEnvelope) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        outbox = world.outbox(drain_timeout=0)
        outbox.register("Good", listener)
        await outbox.start()
        await write(outbox, "Good")
        await entered.wait()
        await outbox.close()
        assert world.statuses() == [1]

    world.run(scenario)


def test_close_ends_although_the_store_is_away(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """With the workers waiting for space: nothing is lost, only delivered again when the leases are over."""

    async def scenario() -> None:
        store, seen = faulty_store(world), Collector()
        outbox = world.outbox(
            store,
            hot_queue_capacity=2,
            cold_queue_capacity=2,
            worker_count=2,
            drain_timeout="100ms",
        )
        outbox.register("Good", colour(seen.add))
        await write(outbox, *["Good"] * 8)
        store.fail("settle", times=inf)
        await outbox.start()
        await seen.reach(4)
        clock = outbox._engine.runtime.clock
        started = clock()
        await outbox.close()
        assert clock() - started < PATIENCE
        store.heal()
        assert world.statuses() == [0] * 8
        assert (ours(), other_tasks()) == (set(), set())

    with caplog.at_level(logging.ERROR, "aftercommit"):
        world.run(scenario)
    assert "outcomes could not be written" in caplog.text


def test_the_keeper_is_the_last_to_stop(world: World) -> None:
    async def scenario() -> None:
        outbox, order = world.outbox(purge_retention="7d"), Collector()
        outbox.register("Good", lambda event: None)
        await outbox.start()
        engine = outbox._engine
        for name, part, method in (
            ("purge", engine.purge, "stop"),
            ("poller", engine.poller, "stop"),
            ("dispatcher", engine.dispatcher, "close"),
            ("settler", engine.settler, "finish"),
            ("keeper", engine.keeper, "stop"),
        ):
            _note(part, method, name, order)
        await outbox.close()
        assert order == ["purge", "poller", "dispatcher", "settler", "keeper"]

    world.run(scenario)


def _note(part: Any, method: str, name: str, order: Collector) -> None:
    original = getattr(part, method)

    async def noted(*arguments: Any) -> Any:
        result = await original(*arguments)
        order.add(name)
        return result

    setattr(part, method, noted)


def test_close_while_poll_waits_lets_poll_end(world: World) -> None:
    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poll_interval="1h")
        outbox.register("Good", lambda event: None)
        await outbox.start()
        await store.calls["claim"].reach(1)
        fault = store.hold("claim", times=1)
        counts, engine = Collector(), outbox._engine

        async def polling() -> None:
            counts.add(await outbox.poll())

        task = engine.runtime.spawn("polling", polling)
        await fault.entered.wait()
        closing = engine.runtime.spawn("closing", outbox.close)
        fault.release.set()
        assert await closing.join(PATIENCE)
        await counts.reach(1)
        assert await task.join(PATIENCE)

    world.run(scenario)


# ---------------------------------------------------------------- seeing


def test_stats_show_the_table_and_the_memory(world: World) -> None:
    async def scenario() -> None:
        blocking = Blocking()
        outbox = world.outbox(poll_interval="1h", worker_count=1, retry_policy=NoRetry(), unroutable_grace=0)
        outbox.register("Good", blocking)
        await outbox.start()
        await write(outbox, *["Good"] * 3)
        await blocking.entered.wait()
        await write(outbox, "Unknown")
        await outbox.poll()
        stats = await outbox.stats()
        assert (stats.hot_depth, stats.cold_depth, stats.held) == (2, 1, 4)
        assert (stats.backlog.new, stats.backlog.retry, stats.backlog.dead) == (4, 0, 0)
        assert stats.backlog.leased == 4
        assert stats.backlog.oldest_due.total_seconds() >= 0
        assert stats.counters == {"hot_enqueued": 3, "cold_enqueued": 1}
        blocking.release.set()
        await world.until("SELECT count(*) = 4 FROM outbox_event WHERE status IN (1, 3)")
        assert (await outbox.drain(PATIENCE)).is_complete
        stats = await outbox.stats()
        assert (stats.hot_depth, stats.cold_depth, stats.held, stats.unsettled) == (0, 0, 0, 0)
        assert (stats.backlog.new, stats.backlog.dead, stats.backlog.leased) == (0, 1, 0)
        assert (stats.counters["dispatch_success"], stats.counters["dispatch_dead"]) == (3, 1)

    world.run(scenario)


def test_stats_of_an_outbox_that_is_not_started(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await write(outbox, "Good", "Good")
        stats = await outbox.stats()
        assert (stats.backlog.new, stats.backlog.leased, stats.held, stats.counters) == (2, 0, 0, {})

    world.run(scenario)


def test_health_is_green_only_while_it_runs(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        assert outbox.health().problems == ("the outbox is not started",)
        await outbox.start()
        assert (outbox.health().is_healthy, outbox.health().problems) == (True, ())
        await outbox.close()
        assert not outbox.health().is_healthy

    world.run(scenario)


@pytest.mark.parametrize(("method", "service"), [("settle", "settler"), ("claim", "poller"), ("renew", "keeper")])
def test_health_goes_red_when_a_loop_only_fails_and_green_again(world: World, method: str, service: str) -> None:
    """F109"""

    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, lock_timeout="30ms" if method == "renew" else "30s", poll_interval="1h")
        blocking = Blocking()
        outbox.register("Good", blocking)
        store.fail(method, times=inf)
        await outbox.start()
        await write(outbox, "Good")
        await blocking.entered.wait()
        if method != "renew":
            blocking.release.set()
        await store.calls[method].reach(4)
        problems = outbox.health().problems
        assert [problem.partition(" has failed")[0] for problem in problems] == [f"aftercommit-{service}"]
        store.heal()
        await until(lambda: outbox.health().is_healthy)
        blocking.release.set()
        assert (await outbox.drain(PATIENCE)).is_complete

    world.run(scenario)


def test_health_goes_red_when_the_poller_does_not_come_round(world: World) -> None:
    """F109: it neither fails nor ends; it is stuck in a claim."""

    async def scenario() -> None:
        store = faulty_store(world)
        outbox = world.outbox(store, poll_interval="5s")
        outbox.register("Good", lambda event: None)
        fault = store.hold("claim")
        await outbox.start()
        await fault.entered.wait()
        clock = outbox._engine.runtime.clock
        outbox._engine.runtime.clock = lambda: clock() + 15.5
        assert outbox.health().is_healthy
        outbox._engine.runtime.clock = lambda: clock() + 17
        assert outbox.health().problems == ("the poller has not come round for 17 s",)
        fault.release.set()
        assert await outbox.poll() == 0
        assert outbox.health().is_healthy

    world.run(scenario)


def test_every_metric_is_exported_with_its_values(world: World) -> None:
    """TC-156 to TC-158, TC-244, TC-245, F1"""

    async def scenario() -> None:
        exporter, blocking, answers = Loud(), Blocking(), Collector()

        def mixed(event: EventEnvelope) -> Any:
            answers.add(event)
            if "fail" in event.payload_json:
                raise ValueError("no")
            return RetryAfter("1h") if "later" in event.payload_json else None

        outbox = world.outbox(
            poll_interval="1h",
            worker_count=1,
            hot_queue_capacity=1,
            metrics=exporter,
            retry_policy=Fixed("1h"),
            unroutable_grace=0,
        )
        outbox.register("Blocked", blocking)
        outbox.register("Mixed", mixed)
        async with outbox:
            await write(outbox, "Blocked")
            await blocking.entered.wait()
            async with outbox.transaction():
                await outbox.write("Mixed", {"do": "fail"})  # the one hot slot
                await outbox.write("Mixed", {"do": "later"})  # dropped
                await outbox.write("Mixed", {"do": "well"}, deliver_after="1h")  # skipped
                await outbox.write("Unknown", {})  # no listener: neither
            world.change("UPDATE outbox_event SET locked_by = 'another' WHERE event_type = 'Blocked'")
            blocking.release.set()
            await world.until("SELECT count(*) = 3 FROM outbox_event WHERE status IN (2, 3)")
            assert (await outbox.drain(PATIENCE)).is_complete
        expected = {
            "hot_enqueued": 2,
            "hot_dropped": 1,
            "hot_skipped_delayed": 1,
            "cold_enqueued": 2,
            "dispatch_success": 0,
            "dispatch_failure": 1,
            "dispatch_dead": 1,
            "dispatch_deferred": 1,
            "lease_lost": 1,
            "instances_lost": 0,
            "write_duplicates": 0,
        }
        assert set(expected) == set(COUNTERS)
        assert {name: len(exporter.named(f"increment_{name}")) for name in COUNTERS} == expected
        for name in GAUGES:
            assert exporter.named(f"record_{name}"), name
        assert exporter.named("record_queue_depths")[-1] == (0, 0)
        assert len(exporter.named("record_dispatch_latency_ms")) == 4
        assert len(exporter.named("record_listener_duration_ms")) == 3, "nobody listens to the unknown one"

    world.run(scenario)


def test_an_exporter_that_raises_harms_nothing(world: World, colour: Colouring) -> None:
    """F68, promise 16"""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(metrics=Failing(), hot_queue_capacity=2, unroutable_grace=0)
        outbox.register("Good", colour(seen.add))
        async with outbox:
            await write(outbox, *["Good"] * 6)
            await write(outbox, "Unknown")
            await world.until("SELECT count(*) = 7 FROM outbox_event WHERE status IN (1, 3)")
        assert len(seen) == 6

    world.run(scenario)


def test_a_dropped_hot_event_is_a_warning_and_not_an_error_of_the_writer(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-157, C12, promise 10; said once in a while."""

    async def scenario() -> None:
        blocking = Blocking()
        outbox = world.outbox(poll_interval="1h", worker_count=1, hot_queue_capacity=1, poller_enabled=False)
        outbox.register("Good", blocking)
        async with outbox:
            await write(outbox, "Good")
            await blocking.entered.wait()
            for _ in range(3):
                await write(outbox, "Good")
            assert (await outbox.stats()).counters["hot_dropped"] == 2
            blocking.release.set()

    with caplog.at_level(logging.WARNING, "aftercommit"):
        world.run(scenario)
    assert [(record.levelname, "hot lane is full" in record.getMessage()) for record in caplog.records] == [
        ("WARNING", True)
    ]


def test_the_end_of_an_event_as_dead_is_an_error_in_the_log(
    world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """000 §16.2"""

    async def scenario() -> None:
        def fail(event: EventEnvelope) -> None:
            raise ValueError("no luck")

        outbox = world.outbox(max_attempts=1, unroutable_grace=0)
        outbox.register("Good", colour(fail))
        await write(outbox, "Good", "Unknown")
        assert await outbox.poll() == 2
        assert world.statuses() == [EventStatus.DEAD] * 2
        assert [row["attempts"] for row in world.rows()] == [1, 0]

    with caplog.at_level(logging.INFO, "aftercommit"):
        world.run(scenario)
    levels = [(record.levelname, record.name) for record in caplog.records]
    assert levels == [
        ("WARNING", "aftercommit.delivery"),
        ("ERROR", "aftercommit.settler"),
        ("ERROR", "aftercommit.settler"),
    ]


def test_a_registry_that_cannot_be_counted_is_taken_to_have_listeners(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()

        class Own:
            def listener_for(self, aggregate_type: str, event_type: str) -> Any:
                return seen.add

        outbox = world.outbox(listener_registry=Own())
        await write(outbox, "Anything")
        assert await outbox.poll() == 1
        assert len(seen) == 1

    world.run(scenario)
