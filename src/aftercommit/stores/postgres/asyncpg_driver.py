"""The executor over asyncpg."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

import asyncpg

from aftercommit.errors import OutboxError
from aftercommit.events.claims import QueryResult
from aftercommit.events.redact import error_text
from aftercommit.ports import Colour, Tx
from aftercommit.stores.postgres.dialect import (
    BEGIN,
    fault_of_ours,
    fault_of_state,
    refuse_old_server,
    refuse_rollback,
    rolled_back,
)
from aftercommit.stores.postgres.wakeups_asyncpg import AsyncpgEar
from aftercommit.stores.sql.connections import retrying
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sql.execution import Fault

log = logging.getLogger("aftercommit.postgres")

T = TypeVar("T")


class AsyncpgSource(Protocol):
    """Where connections come from, and where they go back to; a broken one is not lent again."""

    #: Whether it is known that no pooler stands before the server.
    is_direct: bool

    async def take(self) -> Any: ...

    async def give(self, connection: Any) -> None: ...

    async def apart(self) -> Any:
        """A new connection that is not counted and never given back."""
        ...

    async def check(self) -> None:
        """A connection was found dead: idle ones may be, too."""

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


def fault_of(error: Exception) -> Fault:
    """asyncpg's errors in our words."""
    if isinstance(error, OutboxError):
        return fault_of_ours(error)
    if (fault := fault_of_state(getattr(error, "sqlstate", None))) is not None:
        return fault
    if isinstance(error, asyncpg.exceptions.DataError | UnicodeError):  # found by the driver, before the server saw it
        return Fault.ROW
    # A session that was ended is in a failed state for a moment, until its end is heard.
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError):
        return Fault.UNREACHABLE
    return Fault.OTHER


class AsyncpgExecutor:
    """Group statements are parsed anew each time: a plan made on an empty table must not be kept. Unless the server is
    known to be reached directly they run inside a transaction: their two round trips have to meet one session."""

    colour = Colour.ASYNC

    def __init__(self, source: AsyncpgSource) -> None:
        self._source = source

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return [tuple(row) for row in (await self._single(sql, parameters))[0]]

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        if parameters:
            return (await self._single(sql, parameters))[1]
        connection = await self._source.take()  # a single message, and perhaps one that no transaction may hold
        try:
            return count_of(await connection.execute(sql))
        finally:
            await self._source.give(connection)

    async def _single(self, sql: str, parameters: Sequence[object]) -> tuple[list[Any], int]:
        if self._source.is_direct:
            try:
                return await self._alone(sql, parameters)
            except asyncpg.PostgresError as error:
                if fault_of(error) is not Fault.CONFLICT:
                    raise

        # Not as strictly as the session may want it by default: then a conflict could come again for ever.
        async def inside(tx: Tx) -> tuple[list[Any], int]:
            return await parsed_anew(cast("OpenAsyncpgTransaction", tx).connection, sql, parameters)

        return await self.transact(inside)

    async def _alone(self, sql: str, parameters: Sequence[object]) -> tuple[list[Any], int]:
        connection = await self._source.take()
        try:
            return await parsed_anew(connection, sql, parameters)
        except BaseException as error:
            if not isinstance(error, Exception):
                give_up(connection)  # cancelled after the first half of a statement: the server waits for the other
            raise
        finally:
            await self._source.give(connection)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await retrying(lambda: self._transact(work), fault_of)

    async def _transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        opened = await self._begin(BEGIN)
        try:
            refuse_old_server(opened.connection.get_server_version().major)
            value = await work(opened)
            await opened.commit()
        finally:
            await opened.end()
        return value

    async def begin(self) -> OpenAsyncpgTransaction:
        return await self._begin("BEGIN")

    async def _begin(self, how: str) -> OpenAsyncpgTransaction:
        """A connection that died while it was idle is found out here, where nothing is lost yet."""
        try:
            return await OpenAsyncpgTransaction.begun(self._source, how)
        except Exception as error:
            if fault_of(error) is not Fault.UNREACHABLE:
                raise
        await self._source.check()
        return await OpenAsyncpgTransaction.begun(self._source, how)

    def adopt(self, connection: object) -> AsyncpgTx | None:
        # What a pool lends stands for a connection, and is no subclass of it.
        is_ours = isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy)
        return AsyncpgTx(connection) if is_ours else None

    async def ear(self) -> AsyncpgEar:
        return AsyncpgEar(await self._source.apart())

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    async def close(self) -> None:
        await self._source.close()

    def abandon(self) -> None:
        self._source.abandon()


async def parsed_anew(connection: Any, sql: str, parameters: Sequence[object]) -> tuple[list[Any], int]:
    """Rows and count of a statement that is planned for its own values, whatever the connection has cached."""
    statement = await connection.prepare(sql, name="")
    rows = await statement.fetch(*parameters)
    return rows, count_of(statement.get_statusmsg())


def is_gone(connection: Any) -> bool:
    """A pool takes back by itself what the server has ended; what stood for it then answers nothing more."""
    return getattr(connection, "_con", connection) is None or bool(connection.is_closed())


def give_up(connection: Any) -> None:
    if not is_gone(connection):
        connection.terminate()


def count_of(tag: str) -> int:
    """The rows of a command tag such as `INSERT 0 3`."""
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


class AsyncpgTx:
    """A Tx over a caller's own connection or one of ours."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_begun(self) -> bool:
        return not is_gone(self._connection) and bool(self._connection.is_in_transaction())

    @property
    def is_active(self) -> bool:
        return self.is_begun  # asyncpg begins nothing by itself

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        # An INSERT has no plan to go wrong, so a statement cache may serve it, if the connection has one.
        return count_of(await self._connection.execute(sql, *parameters))

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([await self.execute(sql, each) for each in parameters])

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        rows, _ = await parsed_anew(self._connection, sql, parameters)
        return [tuple(row) for row in rows]


class OpenAsyncpgTransaction(AsyncpgTx):
    """A transaction on a connection of the source, given back at its end."""

    def __init__(self, source: AsyncpgSource, connection: Any) -> None:
        super().__init__(connection)
        self._source = source
        self._is_lent = True

    @classmethod
    async def begun(cls, source: AsyncpgSource, how: str) -> OpenAsyncpgTransaction:
        self = cls(source, await source.take())
        try:
            await self._connection.execute(how)
        except BaseException:
            give_up(self._connection)  # it may yet begin, and does not know it
            await self._return()
            raise
        return self

    @property
    def connection(self) -> Any:
        return self._connection

    @property
    def is_open(self) -> bool:
        return self._is_lent and self.is_begun

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        try:
            return await super().fetch(sql, parameters)
        except asyncpg.InFailedSQLTransactionError as error:
            raise rolled_back() from error

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_transaction_control(sql)
        return QueryResult(*await parsed_anew(self._connection, sql, parameters))

    async def commit(self) -> None:
        refuse_rollback(await self._connection.execute("COMMIT"))
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self._connection.execute(f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        await self._connection.execute(f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        await self._connection.execute(f'ROLLBACK TO "{name}"; RELEASE "{name}"')

    async def end(self) -> None:
        if self._is_lent:
            try:
                if self.is_begun:
                    await self._connection.execute("ROLLBACK")
            except Exception as error:
                # Closed, it is rolled back as well; an error here would hide the one that led here.
                give_up(self._connection)
                log.debug("the rollback failed, and its connection is given up: %s", error_text(error))
            except BaseException:
                give_up(self._connection)  # nobody knows what it is in the middle of
                raise
            finally:
                await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        await self._source.give(self._connection)
