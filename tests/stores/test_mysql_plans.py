"""What statements cost on MySQL and MariaDB: by index, and no more in a big table than in a small one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from aftercommit.events.claims import ClaimRequest, Settlement
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Retry
from aftercommit.events.records import EventFilter
from aftercommit.runtime.threads import run
from aftercommit.testing.kit import LEASE, lease_of, look
from tests.conftest import on_both_mysqls
from tests.stores.mysql_kit import Table, cost, locked, made, numbers, store_at

pytestmark = on_both_mysqls

BATCH = 50

#: Each row of a batch is looked at a few times: in the index, in the table, and again when it is changed. A claim
#: looks a few batches far, in two statuses.
FEW = 30 * BATCH

ROW = """
INSERT INTO outbox_event (event_id, event_type, aggregate_type, partition_no, payload, content_type, occurred_at,
  status, created_at, available_at, done_at, locked_by, locked_at, lease_until, lease_epoch)
SELECT CONCAT(%s, n), 'Happened', '__GLOBAL__', 7, '{}', 'application/json', UTC_TIMESTAMP(6),
  %s, UTC_TIMESTAMP(6) - INTERVAL 1 DAY, {due}, {ended}, {owner}, {due}, UTC_TIMESTAMP(6) + INTERVAL 1 DAY, 1
