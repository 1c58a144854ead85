"""Metrics for Prometheus, by prometheus-client: `Outbox(target, metrics=PrometheusMetrics())`."""

from __future__ import annotations

import os
from contextlib import suppress
from copy import copy
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from aftercommit.errors import InvalidOption, MissingDriver
from aftercommit.events.measures import Delivered, TableState
from aftercommit.hooks import MetricsExporter
from aftercommit.observers.catalogue import MAX_NAMES, OWN, TABLE, Names, Series, readings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: Results for which the handler was called, so that the time means something.
_CALLED: Final = frozenset({"ok", "retry", "dead", "discard", "fallback"})
#: Results after which nothing is to be done any more.
_ENDED: Final = frozenset({"ok", "discard", "fallback"})


class PrometheusMetrics(MetricsExporter):
    """Exports to a registry: prometheus-client's own, or the one that is given. One object serves all outboxes of a
    process: each has its value of the label `store`.

    What is true of the table as a whole is exported by one process of those that export, so ask for it by `max by (…)`.
    In the multiprocess mode of prometheus-client, too, the newest value counts.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, max_names: int = MAX_NAMES) -> None:
        """`max_names`: how many event types, and how many handlers, are told apart; the rest is `other`."""
        client = _client()
        self.registry: CollectorRegistry = client.REGISTRY if registry is None else registry
        try:
            self._series = {each.name: _made(client, each, self.registry) for each in (*OWN, *TABLE)}
        except ValueError as error:
            raise InvalidOption(
                "this registry has the metrics of an outbox already",
                fix="give all outboxes the same PrometheusMetrics, or each one a CollectorRegistry() of its own",
            ) from error
        self._types, self._handlers = Names(max_names), Names(max_names)
        self._store = ""
        #: Values of the table that are exported now, by name and labels.
        self._told: set[tuple[str, tuple[str, ...]]] = set()

    def for_store(self, store: str) -> PrometheusMetrics:
        bound = copy(self)
        bound._store, bound._told = store, set()
        bound._of("outbox_build_info", version("aftercommit")).set(1)
        for series in OWN:
            if series.kind == "counter" and not series.labels:
                bound._of(series.name)  # from 0 on: of a series that begins with 1 no server sees the first increase
        return bound

    def _of(self, name: str, *labels: str) -> Any:
        return self._series[name].labels(self._store, *labels)

    # ------------------------------------------------------------ of this process

    def increment_hot_enqueued(self) -> None:
        self._of("outbox_enqueued_total", "hot").inc()

    def increment_hot_dropped(self) -> None:
        self._of("outbox_hot_dropped_total").inc()

    def increment_hot_skipped_delayed(self) -> None:
        self._of("outbox_hot_skipped_delayed_total").inc()

    def increment_cold_enqueued(self) -> None:
        self._of("outbox_enqueued_total", "cold").inc()

    def increment_dispatch_success(self) -> None:
        self._of("outbox_settled_total", "success").inc()

    def increment_dispatch_failure(self) -> None:
        self._of("outbox_settled_total", "failure").inc()

    def increment_dispatch_dead(self) -> None:
        self._of("outbox_settled_total", "dead").inc()

    def increment_dispatch_deferred(self) -> None:
        self._of("outbox_settled_total", "deferred").inc()

    def increment_instances_lost(self) -> None:
        self._of("outbox_instances_lost_total").inc()

    def record_queue_depths(self, hot_depth: int, cold_depth: int) -> None:
        self._of("outbox_lane_depth", "hot").set(hot_depth)
        self._of("outbox_lane_depth", "cold").set(cold_depth)

    def record_oldest_lag_ms(self, lag_ms: int) -> None:
        self._of("outbox_claimed_lag_seconds").set(lag_ms / 1000)

    def record_dispatch_latency_ms(self, latency_ms: float) -> None:
        self._of("outbox_wait_seconds").observe(latency_ms / 1000)

    def written(self, event_type: str, count: int) -> None:
        self._of("outbox_written_total", self._types(event_type)).inc(count)

    def delivered(self, delivered: Delivered) -> None:
        handler, result = self._handlers(delivered.handler_id), delivered.result
        self._of("outbox_deliveries_total", self._types(delivered.event_type), handler, result).inc()
        if result in _CALLED:
            self._of("outbox_delivery_seconds", handler).observe(delivered.duration)
        if result in _ENDED and delivered.latency is not None:
            self._of("outbox_e2e_seconds").observe(delivered.latency)

    def lease_lost(self, event_type: str, handler_id: str) -> None:
        self._of("outbox_leases_lost_total", self._handlers(handler_id)).inc()

    def heartbeat(self) -> None:
        self._of("outbox_worker_heartbeat_timestamp_seconds").set_to_current_time()

    # ------------------------------------------------------------ of the table

    def collected(self, table: TableState | None) -> None:
        told: set[tuple[str, tuple[str, ...]]] = set()
        if table is not None:
            for name, labels, value in readings(table):
                self._of(name, *labels).set(value)
                told.add((name, labels))
            self._of("outbox_collected_timestamp_seconds").set_to_current_time()
            told.add(("outbox_collected_timestamp_seconds", ()))
        self._forget(self._told - told)
        self._told = told

    def closed(self) -> None:
        self._forget({("outbox_worker_heartbeat_timestamp_seconds", ())})

    def _forget(self, gone: set[tuple[str, tuple[str, ...]]]) -> None:
        """An old value must not stand beside the one of the process that has the duty now. In multiprocess mode nothing
        can be taken back; there the newest value wins."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            for name, labels in gone:
                with suppress(KeyError):  # it never came to a first value
                    self._series[name].remove(self._store, *labels)


def _client() -> Any:
    """The library, which nobody else loads."""
    try:
        import prometheus_client  # noqa: PLC0415
    except ImportError as error:
        raise MissingDriver(
            f"prometheus-client is not installed ({error})", fix='pip install "aftercommit[prometheus]"'
        ) from error
    return prometheus_client


def _made(client: Any, series: Series, registry: CollectorRegistry) -> Any:
    labels = ("store", *series.labels)
    if series.kind == "counter":
        return client.Counter(series.name, series.meaning, labels, registry=registry)
    if series.kind == "histogram":
        return client.Histogram(series.name, series.meaning, labels, registry=registry, buckets=series.buckets)
    mode = "livemostrecent" if series in TABLE else "liveall"
    return client.Gauge(series.name, series.meaning, labels, registry=registry, multiprocess_mode=mode)
