"""`outbox.records`: the rows in numbers, on every store and in both colours."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import ClusterStats, EventStatus, InvalidOption, NoRetry, Outbox, PartitionHasher, PartitionStats
from examples.memory_store.rows import Rows
from examples.memory_store.store import MemoryStore
from tests.support import World

NEW, DONE, RETRY, DEAD = EventStatus.NEW, EventStatus.DONE, EventStatus.RETRY, EventStatus.DEAD


async def some_of_each(outbox: Any) -> None:
    """Three done, two dead, one to be tried again, four new."""

    def handle(event: Any) -> None:
        if event.event_type != "Good":
            raise ValueError("no")

    for kind in ("Good", "Bad"):
        outbox.register(kind, handle)
    for kind, count in (("Good", 3), ("Bad", 2)):
        async with outbox.transaction():
            for _ in range(count):
                await outbox.write(kind, {})
    await outbox.drain()
    async with outbox.transaction():
        for number in range(4):
            await outbox.write("Good", {}, key=f"order-{number % 2}", deliver_after="1h")


def test_rows_are_counted_by_status(any_server_world: World) -> None:
    """TC-337, TC-464; F4"""

    async def scenario() -> None:
        outbox = any_server_world.outbox(retry_policy=NoRetry())
        assert await outbox.records.counts() == {NEW: 0, DONE: 0, RETRY: 0, DEAD: 0}
        await some_of_each(outbox)
        assert await outbox.records.counts() == {NEW: 4, DONE: 3, RETRY: 0, DEAD: 2}
        for status, count in {NEW: 4, DONE: 3, RETRY: 0, DEAD: 2}.items():
            assert await outbox.records.count_by_status(status) == count
        assert await outbox.records.count_by_status(DONE, at_most=2) == 2
        assert await outbox.records.count_by_status(DONE, at_most=None) == 3
        assert (await outbox.records.counts(at_most=1))[DONE] == 1

    any_server_world.run(scenario)


def test_what_waits_is_counted_by_partition(any_server_world: World) -> None:
    """TC-341, TC-464"""

    async def scenario() -> None:
        outbox = any_server_world.outbox(retry_policy=NoRetry())
        await some_of_each(outbox)
        stats = await outbox.records.partition_stats()
        assert {number: count for number, count in stats.pending.items() if count} == {
            PartitionHasher.get_partition_for_aggregate("order-0"): 2,
            PartitionHasher.get_partition_for_aggregate("order-1"): 2,
        }
        assert sorted(stats.pending) == list(range(256))
        assert (stats.total, stats.maximum, stats.average) == (4, 2, 4 / 256)
        assert await outbox.records.partition_stats(mine=True) == stats, "without order everybody looks after all"

    any_server_world.run(scenario)


def test_the_partitions_of_an_instance_and_of_the_fleet(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(wiring="ordered")
        assert await outbox.records.cluster_stats() == ClusterStats(256, {})
        assert await outbox.records.partition_stats(mine=True) == PartitionStats({})
        await outbox.start()
        await world.until("SELECT count(*) = 256 FROM outbox_partition WHERE owner IS NOT NULL")
        stats = await outbox.records.cluster_stats()
        assert stats == ClusterStats(256, {outbox.owner_id: 256})
        assert (stats.total_instances, stats.unassigned_partitions) == (1, 0)
        assert stats.average_partitions_per_instance == 256.0
        assert len((await outbox.records.partition_stats(mine=True)).pending) == 256

    world.run(scenario)


def test_the_average_is_over_all_partitions_of_the_view() -> None:
    """TC-466"""
    stats = PartitionStats({1: 10, 2: 8, 3: 5})
    assert (stats.total, stats.maximum, stats.average) == (23, 10, 7.666666666666667)
    assert (PartitionStats({}).total, PartitionStats({}).maximum, PartitionStats({}).average) == (0, 0, 0.0)
    spread = ClusterStats(256, {"a": 128, "b": 100})
    assert (spread.total_instances, spread.unassigned_partitions) == (2, 28)
    assert spread.average_partitions_per_instance == 128.0
    assert ClusterStats(256, {}).average_partitions_per_instance == 0.0


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "all"])
def test_a_limit_is_a_count(world: World, wrong: Any) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        with pytest.raises(InvalidOption, match="at_most"):
            await outbox.records.counts(at_most=wrong)
        with pytest.raises(InvalidOption, match="status is 1"):
            await outbox.records.count_by_status(1)

    world.run(scenario)


def test_a_store_without_a_fleet_has_partitions_and_no_cluster() -> None:
    outbox = Outbox(MemoryStore(Rows()))
    assert outbox.records.partition_stats(mine=True).total == 0
    with pytest.raises(InvalidOption, match="knows no fleet"):
        outbox.records.cluster_stats()
