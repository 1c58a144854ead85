"""One SQL Server connection, blocking: explicit transactions, and a session that is set anew after every rest.

The driver is in autocommit mode, so a single statement is one round trip; transactions begin and end by statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Final, TypeVar

from aftercommit.errors import TransactionEnded
from aftercommit.events.claims import QueryResult
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlserver.faults import number_of

T = TypeVar("T")

#: How long a statement waits for somebody else's lock, in milliseconds.
LOCK_TIMEOUT: Final = 5000

#: What filtered indexes ask for, and what the store counts on, whatever the last user of the connection has set.
#: XACT_ABORT is off: a row that is refused must not take the caller's transaction with it.
SESSION: Final = (
    "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;"
    " SET ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL, QUOTED_IDENTIFIER ON;"
    " SET NUMERIC_ROUNDABORT, IMPLICIT_TRANSACTIONS, XACT_ABORT, NOCOUNT OFF;"
    f" SET LOCK_TIMEOUT {LOCK_TIMEOUT}; SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
)
BEGIN: Final = f"{SESSION} BEGIN TRANSACTION"
COMMIT: Final = "COMMIT TRANSACTION"
ROLLBACK: Final = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"

#: COMMIT without BEGIN.
_NOT_BEGUN: Final = 3902


class SqlServerConnection:
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
        return not self.is_in_transaction and not self._is_broken

    # ------------------------------------------------------------ after a rest

    def wake(self) -> None:
        """Make the session ready for statements on their own."""
        self._first(SESSION)

    def begin_transaction(self) -> None:
        self._is_begun = True  # before it is: an interrupt may come between the server's answer and the next line
        self._first(BEGIN)

    def _first(self, sql: str) -> None:
        """The first statement after a rest shows whether the connection still lives; if not, a new one takes over."""
        if self._raw is not None:
            try:
                executed(self._raw, sql)
                return
            except Exception:
                self._close()
        self._raw = self._connect()
        self._is_broken = False
        executed(self._raw, sql)

    # ------------------------------------------------------------ statements

    def watched(self, job: Callable[[Any], T]) -> T:
        """An error may have ended the transaction, or the connection; what comes after it has to know."""
        if self._is_lost:
            raise _ended()
        try:
            return job(self._raw)
        except BaseException:
            self._look()
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


def executed(raw: Any, sql: str, parameters: Sequence[object] = ()) -> int:
    """How many rows the last counting statement of a batch matched."""
    with closing(raw.cursor()) as cursor:
        _run(cursor, sql, parameters)
        count = int(cursor.rowcount)
        while cursor.nextset():  # an error of a later statement comes only when its result is asked for
            count = max(count, int(cursor.rowcount))
        return count


def fetched(raw: Any, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    """The rows of a batch's one statement that has any, as tuples."""
    with closing(raw.cursor()) as cursor:
        _run(cursor, sql, parameters)
        rows: list[Any] = []
        while True:
            if cursor.description is not None:
                rows += map(tuple, cursor.fetchall())
            if not cursor.nextset():
                return rows


def queried(raw: Any, sql: str, parameters: Any) -> QueryResult:
    """For the user: the driver's own rows."""
    with closing(raw.cursor()) as cursor:
        _run(cursor, sql, parameters)
        rows = [] if cursor.description is None else cursor.fetchall()
        count = int(cursor.rowcount)
        while cursor.nextset():
            pass
        return QueryResult(rows, count)


def _run(cursor: Any, sql: str, parameters: Any) -> None:
    # Statements that begin or end a transaction must not be prepared, and those with parameters are.
    if parameters:
        cursor.execute(sql, parameters)
    else:
        cursor.execute(sql)


def executed_all_or_none(raw: Any, sql: str, parameters: Sequence[Sequence[object]]) -> int:
    """A row that is refused takes those before it with it; what else the transaction has done stands. There is no
    RELEASE: a savepoint that is not needed is left behind."""
    was_begun = open_transactions(raw) > 0
    if was_begun:
        executed(raw, "SAVE TRANSACTION aftercommit_many")
    try:
        # Not executemany(): it does not look at later results, where an error may wait, and its fast way guesses types
        # from the first row. One cursor prepares the statement once, which is all that the slow way does.
        with closing(raw.cursor()) as cursor:
            for values in parameters:
                _run(cursor, sql, values)
                while cursor.nextset():
                    pass
    except BaseException:
        if not was_begun:
            raw.rollback()  # the driver began by itself, so there is nothing else in it
        elif open_transactions(raw):  # some errors have ended it already
            executed(raw, "ROLLBACK TRANSACTION aftercommit_many")
        raise
    return len(parameters)


def open_transactions(raw: Any) -> int:
    """How deep the server is in transactions. Asking begins none, not even in implicit mode."""
    return int(fetched(raw, "SELECT @@TRANCOUNT")[0][0])


class ConnectionTx:
    """A Tx that never suspends, over one of our connections or a caller's own."""

    def __init__(self, watched: Callable[[Callable[[Any], Any]], Any]) -> None:
        """`watched` does a job with the driver's connection."""
        self._watched = watched

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return int(self._watched(lambda raw: executed(raw, sql, parameters)))

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return int(self._watched(lambda raw: executed_all_or_none(raw, sql, parameters)))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return list(self._watched(lambda raw: fetched(raw, sql, parameters)))


class AdoptedConnection(ConnectionTx):
    """A caller's own pyodbc connection."""

    def __init__(self, raw: Any) -> None:
        super().__init__(lambda job: job(raw))
        self._raw = raw

    @property
    def is_begun(self) -> bool:
        try:
            return open_transactions(self._raw) > 0
        except Exception:  # it is closed
            return False

    @property
    def is_active(self) -> bool:
        """Begun, or in the mode in which the driver begins one before the INSERT."""
        if self._raw.closed:
            return False
        return not self._raw.autocommit or self.is_begun
