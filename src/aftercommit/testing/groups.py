"""The contract of settle: what a group of outcomes does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.events.claims import RowKey, Settlement
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import SECOND, event, insert, lease_of, take

MINUTE = timedelta(minutes=1)


class GroupsContract(StoreHooks):
    """Several outcomes in one transaction."""

    @played
    async def test_a_group_of_all_kinds_is_settled_at_once(self) -> None:
        store = await self.opened()
        given = [event() for _ in range(12)]
        await insert(store, *given)
        kinds: list[Outcome] = [DONE, Retry(MINUTE, "r"), Dead("d"), Defer(MINUTE), RELEASE]
        kinds = [*kinds, Dead("u", counted=False)] * 2
        claimed = await take(store)
        refused = await store.settle([Settlement(row.lease, kind) for row, kind in zip(claimed, kinds, strict=True)])
        assert not refused
        found = [(row["status"], row["attempts"], row["last_error"], row["locked_by"]) for row in self.rows()]
        assert (
            found
            == [
                (1, 0, None, None),
                (2, 1, "r", None),
                (3, 1, "d", None),
                (2, 0, None, None),
                (0, 0, None, None),
                (3, 0, "u", None),
            ]
            * 2
        )

    @played
    async def test_each_row_of_a_group_gets_its_own_values(self) -> None:
        store = await self.opened()
        given = [event() for _ in range(20)]
        await insert(store, *given)
        claimed = await take(store)
        delays = [timedelta(minutes=number) for number in range(1, 21)]
        outcomes = [Retry(delay, f"error {delay}") for delay in delays]
        assert not await store.settle(
            [Settlement(row.lease, each) for row, each in zip(claimed, outcomes, strict=True)]
        )
        now = self.now()
        for row, delay in zip(self.rows(), delays, strict=True):
            assert row["last_error"] == f"error {delay}"
            assert abs(row["available_at"] - now - delay // timedelta(microseconds=1)) < 30 * SECOND

    @pytest.mark.parametrize("position", [0, 2, 4])
    @pytest.mark.parametrize(
        "kind", [DONE, Retry(MINUTE, "r"), Dead("d"), RELEASE], ids=lambda each: type(each).__name__
    )
    @played
    async def test_a_refused_row_of_a_group_is_named_and_the_others_are_settled(
        self, kind: Outcome, position: int
    ) -> None:
        """Wherever it stands, whatever it was to be."""
        store = await self.opened()
        given = [event() for _ in range(5)]
        await insert(store, *given)
        claimed = await take(store, "alice")
        lost = claimed[position].lease
        self.change(lost.key.event_id, locked_by="bob", lease_epoch=9)
        before = self.row(lost.key.event_id)
        group = [Settlement(row.lease, kind if row.lease == lost else DONE) for row in claimed]
        assert set(await store.settle(group)) == {lost.key}
        assert self.row(lost.key.event_id) == before
        assert [row["status"] for row in self.rows() if row["event_id"] != lost.key.event_id] == [EventStatus.DONE] * 4

    @played
    async def test_a_group_of_refused_rows_names_them_all(self) -> None:
        store = await self.opened()
        given = [event() for _ in range(3)]
        await insert(store, *given)
        group = [Settlement(lease_of(each.event_id, "nobody", 7), DONE) for each in given]
        assert set(await store.settle(group)) == {RowKey(each.event_id, "") for each in given}

    @played
    async def test_a_group_is_settled_whole_or_not_at_all(self) -> None:
        """A text that no database takes; the settler then writes row by row."""
        store = await self.opened()
        await insert(store, *[event() for _ in range(4)])
        claimed = await take(store)
        before = self.rows()
        outcomes: list[Outcome] = [DONE, Dead("d"), Retry(MINUTE, "lone surrogate: \ud800"), RELEASE]
        with pytest.raises(Exception, match=r".") as caught:
            await store.settle([Settlement(row.lease, each) for row, each in zip(claimed, outcomes, strict=True)])
        assert store.is_row_fault(caught.value)
        assert self.rows() == before
        assert not await store.settle([Settlement(row.lease, DONE) for row in claimed])

    @played
    async def test_settling_nothing_is_fine(self) -> None:
        store = await self.opened()
        assert not await store.settle([])
