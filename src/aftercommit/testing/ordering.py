"""The contract of claims by key: a run is the unbroken prefix of a key, whatever others do meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit.errors import OutboxError
from aftercommit.events.claims import Settlement, Undecodable
from aftercommit.events.order import BlockedKey, OrderKey
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Retry
from aftercommit.events.records import EventFilter
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, LEASE, event, ids, insert, settle, take, together
from aftercommit.testing.runs import (
    CONTINUES,
    PARTITION,
    PASSES,
    STRICT,
    claim_keys,
    lay,
    line,
    run_of,
)

#: Keys that a database may take for one another.
ALIKE = [("a", "A"), ("a", "a "), ("a", "ä"), ("\u00e9", "e\u0301"), ("ß", "ss"), ('"', "'")]


class OrderingContract(StoreHooks):
    """Which rows of a key are leased, and which are not."""

    @played
    async def test_a_run_is_the_rows_of_its_key_in_order_of_position(self) -> None:
        store = await self.opened()
        first, other, second, third = event(key="a"), event(key="b"), event(key="a"), event(key="a")
        await lay(store, first, other, second, third)
        base = self.now()
        for age, each in enumerate((third, second, first), start=1):  # due times do not count
            self.change(each.event_id, available_at=base - age)
        claim = await claim_keys(store, "a", owner="alice", deadline=99.5)
        assert ids(claim.rows) == ids([first, second, third])
        assert (claim.floor, claim.next_due) == (None, None)
        for row in claim.rows:
            assert (row.order_key, row.lease.owner, row.lease.epoch) == (OrderKey(PARTITION, "a"), "alice", 1)
            assert (row.lease.deadline, row.is_suspect) == (99.5, False)
            assert row.event.key == "a"
        held = [row for row in self.rows() if row["locked_by"] == "alice"]
        assert [row["event_id"] for row in held] == ids([first, second, third])
        for row in held:
            assert row["lease_until"] - row["locked_at"] == LEASE // timedelta(microseconds=1)
            assert row["lease_epoch"] == 1

    @played
    async def test_a_run_has_so_many_rows_at_most_of_each_key(self) -> None:
        store = await self.opened()
        given = {key: await line(store, key, 5) for key in "abc"}
        claim = await claim_keys(store, "c", "a", run=2)
        assert ids(claim.rows) == ids(given["a"][:2] + given["c"][:2]), "in order of position"
        assert [row.order_key.key for row in claim.rows if row.order_key] == ["a", "a", "c", "c"]
        assert await run_of(store, "a", "b", run=2) == ids(given["b"][:2]), "a key is leased once"

    @played
    async def test_rows_of_other_partitions_are_not_leased(self) -> None:
        store = await self.opened()
        await line(store, "a", 1, partition=8)
        assert await run_of(store, "a") == []
        assert len(await run_of(store, "a", partition=8)) == 1

    @played
    async def test_a_claim_of_no_keys_leases_nothing(self) -> None:
        store = await self.opened()
        await line(store, "a", 1)
        assert await run_of(store, "b") == []
        assert self.row()["lease_epoch"] == 0

    @pytest.mark.parametrize("owner", [None, ""])
    @played
    async def test_a_run_for_nobody_is_refused(self, owner: Any) -> None:
        store = await self.opened()
        with pytest.raises(OutboxError, match="owner"):
            await run_of(store, "a", owner=owner)

    # ------------------------------------------------------------ what ends a run

    @pytest.mark.parametrize("number", [0, 1, 2])
    @pytest.mark.parametrize("why", ["later", "leased", "leased by the same"])
    @played
    async def test_nothing_is_leased_from_a_row_on_that_is_not_due_or_not_free(self, why: str, number: int) -> None:
        store = await self.opened()
        given = await line(store, "a", 4)
        if why == "later":
            self.change(given[number].event_id, available_at=self.now() + HOUR)
        else:
            owner = "alice" if why == "leased by the same" else "bob"
            self.change(given[number].event_id, locked_by=owner, lease_until=self.now() + HOUR)
        before = self.rows()[number:]
        assert await run_of(store, "a", owner="alice") == ids(given[:number])
        assert self.rows()[number:] == before

    @pytest.mark.parametrize("status", [0, 2], ids=["new", "retry"])
    @played
    async def test_a_retry_holds_its_key_until_it_is_due(self, status: int) -> None:
        """TC-484"""
        store = await self.opened()
        given = await line(store, "a", 3)
        self.change(given[0].event_id, status=status, available_at=self.now() + HOUR)
        assert await run_of(store) == []
        self.fall_due()
        assert await run_of(store) == ids(given)

    @played
    async def test_a_lease_that_ran_out_is_taken_over_as_a_suspect_at_the_head_of_its_run(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        assert await run_of(store, owner="bob", run=1) == ids(given[:1])
        self.change(given[0].event_id, lease_until=self.now() - 1)
        rows = (await claim_keys(store, owner="alice")).rows
        assert ids(rows) == ids(given)
        assert [row.is_suspect for row in rows] == [True, False, False]
        assert [row.lease.epoch for row in rows] == [2, 1, 1]

    @played
    async def test_a_lease_of_its_own_that_ran_out_makes_no_suspect_of_a_run(self) -> None:
        store = await self.opened()
        await line(store, "a", 2)
        await run_of(store, owner="alice")
        self.expire()
        rows = (await claim_keys(store, owner="alice")).rows
        assert [(row.is_suspect, row.lease.epoch) for row in rows] == [(False, 2), (False, 2)]

    @pytest.mark.parametrize("number", [0, 1])
    @played
    async def test_nothing_is_leased_behind_a_dead_row_that_blocks(self, number: int) -> None:
        store = await self.opened()
        given = await line(store, "a", 4)
        self.change(given[number].event_id, status=3, done_at=self.now())
        assert await run_of(store, rule=STRICT) == ids(given[:number])
        assert await run_of(store, rule=PASSES, owner="bob") == []

    @played
    async def test_a_dead_row_is_nothing_where_keys_continue(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 4)
        self.change(given[0].event_id, status=3, done_at=self.now())
        self.change(given[2].event_id, status=3, done_at=self.now())
        assert await run_of(store, rule=CONTINUES) == ids([given[1], given[3]])

    @played
    async def test_what_is_done_is_out_of_the_way(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        self.change(given[0].event_id, status=1, done_at=self.now())
        self.change(given[1].event_id, status=1, done_at=self.now())
        assert await run_of(store) == ids(given[2:])

    @played
    async def test_a_row_that_somebody_has_locked_ends_the_run(self) -> None:
        self.needs_skipping()
        store, other = await self.opened(), await self.opened()
        given = await line(store, "a", 4)
        async with self.locked(other, given[0].event_id):
            assert await run_of(store) == []
        async with self.locked(other, given[2].event_id):
            assert await run_of(store) == ids(given[:2])
        assert [row["locked_by"] for row in self.rows()] == ["alice", "alice", None, None]

    # ------------------------------------------------------------ keys

    @played
    async def test_an_event_without_a_key_is_alone_under_its_own_id(self) -> None:
        store = await self.opened()
        lone, other = event(), event()
        await lay(store, lone, other)
        rows = (await claim_keys(store, lone.event_id)).rows
        assert ids(rows) == [lone.event_id]
        assert rows[0].order_key == OrderKey(PARTITION, lone.event_id)
        assert await run_of(store, other.event_id) == [other.event_id]

    @pytest.mark.parametrize("keys", ALIKE, ids=ascii)
    @played
    async def test_keys_that_look_alike_are_different(self, keys: tuple[str, str]) -> None:
        store = await self.opened()
        first, second = [(await line(store, key, 2)) for key in keys]
        assert await run_of(store, keys[0]) == ids(first)
        rows = (await claim_keys(store, *keys)).rows
        assert ids(rows) == ids(second)
        assert {row.order_key for row in rows} == {OrderKey(PARTITION, keys[1])}

    @played
    async def test_rows_of_one_event_for_several_handlers_come_in_order(self) -> None:
        store = await self.opened()
        first, second = event(key="a"), event(key="a")
        for each in (first, second):
            for handler in ("z", "m", "a"):
                await lay(store, each, handler_id=handler)
        rows = (await claim_keys(store)).rows
        expected = [(each.event_id, handler) for each in (first, second) for handler in "zma"]
        assert [tuple(row.lease.key) for row in rows] == expected
        assert await settle(store, rows[1].lease, Retry(timedelta(hours=1), "no"))
        assert not await store.settle([Settlement(row.lease, RELEASE) for row in rows[2:]])
        assert await settle(store, rows[0].lease, DONE)
        assert await run_of(store) == [], "the lane is the key over all handlers"

    @played
    async def test_a_row_that_cannot_be_read_has_its_place_in_the_run(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        self.change(given[1].event_id, headers="{{")
        rows = (await claim_keys(store)).rows
        assert ids(rows) == ids(given)
        assert isinstance(rows[1], Undecodable)
        assert rows[1].order_key == OrderKey(PARTITION, "a")

    # ------------------------------------------------------------ what becomes of a run

    @pytest.mark.parametrize(
        "outcome", [DONE, RELEASE, Retry(timedelta(0), "no"), Defer(timedelta(0)), Dead("no")], ids=type
    )
    @played
    async def test_rows_of_a_run_are_renewed_and_settled_under_its_leases(self, outcome: Outcome) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        rows = (await claim_keys(store)).rows
        leases = [row.lease for row in rows]
        assert set(await store.renew(leases, LEASE)) == {lease.key for lease in leases}
        assert await settle(store, leases[0], outcome)
        assert not await settle(store, leases[0], DONE), "once"
        assert not await store.settle([Settlement(lease, RELEASE) for lease in leases[1:]])
        left = {"Done": given[1:], "Dead": []}.get(type(outcome).__name__, given)
        assert await run_of(store, owner="bob") == ids(left)

    @pytest.mark.parametrize("way", ["replay", "replay_after", "discard"])
    @played
    async def test_a_dead_head_that_is_replayed_or_discarded_lets_its_key_go_on_in_order(self, way: str) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        rows = (await claim_keys(store, run=1)).rows
        assert await settle(store, rows[0].lease, Dead("no"))
        assert await run_of(store) == []
        if way == "replay":
            assert await store.records.replay(given[0].event_id, None) == 1
        elif way == "replay_after":
            assert (await store.records.replay_after(EventFilter(), 0, 10))[0] == 1
        else:
            assert await store.records.discard(given[0].event_id, None, "enough") == 1
        assert await run_of(store) == ids(given[1:] if way == "discard" else given)

    @played
    async def test_two_claimers_share_keys_and_never_turn_one_round(self) -> None:
        """Each settles what it leased. What was leased of a key, in the order of the leases, is the key itself."""
        store, other = await self.opened(), await self.opened()
        given = {key: await line(store, key, 12) for key in "abcdef"}
        order: dict[str, list[str]] = {key: [] for key in given}

        async def work(mine: Any, owner: str) -> None:
            while sum(map(len, order.values())) < 72:
                claim = await claim_keys(mine, *given, owner=owner, run=3)
                for row in claim.rows:
                    order[row.event.key].append(row.event.event_id)
                assert not await mine.settle([Settlement(row.lease, DONE) for row in claim.rows])

        await together(store.colour, lambda: work(store, "alice"), lambda: work(other, "bob"))
        assert order == {key: ids(events) for key, events in given.items()}

    # ------------------------------------------------------------ blocked keys

    @played
    async def test_blocked_keys_are_told_with_their_first_dead_event(self) -> None:
        store = await self.opened()
        given = {key: await line(store, key, 3) for key in "ba"}
        dead = [given["b"][2], given["b"][1], given["a"][0]]
        for each in dead:
            self.change(each.event_id, status=3, done_at=self.now(), last_error=f"no {each.event_id}")
        found = await store.records.blocked(10)
        expected = [
            BlockedKey(key, each.event_id, "", "Happened", f"no {each.event_id}")
            for key, each in (("b", given["b"][1]), ("a", given["a"][0]))
        ]
        assert found == expected
        assert await store.records.blocked(1) == expected[:1]

    @played
    async def test_a_dead_event_without_a_key_blocks_only_other_rows_of_itself(self) -> None:
        store = await self.opened()
        lone, several = event(), event()
        await lay(store, lone)
        for handler in ("mail", "log"):
            await lay(store, several, handler_id=handler)
        for row in (await claim_keys(store, lone.event_id, several.event_id, run=1)).rows:
            assert await settle(store, row.lease, Dead("no"))
        assert [(each.key, each.handler_id) for each in await store.records.blocked(10)] == [(several.event_id, "mail")]

    @played
    async def test_claims_by_due_time_and_by_key_respect_each_others_leases(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 2)
        await insert(store, lone := event())
        assert await run_of(store, run=1) == ids(given[:1])
        assert ids(await take(store, "bob")) == ids([given[1], lone])
        assert await run_of(store, "a", lone.event_id) == []
