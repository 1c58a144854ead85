"""Loops that go on: they survive their own errors, say so, and end when they are told to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import ClassVar

from aftercommit.events.log import Log
from aftercommit.events.redact import traceback_text
from aftercommit.ports import Monitor, Runtime, Task

log = Log("aftercommit.service")

#: Seconds to wait after the first error of a row of errors; doubled each time, up to the limit.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

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
                self.failures_in_a_row = 0
                self.progressed_at = self.turned_at = self.runtime.clock()
            except Exception as error:
                await self._survive(error)

    async def _survive(self, error: Exception) -> None:
        self.failures_in_a_row += 1
        self.turned_at = self.runtime.clock()
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (min(self.failures_in_a_row, 12) - 1))
        log.error("%s failed and goes on in %.2f s: %s", self.name, pause, traceback_text(error))
        await self.monitor.wait_for(lambda: self.is_stopping, pause)

    async def stop(self, timeout: float | None = None) -> bool:
        """Whether it ended within the time."""
        with self.monitor:
            self.is_stopping = True
            self.monitor.notify_all()
        return self._task is None or await self._task.join(ENDS_WITHIN if timeout is None else timeout)


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
