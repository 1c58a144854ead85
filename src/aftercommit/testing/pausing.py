"""The contract of pauses: kept in the store, over on its clock, and rows that were put off come back when asked to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aftercommit.events.claims import Settlement
from aftercommit.events.outcome import Defer, Retry
from aftercommit.events.pauses import PUT_OFF_AT_MOST, PauseKey, PauseKind
from aftercommit.ports import EventStore, Pauses
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import event, insert, take

HANDLER = PauseKey(PauseKind.HANDLER, "send-receipt")
TYPE = PauseKey(PauseKind.TYPE, "OrderPlaced")
HOUR = timedelta(hours=1)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


class PausingContract(StoreHooks):
    """Asked only where `pauses` is not None."""

    def pauses_of(self, store: EventStore) -> Pauses:
        if store.pauses is None:
            pytest.skip("this store keeps no pauses")
        return store.pauses

    @played
    async def test_what_is_paused_stays_so_until_it_is_resumed(self) -> None:
        pauses = self.pauses_of(await self.opened())
        assert await pauses.all() == []
        await pauses.pause(TYPE, reason="a bug", by="ann", lasts=None, until=None)
        await pauses.pause(HANDLER, reason="", by="bob", lasts=HOUR, until=None)
        handler, kind = await pauses.all()
        assert (handler.key, handler.reason, handler.paused_by) == (HANDLER, "", "bob")
        assert (kind.key, kind.reason, kind.paused_by, kind.until, kind.ends_in) == (TYPE, "a bug", "ann", None, None)
        assert handler.until is not None
        assert handler.until - handler.paused_at == HOUR
        assert handler.ends_in is not None
        assert timedelta(0) <= handler.lasted < HOUR
        assert handler.ends_in + handler.lasted == HOUR
        assert await pauses.resume(TYPE)
        assert not await pauses.resume(TYPE)
        assert [each.key for each in await pauses.all()] == [HANDLER]

    @played
    async def test_again_tells_it_anew(self) -> None:
        pauses = self.pauses_of(await self.opened())
        await pauses.pause(TYPE, reason="first", by="ann", lasts=HOUR, until=None)
        await pauses.pause(TYPE, reason='it\'s "second"; –', by="bob", lasts=None, until=None)
        (found,) = await pauses.all()
        assert (found.reason, found.paused_by, found.until) == ('it\'s "second"; –', "bob", None)

    @played
    async def test_a_pause_is_over_on_the_stores_clock(self) -> None:
        pauses = self.pauses_of(await self.opened())
        await pauses.pause(TYPE, reason="", by="ann", lasts=None, until=LONG_AGO)
        assert await pauses.all() == []
        later = datetime.fromtimestamp(self.now() / 1_000_000, UTC) + HOUR
        await pauses.pause(TYPE, reason="", by="ann", lasts=None, until=later)
        (found,) = await pauses.all()
        assert found.until == later
        assert found.ends_in is not None
        assert timedelta(0) < found.ends_in <= HOUR

    @played
    async def test_what_was_put_off_is_due_when_it_is_hastened(self) -> None:
        """Of a type or for a handler; neither what is due much later, nor what nobody has tried, nor what is held."""
        store = await self.opened()
        pauses = self.pauses_of(store)
        soon, other, late = event("A"), event("B"), event("A")
        new, held = event("A", deliver_after=timedelta(minutes=1)), event("A")
        await insert(store, soon, other, late)
        near, far = PUT_OFF_AT_MOST / 2, 2 * PUT_OFF_AT_MOST
        waits = {soon.event_id: near, other.event_id: near, late.event_id: far}
        await store.settle(
            [Settlement(each.lease, Defer(waits[each.event.event_id])) for each in await take(store, limit=3)]
        )
        await insert(store, new, held)
        await take(store)
        before = {each.event_id: self.row(each.event_id)["available_at"] for each in (other, late, new, held)}
        assert await pauses.hasten("A", "nobody's") == 0
        assert await pauses.hasten("A", "") == 1
        assert self.row(soon.event_id)["available_at"] <= self.now()
        assert {each.event_id: self.row(each.event_id)["available_at"] for each in (other, late, new, held)} == before
        assert await pauses.hasten(None, None) == 1
        again = await take(store, limit=5)
        assert {each.event.event_id for each in again} == {soon.event_id, other.event_id}
        assert {self.row(each.event.event_id)["attempts"] for each in again} == {0}
        await store.settle([Settlement(again[0].lease, Retry(near, "no"))])
        assert await pauses.hasten(None, "") == 1, "a retry that is due soon, as well"
