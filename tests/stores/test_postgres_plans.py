"""What statements read: as much as they are about, whatever the table was when the session began, and has become."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from aftercommit.events.claims import ClaimRequest, NewEvent, QueryResult, Settlement
from aftercommit.events.outcome import DONE
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.words import FILTERED
from aftercommit.testing.kit import LEASE, event, lease_of
from tests.stores.postgres_kit import Table, Way

BATCH = 50

# ---------------------------------------------------------------- the trap


def forget(table: Table) -> None:
    """What an earlier ANALYZE has found."""
    table.execute("TRUNCATE outbox_event; DELETE FROM pg_statistic WHERE starelid = 'outbox_event'::regclass")


@pytest.fixture
def own_table(postgres_table: Table) -> Iterator[Table]:
    """A file that was never large, and no statistics: as on the day of the first deployment."""
    forget(postgres_table)
    postgres_table.execute("ALTER TABLE outbox_event SET (autovacuum_enabled = off)")
    yield postgres_table
    postgres_table.execute("ALTER TABLE outbox_event RESET (autovacuum_enabled); TRUNCATE outbox_event")


LEASED = {"locked_by": "'alice'", "lease_epoch": "1", "lease_until": "now() + interval '1 hour'"}

COUNTER = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'outbox_event'"


def group(first: int) -> list[Settlement]:
    return [Settlement(lease_of(f"trap-{n}", "alice", 1), DONE) for n in range(first, first + BATCH)]


async def rows_fetched(way: Way, targets: list[Any], rows: int) -> list[int]:
    """Settle on the empty table, let it grow, settle again: how many rows the sessions of each target fetched."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(way.opened(target)) for target in targets]
        for store in stores:
            for _ in range(8):
                assert len(await store.settle(group(1))) == BATCH, "nothing is there yet"
                assert not await store.renew([each.lease for each in group(1)], LEASE)
        way.table.fill("trap", rows, **LEASED)
        return [await fetched(way, store, 1 + number * BATCH) for number, store in enumerate(stores)]


async def fetched(way: Way, store: Any, first: int) -> int:
    way.table.execute("SELECT pg_stat_force_next_flush()")
    before = way.table.value(COUNTER)
    assert len(await store.renew([each.lease for each in group(first)], LEASE)) == BATCH
    assert not await store.settle(group(first))
    # A session tells what it has counted when it has been idle for a while, or when it is asked to; there may be a few.
    for _ in range(4):
        await store.executor.fetch("SELECT pg_stat_force_next_flush()")
    return int(way.table.value(COUNTER) - before)


def test_a_session_that_began_on_an_empty_table_reads_no_full_one(own_table: Table, way: Way) -> None:
    """A plan made for an empty table reads all of it. asyncpg's pools and SQLAlchemy's keep statements by default."""

    async def scenario() -> list[int]:
        async with way.pool(1) as pool, way.engine(1) as engine:
            return await rows_fetched(way, [way.url, pool, engine], 100_000)

    counts = way.run(scenario)
    assert all(BATCH <= count < 10 * BATCH for count in counts), counts
    assert own_table.value("SELECT count(*) FROM outbox_event WHERE status = 1") == 3 * BATCH


