"""Targets that are objects: URLs, engines, pools, connections and functions that open one; stores of other packages."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiosqlite
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from aftercommit import AsyncOutbox, Outbox
from aftercommit.errors import ColourMismatch, UnknownStore
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.stores.postgres.target import PostgresStore
from aftercommit.stores.sqlite.target import SqliteStore
from aftercommit.testing.kit import event, take
from tests.stores.kit import insert
from tests.stores.postgres_kit import Table, Way
from tests.support import Collector, World


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite:///app.db", "SqliteStore"),
        ("PostgreSQL://db/app", "PostgresStore"),
        ("postgres://db/app", "PostgresStore"),
        ("postgresql+psycopg://db/app", "PostgresStore"),
        ("MySQL://db/app", "MysqlStore"),
        ("MariaDB://db/app", "MysqlStore"),
        ("mysql+pymysql://db/app", "MysqlStore"),
    ],
)
def test_a_database_is_known_by_its_name_in_any_case(url: str, kind: str) -> None:
    """TC-105, TC-457"""
    assert type(open_store(url, Colour.BLOCKING)).__name__ == kind


def test_a_sqlalchemy_url_keeps_its_password(postgres_table: Table) -> None:
    """str() of it hides the password, which the store needs."""
    url = make_url(postgres_table.url).set(drivername="postgresql+psycopg", password="p@ss/word")
    store = open_store(url, Colour.BLOCKING)
    assert isinstance(store, PostgresStore)
    link = run(store.executor._lender.apart())
    assert link.raw.info.password == "p@ss/word"
    link.drop()
    assert "word" not in repr(store)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("sqlite:///app.db", SqliteStore),
        ("postgresql+psycopg://db/app", PostgresStore),
    ],
)
def test_an_engine_is_known_by_its_dialect(
    url: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-105"""
    monkeypatch.chdir(tmp_path)
    store = open_store(create_engine(url), Colour.BLOCKING)
    assert isinstance(store, kind)
    assert store.colour is Colour.BLOCKING


@pytest.mark.parametrize("url", ["postgresql+asyncpg://db/app", "postgresql+psycopg://db/app"])
def test_an_async_engine_makes_an_async_store(url: str) -> None:
    engine = create_async_engine(url)
    assert AsyncOutbox(engine)._store.colour is Colour.ASYNC
    with pytest.raises(ColourMismatch, match="AsyncOutbox"):
        Outbox(engine)


@pytest.mark.parametrize("way", ["uri", "creator"])
@pytest.mark.parametrize("runtime", ["threads", "asyncio"])
def test_a_sqlite_engine_is_asked_which_file_it_opens(runtime: str, way: str, tmp_path: Path) -> None:
    """Its URL may say something else. What the engine writes is delivered, and settled in the same file."""
    world, seen = World(runtime, tmp_path), Collector()

    async def connect() -> Any:
        return await aiosqlite.connect(world.path)

    make = create_async_engine if world.is_async else create_engine
    scheme = "sqlite+aiosqlite" if world.is_async else "sqlite"
    if way == "uri":
        engine: Any = make(f"{scheme}:///file:{world.path}?uri=true")
    elif world.is_async:
        engine = make(f"{scheme}:///{tmp_path}/other.db", async_creator=connect)
    else:
        engine = make(f"{scheme}://", creator=lambda: sqlite3.connect(world.path, check_same_thread=False))

    async def scenario() -> None:
        outbox = world.outbox(engine, poll_interval="10ms")
        outbox.register("T", lambda seen_event: seen.add(seen_event.payload_json))
        await outbox.start()
        session = AsyncSession(engine) if world.is_async else Session(engine)
        written = outbox.write("T", 1, tx=session)
        if world.is_async:
            async with session:
                await session.commit()
            await engine.dispose()
        else:
            await written
            with session:
                session.commit()
            engine.dispose()
        await world.until_settled(1)

    world.run(scenario)
    assert seen == ["1"]
    assert not (tmp_path / "other.db").exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true"])
def test_an_engine_of_a_database_in_memory_is_refused(url: str) -> None:
    for engine in (create_engine(url), create_async_engine(url.replace("sqlite", "sqlite+aiosqlite"))):
        with pytest.raises(UnknownStore, match="in memory") as caught:
            Outbox(engine)
        assert "open a file" in caught.value.fix


def test_a_sqlite_engine_that_can_open_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownStore, match="unable to open database file") as caught:
        Outbox(create_engine(f"sqlite:///{tmp_path}/missing/app.db"))
    assert "folder" in caught.value.fix


def test_a_blocking_engine_under_asyncio_is_refused() -> None:
    with pytest.raises(ColourMismatch):
        AsyncOutbox(create_engine("postgresql+psycopg://db/app"))


