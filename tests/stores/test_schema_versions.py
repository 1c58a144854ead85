"""The schema by its numbers: there and back again on every database, what is there is told, and what lacks is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from aftercommit import AsyncOutbox, InvalidOption, Outbox, SchemaMismatch, SchemaMissing, SchemaStatus, schema_sql
from aftercommit.ports import Colour, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.scripts import newest_version
from aftercommit.stores.sql.inventory import Inventory, take_inventory
from aftercommit.stores.sql.steps import Step
from aftercommit.testing.kit import event, take
from tests.stores.kit import alter, insert, run_in

LAST = newest_version("sqlite")
TABLE = "numbered"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """On a database that has no such tables."""
    fixture = {"postgresql": "postgres_url", "mariadb": "mysql_url"}.get(request.param)
    url = f"sqlite:///{tmp_path}/app.db" if fixture is None else request.getfixturevalue(fixture)
    made: Any = open_store(url, Colour.BLOCKING, table=TABLE, create_schema=False)
    yield made
    go(made, made._schema.steps(LAST, 0))
    run(made.close())


def go(store: Any, steps: list[Step]) -> None:
    """As somebody would by hand: statement by statement, on one connection where it matters."""

    async def work(tx: Tx) -> None:
        for step in steps:
            await (store.executor if step.is_online else tx).execute(step.sql)

    if any(step.is_online for step in steps):
        for step in steps:
            run(store.executor.execute(step.sql))
    else:
        run(store.executor.transact(work))


def look(store: Any) -> Inventory:
    return run(store.executor.transact(lambda tx: take_inventory(tx, store._sql, store.names)))


def test_every_version_is_reached_up_and_down_and_up_again(store: Any) -> None:
    schema = store._schema
    for first, last in [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, LAST),
        (LAST, 3),
        (3, 2),
        (2, 1),
        (1, LAST),
        (LAST, 1),
        (1, 0),
        (0, LAST),
    ]:
        go(store, schema.steps(first, last))
        found = look(store)
        assert found.version == last, (first, last, found)
        status = run(store.schema_status())
        assert (status.version, status.missing, status.is_behind) == (last, (), last < LAST)
        assert bool(found.tables) == (last > 0)
    run(store.open())
    run(insert(store, event()))
    assert len(run(take(store))) == 1


def test_what_the_migrations_say_is_what_a_database_has(store: Any) -> None:
    """So that nothing that is there counts as missing, and nothing that is missing as there."""
    assert look(store).missing(LAST)
    run(store.create_schema())
    assert look(store) == Inventory(store.names.all, ((),) * LAST)


def test_tables_without_their_facts_are_told_them(store: Any) -> None:
    """As a dump without rows leaves them."""
    run(store.create_schema())
    for table in ("schema", "partition"):
        run(store.executor.execute(f"DELETE FROM {TABLE}_{table}"))
    status = run(store.schema_status())
    assert status.version == 0
    assert status.missing == tuple(
        f"fact {name}" for name in ("version", "oldest_code", "store_id", "partitions", "hash")
    )
    assert isinstance(status.problem, SchemaMismatch)
    assert f"all of version {LAST} is there" in status.problem.message
    assert "create_schema()" in status.problem.fix
    run(store.create_schema())
    assert run(store.schema_status()) == SchemaStatus(LAST, LAST)
    assert len(run(store.membership.view()).partitions) == 256


def test_one_fact_that_is_gone_comes_back_and_the_others_stay(store: Any) -> None:
    run(store.create_schema())
    before = settings(store)
    run(store.executor.execute(f"DELETE FROM {TABLE}_schema WHERE name IN ('hash', 'version')"))
    assert run(store.schema_status()).missing == ("fact version", "fact hash")
    run(store.create_schema())
    assert settings(store) == before


def settings(store: Any) -> dict[str, str]:
    return dict(tuple(row) for row in run(store.executor.fetch(f"SELECT name, value FROM {TABLE}_schema")))


def test_an_index_and_a_table_that_are_gone_are_named(store: Any) -> None:
    run(store.create_schema())
    where = f" ON {TABLE}" if store.dialect.name == "MySQL" else ""
    run(store.executor.execute(f"DROP INDEX {TABLE}_dead{where}"))
    run(store.executor.execute(f"DROP TABLE {TABLE}_pause"))
    status = run(store.schema_status())
    assert status.missing == (f"index {TABLE}_dead", f"table {TABLE}_pause")
    run(store.executor.execute(f"DELETE FROM {TABLE}_schema"))
    with pytest.raises(SchemaMismatch, match=f"Missing: index {TABLE}_dead, "):
        run(store.create_schema())
    assert settings(store) == {}


# ---------------------------------------------------------------- without a server


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mysql", "sqlserver"])
def test_numbers_mean_the_same_script_whatever_is_newer(database: str) -> None:
    """It makes version 3 where the code knows more, and every database draws its own id."""
    third = schema_sql(database, to_version=3)
    assert third == schema_sql(database, to_version=3)
    assert "('version', '3')" in third
    assert "outbox_pause" not in third
    last = schema_sql(database, from_version=3, to_version=4)
    assert last.endswith("SET value = '4' WHERE name = 'version' AND value = '3';\n")
    assert "outbox_pause" in last
    assert "CREATE TABLE" not in schema_sql(database, from_version=LAST, to_version=1)
    assert schema_sql(database, from_version=3, to_version=3) == ""


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [({"to_version": LAST + 1}, f"to_version is {LAST + 1}"), ({"from_version": -1}, "from_version is -1")],
    ids=str,
)
def test_versions_that_there_are_not_are_refused(versions: dict[str, int], wrong: str) -> None:
    with pytest.raises(InvalidOption, match=wrong) as caught:
        schema_sql("postgresql", **versions)
    assert f"to {LAST}" in caught.value.message


def test_the_first_version_knows_no_order() -> None:
    with pytest.raises(InvalidOption, match="version 1 of the schema knows no order"):
        schema_sql("sqlite", ordered=True, to_version=1)


@pytest.mark.parametrize("way", [(0, 5), (1, 5), (5, 1), (4, 5), (2, 0)], ids=str)
def test_what_sql_server_would_run_is_sql(way: tuple[int, int]) -> None:
    """By a parser: a statement that it merely passes through would be a Command."""
    script = schema_sql("sqlserver", schema="sales", from_version=way[0], to_version=way[1])
    parsed = sqlglot.parse(script, read="tsql")
    assert len(parsed) >= 3
    assert [each.sql() for each in parsed if each is not None and each.key == "command"] == []


# ---------------------------------------------------------------- by the façade


@pytest.mark.parametrize("face", [Outbox, AsyncOutbox])
def test_an_outbox_tells_what_is_there_of_its_tables(face: Any, tmp_path: Path) -> None:
    path = tmp_path / "app.db"

    async def scenario() -> None:
        outbox = face(f"sqlite:///{path}", create_schema=False)

        async def status() -> SchemaStatus:
            found = outbox.schema_status()
            return found if face is Outbox else await found

        nothing = await status()
        assert (nothing.version, nothing.needed, nothing.missing) == (0, LAST, ())
        assert isinstance(nothing.problem, SchemaMissing)
        for statement in outbox.schema_sql(to_version=LAST - 1).split(";\n\n"):
            alter(path, statement.strip(";\n"))
        older = await status()
        assert (older.version, older.is_behind, older.fits) == (LAST - 1, True, False)
        assert f"from_version={LAST - 1}, to_version={LAST}" in older.problem.fix
        for statement in outbox.schema_sql(LAST - 1).split(";\n\n"):
            alter(path, statement.strip(";\n"))
        assert await status() == SchemaStatus(LAST, LAST)
        alter(path, f"UPDATE outbox_schema SET value = '{LAST + 1}' WHERE name = 'version'")
        newer = await status()
        assert (newer.version, newer.fits, newer.is_behind) == (LAST + 1, True, False)
        closing = outbox.close()
        if closing is not None:
            await closing

    run_in(Colour.BLOCKING if face is Outbox else Colour.ASYNC, scenario())


def test_redis_tells_its_layout_and_has_no_script(redis_url: str, redis_table: str) -> None:
    outbox = Outbox(redis_url, table=redis_table, create_schema=False)
    assert isinstance(outbox.schema_status().problem, SchemaMissing)
    outbox.create_schema()
    status = outbox.schema_status()
    assert (status.version, status.fits, status.missing) == (status.needed, True, ())
    with pytest.raises(InvalidOption, match="no tables"):
        outbox.schema_sql()
    outbox.close()
