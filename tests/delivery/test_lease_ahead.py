"""`lease_ahead=False`: a row is leased when a worker is there to start it, and all that waits is anybody's."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import AsyncOutbox, EventEnvelope, InvalidOption, Outbox
from aftercommit.delivery.idle import LanesOfIdle
from aftercommit.runtime.threads import ThreadRuntime
from tests.components.kit import Parts
from tests.delivery.faulty import Told
from tests.support import Collector, Signal, World

LEASED = "SELECT count(*) FROM outbox_event WHERE locked_by IS NOT NULL AND status = 0"


async def write(outbox: Any, count: int) -> None:
    async with outbox.transaction():
        await outbox.write_all([EventEnvelope.of_json("A", "{}") for _ in range(count)])


class Stuck:
    """Two workers of one process, until they are let go."""

    def __init__(self) -> None:
        self.entered, self.release = Collector(), Signal()

    def __call__(self, event: EventEnvelope) -> None:
        self.entered.add(event.event_id)
        self.release.wait_here()


@pytest.mark.parametrize(("options", "leased"), [({}, 20), ({"lease_ahead": False}, 2)], ids=["ahead", "not ahead"])
def test_what_waits_is_not_leased(every_world: World, options: dict[str, Any], leased: int) -> None:
    """So a process that is killed leaves behind only what was under way, and others take the rest at once."""
    world = every_world

    async def scenario() -> None:
        stuck, seen = Stuck(), Collector()
        slow = world.outbox(worker_count=2, poll_interval="1h", **options)
        slow.register("A", stuck)
        await write(slow, 20)
        async with slow:
            await slow.poll()
            await stuck.entered.reach(2)
            assert world.rows(LEASED)[0][0] == leased
            other = world.outbox(worker_count=2, poll_interval="1h", lease_ahead=False)
            other.register("A", lambda event: seen.add(event.event_id))
            async with other:
                await other.drain()
            assert len(seen) == 20 - leased
            stuck.release.set()
            await world.until_settled(20)
        assert len({*seen, *stuck.entered}) == 20

    world.run(scenario)


def test_each_worker_that_is_done_gets_the_next_row(every_world: World, colour: Any) -> None:
    """Without a poll between them: nobody waits for the interval."""
    world = every_world

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(worker_count=3, poll_interval="1h", lease_ahead=False)
        outbox.register("A", colour(lambda event: seen.add(event.event_id)))
        await write(outbox, 40)
        async with outbox:
            await outbox.poll()
            await seen.reach(40)
            await write(outbox, 5)  # from memory, beside it
            await world.until_settled(45)
        assert len(seen) == len(set(seen)) == 45

    world.run(scenario)


@pytest.mark.parametrize("make", [Outbox.ordered, AsyncOutbox.ordered, lambda *a, **k: Outbox(*a, ordered=True, **k)])
def test_it_is_refused_where_the_events_of_a_key_are_leased_together(make: Any) -> None:
    with pytest.raises(InvalidOption, match="lease_ahead"):
        make("sqlite://", lease_ahead=False)


class Item:
    order_key, is_suspect, abandoned, began_at = None, False, 0, 0.0


def test_room_is_for_idle_workers_and_told_when_there_is_some() -> None:
    told = Told()
    lanes: LanesOfIdle[Any] = LanesOfIdle(ThreadRuntime(), told, hot_capacity=10, cold_capacity=2)
    assert lanes.offer([Item(), Item()])
    assert lanes.cold_room == 0
    first, _ = lanes.take_now(), lanes.take_now()
    assert first is not None
    assert lanes.cold_room == 0, "both run"
    lanes.want_room(1)
    assert told.places == []
    lanes.finished(first)
    assert lanes.cold_room == 1
    assert len(told.places) == 1
    lanes.want_room(2)
    assert lanes.take_now() is None
    assert len(told.places) == 1, "one of two is idle"


def test_a_dispatcher_that_is_wired_by_hand_has_it_too(world: World) -> None:
    async def scenario() -> None:
        stuck, parts = Stuck(), Parts(world)
        parts.registry.register("A", stuck)
        dispatcher = parts.dispatcher(worker_count=2, lease_ahead=False)
        try:
            await parts.write(parts.writer(), *["A"] * 10)
            await parts.poller(dispatcher).poll()
            await stuck.entered.reach(2)
            assert world.rows(LEASED)[0][0] == 2
            stuck.release.set()
        finally:
            await parts.close()

    world.run(scenario)
