"""asyncpg: its connections, pools and errors, and how it listens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

import asyncpg

from aftercommit.errors import OutboxError
from aftercommit.events.claims import QueryResult
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Colour
from aftercommit.stores.postgres.executor import PostgresExecutor
from aftercommit.stores.postgres.faults import ANSWER, fault_of_ours, fault_of_state, no_answer, none_free, rolled_back
from aftercommit.stores.postgres.lenders import Engine, GivenPool, OwnPool
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.loops import LoopSignal
from aftercommit.stores.sql.aio import TaskTurn, cut
from aftercommit.stores.sql.connections import PATIENCE
from aftercommit.stores.sql.execution import Fault

log = Log("aftercommit.postgres")

T = TypeVar("T")

_CHANGING: Final = re.compile(r"\s*(?:INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_RETURNING: Final = re.compile(r"\bRETURNING\b", re.IGNORECASE)

#: Seconds to take leave of a server that may be gone.
FAREWELL: Final = 1.0


def over_url(dsn: str) -> PostgresExecutor:
    """Over connections of the outbox's own. Without a statement cache behind a pooler: another session would not know
    what is prepared in one."""

    async def connected(is_direct: bool) -> Link:
        cache = {} if is_direct else {"statement_cache_size": 0}
        return AsyncpgLink(await asyncpg.connect(dsn, timeout=PATIENCE, **cache))

    return PostgresExecutor(AsyncpgLink, OwnPool(AsyncpgLink, connected))


def over_pool(pool: Any) -> PostgresExecutor:
    return PostgresExecutor(AsyncpgLink, GivenPool(AsyncpgPool(pool)))


def over_engine(engine: Any) -> PostgresExecutor:
    return PostgresExecutor(AsyncpgLink, Engine(engine, AsyncpgLink))


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


class AsyncpgLink(Link):
    """A connection of asyncpg, or what stands for one that a pool lent."""

    colour = Colour.ASYNC
    #: What a pool lends stands for a connection, and is no subclass of it.
    connections = (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)
    failed = asyncpg.InFailedSQLTransactionError
    is_one_trip = False
    turn = TaskTurn
    home = asyncio.get_running_loop
    fault_of = staticmethod(fault_of)

    @property
    def is_begun(self) -> bool:
        connection = getattr(self.raw, "_con", self.raw)
        return connection is not None and not connection.is_closed() and bool(connection.is_in_transaction())

    @property
    def is_active(self) -> bool:
        return self.is_begun  # asyncpg begins nothing by itself

    @property
    def mark(self) -> object:
        return getattr(getattr(self.raw, "_con", self.raw)._protocol, "queries_count", None)

    @property
    def is_gone(self) -> bool:
        """A pool takes back by itself what the server has ended; what stood for it then answers nothing more."""
        return getattr(self.raw, "_con", self.raw) is None or bool(self.raw.is_closed())

    @property
    def process(self) -> int:
        return int(self.raw.get_server_pid())

    @property
    def descriptor(self) -> int:
        return int(getattr(self.raw, "_con", self.raw)._transport.get_extra_info("socket").fileno())

    @property
    def version(self) -> int:
        return int(self.raw.get_server_version().major)

    @property
    def is_cockroach(self) -> bool:
        return hasattr(self.raw.get_settings(), "crdb_version")

    def is_sound_after(self, error: BaseException) -> bool:
        """Cancelled after the first half of a statement, the server waits for the other."""
        return isinstance(error, Exception)

    async def is_ready(self) -> bool:
        return not self.is_gone

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return _count_of(await self.raw.execute(sql, *parameters))

    async def run(self, sql: str, parameters: Sequence[object]) -> QueryResult:
        """Parsed anew, whatever the connection has cached, and under no name, which a pooler's session may have."""
        statement = await self.raw.prepare(sql, name="")
        rows = await statement.fetch(*parameters)
        return QueryResult(rows, _count_of(statement.get_statusmsg()))

    async def command(self, *words: str) -> int:
        return _count_of(await self.raw.execute("; ".join(words)))

    async def send(self, words: str) -> None:
        await self.raw.execute(words)

    async def query(self, sql: str, parameters: Any) -> QueryResult:
        """What returns no rows is prepared once, if the connection prepares at all: its plan has no type of rows that
        a change of the table could make wrong. It needs parameters: without, asyncpg takes several statements."""
        if parameters and _returns_nothing(sql):
            return QueryResult([], _count_of(await self.raw.execute(sql, *parameters)))
        statement = await self.raw.prepare(sql, name="")
        rows = await statement.fetch(*parameters)
        return QueryResult(rows, _count_of(statement.get_statusmsg()))

    async def commit(self) -> None:
        """A transaction in which a statement has failed answers COMMIT with ROLLBACK, and no error."""
        if await self.raw.execute("COMMIT") != "COMMIT":
            raise rolled_back()

    def listening(self) -> AsyncpgListening:
        return AsyncpgListening(self)

    async def close(self) -> None:
        if not self.is_gone:
            self.raw.terminate()

    async def leave(self) -> None:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            await self.raw.close(timeout=FAREWELL)

    def drop(self) -> None:
        if not self.is_gone:
            try:
                self.raw._loop.call_soon_threadsafe(self.raw.terminate)
            except RuntimeError:  # it is closed
                cut(self.raw._transport)


