"""The contract of the fleet: who is a member, who owns which partition, and that nobody owns what another does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import uuid4

from aftercommit.events.order import Holder, Instance, Member
from aftercommit.events.outcome import DONE
from aftercommit.ports import EventStore, Membership
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import LEASE, SECOND, event, insert, micros, settle, take_one, together

#: What was taken for no time is over at once.
NO_TIME = timedelta(0)

#: Everybody has been silent for longer than that.
BEFORE_NOW = timedelta(seconds=-1)

#: Nobody has.
FOR_LONG = timedelta(hours=1)

ALL = dict.fromkeys(range(256), 0)


def somebody(id: str) -> Instance:
    return Instance(id, f"host of {id}", 4711)


def membership_of(store: EventStore) -> Membership:
    assert store.membership is not None
    return store.membership


async def holder(membership: Membership, partition: int) -> Holder:
    found: Holder = (await membership.view()).partitions[partition]
    return found


async def member(membership: Membership) -> Member:
    (found,) = (await membership.view()).members
    assert isinstance(found, Member)
    return found


async def owners(membership: Membership) -> dict[int, str]:
    view = await membership.view()
    return {each.partition: each.owner for each in view.partitions if each.owner is not None}


def new_duty() -> str:
    """A name that no test before has used: duties outlive the events."""
    return f"test {uuid4().hex[:8]}"


class FleetContract(StoreHooks):
    """Every change is refused unless the partition is as it was seen."""

    async def membership(self, **options: Any) -> Membership:
        return membership_of(await self.opened(**options))

    # ------------------------------------------------------------ members

    @played
    async def test_who_joins_is_a_member_once(self) -> None:
        """TC-298, TC-309: again is fine, and is heard."""
        fleet = await self.membership()
        before = self.now()
        await fleet.join(somebody("alice"))
        first = await member(fleet)
        await fleet.join(somebody("alice"))
        again = await member(fleet)
        assert (first.id, first.host, first.pid, first.is_leaving) == ("alice", "host of alice", 4711, False)
        assert before - SECOND <= micros(first.started_at) <= self.now()
        assert 0 <= first.silent_for < 30
        assert again.started_at == first.started_at

    @played
    async def test_members_are_told_apart_by_every_letter(self) -> None:
        fleet = await self.membership()
        for id in ("alice", "Alice", "alicé"):
            await fleet.join(somebody(id))
        assert {each.id for each in (await fleet.view()).members} == {"alice", "Alice", "alicé"}
        await fleet.take("alice", {0: 0}, LEASE)
        assert await fleet.beat("Alice", LEASE) == {}

    @played
    async def test_a_host_of_any_length_can_join(self) -> None:
        fleet = await self.membership()
        await fleet.join(Instance("alice", "é" * 300, 1))
        assert (await member(fleet)).host == "é" * 255

    @played
    async def test_a_heartbeat_of_no_member_says_so(self) -> None:
        """TC-302, TC-308: and prolongs nothing."""
        fleet = await self.membership()
        await fleet.take("alice", {5: 0}, NO_TIME)
        assert await fleet.beat("alice", LEASE) is None
        expires_in = (await holder(fleet, 5)).expires_in
        assert expires_in is not None
        assert expires_in <= 0

    @played
    async def test_the_silent_are_removed_but_not_who_removes_them(self) -> None:
        """TC-303, TC-304"""
        fleet = await self.membership()
        for id in ("alice", "bob", "carol"):
            await fleet.join(somebody(id))
        assert await fleet.bury(FOR_LONG, but="alice") == [], "all were heard"
        assert sorted(await fleet.bury(BEFORE_NOW, but="alice")) == ["bob", "carol"]
        assert await fleet.bury(BEFORE_NOW, but="alice") == []
        assert (await member(fleet)).id == "alice"

    @played
    async def test_who_was_removed_can_join_again_and_keeps_what_nobody_took(self) -> None:
        fleet = await self.membership()
        await fleet.join(somebody("alice"))
        assert await fleet.take("alice", {3: 0, 4: 0}, NO_TIME) == {3: 1, 4: 1}
        assert await fleet.bury(BEFORE_NOW, but="bob") == ["alice"]
        assert await fleet.beat("alice", LEASE) is None
        assert await fleet.take("bob", {4: 1}, LEASE) == {4: 2}
        await fleet.join(somebody("alice"))
        assert await fleet.beat("alice", LEASE) == {3: 1}

    @played
    async def test_who_leaves_owns_nothing_and_may_leave_again(self) -> None:
        """TC-299"""
        fleet = await self.membership()
        await fleet.join(somebody("alice"))
        await fleet.take("alice", {0: 0, 255: 0}, LEASE)
        await fleet.take("bob", {7: 0}, LEASE)
        await fleet.leave("alice")
        await fleet.leave("alice")
        view = await fleet.view()
        assert list(view.members) == []
        assert (view.partitions[255].owner, view.partitions[255].epoch) == (None, 2)
        assert await owners(fleet) == {7: "bob"}
        assert await fleet.take("bob", {0: 1}, LEASE) == {}, "the epoch was raised"

    # ------------------------------------------------------------ partitions

    @played
    async def test_all_partitions_are_there_from_the_beginning(self) -> None:
        """TC-295: in order, and nobody's."""
        fleet = await self.membership()
        assert list((await fleet.view()).partitions) == [Holder(number, None, 0, None) for number in range(256)]

    @played
    async def test_what_is_free_can_be_taken(self) -> None:
        fleet = await self.membership()
        assert await fleet.take("alice", {}, LEASE) == {}
        assert await fleet.take("alice", {0: 0, 9: 0}, LEASE) == {0: 1, 9: 1}
        found = await holder(fleet, 9)
        assert (found.owner, found.epoch) == ("alice", 1)
        assert found.expires_in is not None
        assert 0 < found.expires_in <= LEASE.total_seconds()

    @played
    async def test_what_changed_since_it_was_seen_is_not_taken(self) -> None:
        """TC-297: the rest of the request is; others were faster for the one."""
        fleet = await self.membership()
        seen = dict(ALL)
        await fleet.take("bob", {1: 0}, LEASE)
        await fleet.give("bob", {1: 1})
        taken = await fleet.take("alice", seen, LEASE)
        assert taken == dict.fromkeys(set(range(256)) - {1}, 1)
        assert (await holder(fleet, 1)).epoch == 2

    @played
    async def test_what_somebody_owns_is_not_taken_before_its_time_is_over(self) -> None:
        fleet = await self.membership()
        await fleet.take("alice", {1: 0}, LEASE)
        await fleet.take("alice", {2: 0}, NO_TIME)
        assert await fleet.take("bob", {1: 1, 2: 1}, LEASE) == {2: 2}
        assert await owners(fleet) == {1: "alice", 2: "bob"}

    @played
    async def test_a_heartbeat_prolongs_what_is_owned_and_nobody_elses(self) -> None:
        """What was over and nobody took is still its owner's."""
        fleet = await self.membership()
        await fleet.join(somebody("alice"))
        await fleet.take("alice", {1: 0, 2: 0}, NO_TIME)
        await fleet.take("bob", {2: 1, 3: 0}, NO_TIME)
        assert await fleet.beat("alice", LEASE) == {1: 1}
        view = await fleet.view()
        left = {each.partition: each.expires_in for each in view.partitions if each.expires_in is not None}
        assert left[1] > 0
        assert left[2] <= 0
        assert left[3] <= 0
        assert await fleet.take("bob", {1: 1}, LEASE) == {}

    @played
    async def test_only_the_owner_gives_and_only_under_the_epoch_it_knows(self) -> None:
        """TC-284"""
        fleet = await self.membership()
        await fleet.take("alice", {1: 0, 2: 0, 3: 0}, LEASE)
        await fleet.give("bob", {1: 1})
        await fleet.give("alice", {1: 0, 2: 2})
        assert await owners(fleet) == {1: "alice", 2: "alice", 3: "alice"}
        await fleet.give("alice", {1: 1, 3: 7})
        await fleet.give("alice", {})
        given = await holder(fleet, 1)
        assert (given.owner, given.epoch) == (None, 2)
        assert given.expires_in is not None, "it is known for how long it has been free"
        assert -30 < given.expires_in <= 0
        assert await owners(fleet) == {2: "alice", 3: "alice"}

    @played
    async def test_takers_at_the_same_time_never_get_the_same(self) -> None:
        """TC-293, TC-494: each partition has one owner, and each owner knows what it has."""
        stores = [await self.opened(), await self.opened()]
        taken: dict[str, dict[int, int]] = {}

        def taker(store: EventStore, owner: str) -> Any:
            async def work() -> None:
                taken[owner] = await membership_of(store).take(owner, ALL, LEASE)

            return work

        await together(stores[0].colour, *(taker(stores[number % 2], f"taker {number}") for number in range(4)))
        assert sum(map(len, taken.values())) == len({number for mine in taken.values() for number in mine})
        expected = {number: owner for owner, mine in taken.items() for number in mine}
        assert await owners(membership_of(stores[0])) == expected
        assert {each.epoch for each in (await membership_of(stores[0]).view()).partitions} <= {0, 1}
        assert len(expected) == 256 or self.skips_locked

    @played
    async def test_heartbeats_beside_takers_lose_nothing(self) -> None:
        """What alice owned is alice's or the taker's in the end, and both know it."""
        alice, bob = membership_of(await self.opened()), membership_of(await self.opened())
        await alice.join(somebody("alice"))
        await alice.take("alice", ALL, NO_TIME)
        taken: dict[int, int] = {}

        async def beating() -> None:
            for _ in range(5):
                assert await alice.beat("alice", LEASE) is not None

        async def taking() -> None:
            for _ in range(5):
                taken.update(await bob.take("bob", dict.fromkeys(range(256), 1), LEASE))

        await together((await self.opened()).colour, beating, taking)
        kept = await alice.beat("alice", LEASE)
        assert kept is not None
        assert kept.keys() | taken.keys() == ALL.keys()
        assert not kept.keys() & taken.keys()

    @played
    async def test_fleets_of_two_tables_do_not_mix(self) -> None:
        first, second = await self.membership(), await self.membership(table="order")
        await first.join(somebody("alice"))
        await first.take("alice", {1: 0}, LEASE)
        assert list((await second.view()).members) == []
        assert await owners(second) == {}
        assert await second.beat("alice", LEASE) is None

    # ------------------------------------------------------------ lags

    @played
    async def test_the_lag_of_a_partition_is_the_age_of_its_oldest_unfinished_event(self) -> None:
        store = await self.opened()
        assert await membership_of(store).lags() == {}
        await insert(store, old := event(), young := event())
        self.change(old.event_id, created_at=self.now() - 100 * SECOND)
        self.change(young.event_id, created_at=self.now() - 50 * SECOND)
        assert 100 <= (await membership_of(store).lags())[7].total_seconds() < 100 + 30
        done = await take_one(store, limit=1)
        assert await settle(store, done.lease, DONE)
        assert 50 <= (await membership_of(store).lags())[7].total_seconds() < 100
        assert await settle(store, (await take_one(store)).lease, DONE)
        assert await membership_of(store).lags() == {}

    # ------------------------------------------------------------ duties

    @played
    async def test_a_duty_is_had_by_who_wrote_over_what_stood_there(self) -> None:
        """Who saw something else changes nothing, and hears who has it."""
        fleet, duty, other = await self.membership(), new_duty(), new_duty()
        assert await fleet.hold(duty, "alice 1", over="") == "alice 1"
        assert await fleet.hold(duty, "bob 1", over="") == "alice 1"
        assert await fleet.hold(duty, "bob 2", over="alice 0") == "alice 1"
        assert await fleet.hold(duty, "alice 2", over="alice 1") == "alice 2"
        assert await fleet.hold(other, "alice 2", over="") == "alice 2"
        assert await fleet.hold(duty, "bob 3", over="alice 2") == "bob 3"
        assert await fleet.hold(other, "bob 4", over="bob 3") == "alice 2", "duties are apart"

    @played
    async def test_a_duty_that_was_given_up_is_free(self) -> None:
        fleet, duty = await self.membership(), new_duty()
        await fleet.hold(duty, "alice 1", over="")
        assert await fleet.hold(duty, "", over="alice 1") == ""
        assert await fleet.hold(duty, "bob 1", over="") == "bob 1"

    @played
    async def test_of_many_who_want_a_duty_at_once_one_has_it(self) -> None:
        fleet, duty, found = await self.membership(), new_duty(), set[str]()

        def wanting(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
            async def want() -> None:
                found.add(await fleet.hold(duty, name, over=""))

            return want

        names = [f"instance {number}" for number in range(4)]
        await together((await self.opened()).colour, *map(wanting, names))
        assert len(found) == 1
        assert found < set(names)
