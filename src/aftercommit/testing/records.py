"""The contract of the records: dead letters, replays and discards."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.events.envelope import EventStatus
from aftercommit.events.records import EventFilter
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, event, ids, insert, take, take_one

ALL = EventFilter()
A_DAY = timedelta(days=1)


class RecordsContract(StoreHooks):
    """The table as people look at it."""

    # ------------------------------------------------------------ dead letters

    @played
    async def test_only_dead_rows_are_dead_letters(self) -> None:
        """TC-209"""
        store = await self.opened()
        dead = event(
            "OrderPlaced",
            payload_json='{"z":1,"a":2}',
            aggregate_type="Order",
            aggregate_id="7",
            tenant_id="acme",
            headers={"b": "2", "a": "1"},
        )
        await self.dead(store, dead)
        await self.ended(store, event(), status=EventStatus.DONE)
        await self.ended(store, event(), status=EventStatus.RETRY)
        await insert(store, event())
        (found,) = await store.records.query_dead(ALL, 100)
        row = self.row(dead.event_id)
        assert (found.event_id, found.handler_id, found.event_type) == (dead.event_id, "", "OrderPlaced")
        assert (found.aggregate_type, found.aggregate_id, found.tenant_id, found.key) == (
            "Order",
            "7",
            "acme",
            "Order/7",
        )
        assert (found.payload, list(found.headers.items())) == ('{"z":1,"a":2}', [("b", "2"), ("a", "1")])
        assert (found.attempts, found.last_error, found.position) == (1, "no use", row["position"])
        assert found.dead_at is not None
        assert found.created_at <= found.dead_at

    @played
    async def test_dead_letters_are_found_by_event_type_and_aggregate_type(self) -> None:
        """TC-210, TC-214"""
        store = await self.opened()
        one, two = event("A", aggregate_type="X"), event("A", aggregate_type="Y")
        three = event("B", aggregate_type="X")
        await self.dead(store, one, two, three)
        await insert(store, event("A", aggregate_type="X"))
        for where, expected in (
            (ALL, [one, two, three]),
            (EventFilter("A"), [one, two]),
            (EventFilter(aggregate_type="X"), [one, three]),
            (EventFilter("A", "X"), [one]),
            (EventFilter("B", "Y"), []),
            (EventFilter("unknown"), []),
        ):
            assert ids(await store.records.query_dead(where, 100)) == ids(expected)
            assert await store.records.count_dead(where) == len(expected)

    @played
    async def test_dead_letters_come_oldest_first_up_to_a_limit(self) -> None:
        """TC-211"""
        store = await self.opened()
        given = [event() for _ in range(5)]
        await self.dead(store, *given)
        self.change(given[0].event_id, done_at=self.now() + HOUR)
        assert ids(await store.records.query_dead(ALL, 3)) == ids(given[:3])

    # ------------------------------------------------------------ replay and discard

    @played
    async def test_a_replayed_event_is_new_again(self) -> None:
        """TC-212, promise 7"""
        store = await self.opened()
        given = event(deliver_after="1h")
        await insert(store, given)
        self.fall_due()
        await self.dead(store)
        assert self.row()["status"] == EventStatus.DEAD
        self.change(attempts=10, abandoned=3, done_handlers="mail", available_at=0)
        dead = self.row()
        before = self.now()
        assert await store.records.replay(given.event_id, None) == 1
        row = self.row()
        assert before <= row["available_at"] <= self.now()
        assert row == {
            **dead,
            "status": EventStatus.NEW,
            "attempts": 0,
            "abandoned": 0,
            "available_at": row["available_at"],
            "done_at": None,
            "last_error": None,
            "done_handlers": None,
            "lease_epoch": dead["lease_epoch"] + 1,
        }
        claimed = await take_one(store)
        assert (claimed.event, claimed.attempts, claimed.is_suspect) == (given, 0, False)

    @pytest.mark.parametrize("status", [EventStatus.NEW, EventStatus.RETRY, EventStatus.DONE])
    @played
    async def test_only_dead_rows_are_replayed_or_discarded(self, status: EventStatus) -> None:
        """TC-213"""
        store = await self.opened()
        given = event()
        await self.ended(store, given, status=status)
        before = self.rows()
        assert before[0]["status"] == status
        assert await store.records.replay(given.event_id, None) == 0
        assert await store.records.replay("unknown", None) == 0
        assert await store.records.replay_after(ALL, 0, 10) == (0, None)
        assert await store.records.discard(given.event_id, None, "") == 0
        assert await store.records.discard("unknown", None, "") == 0
        assert self.rows() == before

    @pytest.mark.parametrize("action", ["replay", "discard"])
    @played
    async def test_one_handlers_row_is_chosen_by_its_handler(self, action: str) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given, handler_id="mail")
        await insert(store, given, handler_id="stock")
        await self.dead(store)

        async def act(event_id: str, handler_id: str | None) -> int:
            if action == "replay":
                return await store.records.replay(event_id, handler_id)
            return await store.records.discard(event_id, handler_id, "")

        assert await act(given.event_id, "mail") == 1
        statuses = {row["handler_id"]: row["status"] for row in self.rows()}
        assert statuses["stock"] == EventStatus.DEAD
        assert statuses["mail"] != EventStatus.DEAD
        assert await act(given.event_id, None) == 1, "the other one"

    @played
    async def test_replaying_all_goes_once_over_the_table(self) -> None:
        """TC-215, TC-218: what dies again behind the cursor is not replayed again."""
        store = await self.opened()
        given = [event() for _ in range(5)]
        await self.dead(store, *given)
        places = [row["position"] for row in self.rows()]
        assert await store.records.replay_after(ALL, 0, 2) == (2, places[1])
        await self.dead(store)
        assert [row["status"] for row in self.rows()] == [EventStatus.DEAD] * 5
        assert await store.records.replay_after(ALL, places[1], 2) == (2, places[3])
        assert await store.records.replay_after(ALL, places[3], 2) == (1, None)
        assert [row["status"] for row in self.rows()] == [3, 3, 0, 0, 0]

    @played
    async def test_a_last_batch_that_is_full_is_followed_by_an_empty_one(self) -> None:
        """TC-215"""
        store = await self.opened()
        await self.dead(store, event(), event())
        replayed, last = await store.records.replay_after(ALL, 0, 2)
        assert last is not None
        assert (replayed, last) == (2, self.rows()[1]["position"])
        assert await store.records.replay_after(ALL, last, 2) == (0, None)

    @played
    async def test_replaying_all_goes_by_the_filter(self) -> None:
        store = await self.opened()
        await self.dead(store, event("A"), event("B"), event("A", aggregate_type="X"))
        assert (await store.records.replay_after(EventFilter("A"), 0, 10))[0] == 2
        assert [row["status"] for row in self.rows()] == [0, 3, 0]
        assert {row["lease_epoch"] for row in self.rows() if row["status"] == 0} == {2}

    @played
    async def test_a_discarded_event_is_done_and_keeps_the_reason(self) -> None:
        store = await self.opened()
        given = event()
        await self.dead(store, given)
        dead = self.row()
        assert await store.records.discard(given.event_id, None, "sent by hand; password=hunter2") == 1
        row = self.row()
        assert (row["status"], row["last_error"]) == (EventStatus.DONE, "discarded: sent by hand; password=***")
        assert row["lease_epoch"] == dead["lease_epoch"] + 1
        assert await store.records.count_dead(ALL) == 0
        assert await take(store) == []
        assert await store.records.replay(given.event_id, None) == 0

    @pytest.mark.parametrize(("reason", "length"), [("", len("discarded")), ("x" * 5000, 4000)])
    @played
    async def test_the_reason_of_a_discard_may_be_missing_or_long(self, reason: str, length: int) -> None:
        store = await self.opened()
        given = event()
        await self.dead(store, given)
        assert await store.records.discard(given.event_id, None, reason) == 1
        assert len(self.row()["last_error"]) == length
