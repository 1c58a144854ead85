"""A whole outbox in its fleet: it joins when it starts, is heard while handlers run, and signs off when it closes."""

from __future__ import annotations

from aftercommit import EventEnvelope
from tests.delivery.faulty import until
from tests.ordering.fleet_kit import owners
from tests.support import Signal, World

QUICK = {"heartbeat_interval": "20ms", "rebalance_interval": "20ms", "stale_timeout": "1s"}


def members(world: World) -> list[str]:
    return [row[0] for row in world.rows("SELECT id FROM outbox_instance ORDER BY started_at, id")]


def test_an_outbox_is_a_member_from_start_to_close(world: World) -> None:
    """TC-298, TC-299: under a new id each time."""

    async def scenario() -> None:
        outbox = world.outbox(ordered=True, **QUICK)
        outbox.register("Happened", lambda event: None)
        seen = []
        for _ in range(2):
            async with outbox:
                assert list(owners(world).values()) == [256]
                assert members(world) == list(owners(world))
                seen += members(world)
            assert members(world) == []
            assert owners(world) == {}
        assert len(set(seen)) == 2

    world.run(scenario)


def test_who_does_not_look_into_the_table_is_no_member(world: World) -> None:
    async def scenario() -> None:
        async with world.outbox(ordered=True, poller_enabled=False, **QUICK):
            assert members(world) == []

    world.run(scenario)


def test_a_handler_that_is_busy_for_long_keeps_nobody_from_being_heard(world: World) -> None:
    """TC-492: the heart beats on a task of its own."""

    async def scenario() -> None:
        entered, release = Signal(), Signal()

        def listener(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()

        busy, other = world.outbox(ordered=True, worker_count=1, **QUICK), world.outbox(ordered=True, **QUICK)
        for outbox in (busy, other):
            outbox.register("Happened", listener)
        async with busy:
            async with busy.transaction() as tx:
                await busy.write("Happened", {}, key="a", tx=tx)
            await entered.wait()
            async with other:
                await until(lambda: sorted(owners(world).values()) == [128, 128])
                both, since = members(world), world.now()
                await until(lambda: world.now() - since > 1_500_000)
                assert members(world) == both
                assert sorted(owners(world).values()) == [128, 128]
                release.set()

    world.run(scenario)


def test_the_cluster_is_told_to_whoever_asks(world: World) -> None:
    async def scenario() -> None:
        outbox, onlooker = world.outbox(ordered=True, **QUICK), world.outbox(ordered=True, **QUICK)
        outbox.register("Happened", lambda event: None)
        async with outbox:
            (mine,) = (await outbox.cluster()).members
            assert mine.is_me
            assert mine.partitions == tuple(range(256))
            (seen,) = (await onlooker.cluster()).members
            assert not seen.is_me
            assert seen.id == mine.id

    world.run(scenario)
