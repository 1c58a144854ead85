"""The one event loop of the blocking runtime: async functions of users run on its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import Context
from typing import Any, TypeVar

from aftercommit.events.log import Log
from aftercommit.events.outcome import Raised, Result
from aftercommit.events.redact import error_text
from aftercommit.runtime.colours import GRACE, Limit

log = Log("aftercommit.runtime")

T = TypeVar("T")


class LoopPortal:
    """A loop on a daemon thread, and the calls that are on it now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[LoopCall] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="aftercommit-loop", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Result], context: Context, limit: Limit | None = None) -> Result:
        """Run it there and wait for its end, or for that of its time."""
        with self._lock:  # known before it can run: an interrupt must not miss it
            call = LoopCall(self._loop, coroutine, context)
            self._running.add(call)
        try:
            return call.result() if limit is None else call.result_within(limit)
        finally:
            with self._lock:
                self._running.discard(call)

    def interrupt(self) -> None:
        with self._lock:
            running = list(self._running)
        for call in running:
            call.interrupt()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not threading.current_thread():  # a function may close its own outbox
            self._thread.join(1)


class LoopCall:
    """One async function on the loop thread. It has a task of its own: it starts in the event's context, and a
    cancellation reaches only it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Result], context: Context
    ) -> None:
        self._loop = loop
        self._ended: Future[Result] = Future()
        self._task: asyncio.Task[Result] | None = None
        self._interrupted = self._expired = False
        loop.call_soon_threadsafe(self._begin, coroutine, context)

    def _begin(self, coroutine: Coroutine[Any, Any, Result], context: Context) -> None:
        self._task = self._loop.create_task(coroutine, context=context)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Result]) -> None:
        # Cancelled before its first step, a task has nothing to return.
        self._ended.set_result(Raised(asyncio.CancelledError()) if task.cancelled() else task.result())

    def result(self) -> Result:
        result = self._ended.result()
        if self._interrupted and isinstance(result, Raised):
            return Raised(result.error, interrupted=True)
        return result

    def result_within(self, limit: Limit) -> Result:
        """As `result`; cancelled when its time is over, and left behind when that does not end it."""
        if wait({self._ended}, limit.timeout).done:
            return self.result()
        self._loop.call_soon_threadsafe(self._expire)
        if not wait({self._ended}, GRACE).done:
            self._ended.add_done_callback(lambda _: None if limit.ended is None else limit.ended())
            return limit.over(still_runs=True)
        result = self.result()
        is_over = self._expired and isinstance(result, Raised) and not result.interrupted
        return limit.over(still_runs=False) if is_over else result

    def interrupt(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A task that has ended cannot be cancelled any more: how it ended is its own doing.
        if self._task is not None and self._task.cancel():
            self._interrupted = True

    def _expire(self) -> None:
        if self._task is not None and self._task.cancel():
            self._expired = True


def run_beside(coroutine: Coroutine[Any, Any, T]) -> T:
    """To its end on a loop of its own, in a thread of its own: the caller's loop, if there is one, is busy with it."""
    with ThreadPoolExecutor(1, "aftercommit-beside") as beside:
        return beside.submit(asyncio.run, coroutine).result()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        _run_until_stopped(loop)
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _run_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException as error:
            # SystemExit or KeyboardInterrupt in a task that a handler started; asyncio lets them out of the loop.
            log.error("a task on the loop of async handlers tried to end it: %s", error_text(error), error=error)
        else:
            return
