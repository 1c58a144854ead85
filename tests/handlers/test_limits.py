"""Limits of a handler: so many at once, so many in a time. What is over them waits, and nothing waits for it."""

from __future__ import annotations

import threading
from typing import Any

from aftercommit.events.envelope import EventStatus
from tests.handlers.kit import Colouring, declare, due_now, write
from tests.support import Collector, Signal, World


class Counted:
    """A handler that knows how many of its calls run at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.done = Collector()

    def __call__(self, event: Any) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        threading.Event().wait(0.005)
        with self._lock:
            self._running -= 1
        self.done.add(event)


def test_a_handler_never_runs_more_often_at_once_than_it_may(world: World) -> None:
    async def scenario() -> None:
        limited, free = Counted(), Counted()
        outbox = world.outbox(worker_count=6, poll_interval="1h")
        outbox.handler("A", id="limited", concurrency=2)(limited)
        outbox.handler("B", id="free")(free)
        async with outbox:
            await write(outbox, *["A"] * 20, *["B"] * 20)
            await limited.done.reach(20)
            await free.done.reach(20)
            await world.until_settled(40)
            assert limited.most <= 2 < free.most
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_what_is_over_the_limit_waits_in_the_table_and_blocks_no_worker(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        begun, release, others = Signal(), Signal(), Collector()

        def slow(event: Any) -> None:
            begun.set()
            release.wait_here()

        outbox = world.outbox(worker_count=2, poll_interval="1h")
        outbox.handler("A", id="slow", concurrency=1)(slow)
        declare(outbox, colour, others.add, "B")
        async with outbox:
            await write(outbox, "A")
            await begun.wait()
            await write(outbox, "A", "A", "B", "B")
            await others.reach(2)
            release.set()
            await world.until_settled(5)
            counters = (await outbox.stats()).counters
            assert counters["dispatch_deferred"] >= 2
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_a_rate_lets_through_what_it_says_and_defers_the_rest(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        declare(outbox, colour, seen.add, rate="3/h")
        declare(outbox, colour, seen.add, "B", id="free")
        await write(outbox, *["A"] * 8, "B")
        await outbox.drain()
        assert len(seen) == 4
        assert sorted(world.statuses()) == [EventStatus.DONE] * 4 + [EventStatus.RETRY] * 5
        waits = [row["available_at"] - row["created_at"] for row in world.rows() if row["status"] == 2]
        # One after the other, at the pace of the rate: 20 minutes.
        assert [round(wait / 60e6) for wait in waits] == [20, 40, 60, 80, 100]
        due_now(world)
        await outbox.drain()
        assert len(seen) == 4
        assert {row["attempts"] for row in world.rows()} == {0}

    world.run(scenario)


def test_all_of_them_come_in_the_end(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        declare(outbox, colour, seen.add, rate="2/100ms")
        async with outbox:
            await write(outbox, *["A"] * 7)
            await seen.reach(7)
            await world.until_settled(7)

    world.run(scenario)


def test_a_suspect_is_not_put_off(world: World, colour: Colouring) -> None:
    """Promise 4a: a deferral is a report, and would forget what the event may have killed."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        declare(outbox, colour, seen.add, rate="1/h")
        await write(outbox, "A", "A", "A")
        world.change("UPDATE outbox_event SET abandoned = 1 WHERE position = 3")
        await outbox.drain()
        assert world.statuses() == [EventStatus.DONE, EventStatus.RETRY, EventStatus.DONE]

    world.run(scenario)
