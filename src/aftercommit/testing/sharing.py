"""The contract of company: several claimers on one table, beside transactions that are still open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit.events.claims import NewEvent, Settlement
from aftercommit.events.outcome import DONE, RELEASE, Dead, Outcome, Retry
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import LEASE, event, ids, insert, settle, take, together


class SharingContract(StoreHooks):
    """Nobody gets what another has, and nobody waits for another."""

    @played
    async def test_claimers_in_turn_share_the_table(self) -> None:
        """TC-109: two stores, small claims, no row twice and none left."""
        stores = {"alice": await self.opened(), "bob": await self.opened()}
        given = [event() for _ in range(20)]
        await insert(stores["alice"], *given)
        taken: list[tuple[str, str]] = []
        while found := {owner: await take(store, owner, limit=3) for owner, store in stores.items()}:
            if not any(found.values()):
                break
            taken += [(event_id, owner) for owner, rows in found.items() for event_id in ids(rows)]
        assert sorted(event_id for event_id, _ in taken) == ids(given)
        assert {owner for _, owner in taken} == {"alice", "bob"}
        assert {row["event_id"]: row["locked_by"] for row in self.rows()} == dict(taken)
        assert {row["lease_epoch"] for row in self.rows()} == {1}

    @played
    async def test_claimers_at_the_same_time_share_the_table(self) -> None:
        """TC-108, TC-109: two stores with two claimers each; every row has one holder, and every holder its row."""
        stores = [await self.opened(), await self.opened()]
        given = [event() for _ in range(60)]
        await insert(stores[0], *given)
        taken: dict[str, list[str]] = {}

        def claimer(store: EventStore, owner: str) -> Any:
            async def work() -> None:
                taken[owner] = []
                while rows := await take(store, owner, limit=4):
                    taken[owner] += ids(rows)
                    assert not await store.settle([Settlement(row.lease, DONE) for row in rows])

            return work

        await together(
            stores[0].colour,
            *(claimer(store, f"{number}-{turn}") for number, store in enumerate(stores) for turn in "ab"),
        )
        # Who met only rows that others had locked has stopped too early.
        await claimer(stores[0], "last")()
        assert sorted(event_id for mine in taken.values() for event_id in mine) == ids(given)
        assert {(row["status"], row["lease_epoch"], row["attempts"]) for row in self.rows()} == {(1, 1, 0)}

    @played
    async def test_a_lease_lasts_as_long_as_its_holder_said(self) -> None:
        """Whoever claims with a shorter time takes nobody's live lease, and a lease of no time has run out."""
        store = await self.opened()
        await insert(store, first := event(), second := event())
        assert ids(await take(store, "alice", limit=1, lock_timeout=timedelta(hours=1))) == [first.event_id]
        assert ids(await take(store, "bob", lock_timeout=timedelta(0))) == [second.event_id]
        assert ids(await take(store, "carol", lock_timeout=timedelta(0))) == [second.event_id]

    # ------------------------------------------------------------ several stores

    @played
    async def test_opening_again_changes_nothing(self) -> None:
        """Two stores, the second on the tables of the first."""
        store = await self.opened()
        await insert(store, event())
        before = self.rows()
        await store.open()
        again = await self.opened()
        assert again.is_ready
        assert self.rows() == before
        assert len(await take(again)) == 1

    @played
    async def test_two_tables_in_one_database_do_not_see_each_other(self) -> None:
        first, second = await self.opened(), await self.opened(table="order")
        await insert(first, given := event())
        await insert(second, other := event())
        assert ids(await take(second)) == [other.event_id]
        assert ids(await take(first)) == [given.event_id]
        assert [row["event_id"] for row in self.rows()] == [given.event_id]

    # ------------------------------------------------------------ open transactions

    @played
    async def test_rows_are_invisible_until_their_transaction_is_committed(self) -> None:
        writer, reader = await self.opened(), await self.opened()
        given = event()
        opened = await writer.begin()
        try:
            await writer.insert(opened, [NewEvent(given, 0)])
            assert (await reader.records.backlog()).new == 0
            assert self.rows() == []
            if self.skips_locked:
                assert await take(reader) == []
            await opened.commit()
        finally:
            await opened.end()
        assert ids(await take(reader)) == [given.event_id]

    @played
    async def test_a_transaction_that_is_rolled_back_never_was(self) -> None:
        store = await self.opened()
        opened = await store.begin()
        await store.insert(opened, [NewEvent(event(), 0), NewEvent(event(), 0, owner="alice", lock_timeout=LEASE)])
        await opened.end()
        assert self.rows() == []
        await insert(store, again := event())
        assert ids(await take(store)) == [again.event_id]

    @played
    async def test_a_claim_passes_over_rows_that_somebody_has_locked(self) -> None:
        """It gets its whole batch from the others, and does not wait."""
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        given = [event() for _ in range(6)]
        await insert(store, *given)
        async with self.locked(other, *ids(given[:2]), given[3].event_id):
            assert ids(await take(store, "alice", limit=3)) == ids([given[2], *given[4:]])
            assert await take(store, "bob") == []
        assert ids(await take(store, "bob")) == ids([*given[:2], given[3]])

    @pytest.mark.parametrize("kind", ["retry", "expired"])
    @played
    async def test_retries_and_takeovers_pass_over_locked_rows_too(self, kind: str) -> None:
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        given = [event() for _ in range(3)]
        await insert(store, *given)
        claimed = await take(store, "alice")
        if kind == "retry":
            assert not await store.settle([Settlement(row.lease, Retry(timedelta(0), "no")) for row in claimed])
        else:
            self.expire()
        async with self.locked(other, given[0].event_id):
            assert ids(await take(store, "bob")) == ids(given[1:])

    @played
    async def test_a_renewal_passes_over_rows_that_are_being_settled(self) -> None:
        """They need none; and two groups in different order could wait for each other."""
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        await insert(store, *[event() for _ in range(3)])
        leases = [row.lease for row in await take(store, "alice")]
        async with self.locked(other, leases[1].key.event_id):
            assert set(await store.renew(leases, LEASE)) == {leases[0].key, leases[2].key}
        assert set(await store.renew(leases, LEASE)) == {lease.key for lease in leases}
        assert {row["attempts"] for row in self.rows()} == {0}

    @pytest.mark.parametrize("operation", ["claim", "done", "retry", "renew"])
    @played
    async def test_nobody_waits_while_another_is_at_it(self, operation: str) -> None:
        """Before the commit of a claim or a group, others claim their whole batch, settle it, and write."""
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        given = [event() for _ in range(12)]
        await insert(store, *given)
        claimed = [] if operation == "claim" else await take(store, "alice", limit=4)
        group = [Settlement(row.lease, DONE if operation == "done" else Retry(timedelta(0), "no")) for row in claimed]
        leases = [row.lease for row in claimed]
        seen: list[str] = []

        async def meanwhile() -> None:
            found = await take(other, "bob", limit=5)
            seen.extend(ids(found))
            assert not await other.settle([Settlement(row.lease, DONE) for row in found])
            await insert(other, event(deliver_after="1h"))

        with self.held_open(store, meanwhile):
            if operation == "claim":
                assert ids(await take(store, "alice", limit=4)) == ids(given[:4])
            elif operation == "renew":
                assert len(await store.renew(leases, LEASE)) == 4
            else:
                assert not await store.settle(group)
        assert seen == ids(given[4:9])
        assert len(self.rows()) == 13

    # ------------------------------------------------------------ large groups

    @played
    async def test_a_group_of_500_is_settled_with_some_refused(self) -> None:
        """All kinds of outcomes; one row in ten has been lost to somebody else."""
        store = await self.opened()
        given = [event() for _ in range(500)]
        await insert(store, *given)
        claimed = await take(store, "alice", limit=500)
        assert ids(claimed) == ids(given)
        assert set(await store.renew([row.lease for row in claimed], LEASE)) == {row.lease.key for row in claimed}
        lost = claimed[::10]
        assert not await store.settle([Settlement(row.lease, RELEASE) for row in lost])
        assert len(await take(store, "bob", limit=500)) == 50
        kinds: list[Outcome] = [DONE, Retry(timedelta(hours=1), "r"), Dead("d")]
        group = [Settlement(row.lease, kinds[number % 3]) for number, row in enumerate(claimed)]
        assert set(await store.settle(group)) == {row.lease.key for row in lost}
        expected = [0 if number % 10 == 0 else (1, 2, 3)[number % 3] for number in range(500)]
        assert [row["status"] for row in self.rows()] == expected
        assert {row["locked_by"] for row in self.rows() if row["status"] == 0} == {"bob"}

    @played
    async def test_two_outcomes_for_one_row_are_one(self) -> None:
        """The second finds that the lease is gone."""
        store = await self.opened()
        await insert(store, event())
        (claimed,) = await take(store)
        assert await settle(store, claimed.lease, DONE)
        assert not await settle(store, claimed.lease, Dead("late"))
        assert self.row()["status"] == 1
