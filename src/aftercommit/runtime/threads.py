"""The blocking runtime: colourless coroutines are stepped once, in threads, over calls that never suspend."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from aftercommit.events.outcome import NOTHING, Raised, Result
from aftercommit.ports import Colour
from aftercommit.runtime.colours import Limit, awaited, called, called_async, is_async, returned
from aftercommit.runtime.handler_threads import DaemonThreads
from aftercommit.runtime.process import boottime, end_child, here

if TYPE_CHECKING:
    from aftercommit.runtime.portal import LoopPortal

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The value of a coroutine that never suspends. One that does is closed and refused at once."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} suspended in the blocking runtime: an async driver or store was used there")


class ThreadTokens(threading.local):
    """An object for each thread. Not its number: that one is used again when the thread is over."""

    def __init__(self) -> None:
        self.token = object()


_threads = ThreadTokens()


class ThreadMonitor(threading.Condition):
    """A condition variable whose wait is spelled `await`."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:  # type: ignore[override]
        with self:
            return super().wait_for(predicate, timeout)


class ThreadTask:
    """A daemon thread that runs one coroutine to its end."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._thread = threading.Thread(target=lambda: run(main()), name=name, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    async def join(self, timeout: float | None) -> bool:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()


class ThreadRuntime:
    """Everything beside the caller is a thread; async functions of users run on one loop thread."""

    colour = Colour.BLOCKING

    def __init__(self) -> None:
        self.clock = boottime
        #: Asked several times for each write, so it is no function of ours.
        self.identity: Callable[[], object] = partial(getattr, _threads, "token")
        self._lock = threading.Lock()
        self._portal: LoopPortal | None = None
        self._side: DaemonThreads | None = None
        #: Remembered here, not for all: what a handler closes over, its outbox for one, would be kept for good.
        self._knows_async = lru_cache(maxsize=1024)(is_async)

    def is_here(self) -> bool:
        return True

    def is_gone(self) -> bool:
        return False

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def monitor(self) -> ThreadMonitor:
        return ThreadMonitor()

    def spawn(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> ThreadTask:
        return ThreadTask(name, main)

    async def call(
        self,
        function: Callable[..., object],
        *arguments: object,
        context: Context,
        timeout: float | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Result:
        limit = None if timeout is None else Limit(function, timeout, ended)
        try:
            is_coroutine = self._knows_async(function)
        except TypeError:  # an unhashable callable
            is_coroutine = is_async(function)
        if is_coroutine:
            return self._on_loop(called_async(function, arguments), context, limit)
        if limit is None:
            process = here.token
            try:
                value = context.run(function, *arguments)
                result = NOTHING if value is None else returned(function, value)
            except BaseException as error:  # nothing but a Result may leave the call
                result = Raised(error)
            if here.token is not process:
                end_child(result)
        else:
            result = self._beside(limit, lambda: context.run(called, function, arguments))
        if isinstance(result, Raised):
            is_main = threading.current_thread() is threading.main_thread()
            if is_main and isinstance(result.error, KeyboardInterrupt):
                raise result.error  # Ctrl-C is for the program, not for the handler that happened to run
        elif result.value is not None and inspect.isawaitable(result.value):
            return self._on_loop(awaited(function, result.value), context, limit)
        return result

    def _beside(self, limit: Limit, function: Callable[[], Result]) -> Result:
        with self._lock:
            if self._side is None:
                self._side = DaemonThreads()
            side, call = self._side, SideCall(limit.ended)
        side.start(function, call.end)
        return call.wait(limit.timeout) or limit.over(still_runs=True)

    def _on_loop(self, coroutine: Coroutine[Any, Any, Result], context: Context, limit: Limit | None) -> Result:
        """Run on the loop thread and wait for its real end, also when `interrupt` cancels it."""
        with self._lock:
            if self._portal is None:
                # Here, so that a program without async functions never loads asyncio.
                from aftercommit.runtime.portal import LoopPortal  # noqa: PLC0415

                self._portal = LoopPortal()
            portal = self._portal
        return portal.call(coroutine, context, limit)

    def interrupt(self) -> None:
        if self._portal is not None:
            self._portal.interrupt()

    async def shielded(
        self, work: Coroutine[Any, Any, T], hurry: Callable[[], None] | None = None, limit: float | None = None
    ) -> T:
        return await work

    async def close(self) -> None:
        with self._lock:
            portal, self._portal = self._portal, None
            side, self._side = self._side, None
        if portal is not None:
            portal.close()
        if side is not None:
            side.close()


class SideCall:
    """A call of a sync function that has a timeout, beside the worker: nobody can end it, only leave it. Then somebody
    else wants to hear of its end."""

    def __init__(self, ended: Callable[[], None] | None) -> None:
        self._ended = ended
        self._changed = threading.Condition()
        self._result: Result | None = None
        self._is_left = False

    def end(self, result: Result) -> None:
        """Tell whoever waits, or else whoever wants to hear of it."""
        with self._changed:
            self._result = result
            self._changed.notify_all()
            is_left = self._is_left
        if is_left and self._ended is not None:
            self._ended()

    def wait(self, timeout: float) -> Result | None:
        """What it gave; None when it is left behind."""
        with self._changed:
            self._changed.wait_for(lambda: self._result is not None, timeout)
            self._is_left = self._result is None
            return self._result
