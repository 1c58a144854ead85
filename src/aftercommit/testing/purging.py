"""The contract of purges and counts: only what has ended goes, oldest first; what waits is counted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.events.claims import NewEvent, RowKey, Settlement
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, Dead, Outcome, Retry
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import DAY, HOUR, SECOND, event, ids, insert, settle, take, write_rows

A_DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


class PurgingContract(StoreHooks):
    """The table as it is cleaned and counted."""

    @played
    async def test_a_purge_deletes_what_has_ended(self) -> None:
        """TC-195, TC-198"""
        store = await self.opened()
        for status in EventStatus:
            await self.ended(store, event(str(status.name)), status=status, age=10 * DAY)
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 2
        assert [row["event_type"] for row in self.rows()] == ["NEW", "RETRY"]
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 0

    @played
    async def test_dead_rows_are_purged_only_when_asked_to(self) -> None:
        """F31"""
        store = await self.opened()
        await self.ended(store, event("done"), status=EventStatus.DONE, age=10 * DAY)
        await self.ended(store, event("dead"), status=EventStatus.DEAD, age=10 * DAY)
        assert await store.records.purge(A_DAY, dead=False, limit=100) == 1
        assert [row["event_type"] for row in self.rows()] == ["dead"]

    @pytest.mark.parametrize("status", [EventStatus.DONE, EventStatus.DEAD])
    @played
    async def test_a_purge_respects_the_cutoff(self, status: EventStatus) -> None:
        """TC-196, TC-199"""
        store = await self.opened()
        await self.ended(store, event("old"), status=status, age=10 * DAY)
        await self.ended(store, event("young"), status=status, age=HOUR)
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 1
        assert [row["event_type"] for row in self.rows()] == ["young"]
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 0

    @played
    async def test_a_purge_deletes_the_oldest_first_up_to_its_limit(self) -> None:
        """TC-197"""
        store = await self.opened()
        given = [event(f"T{number}") for number in range(5)]
        await self.ended(store, *given, status=EventStatus.DONE, age=10 * DAY)
        for each, days in zip(given, (10, 14, 11, 13, 12), strict=True):
            self.change(each.event_id, done_at=self.now() - days * DAY)
        assert await store.records.purge(A_DAY, dead=False, limit=3) == 3
        assert [row["event_type"] for row in self.rows()] == ["T0", "T2"]
        assert await store.records.purge(A_DAY, dead=False, limit=3) == 2

    @played
    async def test_one_limit_holds_for_done_and_dead_together(self) -> None:
        store = await self.opened()
        await self.ended(store, event(), event(), status=EventStatus.DONE, age=10 * DAY)
        await self.ended(store, event(), event(), status=EventStatus.DEAD, age=10 * DAY)
        assert await store.records.purge(A_DAY, dead=True, limit=3) == 3
        assert [row["status"] for row in self.rows()] == [EventStatus.DEAD]
        assert await store.records.purge(A_DAY, dead=True, limit=3) == 1

    @played
    async def test_the_time_of_its_end_decides_and_not_its_birth(self) -> None:
        """TC-200"""
        store = await self.opened()
        await self.ended(store, event(), status=EventStatus.DONE, age=10 * DAY)
        self.change(done_at=self.now() - HOUR)
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 0

    @pytest.mark.parametrize("status", [EventStatus.DONE, EventStatus.DEAD])
    @played
    async def test_a_row_that_somebody_else_ended_goes_by_its_birth(self, status: EventStatus) -> None:
        """TC-201: without a time of its end, as a statement by hand leaves it."""
        store = await self.opened()
        old, young = event("old"), event("young")
        await insert(store, old, young)
        self.change(status=int(status), done_at=None, created_at=self.now() - HOUR)
        self.change(old.event_id, created_at=self.now() - 10 * DAY)
        assert await store.records.purge(A_DAY, dead=True, limit=100) == 1
        assert [row["event_type"] for row in self.rows()] == ["young"]

    @played
    async def test_a_purge_by_age_takes_every_status(self) -> None:
        """TC-203"""
        store = await self.opened()
        for status in EventStatus:
            await self.ended(store, event(), status=status, age=10 * DAY)
        await insert(store, event("young"))
        assert await store.records.purge_aged(A_DAY, limit=100) == 4
        assert [row["event_type"] for row in self.rows()] == ["young"]
        assert await store.records.purge_aged(A_DAY, limit=100) == 0

    @played
    async def test_a_purge_by_age_has_a_limit(self) -> None:
        """TC-203"""
        store = await self.opened()
        await insert(store, *[event() for _ in range(5)])
        self.change(created_at=self.now() - 10 * DAY)
        assert [await store.records.purge_aged(A_DAY, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    # ------------------------------------------------------------ delete on completion

    @played
    async def test_completed_rows_are_deleted_when_asked_to(self) -> None:
        """Others stay, and so does a row whose lease is lost."""
        store = await self.opened(delete_completed=True)
        done, failed, dead, lost = (event() for _ in range(4))
        await insert(store, done, failed, dead, lost)
        claimed = await take(store, "alice")
        self.change(lost.event_id, locked_by="bob")
        outcomes: list[Outcome] = [DONE, Retry(MINUTE, "r"), Dead("d"), DONE]
        refused = await store.settle([Settlement(row.lease, each) for row, each in zip(claimed, outcomes, strict=True)])
        assert set(refused) == {RowKey(lost.event_id, "")}
        assert [row["event_id"] for row in self.rows()] == ids([failed, dead, lost])
        assert [row["status"] for row in self.rows()] == [EventStatus.RETRY, EventStatus.DEAD, EventStatus.NEW]
        assert not await settle(store, claimed[0].lease, DONE), "the repeat finds no row"

    # ------------------------------------------------------------ backlog

    @played
    async def test_an_empty_table_has_no_backlog(self) -> None:
        store = await self.opened()
        backlog = await store.records.backlog()
        assert (backlog.new, backlog.retry, backlog.dead, backlog.leased) == (0, 0, 0, 0)
        assert backlog.oldest_due == timedelta(0)

    @played
    async def test_the_backlog_counts_what_is_unfinished(self) -> None:
        store = await self.opened()
        await self.ended(store, event(), status=EventStatus.DONE)
        await self.ended(store, event(), event(), status=EventStatus.DEAD)
        await self.ended(store, event(), event(), event(), status=EventStatus.RETRY)
        await insert(store, *[event() for _ in range(4)])
        backlog = await store.records.backlog()
        assert (backlog.new, backlog.retry, backlog.dead, backlog.leased) == (4, 3, 2, 0)

    @played
    async def test_done_rows_are_counted_up_to_a_limit(self) -> None:
        """TC-337"""
        store = await self.opened()
        assert await store.records.count_done(None) == 0
        await self.ended(store, *[event() for _ in range(5)], status=EventStatus.DONE)
        await self.dead(store, event(), event())
        await self.ended(store, event(), status=EventStatus.RETRY)
        await insert(store, event())
        assert [await store.records.count_done(limit) for limit in (None, 1, 4, 5, 6, 10**9)] == [5, 1, 4, 5, 5, 5]

    @played
    async def test_unfinished_rows_are_counted_by_partition(self) -> None:
        """TC-341: also those that are leased or not due; what ended is not counted."""
        store = await self.opened()
        assert await store.records.pending() == {}
        for status in (EventStatus.DONE, EventStatus.DEAD, EventStatus.RETRY):
            await self.ended(store, event(key=status.name), status=status)
        rows = {0: 2, 8: 1, 99: 1, 255: 3}
        given = [NewEvent(event(key=f"key {number}"), number) for number, count in rows.items() for _ in range(count)]
        await write_rows(store, [*given, NewEvent(event(deliver_after="1h"), 100)])
        assert await store.records.pending() == {0: 2, 7: 1, 8: 1, 99: 1, 100: 1, 255: 3}
        await take(store, limit=3)
        assert await store.records.pending() == {0: 2, 7: 1, 8: 1, 99: 1, 100: 1, 255: 3}

    @played
    async def test_the_backlog_counts_leases_that_stand(self) -> None:
        store = await self.opened()
        await insert(store, *[event() for _ in range(3)])
        first, *_ = await take(store, limit=2)
        assert (await store.records.backlog()).leased == 2
        self.change(first.event.event_id, lease_until=self.now() - 1)
        assert (await store.records.backlog()).leased == 1

    @played
    async def test_the_backlog_tells_how_long_the_oldest_has_been_due(self) -> None:
        store = await self.opened()
        await insert(store, event(deliver_after="1h"))
        assert (await store.records.backlog()).oldest_due == timedelta(0)
        late = event()
        await insert(store, late, event())
        self.change(late.event_id, available_at=self.now() - 90 * SECOND, created_at=self.now() - HOUR)
        assert timedelta(seconds=90) <= (await store.records.backlog()).oldest_due < timedelta(seconds=150)
