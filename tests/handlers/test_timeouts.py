"""Handlers that take too long: async ones are cancelled, sync ones are left behind; nothing else waits for them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aftercommit import Fixed, HandlerTimeout, NoRetry
from aftercommit.delivery import limits
from aftercommit.events.envelope import EventStatus
from aftercommit.runtime import aio, portal
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    short_pauses,  # noqa: F401  (used by every test here)
    until,
)
from tests.handlers.kit import Colouring, declare, rows, write
from tests.support import Collector, Signal, World

#: Long enough to be under way, short enough to wait for.
SOON = "50ms"


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (aio, portal):
        monkeypatch.setattr(module, "GRACE", 0.1)


@pytest.fixture
def stuck() -> Any:
    """A sync handler that hangs until the test is over, and the signal that it has begun."""

    class Stuck:
        def __init__(self) -> None:
            self.begun, self.release, self.ended = Signal(), Signal(), Signal()

        def __call__(self, event: Any) -> None:
            self.begun.set()
            self.release.wait_here()
            self.ended.set()

    handler = Stuck()
    yield handler
    handler.release.set()


def test_in_time_is_in_time(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        declare(outbox, colour, seen.add, timeout="20s")
        await write(outbox, "A", "A")
        await outbox.drain()
        assert (len(seen), world.statuses()) == (2, [EventStatus.DONE] * 2)

    world.run(scenario)


def test_errors_of_a_handler_with_a_timeout_are_its_own(world: World, colour: Colouring) -> None:
    def fail(event: Any) -> None:
        raise TimeoutError("of the database")

    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())
        declare(outbox, colour, fail, timeout="20s")
        await write(outbox, "A")
        await outbox.drain()
        assert world.rows()[0]["last_error"] == "TimeoutError: of the database"

    world.run(scenario)


def test_an_async_handler_is_cancelled_and_its_attempt_counts(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(retry_policy=Fixed("1h"))

        @outbox.handler("A", timeout=SOON)
        async def slow(event: Any) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                seen.add("cleaned up")

        await write(outbox, "A")
        await outbox.drain()
        row = world.rows()[0]
        assert (seen, row["status"], row["attempts"]) == (["cleaned up"], EventStatus.RETRY, 1)
        assert "slow ran for longer than its timeout of 0.05 s" in row["last_error"]
        assert "still runs" not in row["last_error"]

    world.run(scenario)


def test_a_policy_may_give_up_on_timeouts(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()

        @outbox.handler("A", timeout=SOON, retry=Fixed("1s", give_up_on=HandlerTimeout))
        async def slow(event: Any) -> None:
            await asyncio.Event().wait()

        slow.fallback(lambda event, failure: seen.add(failure.last_error))
        await write(outbox, "A")
        await outbox.drain()
        assert [type(error) for error in seen] == [HandlerTimeout]
        assert isinstance(seen[0], TimeoutError)

    world.run(scenario)


def test_an_async_handler_that_ends_well_after_all_is_done(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()

        @outbox.handler("A", timeout=SOON)
        async def stubborn(event: Any) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return

        await write(outbox, "A")
        await outbox.drain()
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_an_async_handler_that_cannot_be_cancelled_is_left_behind(world: World) -> None:
    async def scenario() -> None:
        outbox, release = world.outbox(worker_count=1, retry_policy=NoRetry(), poll_interval="1h"), []

        @outbox.handler("A", timeout=SOON)
        async def deaf(event: Any) -> None:
            while not release:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

        async with outbox:
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.DEAD)
            assert "still runs" in world.rows()[0]["last_error"]
            assert "1 calls of the handler deaf" in outbox.health().problems[0]
            release.append(True)
            await until(lambda: outbox.health().is_healthy)

    world.run(scenario)


def test_a_sync_handler_is_given_up_and_its_worker_goes_on(
    world: World, stuck: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """F58: nobody can end it; the event is not its any more, and one worker is enough for the rest."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(worker_count=1, poll_interval="1h", retry_policy=Fixed("1h"))
        outbox.handler("A", id="stuck", timeout=SOON)(stuck)
        outbox.handler("B", id="fine", timeout="20s")(seen.add)
        with caplog.at_level(logging.ERROR):
            async with outbox:
                await write(outbox, "A", "B", "B")
                await seen.reach(2)
                await world.until_settled(2)
                await world.until_settled(1, EventStatus.RETRY)
                row = world.rows()[0]
                assert (row["locked_by"], row["attempts"]) == (None, 1)
                assert "and still runs: its effects may come later, or twice" in row["last_error"]
                assert outbox.health().problems == ("1 calls of the handler stuck are past its timeout and still run",)
                stuck.release.set()
                await stuck.ended.wait()
                await until(lambda: outbox.health().is_healthy)
                # Its late end changes nothing.
                assert world.statuses()[0] == EventStatus.RETRY
        assert "stuck is past its timeout and still runs; nothing can end it" in caplog.text

    world.run(scenario)


