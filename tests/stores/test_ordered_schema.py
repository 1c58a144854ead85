"""Order is kept in the tables: processes that disagree refuse to work, and it is changed only on purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg_pool
import pytest
from sqlalchemy import create_engine

from aftercommit import AsyncOutbox, Outbox, schema_sql
from aftercommit.errors import InvalidOption, SchemaMismatch
from aftercommit.events.order import Order
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.testing.runs import line, run_of, states
from tests.stores.kit import alter, read, run_in, store_at
from tests.stores.postgres_kit import Table, Way

TABLE = "aging"

ORDERED = {"ordered": True, "on_dead": "continue"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def opened(path: Path, **options: Any) -> None:
    store = store_at(path, **options)
    try:
        run(store.open())
    finally:
        run(store.close())


def facts(path: Path) -> dict[str, str]:
    return dict(tuple(row) for row in read(path, "SELECT name, value FROM outbox_schema"))


# ---------------------------------------------------------------- kept


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {"ordered": "0", "on_dead": "block", "oldest_code": "1"}),
        ({"ordered": True}, {"ordered": "1", "on_dead": "block", "oldest_code": "2"}),
        (ORDERED, {"ordered": "1", "on_dead": "continue", "oldest_code": "2"}),
    ],
    ids=str,
)
def test_a_new_table_keeps_the_order_that_it_was_made_with(path: Path, options: Any, kept: dict[str, str]) -> None:
    opened(path, **options)
    found = facts(path)
    assert {name: found[name] for name in kept} == kept
    opened(path, create_schema=False, **options)


@pytest.mark.parametrize("options", [{}, {"ordered": True}, ORDERED], ids=str)
def test_so_does_one_that_a_script_made(path: Path, options: Any) -> None:
    for script in (store_at(path, **options).schema_sql(), schema_sql("sqlite", **options)):
        path.unlink(missing_ok=True)
        for statement in script.split(";\n\n"):
            alter(path, statement.strip(";\n"))
        opened(path, create_schema=False, **options)
        with pytest.raises(SchemaMismatch):
            opened(path, ordered=not options.get("ordered"))


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("creates", [True, False])
@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ({}, {"ordered": True}),
        ({"ordered": True}, {}),
        ({"ordered": True}, ORDERED),
        (ORDERED, {"ordered": True}),
    ],
    ids=str,
)
def test_a_process_that_disagrees_is_refused(path: Path, made: Any, wanted: Any, creates: bool) -> None:
    opened(path, **made)
    before = facts(path)
    with pytest.raises(SchemaMismatch) as caught:
        opened(path, create_schema=creates, **wanted)
    assert f"outbox_event was made with {Order(**made)}, this outbox has {Order(**wanted)}" in caught.value.message
    assert f"give this process {Order(**made)}" in caught.value.fix
    assert "stop all others and call outbox.create_schema()" in caught.value.fix
    assert facts(path) == before


def test_a_process_that_only_writes_has_to_agree_too(path: Path) -> None:
    """Its rows would be born leased."""
    opened(path, ordered=True)
    outbox = Outbox.writer_only(f"sqlite:///{path}")
    with pytest.raises(SchemaMismatch, match="ordered=True"), outbox.transaction():
        outbox.write("T", {})
    outbox.close()


def test_order_is_changed_by_create_schema(path: Path) -> None:
    """And by nothing else: that is how order is turned on for a table that is there."""
    opened(path)
    store_id = facts(path)["store_id"]
    outbox = Outbox(f"sqlite:///{path}", **ORDERED)
    outbox.create_schema()
    outbox.close()
    found = facts(path)
    assert (found["ordered"], found["on_dead"], found["oldest_code"]) == ("1", "continue", "2")
    assert found["store_id"] == store_id
    opened(path, **ORDERED)
    with pytest.raises(SchemaMismatch):
        opened(path)
    store = store_at(path)
    run(store.create_schema())
    run(store.close())
    assert (facts(path)["ordered"], facts(path)["oldest_code"]) == ("0", "1")
    opened(path)


# ---------------------------------------------------------------- upgraded


def age(execute: Callable[[str], Any], table: str, side: str) -> None:
    """As the first release made it: no order, no fleet, no failures."""
    for index in ("order", "blocking", "unique"):
        execute(f"DROP INDEX {table}_{index}")
    execute(f"ALTER TABLE {table} DROP COLUMN unique_key")
    for noun in ("instance", "partition", "failure", "pause"):
        execute(f"DROP TABLE {side}_{noun}")
    execute(f"DELETE FROM {side}_schema WHERE name IN ('ordered', 'on_dead')")
    execute(f"UPDATE {side}_schema SET value = '1' WHERE name = 'version'")


@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
def test_an_older_table_is_upgraded_as_unordered(path: Path, colour: Colour) -> None:
    opened(path)
    age(lambda sql: alter(path, sql), "outbox_event", "outbox")
    with pytest.raises(SchemaMismatch, match="at version 1, this release needs 5"):
        opened(path, create_schema=False)
    with pytest.raises(SchemaMismatch, match="was made with ordered=False"):
        opened(path, ordered=True)
    found = facts(path)
    assert (found["ordered"], found["on_dead"], found["version"]) == ("0", "block", "5")

    async def scenario() -> None:
        store = store_at(path, colour)
        await store.open()
        given = await line(store, "a", 2)
        assert list(await states(store)) == ["a"]
        assert len(await run_of(store)) == len(given)
        await store.close()

    run_in(colour, scenario())


def test_an_older_table_on_postgresql_is_upgraded_beside_writers(way: Way, postgres_table: Table) -> None:
    async def scenario() -> None:
        async with way.opened(table=TABLE, create_schema=True) as store:
            given = await line(store, "a", 3)
        age(postgres_table.execute, TABLE, TABLE)
        async with way.opened(table=TABLE, create_schema=True) as store:
            assert list(await states(store)) == ["a"]
            assert len(await run_of(store)) == len(given)

    way.run(scenario)
    valid = postgres_table.read(
        "SELECT indexrelid::regclass::text AS name FROM pg_index WHERE indrelid = %s::regclass AND indisvalid", TABLE
    )
    assert {f"{TABLE}_order", f"{TABLE}_blocking"} <= {row["name"] for row in valid}
    kept = dict(row.values() for row in postgres_table.read(f"SELECT name, value FROM {TABLE}_schema"))
    assert (kept["ordered"], kept["on_dead"], kept["version"]) == ("0", "block", "5")


# ---------------------------------------------------------------- options on their way


@pytest.mark.parametrize("kind", ["url", "factory", "connection", "engine"])
def test_the_options_arrive_whatever_the_target_is(kind: str, path: Path) -> None:
    import sqlite3

    url = f"sqlite:///{path}"
    target: Any = {
        "url": url,
        "factory": lambda: sqlite3.connect(path, check_same_thread=False),
        "connection": (connection := sqlite3.connect(path)),
        "engine": (engine := create_engine(url)),
    }[kind]
    for colour in Colour:
        assert open_store(target, colour, **ORDERED).order == Order(True, "continue")
        assert open_store(target, colour).order == Order(False, "block")
    connection.close()
    engine.dispose()


@pytest.mark.parametrize("kind", ["url", "pool", "factory", "connection", "engine"])
def test_the_options_arrive_at_postgresql_too(kind: str, postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        target: Any = {
            "url": postgres_url,
            "pool": psycopg_pool.ConnectionPool(postgres_url, open=False),
            "factory": lambda: psycopg.connect(postgres_url),
            "connection": connection,
            "engine": create_engine(postgres_url.replace("postgresql", "postgresql+psycopg", 1)),
        }[kind]
        assert open_store(target, Colour.BLOCKING, **ORDERED).order == Order(True, "continue")


@pytest.mark.parametrize("face", [Outbox, AsyncOutbox])
def test_a_ready_store_has_to_have_the_order_of_its_outbox(face: Any, path: Path) -> None:
    colour = Colour.BLOCKING if face is Outbox else Colour.ASYNC
    plain, ordered = store_at(path, colour), store_at(path, colour, **ORDERED)
    face(plain)
    face(ordered, **ORDERED)
    for store, options in ((plain, ORDERED), (ordered, {}), (ordered, {"ordered": True})):
        with pytest.raises(InvalidOption, match="the ready store SqliteStore has ordered=") as caught:
            face(store, **options)
        assert "to the outbox, or" in caught.value.fix
