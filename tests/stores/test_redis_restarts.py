"""What a Redis server has when it comes back: after a restart, after a power cut, and after a failover.

docs/stores-redis.md says what each setting means for "nothing lost"; here it is held to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit import OutboxError, StoreUnavailable
from aftercommit.stores.redis import durability
from tests.power import PoweredRedis
from tests.redis_database import RedisDatabase
from tests.redis_servers import PrivateRedis, RedisReplicas, connected
from tests.support import Collector, World


@pytest.fixture(params=["threads", "asyncio"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def world_at(url: str, runtime: str, folder: Path) -> World:
    return World(runtime, folder, "redis", url)


@pytest.fixture
def powered(request: pytest.FixtureRequest) -> Iterator[PoweredRedis]:
    """A Redis whose power can be cut, and that syncs as the test says."""
    with PoweredRedis(appendfsync=request.param) as server:
        yield server


def written_in(world: World, count: int, **options: Any) -> list[str]:
    """Events of which the caller was told that they are written."""
    ids: list[str] = []

    async def scenario() -> None:
        outbox = world.outbox(**options)
        for number in range(count):
            async with outbox.transaction():
                ids.append(await outbox.write("Placed", {"n": number}))

    world.run(scenario)
    return ids


def all_are_delivered(world: World, ids: list[str]) -> None:
    """And nothing is half there."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox()
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            await seen.reach(len(ids))
            await world.until_settled(len(ids))
        assert list(dict.fromkeys(seen)) == ids or sorted(set(seen)) == sorted(ids)

    assert isinstance(world.somebody, RedisDatabase)
    world.somebody.check()
    world.run(scenario)
    world.somebody.check()
    world.somebody.close()


# ---------------------------------------------------------------- power cuts


@pytest.mark.parametrize("powered", ["always"], indirect=True)
def test_appendfsync_always_loses_nothing_that_was_acknowledged(
    powered: PoweredRedis, runtime: str, tmp_path: Path
) -> None:
    ids = written_in(world_at(powered.url, runtime, tmp_path), 50)
    assert powered.cut_power() == 0
    powered.start()
    all_are_delivered(world_at(powered.url, runtime, tmp_path), ids)


@pytest.mark.parametrize("powered", ["everysec"], indirect=True)
def test_appendfsync_everysec_loses_what_was_not_synced_yet_and_nothing_else(
    powered: PoweredRedis, runtime: str, tmp_path: Path
) -> None:
    """The last writes, each of them whole: an event is there with all that belongs to it, or not at all."""
    kept = written_in(world_at(powered.url, runtime, tmp_path), 20)
    powered.until_synced()
    while True:
        late = written_in(world_at(powered.url, runtime, tmp_path), 5)
        if powered.stands_unsynced():
            break
        kept += late
    assert powered.cut_power() > 0
    powered.start()

    world = world_at(powered.url, runtime, tmp_path)
    found = [row["event_id"] for row in world.rows()]
    written = kept + late
    assert kept == found[: len(kept)]
    assert found == written[: len(found)], "what is gone was written last"
    assert len(found) < len(written)
    all_are_delivered(world, found)


@pytest.mark.parametrize("powered", ["always"], indirect=True)
def test_outcomes_are_as_safe_as_events(powered: PoweredRedis, runtime: str, tmp_path: Path) -> None:
    """What was marked as done is not delivered again after a power cut."""
    world = world_at(powered.url, runtime, tmp_path)
    seen = Collector()

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            for number in range(20):
                await outbox.write("Placed", {"n": number})
            await world.until_settled(20)

    world.run(scenario)
    powered.cut_power()
    powered.start()
    again = world_at(powered.url, runtime, tmp_path)
    assert again.statuses() == [1] * 20
    assert isinstance(again.somebody, RedisDatabase)
    again.somebody.check()


# ---------------------------------------------------------------- restarts under load


@pytest.mark.redis_settings(appendonly="yes", appendfsync="always")
def test_an_outbox_goes_on_when_its_server_was_killed_and_came_back(
    private_redis: PrivateRedis, runtime: str, tmp_path: Path
) -> None:
    """The process stays; it hears errors for as long as the server is away, and needs no help afterwards."""
    world = world_at(private_redis.url, runtime, tmp_path)
    acknowledged: list[str] = []
    failed = 0

    async def scenario() -> None:
        nonlocal failed
        seen = Collector()
        outbox = world.outbox(lock_timeout="2s", poll_interval="50ms")
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            for immediate in (True, False, True):
                for number in range(10):
                    acknowledged.append(await _written(outbox, number))
                private_redis.stop(immediate=immediate)
                with pytest.raises(OutboxError, match="cannot be reached"):
                    await outbox.write("Placed", {})
                failed += 1
                private_redis.start()
            acknowledged.append(await _written(outbox, 99))
            await world.until("SELECT count(*) = 0 FROM outbox_event WHERE status <> 1")
            assert set(acknowledged) <= set(seen)

    world.run(scenario)
    assert failed == 3
    assert isinstance(world.somebody, RedisDatabase)
    world.somebody.check()


async def _written(outbox: Any, number: int) -> str:
    """A connection that was cut while nobody used it may be found out by the next write, which says so."""
    for _ in range(20):
        try:
            event_id: str = await outbox.write("Placed", {"n": number})
        except OutboxError:
            continue
        return event_id
    raise AssertionError("the server is back, and every write fails")


# ---------------------------------------------------------------- failover


def test_a_failover_loses_nothing_that_a_replica_has_confirmed(
    redis_replicas: RedisReplicas, runtime: str, tmp_path: Path
) -> None:
    world = world_at(f"{redis_replicas.master.url}?durability=wait:1", runtime, tmp_path)
    ids = written_in(world, 50)
    leader = redis_replicas.fail_over()
    all_are_delivered(world_at(leader.url, runtime, tmp_path), ids)


def test_what_no_replica_confirms_is_said_to_be_unconfirmed(
    redis_replicas: RedisReplicas, runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller hears of it, and after the failover the event is gone: without the error it would have been lost."""
    world = world_at(f"{redis_replicas.master.url}?durability=wait:1", runtime, tmp_path)

    async def scenario() -> str:
        outbox = world.outbox()
        monkeypatch.setattr(durability, "PATIENCE", 50)
        impatient = world.outbox()
        await impatient.stats()  # it has been there as long as the replica
        confirmed: str = await outbox.write("Placed", {})
        redis_replicas.stop_following()
        with pytest.raises(StoreUnavailable, match="durability='wait:1' was not reached: 0 instead of 1"):
            await impatient.write("Placed", {})
        return confirmed

    confirmed = world.run(scenario)
    found = world_at(redis_replicas.fail_over().url, runtime, tmp_path)
    assert [row["event_id"] for row in found.rows()] == [confirmed]
    found.somebody.close()


def test_without_waiting_a_failover_may_lose_what_was_acknowledged(
    redis_replicas: RedisReplicas, runtime: str, tmp_path: Path
) -> None:
    """What the page says of it is true: the replica had not heard of it yet."""
    world = world_at(redis_replicas.master.url, runtime, tmp_path)
    before = written_in(world, 5)
    with connected(redis_replicas.master.url) as client:
        assert client.wait(1, 10_000) == 1
    redis_replicas.stop_following()
    lost = written_in(world, 5)
    leader = redis_replicas.fail_over()
    found = world_at(leader.url, runtime, tmp_path)
    assert [row["event_id"] for row in found.rows()] == before
    assert lost
    all_are_delivered(found, before)
