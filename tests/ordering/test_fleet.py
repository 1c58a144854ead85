"""Instances share the partitions, hear of each other, and stop where they cannot be heard."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from aftercommit import Cluster
from aftercommit.errors import SchemaMismatch
from aftercommit.ordering.fleet import cluster_of
from tests.delivery.faulty import Unreachable, short_pauses, until
from tests.ordering.fleet_kit import ALL, RARELY, SOON, FleetKit, Node, in_a_fleet, owners
from tests.servers import PrivatePostgres
from tests.stores.postgres_kit import make_impatient
from tests.support import World

__all__ = ["short_pauses"]


def test_a_lone_instance_owns_everything_when_it_has_started(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        assert alice.owned == ALL
        assert alice.gained() == [ALL]
        assert alice.lost() == []
        assert alice.changes() == 1, "it joined"
        assert owners(world) == {"alice": 256}

    in_a_fleet(world, scenario)


def test_a_newcomer_gets_its_share_when_it_has_stayed_for_a_while(world: World) -> None:
    """TC-493: what is given leaves memory first, and is then there to be taken at once."""

    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        bob = await kit.started("bob")
        await alice.fleet.coordinator.work()
        assert (len(alice.owned), len(bob.owned)) == (256, 0), "nothing moves at first sight"
        await alice.look_again()
        upper = frozenset(range(128, 256))
        assert alice.told[-2:] == [("lost", upper, 0), ("change",)], "it lost them before they were given"
        assert alice.owned == ALL - upper
        await bob.fleet.coordinator.work()
        assert bob.owned == upper
        assert bob.gained() == [upper]
        assert owners(world) == {"alice": 128, "bob": 128}

    in_a_fleet(world, scenario)


def test_two_who_want_the_same_at_once_both_get_their_share(world: World) -> None:
    """TC-293: bob has seen what alice takes before he can, and looks again."""

    async def scenario(kit: FleetKit) -> None:
        alice, bob = kit.node("alice"), kit.node("bob")
        for node in (alice, bob):
            await node.fleet.join()
        take = bob.membership.hold("take")
        bob.fleet.coordinator.start()
        bob.fleet.coordinator.call()
        await take.entered.wait()
        await alice.fleet.coordinator.work()
        take.release.set()
        await until(lambda: len(bob.owned) == 128)
        assert alice.owned == ALL - bob.owned
        assert len(bob.membership.calls["take"]) == 2

    in_a_fleet(world, scenario)


def test_three_instances_come_to_even_shares_by_themselves(world: World) -> None:
    share_and_inherit(world)


def test_three_instances_come_to_even_shares_on_servers(server_world: World) -> None:
    share_and_inherit(server_world)


def share_and_inherit(world: World) -> None:
    """TC-294: one of them was there first, and one dies."""

    async def scenario(kit: FleetKit) -> None:
        intervals = {"heartbeat_interval": SOON, "rebalance_interval": SOON, "stale_timeout": timedelta(seconds=1)}
        alice, bob, carol = [await kit.started(id, **intervals) for id in ("alice", "bob", "carol")]
        await until(lambda: sorted(owners(world).values()) == [85, 85, 86])
        await bob.die()
        await until(lambda: owners(world) == {"alice": 128, "carol": 128})
        await until(lambda: len(alice.owned) == len(carol.owned) == 128)
        assert not alice.owned & carol.owned
        await until(lambda: {row[0] for row in world.rows("SELECT id FROM outbox_instance")} == {"alice", "carol"})

    in_a_fleet(world, scenario)


def test_who_signs_off_leaves_everything_to_the_others_at_once(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice, bob = await kit.started("alice"), await kit.started("bob")
        await alice.fleet.stop()
        assert alice.lost() == [ALL]
        assert alice.told[-1] == ("change",), "others should look"
        assert alice.owned == frozenset()
        bob.fleet.coordinator.call()
        await bob.told.reach(2)
        assert bob.owned == ALL
        await alice.fleet.stop()

    in_a_fleet(world, scenario)


def test_a_look_is_taken_when_somebody_asks_for_it(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        world.change("UPDATE outbox_partition SET owner = NULL, epoch = epoch + 1 WHERE partition_no = 9")
        await alice.fleet.heart.work()
        assert alice.lost() == [frozenset({9})]
        alice.fleet.coordinator.call()
        await until(lambda: alice.owned == ALL)

    in_a_fleet(world, scenario)


# ---------------------------------------------------------------- stalls and deaths


def test_a_short_stall_moves_nothing(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        bob = await kit.started("bob", heartbeat_interval=SOON)
        await alice.look_again()
        await bob.fleet.coordinator.work()
        stall = bob.membership.hold("beat")
        await stall.entered.wait()
        await alice.look_again()
        assert owners(world) == {"alice": 128, "bob": 128}
        assert len(alice.membership.calls["bury"]) == 0
        stall.release.set()
        await until(lambda: len(bob.membership.calls["beat"]) > stall.fired + 2)
        assert len(bob.owned) == 128
        assert bob.lost() == []

    in_a_fleet(world, scenario)


def test_the_dead_are_removed_and_inherited(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """TC-303, TC-304: by the database's clock; nobody removes itself."""

    async def scenario(kit: FleetKit) -> None:
        alice, bob = await kit.started("alice"), await kit.started("bob")
        await alice.die()
        world.change("UPDATE outbox_partition SET expires_at = 1")
        world.change("UPDATE outbox_instance SET heartbeat_at = 1")
        await bob.fleet.coordinator.work()
        assert [row[0] for row in world.rows("SELECT id FROM outbox_instance")] == ["bob"]
        assert bob.meter.counts()["instances_lost"] == 1
        assert bob.told[-1] == ("change",)
        assert bob.owned == frozenset(), "it has been silent itself"
        await bob.fleet.heart.work()
        await bob.fleet.coordinator.work()
        assert bob.owned == ALL

    with caplog.at_level(logging.WARNING, "aftercommit.fleet"):
        in_a_fleet(world, scenario)
    assert "given up: alice" in caplog.text


