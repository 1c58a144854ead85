"""The poller's interval, fixed or as busy as the table is; and how many rows it asks for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.polling.poller import Batch, Pace


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


# ---------------------------------------------------------------- how many rows


def test_full_claims_double_a_batch_and_small_ones_halve_it() -> None:
    batch, sizes = Batch(50, 1000), []
    for count in (50, 100, 200, 400, 800, 1000, 1000, 600, 500, 499, 0, 0, 0, 0, 0):
        batch.after(count, batch.size)
        sizes.append(batch.size)
    assert sizes == [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000, 500, 250, 125, 62, 50, 50]


def test_a_claim_that_had_no_room_for_more_says_nothing_of_the_table() -> None:
    batch = Batch(50, 1000)
    batch.after(50, 50)
    batch.after(3, 3)
    assert batch.size == 100


@given(st.integers(1, 2000), st.integers(1, 2000), st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000))))
def test_a_batch_stays_within_its_limits(least: int, most: int, claims: list[tuple[int, int]]) -> None:
    batch = Batch(least, most)
    for count, limit in claims:
        batch.after(count, limit)
        assert least <= batch.size <= max(least, most)
