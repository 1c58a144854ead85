"""What statements cost: by index, and no more in a big table than in a small one."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit.events.claims import RowKey, Settlement
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Retry
from aftercommit.events.records import EventFilter
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT
from aftercommit.testing.kit import DAY, HOUR, LEASE, SECOND, lease_of, look
from tests.stores.kit import read, store_at

BATCH = 50
STATEMENTS = Statements(DIALECT, TableNames("outbox_event"))
NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"

ROW = """
INSERT INTO outbox_event (event_id, event_type, aggregate_type, partition_no, payload, content_type, occurred_at,
  status, created_at, available_at, done_at, locked_by, locked_at, lease_until, lease_epoch)
VALUES (?, 'Happened', '__GLOBAL__', 7, '{}', 'application/json', 0, ?, ?, ?, ?, ?, ?, ?, 1)
"""


def fill(path: Path, *, done: int, leased: int, free: int, dead: int, later: int) -> None:
    """So many rows of each kind, in the order in which a table gets them."""
    store = store_at(path)
    run(store.open())
    run(store.close())
    with closing(sqlite3.connect(path)) as connection:
        now = connection.execute(f"SELECT {NOW}").fetchone()[0]
        old, due, standing = now - 10 * DAY, now - HOUR, now + DAY

        def rows() -> Iterator[tuple[Any, ...]]:
            for n in range(done):
                yield f"done-{n}", 1, old + n, old + n, old + n, None, None, None
            for n in range(leased):
                yield f"leased-{n}", 0, due + n, due + n, None, "bob", due, standing
            for n in range(dead):
                yield f"dead-{n}", 3, due + n, due + n, due + n, None, None, None
            for n in range(free):
                yield f"free-{n}", 0, due + 60 * SECOND + n, due + 60 * SECOND + n, None, None, None, None
            for n in range(later):
                yield f"later-{n}", 2, due + n, now + DAY + n, None, None, None, None

        with connection:
            connection.executemany(ROW, rows())


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small table and a big one; the batch that a statement is about is the same in both."""
    folder = tmp_path_factory.mktemp("tables")
    made = {"small": folder / "small.db", "big": folder / "big.db"}
    fill(made["small"], done=BATCH, leased=1, free=2 * BATCH, dead=BATCH, later=1)
    fill(made["big"], done=50_000, leased=5_000, free=2 * BATCH, dead=5_000, later=20_000)
    return made


@pytest.fixture(params=["plain", "analysed"])
def analysed(request: pytest.FixtureRequest) -> bool:
    """ANALYZE gives the planner other ideas; users run it, and so does PRAGMA optimize."""
    return request.param == "analysed"


def copied(path: Path, folder: Path, analysed: bool) -> Path:
    copy = Path(shutil.copy(path, folder))
    if analysed:
        with closing(sqlite3.connect(copy)) as connection, connection:
            connection.execute("ANALYZE")
    return copy


# ---------------------------------------------------------------- plans


def plan_of(path: Path, name: str) -> str:
    """What SQLite means to do, a line for each step."""
    statement = STATEMENTS[name]
    values = ["[]" if each in ("held", "positions", "event_ids") else 1 for each in statement.names]
    lines = [row["detail"] for row in read(path, f"EXPLAIN QUERY PLAN {statement.sql}", *values)]
    return "\n".join(re.sub(r"^(SCAN|SEARCH) TABLE ", r"\1 ", line) for line in lines)  # the word went with 3.36


#: Read row by row, by no index.
WHOLE = re.compile(r"(SCAN|SEARCH) outbox_event(?! USING)")


HELD = {"done", "retry", "dead", "defer", "release", "renewable", "renew", "mark_suspect", "delete", "done_in_part"}

