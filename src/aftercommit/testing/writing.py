"""The contract of insert: every field has its column, and a batch is written in order, whole or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE
from aftercommit.ports import OpenTransaction
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import (
    LEASE,
    NOON,
    event,
    ids,
    insert,
    lease_of,
    micros,
    settle,
    take,
    take_one,
    write_rows,
)


class WritingContract(StoreHooks):
    """Rows as they are born."""

    @played
    async def test_a_store_says_what_it_is(self) -> None:
        """Nobody tries it out: what it says is believed."""
        store = await self.opened()
        assert store.is_ready
        assert store.where
        assert store.capabilities.wakes_others is (store.wakeups is not None)
        assert store.requires_active_transaction is store.capabilities.needs_transaction
        assert store.adopt(object()) is None, "no connection that it knows"

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
        await write_rows(store, [NewEvent(given, 201, handler_id="mail")])
        row = self.row()
        stored = {name: row[name] for name in row if name not in ("position", "created_at", "unique_key")}
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

    @pytest.mark.parametrize("letter", ["x", "é", "😀"])
    @played
    async def test_the_longest_names_are_kept_whole(self, letter: str) -> None:
        """Limits are in characters, whatever a character costs."""
        store = await self.opened()
        given = event(
            letter * 128,
            event_id=letter * 36,
            aggregate_type=letter * 64,
            aggregate_id=letter * 128,
            tenant_id=letter * 64,
            key=letter * 255,
            content_type=letter * 128,
            payload_version=2**31 - 1,
        )
        await insert(store, given, handler_id=letter * 255)
        claimed = await take_one(store, letter * 128)
        assert claimed.event == given
        assert (claimed.lease.key, claimed.lease.owner) == (RowKey(letter * 36, letter * 255), letter * 128)
        assert await settle(store, claimed.lease, DONE)

    @pytest.mark.parametrize(
        "others", [("A", "a ", "á"), ("\u00e9", "e\u0301", "e"), ("ß", "ss"), ("😀", "😁")], ids=repr
    )
    @played
    async def test_names_that_differ_by_a_byte_are_different(self, others: tuple[str, ...]) -> None:
        """Case, accents and blanks at the end, which a collation may pass over."""
        store = await self.opened()
        names = ("a", *others)
        await insert(store, *[event(event_id=name, key=name) for name in names], handler_id="h")
        for name in names[1:]:
            await insert(store, event(event_id="same"), handler_id=name)
        claimed = await take(store, "a")
        assert [each.event.key for each in claimed][: len(names)] == list(names)
        assert not await settle(store, lease_of("a", others[0], 1, "h"), DONE), "the owner is another"
        assert await settle(store, lease_of("a", "a", 1, "h"), DONE)
        assert [row["event_id"] for row in self.rows() if row["status"] == EventStatus.DONE] == ["a"]

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
        """The caller may catch the error. A database that then cannot commit the rest says so at the commit."""
        store = await self.opened()
        kept = event()
        batch = [event() for _ in range(count)]
        opened = await store.begin()
        try:
            await store.insert(opened, [NewEvent(kept, 0)])
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                await store.insert(opened, [NewEvent(each, 0) for each in (*batch, batch[0])])
            is_committed = await committed(opened)
        finally:
            await opened.end()
        assert [row["event_id"] for row in self.rows()] == ([kept.event_id] if is_committed else [])

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
        """Through savepoints that are kept and undone, one inside the other."""
        store = await self.opened()
        if not store.capabilities.has_savepoints:
            pytest.skip("this store has no savepoints")
        kept, inner, undone, other = (event() for _ in range(4))
        await insert(store, other)
        keys = [RowKey(each.event_id, "") for each in (kept, inner, undone)] + [RowKey(other.event_id, "mail")]
        opened = await store.begin()
        try:
            await store.insert(opened, [NewEvent(kept, 0), NewEvent(other, 0, handler_id="mail")])
            await opened.savepoint("outer")
            await opened.savepoint("inner")
            await store.insert(opened, [NewEvent(inner, 0)])
            await opened.release("inner")
            assert set(await store.surviving(opened, keys)) & set(keys) == {keys[0], keys[1], keys[3]}
            await opened.savepoint("inner")
            await store.insert(opened, [NewEvent(undone, 0)])
            assert set(await store.surviving(opened, keys)) >= set(keys)
            await opened.rollback_to("inner")
            assert set(await store.surviving(opened, keys)) & set(keys) == {keys[0], keys[1], keys[3]}
            await opened.rollback_to("outer")
            assert set(await store.surviving(opened, keys)) & set(keys) == {keys[0], keys[3]}
            assert set(await store.surviving(opened, [])) == set()
            await opened.commit()
        finally:
            await opened.end()
        assert [row["event_id"] for row in self.rows()] == [other.event_id, kept.event_id, other.event_id]

    @played
    async def test_many_rows_survive_at_once(self) -> None:
        store = await self.opened()
        given = [event() for _ in range(500)]
        keys = {RowKey(each.event_id, "") for each in given}
        opened = await store.begin()
        try:
            await store.insert(opened, [NewEvent(each, 0) for each in given])
            assert set(await store.surviving(opened, [*keys, RowKey("unknown", "")])) == keys
        finally:
            await opened.end()
        assert self.rows() == [], "a transaction that ends without a commit leaves nothing"


async def committed(opened: OpenTransaction) -> bool:
    """Whether the database took the commit."""
    try:
        await opened.commit()
    except Exception:
        return False
    return True
