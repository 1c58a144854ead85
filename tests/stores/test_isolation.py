"""In which isolation level a user's transaction runs: as the target says by its own means, or as the block asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from aftercommit.errors import InvalidOption
from aftercommit.ports import Colour
from examples.memory_store.rows import Rows
from examples.memory_store.store import MemoryStore
from tests.conftest import execute_mysql
from tests.stores.mysql_kit import connect
from tests.stores.postgres_kit import DRIVERS, Table, Way
from tests.stores.sqlserver_kit import SqlServerBench
from tests.support import World

SERIALIZABLE = psycopg.IsolationLevel.SERIALIZABLE

#: What a transaction of PostgreSQL is asked about itself.
MODES = "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only'), "
MODES += "current_setting('transaction_deferrable')"

STRICT = ("serializable", "on", "on")
PLAIN = ("read committed", "off", "off")

NAMES = ("default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable")
DEFAULTS = dict(zip(NAMES, STRICT, strict=True))

OPTIONS = {"isolation_level": "SERIALIZABLE", "postgresql_readonly": True, "postgresql_deferrable": True}


def strict(connection: Any) -> None:
    connection.isolation_level, connection.read_only, connection.deferrable = SERIALIZABLE, True, True


async def strict_async(connection: Any) -> None:
    await connection.set_isolation_level(SERIALIZABLE)
    await connection.set_read_only(True)
    await connection.set_deferrable(True)


@asynccontextmanager
async def url(way: Way) -> AsyncIterator[Any]:
    """By the session's own defaults."""
    if way.driver == "asyncpg":
        yield f"{way.url}&{'&'.join(f'{name}={value}' for name, value in DEFAULTS.items())}"
    else:
        yield f"{way.url}&options={'%20'.join(f'-c%20{name}%3D{value}' for name, value in DEFAULTS.items())}"


@asynccontextmanager
async def pool(way: Way) -> AsyncIterator[Any]:
    """psycopg's connections keep it to themselves."""
    configured = {
        "psycopg": {"configure": strict},
        "psycopg-async": {"configure": strict_async},
        "asyncpg": {"server_settings": DEFAULTS},
    }
    async with way.pool(1, **configured[way.driver]) as made:
        yield made


@asynccontextmanager
async def engine(way: Way) -> AsyncIterator[Any]:
    """By the options of the engine: what SQLAlchemy sets for each of its own transactions."""
    async with way.engine(1) as made:
        yield made.execution_options(**OPTIONS)


@asynccontextmanager
async def factory(way: Way) -> AsyncIterator[Any]:
    def connect() -> Any:
        connection = psycopg.connect(way.plain)
        strict(connection)
        return connection

    yield connect


@asynccontextmanager
async def connection(way: Way) -> AsyncIterator[Any]:
    if way.is_async:
        async with await psycopg.AsyncConnection.connect(way.plain) as waiting:
            await strict_async(waiting)
            yield waiting
    else:
        with psycopg.connect(way.plain) as blocking:
            strict(blocking)
            yield blocking


#: All that an outbox can be given, for each driver.
TARGETS = [(driver, target) for driver in DRIVERS for target in (url, pool, engine)]
TARGETS += [("psycopg", factory), ("psycopg", connection), ("psycopg-async", connection)]


@pytest.mark.parametrize(("driver", "target"), TARGETS, ids=lambda each: getattr(each, "__name__", each))
def test_a_transaction_runs_as_the_target_says(
    postgres_table: Table, driver: str, target: Callable[[Way], Any], tmp_path: Path
) -> None:
    """Isolation, read-only and deferrable; and a level that the block asks for goes before."""
    way = Way(driver, postgres_table)
    world = way.world(tmp_path)

    async def scenario() -> None:
        async with target(way) as given:
            outbox = world.outbox(given, create_schema=False)
            async with outbox.transaction() as tx:
                assert tuple((await tx.execute(MODES)).rows[0]) == STRICT
            async with outbox.transaction(isolation="repeatable read") as tx:
                assert tuple((await tx.execute(MODES)).rows[0]) == ("repeatable read", *STRICT[1:])
            await outbox.close()

    world.run(scenario)


def test_an_engine_made_for_a_level_gives_it_to_the_transaction(way: Way, tmp_path: Path) -> None:
    world = way.world(tmp_path)

    async def scenario() -> None:
        for level, found in (("REPEATABLE READ", ("repeatable read", "off", "off")), ("AUTOCOMMIT", PLAIN)):
            async with way.engine(1, isolation_level=level) as given:
                outbox = world.outbox(given)
                async with outbox.transaction() as tx:
                    assert tuple((await tx.execute(MODES)).rows[0]) == found
                await outbox.close()

    world.run(scenario)


