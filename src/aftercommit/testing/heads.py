"""The contract of heads: one for each key that has unfinished rows, with the reason why it can be claimed or not."""

from __future__ import annotations

import pytest

from aftercommit.events.order import UNORDERED, HeadState, KeyRule, Order, OrderKey
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import HOUR, SECOND, event
from aftercommit.testing.runs import CONTINUES, PARTITION, PASSES, PASSES_ALL, STRICT, lay, line, look_over, states

READY, LATER, LEASED, BLOCKED = HeadState.READY, HeadState.LATER, HeadState.LEASED, HeadState.BLOCKED


class HeadsContract(StoreHooks):
    """What a look at keys sees. It leases nothing."""

    @played
    async def test_a_store_says_that_it_keeps_order_and_which(self) -> None:
        store = await self.opened(table="order", ordered=True, on_dead="continue")
        assert store.capabilities.keeps_order
        assert store.order == Order(ordered=True, on_dead="continue")
        assert (await self.opened()).order == UNORDERED

    @played
    async def test_each_key_with_unfinished_rows_has_one_head(self) -> None:
        store = await self.opened()
        for key in ("b", "a", "c"):
            await line(store, key, 3)
        done = await line(store, "d", 1)
        self.change(done[0].event_id, status=1, done_at=self.now())
        before = self.rows()
        found = await look_over(store)
        assert [head.key for head in found.heads] == [OrderKey(PARTITION, key) for key in "abc"]
        assert {head.state for head in found.heads} == {READY}
        assert {head.wait for head in found.heads} == {0.0}
        assert found.after is None
        assert self.rows() == before

    @played
    async def test_an_empty_table_and_no_partitions_have_no_heads(self) -> None:
        store = await self.opened()
        assert (await look_over(store)).heads == []
        await line(store, "a", 1)
        assert not (await look_over(store, 8, 9)).heads

    @played
    async def test_an_event_without_a_key_is_a_head_of_its_own(self) -> None:
        store = await self.opened()
        lone = [event() for _ in range(3)]
        await lay(store, *lone)
        assert await states(store) == {each.event_id: READY for each in lone}

    @played
    async def test_a_head_that_is_not_due_says_how_long_to_wait(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 2)
        self.change(given[0].event_id, available_at=self.now() + 60 * SECOND, status=2)
        (head,) = (await look_over(store)).heads
        assert head.state is LATER
        assert 50 < head.wait <= 60

    @played
    async def test_a_head_that_is_leased_says_until_when(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 2)
        self.change(given[0].event_id, locked_by="bob", lease_until=self.now() + 60 * SECOND)
        (head,) = (await look_over(store)).heads
        assert head.state is LEASED
        assert 50 < head.wait <= 60
        self.expire()
        assert await states(store) == {"a": READY}

    @played
    async def test_a_head_behind_a_dead_row_is_blocked_where_the_rule_says_so(self) -> None:
        store = await self.opened()
        given = {key: await line(store, key, 2) for key in "abc"}
        self.change(given["a"][0].event_id, status=3, done_at=self.now())
        self.change(given["b"][1].event_id, status=3, done_at=self.now())
        for each in given["c"]:
            self.change(each.event_id, status=3, done_at=self.now())
        assert await states(store) == {"a": BLOCKED, "b": READY}
        assert await states(store, rule=CONTINUES) == {"a": READY, "b": READY}
        assert await states(store, rule=PASSES) == {"a": BLOCKED, "b": READY}
        assert await states(store, rule=PASSES_ALL) == {"a": READY, "b": READY}

    # ------------------------------------------------------------ where rows that are not due are passed over

    @pytest.mark.parametrize("rule", [PASSES, PASSES_ALL], ids=["blocks", "continues"])
    @played
    async def test_a_key_is_ready_when_any_row_is_due_where_keys_do_not_stop(self, rule: KeyRule) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        assert await states(store, rule=STRICT) == {"a": LATER}
        assert await states(store, rule=rule) == {"a": READY}
        self.change(given[2].event_id, locked_by="bob", lease_until=self.now() + 60 * SECOND)
        (head,) = (await look_over(store, rule=rule)).heads
        assert (head.state, 50 < head.wait <= 60) == (LEASED, True)

    @played
    async def test_a_key_without_a_due_row_waits_for_the_first_to_fall_due(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        for each, seconds in zip(given, (300, 60, 200), strict=True):
            self.change(each.event_id, available_at=self.now() + seconds * SECOND)
        (head,) = (await look_over(store, rule=PASSES)).heads
        assert (head.state, 50 < head.wait <= 60) == (LATER, True)

    @played
    async def test_rows_behind_a_dead_one_do_not_make_a_key_ready(self) -> None:
        store = await self.opened()
        given = await line(store, "a", 3)
        self.change(given[0].event_id, available_at=self.now() + HOUR)
        self.change(given[1].event_id, status=3, done_at=self.now())
        assert await states(store, rule=PASSES) == {"a": LATER}
        assert await states(store, rule=PASSES_ALL) == {"a": READY}

    # ------------------------------------------------------------ the walk

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 7, 8, 100])
    @played
    async def test_a_walk_goes_over_all_partitions_in_the_order_asked_for(self, limit: int) -> None:
        store = await self.opened()
        expected = []
        for partition, keys in ((9, "xyz"), (3, "ab"), (200, "c"), (4, ""), (5, "d")):
            for key in keys:
                await line(store, key, 2, partition=partition)
                expected.append(OrderKey(partition, key))
        await line(store, "other", 1, partition=6)
        visited, after, looks = [], None, 0
        while True:
            found = await look_over(store, 9, 3, 200, 4, 5, limit=limit, after=after)
            looks += 1
            visited += [head.key for head in found.heads]
            assert len(found.heads) <= limit
            assert found.after == (found.heads[-1].key if len(found.heads) == limit else None)
            if (after := found.after) is None:
                break
        assert visited == expected
        assert looks == len(expected) // limit + 1

    @played
    async def test_a_walk_goes_on_behind_a_key_that_is_gone(self) -> None:
        store = await self.opened()
        for key in "ace":
            await line(store, key, 1)
        found = await look_over(store, 7, 8, after=OrderKey(7, "b"))
        assert [head.key.key for head in found.heads] == ["c", "e"]
        assert (await look_over(store, 7, 8, after=OrderKey(7, "e"))).heads == []

    @played
    async def test_a_walk_whose_partition_is_gone_begins_anew(self) -> None:
        store = await self.opened()
        await line(store, "a", 1)
        assert await states(store, 7, 8, after=OrderKey(9, "x")) == {"a": READY}

    @played
    async def test_keys_that_look_alike_have_heads_of_their_own(self) -> None:
        store = await self.opened()
        keys = ["a", "A", "a ", "ä", "ß", "ss", '"', "'", "\\", "%", "日本"]
        for key in keys:
            await line(store, key, 2)
        visited, after = [], None
        while True:
            found = await look_over(store, limit=1, after=after)
            visited += [head.key.key for head in found.heads]
            if (after := found.after) is None:
                break
        assert sorted(visited) == sorted(keys)
