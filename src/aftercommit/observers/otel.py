"""Metrics by OpenTelemetry: `Outbox(target, metrics=OtelMetrics())`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aftercommit.observers.catalogue import MAX_NAMES, OWN, TABLE, Series
from aftercommit.observers.exporting import Exporting
from aftercommit.observers.tracing import SYSTEM, Otel

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


class Convention(NamedTuple):
    """A series that the messaging conventions have a name for."""

    name: str
    unit: str
    operation: str
    #: The names of its labels there.
    labels: tuple[str, ...]


_TYPE, _HANDLER = "messaging.destination.name", "messaging.consumer.group.name"

CONVENTIONS: Final = {
    "outbox_written_total": Convention("messaging.client.sent.messages", "{message}", "write", (_TYPE,)),
    "outbox_deliveries_total": Convention(
        "messaging.client.consumed.messages", "{message}", "process", (_TYPE, _HANDLER, "outbox.result")
    ),
    "outbox_delivery_seconds": Convention("messaging.process.duration", "s", "process", (_HANDLER,)),
}


class OtelMetrics(Exporting):
    """Exports by the program's meter provider, or by the one that is given. One object serves all outboxes of a
    process: each has its value of the attribute `store`.

    What the messaging conventions have a name for has that name. All else is called as for Prometheus, without the
    unit: `outbox.e2e` in seconds, which Prometheus gets as `outbox_e2e_seconds`.
    """

    def __init__(self, meter_provider: MeterProvider | None = None, *, max_names: int = MAX_NAMES) -> None:
        """`max_names`: how many event types, and how many handlers, are told apart; the rest is `other`."""
        super().__init__(max_names)
        self._otel = Otel()
        meter = self._otel.metrics.get_meter("aftercommit", version("aftercommit"), meter_provider)
        #: The gauges as they are now, by name; each by its attributes.
        self._values: dict[str, dict[tuple[str, ...], float]] = {
            each.name: {} for each in (*OWN, *TABLE) if each.kind == "gauge"
        }
        self._instruments = {each.name: self._made(meter, each) for each in (*OWN, *TABLE)}
        self._labels = {each.name: _attributes_of(each) for each in (*OWN, *TABLE)}

    def _made(self, meter: Any, series: Series) -> Any:
        name, unit = named(series)
        if series.kind == "counter":
            return meter.create_counter(name, unit, series.meaning)
        if series.kind == "gauge":
            return meter.create_observable_gauge(name, [self._reading(series.name)], unit, series.meaning)
        # The SDK's own buckets are for milliseconds. Older APIs cannot be told of others.
        advice = "explicit_bucket_boundaries_advisory"
        can_be_told = advice in signature(meter.create_histogram).parameters
        told: dict[str, Any] = {advice: series.buckets} if can_be_told else {}
        return meter.create_histogram(name, unit, series.meaning, **told)

    def _reading(self, name: str) -> Callable[[object], Iterator[Any]]:
        """Asked at each export: what was taken back is exported no more."""

        def observe(_: object) -> Iterator[Any]:
            for values, number in list(self._values[name].items()):
                yield self._otel.metrics.Observation(number, dict(zip(self._labels[name][0], values, strict=True)))

        return observe

    def _attributes(self, name: str, labels: tuple[str, ...]) -> dict[str, str]:
        names, fixed = self._labels[name]
        return {**fixed, **dict(zip(names, (self._store, *labels), strict=True))}

    def _add(self, name: str, labels: tuple[str, ...], amount: float) -> None:
        self._instruments[name].add(amount, self._attributes(name, labels))

    def _set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self._values[name][(self._store, *labels)] = value

    def _observe(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self._instruments[name].record(value, self._attributes(name, labels))

    def _forget(self, name: str, labels: tuple[str, ...]) -> None:
        self._values[name].pop((self._store, *labels), None)


def named(series: Series) -> tuple[str, str]:
    """The name and the unit that a series has here."""
    if (convention := CONVENTIONS.get(series.name)) is not None:
        return convention.name, convention.unit
    name = series.name.removeprefix("outbox_").removesuffix("_total")
    return f"outbox.{name.removesuffix('_seconds')}", "s" if name.endswith("_seconds") else ""


def _attributes_of(series: Series) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of its attributes, and those whose values are always the same."""
    convention = CONVENTIONS.get(series.name)
    if convention is None:
        return ("store", *series.labels), {}
    fixed = {"messaging.system": SYSTEM, "messaging.operation.name": convention.operation}
    return ("store", *convention.labels), fixed
