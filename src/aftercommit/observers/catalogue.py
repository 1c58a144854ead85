"""Every series that the exporters have, said once: the exporters make them from here, and the tables of
`docs/monitoring.md` are compared with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from aftercommit.events.measures import ANY_HANDLER, TableState
from aftercommit.events.pauses import PauseKind
from aftercommit.events.records import Summary

#: How many distinct event types, and how many handlers, get series of their own. A program has tens; a type that is
#: made up for each event would else fill the memory of every process and of the server that keeps the series.
MAX_NAMES: Final = 200

#: Stands for all names beyond those.
OTHER: Final = "other"

#: Seconds. From a handler that only counts to one that calls somebody slow.
_CALLS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: From the hot path to an event that has waited for an outage to end.
_WAYS: Final = (0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)


class Series(NamedTuple):
    """One metric by the name that Prometheus has for it. All have the label `store` before their own."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


#: What each process counts of its own.
OWN: Final = (
    Series("outbox_written_total", "counter", ("type",), "events committed; or written, where a commit is not seen"),
    Series(
        "outbox_deliveries_total",
        "counter",
        ("type", "handler", "result"),
        "events at a handler, by how that ended: ok, retry, dead, discard, fallback, defer, release, unroutable",
    ),
    Series("outbox_delivery_seconds", "histogram", ("handler",), "from the call of a handler to its verdict", _CALLS),
    Series("outbox_e2e_seconds", "histogram", (), "from the write to the end, waiting and retries included", _WAYS),
    Series("outbox_wait_seconds", "histogram", (), "in memory, until a worker took the event", _WAYS),
    Series("outbox_settled_total", "counter", ("outcome",), "outcomes written: success, failure, dead, deferred"),
    Series("outbox_enqueued_total", "counter", ("lane",), "events that came into a lane: hot, cold"),
    Series("outbox_hot_dropped_total", "counter", (), "events left to the poller because the hot lane was full"),
    Series("outbox_hot_skipped_delayed_total", "counter", (), "events that were not due when they were committed"),
    Series("outbox_leases_lost_total", "counter", ("handler",), "outcomes that came too late: another has the row"),
    Series("outbox_instances_lost_total", "counter", (), "instances of the fleet that fell silent and were given up"),
    Series("outbox_write_duplicates_total", "counter", (), "events not written: another has their unique key"),
    Series("outbox_lane_depth", "gauge", ("lane",), "events that wait in memory: hot, cold"),
    Series("outbox_claimed_lag_seconds", "gauge", (), "age of the oldest row of the last claim"),
    Series(
        "outbox_worker_heartbeat_timestamp_seconds", "gauge", (), "when its loops last turned and its store answered"
    ),
    Series("outbox_build_info", "gauge", ("version",), "1, for the release that runs"),
)

#: What is true of the table, whoever says it.
TABLE: Final = (
    Series("outbox_backlog", "gauge", ("state",), "unfinished rows: new, retry"),
    Series("outbox_leases", "gauge", (), "unfinished rows that somebody holds now"),
    Series("outbox_dead", "gauge", (), "dead rows"),
    Series("outbox_done", "gauge", (), "done rows; 100,000 stands for that many or more"),
    Series("outbox_oldest_pending_seconds", "gauge", (), "how long the oldest row that is due has been due"),
    Series("outbox_type_pending", "gauge", ("type", "handler"), "unfinished rows, of the first 10,000"),
    Series("outbox_type_dead", "gauge", ("type", "handler"), "dead rows, of the first 10,000"),
    Series("outbox_type_oldest_pending_seconds", "gauge", ("type", "handler"), "how long the oldest has been due"),
    Series("outbox_blocked_keys", "gauge", (), "keys that stand still behind a dead event; 100: or more"),
    Series("outbox_partition_pending_max", "gauge", (), "unfinished rows of the fullest partition"),
    Series("outbox_partitions", "gauge", ("state",), "partitions of an ordered fleet: owned, unowned"),
    Series("outbox_instances", "gauge", (), "living instances of an ordered fleet"),
    Series("outbox_instance_partitions_max", "gauge", (), "partitions of the instance that has the most"),
    Series("outbox_paused_seconds", "gauge", ("kind", "name"), "how long a handler or a type has been paused by now"),
    Series("outbox_collected_timestamp_seconds", "gauge", (), "when the table was last looked at"),
)


class Reading(NamedTuple):
    """One value of the table's."""

    name: str
    labels: tuple[str, ...]
    value: float


def readings(table: TableState, types: Names, handlers: Names) -> Iterator[Reading]:
    """All that is to be said of the table, but for the time at which it was looked at."""
    yield from _by_type(table.summary, types, handlers)
    backlog, cluster = table.backlog, table.cluster
    yield Reading("outbox_backlog", ("new",), backlog.new)
    yield Reading("outbox_backlog", ("retry",), backlog.retry)
    yield Reading("outbox_leases", (), backlog.leased)
    yield Reading("outbox_dead", (), backlog.dead)
    yield Reading("outbox_done", (), table.done)
    yield Reading("outbox_oldest_pending_seconds", (), backlog.oldest_due.total_seconds())
    yield Reading("outbox_blocked_keys", (), table.blocked_keys)
    yield Reading("outbox_partition_pending_max", (), table.partitions.maximum)
    for pause in table.paused:
        name = (handlers if pause.kind is PauseKind.HANDLER else types)(pause.name)
        yield Reading("outbox_paused_seconds", (pause.kind.value, name), pause.lasted.total_seconds())
    if cluster is not None:
        yield Reading("outbox_partitions", ("owned",), cluster.total_partitions - cluster.unassigned_partitions)
        yield Reading("outbox_partitions", ("unowned",), cluster.unassigned_partitions)
        yield Reading("outbox_instances", (), cluster.total_instances)
        yield Reading("outbox_instance_partitions_max", (), max(cluster.assigned.values(), default=0))


def _by_type(summary: Summary, types: Names, handlers: Names) -> Iterator[Reading]:
    """What shares a name is added up; of times the longest counts."""
    pending, dead, oldest = Counter[tuple[str, str]](), Counter[tuple[str, str]](), dict[tuple[str, str], float]()
    for each in summary.types:
        labels = types(each.event_type), handlers(each.handler_id or ANY_HANDLER)
        pending[labels] += each.new + each.retry
        dead[labels] += each.dead
        if each.oldest_due is not None:
            oldest[labels] = max(oldest.get(labels, 0.0), each.oldest_due.total_seconds())
    yield from (Reading("outbox_type_pending", labels, count) for labels, count in pending.items())
    yield from (Reading("outbox_type_dead", labels, count) for labels, count in dead.items())
    yield from (Reading("outbox_type_oldest_pending_seconds", labels, age) for labels, age in oldest.items())


class Names:
    """The names that have series of their own: the first that were met, and `other` for the rest."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name
