"""An outbox over a Sentinel's client: it goes on with whoever leads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from aftercommit import StoreUnavailable
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from tests.redis_servers import SERVICE, RedisSentinels, until
from tests.support import Collector, Signal, World

#: A failover takes seconds, more on a busy machine.
PATIENCE = 90.0


async def apart(world: World, work: Callable[[], Any]) -> Any:
    """What blocks, while the event loop goes on."""
    return await asyncio.to_thread(work) if world.is_async else work()


async def written(outbox: Any, number: int) -> bool:
    try:
        await outbox.write("Placed", {"n": number})
    except StoreUnavailable:
        return False
    return True


def manager_of(world: World, sentinels: RedisSentinels) -> Any:
    kind: Any = redis.asyncio.Sentinel if world.is_async else redis.Sentinel
    return kind(sentinels.addresses, socket_timeout=5)


async def closed(client: Any) -> None:
    """In either colour of client."""
    ended = client.aclose() if hasattr(client, "aclose") else client.close()
    if ended is not None:
        await ended


@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
def test_a_failover_loses_nothing_that_the_replica_had_confirmed(
    redis_sentinels: RedisSentinels, tmp_path: Path, runtime: str
) -> None:
    """And what was not delivered by then is, and so is what is written later, by the same outbox."""
    world = World(runtime, tmp_path)
    confirmed, seen, may_end = range(20), Collector(), Signal()

    def handle(event: Any) -> None:
        may_end.wait_here(PATIENCE)
        seen.add(json.loads(event.payload_json)["n"])

    async def scenario() -> None:
        manager = manager_of(world, redis_sentinels)
        client = manager.master_for(SERVICE, socket_timeout=5)
        sure = world.outbox(
            open_store(client, Colour.ASYNC if world.is_async else Colour.BLOCKING, durability="wait:1")
        )
        outbox = world.outbox(client)
        outbox.register("Placed", handle)
        assert "primary events of a Sentinel" in repr(outbox._store)
        async with outbox:
            for number in confirmed:
                await sure.write("Placed", {"n": number})
            before = redis_sentinels.leader()
            after = await apart(world, redis_sentinels.kill_leader)
            assert after is not before
            while not await written(outbox, len(confirmed)):
                pass  # a connection that was there before has to be lost first
            may_end.set()
            all_of_them = {*confirmed, len(confirmed)}
            await apart(world, lambda: until(lambda: set(seen) == all_of_them, "the end of all deliveries"))
        for each in (client, *manager.sentinels):
            await closed(each)

    world.run(scenario)