def test_who_was_given_up_joins_again_and_keeps_what_nobody_took(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        world.change("DELETE FROM outbox_instance")
        world.change("UPDATE outbox_partition SET owner = 'thief', epoch = epoch + 1 WHERE partition_no < 6")
        await alice.fleet.heart.work()
        assert alice.lost() == [frozenset(range(6))]
        assert alice.owned == frozenset(range(6, 256))
        assert alice.changes() == 2
        assert [row[0] for row in world.rows("SELECT id FROM outbox_instance")] == ["alice"]

    in_a_fleet(world, scenario)


def test_who_is_stopping_does_not_join_again(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        await alice.fleet.stop()
        await alice.fleet.heart.work()
        assert world.rows("SELECT id FROM outbox_instance") == []
        assert alice.owned == frozenset()

    in_a_fleet(world, scenario)


def test_who_cannot_be_heard_owns_nothing_and_leaves_the_fleet_alone(world: World) -> None:
    """Self-fencing: a fifth of the time before others may take over."""

    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        alice.later(23.9)
        assert alice.owned == ALL
        alice.later(24.1)
        assert alice.owned == frozenset()
        world.change("UPDATE outbox_partition SET owner = NULL, epoch = epoch + 1 WHERE partition_no = 3")
        await alice.fleet.coordinator.work()
        assert len(alice.membership.calls["take"]) == 1, "only that of its start"
        await alice.fleet.heart.work()
        assert alice.owned == ALL - {3}
        await alice.fleet.coordinator.work()
        assert alice.owned == ALL

    in_a_fleet(world, scenario)


def test_the_deadline_counts_from_before_the_heartbeat_was_sent(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice", heartbeat_interval=SOON)
        answer = alice.membership.hold("beat", late=True)
        await answer.entered.wait()
        alice.later(24.1)
        fault = alice.membership.fail("beat", times=1000)
        answer.release.set()
        await fault.entered.wait()
        assert alice.owned == frozenset()

    in_a_fleet(world, scenario)


# ---------------------------------------------------------------- a database that is away


def test_an_outage_kills_nothing(world: World) -> None:
    """TC-302, TC-306: loops fail, say so, and go on."""

    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice", heartbeat_interval=SOON, rebalance_interval=SOON)
        faults = [alice.membership.fail(method, times=1000) for method in ("beat", "view")]
        await until(lambda: all(fault.fired >= 3 for fault in faults))
        assert all(service.failures_in_a_row for service in alice.fleet.services)
        assert alice.owned == ALL, "for as long as it was heard"
        alice.membership.heal()
        await until(lambda: not any(service.failures_in_a_row for service in alice.fleet.services))
        assert alice.lost() == []

    in_a_fleet(world, scenario)


def test_a_server_that_crashed_and_came_back_finds_its_fleet(
    tmp_path: Path, private_postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beats fail until it is there; then all is as it was, and nobody had to be started again."""

    async def scenario(kit: FleetKit) -> None:
        alice, bob = [
            await kit.started(id, heartbeat_interval=SOON, rebalance_interval=SOON) for id in ("alice", "bob")
        ]
        await until(lambda: len(alice.owned) == len(bob.owned) == 128)
        make_impatient(kit.store._heartbeats, monkeypatch)
        private_postgres.stop(immediate=True)
        services = [*alice.fleet.services, *bob.fleet.services]
        await until(lambda: all(service.failures_in_a_row for service in services))
        private_postgres.start()
        await until(lambda: not any(service.failures_in_a_row for service in services))
        assert len(alice.owned) == len(bob.owned) == 128
        assert not alice.owned & bob.owned

    for runtime in ("threads", "asyncio"):  # a server takes its time to be made
        in_a_fleet(World(runtime, tmp_path, "postgres", private_postgres.url), scenario)


def test_a_start_without_a_database_says_so(world: World) -> None:
    """TC-301"""

    async def scenario(kit: FleetKit) -> None:
        alice = kit.node("alice")
        alice.membership.fail("join")
        with pytest.raises(Exception, match="the database is away"):
            await alice.fleet.start()
        assert not any(service.is_running for service in alice.fleet.services)

    in_a_fleet(world, scenario)


def test_a_start_without_all_partitions_says_so(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        world.change("DELETE FROM outbox_partition WHERE partition_no = 9")
        with pytest.raises(SchemaMismatch, match="has 255 rows"):
            await kit.node("alice").fleet.start()

    in_a_fleet(world, scenario)


def test_a_sign_off_that_fails_is_only_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """TC-300"""

    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        alice.membership.fail("leave")
        await alice.fleet.stop()
        assert alice.lost() == [ALL]
        assert alice.owned == frozenset()
        assert alice.changes() == 1, "of its start"

    with caplog.at_level(logging.WARNING, "aftercommit.fleet"):
        in_a_fleet(world, scenario)
    assert "alice could not sign off" in caplog.text


@pytest.mark.parametrize("late", [False, True], ids=["not done", "done"])
def test_the_next_heartbeat_tells_what_became_of_a_failed_gift(world: World, late: bool) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice, _ = await kit.started("alice"), await kit.started("bob")
        alice.membership.fail("give", late=late)
        with pytest.raises(Exception, match="the database is away"):
            await alice.look_again()
        assert len(alice.owned) == 128
        await alice.fleet.heart.work()
        assert len(alice.owned) == (128 if late else 256)
        assert owners(world) == {"alice": len(alice.owned)}

    in_a_fleet(world, scenario)


# ---------------------------------------------------------------- heartbeats beside takes and gifts


def test_a_heartbeat_that_began_before_a_take_loses_nothing(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = kit.node("alice", heartbeat_interval=SOON)
        await alice.fleet.join()
        answer = alice.membership.hold("beat", late=True)
        alice.fleet.heart.start()
        await answer.entered.wait()
        await alice.fleet.coordinator.work()
        answer.release.set()
        beats = len(alice.membership.calls["beat"])
        await until(lambda: len(alice.membership.calls["beat"]) > beats + 1)
        assert alice.told[1:] == [("gained", ALL)]
        assert alice.owned == ALL

    in_a_fleet(world, scenario)


def test_a_heartbeat_that_began_before_a_gift_does_not_bring_it_back(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice, _ = await kit.started("alice", heartbeat_interval=SOON), await kit.started("bob")
        answer = alice.membership.hold("beat", late=True)
        await answer.entered.wait()
        await alice.look_again()
        answer.release.set()
        beats = len(alice.membership.calls["beat"])
        await until(lambda: len(alice.membership.calls["beat"]) > beats + 1)
        assert alice.gained() == [ALL]
        assert len(alice.owned) == 128

    in_a_fleet(world, scenario)


def test_what_was_stolen_is_lost_and_can_be_had_again(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice = await kit.started("alice")
        world.change("UPDATE outbox_partition SET owner = 'thief', epoch = 8, expires_at = 1 WHERE partition_no = 7")
        await alice.fleet.heart.work()
        assert alice.lost() == [frozenset({7})]
        await alice.fleet.coordinator.work()
        assert alice.gained() == [ALL, frozenset({7})]
        assert world.rows("SELECT epoch FROM outbox_partition WHERE partition_no = 7")[0][0] == 9

    in_a_fleet(world, scenario)


# ---------------------------------------------------------------- what people see


async def cluster_seen_by(node: Node) -> Cluster:
    return await cluster_of(node.membership, me=node.id, stale_timeout=2 * RARELY)


def test_the_cluster_shows_members_partitions_and_lags(world: World) -> None:
    async def scenario(kit: FleetKit) -> None:
        alice, bob = await kit.started("alice"), await kit.started("bob")
        await alice.look_again()
        world.change("UPDATE outbox_instance SET heartbeat_at = 1 WHERE id = 'bob'")
        world.change("UPDATE outbox_partition SET expires_at = 1 WHERE partition_no = 5")
        cluster = await cluster_seen_by(alice)
        first, second = cluster.members
        assert (first.id, first.host, first.pid, first.is_me, first.is_stale) == ("alice", "here", 1, True, False)
        assert first.partitions == tuple(n for n in range(128) if n != 5)
        assert (second.id, second.is_me, second.is_stale, second.partitions) == ("bob", False, True, ())
        assert cluster.unowned == (5, *range(128, 256))
        assert cluster.lags == {}
        assert (await cluster_seen_by(bob)).members[1].is_me

    in_a_fleet(world, scenario)


def test_a_silent_member_that_cannot_be_removed_keeps_nobody_from_what_is_free(world: World) -> None:
    """It may have stopped inside a transaction, and its row is locked."""

    async def scenario(kit: FleetKit) -> None:
        alice, bob = await kit.started("alice"), await kit.started("bob")
        await alice.die()
        world.change("UPDATE outbox_instance SET heartbeat_at = 0 WHERE id = 'alice'")
        world.change("UPDATE outbox_partition SET expires_at = 0 WHERE owner = 'alice'")
        fault = bob.membership.fail("bury")
        with pytest.raises(Unreachable):
            await bob.fleet.coordinator.work()
        assert fault.fired
        assert bob.owned == ALL

    in_a_fleet(world, scenario)
