"""Daemon threads for users' sync functions: those of an asyncio program, and those that have a timeout."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import finalize

from aftercommit.events.outcome import Result
from aftercommit.runtime.colours import Limit

if TYPE_CHECKING:  # a blocking program never loads it
    import asyncio


class DaemonThreads:
    """Daemon threads for sync functions of users, started when first needed, as many as calls run at the same time."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        finalize(self, _dismiss, self._jobs, self._threads)

    def start(self, function: Callable[[], Result], end: Callable[[Result], None]) -> None:
        """Run a function there and pass on, there as well, what it gave."""

        def job() -> None:
            result = function()
            with self._lock:  # before anybody hears of it: who then closes finds this thread idle
                self._busy -= 1
            end(result)

        with self._lock:
            self._busy += 1
            if len(self._threads) < min(self._busy, self._most):
                name = f"aftercommit-handler-{len(self._threads)}"
                thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """Idle threads end at once, one that runs a function after it."""
        with self._lock:
            threads, is_idle = list(self._threads), self._busy == 0
            self._threads.clear()
        _dismiss(self._jobs, threads)
        for thread in threads if is_idle else ():
            thread.join(1)


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # while it waits for the next, a thread keeps nothing of the last alive


def _dismiss(jobs: SimpleQueue[Callable[[], None] | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        jobs.put(None)


class HandlerThreads(DaemonThreads):
    """Where sync functions of users run. Never the loop's default executor: a function that is stuck there would hold
    `asyncio.run` open."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._left: set[asyncio.Future[Result]] = set()

    async def call(
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], Result], limit: Limit | None = None
    ) -> Result:
        future: asyncio.Future[Result] = loop.create_future()
        self.start(function, lambda result: tell(loop, self._ended, future, result, limit))
        if limit is None:
            return await future
        timer = loop.call_later(limit.timeout, self._leave, future, limit)
        try:
            return await future
        finally:
            timer.cancel()

    def _leave(self, future: asyncio.Future[Result], limit: Limit) -> None:
        """The time is over and the thread is not free: another may be started in its place."""
        if not future.done():
            self._most += 1
            self._left.add(future)
            future.set_result(limit.over(still_runs=True))

    def _ended(self, future: asyncio.Future[Result], result: Result, limit: Limit | None) -> None:
        """A function has ended, perhaps long after its caller was cancelled."""
        if not future.done():
            future.set_result(result)
        elif limit is not None and future in self._left:
            self._most -= 1
            self._left.discard(future)
            if limit.ended is not None:
                limit.ended()


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """Run a callback on the loop from any thread; a loop that is closed has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        return
