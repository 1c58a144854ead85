"""The contract of claims where a key does not stop at what is not due: it is passed over, still one lease at a time."""

from __future__ import annotations

import pytest

from aftercommit.events.order import KeyRule
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, ids
from aftercommit.testing.runs import PASSES, PASSES_ALL, line, run_of


class PassingContract(StoreHooks):
    """What is passed over, and what is not."""

    @pytest.mark.parametrize("rule", [PASSES, PASSES_ALL], ids=["blocks", "continues"])
    @played
    async def test_rows_that_are_not_due_are_passed_over_where_keys_do_not_stop(self, rule: KeyRule) -> None:
        store = await self.opened()
        given = await line(store, "a", 6)
        for number in (0, 2, 4):
            self.change(given[number].event_id, available_at=self.now() + HOUR)
        assert await run_of(store, rule=rule, run=2) == ids([given[1], given[3]])
        assert [row["locked_by"] for row in self.rows()] == [None, "alice", None, "alice", None, None]

    @pytest.mark.parametrize("number", [0, 1, 3])
    @played
    async def test_nothing_of_a_key_is_leased_beside_a_lease_where_keys_do_not_stop(self, number: int) -> None:
        """One at a time per key over the fleet."""
        store = await self.opened()
        given = await line(store, "a", 4)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        self.change(given[number].event_id, locked_by="bob", lease_until=self.now() + HOUR)
        assert await run_of(store, rule=PASSES) == []
        assert await run_of(store, rule=PASSES, run=1) == [], "not even far before it"
        self.change(given[number].event_id, locked_by="bob", lease_until=self.now() - 1)
        assert await run_of(store, rule=PASSES) == ids(given[1:])

    @played
    async def test_dead_rows_block_or_not_where_rows_are_passed_over(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 5)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        self.change(given[3].event_id, status=3, done_at=self.now())
        assert await run_of(store, rule=PASSES) == ids(given[1:3])
        self.expire()
        assert await run_of(store, rule=PASSES_ALL) == ids([given[1], given[2], given[4]])

    @played
    async def test_a_key_goes_on_behind_a_cancelled_head(self) -> None:
        store = await self.opened(delete_completed=False)
        given = await line(store, "a", 3)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        assert await run_of(store) == []
        assert await store.records.cancel(given[0].event_id, None) == 1
        assert await run_of(store) == ids(given[1:])

    @played
    async def test_a_locked_row_means_nothing_of_the_key_where_rows_are_passed_over(self) -> None:
        """Also one that is only passed over: whoever has it may be leasing what follows it."""
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        given = await line(store, "a", 3)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        for number in (0, 2):
            async with self.locked(other, given[number].event_id):
                assert await run_of(store, rule=PASSES) == []
        assert await run_of(store, rule=PASSES) == ids(given[1:])
