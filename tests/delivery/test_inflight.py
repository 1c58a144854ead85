"""The in-flight tracker of the specification."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import DefaultInFlightTracker, InFlightTracker, InvalidOption


def test_an_id_is_held_until_it_is_released() -> None:
    """TC-145"""
    tracker = DefaultInFlightTracker()
    assert isinstance(tracker, InFlightTracker)
    assert [tracker.try_acquire("a"), tracker.try_acquire("a")] == [True, False]
    tracker.release("a")
    assert tracker.try_acquire("a")


def test_ids_do_not_touch_each_other() -> None:
    """TC-146"""
    tracker = DefaultInFlightTracker()
    assert [tracker.try_acquire(name) for name in "abc"] == [True, True, True]
    tracker.release("b")
    assert [tracker.try_acquire(name) for name in "abc"] == [False, True, False]


def test_releasing_an_unknown_id_is_fine() -> None:
    """TC-147"""
    DefaultInFlightTracker().release("never seen")


def test_an_id_is_free_again_after_its_ttl() -> None:
    """TC-148"""
    now, tracker = [10.0], DefaultInFlightTracker("50ms")
    tracker._clock = lambda: now[0]
    assert tracker.try_acquire("a")
    now[0] += 0.049
    assert not tracker.try_acquire("a")
    now[0] += 0.002
    assert tracker.try_acquire("a")
    assert not tracker.try_acquire("a"), "it begins anew"


@pytest.mark.parametrize("ttl", [{}, {"ttl": 0}, {"ttl": "0s"}])
def test_without_a_ttl_an_id_is_held_for_ever(ttl: dict[str, Any]) -> None:
    """TC-149"""
    now, tracker = [10.0], DefaultInFlightTracker(**ttl)
    tracker._clock = lambda: now[0]
    assert tracker.try_acquire("a")
    now[0] += 1e9
    assert not tracker.try_acquire("a")


def test_a_negative_ttl_is_refused() -> None:
    """TC-149 takes it for none; here no duration is negative."""
    with pytest.raises(InvalidOption, match="ttl"):
        DefaultInFlightTracker(ttl=-1)
