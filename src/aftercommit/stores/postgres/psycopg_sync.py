"""The blocking executor over psycopg: statements run in the caller's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.rows import tuple_row

from aftercommit.events.claims import QueryResult
from aftercommit.events.redact import error_text
from aftercommit.ports import Colour, Tx
from aftercommit.stores.postgres.dialect import BEGIN, refuse_old_server, rolled_back
from aftercommit.stores.postgres.faults import fault_of, has_ended
from aftercommit.stores.postgres.wakeups_psycopg import PsycopgEar
from aftercommit.stores.sql.connections import retrying
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sql.execution import Fault

log = logging.getLogger("aftercommit.postgres")

T = TypeVar("T")

Connection = psycopg.Connection[Any]


class Source(Protocol):
    """Where connections come from. What is given back is idle and as it was, or broken, and then not lent again."""

    def take(self) -> Connection: ...

    def give(self, connection: Connection) -> None: ...

    def apart(self) -> Connection:
        """A new connection that is not counted and never given back."""
        ...

    def check(self) -> None:
        """A connection was found dead: look whether idle ones are, too."""

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class PsycopgExecutor:
    """One round trip for one statement. What works on many rows is never prepared: a plan made on an empty table would
    be kept."""

    colour = Colour.BLOCKING

    def __init__(self, source: Source) -> None:
        self._source = source

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return (await self._single(sql, parameters)).fetchall()

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return (await self._single(sql, parameters)).rowcount

    async def _single(self, sql: str, parameters: Sequence[object]) -> psycopg.Cursor[Any]:
        try:
            with self._lent() as connection:
                return run(connection, sql, parameters)
        except psycopg.OperationalError as error:
            if fault_of(error) is not Fault.CONFLICT:
                raise

        # Again, and not as strictly as the session may want it by default: that could go on for ever.
        async def again(tx: Tx) -> psycopg.Cursor[Any]:
            return run(cast("OpenPsycopgTransaction", tx).connection, sql, parameters)

        return await self.transact(again)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T:
        return await retrying(lambda: self._transact(work), fault_of)

    async def _transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        opened = self._begin(BEGIN)
        try:
            refuse_old_server(opened.connection.info.server_version // 10_000)
            value = await work(opened)
            await opened.commit()
        finally:
            await opened.end()
        return value

    async def begin(self) -> OpenPsycopgTransaction:
        return self._begin("BEGIN")

    def _begin(self, how: str) -> OpenPsycopgTransaction:
        """A connection that died while it was idle is found out here, where nothing is lost yet."""
        try:
            return OpenPsycopgTransaction(self._source, how)
        except psycopg.OperationalError as error:
            if fault_of(error) is not Fault.UNREACHABLE:
                raise
        self._source.check()
        return OpenPsycopgTransaction(self._source, how)

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        connection = alive(self._source)
        try:
            with in_autocommit(connection):
                yield connection
        except psycopg.OperationalError:
            if connection.broken:
                self._source.check()
            raise
        finally:
            self._source.give(connection)

    def adopt(self, connection: object) -> PsycopgTx | None:
        return PsycopgTx(connection) if isinstance(connection, psycopg.Connection) else None

    async def ear(self) -> PsycopgEar:
        return PsycopgEar(self._source.apart())

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    async def close(self) -> None:
        self._source.close()

    def abandon(self) -> None:
        self._source.abandon()


def alive(source: Source) -> Connection:
    """A connection whose session was not ended while it was idle."""
    while has_ended(connection := source.take()):
        source.give(connection)
    return connection


def run(
    connection: Connection, sql: str, parameters: Sequence[object] = (), *, prepare: bool | None = False
) -> psycopg.Cursor[Any]:
    """A cursor of our own: the rows and cursors that a user's connection makes are for the user's statements.

    Prepared is only what has no plan to go wrong, an INSERT, and only if the connection prepares at all.
    """
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    return cursor.execute(sql, parameters or None, prepare=prepare)


def command(connection: Connection, words: str) -> None:
    """What takes and returns nothing, at a third of the cost of a cursor."""
    result = connection.pgconn.exec_(words.encode())
    if result.status == ExecStatus.COMMAND_OK:
        return
    if connection.broken:
        raise psycopg.OperationalError(result.get_error_message())
    raise error_from_result(result)


@contextmanager
def in_autocommit(connection: Connection) -> Iterator[None]:
    """As the outbox needs it, and afterwards as the connection's owner had it. Costs no round trip."""
    if connection.autocommit:
        yield
        return
    connection.autocommit = True
    try:
        yield
    finally:
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            connection.autocommit = False


class PsycopgTx:
    """A Tx that never suspends, over a caller's own connection or one of ours."""

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
        return run(self._connection, sql, parameters, prepare=None).rowcount

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return sum([run(self._connection, sql, each).rowcount for each in parameters])

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return run(self._connection, sql, parameters).fetchall()


class OpenPsycopgTransaction(PsycopgTx):
    """A transaction on a connection of the source, given back at its end."""

    def __init__(self, source: Source, how: str) -> None:
        super().__init__(alive(source))
        self._source = source
        self._is_lent = True
        self._steering = in_autocommit(self._connection)
        self._steering.__enter__()
        try:
            command(self._connection, how)
        except BaseException:
            self._return()
            raise

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
        cursor = self._connection.execute(sql, parameters or None)
        return QueryResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    async def commit(self) -> None:
        if self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise rolled_back()
        self._connection.commit()
        self._return()

    async def savepoint(self, name: str) -> None:
        run(self._connection, f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        run(self._connection, f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        run(self._connection, f'ROLLBACK TO "{name}"')
        run(self._connection, f'RELEASE "{name}"')

    async def end(self) -> None:
        if self._is_lent:
            try:
                if self.is_begun:
                    command(self._connection, "ROLLBACK")
            except psycopg.Error as error:
                # Closed below, it is rolled back as well; an error here would hide the one that led here.
                log.debug("the rollback failed, and its connection is given up: %s", error_text(error))
            finally:
                self._return()

    def _return(self) -> None:
        self._is_lent = False
        if self.is_begun:
            self._connection.close()  # nobody knows what it is in the middle of
        self._steering.__exit__(None, None, None)
        self._source.give(self._connection)
