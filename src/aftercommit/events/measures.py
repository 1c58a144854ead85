"""What exporters of metrics are told beside plain counts: one delivery, and the table as a whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from aftercommit.events.claims import Backlog, Claimed, asked_at
from aftercommit.events.order import ClusterStats, PartitionStats
from aftercommit.events.outcome import DISCARDED, FELL_BACK, Dead, Defer, Done, Outcome, Release, Retry
from aftercommit.events.pauses import Pause
from aftercommit.events.records import Summary

#: How a delivery ended, for the label of a metric. `defer`: not now, uncounted; `unroutable`: nobody here has a handler
#: for it; `release`: given back unfinished by close().
DeliveryResult: TypeAlias = Literal["ok", "retry", "dead", "discard", "fallback", "defer", "release", "unroutable"]

#: Rows and keys that are counted for exporters. An index of so many is read in a few milliseconds, again and again.
DONE_AT_MOST: Final = 100_000
SUMMED_AT_MOST: Final = 10_000
BLOCKED_AT_MOST: Final = 100

#: Stands for the handler of a row that serves all of its handlers, where none of them was reached.
ANY_HANDLER: Final = "*"


class Delivered(msgspec.Struct, frozen=True):
    """One event at one handler, decided. No id and no key: a label must not have a value for each event."""

    event_type: str
    handler_id: str
    result: DeliveryResult
    #: Seconds from the first interceptor to the verdict.
    duration: float
    #: Seconds from the write to the verdict, waiting and earlier attempts included, on the database's clock as long as
    #: the row lay there. None for an event that was to be delivered later.
    latency: float | None


class TableState(msgspec.Struct, frozen=True):
    """The table as a whole, as one process of a fleet reads it from time to time."""

    backlog: Backlog
    #: Done rows, counted no further than `DONE_AT_MOST`.
    done: int
    #: Unfinished rows by partition.
    partitions: PartitionStats
    #: Unfinished and dead rows by event type and handler, as far as `SUMMED_AT_MOST` of each go.
    summary: Summary
    #: Keys that stand still behind a dead event; a hundred stands for that many or more.
    blocked_keys: int = 0
    #: The instances of an ordered fleet; None where every process looks after all partitions.
    cluster: ClusterStats | None = None
    #: Handlers and event types that are paused.
    paused: tuple[Pause, ...] = ()


def delivered(
    claimed: Claimed, handler_id: str, result: DeliveryResult, *, began: float, now: float, lock_timeout: timedelta
) -> Delivered:
    """What there is to say of a delivery that has ended now."""
    event = claimed.event
    latency = None
    if not event.is_delayed:
        latency = max(0.0, claimed.age.total_seconds() + now - asked_at(claimed.lease, lock_timeout))
    return Delivered(event.event_type, handler_id, result, max(0.0, now - began), latency)


def result_of(outcome: Outcome) -> DeliveryResult:
    if outcome is DISCARDED:
        return "discard"
    if outcome is FELL_BACK:
        return "fallback"
    match outcome:
        case Done():
            return "ok"
        case Retry():
            return "retry"
        case Dead():
            return "dead"
        case Defer():
            return "defer"
        case Release():
            return "release"
