"""Numbered migrations: in one transaction or beside it, and as a script for people who run their own."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aftercommit.errors import SchemaMismatch
from aftercommit.ports import Colour, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.executor import SqliteExecutor
from aftercommit.stores.sqlite.target import DIALECT
from aftercommit.testing.kit import event, ids, take
from tests.stores.kit import insert, read, run_in, store_at

_serial = itertools.count(1)

#: The schema of this release.
LAST = Statements(DIALECT, TableNames("outbox_event")).migrations()[-1].number

#: Adds files behind the migrations of SQLite: `release(name=text)` is the dialect of a later release.
Release = Callable[..., Dialect]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    def make(**migrations: str) -> Dialect:
        package = f"invented_release_{next(_serial)}"
        for folder in ("sql", "migrations"):
            shutil.copytree(str(files(DIALECT.package).joinpath(folder)), tmp_path / package / folder)
        (tmp_path / package / "__init__.py").touch()
        for number, (name, text) in enumerate(migrations.items(), start=LAST + 1):
            file = f"{number:04}_{name.replace('_online', '.online')}.sql"
            (tmp_path / package / "migrations" / file).write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return replace(DIALECT, package=package)

    return make


class Traced(SqliteExecutor):
    """Tells where each statement ran: in the transaction of the migration, or beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False), str(path))
        self.beside: list[str] = []

    async def execute(self, sql: str, parameters: Any = ()) -> int:
        self.beside.append(sql)
        return await super().execute(sql, parameters)


def opened(path: Path, dialect: Dialect, **options: Any) -> Traced:
    executor = Traced(path)
    store = SqlStore(executor, dialect, where="here", create_schema=options.pop("create_schema", True), **options)
    try:
        run(store.open())
    finally:
        run(store.close())
    return executor


def names(path: Path) -> set[str]:
    return {row["name"] for row in read(path, "SELECT name FROM sqlite_master")}


def settings(path: Path) -> dict[str, str]:
    return dict(tuple(row) for row in read(path, "SELECT name, value FROM outbox_schema"))


SECOND = "-- More.\nCREATE TABLE second (n);\n"
THIRD = "-- Still more.\nCREATE TABLE third (n);\nINSERT INTO third VALUES (7);\n"


# ---------------------------------------------------------------- files


def test_migrations_are_numbered_without_gaps() -> None:
    found = sorted(file.name for file in files(DIALECT.package).joinpath("migrations").iterdir())
    numbers = [migration.number for migration in Statements(DIALECT, TableNames("outbox_event")).migrations()]
    assert all(name[:4].isdigit() and name[4] == "_" and name.endswith(".sql") for name in found)
    assert numbers == list(range(1, len(found) + 1)) == [int(name[:4]) for name in found]


def test_a_migration_is_split_into_its_statements() -> None:
    first, *_ = Statements(DIALECT, TableNames("ob_x")).migrations()
    assert not first.is_online
    assert [statement.split("(")[0].split()[:2] for statement in first.statements] == [
        ["CREATE", "TABLE"],
        ["CREATE", "TABLE"],
        ["CREATE", "UNIQUE"],
        *[["CREATE", "INDEX"]] * (len(first.statements) - 3),
    ]
    assert all("{" not in statement and '"ob_x' in statement for statement in first.statements)


def test_the_name_of_a_file_says_its_number_and_whether_it_runs_online(release: Release) -> None:
    later = release(second_online=SECOND, third=THIRD)
    found = Statements(later, TableNames("outbox_event")).migrations()
    assert [(each.number, each.is_online) for each in found[LAST:]] == [(LAST + 1, True), (LAST + 2, False)]
    assert found[-1].statements == ["CREATE TABLE third (n)", "INSERT INTO third VALUES (7)"]


# ---------------------------------------------------------------- upgrades


def test_an_older_schema_is_upgraded_by_the_migrations_behind_it(path: Path, release: Release) -> None:
    opened(path, DIALECT)
    store = store_at(path)
    run(insert(store, event()))
    run(store.close())
    made_by = settings(path)["store_id"]
    later = release(second=SECOND, third=THIRD)

    with pytest.raises(SchemaMismatch, match=f"at version {LAST}, this release needs {LAST + 2}"):
        opened(path, later, create_schema=False)
    opened(path, later)
    opened(path, later)
    opened(path, later, create_schema=False)

    assert {"second", "third"} <= names(path)
    assert (settings(path)["version"], settings(path)["store_id"]) == (str(LAST + 2), made_by)
    assert len(read(path, "SELECT * FROM third")) == len(read(path, "SELECT * FROM outbox_event")) == 1


