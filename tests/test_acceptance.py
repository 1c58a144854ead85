"""The acceptance tests of the specification, 000 §18.1 to §18.6, in its order and words, on both runtimes."""

from __future__ import annotations

from enum import Enum

import pytest

from aftercommit import EventEnvelope, EventStatus, Fixed
from tests.support import Collector, Signal, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


class UserEvents(Enum):
    USER_CREATED = 1


class Aggregates(Enum):
    USER = 1


class Deliberate(Exception):
    """Raised to roll back."""


def test_18_1_atomicity(world: World) -> None:
    """Begin tx manually, write event, rollback. Expect: outbox row not present."""

    async def scenario() -> None:
        outbox = world.outbox()
        tx = await outbox.begin()
        await outbox.write("UserCreated", '{"id": 1}')
        await tx.rollback()
        assert world.rows() == []

    world.run(scenario)


def test_18_2_commit_and_fast_path(world: World, colour) -> None:
    """Begin tx, write event, commit. Expect: dispatcher receives HOT event; listener invoked; outbox status DONE."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(poll_interval="1h")
        outbox.register("UserCreated", colour(seen.add))
        async with outbox:
            tx = await outbox.begin()
            event_id = await outbox.write("UserCreated", '{"id": 1}')
            await tx.commit()
            await seen.reach(1)
            await world.until_settled(1)
            assert (await outbox.stats()).counters["hot_enqueued"] == 1
        assert [event.event_id for event in seen] == [event_id]
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)


def test_18_3_queue_overflow_downgrade(world: World, colour) -> None:
    """Hot queue capacity small, force drop. Expect: write returns OK, outbox row NEW.
    Start poller. Expect: row processed to DONE."""

    async def scenario() -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        def listener(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()
            seen.add(event.event_id)

        first = world.outbox(hot_queue_capacity=1, worker_count=1, poller_enabled=False)
        first.register("UserCreated", listener)
        async with first:
            for name in ("running", "queued", "dropped"):
                async with first.transaction():
                    assert await first.write("UserCreated", {"name": name})
                if name == "running":
                    await entered.wait()
            counters = (await first.stats()).counters
            assert (counters["hot_enqueued"], counters["hot_dropped"]) == (2, 1)
            dropped = world.rows("SELECT * FROM outbox_event WHERE payload LIKE '%dropped%'")[0]
            assert (dropped["status"], dropped["locked_by"]) == (EventStatus.NEW, None)
            release.set()

        second = world.outbox()
        second.register("UserCreated", colour(lambda event: seen.add(event.event_id)))
        async with second:
            await world.until_settled(3)
        assert len(seen) == len(set(seen)) == 3

    world.run(scenario)


def test_18_4_retry_and_dead(world: World, colour) -> None:
    """Listener fails repeatedly. Expect: attempts increments, RETRY status. After maxAttempts. Expect: DEAD status."""

    async def scenario() -> None:
        def listener(event: EventEnvelope) -> None:
            raise Deliberate("no luck today")

        outbox = world.outbox(max_attempts=3, retry_policy=Fixed("1ms"))
        outbox.register("UserCreated", colour(listener))
        async with outbox.transaction():
            await outbox.write("UserCreated", "{}")
        for attempts, status in ((1, EventStatus.RETRY), (2, EventStatus.RETRY), (3, EventStatus.DEAD)):
            world.change("UPDATE outbox_event SET available_at = 0")
            assert await outbox.poll() == 1
            row = world.rows()[0]
            assert (row["attempts"], row["status"]) == (attempts, status)
            assert "no luck today" in row["last_error"]
        assert await outbox.poll() == 0

    world.run(scenario)


def test_18_5_type_safe_event_type(world: World, colour) -> None:
    """Register listener with enum EventType. Publish event using same enum. Expect: listener invoked."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register(UserEvents.USER_CREATED, colour(seen.add))
        async with outbox:
            async with outbox.transaction():
                await outbox.write(UserEvents.USER_CREATED, {"id": 1})
            await seen.reach(1)
        assert seen[0].event_type == "USER_CREATED"

    world.run(scenario)


def test_18_6_type_safe_aggregate_type(world: World, colour) -> None:
    """Publish event with enum AggregateType. Expect: aggregateType() returns enum name string."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register(Aggregates.USER, UserEvents.USER_CREATED, colour(seen.add))
        async with outbox:
            async with outbox.transaction():
                await outbox.write(
                    UserEvents.USER_CREATED, {"id": 1}, aggregate_type=Aggregates.USER, aggregate_id="user-123"
                )
            await seen.reach(1)
        assert (seen[0].aggregate_type, seen[0].aggregate_id) == ("USER", "user-123")

    world.run(scenario)
