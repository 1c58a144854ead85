"""The threads of the asyncio runtime in which sync functions of users run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from weakref import finalize

from aftercommit.events.outcome import Result
from aftercommit.runtime.colours import Limit


class HandlerThreads:
    """Daemon threads for sync functions, started when first needed. Never the loop's default executor: a function
    that is stuck there would hold `asyncio.run` open."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._left: set[asyncio.Future[Result]] = set()
        finalize(self, _dismiss, self._jobs, self._threads)

    async def call(
        self, loop: asyncio.AbstractEventLoop, function: Callable[[], Result], limit: Limit | None = None
    ) -> Result:
        future: asyncio.Future[Result] = loop.create_future()

        def job() -> None:
            result = function()
            tell(loop, self._ended, future, result, limit)

        self._busy += 1
        if self._busy > len(self._threads) and len(self._threads) < self._count:
            self._grow()
        self._jobs.put(job)
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
            self._count += 1
            self._left.add(future)
            future.set_result(limit.over(still_runs=True))

    def _ended(self, future: asyncio.Future[Result], result: Result, limit: Limit | None) -> None:
        """A thread is free again, also when the caller was cancelled long ago."""
        self._busy -= 1
        if not future.done():
            future.set_result(result)
        elif limit is not None and future in self._left:
            self._count -= 1
            self._left.discard(future)
            if limit.ended is not None:
                limit.ended()

    def _grow(self) -> None:
        thread = threading.Thread(
            target=_work, args=(self._jobs,), name=f"aftercommit-handler-{len(self._threads)}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    async def close(self) -> None:
        _dismiss(self._jobs, self._threads)
        if self._busy == 0:  # all of them are idle and end at once; one that runs a function is left behind
            for thread in self._threads:
                thread.join(1)
        self._threads.clear()


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # while it waits for the next, a thread keeps nothing of the last alive


def _dismiss(jobs: SimpleQueue[Callable[[], None] | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        jobs.put(None)


def tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    """Run a callback on the loop from any thread; a loop that is closed has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        return
