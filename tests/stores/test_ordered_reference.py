"""Whatever states the rows of a few keys are in: heads and runs are what ten lines of Python say they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import takewhile
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftercommit.events.order import HeadsRequest, HeadState, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.runtime.threads import run as play
from aftercommit.testing.kit import LEASE
from tests.stores.kit import store_at

HOUR = 3600 * 1_000_000
NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"

ROW = f"""
INSERT INTO outbox_event (position, event_id, event_type, aggregate_type, event_key, partition_no, payload,
  content_type, status, occurred_at, created_at, available_at, locked_by, lease_until, lease_epoch)
VALUES (?, ?, 'T', 'A', ?, ?, '1', 'json', ?, 0, 0, {NOW} + ?, ?, {NOW} + ?, 1)
"""


class Row(NamedTuple):
    """A row as it is before the claim."""

    key: str | None
    partition: int
    status: int
    is_due: bool
    owner: str | None
    is_live: bool

    @property
    def is_unfinished(self) -> bool:
        return self.status in (0, 2)

    @property
    def is_leased(self) -> bool:
        return self.owner is not None and self.is_live


rows = st.lists(
    st.builds(
        Row,
        key=st.sampled_from(["a", "b", "B", None]),
        partition=st.sampled_from([3, 3, 3, 4]),
        status=st.sampled_from([0, 0, 0, 1, 2, 3]),
        is_due=st.sampled_from([True, True, True, False]),
        owner=st.sampled_from([None, None, None, "alice", "bob"]),
        is_live=st.booleans(),
    ),
    max_size=12,
)
rules = st.builds(KeyRule, stops=st.booleans(), blocks=st.booleans())


# ---------------------------------------------------------------- what is right


def keys_of(table: list[Row]) -> dict[OrderKey, list[int]]:
    """Which rows are in order with each other."""
    found: dict[OrderKey, list[int]] = {}
    for number, row in enumerate(table):
        found.setdefault(OrderKey(row.partition, row.key or f"id-{number}"), []).append(number)
    return found


def alive(table: list[Row], numbers: list[int], rule: KeyRule) -> list[int]:
    """The unfinished rows of a key that nothing dead holds back."""
    before = takewhile(lambda number: not (rule.blocks and table[number].status == 3), numbers)
    return [number for number in before if table[number].is_unfinished]


def right_run(table: list[Row], numbers: list[int], rule: KeyRule, run: int) -> list[int]:
    held = alive(table, numbers, rule)
    if rule.stops:
        return list(takewhile(lambda number: table[number].is_due and not table[number].is_leased, held))[:run]
    if any(table[number].is_leased for number in held):
        return []
    return [number for number in held if table[number].is_due][:run]


def right_state(table: list[Row], numbers: list[int], rule: KeyRule) -> HeadState | None:
    if not any(table[number].is_unfinished for number in numbers):
        return None
    held = alive(table, numbers, rule)[: 1 if rule.stops else None]
    if not held:
        return HeadState.BLOCKED
    if any(table[number].is_leased for number in held):
        return HeadState.LEASED
    return HeadState.READY if any(table[number].is_due for number in held) else HeadState.LATER


# ---------------------------------------------------------------- what the store does


class Bench:
    """One file for all examples."""

    def __init__(self, store: Any, connection: sqlite3.Connection) -> None:
        self.store = store
        self.connection = connection

    def lay(self, table: list[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute("DELETE FROM outbox_event")
        for number, row in enumerate(table):
            times = (-HOUR if row.is_due else HOUR, row.owner, HOUR if row.is_live else -HOUR)
            self.connection.execute(ROW, (number, f"id-{number}", row.key, row.partition, row.status, *times))
        self.connection.execute("COMMIT")

    def leased(self) -> dict[int, int]:
        """The rows whose epoch was raised, by position."""
        return dict(self.connection.execute("SELECT position, lease_epoch FROM outbox_event WHERE lease_epoch > 1"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("reference") / "outbox.db"
    store = store_at(path)
    play(store.open())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield Bench(store, connection)
    play(store.close())


often = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@often
@given(table=rows, rule=rules, run=st.integers(1, 5))
def test_a_claim_leases_exactly_the_right_rows(bench: Bench, table: list[Row], rule: KeyRule, run: int) -> None:
    bench.lay(table)
    keys = {key: numbers for key, numbers in keys_of(table).items() if key.partition == 3}
    request = KeyClaimRequest(owner="alice", keys=list(keys), run=run, lock_timeout=LEASE, deadline=0.0, rule=rule)
    found = play(bench.store.claim_keys(request)).rows
    right = sorted(number for numbers in keys.values() for number in right_run(table, numbers, rule, run))
    assert [row.position for row in found] == right
    assert bench.leased() == dict.fromkeys(right, 2)
    for row in found:
        assert row.position in keys[row.order_key]
        assert row.is_suspect == (table[row.position].owner == "bob")


@often
@given(table=rows, rule=rules, limit=st.integers(1, 4))
def test_a_walk_sees_every_key_in_its_right_state(bench: Bench, table: list[Row], rule: KeyRule, limit: int) -> None:
    bench.lay(table)
    right = {key: right_state(table, numbers, rule) for key, numbers in keys_of(table).items()}
    found, after = {}, None
    while True:
        look = play(bench.store.heads(HeadsRequest(partitions=[4, 3], limit=limit, rule=rule, after=after)))
        for head in look.heads:
            assert head.key not in found
            found[head.key] = head.state
        if (after := look.after) is None:
            break
    assert found == {key: state for key, state in right.items() if state is not None}
    assert list(found) == sorted(found, key=lambda key: (-key.partition, key.key))
