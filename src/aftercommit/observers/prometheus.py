"""Metrics for Prometheus, by prometheus-client: `Outbox(target, metrics=PrometheusMetrics())`."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aftercommit.errors import InvalidOption, MissingDriver
from aftercommit.observers.catalogue import MAX_NAMES, OWN, TABLE, Series
from aftercommit.observers.exporting import Exporting

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusMetrics(Exporting):
    """Exports to a registry: prometheus-client's own, or the one that is given. One object serves all outboxes of a
    process: each has its value of the label `store`.

    What is true of the table as a whole is exported by one process of those that export, so ask for it by `max by (…)`.
    In the multiprocess mode of prometheus-client, too, the newest value counts.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, max_names: int = MAX_NAMES) -> None:
        """`max_names`: how many event types, and how many handlers, are told apart; the rest is `other`."""
        super().__init__(max_names)
        client = _client()
        self.registry: CollectorRegistry = client.REGISTRY if registry is None else registry
        try:
            self._series = {each.name: _made(client, each, self.registry) for each in (*OWN, *TABLE)}
        except ValueError as error:
            raise InvalidOption(
                "this registry has the metrics of an outbox already",
                fix="give all outboxes the same PrometheusMetrics, or each one a CollectorRegistry() of its own",
            ) from error

    def _add(self, name: str, labels: tuple[str, ...], amount: float) -> None:
        self._series[name].labels(self._store, *labels).inc(amount)

    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self._series[name].labels(self._store, *labels).set(value)

    def _observe(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self._series[name].labels(self._store, *labels).observe(value)

    def _forget(self, name: str, labels: tuple[str, ...]) -> None:
        # In multiprocess mode nothing can be taken back; there the newest value wins.
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            with suppress(KeyError):
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
