"""Keys that were called are looked at: once, when it is time, and not while a row of theirs is in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit.events.order import OrderKey
from aftercommit.polling import agenda as module
from aftercommit.polling.agenda import Calls
from tests.delivery.faulty import with_runtime
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


def calls_of(runtime: Any, *held: OrderKey) -> tuple[Calls, set[OrderKey], Collector]:
    in_memory, told = set(held), Collector()
    return (
        Calls(runtime, horizon=timedelta(seconds=5), is_held=in_memory.__contains__, on_call=told.add),
        in_memory,
        told,
    )


def test_keys_are_taken_in_order_of_calling_and_once(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        calls, _, told = calls_of(runtime)
        calls.add([B, A])
        calls.add([A, C])
        assert told == [0.0, 0.0]
        assert calls.take(2, ALL) == [B, A]
        assert calls.take(2, ALL) == [C]
        assert calls.take(2, ALL) == []

    with_runtime(world, scenario)


def test_a_key_of_which_a_row_is_in_memory_waits_until_it_is_let_go(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        calls, in_memory, told = calls_of(runtime, A)
        calls.add([A, B])
        assert calls.take(9, ALL) == [B]
        assert calls.ready == 0, "a parked key is no reason to look"
        calls.add([A])
        assert calls.take(9, ALL) == []
        told.clear()
        in_memory.discard(A)
        calls.free([A])
        assert told == [0.0]
        assert calls.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_a_key_that_is_let_go_between_the_look_and_the_parking_is_not_forgotten(world: World) -> None:
    """The interleaving is forced: the last row is let go while `take` asks whether the key is held."""

    async def scenario(runtime: Any) -> None:
        freed = Collector()

        def is_held(key: OrderKey) -> bool:
            freed.add(key)
            return True

        calls = Calls(runtime, horizon=timedelta(seconds=5), is_held=is_held, on_call=lambda _: None)
        calls.add([A])
        assert calls.take(1, ALL) == []
        calls.free([A])  # whoever let go could not have come earlier: `take` holds the lock
        assert freed == [A]
        assert calls.ready == 1

    with_runtime(world, scenario)


def test_a_key_called_for_later_is_taken_then_and_not_before(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        calls, _, told = calls_of(clocked)
        calls.add([A], after=2.0)
        calls.add([B], after=1.0)
        assert told == [2.0, 1.0]
        assert calls.take(9, ALL) == []
        clocked.now += 1.0
        assert calls.take(9, ALL) == [B]
        clocked.now += 1.0
        assert calls.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_a_call_for_now_does_not_take_the_place_of_one_for_later(world: World) -> None:
    """A retry in 2 s, and a new row now: the look now finds nothing, the one in 2 s does."""

    async def scenario(runtime: Any) -> None:
        clocked = Clocked(runtime)
        calls, _, _ = calls_of(clocked)
        calls.add([A], after=2.0)
        calls.add([A])
        assert calls.take(9, ALL) == [A]
        clocked.now += 2.0
        assert calls.take(9, ALL) == [A]

    with_runtime(world, scenario)


def test_what_falls_due_after_the_next_round_is_left_to_it(world: World) -> None:
    """Else a thousand events for tomorrow would crowd out the retry in a second."""

    async def scenario(runtime: Any) -> None:
        calls, _, told = calls_of(runtime)
        assert calls.add([A], after=6.0)
        assert told == []
        assert calls.next_in() is None

    with_runtime(world, scenario)


def test_keys_of_partitions_that_are_anothers_are_forgotten(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        calls, _, _ = calls_of(runtime)
        calls.add([A, B])
        assert calls.take(9, frozenset({2})) == [B]
        assert calls.take(9, ALL) == []

    with_runtime(world, scenario)


@pytest.mark.parametrize("after", [0.0, 1.0])
def test_memory_is_bounded_and_what_is_forgotten_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    async def scenario(runtime: Any) -> None:
        monkeypatch.setattr(module, "AT_MOST", 2)
        calls, _, _ = calls_of(runtime)
        assert calls.add([A, B], after=after)
        assert not calls.add([C], after=after)

    with_runtime(world, scenario)
