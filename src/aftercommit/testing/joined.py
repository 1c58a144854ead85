"""Tests over SQLAlchemy that roll back: the outbox works in the transaction that the test has open, on its connection,
and so it sees what no other connection ever will."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from aftercommit.base import OutboxBase
from aftercommit.errors import ColourMismatch, UnsupportedTransaction
from aftercommit.ports import AdoptedTx, Colour, Tx
from aftercommit.stores.detect import open_store
from aftercommit.stores.sql.execution import Executor, Fault
from aftercommit.stores.sql.store import SqlStore
from aftercommit.stores.sqlite.executor import SqliteExecutor
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlite.target import FileTable
from aftercommit.testing.clock import VirtualClock
from aftercommit.testing.places import Opened, opened, options_of, options_of_file, value_of

T = TypeVar("T")


class JoinedTransaction:
    """The transaction of a test, by the session or connection that the test has for it."""

    #: A session belongs to the thread of the test.
    has_threads = False

    def __init__(self, handle: Any, colour: Colour) -> None:
        if isinstance(handle, scoped_session | async_scoped_session):
            handle = handle()
        if not isinstance(handle, Session | Connection | AsyncSession | AsyncConnection):
            raise UnsupportedTransaction(
                f"join() was given a {type(handle).__module__}.{type(handle).__qualname__}",
                fix="pass the SQLAlchemy session or connection whose transaction the test rolls back",
            )
        is_async = isinstance(handle, AsyncSession | AsyncConnection)
        if is_async is not (colour is Colour.ASYNC):
            raise ColourMismatch(
                f"join() was given a {type(handle).__name__}, and the outbox is {colour.value}",
                fix="join what the program passes to write() as tx",
            )
        self.tx = handle
        self._colour = colour

    def open(self, outbox: OutboxBase, clock: VirtualClock) -> Opened:
        engine = self._engine()
        if engine.dialect.name == "sqlite":
            path = _file_of(engine)
            executor: Executor = SqliteExecutor(_no_connection, path, self._colour)
            dialect, where = SQLITE, repr(path or ":memory:")
            options = {**options_of_file(outbox.config), "own_table": partial(FileTable, path)}
        else:
            target = AsyncEngine(engine) if self._colour is Colour.ASYNC else engine
            inner = open_store(target, self._colour)
            if not isinstance(inner, SqlStore):
                raise UnsupportedTransaction(f"{inner!r} runs no SQL", fix="join a SQL database")
            executor, dialect, where = inner.executor, inner.dialect, inner.where
            # Where a table can be made in a transaction that is rolled back. MySQL would commit it.
            options = {**options_of(outbox.config), "create_schema": engine.dialect.name == "postgresql"}
        joined = JoinedExecutor(self, executor)
        return opened(clock, partial(SqlStore, joined, dialect, where=where, **options))

    def _engine(self) -> Engine:
        handle: Any = self.tx
        if isinstance(handle, AsyncSession):
            handle = handle.sync_session
        bound: Any = handle.get_bind() if isinstance(handle, Session) else handle
        engine: Engine | AsyncEngine = bound.engine
        return engine.sync_engine if isinstance(engine, AsyncEngine) else engine

    async def connection(self) -> Any:
        """Asked anew each time, because a session has another one after its commit. What it was told to write is
        written."""
        handle: Any = self.tx
        if isinstance(handle, Connection | AsyncConnection):
            return await _begun(handle)
        if isinstance(handle.bind, Connection | AsyncConnection):
            await _begun(handle.bind)  # before the session makes its savepoint
        await value_of(handle.flush())
        return await _begun(await value_of(handle.connection()))

    def close(self) -> None:
        """It is the test's to roll back."""


async def _begun(connection: Any) -> Any:
    """A connection that is in a transaction. Python's driver for SQLite begins only before a change, and a savepoint
    that is made before it would commit when it is released."""
    sync: Any = connection.sync_connection if isinstance(connection, AsyncConnection) else connection
    if sync.dialect.name == "sqlite" and not sync.connection.driver_connection.in_transaction:
        await value_of(connection.exec_driver_sql("BEGIN"))
    return connection


class JoinedExecutor:
    """Runs everything on the connection of the test, in savepoints: what fails undoes itself alone."""

    def __init__(self, place: JoinedTransaction, inner: Executor) -> None:
        self.colour = inner.colour
        self._place = place
        self._inner = inner

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self.transact(lambda tx: tx.fetch(sql, parameters))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self.transact(lambda tx: tx.execute(sql, parameters))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        connection = await self._place.connection()
        savepoint = await value_of(connection.begin_nested())
        try:
            value = await work(JoinedTx(connection))
        except BaseException:
            await value_of(savepoint.rollback())
            raise
        await value_of(savepoint.commit())
        return value

    async def begin(self, isolation: str | None = None) -> NoReturn:
        raise UnsupportedTransaction(
            "outbox_test.join() has led the outbox into the transaction of the test, so it opens none",
            fix="write with tx=session there; without join(), outbox.transaction() works",
        )

    def adopt(self, connection: object) -> AdoptedTx | None:
        return self._inner.adopt(connection)

    def fault_of(self, error: Exception) -> Fault:
        """SQLAlchemy wraps the driver's error, and under asyncio what it wraps is a wrapper, too."""
        cause: BaseException | None = error
        if isinstance(error, DBAPIError) and error.orig is not None:
            cause = error.orig.__cause__ or error.orig
        return self._inner.fault_of(cause) if isinstance(cause, Exception) else Fault.OTHER

    async def close(self) -> None:
        """The connection is the test's."""

    def abandon(self) -> None:
        """The connection is the test's."""


class JoinedTx:
    """A Tx over a connection of SQLAlchemy, of either colour."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def _run(self, sql: str, parameters: Any) -> Any:
        if not parameters:  # or else a driver would look for its markers
            return await value_of(self._connection.exec_driver_sql(sql, execution_options={"no_parameters": True}))
        return await value_of(self._connection.exec_driver_sql(sql, parameters))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return int((await self._run(sql, tuple(parameters))).rowcount)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return int((await self._run(sql, [tuple(row) for row in parameters])).rowcount)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return list((await self._run(sql, tuple(parameters))).fetchall())


def _file_of(engine: Engine) -> str:
    """Nothing for a database in memory, as SQLite itself says it."""
    name = engine.url.database
    return "" if not name or name == ":memory:" or name.startswith("file:") else os.path.abspath(name)


def _no_connection() -> NoReturn:
    raise UnsupportedTransaction("a joined outbox has no connection of its own", fix="use the session of the test")
