"""The dashboard and the alert rules ask for series that are really exported, and each rule has its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from prometheus_client import CollectorRegistry

from aftercommit import DeadLetter, Delivered, PrometheusMetrics
from aftercommit.events.measures import DeliveryResult
from tests.delivery.faulty import until
from tests.observers.kit import samples, value
from tests.support import Collector, World

ASSETS = files("aftercommit.observers")
DOCS = Path(__file__).parents[2] / "docs"

#: What Prometheus and Grafana add.
THEIRS = {"instance", "le"}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ASSETS.joinpath("alerts.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    board = json.loads(ASSETS.joinpath("grafana.json").read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    board = json.loads(ASSETS.joinpath("grafana.json").read_text())
    yield from (each["query"] for each in board["templating"]["list"] if each["type"] == "query")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> CollectorRegistry:
    """By an outbox that has written, delivered and failed; what is rare is told to its exporter."""
    world, registry = World("threads", tmp_path_factory.mktemp("exported")), CollectorRegistry()

    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(metrics=PrometheusMetrics(registry), ordered=True)

        def bad(event: object) -> None:
            seen.add(event)
            raise DeadLetter("no")

        outbox.handler("Good", id="good")(seen.add)
        outbox.handler("Bad", id="bad")(bad)
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("Good", "{}")
            await outbox.write("Bad", "{}", key="k")
            await outbox.write("Good", "{}", key="k")  # which waits behind the dead one
        await seen.reach(2)
        await world.until("SELECT count(*) = 2 FROM outbox_event WHERE status IN (1, 3)")
        await outbox.pause(event_type="Other")
        outbox._engine.collector.call()
        await until(lambda: value(registry, "outbox_dead") == 1 and "outbox_paused_seconds" in samples(registry))
        exporter = outbox._engine.meter._exporter
        exporter.lease_lost("Good", "good")
        for result in get_args(DeliveryResult):
            exporter.delivered(Delivered("Good", "good", result, 0.1, 0.1))
        for method in ("hot_enqueued", "cold_enqueued", "dispatch_success", "dispatch_failure", "dispatch_deferred"):
            getattr(exporter, f"increment_{method}")()
        exporter.increment_write_duplicates()
        exporter.record_oldest_lag_ms(1)
        found.update(samples(registry))

    found: dict[str, Any] = {}
    world.run(scenario)
    kept: Any = found
    return kept


def test_every_series_and_label_that_is_asked_for_is_exported(exported: Any) -> None:
    for expression in expressions():
        for name, matchers in re.findall(r"\b(outbox_[a-z0-9_]+)\b(?:\{([^}]*)\})?", expression):
            assert name in exported, expression
            for label, operator, wanted in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers or ""):
                there = {labels.get(label) for labels, _ in exported[name]}
                assert there != {None}, (expression, label)
                if not wanted.startswith("$"):
                    assert operator
                    assert set(wanted.split("|")) <= there, (expression, label, there)


def test_what_is_grouped_by_is_a_label_of_all_that_is_grouped(exported: Any) -> None:
    grouped = r"\bby \(([^)]*)\) \((?:[a-z_]+\()?(outbox_[a-z0-9_]+)"
    found = [match for expression in expressions() for match in re.findall(grouped, expression)]
    assert len(found) > 30
    for labels, name in found:
        assert set(re.split(r",\s*", labels)) <= {*exported[name][0][0], *THEIRS}, (labels, name)


def test_legends_use_labels_that_their_expression_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), target


def test_rates_of_the_dashboard_follow_the_interval_of_the_scrapes() -> None:
    ranges = [
        each for panel in panels() for target in panel["targets"] for each in re.findall(r"\[[^]]*\]", target["expr"])
    ]
    assert set(ranges) == {"[$__rate_interval]"}


def test_the_targets_of_the_objective_are_buckets_of_the_histogram(exported: Any) -> None:
    board = json.loads(ASSETS.joinpath("grafana.json").read_text())
    (slo,) = [each["query"].split(",") for each in board["templating"]["list"] if each["name"] == "slo"]
    assert set(slo) <= {labels["le"] for labels, _ in exported["outbox_e2e_seconds_bucket"]}


def test_every_rule_has_a_section_of_the_runbook_and_every_section_a_rule() -> None:
    sections = re.findall(r"^## (\w+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in sorted(rules(), key=lambda rule: sections.index(rule["alert"]))]
    assert set(sections) == {rule["alert"] for rule in rules()}
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (DOCS.parent / page).exists()
        assert anchor == rule["alert"].lower()
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_each_section_says_what_it_means_how_to_look_and_what_to_do() -> None:
    for section in (DOCS / "runbook.md").read_text().split("\n## ")[1:]:
        assert re.findall(r"^\*\*(\w+)\*\*: ", section, re.MULTILINE) == ["Means", "Look", "Do"]


def test_every_series_but_those_of_the_specification_alone_has_a_place(exported: Any) -> None:
    """What nobody looks at need not be exported."""
    from aftercommit.observers.catalogue import OWN, TABLE

    asked = " ".join(expressions())
    assert [each.name for each in (*OWN, *TABLE) if each.name not in asked] == []
