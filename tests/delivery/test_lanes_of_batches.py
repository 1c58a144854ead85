"""What one receiver gets together leaves the lanes together: full, in order per key, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aftercommit.delivery.gathering import Gathering
from aftercommit.delivery.idle import LanesOfIdle
from aftercommit.delivery.lanes import Lanes
from aftercommit.events.order import OrderKey
from aftercommit.runtime.threads import ThreadRuntime, run
from tests.delivery.faulty import Told, lanes_of, take_now
from tests.support import PATIENCE


@dataclass(frozen=True)
class Item:
    number: int
    route: str | None = "mail"
    order_key: OrderKey | None = None
    is_suspect: bool = False
    abandoned: int = 0
    began_at: float = float("inf")


A, B = OrderKey(1, "a"), OrderKey(2, "b")


def lanes_with(*items: Item, capacity: int = 1000) -> Lanes[Item]:
    lanes: Lanes[Item] = lanes_of(ThreadRuntime(), cold=capacity, hot=capacity)
    assert all(lanes.offer([item]) for item in items)
    return lanes


def commit(lanes: Lanes[Item], *items: Item) -> None:
    for item in items:
        assert lanes.reserve(1) == 1
        assert lanes.fill(item)


def begin(lanes: Lanes[Item], most: int = 100, *, waits: bool = False) -> Gathering[Item] | None:
    first = take_now(lanes)
    assert first is not None
    return lanes.gather(first, most, waits=waits)


def batch_of(lanes: Lanes[Item], most: int = 100) -> list[Item]:
    gathering = begin(lanes, most)
    assert gathering is not None
    return lanes.gathered(gathering)


def test_interleaved_events_of_two_receivers_make_full_batches():
    items = [Item(number, ("mail", "stock", None)[number % 3]) for number in range(120)]
    lanes = lanes_with(*items)

    first, second = batch_of(lanes, 30), batch_of(lanes, 30)

    assert [[each.number for each in batch] for batch in (first, second)] == [
        list(range(0, 90, 3)),
        list(range(1, 90, 3)),
    ]
    rest = [item for item in items if item not in {*first, *second}]
    assert [take_now(lanes) for _ in rest] == rest, "the others keep their places"


def test_a_batch_takes_from_both_lanes_two_to_one():
    lanes = lanes_with(*(Item(number) for number in range(50)))
    commit(lanes, *(Item(number) for number in range(100, 150)))

    batch = batch_of(lanes, 30)

    assert [sum(each.number >= 100 for each in batch), len(batch)] == [20, 30]


def test_what_follows_in_a_key_is_in_the_batch_unbroken_and_in_order():
    first, second, other, broken, later = (
        Item(1, order_key=A),
        Item(2, order_key=A),
        Item(3, order_key=B),
        Item(4, "stock", A),
        Item(5, order_key=A),
    )
    lanes = lanes_with(first, second, other, broken, later)

    assert batch_of(lanes) == [first, second, other]
    assert take_now(lanes) is None, "what is of another receiver waits for the key, and so does what is behind it"
    assert lanes.finished_all([first, second, other], stopped=()) == []
    assert take_now(lanes) is broken


def test_what_is_behind_a_key_that_has_stopped_leaves():
    items = [
        Item(1, order_key=A),
        Item(2, order_key=A),
        Item(3, order_key=A),
        Item(4, order_key=B),
        Item(5, "stock", B),
    ]
    lanes = lanes_with(*items)
    assert batch_of(lanes, 2) == items[:2]

    assert lanes.finished_all(items[:2], stopped={A}) == [items[2]]

    assert take_now(lanes) is items[3]


def test_a_batch_that_waits_takes_in_what_comes_and_what_other_workers_bring():
    lanes = lanes_with(Item(1, order_key=A))
    waiting = begin(lanes, 6, waits=True)
    assert waiting is not None
    commit(lanes, Item(2), Item(3, "stock"))
    assert lanes.offer([Item(4, order_key=A), Item(5, "stock", A), Item(6, order_key=A), Item(7, order_key=B)])
    assert (lanes.hot_depth, lanes.cold_depth) == (1, 2)
    assert take_now(lanes) == Item(3, "stock")

    assert lanes.gather(Item(8), 6, waits=True) is None, "another worker has taken it before it could join"

    assert [each.number for each in lanes.gathered(waiting)] == [1, 2, 4, 7, 8]
    assert not lanes.is_quiet


def test_a_full_batch_waits_no_more_and_the_next_one_is_another():
    lanes = lanes_with(Item(1))
    waiting = begin(lanes, 2, waits=True)
    assert waiting is not None
    threading.Timer(0.01, lambda: commit(lanes, Item(2), Item(3))).start()

    run(waiting.filled(PATIENCE))

    assert [each.number for each in waiting.items] == [1, 2]
    while not lanes.hot_depth:
        pass
    assert batch_of(lanes) == [Item(3)]
    assert lanes.gathered(waiting) == [Item(1), Item(2)]


def test_close_and_clear_end_the_wait_and_leave_nothing_behind():
    lanes = lanes_with(Item(1, order_key=A))
    waiting = begin(lanes, 9, waits=True)
    assert waiting is not None
    assert lanes.offer([Item(2, order_key=A)])
    lanes.close()
    run(waiting.filled(PATIENCE))

    assert {each.number for each in lanes.clear()} == {1, 2}

    assert lanes.gathered(waiting) == []
    assert lanes.finished_all([], ()) == []
    assert lanes.is_quiet


def test_where_rows_are_leased_for_idle_workers_a_batch_is_what_is_at_hand():
    lanes = LanesOfIdle[Item](ThreadRuntime(), Told(), hot_capacity=0, cold_capacity=3)
    assert lanes.offer([Item(1), Item(2), Item(3)])

    batch = batch_of(lanes)

    assert (len(batch), lanes.cold_room) == (3, 2)
    lanes.finished_all(batch, ())
    assert lanes.cold_room == 3


class AnyUse(RuleBasedStateMachine):
    """Whatever happens, of a key only one worker has something, and gets it in order."""

    def __init__(self):
        super().__init__()
        self.lanes = lanes_of(ThreadRuntime(), hot=6, cold=12)
        self.numbers = count()
        self.waiting = defaultdict(list)
        self.gathering = []
        self.running = []
        self.seen = set()

    keys = st.sampled_from([None, A, A, A, B, OrderKey(1, "c")])
    routes = st.sampled_from([None, "mail", "mail", "stock"])

    @rule(key=keys, routes=st.lists(routes, min_size=1, max_size=5))
    def offer(self, key, routes):
        items = [Item(next(self.numbers), route, key) for route in routes]
        if self.lanes.offer(items):
            self.waiting[key] += items

    @rule(key=keys, route=routes)
    def write(self, key, route):
        item = Item(next(self.numbers), route, key)
        if self.lanes.reserve(1):
            self.lanes.fill(item)
            self.waiting[key].append(item)

    @rule(most=st.integers(1, 4), waits=st.booleans())
    def take(self, most, waits):
        item = take_now(self.lanes)
        if item is None:
            return
        if item.route is None:
            self.began([item])
        elif (batch := self.lanes.gather(item, most, waits=waits)) is not None:
            self.gathering.append(batch)
        else:
            assert any(item in batch.items for batch in self.gathering), "it is in the batch that waits"
        waiting = self.lanes._gathering.waiting.values()
        for batch in [each for each in self.gathering if each not in waiting]:  # its worker has it
            self.gathering.remove(batch)
            self.started(batch)

    @precondition(lambda self: self.gathering)
    @rule(data=st.data())
    def start(self, data):
        self.started(self.gathering.pop(data.draw(st.integers(0, len(self.gathering) - 1))))

    def started(self, batch):
        items = self.lanes.gathered(batch)
        assert {each.route for each in items} <= {batch.route}
        assert len(items) <= max(batch.most, 0)
        self.began(items)

    def began(self, items):
        busy = {each.order_key for batch in self.running for each in batch} - {None}
        for item in items:
            assert item.number not in self.seen, "it comes once"
            self.seen.add(item.number)
            if item.order_key is not None:
                assert item.order_key not in busy, "one worker at a time"
                assert item is self.waiting[item.order_key][0], "in order"
            self.waiting[item.order_key].remove(item)
        self.running.append(items)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), stops=st.booleans())
    def end(self, data, stops):
        items = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        keys = sorted({each.order_key for each in items} - {None})
        stopped = data.draw(st.lists(st.sampled_from(keys), unique=True)) if stops and keys else []
        if [each.route for each in items] == [None]:
            leaving = self.lanes.finished(items[0], goes_on=not stopped)
        else:
            leaving = self.lanes.finished_all(items, stopped)
        assert leaving == [each for key in stopped_in(items, stopped) for each in self.waiting.pop(key, [])]

    @rule(partition=st.sampled_from([1, 2]))
    def give_back(self, partition):
        given = self.lanes.give_back(lambda key: key.partition == partition)
        keys = [key for key in self.waiting if key is not None and key.partition == partition]
        assert numbers(given) == numbers(each for key in keys for each in self.waiting.pop(key))

    @rule()
    def clear(self):
        if not self.running:  # nothing comes after a clear; what runs has ended
            assert numbers(self.lanes.clear()) == numbers(each for items in self.waiting.values() for each in items)
            self.waiting.clear()

    @invariant()
    def the_lanes_tell_the_truth(self):
        gathered = sum(len(batch.items) for batch in self.gathering)
        waits = sum(map(len, self.waiting.values()))
        assert self.lanes.hot_depth + self.lanes.cold_depth + gathered == waits
        assert self.lanes.is_quiet is (not waits and not self.running and not self.gathering)

    def teardown(self):
        while self.gathering:
            self.began(self.lanes.gathered(self.gathering.pop()))
        while self.running:
            items = self.running.pop()
            self.lanes.finished_all(items, ())
        while (item := take_now(self.lanes)) is not None:
            self.began([item])
            self.lanes.finished(item)
            self.running.clear()
        assert not any(self.waiting.values()), "nothing is stuck"
        assert self.lanes.is_quiet


def stopped_in(items, stopped):
    return [key for key in dict.fromkeys(each.order_key for each in items) if key in stopped]


def numbers(items):
    return sorted(each.number for each in items)


AnyUse.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAnyUse = AnyUse.TestCase
