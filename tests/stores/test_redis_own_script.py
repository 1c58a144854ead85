"""Events from a Lua script of the user's: written where it says so, with what it changes, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from aftercommit import UnsupportedTransaction
from aftercommit.stores.redis.own_script import OwnScript
from tests.redis_database import RedisDatabase
from tests.redis_servers import forget
from tests.support import Collector, World


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, redis_table: str) -> Iterator[World]:
    made = World(request.param, tmp_path, "redis", redis_url, redis_table)
    yield made
    made.somebody.close()
    forget(redis_url, redis_table)


async def evaluated(world: World, script: OwnScript) -> Any:
    """By a client of the user's, in the colour of the world."""
    kind: Any = redis.asyncio.Redis if world.is_async else redis.Redis
    client = kind.from_url(world.url)
    try:
        reply = client.eval(*script.call())
        return await reply if asyncio.iscoroutine(reply) or asyncio.isfuture(reply) else reply
    finally:
        closed = client.aclose() if world.is_async else client.close()
        if closed is not None:
            await closed


def whole(world: World) -> list[Any]:
    assert isinstance(world.somebody, RedisDatabase)
    world.somebody.check()
    return world.rows()


@pytest.mark.parametrize("appends", [True, False])
def test_what_the_script_decides_is_done_as_a_whole(world: World, appends: bool) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(poll_interval="50ms"), Collector()
        outbox.register("Sold", lambda event: seen.add(event.payload_json))
        key = f"{{{world.table}}}:stock"
        text = "redis.call('SET', KEYS[1], ARGV[1]) if ARGV[2] == '1' then append() end return {KEYS[1], ARGV[1]}"
        script = OwnScript(text, keys=[key], arguments=["left", int(appends)])
        await outbox.write("Sold", {"n": 1}, tx=script)
        await outbox.write("Sold", {"n": 2}, tx=script, key="one")
        assert whole(world) == [], "nothing is there before it has run"
        assert await evaluated(world, script) == [key.encode(), b"left"]
        async with outbox:
            if appends:
                await seen.reach(2)
                await world.until_settled(2)
        assert sorted(seen) == (['{"n":1}', '{"n":2}'] if appends else [])

    world.run(scenario)
    assert len(whole(world)) == (2 if appends else 0)


def test_many_events_fit_into_one_script(world: World) -> None:
    """More words than Lua can unpack at once."""

    async def scenario() -> None:
        outbox = world.outbox()
        script = OwnScript("append() return 1")
        for number in range(1500):
            await outbox.write("Sold", {"n": number}, tx=script)
        await evaluated(world, script)

    world.run(scenario)
    assert [row["payload"] for row in whole(world)] == [f'{{"n":{number}}}' for number in range(1500)]


def test_a_script_that_has_run_cannot_run_again(world: World) -> None:
    """Its events are there: the second run fails before it writes anything of them."""

    async def scenario() -> None:
        outbox, script = world.outbox(), OwnScript("append() return 1")
        await outbox.write("Sold", {}, tx=script)
        await evaluated(world, script)
        with pytest.raises(redis.ResponseError, match="DUPLICATE"):
            await evaluated(world, script)

    world.run(scenario)
    assert len(whole(world)) == 1


def test_a_script_without_events_and_one_of_two_outboxes_are_refused(world: World) -> None:
    async def scenario() -> None:
        script = OwnScript("append() return 1")
        with pytest.raises(UnsupportedTransaction, match="has no event"):
            script.call()
        await world.outbox().write("Sold", {}, tx=script)
        with pytest.raises(UnsupportedTransaction, match="events of another outbox"):
            await world.outbox(table=f"{world.table}_too").write("Sold", {}, tx=script)

    world.run(scenario)
    forget(world.url, f"{world.table}_too")
