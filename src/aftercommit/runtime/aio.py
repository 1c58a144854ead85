"""The asyncio runtime: colourless coroutines are ordinary tasks; sync functions of users run in daemon threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import lru_cache
from typing import Any, Final, TypeVar

from aftercommit.events.outcome import Ok, Raised, Result
from aftercommit.ports import Colour
from aftercommit.runtime.colours import GRACE, Limit, Steps, awaited, called, called_async, is_async
from aftercommit.runtime.handler_threads import HandlerThreads, tell
from aftercommit.runtime.process import boottime

T = TypeVar("T")

#: Seconds for which functions that wait for nothing may keep the rest of the program from running.
LONGEST_TURN: Final = 0.001


class AsyncioMonitor:
    """A mutex for any thread, and a waiting room for the tasks of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._mutex = threading.Lock()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._mutex.release()

    def notify(self, count: int = 1) -> None:
        here = _running_loop() is self._loop
        while count > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if here and waiter.done():
                continue
            count -= 1
            if here:
                waiter.set_result(None)
            else:
                tell(self._loop, self._wake, waiter)

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
            return
        # It gave up between the notify and now; somebody else has to hear it.
        with self._mutex:
            self.notify()

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        limit = None if timeout is None else self._loop.time() + timeout
        while True:
            with self._mutex:
                value = predicate()
                if value or (limit is not None and self._loop.time() >= limit):
                    return value
                waiter = self._loop.create_future()
                self._waiters.append(waiter)
            try:
                await _until(waiter, limit, self._loop)
            except BaseException:
                # A wake-up that a cancelled waiter will not use belongs to somebody else.
                with self._mutex:
                    if waiter.done() and not waiter.cancelled():
                        self.notify()
                raise
            finally:
                with self._mutex:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)


async def _until(waiter: asyncio.Future[None], limit: float | None, loop: asyncio.AbstractEventLoop) -> None:
    """Wait for a wake-up or the limit, whichever comes first. A waiter that timed out is resolved, so it is skipped."""
    if limit is None:
        await waiter
        return
    timer = loop.call_at(limit, lambda: None if waiter.done() else waiter.set_result(None))
    try:
        await waiter
    finally:
        timer.cancel()


