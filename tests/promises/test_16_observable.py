"""Promise 16: every counter, gauge and log level of the specification; an exporter that raises harms nothing."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

import pytest

from aftercommit import EventEnvelope, Fixed, MetricsExporter
from tests.support import Collector, Signal, World

COUNTED = {
    "increment_hot_enqueued": 2,
    "increment_hot_dropped": 1,
    "increment_cold_enqueued": 3,
    "increment_dispatch_success": 2,
    "increment_dispatch_failure": 1,
    "increment_dispatch_dead": 2,
}
GAUGES = {"record_queue_depths", "record_oldest_lag_ms"}


class Counting(MetricsExporter):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith(("increment_", "record_")):
            return super().__getattribute__(name)

        def count(*values: float) -> None:
            with self._lock:
                self.calls[name] += 1
            raise RuntimeError("nobody takes this figure")

        return count


def test_promise_16_observable_every_counter_gauge_and_log_level(
    every_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """000 §16, with an exporter that raises each time."""
    world, exporter = every_world, Counting()

    async def scenario() -> None:
        entered, release, seen = Signal(), Signal(), Collector()

        def first(event: EventEnvelope) -> None:
            entered.set()
            release.wait_here()

        def fail(event: EventEnvelope) -> None:
            seen.add(event.event_id)
            raise ValueError("no luck")

        outbox = world.outbox(
            worker_count=1,
            hot_queue_capacity=1,
            max_attempts=2,
            retry_policy=Fixed("1ms"),
            unroutable_grace=0,
            metrics=exporter,
            poll_interval="1h",
        )
        outbox.register("Fine", first)
        outbox.register("Failing", fail)
        async with outbox:
            for event_type in ("Fine", "Failing", "Unknown", "Fine"):
                async with outbox.transaction():
                    await outbox.write(event_type, {})
                if event_type == "Fine":
                    await entered.wait()
            release.set()
            await world.until_settled(2)
            await world.until_settled(2, status=3)
        assert len(seen) == 2

    with caplog.at_level(logging.DEBUG, "aftercommit"):
        world.run(scenario)
    assert {name: exporter.calls[name] for name in COUNTED} == COUNTED
    assert all(exporter.calls[name] for name in GAUGES)
    levels = {
        said: {record.levelname for record in caplog.records if said in record.getMessage()}
        for said in ("hot lane is full", "no luck", "is DEAD", "exporter failed")
    }
    assert levels["hot lane is full"] == {"WARNING"}
    assert "WARNING" in levels["no luck"], "a failed attempt"
    assert levels["is DEAD"] == {"ERROR"}
    assert levels["exporter failed"] == {"WARNING"}
