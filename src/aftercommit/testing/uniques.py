"""The contract of unique keys: an event is not written while another one that is not done has its unique key."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.outcome import DONE, Defer
from aftercommit.events.records import EventFilter
from aftercommit.ports import EventStore, OpenTransaction
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import LEASE, SECOND, event, ids, settle, take, take_one, together
from aftercommit.testing.writing import committed


async def write(store: EventStore, *events: EventEnvelope) -> list[str]:
    """In a transaction of their own; the ids of those that were not written."""
    opened = await store.begin()
    try:
        refused = await add(store, opened, *events)
        await opened.commit()
        return refused
    finally:
        await opened.end()


async def add(store: EventStore, opened: OpenTransaction, *events: EventEnvelope) -> list[str]:
    inserted = await store.insert_unique(opened, [NewEvent(each, 7) for each in events])
    refused = list(inserted.refused)
    assert set(refused) <= {RowKey(each.event_id, "") for each in events}
    return [key.event_id for key in refused]


class UniquesContract(StoreHooks):
    """What a store promises more whose `capabilities.unique_keys` is true."""

    async def unique_store(self, **options: Any) -> EventStore:
        store = await self.opened(**{"delete_completed": False, **options})
        if not store.capabilities.unique_keys:
            pytest.skip("this store keeps no unique keys")
        return store

    def written(self) -> list[str]:
        return [row["event_id"] for row in self.rows()]

    # ------------------------------------------------------------ until it is done

    @pytest.mark.parametrize("status", list(EventStatus))
    @played
    async def test_a_unique_key_is_free_when_its_event_has_ended(self, status: EventStatus) -> None:
        store = await self.unique_store()
        first, second = event(unique_key="k"), event(unique_key="k")
        assert await write(store, first) == []
        self.change(first.event_id, status=status, done_at=self.now() if status in (1, 3) else None)
        is_over = status in (EventStatus.DONE, EventStatus.DEAD)
        assert await write(store, second) == ([] if is_over else [second.event_id])
        assert self.written() == [first.event_id, *([second.event_id] if is_over else [])]

    @pytest.mark.parametrize("is_deleted", [False, True], ids=["kept", "deleted"])
    @played
    async def test_an_event_has_its_key_from_its_write_to_its_end(self, is_deleted: bool) -> None:
        """While it waits, is held, was put off and is held again; also when what is done is deleted."""
        store = await self.unique_store(delete_completed=is_deleted)
        given = event(unique_key="k")
        assert await write(store, given) == []
        lease = (await take_one(store)).lease
        assert len(await write(store, event(unique_key="k"))) == 1, "while it is held"
        assert await settle(store, lease, Defer(LEASE))
        assert len(await write(store, event(unique_key="k"))) == 1, "while it waits again"
        self.fall_due()
        claimed = await take_one(store)
        assert claimed.event == given
        assert claimed.event.unique_key == "k"
        assert len(await write(store, event(unique_key="k"))) == 1
        assert await settle(store, claimed.lease, DONE)
        assert await write(store, event(unique_key="k")) == []

    @played
    async def test_a_cancelled_event_gives_its_key_back(self) -> None:
        store = await self.unique_store()
        given = event(unique_key="k", deliver_after="1h")
        assert await write(store, given) == []
        assert await store.records.cancel(given.event_id, None) == 1
        assert await write(store, event(unique_key="k")) == []

    @pytest.mark.parametrize("keys", [("a", "A"), ("a", "a "), ("e", "é"), ("x" * 255, "x" * 254 + "y")], ids=repr)
    @played
    async def test_keys_are_told_apart_by_every_character(self, keys: tuple[str, str]) -> None:
        store = await self.unique_store()
        assert await write(store, event(unique_key=keys[0]), event(unique_key=keys[1])) == []
        assert await write(store, event(unique_key=keys[1])) != []
        assert [each.event.unique_key for each in await take(store)] == list(keys)

    # ------------------------------------------------------------ in a batch

    @played
    async def test_of_a_batch_only_the_taken_ones_are_left_out(self) -> None:
        """In order; the second of two with one key is one of them."""
        store = await self.unique_store()
        assert await write(store, event(unique_key="taken")) == []
        before = self.written()
        batch = [
            event(),
            event(unique_key="taken"),
            event(unique_key="new", payload_bytes=b"\x00'"),
            event(),
            event(unique_key="new"),
        ]
        assert await write(store, *batch) == [batch[1].event_id, batch[4].event_id]
        assert self.written() == [*before, *ids([batch[0], batch[2], batch[3]])]
        assert ids(await take(store)) == self.written()

    @pytest.mark.parametrize("count", [1, 3])
    @played
    async def test_another_error_is_not_taken_for_it_and_leaves_nothing(self, count: int) -> None:
        """An id that is there already is an error, whatever its unique key."""
        store = await self.unique_store()
        given = event(unique_key="a")
        assert await write(store, given) == []
        batch = [*(event(unique_key=str(number)) for number in range(count - 1)), given.replace(unique_key="b")]
        opened = await store.begin()
        try:
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                await add(store, opened, *batch)
            await committed(opened)
        finally:
            await opened.end()
        assert self.written() == [given.event_id]

    @played
    async def test_an_event_with_a_key_may_be_born_leased(self) -> None:
        store = await self.unique_store()
        first, second = event(unique_key="k"), event(unique_key="k")
        opened = await store.begin()
        try:
            new = [NewEvent(each, 7, "alice", LEASE) for each in (first, second)]
            inserted = await store.insert_unique(opened, new)
            await opened.commit()
        finally:
            await opened.end()
        assert list(inserted.refused) == [RowKey(second.event_id, "")]
        assert (self.row()["locked_by"], self.row()["lease_epoch"]) == ("alice", 1)
        assert self.row()["lease_until"] > self.now() + SECOND

    # ------------------------------------------------------------ undone

    @played
    async def test_what_is_rolled_back_has_had_no_key(self) -> None:
        store = await self.unique_store()
        opened = await store.begin()
        try:
            assert await add(store, opened, event(unique_key="k")) == []
            assert len(await add(store, opened, event(unique_key="k"))) == 1, "nor twice in one transaction"
        finally:
            await opened.end()
        assert self.rows() == []
        assert await write(store, event(unique_key="k")) == []

    @played
    async def test_a_savepoint_gives_the_keys_back_that_it_took(self) -> None:
        store = await self.unique_store()
        if not store.capabilities.has_savepoints:
            pytest.skip("this store has no savepoints")
        kept = event(unique_key="k")
        opened = await store.begin()
        try:
            await opened.savepoint("inner")
            assert await add(store, opened, event(unique_key="k")) == []
            await opened.rollback_to("inner")
            assert await add(store, opened, kept) == []
            await opened.commit()
        finally:
            await opened.end()
        assert self.written() == [kept.event_id]

    # ------------------------------------------------------------ two at once

    @pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled back"])
    @pytest.mark.parametrize("count", [1, 2], ids=["one", "a batch"])
    @played
    async def test_the_second_of_two_transactions_waits_for_the_first(self, is_kept: bool, count: int) -> None:
        store = await self.unique_store()
        first, second = event(unique_key="k"), event(unique_key="k")
        batch = [event() for _ in range(count - 1)]
        refused: list[str] = []

        async def late() -> None:
            refused.extend(await write(store, *batch, second))

        opened = await store.begin()

        async def early() -> None:
            try:
                if is_kept:
                    await opened.commit()
            finally:
                await opened.end()

        try:
            assert await add(store, opened, first) == []
        except BaseException:
            await opened.end()
            raise
        await together(store.colour, late, early)
        assert refused == ([second.event_id] if is_kept else [])
        assert set(self.written()) == {*ids(batch), first.event_id if is_kept else second.event_id}

    @played
    async def test_of_many_at_once_one_is_written(self) -> None:
        store = await self.unique_store()
        refused: list[str] = []

        async def one(given: EventEnvelope) -> None:
            refused.extend(await write(store, given))

        given = [event(unique_key="k") for _ in range(4)]
        await together(store.colour, *(lambda each=each: one(each) for each in given))
        assert len(refused) == 3
        assert set(self.written()) == {each.event_id for each in given} - set(refused)

    # ------------------------------------------------------------ again

    @played
    async def test_a_replay_takes_no_key_that_another_event_has(self) -> None:
        store = await self.unique_store()
        dead, other, held = event(unique_key="k"), event(), event(unique_key="k")
        assert await write(store, dead, other) == []
        for each in (dead, other):
            self.change(each.event_id, status=3, attempts=9, done_at=self.now())
        assert await write(store, held) == []
        assert await store.records.replay(dead.event_id, None) == 0
        assert await self.replayed_all(store) == 1
        assert [row["status"] for row in self.rows()] == [EventStatus.DEAD, EventStatus.NEW, EventStatus.NEW]
        assert await store.records.cancel(held.event_id, None) == 1
        assert await store.records.replay(dead.event_id, None) == 1
        assert await store.records.replay_done(held.event_id, None) == 0, "now the other one has it"
        assert [row["status"] for row in self.rows()] == [EventStatus.NEW, EventStatus.NEW, EventStatus.DONE]

    @played
    async def test_of_dead_events_with_one_key_the_first_is_replayed(self) -> None:
        store = await self.unique_store()
        given = [event(unique_key="k") for _ in range(3)]
        for each in given:
            assert await write(store, each) == []
            self.change(each.event_id, status=3, done_at=self.now())
        last = event()
        assert await write(store, last) == []
        self.change(last.event_id, status=3, done_at=self.now())
        assert await self.replayed_all(store, limit=2) == 2, "the page behind it, too"
        assert [row["status"] for row in self.rows()] == [0, 3, 3, 0]
        assert [record.unique_key for record in await store.records.query_dead(EventFilter(), 9)] == ["k", "k"]

    async def replayed_all(self, store: EventStore, limit: int = 100) -> int:
        total, place = 0, 0
        while True:
            count, last = await store.records.replay_after(EventFilter(), place, limit)
            total += count
            if last is None:
                return total
            place = last
