"""The async executor over pyodbc: every connection lives on a thread of its own, and a transaction is one hop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aftercommit.ports import Colour, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.connection_thread import ConnectionThreads, ThreadTransaction
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlserver.connection import AdoptedConnection, SqlServerConnection
from aftercommit.stores.sqlserver.executor import alone, in_transaction
from aftercommit.stores.sqlserver.faults import reader_of

T = TypeVar("T")


class AsyncSqlServerExecutor(ConnectionThreads[SqlServerConnection]):
    """Runs each transaction whole on a connection's own thread: one hop there and back, however many statements."""

    colour = Colour.ASYNC
    thread_name = "aftercommit-sqlserver"

    def __init__(self, connect: Callable[[], Any], driver: Any) -> None:
        super().__init__()
        self._connect = connect
        self._driver = driver
        self.fault_of: Callable[[Exception], Fault] = reader_of(driver)

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self._run(lambda connection: run(alone(connection, lambda: connection.fetch(sql, parameters))))

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._run(lambda connection: run(alone(connection, lambda: connection.execute(sql, parameters))))

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await self._run(lambda connection: run(in_transaction(connection, work, writes=writes)))

    async def begin(self) -> AsyncOpenSqlServerTransaction:
        generation, thread = self._take()
        transaction = AsyncOpenSqlServerTransaction(thread, lambda: self._give(generation, thread))
        await transaction.begin()
        return transaction

    def adopt(self, connection: object) -> AdoptedConnection | None:
        # The caller's own connection is used where the caller uses it: in this thread.
        return AdoptedConnection(connection) if isinstance(connection, self._driver.Connection) else None

    def _open(self) -> SqlServerConnection:
        return SqlServerConnection(self._connect, self.fault_of)


class AsyncOpenSqlServerTransaction(ThreadTransaction[SqlServerConnection]):
    """A transaction that the user steers, on its connection's own thread."""

    async def savepoint(self, name: str) -> None:
        await self._thread.run(lambda connection: connection.savepoint(name))

    async def release(self, name: str) -> None:
        """SQL Server keeps savepoints until the end; one that nobody goes back to does nothing."""

    async def rollback_to(self, name: str) -> None:
        await self._thread.run(lambda connection: connection.rollback_to(name))
