"""The contract of names: tables and schemas of any plain name, words of SQL too; nothing else gets near a statement."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import NewEvent, RowKey, Settlement
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.events.records import EventFilter
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import played
from aftercommit.testing.kit import LEASE, event, ids, insert, settle, settle_in, take, take_one
from aftercommit.testing.sql import SqlHooks

#: Plain identifiers that only quotes make into names.
WORDS = ["order", "user", "select", "MixedCase", "_x1"]

#: What must never be part of a name.
REFUSED = ["", 'a"b', "a'b", "a`b", "a]b", "a.b", "a b", "a;--", "1a", "a\x00b", "é", "x" * 49, 'x"; DROP TABLE y; --']

NOW = timedelta(0)

#: An age that every row has.
NOT_YET = timedelta(seconds=-1)


async def walk(store: EventStore) -> None:
    """Every statement that a store has, once."""
    records, every = store.records, EventFilter()
    kinds: list[Outcome] = [DONE, Retry(NOW, "r"), Dead("d"), Defer(NOW), RELEASE]
    given = [event() for _ in kinds]
    await insert(store, given[0])
    await insert(store, *given[1:])
    claimed = await take(store)
    assert ids(claimed) == ids(given)
    assert len(await store.renew([row.lease for row in claimed], LEASE)) == len(kinds)
    assert await store.mark_suspect(claimed[0].lease)
    assert not await store.settle([Settlement(row.lease, kind) for row, kind in zip(claimed, kinds, strict=True)])
    assert not await settle(store, claimed[0].lease, DONE)
    assert (await records.count_dead(every), ids(await records.query_dead(every, 5))) == (1, [given[2].event_id])
    assert await records.replay(given[2].event_id, None) == 1
    again = await take(store)
    assert ids(again) == ids(given[1:])
    assert await settle_in(store, again[0].lease, "mail")
    assert not await store.settle([Settlement(row.lease, Dead("d")) for row in again])
    assert (await records.backlog()).dead == 4
    assert (await records.replay_after(every, 0, 2))[0] == 2
    assert await records.discard(given[4].event_id, None, "by hand") == 1
    opened = await store.begin()
    try:
        late = event(deliver_after="1h")
        await store.insert(opened, [NewEvent(late, 0)])
        assert set(await store.surviving(opened, [RowKey(late.event_id, "")])) == {(late.event_id, "")}
        await opened.commit()
    finally:
        await opened.end()
    assert [await records.purge(NOT_YET, dead=dead, limit=9) for dead in (False, True)] == [2, 1]
    assert (await records.backlog()).new == 3
    assert await records.purge_aged(NOT_YET, limit=9) == 3


class NamingContract(SqlHooks):
    """Where the rows are."""

    @pytest.mark.parametrize("word", WORDS)
    @played
    async def test_a_table_may_have_any_plain_name(self, word: str) -> None:
        """TC-202: whatever the word means in SQL, in every statement."""
        await walk(await self.opened(table=word))

    @played
    async def test_completed_rows_are_deleted_from_a_table_of_any_name(self) -> None:
        store = await self.opened(table="order", delete_completed=True)
        await insert(store, event())
        assert await settle_in(store, (await take_one(store)).lease)
        assert await store.records.purge_aged(NOT_YET, limit=9) == 0, "it is gone"

    @pytest.mark.parametrize("word", REFUSED, ids=repr)
    def test_a_table_with_another_name_is_refused(self, word: str) -> None:
        """TC-202: before anything is asked of the database."""
        with pytest.raises(InvalidOption, match="table is"):
            self.make_store(table=word)

    @played
    async def test_a_schema_may_have_any_plain_name(self) -> None:
        """A table of the same name elsewhere is another table. A database without schemas refuses the option."""
        if not self.has_schemas:
            with pytest.raises(InvalidOption, match="schema"):
                self.make_store(schema="Order")
            return
        self.make_schema("Order")
        await walk(await self.opened(schema="Order", table="select"))
        store, plain = await self.opened(schema="Order"), await self.opened()
        await insert(store, event())
        assert await take(plain) == []
        assert self.rows() == []
        assert len(await take(store)) == 1

    @pytest.mark.parametrize("word", REFUSED, ids=repr)
    def test_a_schema_with_another_name_is_refused(self, word: str) -> None:
        with pytest.raises(InvalidOption, match="schema"):
            self.make_store(schema=word)
