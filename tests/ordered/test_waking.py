"""What makes an ordered outbox look: commits it sees and those it cannot see, retries, and other instances."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from tests.ordered.kit import NEVER, Handler, of_key, ordered, write
from tests.support import Signal, World

BOTH_HAVE_HALF = """
SELECT count(*) = 2 FROM (SELECT owner FROM outbox_partition GROUP BY owner HAVING count(*) = 128) AS halves
"""


def test_a_commit_that_cannot_be_seen_is_looked_for(world: World) -> None:
    """Through a plain connection, without a poll in between."""

    async def scenario() -> None:
        handler = Handler()
        async with ordered(world, handler) as outbox:
            await outbox.stats()  # the table is there
            with sqlite3.connect(world.path, check_same_thread=False) as connection:
                for number in (1, 2):
                    await outbox.write("Counted", str(number), key="a", tx=connection)
            connection.close()
            await handler.seen.reach(2)
        assert of_key(handler.seen, "a") == [1, 2]

    if world.is_async:
        pytest.skip("a sqlite3 connection is a blocking one")
    world.run(scenario)


def test_a_retry_comes_when_it_is_due_and_not_with_the_next_poll(world: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        handler.fails = {1: 2}
        async with ordered(world, handler, poll_interval=NEVER) as outbox:
            await write(outbox, 1, 2)
            await handler.seen.reach(2)
        assert of_key(handler.tries, "a") == [1, 1, 1, 2]

    world.run(scenario)


def test_a_key_that_is_called_while_its_last_event_is_settled_is_looked_at_again(world: World) -> None:
    """The row is committed while the key is in memory: a claim then would find the head leased, and forget it."""

    async def scenario() -> None:
        handler, started, goes_on = Handler(), Signal(), Signal()

        def slow(event: Any) -> None:
            if event.payload_json == "1":
                started.set()
                goes_on.wait_here()
            handler(event)

        async with ordered(world, slow) as outbox:
            await write(outbox, 1)
            await started.wait()
            await write(outbox, 2)
            engine = outbox._engine
            await _until_parked(engine)
            goes_on.set()
            await handler.seen.reach(2)
        assert of_key(handler.seen, "a") == [1, 2]

    async def _until_parked(engine: Any) -> None:
        await engine.poller.next_cycle(None)
        assert engine.agenda._parked, "the call for the second waits for the first to leave memory"

    world.run(scenario)


def test_a_round_finds_what_nobody_was_told_of(world: World) -> None:
    async def scenario() -> None:
        handler = Handler()
        writer = ordered(world)  # never started, so it tells nobody
        await write(writer, 1, 2)
        async with ordered(world, handler, poll_interval="50ms"):
            await handler.seen.reach(2)
            await write(writer, 3)
            await handler.seen.reach(3)
        assert of_key(handler.seen, "a") == [1, 2, 3]

    world.run(scenario)


def test_events_of_another_instances_partitions_are_left_to_it(world: World) -> None:
    """Two instances in one process: each key is delivered by its owner, and all of them are delivered in order."""

    async def scenario() -> None:
        seen = {"one": Handler(), "two": Handler()}
        options: Any = {
            "poll_interval": "20ms",
            "heartbeat_interval": "50ms",
            "stale_timeout": "10s",
            "rebalance_interval": "50ms",
        }
        one = ordered(world, seen["one"], **options)
        two = ordered(world, seen["two"], **options)
        async with one, two:
            await world.until(BOTH_HAVE_HALF)
            for number in range(20):
                await write(one, number, key=f"key-{number % 10}")
            await world.until_settled(20)
        both = [*seen["one"].seen, *seen["two"].seen]
        assert len(both) == 20
        assert {key for key, _ in seen["one"].seen}.isdisjoint(key for key, _ in seen["two"].seen)
        assert seen["one"].seen
        assert seen["two"].seen

    world.run(scenario)


@pytest.mark.parametrize("writer", [{"poller_enabled": False}, {"wiring": "writer_only"}])
def test_on_postgres_an_instance_is_told_of_its_keys_by_another_one(
    server_world: World, writer: dict[str, Any]
) -> None:
    """No polls here: what the owner of a key hears of another's commit it hears by NOTIFY."""
    if server_world.database != "postgres":
        pytest.skip("only PostgreSQL has LISTEN and NOTIFY")

    async def scenario() -> None:
        handler = Handler()
        owner = ordered(server_world, handler)
        other = server_world.outbox(ordered=True, **writer)  # owns nothing, and delivers nothing
        async with owner, other:
            await server_world.until("SELECT count(*) = 256 FROM outbox_partition WHERE owner IS NOT NULL")
            await _until_listening(owner)
            for number in range(5):
                await write(other, number)
            await handler.seen.reach(5)
        assert of_key(handler.seen, "a") == list(range(5))

    async def _until_listening(outbox: Any) -> None:
        await server_world.until(
            "SELECT count(*) >= 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE '%LISTEN %' AND pid <> pg_backend_pid()"
        )

    server_world.run(scenario)
