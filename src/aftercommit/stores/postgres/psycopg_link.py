"""psycopg's connections in both colours, its errors, and an executor over an engine or a function that opens them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

import psycopg
from psycopg import generators
from psycopg.errors import InFailedSqlTransaction, error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import tuple_row
from psycopg.waiting import Ready, Wait

from aftercommit.errors import OutboxError
from aftercommit.events.claims import QueryResult
from aftercommit.ports import Colour
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.faults import fault_of_ours, fault_of_state, rolled_back
from aftercommit.stores.postgres.lenders import Engine, OwnPool
from aftercommit.stores.postgres.link import Link, modes_of
from aftercommit.stores.postgres.loops import LoopSignal, arrived, cancellations, heard
from aftercommit.stores.postgres.psycopg_listening import PsycopgListening, ThreadSignal
from aftercommit.stores.postgres.psycopg_prepared import for_cursor, name_of, texts_of
from aftercommit.stores.sql.aio import TaskTurn
from aftercommit.stores.sql.connections import ThreadTurn, Turn
from aftercommit.stores.sql.execution import Fault

#: As libpq counts them, which is what a connection answers.
_TAKING: Final = (int(TransactionStatus.INTRANS), int(TransactionStatus.ACTIVE))
_BEGUN: Final = (*_TAKING, int(TransactionStatus.INERROR))
_FINE: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)

#: Seconds for the server to let go of a statement.
_ENOUGH: Final = 5.0


class CountingLock:
    """A connection's own lock, of either colour. psycopg takes it for every statement and keeps no other count."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.count = 0

    def __enter__(self) -> Any:
        self.count += 1
        return self._lock.__enter__()

    def __exit__(self, *error: object) -> Any:
        return self._lock.__exit__(*error)

    def __aenter__(self) -> Any:
        self.count += 1
        return self._lock.__aenter__()

    def __aexit__(self, *error: object) -> Any:
        return self._lock.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def fault_of(error: Exception) -> Fault:
    """psycopg's errors in our words."""
    if isinstance(error, OutboxError):
        return fault_of_ours(error)
    error = getattr(error, "orig", error)  # SQLAlchemy wraps what happens while it connects
    if isinstance(error, psycopg.Error) and (fault := fault_of_state(error.sqlstate)) is not None:
        return fault
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return Fault.UNREACHABLE
    if isinstance(error, psycopg.DataError | UnicodeError):  # found by the driver, before the server saw it
        return Fault.ROW
    return Fault.OTHER


class PsycopgLink(Link):
    """A blocking connection. For our statements a cursor of our own: the rows and cursors that a user's connection
    makes are for the user's. Autocommit costs no round trip, neither to turn it on nor to restore it."""

    colour = Colour.BLOCKING
    connections: ClassVar[tuple[type, ...]] = (psycopg.Connection,)
    failed = InFailedSqlTransaction
    turn: ClassVar[Callable[[], Turn]] = ThreadTurn
    fault_of = staticmethod(fault_of)

    @property
    def is_begun(self) -> bool:
        return self.raw.pgconn.transaction_status in _BEGUN

    @property
    def is_active(self) -> bool:
        """A transaction in which a statement has failed takes nothing more."""
        status = self.raw.pgconn.transaction_status
        return status in _TAKING or (status == TransactionStatus.IDLE and not self.raw.autocommit)

    @property
    def mark(self) -> object:
        lock = self.raw.lock
        if not isinstance(lock, CountingLock):
            lock = self.raw.lock = CountingLock(lock)
        return lock.count

    @property
    def is_gone(self) -> bool:
        return bool(self.raw.closed)

    @property
    def process(self) -> int:
        return int(self.raw.info.backend_pid)

    @property
    def descriptor(self) -> int:
        return int(self.raw.fileno())

    @property
    def version(self) -> int:
        return int(self.raw.info.server_version) // 10_000

    @property
    def is_cockroach(self) -> bool:
        return self.raw.pgconn.parameter_status(b"crdb_version") is not None

    def is_sound_after(self, error: BaseException) -> bool:
        """Else nobody knows what it is in the middle of."""
        return bool(self.raw.pgconn.transaction_status == TransactionStatus.IDLE)

    async def is_ready(self) -> bool:
        """A server that ended an idle session has said so, and only has to be heard: no round trip."""
        try:
            for _ in range(2):  # the last words, and the end of the stream behind them
                self.raw.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
        if not self.raw.autocommit:
            self.is_changed = True
            if (waiting := self.raw.set_autocommit(True)) is not None:
                await waiting
        return True

    async def restore(self) -> None:
        if self.raw.pgconn.transaction_status != TransactionStatus.IDLE:
            return  # it is not lent again
        if (waiting := self.raw.set_autocommit(False)) is not None:
            await waiting

    def __init__(self, raw: Any) -> None:
        super().__init__(raw)
        #: Made when they are first needed, and kept: each costs a fifth of a statement. One for what has no rows, and
        #: one as the connection makes them for its owner.
        self._cursor: Any = None
        self._owners: Any = None

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        raw, texts = self.raw, texts_of(self.raw, parameters)
        if texts:
            with raw.lock:
                if (name := name_of(raw, sql)) is not None:
                    raw.pgconn.send_query_prepared(name, texts)
                    # Where the session was ended right after, its end is a second answer.
                    *_, result = raw.wait(generators.execute(raw.pgconn))
                    return self._matched(result)
        cursor = self._cursor = self._cursor or psycopg.Cursor(raw, row_factory=tuple_row)
        cursor.execute(sql, for_cursor(cursor, texts) if texts else parameters or None)
        return int(cursor.rowcount)

    def _matched(self, result: PGresult) -> int:
        self._refuse_failed(result)
        return int(result.command_tuples or 0)

    async def run(self, sql: str, parameters: Sequence[object]) -> QueryResult:
        cursor = psycopg.Cursor(self.raw, row_factory=tuple_row).execute(sql, parameters or None, prepare=False)
        return QueryResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    async def command(self, *words: str) -> int:
        cursor = psycopg.Cursor(self.raw, row_factory=tuple_row)
        for each in words:
            cursor.execute(each, prepare=False)
        return cursor.rowcount

    async def send(self, words: str) -> None:
        """At a third of the cost of a cursor."""
        self._refuse_failed(self.raw.pgconn.exec_(words.encode()))

    def _refuse_failed(self, result: PGresult) -> None:
        if result.status in _FINE:
            return
        if self.raw.broken:
            raise psycopg.OperationalError(result.get_error_message())
        raise error_from_result(result)

    def _own_modes(self) -> str:
        raw = self.raw
        return modes_of(raw.isolation_level and raw.isolation_level.name, raw.read_only, raw.deferrable)

    async def query(self, sql: str, parameters: Any) -> QueryResult:
        cursor = self._owners_cursor().execute(sql, parameters or None)
        if cursor.description is None:
            return QueryResult([], cursor.rowcount)
        self._owners = None  # it would keep the rows
        return QueryResult(cursor.fetchall(), cursor.rowcount)

    def _owners_cursor(self) -> Any:
        if self._owners is None or self.is_exposed:  # who has the connection may change what it makes
            self._owners = self.raw.cursor()
        return self._owners

    async def commit(self) -> None:
        if self.raw.pgconn.transaction_status == TransactionStatus.INERROR:
            raise rolled_back()
        if (waiting := self.raw.commit()) is not None:
            await waiting

    def listening(self) -> PsycopgListening:
        return PsycopgListening(self, ThreadSignal())

    async def close(self) -> None:
        if (waiting := self.raw.close()) is not None:
            await waiting

    def drop(self) -> None:
        self.raw.pgconn.finish()


