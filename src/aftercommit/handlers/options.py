"""The options of a handler, checked when it is declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, Required, TypedDict

import msgspec

from aftercommit.errors import InvalidHandler, InvalidOption, did_you_mean
from aftercommit.events.durations import Duration, duration, seconds_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import name_of
from aftercommit.events.retry import RetryPolicy
from aftercommit.events.retry_settings import Retry, policy_of

#: The id of whatever `register()` knows for an event; no handler may be called so.
LISTENER_ID: Final = "@listener"

_RATE: Final = re.compile(r"([1-9][0-9]*)/((?:[0-9.]+)?(?:ms|s|m|h|d))")

Supports = Callable[[EventEnvelope], bool]


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so many seconds, at most as many at once."""

    count: int
    per: float

    @property
    def interval(self) -> float:
        return self.per / self.count


class AnyEvent:
    """The route of handlers that take every event."""

    def __repr__(self) -> str:
        return "any_event"


class AnyPayload(AnyEvent):
    """The same, for a handler that wants the payload of each event, and not the event."""


any_event: Final = AnyEvent()
any_payload: Final = AnyPayload()


class PlainOptions(TypedDict, total=False):
    """The keywords of `handler()` that change nothing of what a handler takes."""

    #: Only events of this aggregate type.
    aggregate_type: str | Enum
    #: The retry policy, its name, or its name and properties; the outbox's when it is left out.
    retry: Retry
    #: The longest that one call may take.
    timeout: Duration
    #: Calls at the same time, in this process.
    concurrency: int
    #: Calls in a time, in this process: "100/s", "5/m", "3/10s".
    rate: str
    #: The stored name; the function's own when it is left out.
    id: str
    #: Earlier ids, so that rows written under them still find their handler.
    aliases: Iterable[str]
    #: For `any_event`: whether it wants this event.
    supports: Supports
    #: What it talks to, or a function of the event that says so. When that is away, its events wait.
    destination: str | Callable[[EventEnvelope], str]


class HandlerOptions(PlainOptions, total=False):
    """The keywords of `handler()`."""

    #: Its statements and the mark that the event is done are one transaction, which it gets as `tx`.
    transactional: bool


class BatchOptions(PlainOptions, total=False):
    """The keywords of `handler()` for one that gets lists of events."""

    #: It gets a list of up to so many events in one call.
    batch: Required[int]
    #: How long a batch that is not full waits for more; without it, it is what waits at that moment.
    linger: Duration


#: All names that there are.
OPTIONS: Final = (*HandlerOptions.__annotations__, "batch", "linger")

#: The longest list that a handler may ask for.
LARGEST_BATCH: Final = 10_000


class HandlerSettings(msgspec.Struct, frozen=True):
    """The options of one handler, as values."""

    id: str
    aliases: tuple[str, ...]
    aggregate_type: str | None
    retry: RetryPolicy | None
    timeout: float | None
    concurrency: int | None
    rate: Rate | None
    supports: Supports | None
    destination: Callable[[EventEnvelope], str] | None
    #: It gets lists of up to so many events; None: one event each time.
    batch: int | None = None
    #: Seconds that a batch waits to become full.
    linger: float = 0.0
    transactional: bool = False


def settings_of(function: object, options: dict[str, Any], *, is_generic: bool) -> HandlerSettings:
    """Read the options of a handler; wrong names and values are refused with the fix."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise InvalidOption(f"handler() has no option {name}={value!r}", fix=did_you_mean(name, OPTIONS))
    timeout, aggregate_type, retry = options.get("timeout"), options.get("aggregate_type"), options.get("retry")
    return HandlerSettings(
        id=_id(function, options.get("id")),
        aliases=_aliases(options.get("aliases", ())),
        aggregate_type=None if aggregate_type is None else name_of(aggregate_type, "aggregate_type", 64),
        retry=None if retry is None else policy_of(retry, name="retry"),
        timeout=None if timeout is None else seconds_of(timeout, name="timeout", positive=True),
        concurrency=_concurrency(options.get("concurrency")),
        rate=_rate(options.get("rate")),
        supports=_supports(options.get("supports"), is_generic=is_generic),
        destination=_destination(options.get("destination")),
        batch=_batch(options.get("batch")),
        linger=_linger(options),
        transactional=_transactional(options),
    )


def _id(function: object, given: object) -> str:
    name = getattr(function, "__name__", None) if given is None else given
    if given is None and name in (None, "<lambda>"):
        raise InvalidHandler(
            f"the handler {function!r} has no name of its own, and rows are stored under it",
            fix='give it one: outbox.handler("OrderPlaced", id="send-receipt")(…)',
        )
    return _checked_id(name, "id")


def _aliases(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidOption(f"aliases is {given!r}", fix='pass a list: aliases=["old_name"]')
    return tuple(_checked_id(alias, "alias") for alias in given)


def _checked_id(value: object, field: str) -> str:
    name = name_of(value, field, 255)
    if name[0] in "@!":
        raise InvalidHandler(f"the {field} {name!r} begins with {name[0]!r}, which is reserved", fix="rename it")
    return name


def _concurrency(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidOption(f"concurrency is {value!r}", fix="pass an int of at least 1")
    return value


def _rate(value: Any) -> Rate | None:
    if value is None:
        return None
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidOption(f"rate is {value!r}", fix='pass calls and a time: "100/s", "5/m", "3/10s"')
    per = found[2] if found[2][0].isdigit() else f"1{found[2]}"
    return Rate(int(found[1]), duration(per, name="rate", positive=True).total_seconds())


def _batch(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_BATCH
    if value is not None and not is_count:
        raise InvalidOption(f"batch is {value!r}", fix=f"pass an int from 1 to {LARGEST_BATCH}")
    return value  # type: ignore[no-any-return]


def _linger(options: dict[str, Any]) -> float:
    value = options.get("linger")
    if value is None:
        return 0.0
    if options.get("batch") is None:
        raise InvalidOption(
            f"linger is {value!r}, and the handler takes one event at a time", fix='batch=100, linger="5ms"'
        )
    return seconds_of(value, name="linger")


def _supports(value: Any, *, is_generic: bool) -> Supports | None:
    if value is not None and (not callable(value) or not is_generic):
        raise InvalidOption(
            f"supports is {value!r}" + ("" if is_generic else ", and the handler has a route of its own"),
            fix="@outbox.handler(any_event, supports=lambda event: …)",
        )
    return value  # type: ignore[no-any-return]


def _destination(value: Any) -> Callable[[EventEnvelope], str] | None:
    if isinstance(value, str) and value:
        return lambda _: value
    if value is not None and not callable(value):
        raise InvalidOption(f"destination is {value!r}", fix="pass a name, or a function of the event that gives one")
    return value  # type: ignore[no-any-return]


def _transactional(options: dict[str, Any]) -> bool:
    value = options.get("transactional", False)
    if not isinstance(value, bool):
        raise InvalidOption(f"transactional is {value!r}", fix="pass True or False")
    if value and options.get("batch") is not None:
        raise InvalidOption(
            f"batch={options['batch']!r} and transactional=True were given, and a transaction is that of one event",
            fix="leave out one of the two",
        )
    return value