@pytest.mark.parametrize(
    ("dialect", "driver", "words"),
    [("oracle", "oracledb", "engine is for oracle"), ("postgresql", "psycopg2", "through psycopg2")],
)
def test_an_engine_that_no_store_speaks_to_is_refused(dialect: str, driver: str, words: str) -> None:
    """Without its library, which is not at hand."""
    url = SimpleNamespace(host="db", database="app")
    engine = Engine.__new__(Engine)
    engine.dialect, engine.url = SimpleNamespace(name=dialect, driver=driver, is_async=False), url
    with pytest.raises(UnknownStore, match=words) as caught:
        Outbox(engine)
    assert "postgresql" in caught.value.fix


#: As far as detection looks at it.
Engine: Any = type("Engine", (), {"__module__": "sqlalchemy.engine.base"})


# ---------------------------------------------------------------- connections


class MyConnection(psycopg.Connection[Any]):
    """As people derive them."""


class MySqliteConnection(sqlite3.Connection):
    """As people derive them."""


@pytest.mark.parametrize("kind", [psycopg.Connection, MyConnection])
def test_a_live_connection_is_only_looked_at(kind: Any, postgres_table: Table) -> None:
    way = Way("psycopg", postgres_table)
    with kind.connect(postgres_table.url, application_name="the users") as connection:
        connection.execute("CREATE TEMP TABLE mine (n integer)")
        way.run(lambda: used(way, connection))
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS
        connection.rollback()
    assert len(postgres_table.rows()) == 1


def test_a_live_sqlite_connection_names_its_file(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "app.db", factory=MySqliteConnection)
    store = open_store(connection, Colour.BLOCKING)
    assert isinstance(store, SqliteStore)
    assert "app.db" in repr(store)
    connection.close()


async def used(way: Way, target: Any) -> None:
    async with way.opened(target) as store:
        await insert(store, event())
        assert len(await take(store)) == 1


# ---------------------------------------------------------------- factories


@pytest.mark.parametrize("kind", [psycopg.Connection, MyConnection])
def test_a_function_that_opens_connections_is_used_for_all(kind: Any, postgres_table: Table) -> None:
    way = Way("psycopg", postgres_table)
    opened: list[Any] = []

    def connect() -> Any:
        opened.append(kind.connect(postgres_table.url))
        return opened[-1]

    way.run(lambda: used(way, connect))
    assert len(opened) >= 2, "one to look at, and one to work with"
    assert all(each.closed for each in opened)
    with pytest.raises(ColourMismatch):
        AsyncOutbox(connect)
    for each in opened:
        each.close()


def test_a_function_that_opens_sqlite_connections(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "app.db", check_same_thread=False, factory=MySqliteConnection)

    assert isinstance(open_store(connect, Colour.BLOCKING), SqliteStore)


async def asynchronous() -> None: ...


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (object, "returned a builtins.object"),
        (lambda: None, "returned a builtins.NoneType"),
        (lambda needed: needed, "was called to open a connection, and failed"),
        (asynchronous, "factory is async"),
    ],
    ids=["object", "nothing", "arguments", "async"],
)
def test_a_function_that_opens_something_else_is_told(factory: Callable[..., Any], words: str) -> None:
    with pytest.raises(UnknownStore, match=words) as caught:
        Outbox(factory)
    assert caught.value.fix


def test_a_pool_is_known_and_its_colour_decides(way: Way) -> None:
    async def scenario() -> None:
        async with way.pool() as pool:
            store = open_store(pool, way.colour)
            assert isinstance(store, PostgresStore)
            assert store.colour is way.colour
            other, name = (Outbox, "Outbox") if way.is_async else (AsyncOutbox, "AsyncOutbox")
            with pytest.raises(ColourMismatch, match=name):
                other(pool)

    way.run(scenario)


def test_a_single_asyncpg_connection_is_not_enough(postgres_table: Table) -> None:
    way = Way("asyncpg", postgres_table)

    async def scenario() -> None:
        async with way.pool() as pool, pool.acquire() as connection:
            with pytest.raises(UnknownStore, match="several connections") as caught:
                AsyncOutbox(connection)
            assert "pass its pool" in caught.value.fix

    way.run(scenario)


# ---------------------------------------------------------------- other packages


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A package that brings a store, as an installer leaves it."""

    def install(module: str) -> None:
        (tmp_path / "foreign_store.py").write_text(module)
        about = tmp_path / "foreign_store-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-store\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text("[aftercommit.stores]\nforeign = foreign_store:open_store\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "foreign_store", raising=False)

    return install


def test_a_package_brings_its_store_by_an_entry_point(installed: Callable[[str], None]) -> None:
    installed("def open_store(url, colour, **options):\n    return url, colour, options\n")
    assert "foreign_store" not in sys.modules
    found = open_store("Foreign://host/name", Colour.ASYNC, table="t")
    assert found == ("Foreign://host/name", Colour.ASYNC, {"table": "t"})


@pytest.mark.parametrize("module", ["raise ValueError('broken')", "open_shop = None"], ids=["raises", "lacks it"])
def test_a_package_that_cannot_be_loaded_is_named(installed: Callable[[str], None], module: str) -> None:
    installed(module)
    with pytest.raises(UnknownStore, match=r"foreign:// from foreign_store:open_store cannot be loaded") as caught:
        open_store("foreign://host/name", Colour.BLOCKING)
    assert "package that brings it" in caught.value.fix
