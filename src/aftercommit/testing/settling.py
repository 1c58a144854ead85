"""The contract of settle: what each outcome writes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.events.claims import RowKey, Settlement
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Release, Retry
from aftercommit.events.records import EventFilter
from aftercommit.events.redact import MAX_ERROR_LENGTH, error_text
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, SECOND, event, insert, settle, take, take_one

MINUTE = timedelta(minutes=1)

#: Words that would break out of a statement, or that a store may carry inside another format.
WORDS = [
    "plain",
    "it's \"quoted\" 'twice'",
    "back\\slash \\n \\u0041 \\",
    "; DROP TABLE outbox_event; --",
    "?1 :name $1 %s {table}",
    "new\nline\ttab\r\x1b[31m\x7f",
    "😀 漢字 e\u0301 \u2028 \ufeff",
    "[1, null, {}]",
    "null",
    "123",
]


class SettlingContract(StoreHooks):
    """Outcomes as rows."""

    @played
    async def test_done_ends_the_row(self) -> None:
        """TC-083"""
        store = await self.opened()
        await insert(store, event())
        before = self.now()
        assert await settle(store, (await take_one(store)).lease, DONE)
        row = self.row()
        assert (row["status"], row["attempts"], row["last_error"]) == (EventStatus.DONE, 0, None)
        assert before <= row["done_at"] <= self.now()
        assert await take(store) == []

    @played
    async def test_retry_counts_keeps_the_error_and_waits(self) -> None:
        """TC-085"""
        store = await self.opened()
        await insert(store, event())
        before = self.now()
        assert await settle(store, (await take_one(store)).lease, Retry(MINUTE, "Connection failed"))
        row = self.row()
        assert (row["status"], row["attempts"], row["last_error"]) == (EventStatus.RETRY, 1, "Connection failed")
        assert before + 60 * SECOND <= row["available_at"] <= self.now() + 60 * SECOND
        assert row["done_at"] is None
        assert await take(store) == []

    @played
    async def test_attempts_are_counted_in_the_row(self) -> None:
        """TC-086, TC-470: on what is stored, whatever the claim saw."""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, Retry(timedelta(0), "one"))
        claimed = await take_one(store)
        assert claimed.attempts == 1
        self.change(attempts=5)
        assert await settle(store, claimed.lease, Retry(timedelta(0), "two"))
        assert self.row()["attempts"] == 6
        assert await settle(store, (await take_one(store)).lease, Dead("three"))
        assert (self.row()["attempts"], self.row()["status"]) == (7, EventStatus.DEAD)

    @pytest.mark.parametrize("limit", [None, 6, 7, 2**40])
    @played
    async def test_a_limit_is_judged_on_the_count_in_the_row(self, limit: int | None) -> None:
        """TC-470: whatever the claim saw, and in the step that counts."""
        store = await self.opened()
        await insert(store, event())
        claimed = await take_one(store)
        self.change(attempts=5)
        before = self.now()
        assert await settle(store, claimed.lease, Retry(timedelta(0), "no", limit=limit))
        row, is_over = self.row(), limit is not None and limit <= 6
        assert (row["attempts"], row["last_error"], row["locked_by"]) == (6, "no", None)
        assert row["status"] == (EventStatus.DEAD if is_over else EventStatus.RETRY)
        assert before <= row["done_at"] <= self.now() if is_over else row["done_at"] is None
        assert len(await take(store)) == (not is_over)
        dead = await store.records.query_dead(EventFilter(), 10)
        assert [each.attempts for each in dead] == ([6] if is_over else [])

    @pytest.mark.parametrize(("counted", "attempts"), [(True, 1), (False, 0)])
    @played
    async def test_dead_ends_the_row_with_its_error(self, counted: bool, attempts: int) -> None:
        """TC-088"""
        store = await self.opened()
        await insert(store, event())
        before = self.now()
        assert await settle(store, (await take_one(store)).lease, Dead("no use", counted))
        row = self.row()
        assert (row["status"], row["attempts"], row["last_error"]) == (EventStatus.DEAD, attempts, "no use")
        assert before <= row["done_at"] <= self.now()
        assert await take(store) == []

    @played
    async def test_defer_counts_nothing(self) -> None:
        """TC-096"""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, Retry(timedelta(0), "first"))
        assert await settle(store, (await take_one(store)).lease, Defer(MINUTE))
        row = self.row()
        assert (row["status"], row["attempts"], row["last_error"]) == (EventStatus.RETRY, 1, "first")
        assert row["available_at"] > self.now() + 50 * SECOND
        self.fall_due()
        assert (await take_one(store)).attempts == 1

    @played
    async def test_only_a_release_of_what_was_started_is_a_report(self) -> None:
        """A suspect that waited in vain is still suspected; one that close() interrupted did not kill its process."""
        store = await self.opened()
        await insert(store, event())
        for outcome, abandoned in ((RELEASE, 1), (Release(was_started=True), 0)):
            claimed = await take_one(store, "alice")
            if not claimed.abandoned:
                assert await store.mark_suspect(claimed.lease)
            assert await settle(store, claimed.lease, outcome)
            assert self.row()["abandoned"] == abandoned

    @played
    async def test_a_suspect_that_was_given_back_unstarted_stays_one(self) -> None:
        """Promise 4a: free for anybody at once, also for who gave it back, and with what was counted before."""
        store = await self.opened()
        await insert(store, event())
        await take(store, "gone")
        self.expire()
        for marked, abandoned in ((False, 0), (True, 0), (False, 2), (True, 2)):
            taken = await take_one(store, "alice")
            assert taken.is_suspect
            self.change(abandoned=abandoned)
            if marked:
                assert await store.mark_suspect(taken.lease)
            assert await settle(store, taken.lease, Release(is_suspect=True, was_marked=marked))
            assert self.row()["abandoned"] == abandoned
            assert not await store.renew([taken.lease], MINUTE), "it is nobody's"
        assert (await take_one(store, "bob")).is_suspect

    @played
    async def test_release_changes_the_lease_alone(self) -> None:
        """Free for anybody at once, under a new epoch."""
        store = await self.opened()
        await insert(store, event())
        before = self.row()
        claimed = await take_one(store, "alice")
        assert await settle(store, claimed.lease, RELEASE)
        assert self.row() == {**before, "lease_epoch": claimed.lease.epoch + 1}
        assert (await take_one(store, "bob")).lease.epoch == claimed.lease.epoch + 2

    @pytest.mark.parametrize(
        "outcome", [DONE, Retry(MINUTE, "no"), Dead("no"), Defer(MINUTE), RELEASE], ids=lambda each: type(each).__name__
    )
    @played
    async def test_every_outcome_clears_the_lease(self, outcome: Outcome) -> None:
        """TC-111"""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, outcome)
        row = self.row()
        assert (row["locked_by"], row["locked_at"], row["lease_until"]) == (None, None, None)

    @played
    async def test_success_clears_the_error_of_an_earlier_attempt(self) -> None:
        """TC-471"""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, Retry(timedelta(0), "no luck"))
        assert await settle(store, (await take_one(store)).lease, DONE)
        assert (self.row()["last_error"], self.row()["attempts"]) == (None, 1)

    @played
    async def test_a_long_error_is_cut(self) -> None:
        """TC-087"""
        store = await self.opened()
        await insert(store, event())
        text = error_text(ValueError("x" * 5000))
        assert await settle(store, (await take_one(store)).lease, Retry(MINUTE, text))
        stored = self.row()["last_error"]
        assert len(stored) == MAX_ERROR_LENGTH
        assert stored.startswith("ValueError: xxx")
        assert stored.endswith("...")

    @pytest.mark.parametrize("word", WORDS)
    @played
    async def test_any_words_are_kept_as_they_are(self, word: str) -> None:
        """In errors, ids, handlers and owners; single and in a group."""
        store = await self.opened()
        named, other = event(event_id=word), event()
        await insert(store, named, other, handler_id=word)
        first, second = await take(store, word)
        assert (first.lease.key, first.lease.owner) == (RowKey(word, word), word)
        assert set(await store.renew([first.lease, second.lease], MINUTE)) == {first.lease.key, second.lease.key}
        assert await store.mark_suspect(first.lease)
        assert not await store.settle(
            [Settlement(first.lease, Retry(timedelta(0), word)), Settlement(second.lease, DONE)]
        )
        assert self.row(word)["last_error"] == word
        again = await take_one(store, word)
        assert await settle(store, again.lease, Dead(word))
        assert self.row(word)["last_error"] == word
        assert await store.records.replay(word, word) == 1

    @pytest.mark.parametrize("outcome", [Retry(timedelta.max, "never"), Defer(timedelta.max)], ids=["retry", "defer"])
    @played
    async def test_a_delay_without_end_is_taken(self, outcome: Outcome) -> None:
        """More than an integer of 64 bits holds; an outcome that could never be written would be tried for ever."""
        store = await self.opened()
        await insert(store, event())
        assert await settle(store, (await take_one(store)).lease, outcome)
        assert self.row()["available_at"] > self.now() + 1000 * 365 * 24 * HOUR
        assert await take(store) == []
