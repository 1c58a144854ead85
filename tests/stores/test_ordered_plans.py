"""What looks at keys read: as many rows as they are about, whatever is dead, not due, or in other partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from aftercommit.events.order import HeadsRequest, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.rows import to_micros
from aftercommit.stores.sql.runs import asked_values, run_values, walk_values
from aftercommit.testing.kit import LEASE
from tests.stores.postgres_kit import Table
from tests.stores.test_postgres_plans import forget, nodes, pages, rows_read, settled_in

PARTITION = 7

KEYS = 50

#: The pages of a look: a few for each key and its row, and for each partition.
PAGES = 25 * KEYS


@pytest.fixture(params=["plain", "analysed"])
def statistics(request: pytest.FixtureRequest, postgres_table: Table) -> str:
    """With what autovacuum tells the planner, and before it came."""
    forget(postgres_table)
    return str(request.param)


@pytest.fixture(params=[pytest.param(10, id="tenth"), pytest.param(1, id="whole", marks=pytest.mark.slow)])
def part(request: pytest.FixtureRequest) -> int:
    """The sizes of the promise, and a tenth of them for a quick look."""
    return int(request.param)


def explained(table: Table, name: str, values: dict[str, object], *, finds: int) -> tuple[int, dict[str, Any]]:
    """Rows that the real statement read of the table, and its plan. What it did is rolled back."""
    statement = open_store(table.url, Colour.BLOCKING)._sql[name]
    with psycopg.connect(table.url) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}"
        ((found,),) = connection.execute(explain, statement.bind(**values), prepare=False).fetchall()
        connection.rollback()
    plan = found[0]["Plan"]
    assert plan["Actual Rows"] == finds
    return sum(map(rows_read, nodes(plan))), plan


def walk(table: Table, *, finds: int, partitions: Sequence[int] = (PARTITION,), **more: Any) -> tuple[int, int]:
    """Rows and pages that `heads` reads."""
    request = HeadsRequest(partitions=partitions, **{"limit": KEYS, **more})
    read, plan = explained(
        table, "heads", walk_values(request, open_store(table.url, Colour.BLOCKING).dialect), finds=finds
    )
    return read, pages(plan)


def claim(table: Table, keys: Sequence[str], *, finds: int, run: int = 5, **more: Any) -> tuple[int, int]:
    """Rows and pages that `claim_keys` reads."""
    asked = [OrderKey(PARTITION, key) for key in keys]
    request = KeyClaimRequest(owner="alice", keys=asked, run=run, lock_timeout=LEASE, deadline=0.0, **more)
    values = run_values(request, open_store(table.url, Colour.BLOCKING).dialect)
    values |= {"owner": "alice", "lock_timeout": to_micros(LEASE), "is_alone": True}
    read, plan = explained(table, "claim_keys", values, finds=finds)
    return read, pages(plan)


# ---------------------------------------------------------------- PostgreSQL


def test_rows_behind_a_dead_head_are_not_read(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("dead", 1, event_key="'dead'", status="3", done_at="now()")
    table.fill("behind", 500_000 // part, event_key="'dead'")
    table.fill("live", 10 * KEYS, event_key="'live-' || n % 50")
    settled_in(table, statistics)
    read, touched = walk(table, finds=KEYS)
    assert read <= 3 * KEYS
    assert touched < PAGES
    read, touched = claim(table, ["dead"], finds=0)
    assert read <= 2
    assert touched < 20
    read, touched = claim(table, [f"live-{n}" for n in range(KEYS)], finds=5 * KEYS)
    assert read <= 15 * KEYS + KEYS, "listed, locked, changed"
    assert touched < 5 * PAGES


def test_one_long_key_costs_one_probe(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("long", 500_000 // part, event_key="'long'")
    table.fill("short", 3, event_key="'short-' || n")
    settled_in(table, statistics)
    read, touched = walk(table, finds=4)
    assert read <= 12
    assert touched < 100
    read, touched = claim(table, ["long"], finds=5)
    assert read <= 16


def test_whether_a_key_is_busy_costs_a_probe_of_each_index(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("long", 200_000 // part, event_key="'long'")
    table.fill("dead", 100_000 // part, event_key="'dead'", status="3", done_at="now()")
    table.fill("done", 200_000 // part, event_key="'done-' || n % 50", status="1", done_at="now()")
    settled_in(table, statistics)
    asked = [OrderKey(PARTITION, key) for key in ("long", "dead", *(f"done-{n}" for n in range(KEYS)))]
    dialect = open_store(table.url, Colour.BLOCKING).dialect
    for blocks, busy in ((True, 2), (False, 1)):
        read, plan = explained(table, "busy_keys", {**asked_values(asked, dialect), "blocks": blocks}, finds=busy)
        assert read <= 2
        assert pages(plan) < 10 * KEYS


def test_keys_that_are_not_due_cost_one_probe_each_up_to_the_limit(
    postgres_table: Table, part: int, statistics: str
) -> None:
    table = postgres_table
    table.fill("later", 100_000 // part, event_key="'key-' || n", available_at="now() + interval '1 hour'", status="2")
    settled_in(table, statistics)
    read, touched = walk(table, finds=KEYS)
    assert read <= 3 * KEYS
    assert touched < PAGES


def test_rows_of_other_partitions_are_not_read(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("other", 500_000 // part, event_key="'key-' || n", partition_no="8 + n % 200")
    table.fill("mine", 100, event_key="'mine-' || n")
    settled_in(table, statistics)
    read, touched = walk(table, finds=KEYS, partitions=[*range(7), 7, *range(210, 256)])
    assert read <= 3 * KEYS
    assert touched < PAGES
    read, touched = claim(table, [f"mine-{n}" for n in range(1, KEYS + 1)], finds=KEYS)
    assert read <= 4 * KEYS
    assert touched < PAGES


def test_a_walk_over_every_partition_stops_at_its_limit(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("all", 500_000 // part, event_key="'key-' || n", partition_no="n % 256")
    settled_in(table, statistics)
    for after in (None, OrderKey(100, "key-5")):
        read, touched = walk(table, finds=KEYS, partitions=range(256), after=after)
        assert read <= 3 * KEYS
        assert touched < PAGES


def test_done_rows_are_not_read(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("done", 500_000 // part, event_key="'key-' || n % 50", status="1", done_at="now()")
    table.fill("due", KEYS, event_key="'key-' || n % 50")
    settled_in(table, statistics)
    assert walk(table, finds=KEYS)[0] <= 3 * KEYS
    assert claim(table, [f"key-{n}" for n in range(KEYS)], finds=KEYS)[0] <= 4 * KEYS


@pytest.mark.parametrize("run", [1, 5, 50])
def test_a_large_claim_reads_what_it_leases(postgres_table: Table, run: int, statistics: str) -> None:
    """Each row is listed, locked and changed, and no plan is cheaper than that."""
    table = postgres_table
    table.fill("many", 40_000, event_key="'key-' || n % 100")
    settled_in(table, statistics)
    read, _ = claim(table, [f"key-{n}" for n in range(100)], run=run, finds=100 * run)
    assert read <= 3 * 100 * run


def test_rows_that_are_passed_over_are_looked_at_a_thousand_at_most(
    postgres_table: Table, part: int, statistics: str
) -> None:
    table = postgres_table
    table.fill("later", 500_000 // part, event_key="'a'", available_at="now() + interval '1 hour'")
    settled_in(table, statistics)
    rule = KeyRule(stops=False)
    assert walk(table, finds=1, rule=rule)[0] <= 1004
    assert claim(table, ["a"], finds=0, rule=rule)[0] <= 1004


@pytest.mark.parametrize("index", ["order", "blocking"])
def test_a_look_without_its_index_would_be_seen(postgres_table: Table, index: str) -> None:
    """So that the tests above can fail."""
    table = postgres_table
    table.fill("dead", 5_000, event_key="'key-' || n", status="3", done_at="now()")
    table.fill("due", 5_000, event_key="'key-' || n")
    definition = table.value(f"SELECT pg_get_indexdef('outbox_event_{index}'::regclass)")
    table.execute(f"DROP INDEX outbox_event_{index}")
    try:
        read, _ = walk(table, finds=KEYS)
    finally:
        table.execute(definition)
    assert read >= 5_000
