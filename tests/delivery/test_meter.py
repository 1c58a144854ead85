"""Counting: for stats() here, and for an exporter whose errors harm nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aftercommit import MetricsExporter
from aftercommit.meter import QUIET, Meter
from tests.delivery.faulty import Loud, meter_of, with_runtime
from tests.support import World

COUNTERS = (
    "hot_enqueued",
    "hot_dropped",
    "hot_skipped_delayed",
    "cold_enqueued",
    "dispatch_success",
    "dispatch_failure",
    "dispatch_dead",
    "dispatch_deferred",
    "lease_lost",
    "instances_lost",
    "write_duplicates",
)

GAUGES: dict[str, tuple[float, ...]] = {
    "queue_depths": (42, 7),
    "oldest_lag_ms": (12345,),
    "dispatch_latency_ms": (0.5,),
    "listener_duration_ms": (2.5,),
}


class Failing(MetricsExporter):
    """Every method raises."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("increment_", "record_")):
            raise_it = object.__getattribute__(self, "_raise")
            return lambda *values: raise_it(name)
        return super().__getattribute__(name)

    def _raise(self, name: str) -> None:
        raise RuntimeError(f"{name} password=hunter2")


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_calls_its_method_once_per_event(world: World, name: str) -> None:
    """TC-244"""

    async def scenario(runtime: Any) -> None:
        exporter = Loud()
        meter = meter_of(runtime, exporter)
        meter.count(name)
        meter.count(name, 3)
        meter.count(name, 0)
        assert exporter.named(f"increment_{name}") == [()] * 4
        assert meter.counts()[name] == 4

    with_runtime(world, scenario)


def test_every_counter_and_gauge_has_a_method_that_does_nothing_by_default() -> None:
    exporter = MetricsExporter()
    for name in COUNTERS:
        assert getattr(exporter, f"increment_{name}")() is None
    for name, values in GAUGES.items():
        assert getattr(exporter, f"record_{name}")(*values) is None
    methods = {name for name in vars(MetricsExporter) if name.startswith(("increment_", "record_"))}
    assert methods == {f"increment_{name}" for name in COUNTERS} | {f"record_{name}" for name in GAUGES}


@pytest.mark.parametrize("name", GAUGES)
def test_a_gauge_passes_its_values_on(world: World, name: str) -> None:
    """TC-245"""

    async def scenario(runtime: Any) -> None:
        exporter = Loud()
        meter = meter_of(runtime, exporter)
        zero = tuple(0 for _ in GAUGES[name])
        meter.record(name, *GAUGES[name])
        meter.record(name, *zero)
        assert exporter.named(f"record_{name}") == [GAUGES[name], zero]

    with_runtime(world, scenario)


def test_an_exporter_that_raises_harms_nothing_and_is_named_now_and_then(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """F68, promise 16: one WARNING per ten seconds, without secrets."""

    async def scenario(runtime: Any) -> None:
        now = [100.0]
        runtime.clock = lambda: now[0]
        meter = meter_of(runtime, Failing())
        for _ in range(5):
            meter.count("hot_dropped")
            meter.record("queue_depths", 1, 2)
        assert meter.counts() == {"hot_dropped": 5}
        assert len(caplog.records) == 1
        now[0] += QUIET
        meter.count("hot_dropped")

    with caplog.at_level(logging.WARNING, "aftercommit"):
        with_runtime(world, scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "the metrics exporter failed" in caplog.text
    assert "hunter2" not in caplog.text


def test_an_exporter_without_the_method_is_left_alone(world: World) -> None:
    """What an older exporter does not know, and what is counted for stats() only."""

    class Old(MetricsExporter):
        increment_lease_lost = None  # type: ignore[assignment]

    async def scenario(runtime: Any) -> None:
        meter = meter_of(runtime, Old())
        meter.count("lease_lost")
        meter.count("released")
        assert meter.counts() == {"lease_lost": 1, "released": 1}

    with_runtime(world, scenario)


def test_the_default_exporter_is_not_called_at_all(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        assert not meter_of(runtime).exports
        assert meter_of(runtime, Loud()).exports

    with_runtime(world, scenario)


def test_a_topic_is_quiet_for_a_while_and_topics_do_not_share_it(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        now = [0.0]
        runtime.clock = lambda: now[0]
        meter = Meter(runtime, MetricsExporter())
        assert [meter.may_say("full"), meter.may_say("full"), meter.may_say("other")] == [True, False, True]
        now[0] += QUIET - 0.01
        assert not meter.may_say("full")
        now[0] += 0.01
        assert meter.may_say("full")

    with_runtime(world, scenario)


def test_counts_are_a_copy(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        meter = meter_of(runtime)
        meter.counts()["hot_dropped"] = 9
        assert meter.counts() == {}

    with_runtime(world, scenario)
