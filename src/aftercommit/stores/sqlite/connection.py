"""One SQLite connection, blocking: explicit transactions, busy handling, and the gate that keeps writers in line."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from aftercommit.errors import OutboxError, StoreBusy
from aftercommit.events.claims import QueryResult
from aftercommit.runtime.process import here
from aftercommit.stores.sql.control import refuse_transaction_control
from aftercommit.stores.sql.execution import Fault

#: How long a writer waits for another before it gives up, in seconds.
BUSY_TIMEOUT: Final = 5.0

#: How long a fork waits for writers of this process to finish, in seconds.
FORK_PATIENCE: Final = 1.0


class Gate:
    """Lets one writer of this process at a time ask SQLite for its write lock.

    SQLite's own waiting is a sleep of a millisecond and more; here the next writer goes on at once. Other processes
    are still met by the busy timeout.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._holder: int | None = None
        self._held_for_fork: list[threading.Lock] = []

    def hold_for_fork(self) -> None:
        """Let the writer that is inside come to its end: SQLite's locks are copied by a fork, and a copy of a held one
        is held in the child for ever. The forking thread's own transaction, or a long one, has to be let be."""
        wanted = [self._opening] if self._holder == threading.get_ident() else [self._lock, self._opening]
        self._held_for_fork = [lock for lock in wanted if lock.acquire(timeout=FORK_PATIENCE)]

    def release_after_fork(self) -> None:
        while self._held_for_fork:
            self._held_for_fork.pop().release()

    def opened(self, connect: Callable[[], sqlite3.Connection]) -> SqliteConnection:
        """A new connection. Opening locks the file for a moment, so a fork waits for it, too."""
        with self._opening:
            return SqliteConnection(connect(), self)

    def enter(self) -> None:
        if not self._lock.acquire(blocking=False) and not self._lock.acquire(timeout=BUSY_TIMEOUT):
            raise busy(
                "another transaction of this process",
                fix="keep transactions short, and do not use the outbox inside one except through its tx",
            )
        self._holder = threading.get_ident()

    def leave(self) -> None:
        self._holder = None
        self._lock.release()


_gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()
_gates_lock = threading.Lock()


def gate_of(path: str) -> Gate:
    """The gate of a database file: one per file in this process."""
    with _gates_lock:
        gate = _gates.get(path)
        if gate is None:
            gate = _gates[path] = Gate()
        return gate


def _hold_gates() -> None:
    for gate in list(_gates.values()):
        gate.hold_for_fork()


def _release_gates() -> None:
    for gate in list(_gates.values()):
        gate.release_after_fork()


def _forget_gates() -> None:
    # In a forked child the parent's writers do not exist, but a lock that one of them held would stay locked.
    global _gates, _gates_lock
    _gates, _gates_lock = WeakValueDictionary(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_gates, after_in_parent=_release_gates, after_in_child=_forget_gates)


def busy(
    who: str = "another process", fix: str = "keep transactions short; for many writing processes use a database server"
) -> StoreBusy:
    problem = f"{who} held the SQLite database for {BUSY_TIMEOUT:.0f} s"
    if here.is_forked:
        problem += ", or this process was forked inside a transaction and has inherited its lock for ever"
        fix = f"fork outside transactions; {fix}"
    return StoreBusy(problem, fix=fix)


class SqliteConnection:
    """A connection that the store opened. It may move between threads, one at a time."""

    def __init__(self, raw: sqlite3.Connection, gate: Gate) -> None:
        self.raw = raw
        self._gate = gate
        self._is_in_gate = False

    @property
    def is_in_transaction(self) -> bool | None:
        """None when the connection is closed, which a user who was handed it can do."""
        try:
            return self.raw.in_transaction
        except sqlite3.ProgrammingError:
            return None

    def begin(self) -> None:
        self._gate.enter()
        self._is_in_gate = True
        try:
            self.raw.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._leave_gate()
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise busy() from error
            raise

    def commit(self) -> None:
        self.raw.execute("COMMIT")
        self._leave_gate()

    def rollback(self) -> None:
        try:
            if self.is_in_transaction:
                self.raw.execute("ROLLBACK")
        finally:
            self._leave_gate()

    def _leave_gate(self) -> None:
        if self._is_in_gate:
            self._is_in_gate = False
            self._gate.leave()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self.raw.execute(sql, parameters).rowcount

    def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return execute_all_or_none(self.raw, sql, parameters)

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return plain_rows(self.raw, sql, parameters)

    def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        refuse_transaction_control(sql)
        cursor = self.raw.execute(sql, parameters)
        return QueryResult(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)

    def close(self) -> None:
        try:
            self.rollback()
        finally:
            self.raw.close()


def plain_rows(raw: sqlite3.Connection, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
    """Tuples of str, bytes and numbers: the user's factories are for the user's rows."""
    cursor = raw.cursor()
    cursor.row_factory = None
    factory, raw.text_factory = raw.text_factory, str
    try:
        return cursor.execute(sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode" not in str(error):
            raise
        raw.text_factory = _text_or_bytes  # asked only now, because it is called for every cell
        return cursor.execute(sql, parameters).fetchall()
    finally:
        raw.text_factory = factory


def _text_or_bytes(cell: bytes) -> str | bytes:
    """One damaged cell must not keep all the other rows from being read."""
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return cell


def execute_all_or_none(raw: sqlite3.Connection, sql: str, parameters: Sequence[Sequence[object]]) -> int:
    """A row that is refused takes those before it with it; what else the transaction has done stands."""
    if not raw.in_transaction:
        try:
            return raw.executemany(sql, parameters).rowcount
        except BaseException:
            raw.rollback()  # the driver began by itself, so there is nothing else in it
            raise
    raw.execute("SAVEPOINT aftercommit_many")
    try:
        count = raw.executemany(sql, parameters).rowcount
    except BaseException:
        if raw.in_transaction:  # a full disk has ended it already
            raw.execute("ROLLBACK TO aftercommit_many")
            raw.execute("RELEASE aftercommit_many")
        raise
    raw.execute("RELEASE aftercommit_many")
    return count


def fault_of(error: Exception) -> Fault:
    """A value that SQLite cannot take is of one row; an unreachable, locked or full database is nobody's row."""
    if isinstance(error, sqlite3.OperationalError):
        return Fault.MISSING_TABLE if "no such table" in str(error) else Fault.OTHER
    if isinstance(error, sqlite3.Error | OverflowError | UnicodeError) and not isinstance(error, OutboxError):
        return Fault.ROW
    return Fault.OTHER


class BlockingTx:
    """A Tx that never suspends, over a caller's own sqlite3 connection or one of ours."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw

    @property
    def is_begun(self) -> bool:
        try:
            return self.raw.in_transaction
        except sqlite3.ProgrammingError:  # it is closed
            return False

    @property
    def is_active(self) -> bool:
        """Begun, or in a mode in which the driver begins one before the INSERT."""
        try:
            if self.raw.in_transaction:
                return True
        except sqlite3.ProgrammingError:
            return False
        # Since Python 3.12: True, False, or LEGACY (-1) for the rule of isolation_level.
        autocommit = getattr(self.raw, "autocommit", -1)
        return not autocommit if autocommit != -1 else self.raw.isolation_level is not None

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self.raw.execute(sql, parameters).rowcount

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return execute_all_or_none(self.raw, sql, parameters)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return plain_rows(self.raw, sql, parameters)


Connect = Callable[[], sqlite3.Connection]
