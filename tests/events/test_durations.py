"""Durations are read as users write them, and refused with a hint."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.errors import InvalidOption
from aftercommit.events.durations import duration, seconds_of, text_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(minutes=2), timedelta(minutes=2)),
        (5, timedelta(seconds=5)),
        (0.25, timedelta(milliseconds=250)),
        ("500us", timedelta(microseconds=500)),
        ("200ms", timedelta(milliseconds=200)),
        ("5s", timedelta(seconds=5)),
        ("1m", timedelta(minutes=1)),
        ("1h", timedelta(hours=1)),
        ("7d", timedelta(days=7)),
        ("1.5s", timedelta(seconds=1.5)),
        ("1.1ms", timedelta(microseconds=1100)),
        ("0.5h", timedelta(minutes=30)),
        (" 5s\n", timedelta(seconds=5)),
        (0, timedelta(0)),
        ("0s", timedelta(0)),
    ],
)
def test_a_duration_is_a_timedelta_seconds_or_text(value, expected):
    assert duration(value, name="poll_interval") == expected
    assert seconds_of(value, name="poll_interval") == expected.total_seconds()


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "5", "s", "five seconds", "5 s", "5S", "5sec", "1m30s", "1e3s", "1,5s", ".5s", "5.s", "+5s", "--5s"),
        *("\u0665s", "nan", "infs", "5\x00s"),
        *(True, False, None, float("nan"), float("inf"), -float("inf"), Decimal(5), 5j, b"5s", [5], object()),
        *(10**30, 1e30, "999999999999d", "9" * 400 + "s", 10**400),
    ],
    ids=lambda value: repr(value)[:20],
)
@pytest.mark.parametrize("read", [duration, seconds_of])
def test_anything_else_is_refused_with_option_value_and_accepted_forms(read, value):
    with pytest.raises(InvalidOption) as refused:
        read(value, name="poll_interval")

    assert f"poll_interval={value!r}" in str(refused.value)
    for form in ("timedelta", "seconds", "500us", "200ms", "5s", "1m", "1h", "7d"):
        assert form in refused.value.fix


@pytest.mark.parametrize("value", [-1, -0.001, "-5s", timedelta(microseconds=-1)])
@pytest.mark.parametrize("read", [duration, seconds_of])
def test_a_negative_duration_is_refused(read, value):
    with pytest.raises(InvalidOption, match="negative") as refused:
        read(value, name="drain_timeout")

    assert f"drain_timeout={value!r}" in str(refused.value)


@pytest.mark.parametrize("value", [0, 0.0, "0ms", timedelta(0), "0.1us"])
@pytest.mark.parametrize("read", [duration, seconds_of])
def test_zero_is_refused_where_a_duration_has_to_be_positive(read, value):
    with pytest.raises(InvalidOption, match="more than zero") as refused:
        read(value, name="lock_timeout", positive=True)

    assert f"lock_timeout={value!r}" in str(refused.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=500), "500us"),
        (timedelta(milliseconds=200), "200ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(seconds=1, microseconds=20), "1.00002s"),
        (timedelta(minutes=1), "60s"),
        (timedelta(days=1), "86400s"),
        (timedelta(seconds=-1.5), "-1.5s"),
    ],
)
def test_a_duration_is_shown_in_seconds_or_less(value, expected):
    assert text_of(value) == expected


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_shown_duration_reads_back_as_itself(value):
    assert duration(text_of(value), name="shown") == value
