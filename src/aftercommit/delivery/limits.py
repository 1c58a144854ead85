"""The limits of handlers: calls at the same time, calls in a time, and calls that outlived their timeout."""

from __future__ import annotations

from typing import Final

from aftercommit.handlers.options import HandlerSettings, Rate
from aftercommit.ports import Runtime

#: Nothing that has to wait comes back sooner.
SHORTEST: Final = 0.01

#: Sync calls of one handler that may be left behind after their timeout. Each is a thread that nobody can end.
LEFT_BEHIND_AT_MOST: Final = 8


class Bucket:
    """Starts that are left under a rate. Time is an argument; it never goes back."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = float(rate.count)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one may start now; if so, it is counted."""
        self._left = min(self._rate.count, self._left + (now - self._at) / self._rate.interval)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Queue:
    """Spreads those that have to wait: each comes again one interval behind the one before it."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def wait(self, now: float, interval: float) -> float:
        """Seconds until the next one in line should be tried."""
        self._last = max(now, self._last) + max(interval, SHORTEST)
        return self._last - now


class Limiter:
    """Lets calls of one handler in. Safe from any thread."""

    def __init__(self, runtime: Runtime, options: HandlerSettings) -> None:
        self._clock = runtime.clock
        self._lock = runtime.lock()
        self._at_once = options.concurrency
        self._rate = options.rate
        self._bucket = Bucket(options.rate, runtime.clock()) if options.rate else None
        self._queue = Queue()
        self._running = 0
        self.stuck = 0
        #: Seconds that a call takes, as far as is known.
        self._usual = 0.0

    def enter(self, *, must: bool = False) -> float | None:
        """None when a call may begin, which is then counted; else the seconds after which to ask again."""
        now = self._clock()
        with self._lock:
            if must:
                self._running += 1
                return None
            if self.stuck >= LEFT_BEHIND_AT_MOST:
                return self._queue.wait(now, 1.0)
            if self._at_once is not None and self._running + self.stuck >= self._at_once:
                return self._queue.wait(now, self._usual / self._at_once)
            if self._bucket is not None and self._rate is not None and not self._bucket.take(now):
                return self._queue.wait(now, self._rate.interval)
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
            self.stuck += 1

    def came_back(self) -> None:
        """It has ended after all."""
        with self._lock:
            self.stuck -= 1


class Limiters:
    """The limiters of all handlers that have limits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._limiters: dict[str, Limiter] = {}

    def of(self, handler_id: str, options: HandlerSettings | None) -> Limiter | None:
        if options is None or (options.timeout, options.concurrency, options.rate) == (None, None, None):
            return None
        limiter = self._limiters.get(handler_id)
        return limiter or self._limiters.setdefault(handler_id, Limiter(self._runtime, options))

    def stuck(self) -> dict[str, int]:
        """Handlers with calls that outlived their timeout and still run."""
        return {name: limiter.stuck for name, limiter in tuple(self._limiters.items()) if limiter.stuck > 0}
