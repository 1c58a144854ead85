"""An exporter that keeps what it is told, and a registry as text."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from aftercommit import Delivered, MetricsExporter, TableState
from tests.support import Collector


class Told(MetricsExporter):
    """Keeps what has more to tell than a count."""

    def __init__(self) -> None:
        self.deliveries, self.writes, self.losses, self.tables = Collector(), Collector(), Collector(), Collector()
        self.ends, self.beats, self.stores = Collector(), Collector(), Collector()

    def for_store(self, store: str) -> MetricsExporter:
        self.stores.add(store)
        return self

    def written(self, event_type: str, count: int) -> None:
        self.writes.add((event_type, count))

    def delivered(self, delivered: Delivered) -> None:
        self.deliveries.add(delivered)

    def lease_lost(self, event_type: str, handler_id: str) -> None:
        self.losses.add((event_type, handler_id))

    def collected(self, table: TableState | None) -> None:
        self.tables.add(table)

    def heartbeat(self) -> None:
        self.beats.add(None)

    def closed(self) -> None:
        self.ends.add(None)

    @property
    def results(self) -> list[tuple[str, str, str]]:
        return [(each.event_type, each.handler_id, each.result) for each in self.deliveries]


def samples(registry: CollectorRegistry) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What a scrape finds: labels and values by name."""
    found: dict[str, list[Any]] = {}
    for family in registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """The sum over what has these labels; None when there is nothing."""
    fitting = [each for each_labels, each in samples(registry).get(name, []) if labels.items() <= each_labels.items()]
    return sum(fitting) if fitting else None
