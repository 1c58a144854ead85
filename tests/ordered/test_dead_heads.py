"""What follows a dead event of a key: a standstill that is told and can be ended, or simply the next one."""

from __future__ import annotations

import logging

import pytest

from aftercommit import NoRetry
from tests.ordered.kit import Handler, of_key, ordered, write
from tests.support import World


def test_a_dead_event_blocks_its_key_and_that_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """TC-368"""

    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1}
        async with ordered(world, handler, retry_policy=NoRetry()) as outbox:
            (dead, *_) = await write(outbox, 1, 2, 3)
            await write(outbox, 10, key="b")
            await handler.seen.reach(1)
            await world.until_settled(1, status=3)
            await world.until("SELECT count(*) = 0 FROM outbox_event WHERE locked_by IS NOT NULL")
            (blocked,) = (await outbox.stats()).blocked
            assert (blocked.key, blocked.event_id, blocked.event_type) == ("a", dead, "Counted")
            assert "not yet: 1" in blocked.error
            assert (await outbox.drain()).is_complete
        assert handler.seen == [("b", 10)]

    with caplog.at_level(logging.ERROR):
        world.run(scenario)
    assert any("its key a stands still until it is replayed or discarded" in each.message for each in caplog.records)


@pytest.mark.parametrize("way", ["replay", "replay_all", "discard"])
def test_a_key_goes_on_in_order_when_its_dead_head_is_replayed_or_discarded(world: World, way: str) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1}
        async with ordered(world, handler, retry_policy=NoRetry()) as outbox:
            (dead, *_) = await write(outbox, 1, 2, 3)
            await world.until_settled(1, status=3)
            match way:
                case "replay":
                    assert await outbox.dead.replay(dead)
                case "replay_all":
                    assert await outbox.dead.replay_all() == 1
                case "discard":
                    assert await outbox.dead.discard(dead, reason="of no use")
            await world.until_settled(3)
            assert (await outbox.stats()).blocked == ()
        assert of_key(handler.seen, "a") == ([2, 3] if way == "discard" else [1, 2, 3])

    world.run(scenario)


def test_with_continue_the_next_event_follows_a_dead_one(world: World) -> None:
    """TC-369"""

    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1}
        async with ordered(world, handler, retry_policy=NoRetry(), on_dead="continue") as outbox:
            await write(outbox, 1, 2, 3)
            await handler.seen.reach(2)
            await world.until_settled(2)
            assert (await outbox.stats()).blocked == ()
        assert of_key(handler.seen, "a") == [2, 3]
        assert sorted(world.statuses()) == [1, 1, 3]

    world.run(scenario)


def test_the_second_head_may_die_as_well(world: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 1, 2: 1}
        async with ordered(world, handler, retry_policy=NoRetry()) as outbox:
            await write(outbox, 1, 2, 3)
            await world.until_settled(1, status=3)
            (first,) = await outbox.dead.query()
            await outbox.dead.discard(first.event_id)
            await world.until_settled(1, status=3)
            await world.until("SELECT count(*) = 1 FROM outbox_event WHERE status = 3")
            (second,) = await outbox.dead.query()
            await outbox.dead.replay(second.event_id)
            await world.until_settled(3)
        assert of_key(handler.seen, "a") == [2, 3]

    world.run(scenario)
