"""The contract of settle_in, a mark that is part of a transaction: only for stores with transactional effects."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from aftercommit.events.claims import Lease, NewEvent
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import FailureNote, Retry
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import LEASE, event, ids, insert, settle, settle_in, take, take_one

AT_ONCE = timedelta(0)


def needs_effects(store: EventStore) -> None:
    if not store.capabilities.has_transactional_effects:
        pytest.skip("nothing is committed together with an outcome here")


class EffectsContract(StoreHooks):
    """An outcome that is committed with what else a transaction has done, or not at all."""

    @pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "rolled back"])
    @played
    async def test_a_mark_shares_the_fate_of_its_transaction(self, is_committed: bool) -> None:
        store = await self.opened()
        needs_effects(store)
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, Retry(AT_ONCE, "no luck"))
        lease, next_step = (await take_one(store)).lease, event()
        self.change(abandoned=2)
        before, began = self.row(), self.now()
        opened = await store.begin()
        try:
            await store.insert(opened, [NewEvent(next_step, 7)])
            assert await store.settle_in(opened, lease)
            if self.skips_locked:
                assert self.rows() == [before], "nobody else sees it"
            if is_committed:
                await opened.commit()
        finally:
            await opened.end()
        if not is_committed:
            assert self.rows() == [before]
            assert await settle_in(store, lease), "and it can be done again"
            return
        done, new = self.rows()
        assert (done["status"], done["attempts"], done["last_error"]) == (EventStatus.DONE, 1, None)
        assert (done["locked_by"], done["locked_at"], done["lease_until"], done["abandoned"]) == (None, None, None, 0)
        assert began <= done["done_at"] <= self.now()
        assert (new["event_id"], new["status"]) == (next_step.event_id, EventStatus.NEW)
        assert ids(await take(store)) == [next_step.event_id]

    @played
    async def test_a_row_that_is_done_in_part_keeps_its_lease_and_what_was_done(self) -> None:
        store = await self.opened()
        needs_effects(store)
        await insert(store, event())
        lease = (await take_one(store)).lease
        before = self.row()
        assert await settle_in(store, lease, "mail", "it's \"quoted\" \\ 'twice'")
        handlers = ["mail", "it's \"quoted\" \\ 'twice'"]
        after = self.row()
        assert json.loads(after.pop("done_handlers")) == handlers
        assert {**after, "done_handlers": before["done_handlers"]} == before
        assert set(await store.renew([lease], LEASE)) == {lease.key}
        assert await settle(store, lease, Retry(AT_ONCE, "another failed"))
        assert list((await take_one(store)).done_handlers) == handlers

    @pytest.mark.parametrize("attempts", [0, 1])
    @played
    async def test_a_completed_row_is_deleted_in_the_transaction_with_its_failures(self, attempts: int) -> None:
        store = await self.opened(delete_completed=True)
        needs_effects(store)
        given, other = event(), event()
        await insert(store, given)
        for _ in range(attempts):
            note = FailureNote(1, "mail", "ValueError", "no")
            assert await settle(store, (await take_one(store)).lease, Retry(AT_ONCE, "no", failures=(note,)))
        lease = (await take_one(store)).lease
        await insert(store, other)
        assert await settle_in(store, lease, "mail"), "done in part, it stays"
        assert len(self.rows()) == 2
        assert await settle_in(store, lease)
        assert [row["event_id"] for row in self.rows()] == [other.event_id]
        assert await store.records.failures(given.event_id, None) == []
        assert not await settle_in(store, Lease(lease.key, lease.owner, lease.epoch, 0.0))
