"""The contract of claim: what is due and free, once, in order, under a new epoch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit.errors import OutboxError
from aftercommit.events.claims import Claimed, Undecodable
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.events.records import EventFilter
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, LEASE, SECOND, event, ids, insert, look, settle, take, take_one

NOW = timedelta(0)


class ClaimingContract(StoreHooks):
    """Who gets which row."""

    @played
    async def test_a_claim_leases_up_to_its_limit(self) -> None:
        """TC-094, TC-107"""
        store = await self.opened()
        given = [event() for _ in range(3)]
        await insert(store, *given)
        before = self.now()
        claimed = await take(store, "alice", limit=2)
        assert ids(claimed) == ids(given[:2])
        for row in self.rows()[:2]:
            assert (row["locked_by"], row["lease_epoch"], row["status"]) == ("alice", 1, EventStatus.NEW)
            assert before <= row["locked_at"] <= self.now()
            assert row["lease_until"] - row["locked_at"] == LEASE // timedelta(microseconds=1)
        assert self.rows()[2]["locked_by"] is None

    @played
    async def test_a_claimed_row_says_under_which_lease_it_may_be_delivered(self) -> None:
        store = await self.opened()
        await insert(store, event(), handler_id="mail")
        self.change(attempts=3, abandoned=2, lease_epoch=41, created_at=self.now() - HOUR)
        claimed = await take_one(store, "alice", deadline=99.5)
        row = self.row()
        assert claimed.lease.key == (row["event_id"], "mail")
        assert (claimed.lease.owner, claimed.lease.epoch, claimed.lease.deadline) == ("alice", 42, 99.5)
        assert (claimed.position, claimed.attempts, claimed.abandoned) == (row["position"], 3, 2)
        assert timedelta(hours=1) <= claimed.age < timedelta(hours=1, minutes=1)
        assert row["lease_epoch"] == 42

    @played
    async def test_a_held_row_is_nobody_elses(self) -> None:
        """TC-108, TC-109"""
        first, second = await self.opened(), await self.opened()
        given = [event() for _ in range(3)]
        await insert(first, *given)
        assert ids(await take(first, "alice", limit=2)) == ids(given[:2])
        assert ids(await take(second, "bob", limit=5)) == ids(given[2:])
        assert await take(second, "bob") == []
        assert await take(first, "alice") == [], "not even its holder gets it twice"

    @played
    async def test_a_lease_that_ran_out_is_taken_over_as_a_suspect(self) -> None:
        """TC-110, promise 4a"""
        store = await self.opened()
        await insert(store, event())
        assert not (await take_one(store, "alice")).is_suspect
        self.expire()
        taken = await take_one(store, "bob")
        assert (taken.is_suspect, taken.abandoned, taken.lease.epoch) == (True, 0, 2)
        assert (self.row()["locked_by"], self.row()["lease_epoch"]) == ("bob", 2)

    @played
    async def test_a_lease_of_its_own_that_ran_out_is_no_suspect(self) -> None:
        """Promise 4a: a holder that claims its row again has not been killed by it."""
        store = await self.opened()
        await insert(store, event())
        first = await take_one(store, "alice")
        self.expire()
        again = await take_one(store, "alice")
        assert (again.is_suspect, again.lease.epoch) == (False, first.lease.epoch + 1)

    @pytest.mark.parametrize("outcome", [RELEASE, Retry(NOW, "no"), Defer(NOW)], ids=["release", "retry", "defer"])
    @played
    async def test_a_row_that_was_reported_is_no_suspect(self, outcome: Outcome) -> None:
        """Promise 4a: also a suspect that came back."""
        store = await self.opened()
        await insert(store, event())
        await take(store, "alice")
        self.expire()
        taken = await take_one(store, "bob")
        assert taken.is_suspect
        assert await settle(store, taken.lease, outcome)
        self.fall_due()
        assert not (await take_one(store, "carol")).is_suspect

    @played
    async def test_a_row_that_was_abandoned_is_a_suspect(self) -> None:
        """Promise 4a"""
        store = await self.opened()
        await insert(store, event())
        self.change(abandoned=1)
        claimed = await take_one(store)
        assert (claimed.is_suspect, claimed.abandoned) == (True, 1)

    @played
    async def test_rows_come_in_order_of_position(self) -> None:
        """TC-478, TC-488: chosen by due time, handed out in order of writing."""
        store = await self.opened()
        first, second, third = (event() for _ in range(3))
        await insert(store, first, second, third)
        base = self.now()
        for each, age in ((first, 1), (second, 2), (third, 3)):
            self.change(each.event_id, available_at=base - age * SECOND)
        assert ids(await take(store, limit=2)) == ids([second, third])
        assert ids(await take(store)) == ids([first])

    @played
    async def test_equal_due_times_go_by_position(self) -> None:
        """TC-478: a hundred of them."""
        store = await self.opened()
        given = [event() for _ in range(100)]
        await insert(store, *given)
        self.change(available_at=self.now() - 1)
        assert ids(await take(store, limit=60)) == ids(given[:60])
        assert ids(await take(store, limit=60)) == ids(given[60:])

    @pytest.mark.parametrize("status", EventStatus)
    @played
    async def test_new_and_retry_are_claimed_and_terminal_rows_are_not(self, status: EventStatus) -> None:
        """TC-090, TC-091, TC-092"""
        store = await self.opened()
        await insert(store, event())
        self.change(status=int(status), available_at=self.now() - 10 * SECOND)
        assert len(await take(store)) == (1 if status in (EventStatus.NEW, EventStatus.RETRY) else 0)

    @pytest.mark.parametrize("outcome", [Retry(timedelta(hours=1), "no"), Defer(timedelta(hours=1))], ids=type)
    @played
    async def test_a_row_that_waits_is_claimed_when_its_time_has_come(self, outcome: Outcome) -> None:
        """TC-114, TC-115, TC-116"""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, outcome)
        assert await take(store) == []
        self.change(available_at=self.now() - 10 * SECOND)
        assert len(await take(store)) == 1

    @played
    async def test_young_rows_are_skipped_when_asked_to(self) -> None:
        """TC-093"""
        store = await self.opened()
        young, old = event(), event()
        await insert(store, young, old)
        self.change(old.event_id, created_at=self.now() - 2 * HOUR)
        assert ids(await take(store, skip_recent=timedelta(hours=1))) == [old.event_id]
        assert ids(await take(store)) == [young.event_id]

    @pytest.mark.parametrize("owner", [None, ""])
    @played
    async def test_a_claim_without_an_owner_is_refused(self, owner: Any) -> None:
        """TC-112: its rows would be leased to nobody, and claimed by everybody."""
        store = await self.opened()
        await insert(store, event())
        with pytest.raises(OutboxError, match="owner"):
            await take(store, owner)
        assert (self.row()["lease_epoch"], self.row()["lease_until"]) == (0, None)

    # ------------------------------------------------------------ floor

    @played
    async def test_a_floor_passes_over_what_an_earlier_claim_saw(self) -> None:
        store = await self.opened()
        first, second, third = (event() for _ in range(3))
        await insert(store, first, second, third)
        self.change(available_at=self.now() - HOUR)
        claim = await look(store, limit=2)
        assert claim.floor is not None
        for row in claim.rows:
            assert await settle(store, row.lease, RELEASE)
        assert ids(await take(store, floor=claim.floor)) == [third.event_id]
        assert ids(await take(store, floor=claim.floor)) == []
        assert ids(await take(store)) == ids([first, second])

    @played
    async def test_there_is_no_floor_when_nothing_was_left_behind(self) -> None:
        store = await self.opened()
        assert (await look(store)).floor is None
        await insert(store, event(), event())
        assert (await look(store, limit=3)).floor is None

    @pytest.mark.parametrize("ages", [(5, 5, 5, 5, 5, 5), (1, 2, 3, 4, 5, 6), (2, 1, 2, 1, 2, 1)], ids=str)
    @played
    async def test_claims_behind_a_floor_visit_every_row_once(self, ages: tuple[int, ...]) -> None:
        """Ties in the due time too."""
        store = await self.opened()
        given = [event() for _ in ages]
        await insert(store, *given)
        base = self.now()
        for each, age in zip(given, ages, strict=True):
            self.change(each.event_id, available_at=base - age * SECOND)
        visited, floor = [], None
        for _ in range(len(ages) + 1):
            claim = await look(store, limit=1, floor=floor)
            visited += ids(claim.rows)
            floor = claim.floor
            if floor is None:
                break
        expected = sorted(zip((-age for age in ages), ids(given), strict=True))
        assert visited == [event_id for _, event_id in expected]

    # ------------------------------------------------------------ what comes next

    @played
    async def test_a_claim_tells_when_the_next_row_falls_due(self) -> None:
        store = await self.opened()
        assert (await look(store)).next_due is None
        await insert(store, event(deliver_after="2h"), event(deliver_after="1h"), event())
        claim = await look(store)
        assert len(claim.rows) == 1
        assert claim.next_due is not None
        assert 3500 < claim.next_due <= 3600

    @pytest.mark.parametrize("outcome", [DONE, Dead("no")], ids=type)
    @played
    async def test_a_row_that_has_ended_does_not_fall_due(self, outcome: Outcome) -> None:
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, outcome)
        self.change(available_at=self.now() + HOUR)
        assert (await look(store)).next_due is None

    # ------------------------------------------------------------ damage

    @pytest.mark.parametrize("headers", ["[1]", '{"a": 1}', "no json", '"text"'])
    @played
    async def test_a_row_that_cannot_be_decoded_is_claimed_as_such(self, headers: str) -> None:
        """TC-482: it can be settled as dead, and does not keep others from being claimed."""
        store = await self.opened()
        damaged, sound = event(), event()
        await insert(store, damaged, sound)
        self.change(damaged.event_id, headers=headers)
        bad, good = await take(store)
        assert isinstance(bad, Undecodable)
        assert isinstance(good, Claimed)
        assert good.event == sound
        assert await settle(store, bad.lease, Dead("UndecodableRow: headers", counted=False))
        assert await take(store) == []
        (dead,) = await store.records.query_dead(EventFilter(), 10)
        assert (dead.event_id, dead.headers, dead.attempts) == (damaged.event_id, {}, 0)
