"""The same figures by OpenTelemetry: conventional names where there are some."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from aftercommit import Delivered, Fixed, MissingDriver, OtelMetrics
from aftercommit.observers.catalogue import OTHER, OWN, TABLE
from aftercommit.observers.otel import CONVENTIONS, named
from tests.delivery.faulty import until
from tests.support import Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

PASSWORD = "canary-4711"
PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"


class Read:
    """A provider of the test's own, and what an export finds."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        found = [metric for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics]
        return {metric.name: list(metric.data.data_points) for metric in found}

    def value(self, name: str, **attributes: str) -> float | None:
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        for point in self.points().get(name, []):
            if wanted.items() <= dict(point.attributes).items():
                return getattr(point, "value", None) if hasattr(point, "value") else point.count
        return None


def test_an_outbox_at_work_is_seen_by_conventional_names(world: World, colour: Colouring) -> None:
    async def scenario() -> None:
        read, seen = Read(), Collector()
        outbox = world.outbox(metrics=OtelMetrics(read.provider), retry_policy=Fixed("1h"), poll_interval="1h")

        def charge(event: Any) -> None:
            seen.add(event)
            raise ValueError(f"password={PASSWORD}")

        outbox.handler("Placed", id="receipt")(colour(seen.add))
        outbox.handler("Paid", id="charge")(colour(charge))
        async with outbox:
            async with outbox.transaction():
                await outbox.write("Placed", "{}", headers={"authorization": PASSWORD}, key=PASSWORD)
                await outbox.write("Paid", "{}", tenant_id=PASSWORD)
            await seen.reach(2)
            await world.until("SELECT count(*) = 2 FROM outbox_event WHERE locked_by IS NULL AND status > 0")
            outbox._engine.collector.call()
            await until(lambda: read.value("outbox.done") == read.value("outbox.backlog", state="retry") == 1)
            here = {"store": str(world.path)}
            placed, paid = {"messaging__destination__name": "Placed"}, {"messaging__destination__name": "Paid"}
            written = {"messaging__system": "outbox", "messaging__operation__name": "write", **here}
            assert read.value("messaging.client.sent.messages", **placed, **written) == 1
            charged = {"messaging__consumer__group__name": "charge"}
            consumed = read.value("messaging.client.consumed.messages", **paid, **charged, outbox__result="retry")
            assert consumed == 1
            assert read.value("messaging.process.duration", **charged, **here) == 1
            assert read.value("outbox.e2e", **here) == 1
            assert read.value("outbox.backlog", state="retry", **here) == 1
            assert read.value("outbox.worker_heartbeat_timestamp")
            assert PASSWORD not in str(read.points())
        assert read.value("outbox.backlog") is None, "who is closed says nothing of the table any more"
        assert read.value("outbox.worker_heartbeat_timestamp") is None

    world.run(scenario)


def test_names_beyond_the_limit_share_one_series() -> None:
    read = Read()
    metrics = OtelMetrics(read.provider, max_names=2).for_store("here")
    for number in range(20):
        metrics.delivered(Delivered(f"Type{number}", f"handler{number}", "ok", 0.1, 0.1))
    points = read.points()["messaging.client.consumed.messages"]
    assert {point.attributes["messaging.destination.name"] for point in points} == {"Type0", "Type1", OTHER}


def test_seconds_have_buckets_of_seconds() -> None:
    read = Read()
    OtelMetrics(read.provider).for_store("here").record_dispatch_latency_ms(3)
    (point,) = read.points()["outbox.wait"]
    assert point.explicit_bounds[0] == 0.001
    assert point.sum == pytest.approx(0.003)


def test_names_are_those_of_prometheus_without_the_unit() -> None:
    """So that what an OpenTelemetry exporter for Prometheus makes of them is the name that the dashboard has."""
    for series in (*OWN, *TABLE):
        name, unit = named(series)
        if series.name not in CONVENTIONS:
            ending = ("_seconds" if unit == "s" else "") + ("_total" if series.kind == "counter" else "")
            assert name.replace(".", "_") + ending == series.name


def test_the_docs_have_the_conventional_names() -> None:
    rows = re.findall(r"^\| `(outbox_\w+)` \| `([\w.]+)` \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [(key, each.name, ", ".join(f"`{name}`" for name in each.labels)) for key, each in CONVENTIONS.items()]
    assert rows == expected


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDriver, match=r"aftercommit\[otel\]"):
        OtelMetrics()
