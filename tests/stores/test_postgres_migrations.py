"""Upgrades of a table that is in use: writers go on, an interrupted one is run again, and one process does it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from aftercommit.errors import StoreBusy
from aftercommit.stores.postgres.dialect import PSYCOPG
from aftercommit.stores.postgres.target import PostgresStore
from aftercommit.stores.sql.statements import Migration, Statement, Statements, TableNames
from aftercommit.testing.kit import event, take
from tests.stores.kit import insert
from tests.stores.postgres_kit import Table, Way
from tests.stores.test_ordered_schema import age
from tests.stores.test_postgres_claims import Beside, until_waiting
from tests.support import PATIENCE

TABLE = "moving"

ONLINE = """-- Where an event comes from.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS region text DEFAULT 'here';

DROP INDEX CONCURRENTLY IF EXISTS {qualified_index:region};

CREATE INDEX CONCURRENTLY {index:region} ON {table} (region, position);
"""

#: The schema of this release, and of the next.
LAST = Statements(PSYCOPG, TableNames(TABLE)).migrations()[-1].number
THIS, NEXT = str(LAST), str(LAST + 1)

#: The store of the next release, over the same executor.
NextRelease = Callable[..., Any]


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NextRelease:
    package = "invented_postgres_release"
    for folder in ("sql", "migrations"):
        shutil.copytree(str(files(PSYCOPG.package).joinpath(folder)), tmp_path / package / folder)
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / "migrations" / f"{LAST + 1:04}_region.online.sql").write_text(ONLINE)
    monkeypatch.syspath_prepend(tmp_path)

    def make(way: Way, **options: Any) -> Any:
        today = way.store(table=TABLE)
        dialect = replace(today.dialect, package=package)
        return PostgresStore(Traced(today.executor), dialect, where="here", table=TABLE, **options)

    return make


class Traced:
    """An executor that tells what ran beside the transaction of the migration, and how it ended."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.beside: list[str] = []
        self.around: Callable[[str], Any] = lambda _: nullcontext()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def execute(self, sql: str, parameters: Any = ()) -> int:
        self.beside.append(sql)
        with self.around(sql):
            return int(await self._inner.execute(sql, parameters))


@pytest.fixture
def old_table(way: Way, postgres_table: Table) -> Table:
    """As this release makes it."""
    way.run(lambda: made(way))
    return postgres_table


async def made(way: Way) -> None:
    async with way.opened(table=TABLE, create_schema=True):
        pass


def version(table: Table) -> str:
    return str(table.value(f"SELECT value FROM {TABLE}_schema WHERE name = 'version'"))


def is_valid(table: Table) -> bool | None:
    """None: there is no such index."""
    sql = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    found = table.read(sql, f"{TABLE}_region")
    return found[0]["indisvalid"] if found else None


async def upgraded(store: Any) -> None:
    try:
        await store.create_schema()
    finally:
        await store.close()


# ---------------------------------------------------------------- beside writers


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_writers_go_on_while_a_big_table_is_upgraded(postgres_table: Table, released: NextRelease, rows: int) -> None:
    way, table = Way("psycopg", postgres_table), postgres_table
    way.run(lambda: made(way))
    fill(table, rows)
    file = table.value(f"SELECT pg_relation_filenode('{TABLE}')")
    writer = Writer(table)
    store = released(way)
    written, exclusive = {}, []

    @contextmanager
    def around(sql: str) -> Iterator[None]:
        before, looking = writer.commits, Sampler(table)
        yield
        written[sql.partition(" ON ")[0]] = writer.commits - before
        exclusive.extend(looking.seen())

    store.executor.around = around
    with writer:
        way.run(lambda: upgraded(store))
    assert list(written) == [sql.partition(" ON ")[0] for sql in store.executor.beside]
    assert written[f'CREATE INDEX CONCURRENTLY "{TABLE}_region"'] > 5
    assert not [lock for lock in exclusive if lock.startswith("CREATE")], "an index is built under no exclusive lock"
    assert table.value(f"SELECT pg_relation_filenode('{TABLE}')") == file, "no row was written anew"
    assert (version(table), is_valid(table)) == (NEXT, True)
    assert table.value(f"SELECT count(*) FROM {TABLE}") == rows + writer.commits


def fill(table: Table, rows: int) -> None:
    table.fill("old", rows)
    table.execute(f"INSERT INTO {TABLE} OVERRIDING SYSTEM VALUE SELECT * FROM outbox_event")
    table.execute(f"SELECT setval(pg_get_serial_sequence('{TABLE}', 'position'), max(position)) FROM {TABLE}")


class Writer(threading.Thread):
    """Writes events with the code of this release, one transaction each, as fast as it can."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.commits = 0
        self._way = Way("psycopg", table)
        self._is_over = False
        self._has_begun = threading.Event()
        self._errors: list[BaseException] = []

    def __enter__(self) -> None:
        self.start()
        assert self._has_begun.wait(PATIENCE)

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.join(PATIENCE)
        assert self._errors == []

    def run(self) -> None:
        try:
            self._way.run(self._write)
        except BaseException as error:
            self._errors.append(error)

    async def _write(self) -> None:
        async with self._way.opened(table=TABLE) as store:
            while not self._is_over:
                await insert(store, event())
                self.commits += 1
                self._has_begun.set()


class Sampler(threading.Thread):
    """Looks again and again who has the whole table to himself, or waits for that."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._url = table.url
        self._is_over = False
        self._seen: list[str] = []
        self.start()

    def run(self) -> None:
        sql = f"""
            SELECT query FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE relation = '{TABLE}'::regclass AND mode = 'AccessExclusiveLock'
        """
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._is_over:
                self._seen += [query for (query,) in connection.execute(sql)]

    def seen(self) -> list[str]:
        self._is_over = True
        self.join(PATIENCE)
        return self._seen


