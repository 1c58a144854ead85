"""Blocking connections under asyncio: each lives on a thread of its own, and a job on it is one hop there and back."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from aftercommit.events.claims import QueryResult
from aftercommit.stores.sql.connections import KEPT, abandoned

T = TypeVar("T")


class BlockingConnection(Protocol):
    """What a connection does for those who steer it from elsewhere. All of it blocks."""

    @property
    def raw(self) -> Any: ...

    @property
    def is_in_transaction(self) -> bool | None:
        """None when it cannot be used any more."""
        ...

    def begin(self) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int: ...

    def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int: ...

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]: ...

    def query(self, sql: str, parameters: Any = ()) -> QueryResult: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=BlockingConnection)


class ConnectionThread(Generic[C]):
    """A connection and the daemon thread that it lives on. Two connections on one thread would wait for each other."""

    def __init__(self, open_connection: Callable[[], C], name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._open = open_connection
        self._connection: C | None = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    @property
    def connection(self) -> C:
        """For jobs on the thread: opened by the first of them."""
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    async def run(self, job: Callable[[C], T], after: Callable[[], None] | None = None) -> T:
        """Run on the thread. A cancelled caller leaves at once; the job goes on to its end, and `after` follows it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(value: T | None, error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(_resolve, future, value, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self.post(job, after, tell)
        return await future

    def post(
        self,
        job: Callable[[C], T],
        after: Callable[[], None] | None = None,
        tell: Callable[[T | None, BaseException | None], None] = lambda value, error: None,  # noqa: ARG005
    ) -> None:
        """Run on the thread after what it has to do, and go on."""

        def work() -> None:
            value: T | None = None
            error: BaseException | None = None
            try:
                value = job(self.connection)
            except BaseException as raised:
                error = raised
            if after is not None:
                after()
            tell(value, error)

        self._jobs.put(work)

    def is_clean(self) -> bool:
        return self._connection is None or self._connection.is_in_transaction is False

    def retire(self) -> None:
        """Close the connection on its thread and end the thread, after what it has to do."""
        if self._connection is not None:
            self.post(lambda connection: connection.close())
        self._jobs.put(None)

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)


def _resolve(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


class ConnectionThreads(ABC, Generic[C]):
    """The threads of an executor: made when needed, kept for the next, ended by `close`."""

    #: The first part of their names.
    thread_name: str

    def __init__(self) -> None:
        self._idle: list[ConnectionThread[C]] = []
        self._lent: set[ConnectionThread[C]] = set()
        self._generation = 0
        self._made = 0
        self._lock = threading.Lock()

    @abstractmethod
    def _open(self) -> C:
        """A connection, opened on its thread."""

    async def close(self) -> None:
        with self._lock:  # a thread that comes back now is either among these, or sees that it is late
            self._generation += 1
            retired, self._idle = self._idle, []
        for thread in retired:
            thread.retire()
        for thread in retired:  # idle threads end at once
            thread.join(1)

    def abandon(self) -> None:
        self._lock = threading.Lock()  # a thread of the parent may hold the old one
        self._generation += 1
        abandoned.extend((*self._idle, *self._lent))
        self._idle, self._lent = [], set()

    async def _run(self, job: Callable[[C], T]) -> T:
        """Run a job on a thread that is free; it is given back after the job, whoever still waits for it."""
        generation, thread = self._take()
        return await thread.run(job, after=lambda: self._give(generation, thread))

    def _take(self) -> tuple[int, ConnectionThread[C]]:
        if self._idle:
            thread = self._idle.pop()
        else:
            self._made += 1
            thread = ConnectionThread(self._open, f"{self.thread_name}-{self._made}")
        self._lent.add(thread)
        return self._generation, thread

    def _give(self, generation: int, thread: ConnectionThread[C]) -> None:
        is_clean = thread.is_clean()
        with self._lock:
            self._lent.discard(thread)
            is_kept = is_clean and generation == self._generation and len(self._idle) < KEPT
            if is_kept:
                self._idle.append(thread)
        if not is_kept:
            thread.retire()


class ThreadTransaction(Generic[C]):
    """A transaction that the user steers, on its connection's own thread. Savepoints are said by the database's own."""

    def __init__(self, thread: ConnectionThread[C], give_back: Callable[[], None]) -> None:
        self._thread = thread
        self._give_back = give_back
        self._is_lent = True

    async def begin(self) -> None:
        try:
            await self._thread.run(lambda connection: connection.begin())
        except BaseException:
            # A cancelled caller does not know whether it has begun; the thread does, and comes to this afterwards.
            self._thread.post(lambda connection: connection.rollback(), after=self._give_back)
            raise

    @property
    def connection(self) -> Any:
        return self._thread.connection.raw

    @property
    def is_open(self) -> bool:
        return self._is_lent and bool(self._thread.connection.is_in_transaction)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._thread.run(lambda connection: connection.execute(sql, parameters))

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return await self._thread.run(lambda connection: connection.execute_many(sql, parameters))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return await self._thread.run(lambda connection: connection.fetch(sql, parameters))

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return await self._thread.run(lambda connection: connection.query(sql, parameters))

    async def commit(self) -> None:
        await self._thread.run(self._commit)

    def _commit(self, connection: C) -> None:
        """In one hop: what waits for the commit should not have to wait for the connection as well."""
        connection.commit()
        self._return()

    async def end(self) -> None:
        if self._is_lent:
            await self._thread.run(self._end)

    def _end(self, connection: C) -> None:
        # A commit whose caller was cancelled has given it back, and somebody else may have it by now.
        if self._is_lent:
            try:
                connection.rollback()
            finally:
                self._return()

    def _return(self) -> None:
        self._is_lent = False
        self._give_back()
