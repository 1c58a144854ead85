"""Monitors: a mutex with a waiting room, from which no wake-up is ever lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests.delivery.faulty import with_runtime
from tests.support import PATIENCE, Collector, Signal, World


@pytest.fixture
def loop_world(tmp_path: Path) -> World:
    """Only asyncio has waiters that are cancelled."""
    return World("asyncio", tmp_path)


class Box:
    """Things behind a monitor; takers wait for them one by one."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.monitor = runtime.monitor()
        self.things: deque[int] = deque()
        self.taken = Collector()
        self.looked = Collector()
        self.is_over = False

    def _next(self) -> tuple[int | None, ...]:
        self.looked.add(None)
        if self.things:
            return (self.things.popleft(),)
        return (None,) if self.is_over else ()

    async def take(self, timeout: float | None = None) -> int | None:
        found = await self.monitor.wait_for(self._next, timeout)
        if not found or found[0] is None:
            return None
        self.taken.add(found[0])
        return found[0]

    async def taking(self) -> None:
        await self.take()

    def put(self, *things: int, notify: int | None = None) -> None:
        with self.monitor:
            self.things.extend(things)
            self.monitor.notify(len(things) if notify is None else notify)

    def put_from_elsewhere(self, *things: int) -> None:
        thread = threading.Thread(target=self.put, args=things)
        thread.start()
        thread.join()

    def end(self) -> None:
        with self.monitor:
            self.is_over = True
            self.monitor.notify_all()

    async def parked(self, count: int) -> None:
        """Wait until that many looks were in vain, so that the lookers are in the waiting room."""
        await self.looked.reach(count)
        with self.monitor:
            pass


def test_a_true_value_is_returned_without_waiting(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert await runtime.monitor().wait_for(lambda: ["found"]) == ["found"]

    with_runtime(world, scenario)


def test_a_timeout_gives_the_last_value(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert await runtime.monitor().wait_for(lambda: "", 0.01) == ""
        assert await runtime.monitor().wait_for(lambda: 0, 0.0) == 0

    with_runtime(world, scenario)


def test_the_predicate_is_asked_with_the_mutex_held(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        monitor, entered = runtime.monitor(), Signal()

        def enter() -> None:
            with monitor:
                entered.set()

        other = threading.Thread(target=enter)

        def predicate() -> bool:
            other.start()
            return not entered._event.wait(0.05)

        assert await monitor.wait_for(predicate) is True
        await entered.wait()
        other.join()

    with_runtime(world, scenario)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_notify_wakes_a_waiter_from_any_thread(world: World, place: str) -> None:
    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        task = runtime.spawn("taker", box.taking)
        await box.parked(1)
        box.put(1) if place == "here" else box.put_from_elsewhere(1)
        await box.taken.reach(1)
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_notify_wakes_as_many_as_it_says(world: World, place: str) -> None:
    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        tasks = [runtime.spawn(f"taker-{number}", box.taking) for number in range(3)]
        await box.parked(3)
        box.put(1, 2) if place == "here" else box.put_from_elsewhere(1, 2)
        await box.taken.reach(2)
        assert len(box.looked) == 5, "the third slept on"
        box.put(3)
        await box.taken.reach(3)
        for task in tasks:
            assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_notify_all_wakes_everybody(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        tasks = [runtime.spawn(f"taker-{number}", box.taking) for number in range(4)]
        await box.parked(4)
        with box.monitor:
            box.things.extend(range(4))
            box.monitor.notify_all()
        await box.taken.reach(4)
        for task in tasks:
            assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_a_notify_without_waiters_harms_nothing(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        box.put(1, notify=5)
        box.put_from_elsewhere(2)
        assert [await box.take(), await box.take(), await box.take(0.0)] == [1, 2, None]

    with_runtime(world, scenario)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_cancelled_waiter_hands_its_wake_up_on(loop_world: World, place: str) -> None:
    """The notify has picked the first waiter; it is cancelled before it can run."""

    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        first = asyncio.ensure_future(box.taking())
        await box.parked(1)
        second = asyncio.ensure_future(box.taking())
        await box.parked(2)
        # The loop does not turn between these two.
        box.put(7) if place == "here" else box.put_from_elsewhere(7)
        first.cancel()
        await box.taken.reach(1)
        await second
        assert first.cancelled()

    with_runtime(loop_world, scenario)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_waiter_whose_time_is_over_hands_its_wake_up_on(
    loop_world: World, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer of the first waiter has fired, and it has not run since: a notify must not be spent on it."""

    async def scenario(runtime: Any) -> None:
        box, loop = Box(runtime), asyncio.get_running_loop()
        gone = asyncio.ensure_future(box.monitor.wait_for(lambda: False, 3600))
        await box.runtime.shielded(_turn())
        second = asyncio.ensure_future(box.taking())
        await box.parked(1)
        now = loop.time
        # One turn of the loop: the timer's callback, then the notify; the first waiter's own step is in the next.
        monkeypatch.setattr(loop, "time", lambda: now() + 7200)
        loop.call_at(loop.time(), lambda: box.put(7) if place == "here" else box.put_from_elsewhere(7))
        assert await gone is False
        monkeypatch.setattr(loop, "time", now)
        await asyncio.wait_for(second, PATIENCE)
        assert box.taken == [7]

    with_runtime(loop_world, scenario)


async def _turn() -> None:
    """A task of its own, so waiting for it lets the others step."""


def test_a_waiter_that_gave_up_leaves_the_waiting_room(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        assert await box.take(0.001) is None
        task = runtime.spawn("taker", box.taking)
        await box.parked(3)  # twice by the one that gave up
        box.put(1)
        await box.taken.reach(1)
        assert await task.join(PATIENCE)

    with_runtime(world, scenario)


def test_stress_no_wake_up_is_lost(world: World) -> None:
    """Producers in foreign threads notify once per thing; takers time out and are cancelled all the time."""
    count = 3000

    async def scenario(runtime: Any) -> None:
        box = Box(runtime)
        chance = random.Random(7)

        async def impatient() -> None:
            while not box.is_over:
                await box.take(chance.choice([0.0, 0.0005, 0.002]))

        async def patient() -> None:
            while not box.is_over:
                await box.take()

        def produce(things: range) -> None:
            for thing in things:
                box.put(thing)

        tasks = [runtime.spawn(f"taker-{n}", main) for n, main in enumerate([impatient, impatient, patient, patient])]
        if world.is_async:
            tasks.append(runtime.spawn("canceller", lambda: _cancelled_takers(box)))
        producers = [threading.Thread(target=produce, args=(range(n, count, 3),)) for n in range(3)]
        for producer in producers:
            producer.start()
        await box.taken.reach(count)
        assert sorted(box.taken) == list(range(count))
        box.end()
        for task in tasks:
            assert await task.join(PATIENCE)
        for producer in producers:
            producer.join()

    with_runtime(world, scenario)


async def _cancelled_takers(box: Box) -> None:
    """Takers that are cancelled in the middle of their wait, or just as they are woken."""
    while not box.is_over:
        taker = asyncio.ensure_future(box.taking())
        await asyncio.wait({taker}, timeout=0.0005)
        taker.cancel()
        await asyncio.wait({taker})
