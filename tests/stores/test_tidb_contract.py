"""The store for TiDB keeps the contract of a store without order, on MariaDB: its statements are understood there, too.
No TiDB has run them; what it does not have is not asked of it."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT
from sqlalchemy import NullPool, create_engine

from aftercommit import EventEnvelope, Fixed, InvalidOption, Outbox, SchemaMismatch, schema_sql
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.mysql.pool import check_version
from aftercommit.stores.sql.inventory import Inventory, take_inventory
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.tidb.dialect import DIALECT as TIDB
from aftercommit.testing import CoreConformance, SqlHooks
from tests.stores.mysql_kit import Table, connect

#: What TiDB does not know, or knows and does not do.
LACKING = re.compile(r"JSON_TABLE|SKIP LOCKED|READ UNCOMMITTED|SERIALIZABLE", re.IGNORECASE)


def store_at(url: str, **options: Any) -> Any:
    return open_store(url.replace("mysql://", "tidb://", 1), Colour.BLOCKING, **{"create_schema": True, **options})


@pytest.fixture(scope="module")
def table(mysql_url: str) -> Iterator[Table]:
    """Its own, made anew by its own migrations."""
    found = Table(mysql_url)
    for row in found.read("SHOW TABLES"):
        found.execute(f"DROP TABLE `{next(iter(row.values()))}`")
    store = store_at(mysql_url)
    run(store.open())
    run(store.close())
    yield found
    found.close()


class TestTidb(SqlHooks, CoreConformance):
    """In one colour: both drivers write parameters into the text in the same way."""

    skips_locked = False
    has_schemas = False  # names come near statements as they do for MySQL

    @pytest.fixture(autouse=True)
    def database(self, table: Table) -> None:
        self.table = table
        table.clear()

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

    def test_of_many_at_once_one_is_written(self) -> None:
        pytest.skip("the server that stands in for it lets several wait with a lock that they share")


def test_nothing_is_said_that_tidb_lacks() -> None:
    statements = Statements(TIDB, TableNames("outbox_event", None, TIDB.quotes))
    assert [name for name, each in statements.items() if LACKING.search(each.sql)] == []
    assert "held." not in "".join(each.sql for each in statements.values())
    assert {"claim_select", "claim_mark", "done", "retry", "renew", "purge", "summary"} <= set(statements)


def test_its_tables_are_made_and_taken_back_step_by_step(table: Table) -> None:
    store = store_at(table.url, table="numbered", create_schema=False)
    last = store._schema.version

    async def go(first: int, then: int) -> Inventory:
        for step in store._schema.steps(first, then):
            await store.executor.execute(step.sql)
        return await store.executor.transact(lambda tx: take_inventory(tx, store._sql, store.names))

    for first, then in [(0, 1), (1, last), (last, 1), (1, 0), (0, last)]:
        assert run(go(first, then)).version == then
    assert run(go(last, 0)).tables == ()
    run(store.close())


def test_its_numbers_come_from_one_counter(table: Table) -> None:
    """TiDB reads the comment, and others pass it over."""
    script = store_at(table.url).schema_sql()
    assert script.count("AUTO_INCREMENT") == script.count("/*T![auto_id_cache] AUTO_ID_CACHE 1 */;") == 2
    assert "auto_id_cache" not in schema_sql("mysql")
    assert schema_sql("TiDB") == script


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ordered": True}, "TiDB cannot keep order: its SKIP LOCKED takes no locks"),
        ({"serialize_keys": True}, "TiDB cannot serialize_keys"),
    ],
)
def test_what_it_cannot_promise_is_refused_by_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        open_store("tidb://host/shop", Colour.BLOCKING, **options)


def test_it_knows_no_fleet_and_is_claimed_in_no_order() -> None:
    store: Any = open_store("tidb://host/shop", Colour.ASYNC)
    assert (store.membership, store.capabilities.keeps_order, store.wakeups) == (None, False, None)
    assert store.capabilities.isolations == ("READ COMMITTED", "REPEATABLE READ")


@pytest.mark.parametrize("driver", ["url", "engine", "connections"])
def test_an_outbox_delivers_from_it(table: Table, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose dialect is called tidb, and connections to a server that says it is one, lead there as well."""
    table.clear()
    if driver == "engine":
        target: Any = create_engine(table.url.replace("mysql://", "mysql+pymysql://", 1), poolclass=NullPool)
        target.dialect.name = "tidb"
    elif driver == "connections":
        monkeypatch.setattr(pymysql.Connection, "get_server_info", lambda _: "8.0.11-TiDB-v8.5.0")
        target = lambda: connect(table.url, client_flag=CLIENT.FOUND_ROWS)  # noqa: E731
    else:
        target = table.url.replace("mysql://", "tidb://", 1)
    outbox = Outbox(target, max_attempts=2, retry_policy=Fixed("1us"))
    assert outbox._store.where.startswith("TiDB at ")
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


def test_over_mysql_a_tidb_is_refused_and_told_its_own_name(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claims would fail, after events had been written."""
    engine = create_engine(table.url.replace("mysql://", "mysql+pymysql://", 1), poolclass=NullPool)
    monkeypatch.setattr(pymysql.Connection, "get_server_info", lambda _: "8.0.11-TiDB-v8.5.0")
    for target in (table.url, engine):
        outbox = Outbox(target)
        with pytest.raises(SchemaMismatch, match="the server is TiDB") as caught, outbox.transaction():
            pass
        assert "tidb://" in caught.value.fix
        outbox.close()


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("8.0.11-TiDB-v7.5.0", True),
        ("8.0.11-TiDB-v8.5.1-serverless", True),
        ("10.11.6-MariaDB", True),
        ("8.0.11-TiDB-v7.1.5", False),
        ("5.7.25-TiDB-v6.5.0", False),
    ],
)
def test_an_old_tidb_is_refused(text: str, is_taken: bool) -> None:
    if is_taken:
        check_version(text, "TiDB")
    else:
        with pytest.raises(SchemaMismatch, match=r"needs TiDB 7\.5\.0"):
            check_version(text, "TiDB")