FROM {numbers}
ORDER BY n
"""


def fill(
    table: Table, kind: str, count: int, *, status: int, due: str, ended: bool = False, owner: bool = False
) -> None:
    """So many rows of one kind, a microsecond apart."""
    sql = ROW.replace("{numbers}", numbers(count)).replace("{due}", f"UTC_TIMESTAMP(6) {due} + INTERVAL n MICROSECOND")
    sql = sql.replace("{ended}", "UTC_TIMESTAMP(6) - INTERVAL 1 DAY + INTERVAL n MICROSECOND" if ended else "NULL")
    table.execute(sql.replace("{owner}", "'bob'" if owner else "NULL"), f"{kind}-", status)


def fill_all(table: Table, *, done: int, leased: int, dead: int, free: int, later: int) -> None:
    """In the order in which a table gets them; the leased rows are due before the free ones."""
    fill(table, "done", done, status=1, due="- INTERVAL 2 DAY", ended=True)
    fill(table, "leased", leased, status=0, due="- INTERVAL 2 HOUR", owner=True)
    fill(table, "dead", dead, status=3, due="- INTERVAL 2 DAY", ended=True)
    fill(table, "free", free, status=0, due="- INTERVAL 1 HOUR")
    fill(table, "failed", free, status=2, due="- INTERVAL 1 HOUR")
    fill(table, "later", later, status=2, due="+ INTERVAL 1 DAY")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param({"done": 20_000, "leased": 2_000, "dead": 2_000, "free": 3_000, "later": 8_000}, id="some"),
        pytest.param(
            {"done": 1_000_000, "leased": 20_000, "dead": 10_000, "free": 50_000, "later": 500_000},
            id="many",
            marks=[pytest.mark.slow, pytest.mark.timeout(600)],
        ),
    ],
)
def table(mysql_url: str, request: pytest.FixtureRequest) -> Iterator[Table]:
    table = made(mysql_url)
    table.execute("TRUNCATE outbox_event")
    fill_all(table, **request.param)
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


def behind_leases(table: Table) -> tuple[Any, int]:
    """The floor of a poller that has been over the leased rows."""
    row = table.read(
        "SELECT available_at, position FROM outbox_event WHERE event_id LIKE 'leased-%' ORDER BY 1, 2 DESC"
    )
    return row[-1]["available_at"], row[-1]["position"]


def test_a_claim_reads_what_it_takes(table: Table, store: Any) -> None:
    """Of each status a batch; neither what is done, nor what is not due, nor what lies before the floor."""
    floor = behind_leases(table)
    claim, count = cost(store, look(store, limit=BATCH, floor=floor))
    assert len(claim.rows) == BATCH
    assert count < FEW
    again, count = cost(store, look(store, limit=BATCH, floor=claim.floor))
    assert len(again.rows) == BATCH
    assert count < FEW


def test_a_claim_that_finds_nothing_reads_nothing(table: Table, store: Any) -> None:
    """And it tells when the next row falls due, without looking at all the others."""
    last = table.read("SELECT available_at, position FROM outbox_event WHERE event_id LIKE 'free-%' ORDER BY 1, 2 DESC")
    floor = (last[-1]["available_at"] + timedelta(minutes=30), 0)
    claim, count = cost(store, look(store, limit=BATCH, floor=floor))
    assert not claim.rows
    assert claim.next_due is not None
    assert count < BATCH


def test_equal_due_times_are_passed_over_by_position(table: Table, store: Any) -> None:
    """Rows of one bulk insert share their time; a floor among them must not read all that lie before it."""
    moment = table.value("SELECT MAX(available_at) FROM outbox_event WHERE event_id LIKE 'free-%'")
    table.execute("UPDATE outbox_event SET available_at = %s WHERE event_id LIKE 'free-%%'", moment)
    middle = table.value("SELECT AVG(position) FROM outbox_event WHERE event_id LIKE 'free-%'")
    claim, count = cost(store, look(store, limit=BATCH, floor=(moment, int(middle))))
    assert len(claim.rows) == BATCH
    assert all(row.position > middle for row in claim.rows)
    assert count < FEW
    # What stood in the index under the times before is there until no transaction of the whole server may want it, and
    # is read meanwhile: the tests that come next would count it.
    table.read("OPTIMIZE TABLE outbox_event")


def test_an_old_snapshot_makes_a_claim_no_dearer(table: Table, store: Any) -> None:
    with locked(table.url, "SELECT COUNT(*) FROM outbox_schema"):
        claim, count = cost(store, look(store, limit=BATCH, floor=behind_leases(table)))
    assert len(claim.rows) == BATCH
    assert count < FEW


@pytest.mark.parametrize(
    "outcome", [DONE, Retry(LEASE, "r"), Defer(LEASE), Dead("d"), RELEASE], ids=lambda each: type(each).__name__
)
def test_a_group_is_settled_by_its_own_rows(table: Table, store: Any, outcome: Any) -> None:
    claim, _ = cost(store, look(store, limit=BATCH, floor=behind_leases(table)))
    group = [Settlement(row.lease, outcome) for row in claim.rows]
    refused, count = cost(store, store.settle(group))
    assert not refused
    assert count < FEW


def test_a_group_is_renewed_by_its_own_rows(table: Table, store: Any) -> None:
    leases = [lease_of(f"leased-{number}", "bob", 1) for number in range(BATCH)]
    renewed, count = cost(store, store.renew(leases, timedelta(days=1)))
    assert len(renewed) == BATCH
    assert count < FEW


def test_the_dead_are_found_by_the_page(table: Table, store: Any) -> None:
    page, count = cost(store, store.records.query_dead(EventFilter(), BATCH))
    assert len(page) == BATCH
    assert count < FEW
    (replayed, last), count = cost(store, store.records.replay_after(EventFilter(), page[-1].position, BATCH))
    assert (replayed, last is not None) == (BATCH, True)
    assert count < FEW


def test_a_purge_reads_what_it_deletes(table: Table, store: Any) -> None:
    deleted, count = cost(store, store.records.purge(timedelta(hours=1), dead=False, limit=BATCH))
    assert deleted == BATCH
    assert count < FEW
    deleted, count = cost(store, store.records.purge_aged(timedelta(hours=1), limit=BATCH))
    assert deleted == BATCH
    assert count < FEW


def test_no_claim_sorts(table: Table, store: Any) -> None:
    """A sort under FOR UPDATE locks every pending row, and a second claimer gets nothing."""
    statement = store._sql["claim_select"]
    values = store._claim_values(ClaimRequest(owner="alice", limit=BATCH, lock_timeout=LEASE, deadline=0.0))
    for status in (0, 2):
        with table.connection.cursor() as cursor:
            cursor.execute(
                f"EXPLAIN FORMAT=TRADITIONAL {statement.sql}", statement.bind(**values, status=status, reach=4 * BATCH)
            )
            plan = {row["select_type"] + row["table"]: row for row in cursor.fetchall()}
        assert not [row for row in plan.values() if "filesort" in (row["Extra"] or "")]
        looks, takes = plan["DERIVEDoutbox_event"], plan["PRIMARYoutbox_event"]
        assert (looks["key"], looks["type"]) == ("outbox_event_pending", "range")
        assert (takes["key"], takes["type"]) == ("PRIMARY", "eq_ref")