INDEXES = {
    "claim_select": "SEARCH outbox_event USING INDEX outbox_event_pending (available_at>? AND available_at<?)",
    "next_due": "outbox_event USING INDEX outbox_event_pending (available_at>?)",
    "claim_mark": "SEARCH outbox_event USING INTEGER PRIMARY KEY (rowid=?)",
    "purge": "SEARCH outbox_event USING COVERING INDEX outbox_event_ended (status=? AND done_at<?)",
    "query_dead": "SEARCH outbox_event USING INDEX outbox_event_dead (position>?)",
    "count_dead": "USING INDEX outbox_event_dead",
    "query_pending": "SEARCH outbox_event USING INDEX outbox_event_pending (available_at>?",
    "count_pending": "USING INDEX outbox_event_pending",
    "query": "SEARCH outbox_event USING INDEX outbox_event_event (event_id<?)",
    "find": "SEARCH outbox_event USING INDEX outbox_event_event (event_id>? AND event_id<?)",
    "replay_done": "SEARCH outbox_event USING INDEX outbox_event_event (event_id=?",
    "forget_failures": "SEARCH failure USING COVERING INDEX outbox_event_failed (event_id=? AND handler_id=?)",
    "trim_failures": "SEARCH outbox_failure USING COVERING INDEX outbox_event_failed (event_id=? AND handler_id=?",
    "cancel": "SEARCH outbox_event USING INDEX outbox_event_event (event_id=?",
    "withdraw": "SEARCH outbox_event USING INDEX outbox_event_event (event_id=?",
    "replayable": "SEARCH outbox_event USING INDEX outbox_event_dead (position>?)",
    # By position: of the table, or of the dead.
    "replay_positions": "SEARCH outbox_event USING ",
    "replay": "SEARCH outbox_event USING INDEX outbox_event_event (event_id=?",
    "discard": "SEARCH outbox_event USING INDEX outbox_event_event (event_id=?",
    "surviving": "outbox_event USING COVERING INDEX outbox_event_event (event_id=?)",
    "backlog": "outbox_event USING INDEX outbox_event_pending",
    "count_done": "SEARCH outbox_event USING COVERING INDEX outbox_event_ended (status=?)",
    "pending": "SCAN outbox_event USING INDEX outbox_event_order",
    **dict.fromkeys(HELD, "SEARCH outbox_event USING INDEX outbox_event_event (event_id=? AND handler_id=?)"),
}


@pytest.fixture(params=["small", "big"])
def table(request: pytest.FixtureRequest, tables: dict[str, Path], tmp_path: Path, analysed: bool) -> Path:
    return copied(tables[request.param], tmp_path, analysed)


def test_every_statement_goes_by_its_index(table: Path) -> None:
    """Also when the planner has seen what is in the table."""
    plans = {name: plan_of(table, name) for name in INDEXES}
    assert {name: plan for name, plan in plans.items() if INDEXES[name] not in plan} == {}


def test_no_statement_reads_the_whole_table(table: Path) -> None:
    scans = {name: plan for name in INDEXES if WHOLE.search(plan := plan_of(table, name))}
    assert scans == {}


def test_nothing_is_sorted_but_rows_that_somebody_else_ended(table: Path) -> None:
    """The claim, above all, goes through its index in order."""
    plans = {name: plan_of(table, name) for name in INDEXES}
    assert {name for name, plan in plans.items() if "TEMP B-TREE" in plan} == {"purge"}
    before, _, after = plans["purge"].partition("RIGHT")
    assert "TEMP B-TREE" not in before
    assert "outbox_event_ended (status=? AND done_at=?)" in after


def test_the_plan_of_an_index_that_is_gone_is_seen(table: Path) -> None:
    """So that the tests above can fail."""
    with closing(sqlite3.connect(table)) as connection, connection:
        connection.execute("DROP INDEX outbox_event_pending")
        connection.execute("DROP INDEX outbox_event_dead")
        connection.execute("DROP INDEX outbox_event_order")
        connection.execute("DROP INDEX outbox_event_blocking")
    assert WHOLE.search(plan_of(table, "next_due"))
    assert "TEMP B-TREE" in plan_of(table, "claim_select")
    assert WHOLE.search(plan_of(table, "count_dead"))


# ---------------------------------------------------------------- steps