def test_without_a_word_of_anybody_the_sessions_default_counts(way: Way, tmp_path: Path) -> None:
    world = way.world(tmp_path)

    async def scenario() -> None:
        for kind in ("url", "pool", "engine"):
            async with way.target(kind) as given:
                outbox = world.outbox(given)
                async with outbox.transaction() as tx:
                    assert tuple((await tx.execute(MODES)).rows[0]) == PLAIN
                async with await outbox.begin(isolation="SERIALIZABLE") as tx:
                    assert tuple((await tx.execute(MODES)).rows[0]) == ("serializable", "off", "off")
                await outbox.close()

    world.run(scenario)


# ---------------------------------------------------------------- MySQL and MariaDB


@pytest.fixture(params=["threads", "asyncio"])
def mysql_world(request: pytest.FixtureRequest, tmp_path: Path, mysql_url: str) -> World:
    world = World(request.param, tmp_path, "mariadb", mysql_url)
    execute_mysql(mysql_url, "DROP TABLE IF EXISTS seen")
    execute_mysql(mysql_url, "CREATE TABLE seen (n INT)")
    return world


async def is_fixed(transaction: Any, url: str) -> bool:
    """Whether it goes on to see what it has seen first: above READ COMMITTED, whatever the session's variable says."""
    async with transaction as tx:
        (before,) = (await tx.execute("SELECT count(*) FROM seen")).rows[0]
        with connect(url, autocommit=True) as somebody, somebody.cursor() as cursor:
            cursor.execute("INSERT INTO seen VALUES (1)")
        return (await tx.execute("SELECT count(*) FROM seen")).rows[0][0] == before


@pytest.mark.parametrize("kind", ["url", "engine", "options", "autocommit"])
def test_on_mysql_a_transaction_runs_as_the_target_says_or_as_it_is_asked_for(mysql_world: World, kind: str) -> None:
    world = mysql_world
    driver = "mysql+asyncmy" if world.is_async else "mysql+pymysql"

    async def scenario() -> None:
        target, make = world.url, create_async_engine if world.is_async else create_engine
        is_strict = kind in ("url", "autocommit")  # the server's own default
        if kind != "url":
            level = {"isolation_level": "READ COMMITTED"} if kind == "engine" else {}
            engine = target = make(urlsplit(world.url)._replace(scheme=driver).geturl(), **level)
            if kind == "options":
                target = engine.execution_options(isolation_level="read_committed")  # as SQLAlchemy takes it, too
            elif kind == "autocommit":
                target = engine.execution_options(isolation_level="autocommit")
        outbox = world.outbox(target, create_schema=True)
        assert await is_fixed(outbox.transaction(), world.url) is is_strict
        assert await is_fixed(outbox.transaction(isolation="REPEATABLE READ"), world.url)
        assert not await is_fixed(outbox.transaction(isolation="read_committed"), world.url)
        assert await is_fixed(outbox.transaction(), world.url) is is_strict, "only the next one was asked for it"
        await outbox.close()
        if kind != "url":
            engine.dispose() if not world.is_async else await engine.dispose()

    world.run(scenario)


# ---------------------------------------------------------------- others


@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
def test_on_sql_server_a_transaction_runs_in_the_level_of_its_session_or_as_it_is_asked_for(colour: Colour) -> None:
    """The level is said before the transaction is begun, and each time: a session keeps the last one."""
    bench = SqlServerBench(colour)
    bench.server.level = 4

    async def scenario() -> None:
        for level in (None, "SNAPSHOT", "READ COMMITTED", None):
            await (await bench.executor.begin(level)).commit()
        await bench.executor.close()

    bench.run(scenario)
    said = [sql for sql in bench.server.log if sql.endswith("BEGIN TRANSACTION")]
    levels = [sql.rpartition("ISOLATION LEVEL ")[2].partition(";")[0] for sql in said]
    assert levels == ["SERIALIZABLE", "SNAPSHOT", "READ COMMITTED", "SERIALIZABLE"]


def test_on_sqlite_every_transaction_is_serializable_and_others_are_refused(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction(isolation="serializable"):
            await outbox.write("T", "{}")
        with pytest.raises(InvalidOption, match="'read committed'") as caught:
            outbox.transaction(isolation="read committed")
        assert "leave it out or isolation='SERIALIZABLE'" in caught.value.fix

    world.run(scenario)
    assert len(world.rows()) == 1


def test_a_part_of_a_transaction_has_no_level_of_its_own(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        async with outbox.transaction():
            with pytest.raises(InvalidOption, match="a transaction is open"):
                async with outbox.transaction(isolation="SERIALIZABLE"):
                    pass
            await outbox.write("T", "{}")

    world.run(scenario)
    assert len(world.rows()) == 1


def test_a_store_that_knows_no_levels_refuses_all(tmp_path: Path) -> None:
    outbox = World("threads", tmp_path).outbox(MemoryStore(Rows()))
    with pytest.raises(InvalidOption, match="a dict") as caught:
        outbox.transaction(isolation="SERIALIZABLE")
    assert caught.value.fix == "leave it out"
