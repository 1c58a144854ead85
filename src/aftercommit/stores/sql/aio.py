"""Blocking connections under asyncio: each lives on a thread of its own, and a job on it is one hop there and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from queue import SimpleQueue
from socket import SHUT_RDWR
from typing import Any, TypeVar

from aftercommit.events.claims import QueryResult
from aftercommit.ports import OpenTransaction, Tx
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.connections import Give, Link

T = TypeVar("T")

Job = Callable[[], Coroutine[Any, Any, T]]


class TaskTurn:
    """The turn of a task, in the line before a pool."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_come = asyncio.Event()

    async def comes(self, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._has_come.wait()
        except TimeoutError:
            return

    def call(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._has_come.set)
        except RuntimeError:  # the loop is closed
            return False
        return True


def cut(transport: Any) -> None:
    """End a connection of an event loop that has ended. Nothing else would, and the server would keep its session."""
    with suppress(Exception):
        transport.get_extra_info("socket").shutdown(SHUT_RDWR)
    with suppress(Exception):
        transport._call_connection_lost(None)  # as its loop would have done, or else there is a warning


class ThreadLink:
    """A link and the daemon thread that it lives on. Two on one thread would wait for each other.

    Jobs are coroutines of the blocking colour, which never suspend. A cancelled caller leaves at once; the job goes on
    to its end.
    """

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._is_dropped = False

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with suppress(BaseException):  # whoever waits has been told, and the thread goes on
                job()

    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], give: Give, *, writes: bool) -> T:
        """Whole on the thread: one hop, however many statements."""

        async def give_back(_: Link, *, is_sound: bool = True) -> None:
            await give(self, is_sound=is_sound)  # the pool has lent this, not the link on the thread

        return await self.hop(lambda: self._link.transact(work, give_back, writes=writes))

    async def begin(self, give: Give, isolation: str | None = None) -> ThreadTransaction:
        transaction = ThreadTransaction(self, give)
        await transaction.begin(self._link, isolation)
        return transaction

    async def hop(self, job: Job[T]) -> T:
        """Run a job on the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            value: T | None = None
            error: BaseException | None = None
            try:
                value = run(job())
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_resolve, future, value, error)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self.post(work)
        return await future

    def post(self, job: Callable[[], object]) -> None:
        """Run on the thread after what it has to do, and go on."""
        if self._thread.ident is None:
            self._thread.start()
        self._jobs.put(job)

    async def close(self) -> None:
        self.drop()
        if self._thread.ident is not None:
            self._thread.join(1)  # it is idle, and ends at once

    def drop(self) -> None:
        """Close the connection on its thread and end the thread, after what it has to do."""
        if not self._is_dropped:
            self._is_dropped = True
            self._jobs.put(self._link.drop)
            self._jobs.put(None)


def _resolve(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


class ThreadTransaction:
    """A transaction that the user steers, on its connection's own thread."""

    def __init__(self, link: ThreadLink, give: Give) -> None:
        self._link = link
        self._give = give
        #: The link has been given back, and may be somebody else's.
        self._is_over = False
        self._inner: OpenTransaction

    async def begin(self, link: Link, isolation: str | None) -> None:
        async def begin() -> None:
            self._inner = await link.begin(self._give_back, isolation)

        try:
            await self._link.hop(begin)
        except BaseException:
            # A cancelled caller does not know whether it has begun; the thread does, and comes to this afterwards.
            self._link.post(lambda: self._is_over or run(self._inner.end()))
            raise

    async def _give_back(self, _: Link, *, is_sound: bool = True) -> None:
        self._is_over = True
        await self._give(self._link, is_sound=is_sound)

    @property
    def connection(self) -> Any:
        return self._inner.connection

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self._link.hop(lambda: self._inner.execute(sql, parameters))

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        return await self._link.hop(lambda: self._inner.execute_many(sql, parameters))

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return await self._link.hop(lambda: self._inner.fetch(sql, parameters))

    async def query(self, sql: str, parameters: Any = ()) -> QueryResult:
        return await self._link.hop(lambda: self._inner.query(sql, parameters))

    async def savepoint(self, name: str) -> None:
        await self._link.hop(lambda: self._inner.savepoint(name))

    async def release(self, name: str) -> None:
        await self._link.hop(lambda: self._inner.release(name))

    async def rollback_to(self, name: str) -> None:
        await self._link.hop(lambda: self._inner.rollback_to(name))

    async def commit(self) -> None:
        """In one hop: what waits for the commit should not have to wait for the connection as well."""
        await self._link.hop(self._inner.commit)

    async def end(self) -> None:
        if not self._is_over:  # on somebody else's thread it would have to wait for them, for nothing
            await self._link.hop(self._inner.end)
