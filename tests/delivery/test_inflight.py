"""The in-flight tracker of the specification."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import DefaultInFlightTracker, InFlightTracker, InvalidOption
from tests.delivery.faulty import with_runtime
from tests.support import World


def test_an_id_is_held_until_it_is_released(world: World) -> None:
    """TC-145"""

    async def scenario(runtime: Any) -> None:
        tracker = DefaultInFlightTracker(runtime)
        assert isinstance(tracker, InFlightTracker)
        assert [tracker.try_acquire("a"), tracker.try_acquire("a")] == [True, False]
        tracker.release("a")
        assert tracker.try_acquire("a")

    with_runtime(world, scenario)


def test_ids_do_not_touch_each_other(world: World) -> None:
    """TC-146"""

    async def scenario(runtime: Any) -> None:
        tracker = DefaultInFlightTracker(runtime)
        assert [tracker.try_acquire(name) for name in "abc"] == [True, True, True]
        tracker.release("b")
        assert [tracker.try_acquire(name) for name in "abc"] == [False, True, False]

    with_runtime(world, scenario)


def test_releasing_an_unknown_id_is_fine(world: World) -> None:
    """TC-147"""

    async def scenario(runtime: Any) -> None:
        DefaultInFlightTracker(runtime).release("never seen")

    with_runtime(world, scenario)


def test_an_id_is_free_again_after_its_ttl(world: World) -> None:
    """TC-148"""

    async def scenario(runtime: Any) -> None:
        now = [10.0]
        runtime.clock = lambda: now[0]
        tracker = DefaultInFlightTracker(runtime, ttl="50ms")
        assert tracker.try_acquire("a")
        now[0] += 0.049
        assert not tracker.try_acquire("a")
        now[0] += 0.002
        assert tracker.try_acquire("a")
        assert not tracker.try_acquire("a"), "it begins anew"

    with_runtime(world, scenario)


@pytest.mark.parametrize("ttl", [{}, {"ttl": 0}, {"ttl": "0s"}])
def test_without_a_ttl_an_id_is_held_for_ever(world: World, ttl: dict[str, Any]) -> None:
    """TC-149"""

    async def scenario(runtime: Any) -> None:
        now = [10.0]
        runtime.clock = lambda: now[0]
        tracker = DefaultInFlightTracker(runtime, **ttl)
        assert tracker.try_acquire("a")
        now[0] += 1e9
        assert not tracker.try_acquire("a")

    with_runtime(world, scenario)


def test_a_negative_ttl_is_refused(world: World) -> None:
    """TC-149 takes it for none; here no duration is negative."""

    async def scenario(runtime: Any) -> None:
        with pytest.raises(InvalidOption, match="ttl"):
            DefaultInFlightTracker(runtime, ttl=-1)

    with_runtime(world, scenario)