def test_a_prepared_settle_would_be_seen(own_table: Table, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    link_class = way.store().executor._kind
    plain = link_class.run

    async def prepared(link: Any, sql: str, parameters: Any) -> Any:
        if "unnest" not in sql:
            return await plain(link, sql, parameters)
        if way.driver == "asyncpg":
            rows = [tuple(row) for row in await link.raw.fetch(sql, *parameters)]
            return QueryResult(rows, len(rows))
        cursor = link.raw.cursor(row_factory=tuple_row)
        found = cursor.execute(sql, parameters, prepare=True)
        rows = await (await found).fetchall() if way.is_async else found.fetchall()
        return QueryResult(rows, cursor.rowcount)

    monkeypatch.setattr(link_class, "run", prepared)

    async def scenario() -> list[int]:
        async with way.pool(1) as pool:
            return await rows_fetched(way, [pool], 20_000)

    assert way.run(scenario)[0] >= 20_000


# ---------------------------------------------------------------- claims


def claim_plan(
    table: Table, *, limit: int = BATCH, floor: object = None, takes: int | None = None
) -> tuple[int, dict[str, Any]]:
    """Rows that the real claim statement read of the table, and its plan. The claim is rolled back."""
    store = open_store(table.url, Colour.BLOCKING)
    request = ClaimRequest(owner="alice", limit=limit, lock_timeout=LEASE, deadline=0.0, floor=floor)
    statement = store._sql["claim"]
    values = statement.bind(**store._claim_values(request))
    with psycopg.connect(table.url) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}"
        ((found,),) = connection.execute(explain, values, prepare=False).fetchall()
        connection.rollback()
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    assert plan["Actual Rows"] == (limit if takes is None else takes)
    return sum(map(rows_read, nodes(plan))), plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def rows_read(node: dict[str, Any]) -> int:
    """What a scan of the table gave and what it threw away."""
    if node.get("Relation Name") != "outbox_event" or node["Node Type"] == "ModifyTable":
        return 0
    thrown = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    return int((node["Actual Rows"] + thrown) * node["Actual Loops"])


