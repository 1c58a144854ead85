"""The real pyodbc, over the system's driver manager and SQLite's ODBC driver: what its connections, rows and errors are
like. Statements are SQLite's, but for those that steer transactions, which are put into its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aftercommit import Fixed
from aftercommit.errors import UnsupportedTransaction
from aftercommit.ports import Colour
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver import connection as steering
from aftercommit.stores.sqlserver.dialect import DIALECT
from aftercommit.stores.sqlserver.executor import SqlServerExecutor
from tests.conftest import without
from tests.servers import NoServer, odbc_sqlite
from tests.support import World

_WORDS = {
    steering.SESSION: "SELECT 1",
    steering.LEVEL: "SELECT 2",
    steering.BEGIN: "BEGIN IMMEDIATE",
    steering.COMMIT: "COMMIT",
    steering.ROLLBACK: "ROLLBACK",
    DIALECT.name_sql: SQLITE.name_sql,
}


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Opens a connection to a file, which speaks as far as needed as SQL Server does."""
    try:
        pyodbc, driver = odbc_sqlite()
    except NoServer as error:
        without(str(error))
    depths, opened, run = Counter[int](), list[Any](), steering._run

    def spoken(cursor: Any, sql: str, parameters: Any) -> None:
        who = id(cursor.connection)
        if sql == "SELECT @@TRANCOUNT":
            sql = f"SELECT {depths[who]}"
        elif sql == steering.ROLLBACK and not depths[who]:
            sql = "SELECT 1"
        try:
            run(cursor, _WORDS.get(sql, sql), parameters)
        except pyodbc.Error as error:
            if "no such table" in str(error):
                raise pyodbc.ProgrammingError("42S02", f"[42S02] {error} (208) (SQLExecDirectW)") from error
            raise
        depths[who] = {steering.BEGIN: 1, steering.COMMIT: 0, steering.ROLLBACK: 0}.get(sql, depths[who])

    monkeypatch.setattr(steering, "_run", spoken)

    def open_one(name: str = "outbox.db", *, autocommit: bool = True) -> Any:
        made = pyodbc.connect(f"DRIVER={driver};Database={tmp_path / name};Timeout=20000", autocommit=autocommit)
        opened.append(made)  # so that its id is nobody else's
        return made

    yield open_one
    for each in opened:
        if not each.closed:
            each.close()


def store_of(connect: Callable[..., Any], colour: Colour) -> SqlStore:
    import pyodbc

    dialect = replace(SQLITE, name_sql=DIALECT.name_sql)
    executor = SqlServerExecutor(connect, pyodbc, colour)
    return SqlStore(executor, dialect, where="SQL Server at here/app", create_schema=True)


def made(world: World, connect: Callable[..., Any]) -> Any:
    return world.outbox(store_of(connect, Colour.ASYNC if world.is_async else Colour.BLOCKING))


def test_an_event_is_written_on_a_connection_of_pyodbc(world: World, connect: Callable[..., Any]) -> None:
    """To which no weak reference can be made. Delivered are the committed ones, once more after an error."""
    outbox, seen = made(world, connect), list[Any]()

    @outbox.handler("Placed", retry=Fixed("1us"))
    def placed(payload: dict[str, Any]) -> None:
        seen.append(payload["number"])
        if len(seen) == 1:
            raise ValueError("once")

    async def scenario() -> None:
        await outbox.create_schema()
        caller = connect(autocommit=False)
        for number in range(3):
            await outbox.write("Placed", {"number": number, "text": "ß🙂" * 5000}, tx=caller)
            caller.rollback() if number == 1 else caller.commit()
        async with outbox.transaction() as tx:
            await outbox.write("Placed", {"number": 3})
            assert (await tx.execute("SELECT count(*) FROM outbox_event")).rows[0][0] == 3
        while world.statuses() != [1, 1, 1]:
            await outbox.drain()

    world.run(scenario)
    assert sorted(seen) == [0, 0, 2, 3]


def test_a_connection_of_pyodbc_to_another_database_is_refused(world: World, connect: Callable[..., Any]) -> None:
    """Whether it has no outbox or another one."""
    outbox = made(world, connect)

    async def scenario() -> None:
        await outbox.create_schema()
        for name in ("empty.db", "other.db"):
            if name == "other.db":
                other = store_of(lambda: connect("other.db"), outbox._store.colour)
                await other.create_schema()
                await other.close()
            caller = connect(name, autocommit=False)
            with pytest.raises(UnsupportedTransaction, match=f"{name}.*SQL Server at here/app"):
                await outbox.write("Placed", {}, tx=caller)
            caller.rollback()

    world.run(scenario)
    assert not world.rows()
