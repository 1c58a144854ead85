"""Rates and lines: how many may start, and when the rest should come again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aftercommit.delivery.limits import SHORTEST, Bucket, Queue, Rate

rates = st.builds(Rate, st.integers(1, 50), st.floats(0.01, 3600))


def test_a_bucket_is_full_at_first_and_fills_with_time():
    bucket = Bucket(Rate(2, 10.0), 0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(4.9), bucket.take(5.0), bucket.take(5.0)] == [False, True, False]
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


@given(rates, st.lists(st.floats(0, 20), min_size=1, max_size=100))
def test_no_time_sees_more_than_twice_the_rate_and_never_more_than_the_rate_at_once(rate, gaps):
    bucket, now, taken = Bucket(rate, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now):
            taken.append(now)
    for start in taken:
        # What was saved up, and what came meanwhile; a hair more, because floats add up.
        within = [at for at in taken if start <= at < start + rate.per]
        assert len(within) <= 2 * rate.count + 1
    assert max(map(taken.count, taken), default=0) <= rate.count


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), min_size=1, max_size=50))
def test_those_in_line_come_again_one_behind_the_other(steps):
    line, now, last = Queue(), 0.0, 0.0
    for gap, interval in steps:
        now += gap
        at = now + line.wait(now, interval)
        assert at >= max(now, last) + SHORTEST - 1e-9
        assert at >= last + interval - 1e-9
        last = at
