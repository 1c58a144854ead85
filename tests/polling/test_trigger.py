"""TC-410: a schedule of the user's own for the poller."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from aftercommit import InvalidOption, Outbox, PollResult
from aftercommit.delivery.agenda import EVERYWHERE
from aftercommit.events.claims import Claim
from aftercommit.polling.trigger import LONGEST, SHORTEST
from tests.polling.test_poller import Table, claimed, poller_of, with_runtime
from tests.support import Collector, World

SECOND = timedelta(seconds=1)


def test_the_time_until_the_next_poll_is_the_triggers(world: World) -> None:
    """Longer or shorter than the interval, from the poll that it was asked after."""

    async def scenario(runtime: Any) -> None:
        now, pauses, seen = [1000.0], [], []
        runtime.clock = lambda: now[0]
        answers = iter(["2s", timedelta(minutes=30), 0.25, 7])

        def trigger(poll: PollResult) -> Any:
            seen.append(poll)
            return next(answers)

        table = Table(Claim([claimed(runtime)]))
        poller, _ = poller_of(runtime, table, interval=5 * SECOND, poll_trigger=trigger)

        async def watched(predicate: Any, timeout: float | None = None) -> Any:
            pauses.append(round(timeout or 0.0, 6))
            now[0] += timeout or 0.0
            return predicate()

        poller.monitor.wait_for = watched
        for _ in range(4):
            await poller.step()
        assert pauses == [2, 1800, 0.25]
        assert seen == [PollResult(1, 5 * SECOND), *[PollResult(0, 5 * SECOND)] * 3]
        assert poller.interval == 7 * SECOND

    with_runtime(world, scenario)


def test_the_poller_wakes_earlier_for_what_it_knows_of(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [1000.0]
        runtime.clock = lambda: now[0]
        poller, _ = poller_of(runtime, Table(Claim([], next_due=3.0)), poll_trigger=lambda poll: "1h")
        await poller.step()
        assert poller._agenda.due_at == 1003.0, "a row falls due"
        poller._agenda.add(EVERYWHERE)
        assert poller._agenda.due_at < now[0], "somebody calls"
        await poller.step()
        assert poller._agenda.due_at == 1000.0 + 3600

    with_runtime(world, scenario)


@pytest.mark.parametrize(
    ("answer", "expected"), [(0, SHORTEST), ("10us", SHORTEST), ("365d", LONGEST), (timedelta.max, LONGEST)]
)
def test_no_trigger_makes_the_poller_run_hot_or_sleep_for_ever(world: World, answer: Any, expected: timedelta) -> None:
    async def scenario(runtime: Any) -> None:
        poller, _ = poller_of(runtime, Table(), poll_trigger=lambda poll: answer)
        await poller.step()
        assert poller.interval == expected

    with_runtime(world, scenario)


def fails(poll: PollResult) -> Any:
    raise ValueError("no idea; password=hunter2")


@pytest.mark.parametrize(
    "trigger",
    [fails, lambda poll: -1, lambda poll: None, lambda poll: "soon"],
    ids=["raises", "below 0", "None", "text"],
)
def test_a_trigger_that_fails_is_logged_and_the_outboxs_own_pace_goes_on(
    world: World, trigger: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        poller, _ = poller_of(runtime, Table(), interval=5 * SECOND, poll_trigger=trigger)
        with caplog.at_level(logging.WARNING, "aftercommit.poller"):
            for _ in range(3):
                poller._agenda.add(EVERYWHERE)
                await poller.step()
        assert poller.interval == 5 * SECOND
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith("the poll_trigger failed, and poll_interval is used: ")
        assert "hunter2" not in said

    with_runtime(world, scenario)


def test_an_outbox_polls_as_its_trigger_says(world: World) -> None:
    """Rows that nobody tells of are found long before the interval is over."""

    async def scenario() -> None:
        polls, seen = Collector(), Collector()

        def trigger(poll: PollResult) -> timedelta:
            polls.add(poll)
            return timedelta(milliseconds=10)

        outbox = world.outbox(poll_interval="1h", poll_trigger=trigger, wakeups=False)
        outbox.register("OrderPlaced", seen.add)
        await outbox.start()
        await polls.reach(2)
        writer = world.outbox(wiring="writer_only", wakeups=False)
        async with writer.transaction():
            await writer.write("OrderPlaced", {})
        await seen.reach(1)
        await polls.reach(len(polls) + 1)
        assert any(poll.count == 1 for poll in polls)
        assert outbox.health().is_healthy

    world.run(scenario)


@pytest.mark.parametrize("wrong", ["unknown", 5, Collector])
def test_a_trigger_is_a_function(wrong: Any) -> None:
    """TC-409"""
    with pytest.raises(InvalidOption, match="poll_trigger"):
        Outbox("sqlite://", poll_trigger=wrong)
