"""Loops that go on: they survive their own errors, say so, and end when they are told to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from aftercommit.errors import StoreFull, StoreReadOnly, StoreUnavailable
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.ports import Monitor, Runtime, Task

log = Log("aftercommit.service")

#: Seconds to wait after the first error of a row of errors; doubled each time, up to the limit.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

#: Seconds between two lines about a failure that lasts.
SAID_EVERY = 60.0
STORE = "the store"

#: Seconds that a loop gets to end. One that waits for a store that does not answer is left behind.
ENDS_WITHIN = 5.0


class Service(ABC):
    """Runs `step` over and over on a task of its own. Starting twice and stopping twice are fine."""

    #: Whether events have to wait when it fails: only then does health call the outbox not ready.
    is_vital: ClassVar[bool] = True

    def __init__(self, runtime: Runtime, name: str, monitor: Monitor | None = None) -> None:
        """With a `monitor` of somebody else's, where what it waits for is told on that one."""
        self.runtime = runtime
        self.name = name
        self.monitor = runtime.monitor() if monitor is None else monitor
        self.is_stopping = False
        self.failures_in_a_row = 0
        #: When a step last came to its end, on the runtime's clock; health looks at it.
        self.progressed_at = runtime.clock()
        #: When one last came to any end.
        self.turned_at = self.progressed_at
        #: What is said of its failures; an engine has one for all of its loops.
        self.troubles = Troubles(runtime)
        self._task: Task | None = None

    @property
    def was_started(self) -> bool:
        return self._task is not None

    @property
    def is_running(self) -> bool:
        return self.was_started and not self.is_stopping

    @property
    def has_died(self) -> bool:
        """Whether it is over although nobody has told it to end. No error does that; a cancellation does."""
        return self._task is not None and self._task.has_ended and not self.is_stopping

    def start(self) -> None:
        if self._task is None:
            self._task = self.runtime.spawn(self.name, self._run)

    @abstractmethod
    async def step(self) -> None:
        """Wait for work and do some of it; return soon after `is_stopping` is set and the monitor notified."""

    async def _run(self) -> None:
        while not self.is_stopping:
            try:
                await self.step()
                if self.failures_in_a_row:
                    self.failures_in_a_row = 0
                    self.troubles.over(self.name)
                self.progressed_at = self.turned_at = self.runtime.clock()
            except Exception as error:
                await self._survive(error)

    async def _survive(self, error: Exception) -> None:
        self.failures_in_a_row += 1
        self.turned_at = self.runtime.clock()
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(self.failures_in_a_row, 12) - 1))
        self.troubles.begin(self.name, error)
        await self.monitor.wait_for(lambda: self.is_stopping, pause)

    async def stop(self, timeout: float | None = None) -> bool:
        """Whether it ended within the time."""
        with self.monitor:
            self.is_stopping = True
            self.monitor.notify_all()
        return self._task is None or await self._task.join(ENDS_WITHIN if timeout is None else timeout)


class Trouble:
    """One kind of failure, from its first to its end."""

    def __init__(self, now: float) -> None:
        self.since = self.said_at = now
        self.tries = 0
        self.loops: set[str] = set()


class Troubles:
    """What the log says of loops that fail: one line with the traceback when it begins, one when it is over, and one
    every minute between. A store that is away is one trouble, however many loops ask it. From any thread."""

    def __init__(self, runtime: Runtime, is_outage: Callable[[Exception], bool] = lambda _: False) -> None:
        """`is_outage` knows a driver's errors; ours are known here."""
        self._clock, self._lock = runtime.clock, runtime.lock()
        self._is_outage = is_outage
        #: By who is in trouble, the store or a loop, and a loop's by the kind of its error: each is said.
        self._now: dict[tuple[str, str], Trouble] = {}

    def begin(self, loop: str, error: Exception) -> None:
        """A step of this loop has failed, for the first time or again."""
        is_outage = isinstance(error, StoreUnavailable | StoreReadOnly | StoreFull) or self._is_outage(error)
        who, kind = (STORE, "") if is_outage else (loop, type(error).__name__)
        now = self._clock()
        with self._lock:
            trouble = self._now.setdefault((who, kind), Trouble(now))
            trouble.tries += 1
            trouble.loops.add(loop)
            tries, lasts = trouble.tries, now - trouble.since
            if is_due := tries > 1 and now - trouble.said_at >= SAID_EVERY:
                trouble.said_at = now
        if tries == 1:
            begins = "is away, and is asked again and again" if is_outage else "failed and goes on"
            log.error("%s %s: %s", who, begins, error_text(error), error=error, loop=loop)
        elif is_due:
            text = error_text(error)
            state = "is still away" if is_outage else "still fails"
            log.error("%s %s after %.0f s, %d failed tries: %s", who, state, lasts, tries, text, loop=loop)

    def over(self, loop: str) -> None:
        """It has done a step; what others of them have met may still be there."""
        with self._lock:
            for trouble in self._now.values():
                trouble.loops.discard(loop)
            over = {what: trouble for what, trouble in self._now.items() if not trouble.loops}
            for what in over:
                del self._now[what]
            now = self._clock()
        for (who, kind), trouble in over.items():
            back, lasted = "is back" if who == STORE else "works again", now - trouble.since
            log.info(
                "%s %s after %.3g s, %d failed tries", who, back, lasted, trouble.tries,
                loop=loop, error_type=kind or None, duration_ms=round(lasted * 1000, 3),
            )  # fmt: skip


class Countdown:
    """The time of one loop to end, for several that end one after the other."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._ends_at = runtime.clock() + ENDS_WITHIN

    def left(self) -> float:
        return max(0.0, self._ends_at - self._clock())


class Repeating(Service):
    """Does its work once in every interval, and sooner when it is called."""

    def __init__(self, runtime: Runtime, name: str, interval: timedelta) -> None:
        super().__init__(runtime, name)
        self.interval = interval.total_seconds()
        self._is_called = False

    @abstractmethod
    async def work(self) -> None: ...

    def call(self) -> None:
        """Do it now. From any thread."""
        with self.monitor:
            self._is_called = True
            self.monitor.notify_all()

    async def step(self) -> None:
        # After an error the pause is over already, and what waits for this work has no time for another interval.
        pause = 0.0 if self.failures_in_a_row else self.interval
        await self.monitor.wait_for(lambda: self.is_stopping or self._is_called, pause)
        self._is_called = False
        if not self.is_stopping:
            await self.work()
