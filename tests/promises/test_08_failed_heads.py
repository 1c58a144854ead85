"""Promise 8: what follows a failed event of a key, and a dead one, over two instances."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit.events.claims import partition_of
from tests.promises.ordered import CALM, Member, OrderedFleet
from tests.promises.waiting import until

on_servers = pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)

NUMBERS = list(range(6))
HEAD = 2


class Pair:
    """Two instances, each with a key of its own, and somebody who writes. Leases last: what moves was given back."""

    def __init__(self, ordered: OrderedFleet, **options: Any) -> None:
        ordered.times = CALM
        self.ordered = ordered
        self.members = [ordered.join(runtime, options=options) for runtime in ("threads", "asyncio")]
        ordered.until_owned(self.members)
        self.writer = ordered.writer()
        self.keys = [self._key_of(member) for member in self.members]

    def _key_of(self, member: Member) -> str:
        mine = self.ordered.partitions_of(member)
        return next(key for key in (f"key-{number}" for number in range(1000)) if partition_of(key) in mine)

    def write(self, numbers: list[int], **does: str) -> list[list[str]]:
        """The same for both keys; the ids of each."""
        return [self.writer.tell("write_key", key=key, numbers=numbers, does=does) for key in self.keys]

    def write_failing_head(self) -> list[str]:
        """The ids of the events that fail until the gate is open."""
        return [ids[HEAD] for ids in self.write(NUMBERS, **{str(HEAD): "fail"})]

    def until_effects(self, numbers: list[int]) -> None:
        for key in self.keys:
            self.ordered.until_effects(key, numbers)

    def until_dead(self, ids: list[str]) -> None:
        until(lambda: self.ordered.fleet.ended(3) == set(ids), what=f"the death of {ids}")

    def stand_still(self, number: int) -> None:
        """Another event of each key is written, all instances look at everything, and other keys go on."""
        self.write([number])
        self.writer.tell("write_key", key=f"another-{number}", numbers=[0])
        self.ordered.until_effects(f"another-{number}", [0])
        for member in self.ordered.members:
            assert member.tell("poll") == 0
            assert set(member.tell("blocked")) == set(self.keys)
        self.each_event_had_one_effect(NUMBERS[:HEAD])

    def each_event_had_one_effect(self, numbers: list[int]) -> None:
        for key in self.keys:
            assert self.ordered.effects.numbers(key) == numbers
        self.ordered.never_two_at_once()


@on_servers
def test_promise_08_order_per_key_may_be_given_up_for_events_that_fail(ordered: OrderedFleet) -> None:
    """stop_on_first_failure=False: the others keep their order among themselves."""
    pair = Pair(ordered, stop_on_first_failure=False, max_attempts=10_000)
    pair.write_failing_head()
    pair.until_effects([0, 1, 3, 4, 5])
    pair.write([6, 7])
    pair.until_effects([0, 1, 3, 4, 5, 6, 7])
    ordered.open_gate()
    ordered.until_settled(16)
    pair.each_event_had_one_effect([0, 1, 3, 4, 5, 6, 7, 2])


@on_servers
@pytest.mark.parametrize("ordered", ["continue"], indirect=True)
def test_promise_08_order_per_key_may_go_on_behind_dead_events(ordered: OrderedFleet) -> None:
    """on_dead="continue": what comes later waits for the verdict, not for a replay."""
    pair = Pair(ordered, max_attempts=3)
    dead = pair.write_failing_head()
    pair.until_effects([0, 1, 3, 4, 5])
    pair.until_dead(dead)
    ordered.open_gate()
    assert [pair.writer.tell("replay", event_id=event_id) for event_id in dead] == [True, True]
    ordered.until_settled(12)
    pair.each_event_had_one_effect([0, 1, 3, 4, 5, 2])


@on_servers
@pytest.mark.parametrize("leaves", [False, True], ids=["both live", "one has left"])
def test_promise_08_order_per_key_goes_on_with_a_dead_head_that_is_replayed(
    ordered: OrderedFleet, leaves: bool
) -> None:
    pair = Pair(ordered, max_attempts=2)
    dead = pair.write_failing_head()
    pair.until_dead(dead)
    pair.stand_still(6)
    if leaves:
        with ordered.taken_over():
            ordered.leave(pair.members[0])
    pair.stand_still(7)
    ordered.open_gate()
    for event_id in dead:
        assert pair.members[1].tell("replay", event_id=event_id)
    pair.until_effects([*NUMBERS, 6, 7])
    ordered.until_settled(len(ordered.fleet.rows()))
    ordered.all_delivered_in_order()


@on_servers
def test_promise_08_order_per_key_goes_on_behind_a_dead_head_that_is_discarded(ordered: OrderedFleet) -> None:
    pair = Pair(ordered, max_attempts=1)
    dead = pair.write_failing_head()
    pair.until_dead(dead)
    pair.stand_still(6)
    for event_id in dead:
        assert pair.members[1].tell("discard", event_id=event_id)
    ordered.until_settled(len(ordered.fleet.rows()))
    pair.each_event_had_one_effect([0, 1, 3, 4, 5, 6])
