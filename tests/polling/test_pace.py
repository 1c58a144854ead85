"""The poller's interval: fixed, or as busy as the table is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aftercommit.polling.poller import Pace


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def test_a_fixed_pace_never_changes() -> None:
    """TC-403"""
    pace = Pace(ms(3000))
    assert pace.interval == ms(3000)
    assert [pace.after(count) for count in (0, 100, 0)] == [ms(3000)] * 3


def test_an_adaptive_pace_begins_with_its_minimum() -> None:
    """TC-404"""
    assert Pace(ms(2000), ms(8000), batch_size=100).interval == ms(2000)


@pytest.mark.parametrize(("count", "interval"), [(0, 4000), (24, 4000), (25, 4000), (26, 2000)])
def test_more_than_a_quarter_of_a_batch_is_busy(count: int, interval: int) -> None:
    """TC-405"""
    assert Pace(ms(2000), ms(8000), batch_size=100).after(count) == ms(interval)


def test_a_quiet_table_is_looked_at_less_and_less_and_a_busy_one_at_once() -> None:
    """TC-406"""
    pace = Pace(ms(2000), ms(60_000), batch_size=100)
    assert [pace.after(count) for count in (0, 0, 0, 100)] == [ms(4000), ms(8000), ms(16_000), ms(2000)]


def test_the_interval_stays_within_its_limits() -> None:
    """TC-407"""
    pace = Pace(ms(2000), ms(4000), batch_size=100)
    assert [pace.after(count) for count in (100, 0, 0)] == [ms(2000), ms(4000), ms(4000)]
    assert Pace(ms(2000), ms(3000), batch_size=100).after(0) == ms(3000)


def test_a_quarter_of_a_small_batch_is_quiet() -> None:
    """TC-408"""
    pace = Pace(ms(2000), ms(4000), batch_size=20)
    assert [pace.after(count) for count in (5, 5)] == [ms(4000), ms(4000)]
