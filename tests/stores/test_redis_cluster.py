"""An outbox on a cluster of three: all its keys lie in one slot, whichever node has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio

from tests.redis_database import RedisDatabase
from tests.redis_servers import PrivateRedis, RedisCluster, forget
from tests.support import Collector, World


def node_of(cluster: RedisCluster, table: str) -> PrivateRedis:
    """Who has the keys of an outbox."""
    client = redis.RedisCluster.from_url(cluster.url)
    port = client.get_node_from_key(f"{{{table}}}").port
    client.close()
    (node,) = [node for node in cluster.nodes if node.port == port]
    return node


def tables_on_all_nodes(cluster: RedisCluster) -> list[str]:
    """A table for each node."""
    found: dict[int, str] = {}
    while len(found) < len(cluster.nodes):
        table = f"aftercommit_{uuid4().hex[:12]}"
        found.setdefault(node_of(cluster, table).port, table)
    return list(found.values())


@pytest.fixture(params=["threads", "asyncio"])
def world(request: pytest.FixtureRequest, tmp_path: Path, redis_cluster: RedisCluster) -> Iterator[World]:
    """Either runtime; who looks looks at the node that has the keys."""
    table = f"aftercommit_{uuid4().hex[:12]}"
    node = node_of(redis_cluster, table)
    made = World(request.param, tmp_path, "redis", node.url, table)
    yield made
    made.somebody.close()
    forget(node.url, table)


def client_of(world: World, cluster: RedisCluster) -> Any:
    kind: Any = redis.asyncio.RedisCluster if world.is_async else redis.RedisCluster
    return kind.from_url(cluster.url)


async def closed(client: Any) -> None:
    """Ours never closes it: it is the user's."""
    ended = client.aclose() if hasattr(client, "aclose") else client.close()
    if ended is not None:
        await ended


def test_a_cluster_delivers(world: World, redis_cluster: RedisCluster) -> None:
    async def scenario() -> None:
        client, seen = client_of(world, redis_cluster), Collector()
        outbox = world.outbox(client, create_schema=True)
        outbox.register("Placed", lambda event: seen.add(json.loads(event.payload_json)["n"]))
        await outbox.write("Placed", {"n": 0})
        async with outbox:
            for number in range(1, 30):
                await outbox.write("Placed", {"n": number})
            await seen.reach(30)
            await world.until_settled(30)
        assert sorted(seen) == list(range(30))
        await closed(client)

    world.run(scenario)
    assert isinstance(world.somebody, RedisDatabase)
    world.somebody.check()


def test_a_cluster_delivers_in_order(world: World, redis_cluster: RedisCluster) -> None:
    """Two members of a fleet share the partitions."""

    async def scenario() -> None:
        client, seen = client_of(world, redis_cluster), Collector()
        order = {"ordered": True, "create_schema": True, "poll_interval": "100ms"}
        members = [world.outbox(client, **order) for _ in range(2)]
        for outbox in members:
            outbox.register("Placed", lambda event: seen.add((event.key, json.loads(event.payload_json)["n"])))
        async with members[0], members[1]:
            for number in range(40):
                await members[number % 2].write("Placed", {"n": number}, key=f"key-{number % 4}")
            await seen.reach(40)
            await world.until_settled(40)
        for lane in range(4):
            assert [n for key, n in seen if key == f"key-{lane}"] == list(range(lane, 40, 4))
        await closed(client)

    world.run(scenario)


def test_outboxes_lie_on_all_nodes_and_know_nothing_of_each_other(world: World, redis_cluster: RedisCluster) -> None:
    tables = tables_on_all_nodes(redis_cluster)

    async def scenario() -> None:
        client = client_of(world, redis_cluster)
        for table in tables:
            outbox = world.outbox(client, table=table, create_schema=True)
            await outbox.write("Placed", {"table": table})
        for table in tables:
            seen = Collector()
            outbox = world.outbox(client, table=table, create_schema=True)
            outbox.register("Placed", lambda event, seen=seen: seen.add(json.loads(event.payload_json)["table"]))
            assert (await outbox.drain()).delivered == 1
            assert seen == [table]
        await closed(client)

    world.run(scenario)
    for node in redis_cluster.nodes:
        for table in tables:
            forget(node.url, table)


def test_a_write_follows_its_slot_to_another_node(world: World, redis_cluster: RedisCluster) -> None:
    """The slot moves while the outbox is in use; it is moved back afterwards."""
    table = world.table
    here = node_of(redis_cluster, table)
    there = redis_cluster.nodes[(redis_cluster.nodes.index(here) + 1) % 3]

    async def scenario() -> None:
        client, seen = client_of(world, redis_cluster), Collector()
        outbox = world.outbox(client, create_schema=True)
        outbox.register("Placed", lambda event: seen.add(event.event_id))
        async with outbox:
            await outbox.write("Placed", {})
            await seen.reach(1)
            redis_cluster.move(f"{{{table}}}", here, there)
            await outbox.write("Placed", {})
            await seen.reach(2)
        await closed(client)

    try:
        world.run(scenario)
    finally:
        forget(there.url, table)
        redis_cluster.move(f"{{{table}}}", there, here)
