"""The contract of insert: what is written is what was given, and all times are the database's."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from aftercommit.claims import DeadFilter, NewEvent, RowKey
from aftercommit.codec import encode_headers
from aftercommit.event import EventEnvelope, EventStatus
from aftercommit.outcome import DONE, Dead, Defer, Retry
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, LEASE, SECOND, event, ids, insert, lease_of, settle, take, take_one

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)

MEGABYTE = 1_048_576

#: Payloads that a database or a driver would like to tidy up.
PAYLOADS: dict[str, str | bytes] = {
    "key order": '{"z": 1, "a": 2, "m": 3}',
    "duplicate keys": '{"a": 1, "a": 2}',
    "white space": ' {\t"a" :\r\n [ 1 , 2 ] } ',
    "a number of 64 bits": '{"n": 9223372036854775808}',
    "a number of 40 digits": '{"n": 1234567890123456789012345678901234567890}',
    "numbers with zeros": "[1.0, 1.10, 1e2, -0, 0.1000000000000000055]",
    "escapes": r'{"a": "\u00e9\n\/\"\\\u0000\ud83d\ude00"}',
    "emoji": '{"a": "😀 é 漢字 \u2028"}',
    "null": "null",
    "text": '"just text"',
    "1 MiB of text": '"' + "é" * ((MEGABYTE - 2) // 2) + '"',
    "no bytes": b"",
    "bytes that are no text": bytes(range(256)),
    "bytes that are text": '{"a": "é"}'.encode(),
    "NUL bytes": b"\x00a\x00\x00",
    "1 MiB of bytes": (bytes(range(256)) * 4096),
}


def of(payload: str | bytes) -> EventEnvelope:
    return event(payload_json=payload) if isinstance(payload, str) else event(payload_bytes=payload)


class WritingContract(StoreHooks):
    """Rows as they are born."""

    @played
    async def test_an_event_is_born_new_and_free(self) -> None:
        """TC-080"""
        store = await self.opened()
        await insert(store, event())
        row = self.row()
        assert (row["status"], row["attempts"], row["abandoned"]) == (EventStatus.NEW, 0, 0)
        assert (row["locked_by"], row["locked_at"], row["lease_until"], row["lease_epoch"]) == (None, None, None, 0)
        assert (row["done_at"], row["last_error"], row["done_handlers"]) == (None, None, None)

    @played
    async def test_every_field_has_its_column(self) -> None:
        """TC-081"""
        store = await self.opened()
        given = event(
            "OrderPlaced",
            event_id="01HZZZZZZZZZZZZZZZZZZZZZZZ",
            payload_json='{"id": 7}',
            occurred_at=NOON,
            aggregate_type="Order",
            aggregate_id="7",
            tenant_id="acme",
            key="customer-9",
            headers={"b": "2", "a": "1"},
            available_at=NOON + timedelta(hours=1),
        )
        await store.executor.transact(lambda tx: store.insert(tx, [NewEvent(given, 201, handler_id="mail")]))
        row = self.row()
        stored = {name: row[name] for name in row if name not in ("position", "created_at")}
        assert stored == {
            "event_id": "01HZZZZZZZZZZZZZZZZZZZZZZZ",
            "handler_id": "mail",
            "event_type": "OrderPlaced",
            "aggregate_type": "Order",
            "aggregate_id": "7",
            "tenant_id": "acme",
            "event_key": "customer-9",
            "partition_no": 201,
            "payload": '{"id": 7}',
            "payload_bytes": None,
            "content_type": "application/json",
            "payload_version": 1,
            "headers": '{"b":"2","a":"1"}',
            "done_handlers": None,
            "status": 0,
            "attempts": 0,
            "abandoned": 0,
            "occurred_at": micros(NOON),
            "scheduled_at": micros(NOON + timedelta(hours=1)),
            "available_at": micros(NOON + timedelta(hours=1)),
            "done_at": None,
            "last_error": None,
            "locked_by": None,
            "locked_at": None,
            "lease_until": None,
            "lease_epoch": 0,
        }

    @played
    async def test_what_was_written_is_what_is_claimed(self) -> None:
        """TC-082"""
        store = await self.opened()
        headers = {"é": "漢", "empty": ""}
        given = event(occurred_at=NOON, aggregate_type="Order", aggregate_id=7, tenant_id="acme", headers=headers)
        await insert(store, given)
        claimed = await take_one(store)
        assert claimed.event == given
        assert dict(claimed.event.headers) == headers
        assert claimed.event.occurred_at == NOON
        assert claimed.created_at is not None
        assert micros(claimed.created_at) == self.row()["created_at"]

    @pytest.mark.parametrize("name", PAYLOADS)
    @played
    async def test_a_payload_keeps_its_bytes(self, name: str) -> None:
        """Promise 12, for whatever a database would tidy up."""
        payload = PAYLOADS[name]
        store = await self.opened()
        await insert(store, of(payload))
        stored = self.row()
        assert (stored["payload"], stored["payload_bytes"]) == (
            (payload, None) if isinstance(payload, str) else (None, payload)
        )
        claimed = await take_one(store)
        assert type(claimed.event.payload) is type(payload)
        assert claimed.event.payload == payload
        assert await settle(store, claimed.lease, Dead("seen"))
        assert [dead.payload for dead in await store.records.query_dead(DeadFilter(), 10)] == [payload]

    @played
    async def test_the_envelope_is_the_same_on_every_redelivery(self) -> None:
        """Promise 12: after a retry, a deferral, a takeover and a replay, for each kind of schedule."""
        store = await self.opened()
        given = [
            event(
                payload_json='{"z":1,"a":[1.0]}', headers={"b": "2", "a": "1"}, aggregate_type="Order", aggregate_id=7
            ),
            event(payload_bytes=b"\x00\xff", deliver_after="1h"),
            event(occurred_at=NOON, available_at=NOON + timedelta(microseconds=1)),
        ]
        await insert(store, *given)
        for step in (Retry(timedelta(hours=1), "no"), Defer(timedelta(hours=2)), None, Dead("no"), None, DONE):
            self.fall_due()
            self.expire()
            seen = await take(store)
            assert [each.event for each in seen] == given
            for each in seen:
                if step is not None:
                    assert await settle(store, each.lease, step)
                if isinstance(step, Dead):
                    assert await store.records.replay(each.event.event_id, None) == 1

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

    # ------------------------------------------------------------ when

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
            patched.setattr("aftercommit.event.datetime", clock_at(wrong))
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

    # ------------------------------------------------------------ many

    @pytest.mark.parametrize("count", [0, 1, 5, 510])
    @played
    async def test_a_batch_of_any_size_is_written_in_order(self, count: int) -> None:
        """TC-102"""
        store = await self.opened()
        given = [event(f"T{number}", payload_json=str(number)) for number in range(count)]
        await insert(store, *given)
        rows = self.rows()
        assert [(row["event_id"], row["event_type"], row["payload"]) for row in rows] == [
            (each.event_id, each.event_type, each.payload) for each in given
        ]
        assert ids(await take(store, limit=1000)) == ids(given)

    @played
    async def test_positions_grow_and_are_never_used_again(self) -> None:
        """TC-488: within one tick of the clock the order is that of writing."""
        store = await self.opened()
        first, second, third = event(key="k"), event(key="k"), event(key="k")
        await insert(store, first, second)
        used = [row["position"] for row in self.rows()]
        for claimed in await take(store):
            assert await settle(store, claimed.lease, DONE)
        self.change(done_at=0)
        assert await store.records.purge(LEASE, dead=False, limit=10) == 2
        await insert(store, third)
        assert used == sorted(used)
        assert self.row()["position"] > max(used)

    @pytest.mark.parametrize("count", [3, 600])
    @played
    async def test_a_batch_with_a_duplicate_writes_nothing(self, count: int) -> None:
        """The caller may catch the error and commit the rest."""
        store = await self.opened()
        kept = event()
        batch = [event() for _ in range(count)]

        async def work(tx: Any) -> None:
            await store.insert(tx, [NewEvent(kept, 0)])
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                await store.insert(tx, [NewEvent(each, 0) for each in (*batch, batch[0])])

        await store.executor.transact(work)
        assert [row["event_id"] for row in self.rows()] == [kept.event_id]

    @played
    async def test_one_event_has_one_row_for_each_handler(self) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given, handler_id="mail")
        await insert(store, given, handler_id="stock")
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            await insert(store, given, handler_id="mail")
        claimed = await take(store)
        assert [each.lease.key for each in claimed] == [(given.event_id, "mail"), (given.event_id, "stock")]

    # ------------------------------------------------------------ leased

    @played
    async def test_an_event_with_an_owner_is_born_leased(self) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given, owner="alice")
        row = self.row()
        assert (row["locked_by"], row["lease_epoch"], row["status"]) == ("alice", 1, EventStatus.NEW)
        assert row["locked_at"] == row["created_at"]
        assert row["lease_until"] - row["locked_at"] == LEASE // timedelta(microseconds=1)
        assert await take(store, "bob") == []
        assert await settle(store, lease_of(given.event_id, "alice", 1), DONE)

    @played
    async def test_a_lease_from_birth_that_ran_out_is_taken_over(self) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given, owner="alice")
        self.expire()
        taken = await take_one(store, "bob")
        assert (taken.lease.epoch, taken.is_suspect) == (2, True)
        assert not await settle(store, lease_of(given.event_id, "alice", 1), DONE)

    # ------------------------------------------------------------ undone

    @played
    async def test_a_transaction_tells_which_of_its_rows_survive(self) -> None:
        store = await self.opened()
        kept, undone, other = event(), event(), event()
        await insert(store, other)
        opened = await store.executor.begin()
        try:
            await store.insert(opened, [NewEvent(kept, 0), NewEvent(other, 0, handler_id="mail")])
            await opened.savepoint("s")
            await store.insert(opened, [NewEvent(undone, 0)])
            keys = [RowKey(kept.event_id, ""), RowKey(undone.event_id, ""), RowKey(other.event_id, "mail")]
            assert set(await store.surviving(opened, keys)) >= set(keys)
            await opened.rollback_to("s")
            surviving = set(await store.surviving(opened, keys))
            assert surviving & set(keys) == {keys[0], keys[2]}
            assert set(await store.surviving(opened, [])) == set()
            await opened.commit()
        finally:
            await opened.end()
        assert [row["event_id"] for row in self.rows()] == [other.event_id, kept.event_id, other.event_id]


def micros(value: datetime) -> int:
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def clock_at(moment: datetime) -> type[datetime]:
    """The class `datetime` in a process whose clock stands at that moment."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return moment.astimezone(tz)

    return Wrong
