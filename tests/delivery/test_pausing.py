"""Pauses: over the fleet nothing is started of a paused handler or event type, nothing is lost or counted, and it goes
on when it is resumed or the time is over."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aftercommit import InvalidOption, Outbox, PauseKind
from aftercommit.delivery import pauses
from aftercommit.events.envelope import EventStatus
from aftercommit.events.pauses import PUT_OFF_AT_MOST
from tests.handlers.kit import Colouring, declare, write
from tests.ordered.kit import NEVER, ordered
from tests.ordered.kit import write as write_in_order
from tests.support import Collector, World


async def told(world: World, outbox: Any, count: int) -> None:
    """A process that runs knows of so many pauses."""
    known = outbox._current().delivery.pauses
    await world._until(lambda: len(known.known) == count, f"{count} pauses", 60)


def test_a_paused_handler_gets_nothing_and_nothing_is_counted(
    every_world: World, colour: Colouring, caplog: pytest.LogCaptureFixture
) -> None:
    """Others go on; with resume() its events come at once."""
    world = every_world

    async def scenario() -> None:
        seen, others, outbox = Collector(), Collector(), world.outbox(max_attempts=1)
        declare(outbox, colour, seen.add)
        declare(outbox, colour, others.add, "B", id="other")
        with caplog.at_level(logging.WARNING, "aftercommit.pauses"):
            await outbox.pause(handler="h", reason="the shop is full")
            await write(outbox, "A", "A", "B")
            for _ in range(3):
                await outbox.drain()
            assert (len(seen), len(others)) == (0, 1)
            waiting = world.rows()[:2]
            assert {(row["status"], row["attempts"], row["abandoned"], row["locked_by"]) for row in waiting} == {
                (EventStatus.RETRY, 0, 0, None)
            }
            assert all(row["available_at"] > row["created_at"] for row in waiting)
            (paused,) = (await outbox.stats()).paused
            assert (paused.kind, paused.name, paused.reason) == (PauseKind.HANDLER, "h", "the shop is full")
            assert [each.key for each in await outbox.paused()] == [paused.key]
            assert await outbox.resume(handler="h")
            await outbox.drain()
        assert len(seen) == 2
        assert await outbox.paused() == []
        assert not await outbox.resume(handler="h")
        said = [record.getMessage() for record in caplog.records if record.name == "aftercommit.pauses"]
        assert [text.partition(" by ")[0] for text in said] == [
            "the handler h is paused",
            "the handler h is paused no more",
        ]

    world.run(scenario)


def test_of_an_event_with_several_handlers_only_the_paused_one_waits(world: World, colour: Colouring) -> None:
    """In rows of their own, and in one that nobody had a handler for when it was written."""

    async def scenario() -> None:
        first, second, outbox = Collector(), Collector(), world.outbox()
        await write(outbox, "A")
        declare(outbox, colour, first.add, id="first")
        declare(outbox, colour, second.add, id="second")
        await write(outbox, "A")
        await outbox.pause(handler="first")
        await outbox.drain()
        assert (len(first), len(second)) == (0, 2)
        await outbox.resume(handler="first")
        await outbox.drain()
        assert (len(first), len(second)) == (2, 2)
        assert set(world.statuses()) == {EventStatus.DONE}

    world.run(scenario)


def test_a_paused_event_type_waits_whoever_takes_it(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        declare(outbox, colour, seen.add, "A", id="a")
        declare(outbox, colour, seen.add, "A", id="also")
        declare(outbox, colour, seen.add, "B", id="b")
        await outbox.pause(event_type="A", lasts="1h")
        await write(outbox, "A", "B")
        await outbox.drain()
        assert [event.event_type for event in seen] == ["B"]
        assert await outbox.resume(event_type="A")
        await outbox.drain()
        assert sorted(event.event_type for event in seen) == ["A", "A", "B"]

    world.run(scenario)


def test_what_is_paused_is_put_off_for_longer_and_longer(world: World, colour: Colouring) -> None:
    """So that it does not go round at full speed; but never beyond the end of the pause, nor for long."""

    async def scenario() -> None:
        outbox = world.outbox()
        declare(outbox, colour, lambda event: None)
        await outbox.pause(handler="h")
        waits = []
        for age in (timedelta(0), timedelta(minutes=2), timedelta(hours=9)):
            world.change("UPDATE outbox_pause SET paused_at = ?", world.now() - age // timedelta(microseconds=1))
            outbox._current().delivery.pauses.call()
            await write(outbox, "A")
            await outbox.drain()
            row = world.rows()[-1]
            waits.append((row["available_at"] - row["created_at"]) / 1e6)
        assert 5 <= waits[0] < 120 <= waits[1] < PUT_OFF_AT_MOST.total_seconds() <= waits[2]
        assert await outbox.resume(handler="h")
        assert (await outbox.drain()).delivered == 3

    world.run(scenario)


def test_a_pause_ends_by_itself(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        declare(outbox, colour, seen.add)
        async with outbox:
            await outbox.pause(handler="h", lasts="200ms")
            await write(outbox, "A")
            await seen.reach(1)
            await world.until_settled(1)
            while await outbox.paused():  # the clock of the database may still say a moment less
                pass

    world.run(scenario)


@pytest.mark.parametrize("poller", [True, False])
def test_what_a_process_writes_itself_is_put_off_as_well(
    world: World, colour: Colouring, poller: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory it would come at once; and a process that never polls hears of pauses, too."""
    monkeypatch.setattr(pauses, "APART", 0.1)

    async def scenario() -> None:
        seen, outbox, other = Collector(), world.outbox(poller_enabled=poller, poll_interval="100ms"), world.outbox()
        declare(outbox, colour, seen.add)
        async with outbox:
            await other.pause(event_type="A")  # it is not started, and has no handlers
            if not poller:
                await told(world, outbox, 1)
            else:
                await outbox.poll()
                await told(world, outbox, 1)
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.RETRY)
            assert seen == []
            await other.resume(event_type="A")
        assert (await other.paused()) == []

    world.run(scenario)


