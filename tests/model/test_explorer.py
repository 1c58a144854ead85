"""The explorer itself: it finds the shortest way, sees what is stuck, and does not count on faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.explorer import Step, explore


class Counter:
    """A number that goes up to its goal, by steps of one, by a fault, or not at all; each instance counts its own."""

    def __init__(self, *, goal: int, dead_end: int | None = None, broken_at: int | None = None, by_fault: bool = False):
        self.goal, self.dead_end, self.broken_at, self.by_fault = goal, dead_end, broken_at, by_fault

    def start(self) -> tuple[int, Sequence[int]]:
        return 0, [0, 0]

    def world_steps(self, table: int) -> Iterator[Step]:
        if table < self.goal and table != self.dead_end:
            yield Step(f"to {table + 1}", table + 1, is_fault=self.by_fault)

    def instance_steps(self, me: int, table: int, memory: int) -> Iterator[Step]:
        if memory == 0 and table == self.goal:
            broken = "two: nobody may see the goal" if table == self.broken_at else ""
            yield Step(f"{me} sees {table}", table, table, lost="all", broken=broken)

    def forget(self, memory: int, lost: str) -> int:
        return -1

    def renamed(self, table: int, names: Sequence[int]) -> int:
        return table

    def is_finished(self, table: int) -> bool:
        return table == self.goal


def test_every_state_is_counted_once() -> None:
    found = explore(Counter(goal=2))

    # 0, 1 and 2, then 2 as seen by either, who takes it from the other.
    assert (found.states, found.steps, found.broken) == (5, 4, "")
    assert str(found) == "5 states, 4 steps, every promise kept"


def test_a_broken_promise_is_shown_with_the_way_to_it() -> None:
    found = explore(Counter(goal=2, broken_at=2))

    assert str(found) == "broken: two: nobody may see the goal\n  1. to 1\n  2. to 2\n  3. 0 sees 2"


def test_a_state_without_a_way_to_the_end_is_stuck() -> None:
    found = explore(Counter(goal=3, dead_end=1))

    assert found.broken.startswith("nothing lost")


def test_an_end_that_only_a_fault_reaches_does_not_count() -> None:
    found = explore(Counter(goal=1, by_fault=True))

    assert found.broken.startswith("nothing lost")


def test_a_walk_can_be_cut_short() -> None:
    found = explore(Counter(goal=1_000), at_most=10)

    assert found.states == 10
