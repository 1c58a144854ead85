"""Statements over pyodbc, written once: in the caller's thread, or under asyncio on a thread of the connection's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aftercommit.events.claims import QueryResult
from aftercommit.execution import Colour, Fault, Tx
from aftercommit.stores.sql.connections import Give, LinkExecutor, pools_of_blocking, retrying
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sqlserver.connection import (
    AdoptedConnection,
    SqlServerConnection,
    executed,
    executed_all_or_none,
    fetched,
    queried,
)
from aftercommit.stores.sqlserver.faults import reader_of

T = TypeVar("T")


class SqlServerExecutor(LinkExecutor):
    """Connections are opened when needed and kept for the next."""

    commits_single = True

    def __init__(self, connect: Callable[[], Any], driver: Any, colour: Colour = Colour.BLOCKING) -> None:
        self._driver = driver
        self.fault_of: Callable[[Exception], Fault] = reader_of(driver)
        pools = pools_of_blocking(lambda: SqlServerLink(connect, self.fault_of), colour, "aftercommit-sqlserver")
        super().__init__(*pools, colour)

    def adopt(self, connection: object) -> AdoptedConnection | None:
        # Under asyncio, too, the caller's own connection is used where the caller uses it: in this thread.
        return AdoptedConnection(connection) if isinstance(connection, self._driver.Connection) else None


class SqlServerLink(SqlServerConnection):
    """A connection as the pool lends it."""

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T:
        """Begin, work, commit; roll back whatever went wrong, and begin again after a deadlock. Reads need no
        transaction, nor does a statement that the server commits by itself."""
        attempt = self._committed if writes else self._alone
        try:
            return await retrying(lambda: attempt(work), self.fault_of)
        finally:
            await give(self, is_sound=self.is_sound)

    async def _alone(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        self.wake()
        return await work(ConnectionTx(self))

    async def _committed(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        self.begin_transaction()
        try:
            value = await work(ConnectionTx(self))
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return value

    async def begin(self, give: Give) -> OpenSqlServerTransaction:
        try:
            self.begin_transaction()
        except BaseException:
            await give(self, is_sound=self.is_sound)
            raise
        return OpenSqlServerTransaction(self, give)

    async def close(self) -> None:
        self.drop()


class ConnectionTx:
    """A Tx that never suspends, over one of our connections."""

    def __init__(self, connection: SqlServerLink) -> None:
        self._connection = connection

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._connection.watched(lambda raw: executed(raw, sql, parameters))

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return self._connection.watched(lambda raw: executed_all_or_none(raw, sql, parameters))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return self._connection.watched(lambda raw: fetched(raw, sql, parameters))


class OpenSqlServerTransaction(ConnectionTx):
    """A transaction that the user steers."""

    def __init__(self, connection: SqlServerLink, give: Give) -> None:
        super().__init__(connection)
        self._give = give
        self._is_lent = True

    @property
    def connection(self) -> Any:
        return self._connection.raw

    @property
    def is_open(self) -> bool:
        return self._is_lent and self._connection.is_in_transaction

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_transaction_control(sql)
        return self._connection.watched(lambda raw: queried(raw, sql, parameters))

    async def commit(self) -> None:
        self._connection.commit()
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self.execute(f"SAVE TRANSACTION {name}")

    async def release(self, name: str) -> None:
        """SQL Server keeps savepoints until the end; one that nobody goes back to does nothing."""

    async def rollback_to(self, name: str) -> None:
        await self.execute(f"ROLLBACK TRANSACTION {name}")

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            self._connection.rollback()
            await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        await self._give(self._connection, is_sound=self._connection.is_sound)
