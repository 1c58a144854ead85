"""The store for CockroachDB keeps the contract of a store without order, on PostgreSQL: its statements are understood
there, too. No CockroachDB has run them; what it does not have is not asked of it."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine

from aftercommit import AsyncOutbox, EventEnvelope, Fixed, InvalidOption, Outbox, SchemaMismatch, schema_sql
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.cockroachdb.dialect import ASYNCPG, PSYCOPG
from aftercommit.stores.detect import open_store
from aftercommit.stores.postgres.faults import fault_of_state
from aftercommit.stores.postgres.psycopg_link import PsycopgLink
from aftercommit.stores.postgres.target import _with_port
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.inventory import Inventory, take_inventory
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.testing import CoreConformance, SqlHooks
from tests.stores.kit import run_in
from tests.stores.postgres_kit import Table

#: What CockroachDB does not know, or knows and does not do; and an empty list of columns, which its grammar has not.
LACKING = re.compile(
    r"ctid|advisory|LISTEN|notify|LOCK TABLE|synchronous_commit|array_nulls|starts_with|SELECT\s+FROM|COLLATE"
    r"|fillfactor|autovacuum|pg_stat|pg_backend|pg_replication",
    re.IGNORECASE,
)

#: A schema beside that of PostgreSQL's store, which other tests use in the same database.
SCHEMA = "roaches"


def store_at(url: str, colour: Colour = Colour.BLOCKING, **options: Any) -> Any:
    return open_store(cockroach(url), colour, **{"create_schema": True, **options})


def cockroach(url: str, driver: str = "") -> str:
    """In whose sessions tables without a schema are those of ours."""
    glue = "&" if "?" in url else "?"
    path = f"search_path={SCHEMA}" if driver else f"options=-csearch_path%3D{SCHEMA}"
    return url.replace("postgresql://", f"cockroachdb{driver}://", 1) + glue + path


@pytest.fixture(scope="module")
def table(postgres_url: str) -> Iterator[Table]:
    """Its own, made by its own migrations."""
    found = Table(postgres_url)
    found.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    found.execute(f"CREATE SCHEMA {SCHEMA}")
    found.execute(f"SET search_path TO {SCHEMA}")
    store = store_at(postgres_url)
    run(store.open())
    run(store.close())
    yield found
    found.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    found.close()


def cleared(table: Table) -> Table:
    table.execute("DELETE FROM outbox_event")
    table.execute("DELETE FROM outbox_failure")
    table.execute("DELETE FROM outbox_pause")
    return table


class TestCockroachdb(SqlHooks, CoreConformance):
    """In one colour: what is said is the same in all, but for the marks of parameters."""

    has_schemas = False  # names come near statements as they do for PostgreSQL

    @pytest.fixture(autouse=True)
    def database(self, table: Table) -> None:
        self.table = cleared(table)

    def make_store(self, **options: Any) -> Any:
        return store_at(self.table.url, **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run(coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.rows()

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        self.table.change(event_id, **columns)

    def now(self) -> int:
        return self.table.now()


def test_nothing_is_said_that_cockroachdb_lacks() -> None:
    for dialect in (PSYCOPG, ASYNCPG):
        statements = Statements(dialect, TableNames("outbox_event"))
        assert [name for name, each in statements.items() if LACKING.search(each.sql)] == []
        assert {"claim", "done", "retry", "renew", "purge", "purge_aged", "summary", "tables"} <= set(statements)
    assert not LACKING.search(schema_sql("CockroachDB"))
    assert LACKING.search(schema_sql("PostgreSQL"))


def test_its_tables_are_made_and_taken_back_step_by_step(table: Table) -> None:
    store = store_at(table.url, table="numbered", create_schema=False)
    last = store._schema.version

    async def go(first: int, then: int) -> Inventory:
        for step in store._schema.steps(first, then):
            await store.executor.execute(step.sql)
        return await store.executor.transact(lambda tx: take_inventory(tx, store._sql, store.names))

    for first, then in [(0, 1), (1, last), (last, 1), (1, 0)]:
        assert run(go(first, then)).version == then
    run(store.create_schema())
    assert run(store.schema_status()).fits
    run(store.executor.transact(lambda tx: store._schema._lock(tx, is_new=False)))  # as the next version will
    assert run(go(last, 0)).tables == ()
    run(store.close())


def test_who_makes_the_tables_at_the_same_moment_begins_again() -> None:
    """There is no lock for what is not there yet; and commits there fail by design."""
    assert fault_of_state("42P07") is fault_of_state("40001") is Fault.CONFLICT


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ordered": True}, "CockroachDB cannot keep order: its numbers do not grow in the order of writing"),
        ({"serialize_keys": True}, "CockroachDB cannot serialize_keys"),
    ],
)
def test_what_it_cannot_promise_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        open_store("cockroachdb://host/shop", Colour.BLOCKING, **options)


def test_it_knows_no_fleet_wakes_nobody_and_is_claimed_in_no_order() -> None:
    store: Any = open_store("cockroachdb://host/shop", Colour.ASYNC)
    can = store.capabilities
    assert (store.membership, store.wakeups, can.keeps_order, can.wakes_others) == (None, None, False, False)


@pytest.mark.parametrize("way", ["url", "engine", "connections"])
def test_an_outbox_delivers_from_it(table: Table, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose dialect is called cockroachdb, and connections to a server that says it is one, lead there."""
    url, settings = cleared(table).url, {"options": f"-csearch_path={SCHEMA}"}
    target: Any = cockroach(url)
    if way == "engine":
        target = create_engine(url.replace("://", "+psycopg://", 1), poolclass=NullPool, connect_args=settings)
        target.dialect.name = "cockroachdb"
    elif way == "connections":
        monkeypatch.setattr(psycopg.ConnectionInfo, "parameter_status", lambda *_: "v25.2")
        target = lambda: psycopg.connect(url, **settings)  # noqa: E731
    outbox = Outbox(target, max_attempts=2, retry_policy=Fixed("1us"))
    assert outbox._store.where.startswith("CockroachDB at ")
    seen = list[str]()

    @outbox.handler("OrderPlaced")
    def deliver(event: EventEnvelope) -> None:
        seen.append(event.event_id)
        if event.aggregate_id == "bad":
            raise ValueError("no such order")

    with outbox.transaction():
        good = outbox.write("OrderPlaced", {"order": 7})
        bad = outbox.write("OrderPlaced", {"order": 8}, aggregate_id="bad")
    outbox.drain()
    assert sorted(seen) == sorted([good, bad, bad])
    assert [dead.event_id for dead in outbox.dead.query()] == [bad]
    assert {each.code for each in outbox.diagnose() if each.is_problem} == {"AC108"}  # the dead letter
    outbox.close()