class Counted:
    """A store whose connections count the steps of SQLite's virtual machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps = 0
        self.store: Any = open_store(self._connect, Colour.BLOCKING)
        run(self.store.open())

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        connection.set_progress_handler(self._count, 1)
        return connection

    def _count(self) -> int:
        self.steps += 1
        return 0

    def of(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> int:
        self.steps = 0
        run(work(self.store))
        return self.steps

    @property
    def floor(self) -> tuple[int, int]:
        """Behind the rows that somebody holds."""
        last = "SELECT available_at, position FROM outbox_event WHERE locked_by = 'bob' ORDER BY position DESC LIMIT 1"
        return tuple(read(self.path, last)[0])


async def claimed(store: Any, limit: int, floor: object) -> None:
    claim = await look(store, limit=limit, floor=floor)
    assert len(claim.rows) == min(limit, 2 * BATCH)
    assert (claim.next_due is None) == (limit <= 2 * BATCH)


async def settled(store: Any, outcome: Any) -> None:
    claim = await look(store, limit=BATCH)
    assert not await store.settle([Settlement(row.lease, outcome) for row in claim.rows])


async def refused(store: Any) -> None:
    group = [Settlement(lease_of(f"free-{n}", "nobody", 1), DONE) for n in range(BATCH)]
    assert len(await store.settle(group)) == BATCH


async def renewed(store: Any) -> None:
    leases = [lease_of(f"free-{n}", "nobody", 1) for n in range(BATCH)]
    assert not await store.renew(leases, LEASE)


async def suspected(store: Any) -> None:
    assert not await store.mark_suspect(lease_of("free-1", "nobody", 1))


async def purged(store: Any) -> None:
    assert await store.records.purge(timedelta(days=1), dead=False, limit=BATCH) == BATCH


async def purged_by_age(store: Any) -> None:
    assert await store.records.purge_aged(timedelta(days=1), limit=BATCH) == BATCH


async def queried(store: Any) -> None:
    assert len(await store.records.query_dead(EventFilter(), BATCH)) == BATCH


async def replayed(store: Any) -> None:
    assert await store.records.replay("dead-1", None) == 1


async def all_replayed(store: Any) -> None:
    assert (await store.records.replay_after(EventFilter(), 0, BATCH))[0] == BATCH


async def survived(store: Any) -> None:
    keys = [RowKey(f"free-{n}", "") for n in range(BATCH)]
    assert len(await store.executor.transact(lambda tx: store.surviving(tx, keys))) == BATCH


OPERATIONS: dict[str, Callable[[Any], Coroutine[Any, Any, Any]]] = {
    "refused": refused,
    "renew": renewed,
    "mark_suspect": suspected,
    "purge": purged,
    "purge_aged": purged_by_age,
    "query_dead": queried,
    "replay": replayed,
    "replay_after": all_replayed,
    "surviving": survived,
}

#: Deeper trees and other rows cost a little; reading what is not asked for costs a hundred times as much.
FACTOR = 1.25


@pytest.fixture
def pair(tables: dict[str, Path], tmp_path: Path, analysed: bool) -> Iterator[tuple[Counted, Counted]]:
    small, big = (Counted(copied(path, tmp_path, analysed)) for path in tables.values())
    yield small, big
    for each in (small, big):
        run(each.store.close())


@pytest.mark.parametrize("limit", [BATCH, 4 * BATCH], ids=["full", "to the end"])
def test_a_claim_reads_as_much_as_it_takes(pair: tuple[Counted, Counted], limit: int) -> None:
    """Behind 50,000 rows that are done and 5,000 that others hold, before 20,000 that are not due."""
    small, big = (each.of(lambda store, floor=each.floor: claimed(store, limit, floor)) for each in pair)
    assert small > limit
    assert big < small * FACTOR


def test_a_claim_without_a_floor_passes_over_what_others_hold_and_nothing_else(pair: tuple[Counted, Counted]) -> None:
    """Every few seconds the poller looks at all that is due; not at what is done, dead or not due."""
    small, big = (each.of(lambda store: claimed(store, BATCH, None)) for each in pair)
    assert big - small < 20 * 5_000


@pytest.mark.parametrize(
    "outcome",
    [DONE, Retry(timedelta(1), "r"), Dead("d"), Defer(timedelta(1)), RELEASE],
    ids=lambda each: type(each).__name__,
)
def test_settling_costs_by_the_group_and_not_by_the_table(pair: tuple[Counted, Counted], outcome: Any) -> None:
    for each in pair:
        with closing(sqlite3.connect(each.path)) as connection, connection:
            connection.execute("DELETE FROM outbox_event WHERE locked_by = 'bob'")
    small, big = (each.of(lambda store: settled(store, outcome)) for each in pair)
    assert big < small * FACTOR


@pytest.mark.parametrize("name", OPERATIONS)
def test_other_work_costs_by_what_it_is_about(pair: tuple[Counted, Counted], name: str) -> None:
    small, big = (each.of(OPERATIONS[name]) for each in pair)
    assert small > 0
    assert big < small * FACTOR


def test_reading_the_whole_table_is_seen_in_the_steps(pair: tuple[Counted, Counted]) -> None:
    """So that the tests above can fail."""
    for each in pair:
        with closing(sqlite3.connect(each.path)) as connection, connection:
            connection.execute("DROP INDEX outbox_event_pending")
    small, big = (each.of(lambda store, floor=each.floor: claimed(store, BATCH, floor)) for each in pair)
    assert big > small * 20
