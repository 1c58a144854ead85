"""The contract of times: all that is due is due by the database's clock, whatever zone or clock anybody else has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from aftercommit.events.codec import encode_headers
from aftercommit.events.outcome import DONE, Retry
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, LEASE, NOON, SECOND, event, ids, insert, look, micros, settle, take, take_one

#: Offsets from UTC: quarters of hours, both sides, both ends.
ZONES = ["+05:45", "-03:30", "+13:00", "-12:00"]


class SchedulingContract(StoreHooks):
    """When a row is due."""

    @played
    async def test_an_event_without_a_schedule_is_due_when_it_is_created(self) -> None:
        """TC-099"""
        store = await self.opened()
        before = self.now()
        await insert(store, event(occurred_at=NOON))
        row = self.row()
        assert row["available_at"] == row["created_at"]
        assert before <= row["created_at"] <= self.now()
        assert (row["occurred_at"], row["scheduled_at"]) == (micros(NOON), None)

    @played
    async def test_an_explicit_time_is_taken_as_it_is(self) -> None:
        """TC-098"""
        store = await self.opened()
        at = datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        await insert(store, event(available_at=at))
        assert self.row()["available_at"] == micros(at)

    @pytest.mark.parametrize("year", [1971, 2999])
    @played
    async def test_a_delay_is_added_to_the_clock_of_the_database(
        self, year: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Promise 13: whatever the application's clock says."""
        store = await self.opened()
        wrong = datetime(year, 1, 1, tzinfo=UTC)
        with monkeypatch.context() as patched:
            patched.setattr("aftercommit.events.envelope.datetime", clock_at(wrong))
            patched.setattr(time, "time", wrong.timestamp)
            patched.setattr(time, "time_ns", lambda: int(wrong.timestamp()) * 10**9)
            delayed, immediate = event(deliver_after="1h"), event()
            await insert(store, delayed, immediate)
        assert delayed.occurred_at == immediate.occurred_at == wrong
        late, now = self.rows()
        assert late["available_at"] - late["created_at"] == HOUR
        assert now["available_at"] == now["created_at"]
        assert abs(late["created_at"] - self.now()) < 60 * SECOND
        assert ids(await take(store)) == [immediate.event_id]

    @played
    async def test_each_event_of_a_batch_has_its_own_time_and_headers(self) -> None:
        """TC-100, TC-103"""
        store = await self.opened()
        await insert(store, event(deliver_after="1h", headers={"a": "1"}), event())
        late, soon = self.rows()
        assert late["available_at"] - late["created_at"] == HOUR
        assert soon["available_at"] == soon["created_at"]
        assert (late["headers"], soon["headers"]) == (encode_headers({"a": "1"}), None)

    @played
    async def test_a_delayed_event_is_found_when_its_time_has_come(self) -> None:
        """TC-095, TC-101, TC-113"""
        store = await self.opened()
        delayed, immediate = event(deliver_after="1h"), event()
        await insert(store, delayed, immediate)
        assert ids(await take(store)) == [immediate.event_id]
        self.change(delayed.event_id, available_at=self.now() - 1)
        assert ids(await take(store)) == [delayed.event_id]

    @played
    async def test_an_event_that_is_due_before_it_was_created_is_delivered(self) -> None:
        """TC-479: the clock of the writer was behind."""
        store = await self.opened()
        given = event(occurred_at=NOON, available_at=NOON)
        await insert(store, given)
        assert self.row()["available_at"] < self.row()["created_at"]
        assert (await take_one(store)).event == given

    @played
    async def test_a_schedule_survives_a_retry(self) -> None:
        """The wish stays beside the time that a retry sets."""
        store = await self.opened()
        given = event(occurred_at=NOON, deliver_after="1h")
        await insert(store, given)
        self.fall_due()
        assert await settle(store, (await take_one(store)).lease, Retry(timedelta(hours=5), "no"))
        row = self.row()
        assert row["scheduled_at"] == micros(NOON + timedelta(hours=1))
        assert row["available_at"] > self.now() + 4 * HOUR

    # ------------------------------------------------------------ zones

    async def zoned(self, zone: str, monkeypatch: pytest.MonkeyPatch) -> EventStore:
        """A store in that zone, in a process of that zone."""
        if hasattr(time, "tzset"):
            sign = "-" if zone[0] == "+" else "+"  # POSIX counts to the west
            monkeypatch.setenv("TZ", f"<odd>{sign}{zone[1:]}")
            time.tzset()
        return await self.opened(self.make_store_in_zone(zone))

    @pytest.fixture(autouse=True)
    def zone_of_this_process(self) -> Iterator[None]:
        yield
        if hasattr(time, "tzset"):
            time.tzset()

    @pytest.mark.parametrize("zone", ZONES)
    @played
    async def test_instants_are_the_same_in_every_zone(self, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """TC-501: written in one zone, seen in another."""
        odd, plain = await self.zoned(zone, monkeypatch), await self.opened()
        local = NOON.astimezone(timezone(timedelta(hours=-7)))
        for writer, reader in ((odd, plain), (plain, odd), (odd, odd)):
            given = event(occurred_at=local, available_at=local + timedelta(hours=1), headers={"a": "b"})
            before = self.now()
            await insert(writer, given)
            row = self.row(given.event_id)
            assert (row["occurred_at"], row["available_at"]) == (micros(NOON), micros(NOON) + HOUR)
            assert before <= row["created_at"] <= self.now()
            claimed = await take_one(reader)
            assert claimed.event == given
            assert claimed.created_at is not None
            assert micros(claimed.created_at) == row["created_at"]
            assert timedelta(0) <= claimed.age < timedelta(minutes=1)
            assert await settle(writer, claimed.lease, DONE)
            assert before <= self.row(given.event_id)["done_at"] <= self.now()

    @pytest.mark.parametrize("zone", ZONES)
    @played
    async def test_due_times_and_leases_are_the_same_in_every_zone(
        self, zone: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """TC-501: half a day between two sessions makes nothing due early, late, or free."""
        odd, plain = await self.zoned(zone, monkeypatch), await self.opened()
        for one, other in ((odd, plain), (plain, odd)):
            await insert(one, event(deliver_after="1h"), now := event())
            claimed = await take(other, "alice")
            assert ids(claimed) == [now.event_id]
            due = (await look(one, "bob")).next_due
            assert due is not None
            assert 3500 < due <= 3600
            before = self.now()
            assert set(await one.renew([claimed[0].lease], LEASE)) == {claimed[0].lease.key}
            assert before + 30 * SECOND <= self.row(now.event_id)["lease_until"] <= self.now() + 30 * SECOND
            assert await settle(other, claimed[0].lease, Retry(timedelta(minutes=30), "later"))
            assert await take(one, "bob") == []
            assert (await other.records.backlog()).oldest_due < timedelta(minutes=1)
            assert await one.records.purge_aged(timedelta(minutes=1), limit=10) == 0
            self.change(created_at=self.now() - HOUR)
            assert await other.records.purge_aged(timedelta(minutes=59), limit=10) == 2


def clock_at(moment: datetime) -> type[datetime]:
    """The class `datetime` in a process whose clock stands at that moment."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment.astimezone(tz)

    return Wrong