# ---------------------------------------------------------------- interrupted


@contextmanager
def at_the_index(table: Table, store: Any, way: Way) -> Iterator[tuple[Any, Beside]]:
    """An upgrade that builds its index and waits for a writer who was there before."""
    has_come, go = threading.Event(), threading.Event()

    def around(sql: str) -> Any:
        if sql.startswith("CREATE INDEX"):
            has_come.set()
            assert go.wait(PATIENCE)
        return nullcontext()

    store.executor.around = around
    thread = Beside(way, lambda: upgraded(store))
    assert has_come.wait(PATIENCE)
    with psycopg.connect(table.url) as writer:
        writer.execute(f"UPDATE {TABLE} SET attempts = attempts")
        go.set()
        until_waiting(table, way)
        yield writer, thread


def test_an_upgrade_that_was_interrupted_is_run_again(way: Way, old_table: Table, released: NextRelease) -> None:
    """Half an index is left behind; the old release goes on, and the next try finishes."""
    with at_the_index(old_table, released(way), way) as (_, thread):
        old_table.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE %s AND datname = current_database() AND pid <> pg_backend_pid()",
            "CREATE INDEX CONCURRENTLY%",
        )
        with pytest.raises(Exception, match=r"busy for too long: .*canceling statement"):
            thread.result()
    assert (version(old_table), is_valid(old_table)) == (THIS, False)

    async def old_release() -> None:
        async with way.opened(table=TABLE) as store:
            await insert(store, event())
            assert len(await take(store)) == 1

    way.run(old_release)
    way.run(lambda: upgraded(released(way)))
    assert (version(old_table), is_valid(old_table)) == (NEXT, True)
    way.run(old_release)


def test_one_of_two_processes_upgrades(way: Way, old_table: Table, released: NextRelease) -> None:
    """The other waits for it, and its waiting is nothing that the index waits for."""
    first, second = released(way), released(way)
    with at_the_index(old_table, first, way) as (writer, thread):
        other = Beside(way, lambda: upgraded(second))
        until_two_wait(old_table)
        writer.commit()
        thread.result()
        other.result()
    assert (len(first.executor.beside), second.executor.beside) == (3, [])
    assert (version(old_table), is_valid(old_table)) == (NEXT, True)


def until_two_wait(table: Table) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if len([each for each in table.sessions(Way.mark) if each["wait_event_type"] == "Lock"]) >= 2:
            return
        pause.wait(0.005)
    raise AssertionError("nobody waits")


def test_many_processes_create_one_table(way: Way, postgres_table: Table) -> None:
    line = threading.Barrier(4)

    async def one() -> None:
        line.wait(PATIENCE)
        async with way.opened(table=TABLE, create_schema=True) as store:
            assert store.is_ready

    for thread in [Beside(way, one) for _ in range(4)]:
        thread.result()
    assert version(postgres_table) == THIS


def test_a_new_table_gets_all_of_it_at_once(way: Way, postgres_table: Table, released: NextRelease) -> None:
    store = released(way)
    way.run(lambda: upgraded(store))
    assert store.executor.beside == [], "nobody else can see the table before it is committed"
    assert (version(postgres_table), is_valid(postgres_table)) == (NEXT, True)


# ---------------------------------------------------------------- behind a long transaction


@pytest.mark.parametrize("is_online", [False, True], ids=["in a transaction", "online"])
def test_a_change_of_the_table_does_not_queue_for_long(way: Way, old_table: Table, is_online: bool) -> None:
    """Behind it everybody would wait for whoever reads, and be it for hours."""
    store = way.store(table=TABLE)
    store._schema._migrations.append(Migration(LAST + 1, [f"ALTER TABLE {TABLE} ADD COLUMN region text"], is_online))
    store._schema.version = LAST + 1
    patience = store._sql["upgrade_patience"].sql
    store._sql["upgrade_patience"] = Statement(patience.replace("5s", "20ms"), ())
    with psycopg.connect(old_table.url) as reader:
        reader.execute(f"SELECT count(*) FROM {TABLE}")
        with pytest.raises(StoreBusy, match="lock timeout"):
            way.run(lambda: upgraded(store))
        assert version(old_table) == THIS
    way.run(lambda: upgraded(store))
    assert version(old_table) == NEXT


def test_the_script_of_an_upgrade_lets_writers_write(postgres_table: Table) -> None:
    """It waits for a writer who was there before, and the next one does not wait for it."""
    way = Way("psycopg", postgres_table)
    way.run(lambda: made(way))
    age(postgres_table.execute, TABLE, TABLE)
    script, write = way.store(table=TABLE).schema_sql(from_version=1), f"UPDATE {TABLE} SET attempts = attempts"

    async def by_hand() -> None:
        with psycopg.connect(way.plain, autocommit=True) as connection:
            for statement in filter(str.strip, script.split(";\n")):
                connection.execute(statement)

    with psycopg.connect(postgres_table.url) as writer:
        writer.execute(write)
        thread = Beside(way, by_hand)
        until_waiting(postgres_table, way)
        with psycopg.connect(postgres_table.url, options="-c lock_timeout=5s") as another:
            another.execute(write)
        writer.commit()
        thread.result()
    assert version(postgres_table) == THIS
