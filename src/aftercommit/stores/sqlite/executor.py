"""Statements over sqlite3, written once: in the caller's thread, or under asyncio on a thread of the connection's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from threading import get_ident
from typing import Any, TypeVar

import msgspec

from aftercommit.errors import OutboxError
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour, Tx
from aftercommit.stores.sql.connections import Give, LinkExecutor, pools_of_blocking
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlite.many import execute_all_or_none
from aftercommit.stores.sqlite.write_lock import WriteLock, busy, write_lock_of

T = TypeVar("T")
S = TypeVar("S")


class SqliteExecutor(LinkExecutor):
    """Connections are opened when needed and kept for the next."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: str, colour: Colour = Colour.BLOCKING) -> None:
        self._pools = pools_of_blocking(self._link, colour, "aftercommit-sqlite")
        super().__init__(*self._pools, colour)
        self._connect = connect
        self.path = path
        self._write_lock = write_lock_of(path)

    def _link(self) -> SqliteLink:
        return SqliteLink(self._connect, self._write_lock)

    def adopt(self, connection: object) -> SqliteTx | None:
        # Under asyncio, too, the caller's own connection is used where the caller uses it: in this thread.
        return SqliteTx(connection) if isinstance(connection, sqlite3.Connection) else None

    def fault_of(self, error: Exception) -> Fault:
        return fault_of(error)

    def drop(self) -> None:
        """Close what is idle without waiting, also where no loop runs that could wait."""
        for pool in self._pools:
            pool.clear()

    def abandon(self) -> None:
        self._write_lock = write_lock_of(self.path)
        super().abandon()


class SqliteTx(msgspec.Struct, eq=False, dict=True, weakref=True):
    """A Tx that never suspends, over a caller's own sqlite3 connection or one of ours."""

    raw: sqlite3.Connection

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

    @property
    def mark(self) -> None:
        """It keeps no count, and to ask the table costs no round trip."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self.raw.execute(sql, parameters).rowcount

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return execute_all_or_none(self.raw, sql, parameters)

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return plain_rows(self.raw, sql, parameters)


class SqliteTransaction(SqliteTx):
    """One that was begun on a link, which goes back to its pool at the end."""

    _link: SqliteLink
    _give: Give
    _is_lent: bool = True

    async def commit(self) -> None:
        self.raw.execute("COMMIT")
        self._is_lent = False
        lock = self._link.write_lock
        lock.holder = None
        lock.writing.release()
        await self._give(self._link)

    async def end(self) -> None:
        # A commit that was interrupted may have given it back, and somebody else may have it by now.
        if not self._is_lent:
            return
        try:
            if self.is_begun:
                self.raw.execute("ROLLBACK")
        finally:
            self._is_lent = False
            self._link.write_lock.leave()
            await self._give(self._link, is_sound=self._link.is_clean)


class OpenSqliteTransaction(SqliteTransaction):
    """A transaction that the user steers."""

    @property
    def connection(self) -> sqlite3.Connection:
        return self.raw

    @property
    def is_open(self) -> bool:
        try:
            return self._is_lent and self.raw.in_transaction
        except sqlite3.ProgrammingError:  # the user has closed it
            return False

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        cursor = self.raw.execute(sql, parameters)
        return QueryResult(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)

    async def savepoint(self, name: str) -> None:
        self.raw.execute(f'SAVEPOINT "{name}"')

    async def release(self, name: str) -> None:
        self.raw.execute(f'RELEASE "{name}"')

    async def rollback_to(self, name: str) -> None:
        self.raw.execute(f'ROLLBACK TO "{name}"')
        self.raw.execute(f'RELEASE "{name}"')


class SqliteLink:
    """A connection that the store opens. It may move between threads, one at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], write_lock: WriteLock) -> None:
        self._connect = connect
        self.write_lock = write_lock
        self.raw: sqlite3.Connection | None = None

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T:
        """Begin, work, commit; roll back whatever went wrong. Reads need no transaction."""
        if not writes:
            return await self._read(work, give)
        tx = await self.begin(give, kind=SqliteTransaction)
        try:
            value = await work(tx)
            await tx.commit()
        except BaseException:
            await tx.end()
            raise
        return value

    async def _read(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give) -> T:
        try:
            return await work(SqliteTx(self._open() if self.raw is None else self.raw))
        finally:
            await give(self, is_sound=self.is_clean)

    async def begin(
        self,
        give: Give,
        isolation: str | None = None,
        *,
        kind: Callable[..., S] = OpenSqliteTransaction,  # type: ignore[assignment]
    ) -> S:
        """This process's write lock first, then SQLite's. Everything is in one function: each write passes here."""
        lock, is_writing = self.write_lock, False
        try:
            raw = self._open() if self.raw is None else self.raw
            if not lock.writing.acquire(blocking=False):
                lock.wait()
            is_writing = True
            lock.holder = get_ident()
            raw.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            if is_writing:
                lock.leave()
            await give(self, is_sound=self.is_clean)
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise busy() from error
            raise
        return kind(raw, self, give)

    def _open(self) -> sqlite3.Connection:
        with self.write_lock.opening:
            self.raw = self._connect()
        return self.raw

    @property
    def is_clean(self) -> bool:
        """Out of every transaction, and open: a user who was handed it can close it."""
        try:
            return self.raw is not None and not self.raw.in_transaction
        except sqlite3.ProgrammingError:
            return False

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        if self.raw is not None:
            self.raw.close()  # which rolls back


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


def fault_of(error: Exception) -> Fault:
    """A value that SQLite cannot take is of one row; a locked or full database is nobody's row."""
    if isinstance(error, sqlite3.OperationalError):
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return Fault.FULL
        return Fault.MISSING_TABLE if "no such table" in str(error) else Fault.OTHER
    if isinstance(error, sqlite3.Error | OverflowError | UnicodeError) and not isinstance(error, OutboxError):
        return Fault.ROW
    return Fault.OTHER