class AsyncPsycopgLink(PsycopgLink):
    """The same, awaited: what returns nothing there returns an awaitable here."""

    colour = Colour.ASYNC
    connections = (psycopg.AsyncConnection,)
    turn = TaskTurn
    home = asyncio.get_running_loop
    cancellations = staticmethod(cancellations)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        raw, texts = self.raw, texts_of(self.raw, parameters)
        if texts:
            async with raw.lock:
                if (name := name_of(raw, sql)) is not None:
                    raw.pgconn.send_query_prepared(name, texts)
                    return self._matched(await self._answer())
        cursor = self._cursor = self._cursor or psycopg.AsyncCursor(raw, row_factory=tuple_row)
        await heard(cursor.execute(sql, for_cursor(cursor, texts) if texts else parameters or None))
        return int(cursor.rowcount)

    async def run(self, sql: str, parameters: Sequence[object]) -> QueryResult:
        cursor = psycopg.AsyncCursor(self.raw, row_factory=tuple_row)
        await heard(cursor.execute(sql, parameters or None, prepare=False))
        return QueryResult(await cursor.fetchall() if cursor.description else [], cursor.rowcount)

    async def command(self, *words: str) -> int:
        cursor = psycopg.AsyncCursor(self.raw, row_factory=tuple_row)
        for each in words:
            await heard(cursor.execute(each, prepare=False))
        return cursor.rowcount

    async def send(self, words: str) -> None:
        raw = self.raw
        async with raw.lock:
            raw.pgconn.send_query(words.encode())
            result = await self._answer()
        self._refuse_failed(result)

    async def _answer(self) -> PGresult:
        """To the statement that was just sent, while this task has the connection's lock. As psycopg waits for it, but
        without a timer; a cancellation is heard, whatever the version."""
        pgconn = self.raw.pgconn
        answers = generators.execute(pgconn)
        try:
            awaited = next(answers)
            while True:
                is_readable = await arrived(pgconn.socket, writable=bool(awaited & Wait.W))
                awaited = answers.send(Ready.R if is_readable else Ready.W)
        except StopIteration as end:
            return end.value[-1]  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if pgconn.transaction_status == TransactionStatus.ACTIVE:  # it would stay in the middle of it
                with suppress(psycopg.Error):
                    await self.raw.cancel_safe(timeout=_ENOUGH)
                    await self.raw.wait(answers)
            raise

    async def commit(self) -> None:
        raw = self.raw
        if self.is_exposed:  # who has the connection may be in a block of its own, which psycopg knows
            await super().commit()
            return
        if raw.pgconn.transaction_status == TransactionStatus.INERROR:
            raise rolled_back()
        await self.send("COMMIT")

    async def query(self, sql: str, parameters: Any) -> QueryResult:
        cursor = self._owners_cursor()
        await heard(cursor.execute(sql, parameters or None))
        if cursor.description is None:
            return QueryResult([], cursor.rowcount)
        self._owners = None
        return QueryResult(await cursor.fetchall(), cursor.rowcount)

    def listening(self) -> PsycopgListening:
        return PsycopgListening(self, LoopSignal())


def over_engine(engine: Any) -> PostgresExecutor:
    """A SQLAlchemy engine over psycopg; its colour decides."""
    kind = AsyncPsycopgLink if engine.dialect.is_async else PsycopgLink
    return PostgresExecutor(kind, Engine(engine, kind))


def over_factory(connect: Callable[[], psycopg.Connection[Any]]) -> PostgresExecutor:
    """Connections that the user's own function opens."""

    async def connected(_: bool) -> Link:
        return PsycopgLink(connect())

    return PostgresExecutor(PsycopgLink, OwnPool(PsycopgLink, connected, asks=False))