def test_within_its_timeout_a_handler_keeps_its_lease_and_after_it_another_may_have_the_event(
    world: World, stuck: Any
) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(lock_timeout="900ms", retry_policy=Fixed("1ms"), poll_interval="1h")
        outbox.handler("A", id="stuck", timeout="3s")(stuck)
        heir = world.outbox(poll_interval="1h")
        heir.handler("A", id="stuck")(seen.add)
        async with outbox:
            await write(outbox, "A")
            await stuck.begun.wait()
            before = world.rows()[0]["lease_until"]
            await world.until("SELECT lease_until > ? + 500000 FROM outbox_event", before)  # renewed, and again
            assert await heir.poll() == 0
            await outbox._engine.poller.stop()
            await world.until("SELECT locked_by IS NULL AND attempts = 1 FROM outbox_event")
            await heir.drain()
            assert (len(seen), world.statuses()) == (1, [EventStatus.DONE])

    world.run(scenario)


def test_a_stuck_handler_holds_up_neither_close_nor_its_limit(world: World, stuck: Any) -> None:
    """Promise 15"""

    async def scenario() -> None:
        outbox = world.outbox(drain_timeout="0s", poll_interval="1h")
        outbox.handler("A", id="stuck", timeout="20s")(stuck)
        await outbox.start()
        await write(outbox, "A")
        await stuck.begun.wait()
        await outbox.close()
        assert not stuck.ended.is_set
        assert world.rows()[0]["locked_by"] is not None

    world.run(scenario)


def test_only_so_many_calls_are_left_behind(world: World, stuck: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 9: then events of this handler wait, and spend no attempts."""
    monkeypatch.setattr(limits, "LEFT_BEHIND_AT_MOST", 2)

    async def scenario() -> None:
        outbox = world.outbox(worker_count=1, retry_policy=Fixed("1h"), poll_interval="1h")
        outbox.handler("A", id="stuck", timeout=SOON)(stuck)
        async with outbox:
            await write(outbox, "A", "A", "A")
            await world.until("SELECT count(*) = 3 FROM outbox_event WHERE status = 2")
            assert [row["attempts"] for row in world.rows()] == [1, 1, 0]
            stuck.release.set()
            await world.until_settled(1)
        assert rows(world) == [("", "RETRY"), ("", "RETRY"), ("", "DONE")]

    world.run(scenario)


def test_a_fallback_has_the_timeout_of_its_handler(world: World, stuck: Any) -> None:
    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())

        @outbox.handler("A", timeout=SOON)
        def fails(event: Any) -> None:
            raise LookupError

        fails.fallback(lambda event, failure: stuck(event))
        await write(outbox, "A")
        await outbox.drain()
        assert world.statuses() == [EventStatus.DEAD]
        assert "LookupError; the fallback failed too: HandlerTimeout" in world.rows()[0]["last_error"]

    world.run(scenario)


def test_what_a_sync_handler_returns_has_the_timeout_too(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(retry_policy=NoRetry())
        outbox.handler("A", id="h", timeout=SOON)(lambda event: asyncio.sleep(3600))
        await write(outbox, "A")
        await outbox.drain()
        assert "longer than its timeout" in world.rows()[0]["last_error"]

    world.run(scenario)


def test_no_thread_of_a_handler_in_time_is_left_after_close(world: World, colour: Colouring) -> None:
    from tests.delivery.faulty import ours

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(poll_interval="1h")
        declare(outbox, colour, seen.add, timeout="20s")
        async with outbox:
            await write(outbox, "A")
            await seen.reach(1)
        assert ours() == set()

    world.run(scenario)


def test_a_call_that_is_left_behind_keeps_its_place_in_the_limit(world: World, stuck: Any) -> None:
    async def scenario() -> None:
        outbox = world.outbox(worker_count=2, retry_policy=Fixed("1h"), poll_interval="1h")
        outbox.handler("A", id="stuck", timeout=SOON, concurrency=1)(stuck)
        async with outbox:
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.RETRY)
            await write(outbox, "A")
            await world.until_settled(2, EventStatus.RETRY)
            assert [row["attempts"] for row in world.rows()] == [1, 0]
            stuck.release.set()
            await world.until_settled(1)

    world.run(scenario)
