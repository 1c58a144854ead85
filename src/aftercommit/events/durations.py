"""Durations as users write them: a timedelta, a number of seconds, or text such as "200ms"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from aftercommit.errors import InvalidOption

Duration: TypeAlias = timedelta | int | float | str

_TEXT = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)")
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_FORMS = "a timedelta, a number of seconds, or text such as '500us', '200ms', '5s', '1m', '1h', '7d'"


def duration(value: Duration, *, name: str, positive: bool = False) -> timedelta:
    """The value of option `name` as a timedelta, to the microsecond. Negative ones are refused, zero if `positive`.

    >>> duration("1.5s", name="poll_interval")
    datetime.timedelta(seconds=1, microseconds=500000)
    """
    try:
        result = _read(value)
    except (OverflowError, ValueError):  # infinite, not a number, or more than a timedelta holds
        result = None
    if result is None:
        raise InvalidOption(f"{name}={value!r} is not a duration.", fix=f"Pass {_FORMS}.")
    if result < timedelta(0):
        raise InvalidOption(f"{name}={value!r} is negative.", fix=f"Pass {_FORMS}, not below zero.")
    if positive and not result:
        raise InvalidOption(f"{name}={value!r} has to be more than zero.", fix=f"Pass {_FORMS}, above zero.")
    return result


def seconds_of(value: Duration, *, name: str, positive: bool = False) -> float:
    """The value of option `name` in seconds; accepts and refuses what `duration` does."""
    return duration(value, name=name, positive=positive).total_seconds()


def text_of(value: timedelta) -> str:
    """A duration for people: seconds, below one second milliseconds or microseconds. `duration` reads it back.

    >>> text_of(timedelta(minutes=1)), text_of(timedelta(seconds=0.2))
    ('60s', '200ms')
    """
    unit = "s" if not value or abs(value) >= _UNITS["s"] else "ms" if abs(value) >= _UNITS["ms"] else "us"
    # In whole microseconds, because a float of seconds loses some in a long duration.
    whole, rest = divmod(abs(value), _UNITS[unit])
    size = _UNITS[unit] // _UNITS["us"]
    decimals = f".{rest // _UNITS['us']:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if value < timedelta(0) else ''}{whole}{decimals}{unit}"


def _read(value: object) -> timedelta | None:
    match value:
        case timedelta():
            return value
        case bool():  # an int to Python; to the user a mistake
            return None
        case int() | float():
            return timedelta(seconds=value)
        case str() if found := _TEXT.fullmatch(value.strip()):
            return float(found[1]) * _UNITS[found[2]]
        case _:
            return None
