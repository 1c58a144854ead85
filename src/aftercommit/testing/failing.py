"""The contract of the failures: why deliveries failed, kept beside the rows, written with the outcomes."""

from __future__ import annotations

import pytest

from aftercommit.events.claims import Settlement
from aftercommit.events.outcome import DONE, Dead, FailureNote, Outcome, Retry
from aftercommit.events.records import EventFilter, Failure
from aftercommit.ports import EventStore
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, event, insert, micros, settle, take, take_one
from aftercommit.testing.settling import MINUTE, WORDS


def retry(*notes: FailureNote) -> Retry:
    return Retry(MINUTE, "again", failures=notes)


def dead(*notes: FailureNote) -> Dead:
    return Dead("no use", failures=notes)


def note(attempt: int = 1, message: str = "no") -> FailureNote:
    return FailureNote(attempt, "mail", "ValueError", message, f"Traceback …\n{message}")


def told(failures: list[Failure]) -> list[tuple[int, str]]:
    return [(each.attempt, each.message) for each in failures]


class FailuresContract(StoreHooks):
    """The last errors of rows."""

    async def fail(self, store: EventStore, outcome: Outcome) -> None:
        """Of the one row there is, whenever it is due."""
        self.fall_due()
        assert await settle(store, (await take_one(store)).lease, outcome)

    @played
    async def test_a_failure_is_written_down_with_its_outcome(self) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given)
        before = self.now()
        await self.fail(store, retry(FailureNote(1, "mail", "ValueError", "no", "Traceback …")))
        await self.fail(store, dead(FailureNote(0, "", "WorkerLost", "gone")))
        first, second = await store.records.failures(given.event_id, None)
        assert (first.event_id, first.handler_id, first.attempt, first.handler) == (given.event_id, "", 1, "mail")
        assert (first.instance, first.error_class, first.message) == ("alice", "ValueError", "no")
        assert (first.traceback, second.traceback) == ("Traceback …", None)
        assert (second.attempt, second.handler, second.error_class) == (0, "", "WorkerLost")
        assert before <= micros(first.failed_at) <= micros(second.failed_at) <= self.now()
        assert await store.records.failures("unknown", None) == []

    @played
    async def test_any_words_of_a_failure_are_kept_as_they_are(self) -> None:
        store = await self.opened()
        texts = [*WORDS, "x" * 8000, "\n" * 8000, "😀" * 8000]
        given = [event() for _ in texts]
        await insert(store, *given)
        notes = [FailureNote(1, "mail", "ValueError", text[:4000], text) for text in texts]
        claimed = await take(store)
        assert not await store.settle(
            [Settlement(each.lease, retry(kept)) for each, kept in zip(claimed, notes, strict=True)]
        )
        for each, text in zip(given, texts, strict=True):
            (found,) = await store.records.failures(each.event_id, None)
            assert (found.message, found.traceback) == (text[:4000], text)

    @played
    async def test_the_last_ten_failures_of_a_row_are_kept_also_over_replays(self) -> None:
        store = await self.opened()
        given = event()
        await insert(store, given)
        for number in range(1, 8):
            await self.fail(store, retry(note(number)))
        await self.fail(store, dead(note(8), note(8, "the fallback, too")))
        assert await store.records.replay(given.event_id, None) == 1
        wanted = [*((number, "no") for number in range(1, 9)), (8, "the fallback, too")]
        assert told(await store.records.failures(given.event_id, None)) == wanted
        for number in range(1, 5):
            await self.fail(store, retry(note(number, "again")))
            wanted.append((number, "again"))
            assert told(await store.records.failures(given.event_id, None)) == wanted[-10:]

    @played
    async def test_failures_of_a_group_go_to_their_rows(self) -> None:
        store = await self.opened()
        one, two = event(), event()
        await insert(store, one, two, handler_id="mail")
        await insert(store, one, handler_id="stock")
        outcomes = [Settlement(each.lease, retry(note(1, "/".join(each.lease.key)))) for each in await take(store)]
        assert not await store.settle(outcomes)
        failures = store.records.failures
        assert told(await failures(one.event_id, "mail")) == [(1, f"{one.event_id}/mail")]
        assert told(await failures(one.event_id, "stock")) == [(1, f"{one.event_id}/stock")]
        assert {each.handler_id for each in await failures(one.event_id, None)} == {"mail", "stock"}
        assert told(await failures(two.event_id, None)) == [(1, f"{two.event_id}/mail")]

    @played
    async def test_what_the_fence_refuses_leaves_no_failure(self) -> None:
        store = await self.opened()
        stale, held = event(), event()
        await insert(store, stale, held)
        old = {each.event.event_id: each.lease for each in await take(store)}
        self.change(stale.event_id, lease_until=self.now() - 1)
        assert len(await take(store, owner="bob")) == 1
        refused = await store.settle([Settlement(lease, retry(note())) for lease in old.values()])
        assert [key.event_id for key in refused] == [stale.event_id]
        assert await store.records.failures(stale.event_id, None) == []
        assert told(await store.records.failures(held.event_id, None)) == [(1, "no")]

    @pytest.mark.parametrize("way", ["done", "purged", "aged", "cancelled"])
    @played
    async def test_failures_go_with_their_row_and_with_no_other(self, way: str) -> None:
        store = await self.opened(delete_completed=way in ("done", "cancelled"))
        given = event()
        await insert(store, given, handler_id="stays")
        (other,) = await take(store)
        assert await settle(store, other.lease, dead(note(1, "stays")))
        await insert(store, given, handler_id="goes")
        assert await settle(store, (await take_one(store)).lease, retry(note(1, "goes")))
        self.fall_due()
        records = store.records
        assert len(await records.failures(given.event_id, None)) == 2
        if way == "cancelled":
            assert await records.cancel(given.event_id, None) == 1
        else:
            assert await settle(store, (await take_one(store)).lease, DONE)
        if way == "purged":
            self.change(done_at=self.now() - HOUR)  # some clocks count in milliseconds
            assert await records.purge(MINUTE, dead=False, limit=10) == 1
        if way == "aged":
            self.change(created_at=self.now() - HOUR)
            assert await records.purge_aged(MINUTE, limit=10) == 2
        assert await records.count_dead(EventFilter()) == (way != "aged")
        kept = [] if way == "aged" else [(1, "stays")]
        assert told(await records.failures(given.event_id, None)) == kept
        if way != "aged":
            await insert(store, given, handler_id="goes")  # what comes later under the same name begins anew
            assert told(await records.failures(given.event_id, "goes")) == []