def pages(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


#: A row is read when it is found, and when it is changed.
TWICE = 2 * BATCH

#: The pages of a claim: a few for each row and its indexes.
PAGES = 20 * BATCH


@pytest.fixture(params=["plain", "analysed"])
def statistics(request: pytest.FixtureRequest, postgres_table: Table) -> str:
    """With what autovacuum tells the planner, and before it came."""
    forget(postgres_table)
    return str(request.param)


@pytest.fixture(params=[pytest.param(5, id="fifth"), pytest.param(1, id="whole", marks=pytest.mark.slow)])
def part(request: pytest.FixtureRequest) -> int:
    """The sizes of the promise, and a fifth of them for a quick look."""
    return int(request.param)


def settled_in(table: Table, statistics: str) -> None:
    if statistics == "analysed":
        table.execute("ANALYZE outbox_event")


def test_a_claim_reads_its_batch_of_a_million_that_are_done(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("done", 1_000_000 // part, status="1", done_at="now()")
    table.fill("due", 100_000 // part)
    settled_in(table, statistics)
    read, plan = claim_plan(table)
    assert read == TWICE
    assert pages(plan) < PAGES


def test_a_claim_reads_no_row_that_is_not_due(postgres_table: Table, part: int, statistics: str) -> None:
    table = postgres_table
    table.fill("later", 500_000 // part, status="2", available_at="now() + n * interval '1 hour'")
    table.fill("due", BATCH)
    settled_in(table, statistics)
    read, plan = claim_plan(table)
    assert read == TWICE + 1, "but for the next one, of which it tells when that is"
    assert pages(plan) < PAGES
    read, _ = claim_plan(table, limit=2 * BATCH, takes=BATCH)
    assert read == TWICE + 1, "nor when it does not find enough"


def test_behind_the_floor_a_claim_reads_no_row_that_others_hold(
    postgres_table: Table, part: int, statistics: str
) -> None:
    table = postgres_table
    leased = 20_000 // part
    table.fill("leased", leased, locked_by="'bob'", lease_until="now() + interval '1 day'", lease_epoch="1")
    table.fill("due", 20_000, available_at="now() - interval '1 minute'")
    settled_in(table, statistics)
    read, plan = claim_plan(table, floor=floor_behind(table, "leased-%"))
    assert read == TWICE
    assert pages(plan) < PAGES
    read, _ = claim_plan(table)
    assert read == leased + TWICE, "without it, as every few seconds, each of them once and nothing else"


def test_behind_the_floor_a_claim_reads_no_dead_version(postgres_table: Table, part: int, statistics: str) -> None:
    """Somebody's old snapshot keeps what was delivered since in the index of what is due."""
    table = postgres_table
    table.fill("gone", 200_000 // part)
    settled_in(table, statistics)
    with psycopg.connect(table.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        floor = floor_behind(table, "gone-%")
        table.execute("UPDATE outbox_event SET status = 1, done_at = now()")
        table.fill("due", 10_000, available_at="now() - interval '1 minute'")
        read, plan = claim_plan(table, floor=floor)
        assert read == TWICE
        assert pages(plan) < PAGES
        _, without = claim_plan(table)
        assert pages(without) > pages(plan) + 2000 // part, "the floor is what saves them"


def floor_behind(table: Table, pattern: str) -> tuple[datetime, int]:
    sql = "SELECT available_at, position FROM outbox_event WHERE event_id LIKE %s ORDER BY 1 DESC, 2 DESC LIMIT 1"
    found = table.read(sql, pattern)[0]
    return found["available_at"], found["position"]


def test_a_claim_without_its_index_would_be_seen(postgres_table: Table) -> None:
    """So that the tests above can fail."""
    table = postgres_table
    table.fill("done", 10_000, status="1", done_at="now()")
    table.fill("due", BATCH)
    definition = table.value("SELECT pg_get_indexdef('outbox_event_pending'::regclass)")
    table.execute("DROP INDEX outbox_event_pending")
    try:
        read, _ = claim_plan(table)
    finally:
        table.execute(definition)
    assert read >= 10_000


# ---------------------------------------------------------------- the rest


#: Whatever rows there are.
ANY = dict.fromkeys((*FILTERED, "error", "older_than"))

OTHERS = {
    "next_due": (),
    "query_dead": {**ANY, "position": 0, "limit": BATCH},
    "query_pending": {**ANY, "status": None, "floor_at": "-infinity", "floor_position": -1, "limit": BATCH},
    "query": {**ANY, "status": None, "before_id": "z", "before_handler": "", "limit": BATCH},
    "find": {"event_id": "done-1", "last_id": "done-11", "limit": BATCH},
    "purge": {"status": 1, "older_than": 1, "limit": BATCH},
    "purge_aged": {"older_than": 1, "limit": BATCH},
    "replay_after": {**ANY, "position": 0, "limit": BATCH},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_statements_read_what_they_are_about(postgres_table: Table, name: str) -> None:
    """Once the planner knows the table: nobody is in a hurry with them on its first day."""
    table = postgres_table
    table.fill("done", 20_000, status="1", done_at="now() - interval '1 hour'")
    table.fill("dead", 2_000, status="3", done_at="now() - interval '1 hour'")
    table.fill("later", 20_000, available_at="now() + n * interval '1 hour'")
    table.execute("ANALYZE outbox_event")
    store = open_store(table.url, Colour.BLOCKING)
    statement = store._sql[name]
    with psycopg.connect(table.url) as connection:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}"
        ((found,),) = connection.execute(explain, statement.bind(**dict(OTHERS[name])) or None).fetchall()
        connection.rollback()
    assert sum(map(rows_read, nodes(found[0]["Plan"]))) <= 5 * BATCH
    run(store.close())


def test_claims_of_rows_with_a_unique_key_stay_on_their_page(way: Way, own_table: Table) -> None:
    """HOT: a claim touches no index, that of unique keys among them, which holds nothing of what has none."""

    async def scenario() -> None:
        async with way.opened() as store:
            opened = await store.begin()
            rows = [
                NewEvent(event(unique_key=str(number) if number % 2 else None), 7) for number in range(10)
            ]  # of one page
            assert list((await store.insert_unique(opened, rows)).refused) == []
            await opened.commit()
            assert len((await store.claim(ClaimRequest("alice", 10, LEASE, 0.0))).rows) == 10
            for _ in range(4):
                await store.executor.fetch("SELECT pg_stat_force_next_flush()")

    own_table.execute("SELECT pg_stat_force_next_flush()")
    counts = "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'outbox_event'"
    before = own_table.value(counts)
    way.run(scenario)
    assert own_table.value(counts) == before
    own_table.execute("VACUUM ANALYZE outbox_event")
    entries = own_table.value("SELECT reltuples::int FROM pg_class WHERE relname = 'outbox_event_unique'")
    assert entries == 5