@lru_cache(maxsize=512)
def _returns_nothing(sql: str) -> bool:
    """Whether that is sure: a word in a literal may look like it were otherwise, which is no harm."""
    return _CHANGING.match(sql) is not None and _RETURNING.search(sql) is None


def _count_of(tag: str) -> int:
    """The rows of a command tag such as `INSERT 0 3`."""
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


class AsyncpgPool:
    """The user's pool of asyncpg."""

    timeout = PATIENCE  # pools of psycopg know theirs

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self._returning: set[asyncio.Task[None]] = set()

    async def take(self) -> Link:
        try:
            return AsyncpgLink(await self.pool.acquire(timeout=self.timeout))
        except TimeoutError as error:
            raise none_free(self.timeout) from error

    async def give(self, link: Link) -> None:
        """In the background: the pool resets a connection first, a round trip for which nobody should have to wait who
        waits for a commit."""
        returning = asyncio.create_task(self._give(link))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    async def _give(self, link: Link) -> None:
        try:
            await self.pool.release(link.raw)
        except Exception as error:
            log.debug("a connection did not survive its reset, and the pool has given it up: %s", error_text(error))

    async def apart(self) -> Link:
        return AsyncpgLink(await self.pool._get_new_connection())  # there is no public name for that

    async def check(self) -> None:
        await self.pool.expire_connections()

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        if here := [each for each in self._returning if each.get_loop() is loop]:
            await asyncio.wait(here)


class AsyncpgListening(LoopSignal):
    """Listens on a session of asyncpg, which calls back when something comes in: a raw one, not what a pool lends."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link, self._connection = link, link.raw
        self._heard: list[str] = []
        self._connection.add_termination_listener(lambda *_: self.wake())

    @property
    def descriptor(self) -> int:
        return self._link.descriptor

    async def is_direct(self) -> bool:
        return await self._answered(self._link.is_direct())

    async def listen(self, channel: str) -> None:
        await self._answered(self._connection.add_listener(channel, self._hear))

    async def _answered(self, question: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER):
                return await question
        except TimeoutError:
            self._connection.terminate()  # no farewell would be answered either
            raise no_answer() from None

    def _hear(self, _connection: Any, _process: int, _channel: str, message: str) -> None:
        self._heard.append(message)
        self.wake()

    def take(self) -> list[str]:
        if self._connection.is_closed():
            raise ConnectionResetError("PostgreSQL ended the connection that listens")
        heard, self._heard = self._heard, []
        return heard

    def drop(self) -> None:
        self._link.drop()

    async def close(self) -> None:
        self.wake()
        await self._link.leave()
        await asyncio.sleep(0)  # what has been cut goes when the loop comes round
