"""Statements over pyodbc, written once: in the caller's thread, or under asyncio on a thread of the connection's."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from aftercommit.errors import TransactionEnded
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.connections import Give, LinkExecutor, pools_of_blocking, retrying
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlserver.connection import (
    BEGIN,
    COMMIT,
    LEVEL,
    LEVELS,
    ROLLBACK,
    SESSION,
    AdoptedConnection,
    ConnectionTx,
    begin_in,
    executed,
    fault_of,
    fetched,
    number_of,
    open_transactions,
    queried,
)

T = TypeVar("T")

#: COMMIT without BEGIN.
_NOT_BEGUN: Final = 3902


class SqlServerExecutor(LinkExecutor):
    """Connections are opened when needed and kept for the next."""

    commits_single = True

    def __init__(self, connect: Callable[[], Any], driver: Any, colour: Colour = Colour.BLOCKING) -> None:
        self._driver = driver
        self.fault_of: Callable[[Exception], Fault] = partial(fault_of, driver=driver)
        pools = pools_of_blocking(lambda: SqlServerLink(connect, self.fault_of), colour, "aftercommit-sqlserver")
        super().__init__(*pools, colour)

    def adopt(self, connection: object) -> AdoptedConnection | None:
        # Under asyncio, too, the caller's own connection is used where the caller uses it: in this thread.
        return AdoptedConnection(connection) if isinstance(connection, self._driver.Connection) else None


class SqlServerLink:
    """A connection that the store opens when it is first needed, and again when it did not survive a rest."""

    def __init__(self, connect: Callable[[], Any], fault_of: Callable[[Exception], Fault]) -> None:
        self._connect = connect
        self.fault_of = fault_of
        self._raw: Any = None
        self._is_begun = False
        #: The server has ended the transaction that was begun.
        self._is_lost = False
        #: The user has the raw connection, and may end the transaction there.
        self._is_exposed = False
        self._is_broken = False
        self._is_read_only = False
        #: Of isolation, as it was opened: what users' transactions begin in.
        self._level = LEVELS[0]

    @property
    def raw(self) -> Any:
        """The driver's connection, for the user. From now on the server is asked whether the transaction stands."""
        self._is_exposed = True
        return self._raw

    @property
    def is_in_transaction(self) -> bool:
        if self._is_exposed and not self._is_broken:
            self._look()
        return self._is_begun and not self._is_broken

    @property
    def is_sound(self) -> bool:
        """Whether it can be used again: out of every transaction, as far as it was opened."""
        return not (self.is_in_transaction or self._is_broken or self._is_read_only)

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T:
        """Begin, work, commit; roll back whatever went wrong, and begin again after a deadlock. Reads need no
        transaction, nor does a statement that the server commits by itself."""
        attempt = self._committed if writes else self._alone
        try:
            return await retrying(lambda: attempt(work), self.fault_of)
        finally:
            await give(self, is_sound=self.is_sound)

    async def _alone(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        self._first(lambda: SESSION)
        return await work(ConnectionTx(self.watched))

    async def _committed(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        self._begin()
        try:
            value = await work(ConnectionTx(self.watched))
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return value

    async def begin(self, give: Give, isolation: str | None = None) -> OpenSqlServerTransaction:
        try:
            self._begin(lambda: begin_in(isolation or self._level))
        except BaseException:
            await give(self, is_sound=self.is_sound)
            raise
        return OpenSqlServerTransaction(self, give)

    # ------------------------------------------------------------ after a rest

    def _begin(self, words: Callable[[], str] = lambda: BEGIN) -> None:
        self._is_begun = True  # before it is: an interrupt may come between the server's answer and the next line
        self._first(words)

    def _first(self, words: Callable[[], str]) -> None:
        """The first statement after a rest shows whether the connection still lives; if not, a new one takes over."""
        if self._raw is not None:
            try:
                executed(self._raw, words())
                return
            except Exception:
                self._close()
        self._raw = self._connect()
        self._is_broken = False
        self._level = LEVELS[int(fetched(self._raw, LEVEL)[0][0])]
        executed(self._raw, words())

    # ------------------------------------------------------------ statements

    def watched(self, job: Callable[[Any], T]) -> T:
        """An error may have ended the transaction, or the connection; what comes after it has to know."""
        if self._is_lost:
            raise _ended()
        try:
            return job(self._raw)
        except BaseException as error:
            self._look()
            # After a switchover the former primary would take no writes for ever: nobody gets this one again.
            is_read_only = isinstance(error, Exception) and self.fault_of(error) is Fault.READ_ONLY
            self._is_read_only = self._is_read_only or is_read_only
            raise

    def _look(self) -> None:
        """Ask the server whether the transaction still stands."""
        try:
            count = open_transactions(self._raw)
        except Exception:
            self._is_broken = True
            return
        self._is_lost = self._is_begun and count == 0
        self._is_begun = count > 0

    # ------------------------------------------------------------ the end

    def commit(self) -> None:
        if self._is_exposed and self.watched(open_transactions) > 1:
            raise _ended("another one was begun inside it and left open")
        try:
            self.watched(lambda raw: executed(raw, COMMIT))
        except Exception as error:
            if number_of(error) == _NOT_BEGUN:
                raise _ended() from error
            raise
        self._rest()

    def rollback(self) -> None:
        """A connection that cannot do this is given up, and its transaction with it."""
        if self._is_broken or self._raw is None:
            return
        try:
            if self._is_begun or self._is_exposed:
                executed(self._raw, ROLLBACK)
            self._rest()
        except Exception:
            self._is_broken = True

    def _rest(self) -> None:
        self._is_begun = self._is_lost = self._is_exposed = False

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Close it. The server rolls back what is open."""
        self._rest()
        self._close()

    def _close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with suppress(Exception):  # it may have been closed by the user, or by the server
                raw.close()


def _ended(how: str = "the server has rolled it back, or it was ended on the connection itself") -> TransactionEnded:
    return TransactionEnded(
        f"the transaction does not stand any more: {how}",
        fix="do it again from its start; use tx.commit() and tx.rollback() to end it",
    )


class OpenSqlServerTransaction(ConnectionTx):
    """A transaction that the user steers."""

    def __init__(self, connection: SqlServerLink, give: Give) -> None:
        super().__init__(connection.watched)
        self._connection = connection
        self._give = give
        self._is_lent = True

    @property
    def connection(self) -> Any:
        return self._connection.raw

    @property
    def is_open(self) -> bool:
        return self._is_lent and self._connection.is_in_transaction

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return self._connection.watched(lambda raw: queried(raw, sql, parameters))

    async def commit(self) -> None:
        self._connection.commit()
        await self._return()

    async def savepoint(self, name: str) -> None:
        await self.execute(f"SAVE TRANSACTION [{name}]")

    async def release(self, name: str) -> None:
        """SQL Server keeps savepoints until the end; one that nobody goes back to does nothing."""

    async def rollback_to(self, name: str) -> None:
        await self.execute(f"ROLLBACK TRANSACTION [{name}]")

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if self._is_lent:
            self._connection.rollback()
            await self._return()

    async def _return(self) -> None:
        self._is_lent = False
        await self._give(self._connection, is_sound=self._connection.is_sound)
