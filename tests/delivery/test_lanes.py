"""The two lanes: bounded, first in first out, two hot to one cold, suspects in turns, and nothing starves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aftercommit.delivery.lanes import HOT_PER_COLD, Lanes
from aftercommit.events.order import OrderKey
from aftercommit.runtime.threads import ThreadRuntime
from tests.delivery.faulty import Told, lanes_of, take_now


@dataclass(frozen=True)
class Item:
    name: str
    is_suspect: bool = False
    abandoned: int = 0
    began_at: float = float("inf")
    order_key: OrderKey | None = None


def lanes(*, hot: int = 100, cold: int = 100) -> Lanes[Item]:
    return lanes_of(ThreadRuntime(), hot=hot, cold=cold)


def put_hot(into: Lanes[Item], *names: str) -> None:
    assert into.reserve(len(names)) == len(names)
    for name in names:
        into.fill(Item(name))


def put_cold(into: Lanes[Item], *names: str, is_suspect: bool = False, **fields: float) -> None:
    for name in names:
        assert into.offer([Item(name, is_suspect, **fields)])


def take_all(out_of: Lanes[Item]) -> list[str]:
    return [item.name for item in iter(lambda: take_now(out_of), None)]


# --- which comes next


def test_hot_goes_before_cold():
    """TC-142."""
    both = lanes()
    put_cold(both, "cold")
    put_hot(both, "hot")

    assert take_all(both) == ["hot", "cold"]


def test_two_hot_to_one_cold_while_both_wait():
    """TC-143."""
    both = lanes(hot=60, cold=30)
    put_cold(both, *(f"cold-{number}" for number in range(30)))
    put_hot(both, *(f"hot-{number}" for number in range(60)))

    taken = take_all(both)

    assert HOT_PER_COLD == 2
    for first in range(0, 90, 3):
        assert [name.partition("-")[0] for name in taken[first : first + 3]] == ["hot", "hot", "cold"]
    assert [name for name in taken if name.startswith("hot")] == [f"hot-{number}" for number in range(60)]
    assert [name for name in taken if name.startswith("cold")] == [f"cold-{number}" for number in range(30)]


def test_a_stream_of_hot_events_does_not_starve_the_table():
    both = lanes(hot=3)
    put_cold(both, "cold-1", "cold-2", "cold-3")
    taken = []

    while len(taken) < 9:
        put_hot(both, *["hot"] * (3 - both.hot_depth))
        taken.append(take_now(both).name)

    assert taken == ["hot", "hot", "cold-1", "hot", "hot", "cold-2", "hot", "hot", "cold-3"]


def test_a_stream_of_cold_events_does_not_starve_the_commits():
    both = lanes(cold=3)
    put_hot(both, "hot-1", "hot-2", "hot-3", "hot-4")
    taken = []

    while len(taken) < 6:
        put_cold(both, *["cold"] * both.cold_room)
        taken.append(take_now(both).name)

    assert taken == ["hot-1", "hot-2", "cold", "hot-3", "hot-4", "cold"]


def test_an_empty_lane_costs_the_other_nothing():
    both = lanes()
    put_hot(both, "a", "b", "c", "d", "e")
    assert take_all(both) == ["a", "b", "c", "d", "e"]
    put_cold(both, "f", "g", "h")
    assert take_all(both) == ["f", "g", "h"]
    assert take_now(both) is None


def test_a_cold_event_that_comes_late_is_next_after_two_hot_ones():
    both = lanes()
    put_hot(both, "a", "b", "c", "d")
    assert [take_now(both).name, take_now(both).name, take_now(both).name] == ["a", "b", "c"]

    put_cold(both, "cold")

    assert take_all(both) == ["cold", "d"]


# --- suspects


def test_suspects_run_side_by_side_as_long_as_none_had_begun_when_a_process_ended():
    """Promise 4a: of what a process had in hand, most only waited."""
    both = lanes()
    put_cold(both, "first", "second", is_suspect=True)
    put_cold(both, "had begun", is_suspect=True, abandoned=1)
    put_cold(both, "third", is_suspect=True)

    first, second = take_now(both), take_now(both)
    assert (first.name, second.name) == ("first", "second")
    assert take_now(both) is None
    both.finished(first)
    assert take_now(both) is None, "the one that had begun waits for all of them"
    both.finished(second)
    alone = take_now(both)
    assert alone.name == "had begun"
    assert take_now(both) is None, "and they wait for it"
    both.finished(alone)
    assert take_now(both).name == "third"


def test_where_one_count_is_the_last_all_suspects_run_alone():
    both = Lanes[Item](ThreadRuntime(), Told(), hot_capacity=1, cold_capacity=2, alone_from=0)
    put_cold(both, "first", "second", is_suspect=True)

    first = take_now(both)
    assert take_now(both) is None
    both.finished(first)
    assert take_now(both).name == "second"


def test_a_suspect_that_has_lived_for_long_lets_the_next_one_begin():
    """Promise 4a: it may hang for ever, and has not ended its process."""
    both = lanes()
    put_cold(both, "hangs", is_suspect=True, abandoned=1, began_at=100.0)
    put_cold(both, "second", "third", is_suspect=True, abandoned=1, began_at=200.0)

    hangs = take_now(both)
    both.let_pass(99.0)
    assert take_now(both) is None
    both.let_pass(100.0)
    assert both.lived_beside(Item("had not begun", is_suspect=True)) == []
    second = take_now(both)
    assert both.lived_beside(second) == [hangs]
    assert both.lived_beside(second) == [], "it is told once"
    assert second.name == "second"
    assert take_now(both) is None, "two that may end the process never begin together"
    both.finished(hangs)
    assert take_now(both) is None, "its end makes room for nobody once more"
    both.finished(second)
    assert take_now(both).name == "third"


def test_of_those_that_have_killed_one_runs_at_a_time():
    """Promise 4a: of several that may have killed a process, it must be known which one did."""
    both = lanes()
    put_cold(both, "first", "second", is_suspect=True, abandoned=1)

    first = take_now(both)
    assert first.name == "first"
    assert take_now(both) is None
    assert not both.is_empty
    both.finished(first)
    assert take_now(both).name == "second"


def test_a_suspect_that_waits_for_another_is_in_nobodys_way():
    both = lanes()
    put_cold(both, "running", "waiting", is_suspect=True, abandoned=1)
    assert take_now(both).name == "running"
    put_cold(both, "cold-1", "cold-2")
    put_hot(both, *[f"hot-{number}" for number in range(1, 9)])

    assert take_all(both) == [
        *("hot-1", "hot-2", "cold-1", "hot-3", "hot-4", "cold-2"),
        *("hot-5", "hot-6", "hot-7", "hot-8"),
    ]
    assert both.cold_depth == 1


def test_a_suspect_that_may_run_has_its_turn_among_hot_events():
    both = lanes()
    put_cold(both, "suspect", is_suspect=True)
    put_hot(both, "a", "b", "c")

    assert take_all(both) == ["a", "b", "suspect", "c"]


def test_suspects_use_the_room_of_the_cold_lane():
    both = lanes(cold=2)
    put_cold(both, "suspect", is_suspect=True)
    put_cold(both, "cold")

    assert (both.cold_room, both.cold_depth) == (0, 2)
    assert not both.offer([Item("more")])
    assert not both.offer([Item("more", is_suspect=True)])


# --- room


def test_a_reserved_slot_is_taken_until_it_is_given_back():
    both = lanes(hot=3)

    assert both.reserve(2) == 2
    assert both.reserve(2) == 1
    assert both.reserve(1) == 0
    assert both.hot_depth == 0
    both.cancel(2)
    both.fill(Item("a"))
    assert both.reserve(5) == 2


def test_a_lane_without_capacity_takes_nothing():
    none = lanes(hot=0, cold=0)

    assert none.reserve(1) == 0
    assert not none.offer([Item("a")])
    assert take_now(none) is None


@pytest.mark.parametrize("is_suspect", [False, True])
def test_clear_takes_out_everything_that_waits_and_keeps_reservations(is_suspect):
    both = lanes(hot=3)
    put_hot(both, "hot")
    put_cold(both, "cold", is_suspect=is_suspect)
    assert both.reserve(1) == 1

    assert {item.name for item in both.clear()} == {"hot", "cold"}

    assert both.is_empty
    assert both.clear() == []
    assert take_now(both) is None
    assert both.reserve(9) == 2, "the slot of an open transaction is still its own"


# --- whatever happens


class AnyUse(RuleBasedStateMachine):
    """Everything that writers, poller, workers and close() may do, against plain lists."""

    @initialize(hot=st.integers(0, 6), cold=st.integers(0, 6))
    def build(self, hot, cold):
        self.lanes = lanes(hot=hot, cold=cold)
        self.hot_capacity, self.cold_capacity = hot, cold
        self.hot, self.cold, self.suspects = [], [], []
        self.reserved = 0
        self.at_work = []
        self.kinds = []  # of what was taken, in order
        self.put, self.got = [], []
        self.names, self.times = count(), count()

    @rule(wanted=st.integers(0, 6))
    def reserve(self, wanted):
        granted = self.lanes.reserve(wanted)

        assert granted == min(wanted, self.hot_capacity - len(self.hot) - self.reserved)
        self.reserved += granted

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def cancel(self, data):
        unused = data.draw(st.integers(1, self.reserved))
        self.lanes.cancel(unused)
        self.reserved -= unused

    @rule(wanted=st.integers(1, 4))
    def commit(self, wanted):
        self.reserve(wanted)
        while self.reserved:
            self.fill()

    @precondition(lambda self: self.reserved)
    @rule()
    def fill(self):
        item = Item(f"hot-{next(self.names)}")
        self.lanes.fill(item)
        self.reserved -= 1
        self.hot.append(item)
        self.put.append(item)

    @rule(is_suspect=st.booleans(), abandoned=st.integers(0, 1))
    def offer(self, is_suspect, abandoned):
        item = Item(f"cold-{next(self.names)}", is_suspect, abandoned * is_suspect, began_at=next(self.times))
        has_room = len(self.cold) + len(self.suspects) < self.cold_capacity

        assert self.lanes.offer([item]) is has_room
        if has_room:
            (self.suspects if is_suspect else self.cold).append(item)
            self.put.append(item)

    @rule(times=st.integers(1, 4))
    def take(self, times):
        for _ in range(times):
            self.take_one()

    def take_one(self):
        cold_may_run = bool(self.cold or self.suspect_may_run())
        hot_waits = bool(self.hot)

        item = take_now(self.lanes)

        if item is None:
            assert not hot_waits, "something may run"
            assert not cold_may_run, "something may run"
            self.kinds.append("nothing")
            return
        self.got.append(item)
        lane = next(lane for lane in (self.hot, self.cold, self.suspects) if item in lane)
        assert lane.pop(0) is item, "first in, first out"
        kind = "hot" if lane is self.hot else "cold"
        if hot_waits and cold_may_run:
            assert kind == ("cold" if self.kinds[-2:] == ["hot", "hot"] else "hot"), "two to one"
        self.kinds.append(kind)
        if item.is_suspect:
            self.at_work.append(item)
            assert len(self.at_work) == 1 or not any(each.abandoned for each in self.at_work), "it runs alone"

    def suspect_may_run(self):
        together = [*self.suspects[:1], *self.at_work]
        return self.suspects and (not self.at_work or not any(each.abandoned for each in together))

    @precondition(lambda self: self.at_work)
    @rule(data=st.data())
    def end_suspect(self, data):
        item = data.draw(st.sampled_from(self.at_work))
        assert self.lanes.finished(item) == []
        self.at_work.remove(item)

    @precondition(lambda self: self.at_work)
    @rule()
    def live_long(self):
        first = min(item.began_at for item in self.at_work)
        self.lanes.let_pass(first)
        self.at_work = [item for item in self.at_work if item.began_at > first]

    @rule()
    def clear(self):
        cleared = self.lanes.clear()

        assert Counter(cleared) == Counter([*self.hot, *self.cold, *self.suspects])
        self.got += cleared
        for lane in (self.hot, self.cold, self.suspects):
            lane.clear()

    @invariant()
    def the_lanes_tell_the_truth(self):
        assert self.lanes.hot_depth == len(self.hot)
        assert self.lanes.cold_depth == len(self.cold) + len(self.suspects)
        assert self.lanes.cold_room == self.cold_capacity - self.lanes.cold_depth
        assert self.lanes.is_empty is not bool(self.hot or self.cold or self.suspects)

    @invariant()
    def no_lane_is_over_its_capacity(self):
        assert self.lanes.hot_depth + self.reserved <= self.hot_capacity
        assert self.lanes.cold_depth <= self.cold_capacity

    def teardown(self):
        if hasattr(self, "lanes"):
            for item in self.at_work:
                self.lanes.finished(item)
            while (item := take_now(self.lanes)) is not None:
                self.got.append(item)
                self.lanes.finished(item)
            assert Counter(self.got) == Counter(self.put), "nothing is lost, nothing comes twice"


AnyUse.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestAnyUse = AnyUse.TestCase
