"""The contract of the fence: only who holds the row now, under the epoch of now, changes it (promises 4 and 7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from aftercommit.events.claims import Lease, RowKey
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.ports import EventStore
from aftercommit.testing.effects import needs_effects
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, LEASE, event, insert, settle, settle_in, take_one

#: Everything that a holder may do with its row.
OUTCOMES: dict[str, Outcome] = {
    "done": DONE,
    "retry": Retry(timedelta(seconds=1), "failed"),
    "dead": Dead("failed"),
    "defer": Defer(timedelta(seconds=1)),
    "release": RELEASE,
}

#: Of these only what a store has that can be part of a transaction.
EFFECTS = {"settle_in": (), "settle_in, in part": ("mail",)}

OPERATIONS = [*OUTCOMES, "renew", "mark_suspect", *EFFECTS]


async def operate(store: EventStore, operation: str, lease: Lease) -> bool:
    """Whether the fence let it pass."""
    if operation == "renew":
        renewed = set(await store.renew([lease], LEASE))
        assert renewed <= {lease.key}
        return bool(renewed)
    if operation == "mark_suspect":
        return bool(await store.mark_suspect(lease))
    if operation in EFFECTS:
        needs_effects(store)
        return await settle_in(store, lease, *EFFECTS[operation])
    return await settle(store, lease, OUTCOMES[operation])


Loses = Callable[[StoreHooks, EventStore, Lease], Awaitable[Lease]]


def other_epoch(by: int) -> Loses:
    async def lose(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
        return msgspec.structs.replace(lease, epoch=lease.epoch + by)

    return lose


async def other_owner(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, owner="mallory")


async def other_row(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, key=RowKey(lease.key.event_id, "another handler"))


def settled(outcome: str) -> Loses:
    async def lose(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
        assert await settle(store, lease, OUTCOMES[outcome])
        return lease

    return lose


async def taken_over(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    hooks.expire()
    await take_one(store, "bob")
    return lease


async def claimed_again(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    hooks.expire()
    assert (await take_one(store, lease.owner)).lease.epoch > lease.epoch
    return lease


async def released_and_claimed(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    assert await settle(store, lease, RELEASE)
    await take_one(store, lease.owner)
    return lease


async def replayed(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    assert await settle(store, lease, Dead("failed"))
    assert await store.records.replay(lease.key.event_id, None) == 1
    return lease


async def replayed_and_claimed(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    await replayed(hooks, store, lease)
    await take_one(store, lease.owner)
    return lease


async def discarded(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    assert await settle(store, lease, Dead("failed"))
    assert await store.records.discard(lease.key.event_id, None, "") == 1
    return lease


async def purged(hooks: StoreHooks, store: EventStore, lease: Lease) -> Lease:
    hooks.change(created_at=0)
    assert await store.records.purge_aged(LEASE, limit=1) == 1
    return lease


LOSSES: dict[str, Loses] = {
    "under an older epoch": other_epoch(-1),
    "under a newer epoch": other_epoch(+1),
    "by another owner": other_owner,
    "of another handler": other_row,
    "after done": settled("done"),
    "after retry": settled("retry"),
    "after dead": settled("dead"),
    "after defer": settled("defer"),
    "after release": settled("release"),
    "after a takeover": taken_over,
    "after a new claim by the same owner": claimed_again,
    "after a release and a new claim": released_and_claimed,
    "after a replay": replayed,
    "after a replay and a new claim": replayed_and_claimed,
    "after a discard": discarded,
    "after a purge": purged,
}


class FencingContract(StoreHooks):
    """What a stale holder can do: nothing."""

    @pytest.mark.parametrize("loss", LOSSES)
    @played
    async def test_a_lost_lease_changes_nothing(self, loss: str) -> None:
        """TC-084, TC-089, TC-097, TC-469, TC-474, F15, F16: for every operation; a repeated settle is refused too."""
        store = await self.opened()
        await insert(store, event())
        lease = await LOSSES[loss](self, store, (await take_one(store, "alice")).lease)
        before = self.rows()
        for operation in OPERATIONS:
            if operation in EFFECTS and not store.capabilities.has_transactional_effects:
                continue
            assert not await operate(store, operation, lease), operation
            assert self.rows() == before, operation

    @pytest.mark.parametrize("operation", OPERATIONS)
    @played
    async def test_a_lease_that_stands_is_its_holders(self, operation: str) -> None:
        """Without this the test above could pass for a wrong reason."""
        store = await self.opened()
        await insert(store, event())
        lease = (await take_one(store, "alice")).lease
        before = self.rows()
        assert await operate(store, operation, lease)
        assert self.rows() != before or operation == "renew"

    @pytest.mark.parametrize("operation", OPERATIONS)
    @played
    async def test_a_lease_that_ran_out_and_nobody_took_is_still_its_holders(self, operation: str) -> None:
        """Promise 4: tokens are compared, not times."""
        store = await self.opened()
        await insert(store, event())
        lease = (await take_one(store, "alice")).lease
        self.expire()
        before = self.rows()
        assert await operate(store, operation, lease)
        assert self.rows() != before

    @pytest.mark.parametrize("operation", OPERATIONS)
    @played
    async def test_an_operation_touches_its_own_row_only(self, operation: str) -> None:
        store = await self.opened()
        mine, yours = event(), event()
        await insert(store, mine, yours)
        lease = (await take_one(store, "alice", limit=1)).lease
        await take_one(store, "alice", limit=1)
        before = self.row(yours.event_id)
        assert await operate(store, operation, lease)
        assert self.row(yours.event_id) == before

    @played
    async def test_a_renewal_prolongs_what_is_still_held_and_names_it(self) -> None:
        store = await self.opened()
        held, gone, settled_row = event(), event(), event()
        await insert(store, held, gone, settled_row)
        leases = [(await take_one(store, "alice", limit=1)).lease for _ in range(3)]
        self.change(gone.event_id, lease_until=self.now() - 1)
        await take_one(store, "bob")
        assert await settle(store, leases[2], Retry(timedelta(0), "no"))
        before = {row["event_id"]: row for row in self.rows()}

        earliest = self.now() + HOUR
        renewed = await store.renew(leases, timedelta(hours=1))

        assert set(renewed) == {RowKey(held.event_id, "")}
        after = {row["event_id"]: row for row in self.rows()}
        assert earliest <= after[held.event_id]["lease_until"] <= self.now() + HOUR, "from now on"
        assert after[held.event_id] == {
            **before[held.event_id],
            "lease_until": after[held.event_id]["lease_until"],
        }
        assert (after[gone.event_id], after[settled_row.event_id]) == (
            before[gone.event_id],
            before[settled_row.event_id],
        )

    @played
    async def test_renewing_nothing_is_fine(self) -> None:
        store = await self.opened()
        assert not await store.renew([], LEASE)

    @played
    async def test_a_suspect_that_begins_is_counted_until_it_reports(self) -> None:
        """Promise 4a: each delivery that never reports counts once."""
        store = await self.opened()
        await insert(store, event())
        for count in range(3):
            self.expire()
            lease = (await take_one(store, "alice")).lease
            assert self.row()["abandoned"] == count
            assert await store.mark_suspect(lease) is True
            assert self.row()["abandoned"] == count + 1
            assert await store.mark_suspect(lease, -1) is True
            assert self.row()["abandoned"] == count
            assert await store.mark_suspect(lease) is True
            assert (self.row()["lease_epoch"], self.row()["locked_by"]) == (lease.epoch, "alice")

    @pytest.mark.parametrize(
        ("operation", "left"), [*((name, 0) for name in OUTCOMES if name != "release"), ("release", 2)]
    )
    @played
    async def test_a_report_clears_the_count_of_the_abandoned(self, operation: str, left: int) -> None:
        """Promise 4a: what was given back unstarted has reported nothing."""
        store = await self.opened()
        await insert(store, event())
        self.change(abandoned=2)
        assert await operate(store, operation, (await take_one(store)).lease)
        assert self.row()["abandoned"] == left

    @played
    async def test_a_replay_clears_the_count_of_the_abandoned(self) -> None:
        """Promise 4a"""
        store = await self.opened()
        given = event()
        await insert(store, given)
        assert await settle(store, (await take_one(store)).lease, Dead("worker lost", counted=False))
        self.change(abandoned=5)
        assert await store.records.replay(given.event_id, None) == 1
        assert self.row()["abandoned"] == 0
        assert not (await take_one(store)).is_suspect
