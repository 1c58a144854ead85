"""Whatever a store does not answer, close() comes to its end, and so does a start that was broken off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from aftercommit import MetricsExporter, service
from aftercommit.ordering import fleet
from tests.delivery.faulty import Fault, FaultyStore, faulty_store, short_pauses  # noqa: F401  (used by every test here)
from tests.ordering.fleet_kit import FaultyMembership
from tests.support import PATIENCE, Signal, World, run

TIMES = {
    "poll_interval": "20ms",
    "heartbeat_interval": "20ms",
    "rebalance_interval": "20ms",
    "lock_timeout": "60ms",
    "drain_timeout": "20ms",
}


@pytest.fixture(autouse=True)
def short_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ENDS_WITHIN", 0.05, raising=False)


class Silent(FaultyStore):
    """Calls of one method never come back, until the test is over."""

    def __init__(self, world: World) -> None:
        super().__init__(faulty_store(world, ordered=True).inner)
        self.membership = FaultyMembership(self.inner.membership)
        self.wakeups = Line()

    async def heads(self, request: Any) -> Any:
        return await self._through("heads", request)

    def silence(self, call: str) -> Fault:
        part, _, method = call.rpartition(".")
        return (getattr(self, part) if part else self).hold(method, times=float("inf"))


class Line(FaultyStore):
    """Wake-ups that lead nowhere."""

    def __init__(self) -> None:
        super().__init__(self)
        self._ends = Signal()

    async def send(self, message: str) -> None:
        fault = next(iter(self._faults["send"]), None)
        if fault is not None:
            fault.entered.set()
            await fault.release.wait()

    async def receive(self) -> list[str]:
        await self._ends.wait()
        return []

    def interrupt(self) -> None:
        self._ends.set()

    async def close(self) -> None: ...


async def ended(work: Callable[[], Coroutine[Any, Any, Any]], world: World) -> None:
    """It comes to its end, with whoever waits for it."""
    if world.is_async:
        await asyncio.wait_for(work(), PATIENCE / 2)
        return
    thread = threading.Thread(target=lambda: run(work()), daemon=True)
    thread.start()
    thread.join(PATIENCE / 2)
    assert not thread.is_alive(), "it waits for ever"


@pytest.mark.parametrize(
    "call", ["settle", "renew", "heads", "membership.beat", "membership.view", "membership.leave", "wakeups.send"]
)
def test_close_ends_although_the_store_never_answers(world: World, call: str) -> None:
    async def scenario() -> None:
        store, begun, goes = Silent(world), Signal(), Signal()

        def handle(event: Any) -> None:
            begun.set()
            goes.wait_here()

        outbox = world.outbox(store, ordered=True, **TIMES)
        outbox.register("Good", handle)
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("Good", {}, key="a")
            await outbox.write("Good", {}, key="a")
        await begun.wait()
        fault = store.silence(call)
        if call == "settle":
            goes.set()
        elif call == "wakeups.send":
            outbox._engine.unblocked()  # which others should know
        if call != "membership.leave":  # only close() asks for that; the rest is under way when it is called
            await fault.entered.wait()
        try:
            goes.set()
            await ended(outbox.close, world)
            await fault.entered.wait()
        finally:
            fault.release.set()
            store.heal()

    world.run(scenario)


def test_close_ends_although_the_last_outcomes_get_no_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever closes does not write them itself: the settler pauses after an error, and is told to end."""

    async def scenario() -> None:
        store = Silent(world)
        outbox = world.outbox(store, ordered=True, **TIMES)
        outbox.register("Good", lambda event: None)
        await outbox.start()
        monkeypatch.setattr(service, "FIRST_PAUSE", PATIENCE)
        failed = store.fail("settle")
        async with outbox.transaction():
            await outbox.write("Good", {}, key="a")
        await failed.entered.wait()
        fault = store.silence("settle")
        try:
            await ended(outbox.close, world)
            await fault.entered.wait()
        finally:
            fault.release.set()
            store.heal()

    world.run(scenario)


def test_close_ends_although_an_exporter_never_returns(tmp_path: Path) -> None:
    """Behind the end of a delivery, where a worker counts as free. On a loop nothing could go on without it."""
    world = World("threads", tmp_path)

    async def scenario() -> None:
        entered, goes = Signal(), Signal()

        class Stuck(MetricsExporter):
            def record_queue_depths(self, hot: int, cold: int) -> None:
                if threading.current_thread() is not threading.main_thread():
                    entered.set()
                    goes.wait_here()

        outbox = world.outbox(metrics=Stuck(), worker_count=1, **TIMES)
        outbox.register("Good", lambda event: None)
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("Good", {})
        await entered.wait()
        try:
            await ended(outbox.close, world)
        finally:
            goes.set()

    world.run(scenario)


class BrokenOff(BaseException):
    """As Ctrl-C breaks something off, but for the loop itself, which would end the test."""


def test_a_cancelled_start_ends_although_the_store_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have joined, so it is given some time to find out."""
    monkeypatch.setattr(fleet, "ENDS_WITHIN", 0.05)
    world = World("asyncio", tmp_path)

    async def scenario() -> None:
        store = Silent(world)
        fault = store.membership.hold("join")
        starting = asyncio.ensure_future(world.outbox(store, ordered=True, **TIMES).start())
        await fault.entered.wait()
        starting.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(starting, PATIENCE)
        finally:
            fault.release.set()

    world.run(scenario)


def test_a_start_that_is_broken_off_ends_although_the_store_never_answers(world: World) -> None:
    """It has joined the fleet, and cannot sign off."""

    async def scenario() -> None:
        store = Silent(world)
        outbox = world.outbox(store, ordered=True, **TIMES)
        store.membership.fail("view", BrokenOff())  # type: ignore[arg-type]
        fault = store.membership.hold("leave")

        async def start() -> None:
            with pytest.raises(BrokenOff):
                await outbox.start()

        try:
            await ended(start, world)
            await fault.entered.wait()
        finally:
            fault.release.set()

    world.run(scenario)
