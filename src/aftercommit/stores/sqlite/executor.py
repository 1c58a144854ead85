"""The blocking executor over sqlite3: statements run in the caller's thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.connections import KEPT, abandoned
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sql.single import SingleStatements
from aftercommit.stores.sqlite.connection import BlockingTx, SqliteConnection, fault_of, gate_of

T = TypeVar("T")


async def in_transaction(
    connection: SqliteConnection, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool
) -> T:
    """Begin, work, commit; roll back whatever went wrong. Reads need no transaction."""
    if not writes:
        return await work(BlockingTx(connection.raw))
    connection.begin()
    try:
        value = await work(BlockingTx(connection.raw))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return value


class SqliteExecutor(SingleStatements):
    """Runs in the caller's thread. Connections are opened when needed and kept for the next."""

    colour = Colour.BLOCKING

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str) -> None:
        self._connect = connect
        self._path = path
        self._gate = gate_of(path)
        self._idle: list[SqliteConnection] = []
        self._generation = 0
        self._lock = threading.Lock()

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        generation, connection = self._take()
        try:
            return await in_transaction(connection, work, writes=writes)
        finally:
            self._give(generation, connection)

    async def begin(self) -> OpenSqliteTransaction:
        generation, connection = self._take()
        try:
            connection.begin()
        except BaseException:
            self._give(generation, connection)
            raise
        return OpenSqliteTransaction(connection, lambda: self._give(generation, connection))

    def adopt(self, connection: object) -> BlockingTx | None:
        return BlockingTx(connection) if isinstance(connection, sqlite3.Connection) else None

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    async def close(self) -> None:
        with self._lock:  # a connection that comes back now is either among these, or sees that it is late
            self._generation += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def abandon(self) -> None:
        self._gate = gate_of(self._path)
        self._lock = threading.Lock()  # a thread of the parent may hold the old one
        self._generation += 1
        abandoned.extend(self._idle)
        self._idle = []

    def _take(self) -> tuple[int, SqliteConnection]:
        try:
            return self._generation, self._idle.pop()
        except IndexError:
            return self._generation, self._gate.opened(self._connect)

    def _give(self, generation: int, connection: SqliteConnection) -> None:
        is_clean = connection.is_in_transaction is False
        with self._lock:
            is_kept = is_clean and generation == self._generation and len(self._idle) < KEPT
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()


class OpenSqliteTransaction(BlockingTx):
    """A transaction that the user steers, in the user's thread."""

    def __init__(self, connection: SqliteConnection, give_back: Callable[[], None]) -> None:
        super().__init__(connection.raw)
        self._connection = connection
        self._give_back = give_back
        self._is_lent = True

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection.raw

    @property
    def is_open(self) -> bool:
        return self._is_lent and bool(self._connection.is_in_transaction)

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return self._connection.query(sql, parameters)

    async def commit(self) -> None:
        self._connection.commit()
        self._return()

    async def savepoint(self, name: str) -> None:
        self._connection.raw.execute(f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        self._connection.raw.execute(f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        self._connection.raw.execute(f'ROLLBACK TO "{name}"')
        self._connection.raw.execute(f'RELEASE "{name}"')

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            try:
                self._connection.rollback()
            finally:
                self._return()

    def _return(self) -> None:
        self._is_lent = False
        self._give_back()
