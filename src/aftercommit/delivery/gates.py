"""The limits of handlers: calls at the same time, calls in a time, and calls that outlived their timeout."""

from __future__ import annotations

from typing import Final

from aftercommit.delivery.limits import Bucket, Queue
from aftercommit.handlers.options import Declared
from aftercommit.ports import Runtime

#: Sync calls of one handler that may be left behind after their timeout. Each is a thread that nobody can end.
LEFT_BEHIND_AT_MOST: Final = 8


class Gate:
    """Lets calls of one handler in. Safe from any thread."""

    def __init__(self, runtime: Runtime, options: Declared) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._at_once = options.concurrency
        self._rate = options.rate
        self._bucket = Bucket(options.rate, runtime.clock()) if options.rate else None
        self._line = Queue()
        self._running = 0
        self._left_behind = 0
        #: Seconds that a call takes, as far as is known.
        self._usual = 0.0

    def enter(self, *, must: bool = False) -> float | None:
        """None when a call may begin, which is then counted; else the seconds after which to ask again."""
        now = self._clock()
        with self._lock:
            if must:
                self._running += 1
                return None
            if self._left_behind >= LEFT_BEHIND_AT_MOST:
                return self._line.wait(now, 1.0)
            if self._at_once is not None and self._running + self._left_behind >= self._at_once:
                return self._line.wait(now, self._usual / self._at_once)
            if self._bucket is not None and self._rate is not None and not self._bucket.take(now):
                return self._line.wait(now, self._rate.interval)
            self._running += 1
            return None

    def leave(self, took: float) -> None:
        """A call has ended, or is left behind."""
        with self._lock:
            self._running -= 1
            self._usual += (took - self._usual) / 8

    def left_behind(self) -> None:
        """A call still runs although its time is over."""
        with self._lock:
            self._left_behind += 1

    def came_back(self) -> None:
        """It has ended after all."""
        with self._lock:
            self._left_behind -= 1

    @property
    def stuck(self) -> int:
        return self._left_behind


class Gates:
    """The gates of all handlers that have limits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._gates: dict[str, Gate] = {}

    def of(self, handler_id: str, options: Declared | None) -> Gate | None:
        if options is None or (options.timeout, options.concurrency, options.rate) == (None, None, None):
            return None
        gate = self._gates.get(handler_id)
        return gate or self._gates.setdefault(handler_id, Gate(self._runtime, options))

    def stuck(self) -> dict[str, int]:
        """Handlers with calls that outlived their timeout and still run."""
        return {name: gate.stuck for name, gate in tuple(self._gates.items()) if gate.stuck > 0}
