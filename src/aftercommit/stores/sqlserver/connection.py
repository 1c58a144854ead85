"""Statements on a SQL Server connection, blocking, the session that they need, and what errors mean.

The driver is in autocommit mode, so a single statement is one round trip; transactions begin and end by statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from aftercommit.events.claims import QueryResult
from aftercommit.stores.sql.execution import Fault

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
_BEGIN: Final = "BEGIN TRANSACTION"
BEGIN: Final = f"{SESSION} {_BEGIN}"

#: Asks a session for its level of isolation, by its number in this list. 0 is one that nobody has set.
LEVEL: Final = "SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
LEVELS: Final = ("READ COMMITTED", "READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "SNAPSHOT")


def begin_in(level: str) -> str:
    """A user's transaction. SNAPSHOT has to be said before it is begun."""
    return BEGIN if level == "READ COMMITTED" else f"{SESSION} SET TRANSACTION ISOLATION LEVEL {level}; {_BEGIN}"


COMMIT: Final = "COMMIT TRANSACTION"
ROLLBACK: Final = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"


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
    RELEASE: a savepoint that is not needed is left behind. One statement alone needs none."""
    was_begun = open_transactions(raw) > 0
    has_savepoint = was_begun and len(parameters) > 1
    if has_savepoint:
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
        elif has_savepoint and open_transactions(raw):  # some errors have ended it already
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
    def mark(self) -> None:
        """pyodbc keeps no count."""

    @property
    def is_active(self) -> bool:
        """Begun, or in the mode in which the driver begins one before the INSERT."""
        if self._raw.closed:
            return False
        return not self._raw.autocommit or self.is_begun


# What the errors of SQL Server and of its ODBC driver mean.

#: The server's own numbers. Where one is known it says more than the SQLSTATE, which many of them share.
_BY_NUMBER: Final[dict[int, Fault]] = {
    number: fault
    for fault, numbers in {
        # duplicate, check, NULL, too long, out of range, not convertible
        Fault.ROW: (2601, 2627, 547, 515, 8152, 2628, 8115, 220, 245, 241, 242, 517, 8114, 295, 9803),
        # deadlock, update conflicts of snapshots
        Fault.CONFLICT: (1205, 3960, 3961),
        # lock timeout, no locks left, our own wait for the schema lock, Azure under load
        Fault.BUSY: (1222, 1204, 51222, 40501, 10928, 10929),
        Fault.MISSING_TABLE: (208,),
        # no right to the object, to create, to the server's state; no access to the database; schema unknown
        Fault.FORBIDDEN: (229, 230, 262, 297, 300, 916, 2760, 15247),
        # no room in the file group, in the log
        Fault.FULL: (1105, 9002),
        # read-only database, recovery, secondary replicas
        Fault.READ_ONLY: (3906, 3908, 976, 978),
        # login refused, database closed or moving, shutdown, killed session
        Fault.UNREACHABLE: (4060, 18452, 18456, 40613, 40197, 924, 927, 945, 6005, 596, 233, 10053, 10054, 10060),
    }.items()
    for number in numbers
}

#: By the first characters of the SQLSTATE.
_BY_STATE: Final[dict[str, Fault]] = {
    "22": Fault.ROW,
    "23": Fault.ROW,
    "40001": Fault.CONFLICT,
    "42S02": Fault.MISSING_TABLE,
    "08": Fault.UNREACHABLE,
    "28": Fault.UNREACHABLE,
    "HYT": Fault.UNREACHABLE,
    "01002": Fault.UNREACHABLE,
}

#: The driver ends the first message by the number and its own function. Behind it come messages without either, and
#: before it may stand a value of the user that looks the same, so the last one counts.
_NUMBER: Final = re.compile(r"\((\d{1,9})\) \(SQL\w+\)")


def fault_of(error: Exception, driver: Any) -> Fault:
    """Reads the errors of this driver module."""
    if isinstance(error, driver.Error):
        return _BY_NUMBER.get(number_of(error)) or _by_state(state_of(error))
    # The driver itself refuses: a number of more than 64 bits, half of a surrogate pair.
    return Fault.ROW if isinstance(error, OverflowError | UnicodeError) else Fault.OTHER


def number_of(error: Exception) -> int:
    """The server's number of an error; 0 when it is the driver's own."""
    found = _NUMBER.findall(str(error.args[1])) if len(error.args) > 1 else []
    return int(found[-1]) if found else 0


def state_of(error: Exception) -> str:
    return str(error.args[0]) if len(error.args) > 1 else ""


def _by_state(state: str) -> Fault:
    return next((fault for start, fault in _BY_STATE.items() if state.startswith(start)), Fault.OTHER)
