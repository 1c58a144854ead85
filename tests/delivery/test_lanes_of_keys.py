"""Items of one key are taken in order, one at a time; when one does not go on, everything behind it leaves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aftercommit.delivery.lanes import Lanes
from aftercommit.events.order import OrderKey
from aftercommit.runtime.threads import ThreadRuntime
from tests.delivery.faulty import lanes_of, take_now


@dataclass(frozen=True)
class Item:
    number: int
    order_key: OrderKey | None = None
    is_suspect: bool = False
    abandoned: int = 1
    began_at: float = float("inf")


A, B = OrderKey(1, "a"), OrderKey(2, "b")


def lanes_with(*items: Item, capacity: int = 100) -> Lanes[Item]:
    lanes: Lanes[Item] = lanes_of(ThreadRuntime(), cold=capacity)
    assert all(lanes.offer([item]) for item in items)
    return lanes


def test_the_next_of_a_key_waits_for_the_one_before_it_and_other_keys_do_not():
    first, second, other, keyless = Item(1, A), Item(2, A), Item(3, B), Item(4)
    lanes = lanes_with(first, second, other, keyless)

    assert [take_now(lanes) for _ in range(4)] == [first, other, keyless, None]
    assert lanes.finished(first) == []
    assert take_now(lanes) is second


def test_everything_behind_one_that_does_not_go_on_leaves():
    first, second, third, other = Item(1, A), Item(2, A), Item(3, A), Item(4, B)
    lanes = lanes_with(first, second, third, other)
    assert take_now(lanes) is first

    assert lanes.finished(first, goes_on=False) == [second, third]

    assert take_now(lanes) is other
    assert take_now(lanes) is None
    assert lanes.is_empty


def test_after_it_has_stopped_a_key_begins_anew():
    first, later = Item(1, A), Item(2, A)
    lanes = lanes_with(first)
    take_now(lanes)
    lanes.finished(first, goes_on=False)

    assert lanes.offer([later])
    assert take_now(lanes) is later


def test_what_waits_behind_its_key_needs_room_like_everything_else():
    lanes = lanes_with(Item(1, A), Item(2, A), capacity=2)

    assert lanes.cold_depth == 2
    assert not lanes.offer([Item(3, B)])


def test_what_waits_of_a_partition_is_given_back_and_what_runs_keeps_its_key():
    running, waiting, unstarted, behind, other = Item(1, A), Item(2, A), Item(3, OrderKey(1, "c")), Item(4), Item(5, B)
    lanes = lanes_with(running, waiting, unstarted, Item(6, OrderKey(1, "c")), behind, other)
    assert take_now(lanes) is running

    given = lanes.give_back(lambda key: key.partition == 1)

    assert {item.number for item in given} == {2, 3, 6}
    later = Item(7, A)
    assert lanes.offer([later])
    assert [take_now(lanes), take_now(lanes), take_now(lanes)] == [behind, other, None], "the key's own still runs"
    lanes.finished(running)
    assert take_now(lanes) is later


def test_a_suspect_holds_its_key_while_another_suspect_runs():
    killer, suspect, behind = Item(1, A, is_suspect=True), Item(2, B, is_suspect=True), Item(3, B)
    lanes = lanes_with(killer, suspect, behind)

    assert take_now(lanes) is killer
    assert take_now(lanes) is None
    lanes.finished(killer)
    assert take_now(lanes) is suspect
    assert take_now(lanes) is None
    lanes.finished(suspect)
    assert take_now(lanes) is behind


def test_a_suspect_that_hangs_holds_its_own_key_and_no_other():
    """Promise 4a: also when all of them were under way when a process ended."""
    hangs, behind = Item(1, A, is_suspect=True, began_at=100.0), Item(2, A, is_suspect=True)
    other = Item(3, B, is_suspect=True)
    lanes = lanes_with(hangs, behind, other)

    assert take_now(lanes) is hangs
    assert take_now(lanes) is None
    lanes.let_pass(100.0)
    assert take_now(lanes) is other
    lanes.finished(other)
    assert take_now(lanes) is None, "what is behind it waits for its end"
    lanes.finished(hangs)
    assert take_now(lanes) is behind


class AnyUse(RuleBasedStateMachine):
    """Whatever happens: order and one at a time per key, and nothing is lost or comes twice."""

    def __init__(self):
        super().__init__()
        self.lanes = lanes_of(ThreadRuntime(), hot=5, cold=12)
        self.numbers = count()
        self.waiting = defaultdict(list)
        self.running = {}

    keys = st.sampled_from([None, A, B, OrderKey(1, "c")])

    @rule(key=keys, is_suspect=st.booleans())
    def offer(self, key, is_suspect):
        item = Item(next(self.numbers), key, is_suspect)
        if self.lanes.offer([item]):
            self.waiting[key].append(item)

    @rule()
    def take(self):
        item = take_now(self.lanes)
        if item is None:
            return
        if item.order_key is not None:
            assert item.order_key not in {each.order_key for each in self.running.values()}, "one at a time"
            assert item is self.waiting[item.order_key][0], "in order"
        self.waiting[item.order_key].remove(item)
        self.running[item.number] = item

    @precondition(lambda self: self.running)
    @rule(data=st.data(), goes_on=st.booleans())
    def end(self, data, goes_on):
        item = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        leaving = self.lanes.finished(item, goes_on=goes_on)
        if item.order_key is None or goes_on:
            assert leaving == []
        else:
            assert leaving == self.waiting.pop(item.order_key, [])

    @rule(partition=st.sampled_from([1, 2]))
    def give_back(self, partition):
        given = self.lanes.give_back(lambda key: key.partition == partition)
        keys = [key for key in self.waiting if key is not None and key.partition == partition]
        expected = [item for key in keys for item in self.waiting.pop(key)]
        assert sorted(each.number for each in given) == sorted(each.number for each in expected)

    @rule()
    def clear(self):
        cleared = self.lanes.clear()
        assert len(cleared) == sum(map(len, self.waiting.values()))
        self.waiting.clear()
        self.running = {number: item for number, item in self.running.items() if item.is_suspect}
        for item in list(self.running.values()):  # nothing comes after a clear; the suspects end
            self.lanes.finished(item)
        self.running.clear()

    @invariant()
    def the_depth_is_what_waits(self):
        assert self.lanes.cold_depth == sum(map(len, self.waiting.values()))
        assert self.lanes.is_empty is (self.lanes.cold_depth == 0)

    def teardown(self):
        for item in list(self.running.values()):
            self.lanes.finished(item)
        while (item := take_now(self.lanes)) is not None:
            self.waiting[item.order_key].remove(item)
            self.lanes.finished(item)
        assert not any(self.waiting.values()), "nothing is stuck"


AnyUse.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAnyUse = AnyUse.TestCase