def test_asyncpg_delivers_from_it_too(table: Table) -> None:
    seen = list[str]()

    async def scenario() -> None:
        outbox = AsyncOutbox(cockroach(cleared(table).url, "+asyncpg"))
        outbox.register("OrderPlaced", lambda event: seen.append(event.event_id))
        async with outbox.transaction():
            ids = await outbox.write_all([EventEnvelope.of_json("OrderPlaced", "{}") for _ in range(3)])
        assert (await outbox.drain()).delivered == 3
        assert sorted(seen) == sorted(ids)
        await outbox.close()

    run_in(Colour.ASYNC, scenario())


def test_over_postgresql_a_cockroachdb_is_refused_and_told_its_own_name(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claims would fail, after events had been written."""
    monkeypatch.setattr(PsycopgLink, "is_cockroach", property(lambda _: True))
    store: Any = open_store(table.url, Colour.BLOCKING)
    with pytest.raises(SchemaMismatch, match="the server is CockroachDB") as caught:
        run(store.open())
    assert "cockroachdb://" in caught.value.fix
    run(store.close())


@pytest.mark.parametrize(
    ("hosts", "named"),
    [
        ("db", "db:26257"),
        ("db:5433", "db:5433"),
        ("u:p%40@a,b:1", "u:p%40@a:26257,b:1"),
        ("[::1]", "[::1]:26257"),
        ("", ""),
    ],
)
def test_its_port_is_its_own(hosts: str, named: str) -> None:
    assert _with_port(f"postgresql://{hosts}/shop") == f"postgresql://{named}/shop"
