"""Whole outboxes on PostgreSQL: names of every kind, hostile values, and tables that somebody else's script made."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from aftercommit import EventEnvelope
from tests.stores.postgres_kit import Table, Way
from tests.support import Collector, World

NAMES = [
    {},
    {"table": "order"},
    {"table": "Select", "schema": "from"},
    {"table": "x" * 48, "schema": "MixedCase"},
    {"schema": "S" * 48},
]

HOSTILE = [
    "it's",
    'a "quoted" word',
    "back\\slash \\' \\\\",
    "{braces}, {}, {table}, {now}",
    "100 %s %(x)s %% :name $1 ?",
    "'); DROP TABLE outbox_event; --",
    "tab\tnewline\nreturn\r",
    "NULL",
    "é 漢 \U0001f600 \u202e \ufeff",
    " blanks ",
    ",",
]


@pytest.fixture
def world(way: Way, tmp_path: Path) -> Iterator[World]:
    made = way.world(tmp_path)
    yield made
    made.somebody.close()


@pytest.fixture
def schemas(postgres_table: Table) -> Iterator[None]:
    names = [given["schema"] for given in NAMES if "schema" in given]
    for name in names:
        postgres_table.execute(f'CREATE SCHEMA "{name}"')
    yield
    for name in names:
        postgres_table.execute(f'DROP SCHEMA "{name}" CASCADE')


def place(given: dict[str, str]) -> str:
    name = f'"{given.get("table", "outbox_event")}"'
    return f'"{given["schema"]}".{name}' if "schema" in given else name


def listening(world: World, way: Way, seen: Collector, **options: Any) -> Any:
    outbox = world.outbox(way.url, poll_interval="20ms", **options)
    outbox.register("Order", "T", lambda event: seen.add(event.headers["h"]))
    return outbox


async def write_all(outbox: Any, words: list[str]) -> None:
    """One by one, and as a batch."""
    async with outbox.transaction() as tx:
        await tx.execute("SELECT 1")
        for word in words:
            await outbox.write("T", {"v": word}, **fields(word))
    async with outbox.transaction():
        events = [EventEnvelope("T", payload_json='{"v":1}', **fields(word)) for word in words]
        await outbox.write_all(events)


def fields(word: str) -> dict[str, Any]:
    return {"aggregate_type": "Order", "aggregate_id": word, "headers": {"h": word}, "tenant_id": word}


@pytest.mark.parametrize("given", NAMES, ids=lambda given: "-".join(given.values())[:20] or "plain")
def test_hostile_values_walk_through_tables_of_any_name(
    way: Way, world: World, given: dict[str, str], schemas: None, postgres_table: Table
) -> None:
    seen = Collector()

    async def scenario() -> None:
        outbox = listening(world, way, seen, create_schema=True, **given)
        async with outbox:
            await write_all(outbox, HOSTILE)
            await world.until(f"SELECT count(*) = {2 * len(HOSTILE)} FROM {place(given)} WHERE status = 1")

    world.run(scenario)
    assert sorted(seen) == sorted(2 * HOSTILE)
    stored = postgres_table.read(f"SELECT aggregate_id, tenant_id FROM {place(given)} ORDER BY position")
    assert [(row["aggregate_id"], row["tenant_id"]) for row in stored] == [(word, word) for word in 2 * HOSTILE]
    if given:
        assert postgres_table.rows() == [], "nothing went astray"


@pytest.mark.parametrize("given", NAMES, ids=lambda given: "-".join(given.values())[:20] or "plain")
def test_tables_made_by_the_script_are_taken_as_they_are(
    way: Way, world: World, given: dict[str, str], schemas: None, postgres_table: Table
) -> None:
    """schema_sql() for people who run their own migrations; the outbox then opens without creating anything."""
    given = given or {"table": "scripted"}
    script = way.store(**given).schema_sql()
    with psycopg.connect(postgres_table.url) as connection:
        connection.execute(script)
    seen = Collector()

    async def scenario() -> None:
        outbox = listening(world, way, seen, **given)
        async with outbox:
            await write_all(outbox, ["a"])
            await seen.reach(2)

    world.run(scenario)
    assert seen == ["a", "a"]


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql_runs_the_script(postgres_table: Table) -> None:
    way = Way("psycopg", postgres_table)
    parts = urlsplit(postgres_table.url)
    subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", parts.geturl()],
        input=way.store(table="scripted").schema_sql(),
        text=True,
        check=True,
        capture_output=True,
    )

    async def scenario() -> None:
        async with way.opened(table="scripted") as store:
            assert store.is_ready

    way.run(scenario)
