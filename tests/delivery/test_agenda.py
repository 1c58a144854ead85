"""Keys that were called are looked at: once, when it is time, and not while a row of theirs is in memory."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit.delivery import agenda as module
from aftercommit.delivery.agenda import EVERYWHERE, THE_REST, Agenda
from aftercommit.events.order import OrderKey
from tests.delivery.faulty import agenda_of, with_runtime
from tests.support import Collector, World

A, B, C = OrderKey(1, "a"), OrderKey(2, "b"), OrderKey(3, "c")
ALL = frozenset({1, 2, 3})


class Clocked:
    """The runtime with a clock that stands until it is set."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


class InMemory(set[OrderKey]):
    """The keys of which rows are held."""

    def has(self, key: OrderKey) -> bool:
        return key in self


def agenda_with(runtime: Any, *held: OrderKey) -> tuple[Agenda, InMemory]:
    """An agenda whose first round, with which every start begins, is over."""
    in_memory = InMemory(held)
    agenda = agenda_of(runtime, in_memory)  # type: ignore[arg-type]
    looked(agenda)
    return agenda, in_memory


def looked(agenda: Agenda) -> bool:
    """Begin a look, as the poller does; whether it is the first of a round."""
    with agenda.monitor:
        return agenda.begin_look(3600.0)


def is_called(agenda: Agenda) -> bool:
    return agenda.due_at == float("-inf")


def test_keys_are_taken_in_order_of_calling_and_once(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        agenda, _ = agenda_with(runtime)
        agenda.add([B, A])
        agenda.add([A, C])
        assert is_called(agenda)
        assert agenda.take(2, ALL) == [B, A]
        assert agenda.take(2, ALL) == [C]
        assert agenda.take(2, ALL) == []

    with_runtime(world, scenario)


def test_a_look_for_rows_of_this_process_is_known_as_such_and_the_next_one_is_not(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        agenda, _ = agenda_with(runtime)
        agenda.wrote(EVERYWHERE)
        assert is_called(agenda)
        assert not agenda.is_for_own, "it has not begun"
        assert looked(agenda)
        assert agenda.is_for_own
        agenda.add(EVERYWHERE)
        looked(agenda)
        assert not agenda.is_for_own

    with_runtime(world, scenario)


def test_a_key_of_which_a_row_is_in_memory_waits_until_it_is_let_go(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        agenda, in_memory = agenda_with(runtime, A)
        agenda.add([A, B])
        assert agenda.take(9, ALL) == [B]
        assert agenda.ready == 0, "a parked key is no reason to look"
        agenda.add([A])
        assert agenda.take(9, ALL) == []
        looked(agenda)
        in_memory.discard(A)
        agenda.freed([A])
        assert is_called(agenda)
        assert agenda.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_a_key_that_is_let_go_between_the_look_and_the_parking_is_not_forgotten(world: World) -> None:
    """The interleaving is forced: the last row is let go while `take` asks whether the key is held."""

    async def scenario(runtime: Any) -> None:
        freed = Collector()

        class Watched(InMemory):
            def has(self, key: OrderKey) -> bool:
                freed.add(key)
                return True

        agenda = agenda_of(runtime, Watched())  # type: ignore[arg-type]
        agenda.add([A])
        assert agenda.take(1, ALL) == []
        agenda.freed([A])  # whoever let go could not have come earlier: `take` holds the lock
        assert freed == [A]
        assert agenda.ready == 1

    with_runtime(world, scenario)


def test_a_key_called_for_later_is_taken_then_and_not_before(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        agenda, _ = agenda_with(clocked)
        agenda.add([A], after=2.0)
        agenda.add([B], after=1.0)
        assert agenda.due_at == clocked.now + 1.0
        assert agenda.take(9, ALL) == []
        clocked.now += 1.0
        assert agenda.take(9, ALL) == [B]
        clocked.now += 1.0
        assert agenda.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_a_call_for_now_does_not_take_the_place_of_one_for_later(world: World) -> None:
    """A retry in 2 s, and a new row now: the look now finds nothing, the one in 2 s does."""

    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        agenda, _ = agenda_with(clocked)
        agenda.add([A], after=2.0)
        agenda.add([A])
        assert agenda.take(9, ALL) == [A]
        clocked.now += 2.0
        assert agenda.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_what_falls_due_after_the_next_round_is_left_to_it(world: World) -> None:
    """Else a thousand events for tomorrow would crowd out the retry in a second."""

    async def scenario(runtime: Any) -> None:
        agenda, _ = agenda_with(runtime)
        assert agenda.add([A], after=6.0)
        assert agenda.due_at == agenda._rested_at, "nothing but the round"

    with_runtime(world, scenario)


def test_keys_of_partitions_that_are_anothers_are_forgotten(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        agenda, _ = agenda_with(runtime)
        agenda.add([A, B])
        assert agenda.take(9, frozenset({2})) == [B]
        assert agenda.take(9, ALL) == []

    with_runtime(world, scenario)


@pytest.mark.parametrize("after", [0.0, 1.0])
def test_memory_is_bounded_and_what_is_forgotten_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    async def scenario(runtime: Any) -> None:
        monkeypatch.setattr(module, "AT_MOST", 2)
        agenda, _ = agenda_with(runtime)
        assert agenda.add([A, B], after=after)
        assert not agenda.add([C], after=after)

    with_runtime(world, scenario)


def test_a_round_comes_once_in_an_interval_and_whenever_somebody_asks_for_it(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        agenda = agenda_of(clocked)
        assert is_called(agenda), "the first look is at once"
        assert looked(agenda), "and begins a round"
        assert agenda.due_at == clocked.now + 3600.0
        agenda.add(THE_REST)
        assert is_called(agenda)
        assert not looked(agenda)
        agenda.add(EVERYWHERE, 10.0)
        assert agenda.due_at == clocked.now + 10.0
        clocked.now += 10.0
        assert looked(agenda)
        agenda.add(EVERYWHERE)
        assert is_called(agenda)
        assert looked(agenda)

    with_runtime(world, scenario)


def test_whatever_is_added_while_a_look_is_under_way_leads_to_another(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        for place in (EVERYWHERE, THE_REST, [A]):
            agenda, _ = agenda_with(runtime)
            assert not is_called(agenda)
            agenda.add(place)  # after the look began
            assert is_called(agenda)

    with_runtime(world, scenario)


def test_what_is_too_much_to_remember_is_found_by_a_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(runtime: Any) -> None:
        monkeypatch.setattr(module, "AT_MOST", 1)
        agenda, _ = agenda_with(runtime)
        assert not agenda.add([A, B])
        assert looked(agenda)

    with_runtime(world, scenario)


def test_a_key_that_fell_due_calls_once_and_waits_for_room(world: World) -> None:
    """A look that has no room takes nothing. The poller must not come round again at once for what it cannot take:
    under asyncio nothing else would ever run."""

    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        agenda, _ = agenda_with(clocked)
        agenda.add([A], after=1.0)
        clocked.now += 1.0
        assert agenda.due_at <= clocked.now
        looked(agenda)
        assert agenda.due_at > clocked.now
        agenda.add(THE_REST)  # there is room
        assert is_called(agenda)
        assert agenda.take(9, ALL) == [A]

    with_runtime(world, scenario)