def test_a_new_table_gets_all_migrations_at_once(path: Path, release: Release) -> None:
    executor = opened(path, release(second=SECOND, third_online=THIRD))
    assert {"second", "third"} <= names(path)
    assert settings(path)["version"] == str(LAST + 2)
    assert executor.beside == [], "nobody else can see the table before it is committed"


def test_an_upgrade_that_fails_is_undone_and_can_be_tried_again(path: Path, release: Release) -> None:
    opened(path, DIALECT)
    broken = release(second=SECOND, third="-- No.\nCREATE TABLE outbox_event (n);\n")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        opened(path, broken)
    assert "second" not in names(path)
    assert settings(path)["version"] == str(LAST)
    opened(path, release(second=SECOND, third=THIRD))
    assert settings(path)["version"] == str(LAST + 2)


def test_an_online_migration_runs_where_the_database_has_one_writer(path: Path, release: Release) -> None:
    """The transaction of the migration is SQLite's only writer: what would wait for it runs in it."""
    opened(path, DIALECT)
    executor = opened(path, release(second_online=SECOND))
    assert "second" in names(path)
    assert settings(path)["version"] == str(LAST + 1)
    assert executor.beside == []


def test_an_online_migration_runs_beside_the_transaction_that_holds_the_lock(
    path: Path, release: Release, tmp_path: Path
) -> None:
    """As on servers, which have a lock of its own for this: seen by a statement that takes and one that gives it."""
    opened(path, DIALECT)
    later = release(second_online=SECOND + "CREATE INDEX CONCURRENTLY later ON second (n);\n")
    for name in ("schema_lock", "schema_unlock"):
        (tmp_path / later.package / "sql" / f"{name}.sql").write_text(f"-- A lock.\nSELECT '{name}', :name\n")
    executor = Server(path)
    run(SqlStore(executor, later, where="here", create_schema=True).open())
    assert executor.seen == [
        "SELECT 'schema_lock', ?",
        "beside: CREATE TABLE second (n)",
        "beside: CREATE INDEX CONCURRENTLY later ON second (n)",
        "SELECT 'schema_unlock', ?",
    ]
    assert settings(path)["version"] == str(LAST + 1)
    run(executor.close())


class Server(SqliteExecutor):
    """Plays a server: what runs beside a transaction is only noted, because SQLite could not do it."""

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False), str(path))
        self.seen: list[str] = []

    async def execute(self, sql: str, parameters: Any = ()) -> int:
        self.seen.append(f"beside: {sql}")
        return 0

    async def transact(self, work: Any, *, writes: bool = True) -> Any:
        async def noted(tx: Tx) -> Any:
            return await work(_Noting(tx, self.seen))

        return await super().transact(noted, writes=writes)


class _Noting:
    def __init__(self, tx: Tx, seen: list[str]) -> None:
        self._tx = tx
        self._seen = seen
        self.execute = tx.execute

    async def fetch(self, sql: str, parameters: Any = ()) -> list[Any]:
        if "lock" in sql.partition(",")[0]:
            self._seen.append(sql)
        return await self._tx.fetch(sql, parameters)


# ---------------------------------------------------------------- the script


@pytest.mark.parametrize("table", ["outbox_event", "order", "MixedCase"])
@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
def test_the_script_makes_tables_on_which_a_store_opens(path: Path, table: str, colour: Colour) -> None:
    """For people who run their own migrations; the store needs no right to create."""
    script = store_at(path, table=table).schema_sql()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)

    async def scenario() -> None:
        store = store_at(path, colour, table=table, create_schema=False)
        await store.open()
        await insert(store, given := event())
        assert ids(await take(store)) == [given.event_id]
        await store.close()

    run_in(colour, scenario())


def test_the_script_makes_what_the_store_makes(tmp_path: Path) -> None:
    by_script, by_store = tmp_path / "script.db", tmp_path / "store.db"
    store = store_at(by_store)
    with closing(sqlite3.connect(by_script)) as connection:
        connection.executescript(store.schema_sql())
    run(store.open())
    run(store.close())
    made = [
        {(row["type"], row["name"], row["sql"]) for row in read(each, "SELECT * FROM sqlite_master")}
        for each in (by_script, by_store)
    ]
    assert made[0] == made[1]
    known = [settings(each) for each in (by_script, by_store)]
    for each in known:
        assert len(each.pop("store_id")) == 36
    assert known[0] == known[1]


def test_the_script_has_every_migration_and_no_word_for_online_work(path: Path, release: Release) -> None:
    """A script is run in one go, on tables that nobody uses yet."""
    later = release(second_online=SECOND + "CREATE INDEX CONCURRENTLY later ON second (n);\n")
    script = SqlStore(Traced(path), later, where="here").schema_sql()
    assert "CREATE INDEX later ON second (n)" in script
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    assert settings(path)["version"] == str(LAST + 1)
