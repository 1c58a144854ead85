"""Looks at Redis that go by an index say what the rows say."""

from __future__ import annotations

from pathlib import Path

import pytest

from aftercommit import EventEnvelope
from tests.databases import HELD, Database
from tests.support import World

#: Of the rows below, by status: new, done, retry, dead.
COUNTS = {0: 3, 1: 1, 2: 1, 3: 2}


@pytest.fixture
def world(redis_url: str, redis_table: str, tmp_path: Path) -> World:
    """Rows in every state, some of them with a lease."""
    world = World("threads", tmp_path, "redis", redis_url, redis_table)

    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.write_all([EventEnvelope("Placed", payload_json="{}", event_id=f"event-{n}") for n in range(7)])

    world.run(scenario)
    world.change("UPDATE outbox_event SET locked_by = 'me', lease_until = 1, lease_epoch = 5 WHERE position <= 2")
    world.change("UPDATE outbox_event SET locked_by = 'you', lease_until = 1 WHERE position = 3")
    world.change("UPDATE outbox_event SET status = 2 WHERE position = 2")
    world.change("UPDATE outbox_event SET status = 1, done_at = 1 WHERE position = 5")
    world.change("UPDATE outbox_event SET status = 3, done_at = 1 WHERE position > 5")
    return world


@pytest.mark.parametrize(("status", "count"), COUNTS.items())
def test_so_many_have_a_status_and_no_more(world: World, status: int, count: int) -> None:
    somebody = world.somebody
    assert somebody.has_settled(count, status)
    assert not somebody.has_settled(count + 1, status)
    assert Database.has_settled(somebody, count, status)
    assert not Database.has_settled(somebody, count + 1, status)
    somebody.close()


def test_whoever_has_leases_is_found_with_all_of_them(world: World) -> None:
    somebody = world.somebody
    assert somebody.held_by("me") == Database.held_by(somebody, "me") == {"event-0": 5, "event-1": 5}
    assert list(somebody.held_by("you")) == [row["event_id"] for row in world.rows(HELD, "you")] == ["event-2"]
    assert somebody.left_by("me") == somebody.held_by("me")
    assert somebody.held_by("nobody") == somebody.left_by("nobody") == {}
    somebody.close()


def test_an_index_that_has_more_than_there_are_rows_is_not_believed(world: World) -> None:
    somebody = world.somebody
    somebody._table.client.zadd(somebody._table.names["done"], {"0000000000000099": 1})  # type: ignore[attr-defined]
    assert not somebody.has_settled(COUNTS[1] + 1)
    somebody.close()


def test_what_somebody_has_left_is_found_without_the_index(world: World) -> None:
    somebody = world.somebody
    somebody._table.client.delete(somebody._table.names["leased"])  # type: ignore[attr-defined]
    assert somebody.held_by("me") == {}
    assert somebody.left_by("me") == {"event-0": 5, "event-1": 5}
    somebody.close()
