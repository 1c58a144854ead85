"""What a Redis server may do to an outbox: forget its scripts, cut its connections, stand still, be full.

Each on a server of its own. Nothing that was acknowledged is lost, and nothing is half written.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit import OutboxError, StoreFull, StoreUnavailable
from tests.promises.waiting import until
from tests.redis_database import RedisDatabase
from tests.redis_servers import PrivateRedis, connected, info
from tests.support import Collector, Signal, World, _blocking


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path: Path, private_redis: PrivateRedis) -> Iterator[World]:
    """Either runtime over a Redis of its own."""
    made = World(request.param, tmp_path, "redis", private_redis.url)
    yield made
    made.somebody.close()


def nothing_is_half_written(world: World) -> None:
    assert isinstance(world.somebody, RedisDatabase)
    world.somebody.check()


def errors_of(server: PrivateRedis, code: str) -> int:
    """How often the server has given this answer."""
    return int(info(server, "errorstats").get(f"errorstat_{code}", {"count": 0})["count"])


# ---------------------------------------------------------------- scripts


@pytest.mark.parametrize("ordered", [False, True])
def test_scripts_that_the_server_has_forgotten_are_told_again(
    world: World, private_redis: PrivateRedis, ordered: bool
) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(ordered=ordered, poll_interval="50ms")
        outbox.register("Placed", lambda event: seen.add(json.loads(event.payload_json)["n"]))
        async with outbox:
            for number in range(5):
                private_redis.ask("SCRIPT", "FLUSH")
                await outbox.write("Placed", {"n": number}, key="one")
            await seen.reach(5)
            await world.until_settled(5)
        assert sorted(set(seen)) == list(range(5))

    world.run(scenario)
    assert errors_of(private_redis, "NOSCRIPT") > 0
    nothing_is_half_written(world)


def test_a_block_is_whole_when_scripts_are_forgotten_inside_it(world: World, private_redis: PrivateRedis) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        await outbox.write("Placed", {})
        async with outbox.transaction() as tx:
            await _now(world, tx.set("order:7", "placed"))
            await outbox.write("Placed", {})
            private_redis.ask("SCRIPT", "FLUSH")

    world.run(scenario)
    assert private_redis.ask("GET", "order:7") == b"placed"
    assert len(world.rows()) == 2
    nothing_is_half_written(world)


async def _now(world: World, value: Any) -> Any:
    """What a command inside a block gave, if it is awaited in this world."""
    return await value if asyncio.iscoroutine(value) else value


# ---------------------------------------------------------------- connections


def test_nothing_acknowledged_is_lost_when_all_connections_are_cut(world: World, private_redis: PrivateRedis) -> None:
    """Again and again, while it writes and delivers. Who heard an error cannot know; who heard none can rely on it."""
    acknowledged, unknown = [], []

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(lock_timeout="1s", poll_interval="50ms")
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            for number in range(60):
                if number % 6 == 0:
                    assert cut(private_redis) > 0
                try:
                    acknowledged.append(await outbox.write("Placed", {"n": number}))
                except StoreUnavailable:
                    unknown.append(number)
            await world.until("SELECT count(*) = 0 FROM outbox_event WHERE status <> 1")
        assert set(acknowledged) <= set(seen)
        assert len(set(seen)) <= len(acknowledged) + len(unknown)

    world.run(scenario)
    assert len(acknowledged) >= 40
    nothing_is_half_written(world)


def cut(server: PrivateRedis) -> int:
    """All connections but the one that asks."""
    with connected(server.url) as client:
        killed = int(client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        return killed + int(client.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))


def test_a_process_that_hears_of_others_does_so_again_when_its_ear_was_cut(
    world: World, private_redis: PrivateRedis
) -> None:
    """It polls once an hour: what comes through was heard of."""

    async def scenario() -> None:
        seen = Collector()
        worker = world.outbox(poll_interval="1h")
        worker.register("Placed", lambda event: seen.add(event.event_id))
        writer = world.outbox(poller_enabled=False)
        async with worker, writer:
            await writer.write("Placed", {})
            await seen.reach(1)
            assert private_redis.ask("CLIENT", "KILL", "TYPE", "pubsub") == 1
            await _blocking(lambda: until(lambda: listeners(private_redis) == 1, what="a listener that is back"))
            await writer.write("Placed", {})
            await seen.reach(2)

    world.run(scenario)


def listeners(server: PrivateRedis) -> int:
    with connected(server.url) as client:
        return sum(int(count) for _, count in client.pubsub_numsub(*client.pubsub_channels()))


# ---------------------------------------------------------------- a server that stands still


def test_a_server_that_stands_still_for_a_while_loses_nothing(world: World, private_redis: PrivateRedis) -> None:
    def go_on() -> None:
        until(lambda: paused(private_redis) > 0, what="a write that waits")
        stood_still.set()
        private_redis.ask("CLIENT", "UNPAUSE")

    stood_still = Signal()

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            await outbox.write("Placed", {})
            await seen.reach(1)
            private_redis.ask("CLIENT", "PAUSE", 60_000, "WRITE")
            threading.Thread(target=go_on, daemon=True).start()
            waited = await outbox.write("Placed", {})
            assert stood_still.is_set
            await seen.reach(2)
            await world.until_settled(2)
        assert seen[1] == waited

    world.run(scenario)
    nothing_is_half_written(world)


def paused(server: PrivateRedis) -> int:
    """Clients that wait until the server goes on."""
    with connected(server.url) as client:
        return len([each for each in client.client_list() if "b" in each["flags"]])


# ---------------------------------------------------------------- a server that is full


@pytest.mark.redis_settings(maxmemory="4mb", maxmemory_policy="noeviction")
def test_a_full_server_is_said_to_be_full_and_keeps_no_half(world: World, private_redis: PrivateRedis) -> None:
    """What is there is delivered all the same, which makes room."""
    payload = {"text": "x" * 10_000}

    async def scenario() -> None:
        outbox = world.outbox(delete_completed=True)
        written = []
        with pytest.raises(StoreFull, match="has no room left"):
            while True:
                written.append(await outbox.write("Placed", payload))
        with pytest.raises(StoreFull):
            async with outbox.transaction() as tx:
                await _now(world, tx.set("order:7", "placed"))
                await outbox.write("Placed", payload)
        assert private_redis.ask("GET", "order:7") is None
        assert [row["event_id"] for row in world.rows()] == written
        nothing_is_half_written(world)

        seen = Collector()
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            await seen.reach(len(written))
            await world.until("SELECT count(*) = 0 FROM outbox_event")
            await outbox.write("Placed", payload)
        assert set(written) < {*seen} | {row["event_id"] for row in world.rows()} | {""}

    world.run(scenario)
    nothing_is_half_written(world)


@pytest.mark.redis_settings(maxmemory="4mb", maxmemory_policy="noeviction")
def test_a_full_server_writes_down_failures(world: World, private_redis: PrivateRedis) -> None:
    """A handler that fails is counted, and the event comes again, as on a server that has room."""

    async def scenario() -> None:
        outbox = world.outbox(max_attempts=1, worker_count=1)
        with pytest.raises(OutboxError):
            while True:
                await outbox.write("Placed", {"text": "x" * 100_000})
        fill(private_redis)
        count = len(world.rows())

        def fail(event: Any) -> None:
            raise RuntimeError("no luck")

        outbox.register("Placed", fail)
        async with outbox:
            await world.until_settled(count, status=3)

    world.run(scenario)
    nothing_is_half_written(world)


def fill(server: PrivateRedis) -> None:
    """Until nothing fits any more, however small."""
    with connected(server.url) as client:
        for size in (10_000, 1_000, 100, 10, 1):
            for number in range(10_000):
                try:
                    client.set(f"filling:{size}:{number}", "x" * size)
                except Exception:
                    break
