"""What Prometheus finds: every series of the catalogue, told apart by names that cannot become too many."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from aftercommit import Delivered, Fixed, InvalidOption, MissingDriver, PartitionStats, PrometheusMetrics, TableState
from aftercommit.events.claims import Backlog
from aftercommit.events.pauses import Pause, PauseKind
from aftercommit.events.records import Summary, TypeSummary
from aftercommit.observers import prometheus
from aftercommit.observers.catalogue import OTHER, OWN, TABLE
from tests.observers.kit import samples, value
from tests.support import Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

DOCS = Path(__file__).parents[2] / "docs"

PASSWORD = "canary-4711"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_an_outbox_at_work_is_seen_by_type_handler_result_and_store(
    world: World, colour: Colouring, registry: CollectorRegistry
) -> None:
    """And nothing of what it carries: no secret of a header, a key or an error."""

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(metrics=PrometheusMetrics(registry), retry_policy=Fixed("1h"), poll_interval="1h")

        def receipt(event: Any) -> None:
            seen.add(event)

        def charge(event: Any) -> None:
            seen.add(event)
            raise ValueError(f"postgres://u:{PASSWORD}@db refused password={PASSWORD}")

        outbox.handler("Placed", id="receipt")(colour(receipt))
        outbox.handler("Paid", id="charge")(colour(charge))
        async with outbox:
            async with outbox.transaction():
                await outbox.write("Placed", "{}", headers={"authorization": PASSWORD}, key=PASSWORD)
                await outbox.write("Paid", "{}", tenant_id=PASSWORD)
            await seen.reach(2)
            await world.until("SELECT count(*) = 2 FROM outbox_event WHERE locked_by IS NULL AND status > 0")
            outbox._engine.collector.call()
            await _until(
                lambda: value(registry, "outbox_done") == value(registry, "outbox_backlog", state="retry") == 1
            )
            here = {"store": str(world.path)}
            assert value(registry, "outbox_written_total", type="Placed", **here) == 1
            assert (
                value(registry, "outbox_deliveries_total", type="Placed", handler="receipt", result="ok", **here) == 1
            )
            assert value(registry, "outbox_deliveries_total", type="Paid", handler="charge", result="retry") == 1
            assert value(registry, "outbox_delivery_seconds_count", handler="charge", **here) == 1
            assert value(registry, "outbox_e2e_seconds_count", **here) == 1, "what has not ended is not measured"
            assert value(registry, "outbox_settled_total", outcome="failure", **here) == 1
            assert value(registry, "outbox_backlog", state="retry", **here) == 1
            assert value(registry, "outbox_lane_depth", lane="hot", **here) == 0
            assert value(registry, "outbox_worker_heartbeat_timestamp_seconds", **here)
            text = generate_latest(registry).decode()
        assert PASSWORD not in text
        assert value(registry, "outbox_backlog") is None, "who is closed says nothing of the table any more"
        assert value(registry, "outbox_worker_heartbeat_timestamp_seconds") is None
        assert value(registry, "outbox_written_total", type="Placed") == 1

    world.run(scenario)


async def _until(predicate: Callable[[], Any]) -> None:
    from tests.delivery.faulty import until

    await until(predicate)


def test_names_beyond_the_limit_share_one_series(registry: CollectorRegistry) -> None:
    """A type that is made up for each event must not fill the memory."""
    metrics = PrometheusMetrics(registry, max_names=3).for_store("here")
    for number in range(50):
        metrics.written(f"Type{number}", 1)
        metrics.delivered(Delivered(f"Type{number}", f"handler{number}", "ok", 0.1, 0.1))
        metrics.lease_lost("T", f"handler{number}")
    found = samples(registry)
    types = {labels["type"] for labels, _ in found["outbox_written_total"]}
    assert types == {"Type0", "Type1", "Type2", OTHER}
    assert value(registry, "outbox_written_total", type=OTHER) == 47
    assert len(found["outbox_deliveries_total"]) == len(found["outbox_leases_lost_total"]) == 4


def test_types_of_the_table_beyond_the_limit_are_added_up_and_gone_ones_are_forgotten(
    registry: CollectorRegistry,
) -> None:
    metrics = PrometheusMetrics(registry, max_names=1).for_store("here")
    metrics.collected(
        table(*(TypeSummary(name, "", 1, 2, 3, timedelta(seconds=age)) for age, name in enumerate("ABC")))
    )
    assert value(registry, "outbox_type_pending", type="A", handler="*") == 3
    assert value(registry, "outbox_type_dead", type=OTHER) == 6
    assert value(registry, "outbox_type_oldest_pending_seconds", type=OTHER) == 2
    metrics.collected(table(TypeSummary("A", "", 1)))
    assert value(registry, "outbox_type_pending", type=OTHER) is None
    assert value(registry, "outbox_type_oldest_pending_seconds") is None


def test_a_pause_is_exported_with_the_time_that_it_has_lasted_and_forgotten_when_it_ends(
    registry: CollectorRegistry,
) -> None:
    metrics = PrometheusMetrics(registry).for_store("here")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    pause = Pause(PauseKind.HANDLER, "charge", "a reason", "me", since, None, timedelta(hours=7), None)
    metrics.collected(replace(table(), paused=(pause,)))
    ((labels, lasted),) = samples(registry)["outbox_paused_seconds"]
    assert (labels["kind"], labels["name"], lasted) == ("handler", "charge", 7 * 3600)
    metrics.collected(table())
    assert value(registry, "outbox_paused_seconds") is None


def table(*types: TypeSummary) -> TableState:
    return TableState(Backlog(0, 0, 0, 0, timedelta(0)), 0, PartitionStats({}), Summary(types))


def test_two_outboxes_share_one_exporter_and_are_told_apart(tmp_path: Path, registry: CollectorRegistry) -> None:
    world, metrics = World("threads", tmp_path), PrometheusMetrics(registry)

    async def scenario() -> None:
        outboxes = [world.outbox(metrics=metrics), world.outbox(metrics=metrics, table="ob_other")]
        for number, outbox in enumerate(outboxes):
            async with outbox.transaction():
                await outbox.write_all([_event() for _ in range(number + 1)])
        assert value(registry, "outbox_written_total", store=str(world.path)) == 1
        assert value(registry, "outbox_written_total", store=f"{world.path}, ob_other") == 2

    world.run(scenario)


def _event() -> Any:
    from aftercommit import EventEnvelope

    return EventEnvelope.of_json("A", "{}")


def test_a_second_exporter_on_the_same_registry_is_refused_with_the_way_out(registry: CollectorRegistry) -> None:
    PrometheusMetrics(registry)
    with pytest.raises(InvalidOption, match=r"CollectorRegistry\(\) of its own"):
        PrometheusMetrics(registry)


def test_the_tables_of_the_docs_are_the_series_that_there_are() -> None:
    rows = re.findall(r"^\| `(outbox_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", _page(), re.MULTILINE)
    expected = [
        (each.name, each.kind, ", ".join(f"`{name}`" for name in each.labels) or "–", each.meaning)
        for each in (*OWN, *TABLE)
    ]
    assert rows == expected


def _page() -> str:
    return (DOCS / "monitoring.md").read_text()


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name itself is there: `from aftercommit import *` works in a program that has no use for it."""
    assert "prometheus_client" not in vars(prometheus)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingDriver, match=r"aftercommit\[prometheus\]"):
        PrometheusMetrics()


def test_every_process_counts_in_multiprocess_mode_and_the_newest_word_of_the_table_counts(tmp_path: Path) -> None:
    """Nothing can be taken back there, so that a process that lost the duty leaves an old value behind."""
    script = """
import os, sys, time
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from aftercommit import PrometheusMetrics, TableState
from aftercommit.events.claims import Backlog
from aftercommit.events.order import PartitionStats
from aftercommit.events.records import Summary
from msgspec.structs import replace
from datetime import UTC, datetime, timedelta
def table(new):
    return TableState(Backlog(new, 0, 0, 0, timedelta(0)), 0, PartitionStats({}), Summary(()))
metrics = PrometheusMetrics().for_store("here")
metrics.written("A", 1)
metrics.collected(table(7))
metrics.collected(None)
if os.fork() == 0:
    metrics.written("A", 1)
    metrics.collected(table(9))
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    print(generate_latest(registry).decode(), flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PATH": ""},
    )
    lines = done.stdout.splitlines()
    assert 'outbox_written_total{store="here",type="A"} 2.0' in lines
    assert 'outbox_backlog{state="new",store="here"} 9.0' in lines
