"""The contract of the records: rows found by what they are, page by page, and in sums."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.outcome import DONE, Dead, Outcome, Retry
from aftercommit.events.records import EventFilter, EventRecord
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import DAY, HOUR, SECOND, event, ids, insert, settle, take, take_one

ALL = EventFilter()
NOW = timedelta(0)

#: Which of the five rows below a filter finds.
FOUND: dict[EventFilter, list[int]] = {
    ALL: [0, 1, 2, 3, 4],
    EventFilter(event_type="A"): [0, 1, 4],
    EventFilter(aggregate_type="Order"): [1, 2],
    EventFilter(event_type="A", aggregate_type="Order"): [1],
    EventFilter(handler_id="mail"): [4],
    EventFilter(handler_id=""): [0, 1, 2, 3],
    EventFilter(aggregate_id="7"): [1],
    EventFilter(key="Order/7"): [1],
    EventFilter(key="k"): [3],
    EventFilter(tenant_id="acme"): [2, 3],
    EventFilter(tenant_id="acme", key="k"): [3],
    EventFilter(error="ValueError"): [0, 2],
    EventFilter(error="50% o_f"): [2],
    EventFilter(error="valueerror"): [],
    EventFilter(older_than=timedelta(hours=1)): [3],
    EventFilter(event_type="unknown"): [],
}


async def failed(store: EventStore, outcome: Callable[[str], Outcome]) -> list[EventEnvelope]:
    """Five rows with everything that is asked for above, each with an outcome of its own error."""
    given = [
        event("A"),
        event("A", aggregate_type="Order", aggregate_id="7"),
        event("B", aggregate_type="Order", tenant_id="acme"),
        event("B", tenant_id="acme", key="k"),
        event("A"),
    ]
    await insert(store, *given[:4])
    await insert(store, given[4], handler_id="mail")
    errors = ["ValueError: no", "KeyError: 7", "ValueError: 50% o_f", "OSError", "50% off"]
    for claimed in await take(store):
        error = errors[ids(given).index(claimed.event.event_id)]
        assert await settle(store, claimed.lease, outcome(error))
    return given


async def pages(query: Any, where: EventFilter, limit: int) -> list[str]:
    """All of them, page by page."""
    found: list[EventRecord] = []
    while True:
        page = await query(where, limit, found[-1] if found else None)
        found += page
        if len(page) < limit:
            return ids(found)


class LookingContract(StoreHooks):
    """The table as people search it."""

    # ------------------------------------------------------------ by what they are

    @played
    async def test_dead_rows_are_found_by_everything_that_people_ask_for(self) -> None:
        store = await self.opened()
        given = await failed(store, Dead)
        self.change(given[3].event_id, created_at=self.now() - DAY)
        await insert(store, event("A"))
        for where, numbers in FOUND.items():
            wanted = [given[number].event_id for number in numbers]
            assert ids(await store.records.query_dead(where, 100)) == wanted, where
            assert await store.records.count_dead(where) == len(wanted), where
        where = EventFilter(tenant_id="acme", error="OSError")
        assert await store.records.replay_after(where, 0, 10) == (1, None)
        assert [row["status"] for row in self.rows()] == [3, 3, 3, 0, 3, 0]

    @played
    async def test_unfinished_rows_are_found_by_the_same(self) -> None:
        store = await self.opened()
        await self.dead(store, event("A"))
        given = await failed(store, lambda error: Retry(NOW, error))
        due = self.now()
        for number, each in enumerate(given):
            self.change(each.event_id, available_at=due + number * SECOND)
        self.change(given[3].event_id, created_at=self.now() - DAY)
        for where, numbers in FOUND.items():
            wanted = [given[number].event_id for number in numbers]
            assert ids(await store.records.query_pending(where, 100)) == wanted, where
            assert await store.records.count_pending(where) == len(wanted), where

    @played
    async def test_rows_of_any_status_are_found_by_the_same(self) -> None:
        store = await self.opened(delete_completed=False)
        given = await failed(store, Dead)
        self.change(given[3].event_id, created_at=self.now() - DAY)
        for where, numbers in FOUND.items():
            wanted = [given[number].event_id for number in reversed(numbers)]
            assert ids(await store.records.query(where, 100)) == wanted, where

    # ------------------------------------------------------------ page by page

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    @played
    async def test_pages_follow_each_other_and_show_each_row_once(self, limit: int) -> None:
        store = await self.opened(delete_completed=False)
        dead = [event("A" if number % 2 else "B") for number in range(5)]
        await self.dead(store, *dead)
        done = event()
        await self.ended(store, done, status=EventStatus.DONE)
        held = event()
        await insert(store, held)
        assert ids(await take(store)) == [held.event_id]
        waiting = [event("A" if number % 2 else "B") for number in range(5)]
        await insert(store, *waiting)  # all of them due at the same time
        records = store.records
        assert await pages(records.query_dead, ALL, limit) == ids(dead)
        assert await pages(records.query_dead, EventFilter("A"), limit) == ids(dead[1::2])
        pending = await pages(records.query_pending, ALL, limit)
        assert [each for each in pending if each != held.event_id] == ids(waiting)
        assert pending.count(held.event_id) == 1
        assert await pages(records.query_pending, EventFilter("A"), limit) == ids(waiting[1::2])
        everything = ids([*dead, done, held, *waiting])
        assert await pages(records.query, ALL, limit) == everything[::-1]
        assert await pages(records.query, EventFilter(status=EventStatus.DONE), limit) == ids([done])

    @played
    async def test_unfinished_rows_come_as_they_fall_due(self) -> None:
        store = await self.opened()
        given = [event(deliver_after="2h"), event(), event(deliver_after="1h")]
        await insert(store, *given)
        found = await store.records.query_pending(ALL, 100)
        assert ids(found) == [given[1].event_id, given[2].event_id, given[0].event_id]
        assert await store.records.count_pending(ALL) == 3

    @played
    async def test_unfinished_rows_are_told_apart_by_their_status(self) -> None:
        store = await self.opened()
        again, new = event(), event()
        await self.ended(store, again, status=EventStatus.RETRY)
        await insert(store, new)
        for status, wanted in ((EventStatus.NEW, new), (EventStatus.RETRY, again)):
            where = EventFilter(status=status)
            assert ids(await store.records.query_pending(where, 100)) == [wanted.event_id]
            assert await store.records.count_pending(where) == 1
            assert await store.records.count_pending(EventFilter(event_type="Happened", status=status)) == 1

    # ------------------------------------------------------------ one event

    @played
    async def test_a_record_tells_all_that_an_operator_asks_for(self) -> None:
        store = await self.opened()
        given = event("A", payload_bytes=b"\x00\xff", headers={"b": "2", "a": "1"}, key="k", tenant_id="acme")
        await insert(store, given)
        claimed = await take_one(store)
        row = self.row()
        (found,) = await store.records.find(given.event_id, is_prefix=False, limit=10)
        assert (found.payload, list(found.headers.items())) == (b"\x00\xff", [("b", "2"), ("a", "1")])
        assert (found.status, found.attempts, found.abandoned, found.position) == (0, 0, 0, row["position"])
        assert (found.key, found.partition, found.content_type) == ("k", row["partition_no"], given.content_type)
        assert (found.locked_by, found.last_error, found.done_at, found.dead_at) == ("alice", "", None, None)
        assert found.lease_until is not None
        assert found.created_at <= found.available_at < found.lease_until
        assert found.occurred_at == given.occurred_at
        assert await settle(store, claimed.lease, Dead("no use"))
        (found,) = await store.records.find(given.event_id, is_prefix=False, limit=10)
        assert (found.status, found.attempts, found.last_error) == (EventStatus.DEAD, 1, "no use")
        assert found.dead_at is not None
        assert (found.dead_at, found.locked_by, found.lease_until) == (found.done_at, None, None)

    @played
    async def test_an_event_is_found_by_its_id_whatever_became_of_it(self) -> None:
        store = await self.opened(delete_completed=False)
        given, other = event(event_id="01ABCDEF-1"), event(event_id="01ABCDEF-2")
        await insert(store, other)
        await insert(store, given, handler_id="stock")
        await self.dead(store)
        await insert(store, given, handler_id="mail")
        assert await settle(store, (await take_one(store)).lease, DONE)
        await insert(store, given)
        records = store.records
        found = await records.find(given.event_id, is_prefix=False, limit=10)
        assert [(each.handler_id, each.status.name) for each in found] == [
            ("stock", "DEAD"),
            ("mail", "DONE"),
            ("", "NEW"),
        ]
        assert len(await records.find("01ABCDEF-1", is_prefix=True, limit=10)) == 3
        assert {each.event_id for each in await records.find("01ABCD", is_prefix=True, limit=10)} == {
            given.event_id,
            other.event_id,
        }
        for unknown in ("01ABCD", "1ABCDEF-1", "%", "01ABCDEF-3", "01ABCDEF?1", "*"):
            assert await records.find(unknown, is_prefix=False, limit=10) == []
        for unknown in ("1ABCDEF", "01abcd", "01ABCDEF-1 ", "%", "_1ABCD", "?1ABCD", "*", "[0]1ABCD"):
            assert await records.find(unknown, is_prefix=True, limit=10) == []

    # ------------------------------------------------------------ in sums

    @played
    async def test_rows_are_summed_up_by_event_type_and_handler(self) -> None:
        store = await self.opened(delete_completed=False)
        await self.dead(store, event("A"), event("A"))
        await self.ended(store, event("A"), status=EventStatus.RETRY)
        await self.ended(store, event("C"), status=EventStatus.DONE)
        await insert(store, event("B", deliver_after="1h"))
        late = event("B")
        await insert(store, late, handler_id="mail")
        assert ids(await take(store)) == [late.event_id]
        self.change(late.event_id, available_at=self.now() - HOUR)
        summary = await store.records.summary(100)
        assert [(each.event_type, each.handler_id, each.new, each.retry, each.dead) for each in summary.types] == [
            ("A", "", 0, 1, 2),
            ("B", "", 1, 0, 0),
            ("B", "mail", 1, 0, 0),
        ]
        ages = [each.oldest_due for each in summary.types]
        assert ages[:2] == [None, None]
        assert ages[2] is not None
        assert timedelta(hours=1) <= ages[2] < timedelta(hours=2)
        assert not summary.is_partial
        assert (await store.records.summary(1)).is_partial
