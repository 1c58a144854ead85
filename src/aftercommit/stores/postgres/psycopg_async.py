"""The async executor over psycopg."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from aftercommit.events.claims import QueryResult
from aftercommit.events.redact import error_text
from aftercommit.ports import Colour, Tx
from aftercommit.stores.postgres.dialect import BEGIN, refuse_old_server, rolled_back
from aftercommit.stores.postgres.faults import fault_of, has_ended
from aftercommit.stores.postgres.per_loop import cancellations, heard, not_heard
from aftercommit.stores.postgres.wakeups_psycopg_async import AsyncPsycopgEar
from aftercommit.stores.sql.connections import retrying
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sql.execution import Fault

log = logging.getLogger("aftercommit.postgres")

T = TypeVar("T")

Connection = psycopg.AsyncConnection[Any]
Cursor = psycopg.AsyncCursor[Any]


class AsyncSource(Protocol):
    """Where connections come from. What is given back is idle and as it was, or broken, and then not lent again."""

    async def take(self) -> Connection: ...

    async def give(self, connection: Connection) -> None: ...

    async def apart(self) -> Connection:
        """A new connection that is not counted and never given back."""
        ...

    async def check(self) -> None:
        """A connection was found dead: look whether idle ones are, too."""

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


class AsyncPsycopgExecutor:
    """One round trip for one statement; nothing that works on many rows is prepared: see PsycopgExecutor."""

    colour = Colour.ASYNC

    def __init__(self, source: AsyncSource) -> None:
        self._source = source

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await (await self._single(sql, parameters)).fetchall()

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return (await self._single(sql, parameters)).rowcount

    async def _single(self, sql: str, parameters: Sequence[object]) -> Cursor:
        try:
            async with self._lent() as connection:
                return await run(connection, sql, parameters)
        except psycopg.OperationalError as error:
            if fault_of(error) is not Fault.CONFLICT:
                raise

        # Again, and not as strictly as the session may want it by default: that could go on for ever.
        async def again(tx: Tx) -> Cursor:
            return await run(cast("AsyncOpenPsycopgTransaction", tx).connection, sql, parameters)

        return await self.transact(again)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await retrying(lambda: self._transact(work), fault_of)

    async def _transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        opened = await self._begin(BEGIN)
        try:
            refuse_old_server(opened.connection.info.server_version // 10_000)
            value = await work(opened)
            await opened.commit()
        finally:
            await opened.end()
        return value

    async def begin(self) -> AsyncOpenPsycopgTransaction:
        return await self._begin("BEGIN")

    async def _begin(self, how: str) -> AsyncOpenPsycopgTransaction:
        """A connection that died while it was idle is found out here, where nothing is lost yet."""
        try:
            return await AsyncOpenPsycopgTransaction.begun(self._source, how)
        except psycopg.OperationalError as error:
            if fault_of(error) is not Fault.UNREACHABLE:
                raise
        await self._source.check()
        return await AsyncOpenPsycopgTransaction.begun(self._source, how)

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        connection = await alive(self._source)
        was_autocommit = connection.autocommit
        try:
            if not was_autocommit:
                await connection.set_autocommit(True)
            yield connection
        except psycopg.OperationalError:
            if connection.broken:
                await self._source.check()
            raise
        finally:
            await give_back(self._source, connection, was_autocommit)

    def adopt(self, connection: object) -> AsyncPsycopgTx | None:
        return AsyncPsycopgTx(connection) if isinstance(connection, psycopg.AsyncConnection) else None

    async def ear(self) -> AsyncPsycopgEar:
        return AsyncPsycopgEar(await self._source.apart())

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    async def close(self) -> None:
        await self._source.close()

    def abandon(self) -> None:
        self._source.abandon()


async def alive(source: AsyncSource) -> Connection:
    """A connection whose session was not ended while it was idle."""
    before = cancellations()
    while has_ended(connection := await source.take()):
        await source.give(connection)
    if cancellations() > before:  # see `heard`; here there is something to give back
        await source.give(connection)
        raise not_heard()
    return connection


async def run(
    connection: Connection, sql: str, parameters: Sequence[object] = (), *, prepare: bool | None = False
) -> Cursor:
    """A cursor of our own: the rows and cursors that a user's connection makes are for the user's statements.

    Prepared is only what has no plan to go wrong, an INSERT, and only if the connection prepares at all.
    """
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    return await heard(cursor.execute(sql, parameters or None, prepare=prepare))


async def give_back(source: AsyncSource, connection: Connection, was_autocommit: bool) -> None:
    """As its owner had it."""
    try:
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            await connection.close()  # nobody knows what it is in the middle of
        elif not was_autocommit:
            await connection.set_autocommit(False)
    finally:
        await source.give(connection)


class AsyncPsycopgTx:
    """A Tx over a caller's own connection or one of ours."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def is_begun(self) -> bool:
        status = self._connection.pgconn.transaction_status
        return status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)

    @property
    def is_active(self) -> bool:
        """A transaction in which a statement has failed takes nothing more."""
        if self._connection.closed or self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            return False
        return self.is_begun or not self._connection.autocommit

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return (await run(self._connection, sql, parameters, prepare=None)).rowcount

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([await self.execute(sql, each) for each in parameters])

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return await (await run(self._connection, sql, parameters)).fetchall()


class AsyncOpenPsycopgTransaction(AsyncPsycopgTx):
    """A transaction on a connection of the source, given back at its end."""

    def __init__(self, source: AsyncSource, connection: Connection) -> None:
        super().__init__(connection)
        self._source = source
        self._was_autocommit = connection.autocommit
        self._is_lent = True

    @classmethod
    async def begun(cls, source: AsyncSource, how: str) -> AsyncOpenPsycopgTransaction:
        self = cls(source, await alive(source))
        try:
            if not self._was_autocommit:
                await self._connection.set_autocommit(True)
            await run(self._connection, how)
        except BaseException:
            await self.end()
            raise
        return self

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def is_open(self) -> bool:
        return self._is_lent and self.is_begun

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        try:
            return await super().fetch(sql, parameters)
        except psycopg.errors.InFailedSqlTransaction as error:
            raise rolled_back() from error

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_transaction_control(sql)
        cursor = await heard(self._connection.execute(sql, parameters or None))
        return QueryResult(await cursor.fetchall() if cursor.description else [], cursor.rowcount)

    async def commit(self) -> None:
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise rolled_back()
        await self._connection.commit()
        await self._return()

    async def savepoint(self, name: str) -> None:
        await run(self._connection, f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        await run(self._connection, f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        await run(self._connection, f'ROLLBACK TO "{name}"')
        await run(self._connection, f'RELEASE "{name}"')

    async def end(self) -> None:
        if self._is_lent:
            try:
                if self.is_begun:
                    await run(self._connection, "ROLLBACK")
            except psycopg.Error as error:
                # Closed below, it is rolled back as well; an error here would hide the one that led here.
                log.debug("the rollback failed, and its connection is given up: %s", error_text(error))
            finally:
                await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        await give_back(self._source, self._connection, self._was_autocommit)
