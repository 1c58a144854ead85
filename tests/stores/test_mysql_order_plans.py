"""What heads and runs of keys cost on MySQL and MariaDB: no more in a big table than in a small one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aftercommit.events.order import HeadsRequest, HeadState, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.link import LinkTx
from aftercommit.stores.sql.statements import Statement
from aftercommit.testing.kit import LEASE
from tests.conftest import on_both_mysqls
from tests.stores.mysql_kit import Table, connect, cost, is_mariadb, locked, made, numbers, store_at

pytestmark = on_both_mysqls

#: How many keys are asked for.
BATCH = 20

#: A walk reads a page of rows at a time, and each head a few times more.
PAGE = 100
FEW = 10

#: Where there is what: a key behind a dead row, keys that are not due, keys that are ready, and other people's rows.
BLOCKED, LATER, READY, OTHERS = 3, 4, 5, 6

ROW = """
INSERT INTO outbox_event (event_id, event_type, aggregate_type, event_key, partition_no, payload, content_type,
  occurred_at, status, created_at, available_at, done_at)
SELECT CONCAT(%s, n), 'Happened', '__GLOBAL__', {key}, %s, '{}', 'application/json',
  UTC_TIMESTAMP(6), %s, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL {due}, {ended}
FROM {numbers}
ORDER BY n
"""


def fill(
    table: Table, kind: str, count: int, key: str, partition: int, *, status: int = 0, is_due: bool = True
) -> None:
    sql = (
        ROW.replace("{numbers}", numbers(count))
        .replace("{key}", key)
        .replace("{due}", "-1 HOUR" if is_due else "1 DAY")
    )
    sql = sql.replace("{ended}", "NULL" if status in (0, 2) else "UTC_TIMESTAMP(6)")
    table.execute(sql, f"{kind}-", partition, status)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"behind": 10_000, "later": 5_000, "others": 10_000, "done": 10_000}, id="some"),
        pytest.param(
            {"behind": 500_000, "later": 100_000, "others": 500_000, "done": 500_000},
            id="many",
            marks=[pytest.mark.slow, pytest.mark.timeout(900)],
        ),
    ],
)
def table(mysql_url: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    table, count = made(mysql_url), request.param
    table.execute("TRUNCATE outbox_event")
    fill(table, "done", count["done"], "CONCAT('k', n MOD 100)", READY, status=1)
    fill(table, "dead", 1, "'long'", BLOCKED, status=3)
    fill(table, "behind", count["behind"], "'long'", BLOCKED)
    fill(table, "after", 1, "'short'", BLOCKED)
    fill(table, "later", count["later"], "CONCAT('k', n)", LATER, is_due=False)
    fill(table, "others", count["others"], "CONCAT('k', n MOD 1000)", OTHERS)
    fill(table, "ready", 20 * BATCH, f"CONCAT('k', n MOD {BATCH})", READY)
    yield table
    table.execute("TRUNCATE outbox_event")
    table.close()


@pytest.fixture(params=["plain", "analysed"])
def store(table: Table, request: pytest.FixtureRequest) -> Iterator[Any]:
    """ANALYZE gives the optimizer other ideas."""
    if request.param == "analysed":
        table.read("ANALYZE TABLE outbox_event")
    store = store_at(table.url)
    run(store.open())
    yield store
    run(store.close())
    table.execute("UPDATE outbox_event SET locked_by = NULL, lease_until = NULL WHERE locked_by = 'alice'")


RULES = [KeyRule(stops, blocks) for stops in (True, False) for blocks in (True, False)]


def walk(*partitions: int, limit: int = 1000, **more: Any) -> HeadsRequest:
    return HeadsRequest(partitions, limit, **more)


def claim(*keys: OrderKey, rule: KeyRule = RULES[0]) -> KeyClaimRequest:
    return KeyClaimRequest("alice", keys, 10, LEASE, 0.0, rule)


def test_a_long_key_behind_a_dead_row_is_passed_by_a_page(store: Any) -> None:
    found, count = cost(store, store.heads(walk(BLOCKED)))
    assert [(head.key.key, head.state) for head in found.heads] == [
        ("long", HeadState.BLOCKED),
        ("short", HeadState.READY),
    ]
    assert count < PAGE + 2 * FEW


def test_what_others_own_and_what_is_done_costs_nothing(store: Any) -> None:
    """Each partition that has nothing is one look at the index."""
    found, count = cost(store, store.heads(walk(*(set(range(256)) - {BLOCKED, LATER, READY, OTHERS}))))
    assert (found.heads, found.after) == ([], None)
    assert count < 256 + FEW
    found, count = cost(store, store.heads(walk(*(set(range(256)) - {BLOCKED, LATER, OTHERS}))))
    assert len(found.heads) == BATCH
    assert count < 256 + 20 * BATCH + FEW * BATCH, "the keys have twenty rows each"


def test_a_walk_over_keys_that_are_not_due_stops_at_its_limit_and_goes_on_there(store: Any) -> None:
    found, count = cost(store, store.heads(walk(LATER, limit=100)))
    assert {head.state for head in found.heads} == {HeadState.LATER}
    assert count < PAGE + FEW * 100
    again, count = cost(store, store.heads(walk(LATER, limit=100, after=found.after)))
    assert len(again.heads) == 100
    assert not {head.key for head in found.heads} & {head.key for head in again.heads}
    assert count < PAGE + FEW * 100


def test_long_keys_in_a_row_cost_a_glance_each(store: Any) -> None:
    """Of the first one a page is read, and after that few rows at a time."""
    found, count = cost(store, store.heads(walk(OTHERS, limit=50)))
    assert len(found.heads) == 50
    assert count < PAGE + 2 * FEW * 50


def test_a_look_past_rows_that_are_not_due_has_an_end(store: Any) -> None:
    """A thousand rows of a key, and no more, however many there are."""
    found, count = cost(store, store.heads(walk(BLOCKED, rule=KeyRule(stops=False, blocks=False))))
    assert [head.state for head in found.heads] == [HeadState.READY] * 2
    assert count < PAGE + 2 * 1000 + 3 * FEW


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_run_is_claimed_by_its_own_rows(store: Any, rule: KeyRule) -> None:
    keys = [OrderKey(READY, f"k{number}") for number in range(BATCH)]
    taken, count = cost(store, store.claim_keys(claim(*keys, rule=rule)))
    assert len(taken.rows) == 10 * BATCH
    assert count < 10 * len(taken.rows)


@pytest.mark.parametrize("blocks", [True, False])
def test_a_run_of_a_long_key_costs_no_more(store: Any, blocks: bool) -> None:
    taken, count = cost(store, store.claim_keys(claim(OrderKey(BLOCKED, "long"), rule=KeyRule(blocks=blocks))))
    assert len(taken.rows) == (0 if blocks else 10)
    assert count < 20 * 10


def test_keys_that_are_not_due_are_asked_by_a_look_each(store: Any) -> None:
    taken, count = cost(store, store.claim_keys(claim(*[OrderKey(LATER, f"k{number}") for number in range(BATCH)])))
    assert not taken.rows
    assert count < 10 * BATCH


def test_an_old_snapshot_makes_a_walk_no_dearer(table: Table, store: Any) -> None:
    with locked(table.url, "SELECT COUNT(*) FROM outbox_schema"):
        found, count = cost(store, store.heads(walk(BLOCKED, LATER, limit=100)))
    assert len(found.heads) == 100
    assert count < 2 * PAGE + FEW * 100


@contextmanager
def old_writer(table: Table) -> Iterator[None]:
    """A transaction that began before all that follows, has written, and still sees everything as it was then. What is
    finished now stays in the indexes; and of a page that has changed since nobody knows at a glance whom it concerns.
    """
    with connect(table.url, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("INSERT INTO outbox_schema VALUES ('an old writer', '')")
        yield
        connection.rollback()


def pages_of(table: Table, isolation: str, statement: Statement, **values: object) -> int:
    """How many pages of the table and its indexes a statement looks at."""
    with table.connection.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        cursor.execute(f"ANALYZE FORMAT=JSON {statement.sql}", statement.bind(**values))
        (row,) = cursor.fetchall()
    return sum(map(int, re.findall(r'"pages_accessed": (\d+)', row["ANALYZE"])))


def test_what_was_finished_behind_an_old_writer_costs_a_walk_no_rows(
    table: Table, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside, count = 300, 3_000
    said: list[str] = []
    monkeypatch.setattr(LinkTx, "_run", noting(said, LinkTx._run))
    fill(table, "old", count, "CONCAT('k', n)", aside)
    try:
        with old_writer(table):
            table.execute("UPDATE outbox_event SET status = 1, done_at = available_at WHERE partition_no = %s", aside)
            # Nothing is found, by a statement that reads also what is not committed.
            assert run(store.heads(walk(aside))).heads == []
            assert said == [store._sql["walk_freely"].sql, store._sql["walk"].sql]
            if is_mariadb(table):  # it tells how many pages that takes
                page = {"first": aside, "after_key": "", "others": (-1,), "rows": PAGE}
                assert pages_of(table, "READ COMMITTED", store._sql["walk"], **page) > count
                assert pages_of(table, "READ UNCOMMITTED", store._sql["walk"], **page) < count / 10
    finally:
        table.execute("DELETE FROM outbox_event WHERE partition_no = %s", aside)


def noting(said: list[str], runs: Any) -> Any:
    def noted(tx: LinkTx, means: Any, sql: str, parameters: Any) -> Any:
        said.append(sql)
        return runs(tx, means, sql, parameters)

    return noted


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_walk_that_saw_what_was_not_committed_leads_to_no_claim_of_it(table: Table, store: Any, ending: str) -> None:
    aside, key = 301, OrderKey(301, "k0")
    with connect(table.url, autocommit=False) as writer, writer.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, event_key, partition_no, payload,"
            " content_type, occurred_at, status, created_at, available_at) VALUES ('dirty', 'Happened', '__GLOBAL__',"
            " 'k0', %s, '{}', 'application/json', UTC_TIMESTAMP(6), 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))",
            (aside,),
        )
        fill(table, "clean", 1, "CONCAT('k', n)", aside)
        assert [head.key for head in run(store.heads(walk(aside))).heads] == [key]
        taken = run(store.claim_keys(claim(key)))
        assert [row.lease.key.event_id for row in taken.rows] == ["clean-0"]
        writer.commit() if ending == "commit" else writer.rollback()
    table.execute("DELETE FROM outbox_event WHERE partition_no = %s", aside)


def test_blocked_keys_are_told_by_their_dead_rows(store: Any) -> None:
    (found,), count = cost(store, store.records.blocked(100))
    assert (found.key, found.event_id) == ("long", "dead-0")
    assert count < 20


@pytest.mark.parametrize("partitions", [(BLOCKED,), (LATER, READY), tuple(range(4, 256)), tuple(range(256))], ids=len)
def test_a_page_is_read_in_the_order_of_the_index(table: Table, store: Any, partitions: tuple[int, ...]) -> None:
    statement = store._sql["walk"]
    values = {"first": partitions[0], "after_key": "", "others": partitions[1:] or (-1,), "rows": 100}
    with table.connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {statement.sql}", statement.bind(**values))
        (page,) = cursor.fetchall()
    assert (page["key"], page["type"]) == ("outbox_event_order", "range")
    assert "filesort" not in page["Extra"]
    if is_mariadb(table):
        assert "Using index" in page["Extra"], "nothing of the rows themselves"
