"""Threads beside a worker for sync functions that have a timeout: nobody can end such a function, only leave it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from aftercommit.events.outcome import Result


class Job:
    """One call. Whoever waits for it may give up; then somebody else wants to hear of its end."""

    def __init__(self, function: Callable[[], Result], ended: Callable[[], None] | None) -> None:
        self._function = function
        self._ended = ended
        self._changed = threading.Condition()
        self._result: Result | None = None
        self._is_left = False

    def run(self) -> Result:
        return self._function()

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


class SideThreads:
    """Daemon threads, as many as calls run at the same time. One that was left behind serves again when it is free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy = 0

    def call(self, function: Callable[[], Result], timeout: float, ended: Callable[[], None] | None) -> Result | None:
        """Run it there and wait; None when the time is over first."""
        job = Job(function, ended)
        with self._lock:
            self._busy += 1
            if self._busy > len(self._threads):
                self._grow()
        self._jobs.put(job)
        return job.wait(timeout)

    def _grow(self) -> None:
        thread = threading.Thread(target=self._work, name=f"aftercommit-handler-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result = job.run()
            with self._lock:  # before anybody hears of it: who then closes finds this thread idle
                self._busy -= 1
            job.end(result)
            del job, result  # while it waits for the next, a thread keeps nothing of the last alive

    def close(self) -> None:
        """Idle threads end at once, one that runs a function after it."""
        with self._lock:
            threads, is_idle = self._threads, self._busy == 0
            self._threads = []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads if is_idle else ():
            thread.join(1)
