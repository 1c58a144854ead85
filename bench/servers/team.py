"""Processes that deliver, seen from the one that measures."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, Self

import msgspec

from bench.rounds import Sample, Stopwatch
from bench.servers.worker import Report

#: Seconds between two looks at the table, which is the only witness that does not slow the workers down.
_LOOK: Final = 0.005

#: Seconds until something that does not happen fails the measure.
PATIENCE: Final = 120


class Backlog(Protocol):
    """Where rows wait, as a place of any server has them."""

    @property
    def fill(self) -> Callable[..., None]: ...

    def is_pending(self) -> bool: ...

    def dead(self) -> int: ...


class Worker:
    """One process; everything that it says is an answer."""

    def __init__(self, module: str) -> None:
        command = [sys.executable, "-m", module]
        self._process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def take(self, job: Any) -> None:
        self._tell(msgspec.json.encode(job).decode())

    def ready(self) -> None:
        assert self._process.stdout.readline() == "ready\n", "a worker did not come up"

    def go(self) -> None:
        self._tell("go")

    def report(self, word: str = "report") -> Report:
        self._tell(word)
        return msgspec.json.decode(self._process.stdout.readline(), type=Report)

    def stop(self) -> Report:
        """What it did; it can take another job."""
        return self.report("stop")

    def end(self, patience: float) -> None:
        """Whatever it does."""
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _tell(self, text: str) -> None:
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()


class Team:
    """As many processes as were ever needed at once, kept from round to round."""

    def __init__(self, module: str = "bench.servers.worker") -> None:
        self._module = module
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Nobody waits for workers of a measure that has failed: its databases have to go."""
        for worker in self._workers:
            worker.end(0 if kind else PATIENCE)

    def take(self, *jobs: Any) -> list[Worker]:
        """One for each job, all of them ready."""
        self._workers += [Worker(self._module) for _ in jobs[len(self._workers) :]]
        busy = self._workers[: len(jobs)]
        for worker, job in zip(busy, jobs, strict=True):
            worker.take(job)
        for worker in busy:
            worker.ready()
        return busy

    def drained(self, place: Backlog, rows: int, *jobs: Any, **filling: Any) -> Sample:
        """A backlog from NEW to DONE; the processor time is that of all these processes."""
        place.fill(rows, **filling)
        busy = self.take(*jobs)
        with Stopwatch() as watch:
            for worker in busy:
                worker.go()
            until(lambda: not place.is_pending())
        cpu = sum(worker.stop().cpu for worker in busy)
        assert place.dead() == 0
        return Sample(rows, watch.wall, cpu)


def until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < limit, "the workers do not come to an end"
        time.sleep(_LOOK)