def test_a_key_waits_behind_a_paused_event_and_others_go_on(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), ordered(world, None)
        outbox.handler("Counted", id="count")(lambda event: seen.add((event.key, event.payload_json)))
        outbox.handler("Other", id="other")(lambda event: seen.add((event.key, "other")))
        await outbox.pause(event_type="Other")
        async with outbox.transaction():
            await outbox.write("Other", "0", key="a")
        await write_in_order(outbox, 1, 2, key="a")
        await write_in_order(outbox, 1, key="b")
        await outbox.drain()
        assert seen == [("b", "1")]
        await outbox.resume(event_type="Other")
        await outbox.drain()
        assert seen == [("b", "1"), ("a", "other"), ("a", "1"), ("a", "2")]

    world.run(scenario)


@pytest.mark.parametrize("any_server_world", ["postgres-threads", "postgres-asyncpg", "redis-asyncio"], indirect=True)
def test_what_one_pauses_the_others_stop_and_what_it_resumes_they_deliver(any_server_world: World) -> None:
    """Told by a message: none of them polls in this time."""
    world = any_server_world

    async def scenario() -> None:
        seen = Collector()
        one, two = (world.outbox(poll_interval=NEVER) for _ in range(2))
        teller = world.outbox()
        for outbox in (one, two):
            outbox.handler("A", id="h")(lambda event: seen.add(event.payload_json))
        async with one, two:
            await write(one, "A")
            await seen.reach(1)
            await teller.pause(handler="h", reason="maintenance")
            await told(world, one, 1)
            await told(world, two, 1)
            await write(one, "A", "A")
            await write(two, "A")
            await world.until_settled(3, EventStatus.RETRY)
            assert len(seen) == 1
            assert await teller.resume(handler="h")
            await seen.reach(4)
            await world.until_settled(4)
        assert {row["attempts"] for row in world.rows()} == {0}
        assert len(seen) == 4

    world.run(scenario)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "one handler or of one event type"),
        ({"handler": "h", "event_type": "A"}, "one handler or of one event type"),
        ({"handler": "h", "lasts": "1m", "until": datetime(2031, 1, 1, tzinfo=UTC)}, "both given"),
        ({"handler": "h", "until": datetime(2031, 1, 1)}, "without a time zone"),
    ],
    ids=["nothing", "both", "two ends", "no zone"],
)
def test_a_pause_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    outbox = Outbox("sqlite://")
    with pytest.raises(InvalidOption, match=message):
        outbox.pause(**wrong)
    assert outbox.paused() == []
    outbox.close()


def test_reasons_are_kept_without_their_secrets() -> None:
    outbox = Outbox("sqlite://")
    outbox.pause(handler="h", reason="token=abc123 is wrong", by="ann")
    (found,) = outbox.paused()
    assert "abc123" not in found.reason
    assert found.paused_by == "ann"
    outbox.close()
