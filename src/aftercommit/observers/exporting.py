"""From what an outbox tells to the series of the catalogue; how a series is kept is left to each exporter."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from copy import copy
from importlib.metadata import version
from typing import Final, Self

from aftercommit.events.measures import Delivered, TableState
from aftercommit.hooks import MetricsExporter
from aftercommit.observers.catalogue import MAX_NAMES, OWN, Names, readings

#: Results for which the handler was called, so that the time means something.
_CALLED: Final = frozenset({"ok", "retry", "dead", "discard", "fallback"})
#: Results after which nothing is to be done any more.
_ENDED: Final = frozenset({"ok", "discard", "fallback"})


class Exporting(MetricsExporter, ABC):
    """What all exporters share. One object serves all outboxes of a process, and a copy of it each of them."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._types, self._handlers = Names(max_names), Names(max_names)
        self._store = ""
        #: Values of the table that are exported now, by name and labels.
        self._told: set[tuple[str, tuple[str, ...]]] = set()

    def for_store(self, store: str) -> Self:
        bound = copy(self)
        bound._store, bound._told = store, set()
        bound._set("outbox_build_info", (version("aftercommit"),), 1)
        for series in OWN:
            if series.kind == "counter" and not series.labels:
                # From 0 on: of a series that begins with 1 no server sees the first increase.
                bound._add(series.name, (), 0)
        return bound

    @abstractmethod
    def _add(self, name: str, labels: tuple[str, ...], amount: float) -> None:
        """Raise a counter."""

    @abstractmethod
    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge."""

    @abstractmethod
    def _observe(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Put a value into a histogram."""

    @abstractmethod
    def _forget(self, name: str, labels: tuple[str, ...]) -> None:
        """Export this gauge no more, if it ever was."""

    # ------------------------------------------------------------ of this process

    def increment_hot_enqueued(self) -> None:
        self._add("outbox_enqueued_total", ("hot",), 1)

    def increment_hot_dropped(self) -> None:
        self._add("outbox_hot_dropped_total", (), 1)

    def increment_hot_skipped_delayed(self) -> None:
        self._add("outbox_hot_skipped_delayed_total", (), 1)

    def increment_cold_enqueued(self) -> None:
        self._add("outbox_enqueued_total", ("cold",), 1)

    def increment_dispatch_success(self) -> None:
        self._add("outbox_settled_total", ("success",), 1)

    def increment_dispatch_failure(self) -> None:
        self._add("outbox_settled_total", ("failure",), 1)

    def increment_dispatch_dead(self) -> None:
        self._add("outbox_settled_total", ("dead",), 1)

    def increment_dispatch_deferred(self) -> None:
        self._add("outbox_settled_total", ("deferred",), 1)

    def increment_instances_lost(self) -> None:
        self._add("outbox_instances_lost_total", (), 1)

    def increment_write_duplicates(self) -> None:
        self._add("outbox_write_duplicates_total", (), 1)

    def record_queue_depths(self, hot_depth: int, cold_depth: int) -> None:
        self._set("outbox_lane_depth", ("hot",), hot_depth)
        self._set("outbox_lane_depth", ("cold",), cold_depth)

    def record_oldest_lag_ms(self, lag_ms: int) -> None:
        self._set("outbox_claimed_lag_seconds", (), lag_ms / 1000)

    def record_dispatch_latency_ms(self, latency_ms: float) -> None:
        self._observe("outbox_wait_seconds", (), latency_ms / 1000)

    def written(self, event_type: str, count: int) -> None:
        self._add("outbox_written_total", (self._types(event_type),), count)

    def delivered(self, delivered: Delivered) -> None:
        handler, result = self._handlers(delivered.handler_id), delivered.result
        self._add("outbox_deliveries_total", (self._types(delivered.event_type), handler, result), 1)
        if result in _CALLED:
            self._observe("outbox_delivery_seconds", (handler,), delivered.duration)
        if result in _ENDED and delivered.latency is not None:
            self._observe("outbox_e2e_seconds", (), delivered.latency)

    def lease_lost(self, event_type: str, handler_id: str) -> None:
        self._add("outbox_leases_lost_total", (self._handlers(handler_id),), 1)

    def heartbeat(self) -> None:
        self._set("outbox_worker_heartbeat_timestamp_seconds", (), time.time())

    # ------------------------------------------------------------ of the table

    def collected(self, table: TableState | None) -> None:
        """An old value must not stand beside the one of the process that has the duty now."""
        told: set[tuple[str, tuple[str, ...]]] = set()
        if table is not None:
            for name, labels, value in readings(table, self._types, self._handlers):
                self._set(name, labels, value)
                told.add((name, labels))
            self._set("outbox_collected_timestamp_seconds", (), time.time())
            told.add(("outbox_collected_timestamp_seconds", ()))
        for name, labels in self._told - told:
            self._forget(name, labels)
        self._told = told

    def closed(self) -> None:
        self._forget("outbox_worker_heartbeat_timestamp_seconds", ())