class AsyncioTask:
    """A task that runs one coroutine to its end."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    async def join(self, timeout: float | None) -> bool:
        if not self._task.done() and self._task is not asyncio.current_task():
            await asyncio.wait({self._task}, timeout=timeout)
        return self._task.done()


class AsyncioRuntime:
    """Everything beside the caller is a task of the loop that is running when the runtime is made."""

    colour = Colour.ASYNC

    def __init__(self, thread_count: int) -> None:
        self.clock = boottime
        self._loop = asyncio.get_running_loop()
        self._threads = HandlerThreads(thread_count)
        #: Tasks of our own. Each runs one async function of a user's at a time, and so needs no other task for it.
        self._own: set[asyncio.Task[Any]] = set()
        self._running: set[asyncio.Task[Any]] = set()
        self._interrupted: set[asyncio.Task[Any]] = set()
        #: Who waits for a shielded task that may be hurried.
        self._behind: dict[asyncio.Task[Any] | None, asyncio.Task[Any] | None] = {}
        self._others_run_at = 0.0
        #: Remembered here, not for all: what a handler closes over, its outbox for one, would be kept for good.
        self._knows_async = lru_cache(maxsize=1024)(is_async)

    def identity(self) -> object:
        try:
            return asyncio.current_task()
        except RuntimeError:  # another thread, with no loop of its own
            return None

    def is_here(self) -> bool:
        return _running_loop() is self._loop

    def is_gone(self) -> bool:
        return self._loop.is_closed()

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def monitor(self) -> AsyncioMonitor:
        return AsyncioMonitor(self._loop)

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> AsyncioTask:
        task = self._loop.create_task(main(), name=name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return AsyncioTask(task)

    def call(
        self,
        function: Callable[..., object],
        *arguments: object,
        context: Context,
        timeout: float | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Coroutine[Any, Any, Result]:
        limit = None if timeout is None else Limit(function, timeout, ended)
        try:
            is_coroutine = self._knows_async(function)
        except TypeError:  # an unhashable callable
            is_coroutine = is_async(function)
        if not is_coroutine:
            return self._in_thread(function, arguments, context, limit)
        # Of this loop, which is the one that runs: to find that out costs a system call.
        coroutine, task = called_async(function, arguments), asyncio.current_task(self._loop)
        if limit is None and task is not None and task in self._own:
            return self._in_own_task(task, coroutine, context)
        return self._as_task(coroutine, context, limit)

    async def _in_thread(
        self, function: Callable[..., object], arguments: tuple[object, ...], context: Context, limit: Limit | None
    ) -> Result:
        result = await self._threads.call(self._loop, lambda: context.run(called, function, arguments), limit)
        if isinstance(result, Ok) and result.value is not None and inspect.isawaitable(result.value):
            return await self._as_task(awaited(function, result.value), context, limit)
        return result

    async def _in_own_task(
        self, task: asyncio.Task[Any], coroutine: Coroutine[Any, Any, Result], context: Context
    ) -> Result:
        """In the caller's task, step by step in the function's own context. Most functions take few steps, and a task
        for each would cost more than they do."""
        before = task.cancelling()
        try:
            first = context.run(coroutine.send, None)
        except StopIteration as stop:  # it did not wait for anything
            result: Result = stop.value
        else:
            self._running.add(task)
            try:
                result = await Steps(coroutine, context, first)
            finally:
                self._running.discard(task)
        is_interrupted = task in self._interrupted
        if is_interrupted:
            self._interrupted.discard(task)
            task.uncancel()
            if isinstance(result, Raised):
                result = Raised(result.error, interrupted=True)
        if task.cancelling() > before:
            await self._cancelled(task, before)
        if self.clock() >= self._others_run_at:
            self._others_run_at = self.clock() + LONGEST_TURN
            await asyncio.sleep(0)
        return result

    async def _cancelled(self, task: asyncio.Task[Any], before: int) -> None:
        """Somebody has asked this task to end. A loop that comes to its end asks all of ours. One alone was asked by
        the function that it ran, or by a timeout in there: that was meant for the function, and that has ended."""
        if all(own.cancelling() for own in self._own):
            raise asyncio.CancelledError
        while task.cancelling() > before:
            task.uncancel()
        with suppress(asyncio.CancelledError):  # of a request that came too late for the function
            await asyncio.sleep(0)

    async def _as_task(self, coroutine: Coroutine[Any, Any, Result], context: Context, limit: Limit | None) -> Result:
        task = self._loop.create_task(coroutine, context=context)
        self._running.add(task)
        cancellations = _cancellations()
        try:
            result = await (task if limit is None else _within(limit, task))
        except asyncio.CancelledError:
            # Either we are being cancelled, or the task never came to its first step.
            if not task.cancelled():
                task.cancel()
                raise
            result = Raised(asyncio.CancelledError())
        finally:
            self._running.discard(task)
        if _cancellations() > cancellations:
            # The caller was cancelled, not the function: asyncio passed it on to the task, which made a result of it.
            raise asyncio.CancelledError
        if task in self._interrupted:
            self._interrupted.discard(task)
            if isinstance(result, Raised):
                return Raised(result.error, interrupted=True)
        return result

    def interrupt(self) -> None:
        me = asyncio.current_task()
        for task in self._running - {me, self._behind.get(me)}:  # a function that closes its own outbox goes on
            # One that has ended cannot be cancelled any more: how it ended is its own doing.
            if task.cancel():
                self._interrupted.add(task)

    async def shielded(
        self, work: Coroutine[Any, Any, T], hurry: Callable[[], None] | None = None, limit: float | None = None
    ) -> T:
        task = self._loop.create_task(work)
        if hurry is not None:
            self._behind[task] = asyncio.current_task()
            task.add_done_callback(self._behind.pop)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
                if hurry is not None:
                    hurry()
                if limit is not None:
                    self._loop.call_later(limit, task.cancel)
            except BaseException:
                break
        if cancelled is not None:
            if not task.cancelled():
                task.exception()  # seen; the cancellation goes first
            raise cancelled
        return task.result()

    async def close(self) -> None:
        self._threads.close()


async def _within(limit: Limit, task: asyncio.Task[Result]) -> Result:
    """The task's result; it is cancelled when its time is over, and left behind when that does not end it."""
    if (await asyncio.wait({task}, timeout=limit.timeout))[0]:
        return task.result()
    task.cancel()
    if not (await asyncio.wait({task}, timeout=GRACE))[0]:
        task.add_done_callback(lambda _: None if limit.ended is None else limit.ended())
        return limit.over(still_runs=True)
    result = Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
    return limit.over(still_runs=False) if isinstance(result, Raised) else result


def _cancellations() -> int:
    """How often the current task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
