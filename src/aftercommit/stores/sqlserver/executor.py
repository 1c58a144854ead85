"""The blocking executor over pyodbc: statements run in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.connections import KEPT, abandoned, retrying
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlserver.connection import AdoptedConnection, SqlServerConnection
from aftercommit.stores.sqlserver.faults import reader_of

T = TypeVar("T")


class ConnectionTx:
    """A Tx that never suspends, over one of our connections."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._connection.execute(sql, parameters)

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return self._connection.execute_many(sql, parameters)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return self._connection.fetch(sql, parameters)


async def alone(connection: SqlServerConnection, statement: Callable[[], T]) -> T:
    """One statement, which the server commits by itself; again after a deadlock."""

    async def attempt() -> T:
        connection.wake()
        return statement()

    return await retrying(attempt, connection.fault_of)


async def in_transaction(
    connection: SqlServerConnection, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool
) -> T:
    """Begin, work, commit; roll back whatever went wrong, and begin again after a deadlock. Reads need none."""

    async def attempt() -> T:
        if not writes:
            connection.wake()
            return await work(ConnectionTx(connection))
        connection.begin()
        try:
            value = await work(ConnectionTx(connection))
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        return value

    return await retrying(attempt, connection.fault_of)


class SqlServerExecutor:
    """Runs in the caller's thread. Connections are opened when needed and kept for the next."""

    colour = Colour.BLOCKING

    def __init__(self, connect: Callable[[], Any], driver: Any) -> None:
        self._connect = connect
        self._driver = driver
        self.fault_of: Callable[[Exception], Fault] = reader_of(driver)
        self._idle: list[SqlServerConnection] = []
        self._generation = 0
        self._lock = threading.Lock()

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        generation, connection = self._take()
        try:
            return await alone(connection, lambda: connection.fetch(sql, parameters))
        finally:
            self._give(generation, connection)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        generation, connection = self._take()
        try:
            return await alone(connection, lambda: connection.execute(sql, parameters))
        finally:
            self._give(generation, connection)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        generation, connection = self._take()
        try:
            return await in_transaction(connection, work, writes=writes)
        finally:
            self._give(generation, connection)

    async def begin(self) -> OpenSqlServerTransaction:
        generation, connection = self._take()
        try:
            connection.begin()
        except BaseException:
            self._give(generation, connection)
            raise
        return OpenSqlServerTransaction(connection, lambda: self._give(generation, connection))

    def adopt(self, connection: object) -> AdoptedConnection | None:
        return AdoptedConnection(connection) if isinstance(connection, self._driver.Connection) else None

    async def close(self) -> None:
        with self._lock:  # a connection that comes back now is either among these, or sees that it is late
            self._generation += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def abandon(self) -> None:
        self._lock = threading.Lock()  # a thread of the parent may hold the old one
        self._generation += 1
        abandoned.extend(self._idle)
        self._idle = []

    def _take(self) -> tuple[int, SqlServerConnection]:
        try:
            return self._generation, self._idle.pop()
        except IndexError:
            return self._generation, SqlServerConnection(self._connect, self.fault_of)

    def _give(self, generation: int, connection: SqlServerConnection) -> None:
        is_clean = connection.is_in_transaction is False
        with self._lock:
            is_kept = is_clean and generation == self._generation and len(self._idle) < KEPT
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()


class OpenSqlServerTransaction(ConnectionTx):
    """A transaction that the user steers, in the user's thread."""

    def __init__(self, connection: SqlServerConnection, give_back: Callable[[], None]) -> None:
        super().__init__(connection)
        self._give_back = give_back
        self._is_lent = True

    @property
    def connection(self) -> Any:
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
        self._connection.savepoint(name)

    async def release(self, name: str) -> None:
        """SQL Server keeps savepoints until the end; one that nobody goes back to does nothing."""

    async def rollback_to(self, name: str) -> None:
        self._connection.rollback_to(name)

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            self._connection.rollback()
            self._return()

    def _return(self) -> None:
        self._is_lent = False
        self._give_back()
