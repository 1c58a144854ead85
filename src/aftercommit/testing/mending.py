"""The contract of the records: events that are cancelled, and events that are delivered again though they are done."""

from __future__ import annotations

import pytest

from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE
from aftercommit.events.records import EventFilter
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import event, ids, insert, settle, take, take_one


class MendingContract(StoreHooks):
    """What people change by hand."""

    # ------------------------------------------------------------ cancel

    @pytest.mark.parametrize("status", [EventStatus.NEW, EventStatus.RETRY])
    @played
    async def test_a_cancelled_event_is_done_and_is_not_delivered(self, status: EventStatus) -> None:
        store = await self.opened(delete_completed=False)
        given = event()
        await self.ended(store, given, status=status)
        self.fall_due()
        before = self.row()
        assert await store.records.cancel(given.event_id, None) == 1
        row = self.row()
        assert (row["status"], row["last_error"], row["attempts"]) == (
            EventStatus.DONE,
            "cancelled",
            before["attempts"],
        )
        assert row["done_at"] is not None
        assert row["lease_epoch"] == before["lease_epoch"] + 1
        assert await take(store) == []
        assert await store.records.count_pending(EventFilter()) == 0
        assert await store.records.count_done(None) == 1
        assert await store.records.cancel(given.event_id, None) == 0, "it is over"

    @played
    async def test_where_done_rows_are_deleted_a_cancelled_one_is(self) -> None:
        store = await self.opened(delete_completed=True)
        given, other = event(), event()
        await insert(store, given, other)
        assert await store.records.cancel(given.event_id, None) == 1
        assert ids(await take(store)) == [other.event_id]
        assert [row["event_id"] for row in self.rows()] == [other.event_id]

    @pytest.mark.parametrize("is_deleted", [False, True], ids=["kept", "deleted"])
    @played
    async def test_what_somebody_holds_is_not_cancelled(self, is_deleted: bool) -> None:
        store = await self.opened(delete_completed=is_deleted)
        claimed, born = event(), event()
        await insert(store, claimed)
        lease = (await take_one(store)).lease
        await insert(store, born, owner="bob")
        before = self.rows()
        assert await store.records.cancel(claimed.event_id, None) == 0
        assert await store.records.cancel(born.event_id, None) == 0
        assert self.rows() == before
        assert await settle(store, lease, DONE)

    @played
    async def test_a_holder_whose_lease_ran_out_settles_nothing_of_a_cancelled_event(self) -> None:
        store = await self.opened(delete_completed=False)
        given = event()
        await insert(store, given)
        lease = (await take_one(store)).lease
        self.expire()
        assert await store.records.cancel(given.event_id, None) == 1
        row = self.row()
        assert not await settle(store, lease, DONE)
        assert self.row() == row
        assert (row["last_error"], row["locked_by"]) == ("cancelled", None)

    @pytest.mark.parametrize("status", [EventStatus.DONE, EventStatus.DEAD])
    @played
    async def test_what_has_ended_is_not_cancelled(self, status: EventStatus) -> None:
        store = await self.opened(delete_completed=False)
        given = event()
        await self.ended(store, given, status=status)
        before = self.rows()
        assert await store.records.cancel(given.event_id, None) == 0
        assert await store.records.cancel("unknown", None) == 0
        assert self.rows() == before

    # ------------------------------------------------------------ done, and again

    @played
    async def test_a_done_event_is_new_again_under_a_new_epoch(self) -> None:
        """Promise 7"""
        store = await self.opened(delete_completed=False)
        given = event(deliver_after="1h")
        await insert(store, given)
        self.fall_due()
        assert await settle(store, (await take_one(store)).lease, DONE)
        self.change(attempts=3, done_handlers="[]")
        done, before = self.row(), self.now()
        assert await store.records.replay_done(given.event_id, None) == 1
        row = self.row()
        assert before <= row["available_at"] <= self.now()
        assert row == {
            **done,
            "status": EventStatus.NEW,
            "attempts": 0,
            "available_at": row["available_at"],
            "done_at": None,
            "done_handlers": None,
            "lease_epoch": done["lease_epoch"] + 1,
        }
        assert await store.records.count_done(None) == 0
        claimed = await take_one(store)
        assert (claimed.event, claimed.attempts, claimed.is_suspect) == (given, 0, False)

    @pytest.mark.parametrize("status", [EventStatus.NEW, EventStatus.RETRY, EventStatus.DEAD])
    @played
    async def test_only_what_is_done_is_replayed_as_such(self, status: EventStatus) -> None:
        store = await self.opened(delete_completed=False)
        given = event()
        await self.ended(store, given, status=status)
        before = self.rows()
        assert await store.records.replay_done(given.event_id, None) == 0
        assert await store.records.replay_done("unknown", None) == 0
        assert self.rows() == before

    @pytest.mark.parametrize("action", ["cancel", "replay_done"])
    @played
    async def test_one_handlers_row_is_chosen_by_its_handler_here_too(self, action: str) -> None:
        store = await self.opened(delete_completed=False)
        given = event()
        await insert(store, given, handler_id="mail")
        await insert(store, given, handler_id="stock")
        if action == "replay_done":
            for claimed in await take(store):
                assert await settle(store, claimed.lease, DONE)
        before = {row["handler_id"]: row["status"] for row in self.rows()}
        act = getattr(store.records, action)
        assert await act(given.event_id, "mail") == 1
        after = {row["handler_id"]: row["status"] for row in self.rows()}
        assert after["stock"] == before["stock"]
        assert after["mail"] != before["mail"]
        assert await act(given.event_id, None) == 1, "the other one"
