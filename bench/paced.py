"""Events at a pace, and the time from each commit to its handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from statistics import quantiles
from typing import Any, Final

from bench.results import Goal, Line, Spread
from bench.rounds import Stopwatch

#: Events before those that count.
_WARM_UP: Final = 20

#: Seconds until an event that does not arrive fails the run.
_PATIENCE: Final = 30

now: Final = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Latency:
    """One round: milliseconds from the commit to the handler, and the processor time per event."""

    p50: float
    p95: float
    p99: float
    #: The same from the end of the caller's block; below zero when the handler was faster than the way back.
    p50_after_block: float
    cpu_micros: float


class Times:
    """When each event was committed, when its block was left, when its handler began."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.began: dict[str, int] = {}
        self.ids: dict[int, str] = {}

    def latency(self, watch: Stopwatch) -> Latency:
        numbers = [number for number in self.ids if number >= _WARM_UP]
        waits = [(self.began[self.ids[number]] - self.committed[number]) / 1e6 for number in numbers]
        after_block = [(self.began[self.ids[number]] - self.left[number]) / 1e6 for number in numbers]
        cuts = quantiles(waits, n=100, method="inclusive")
        return Latency(
            p50=cuts[49],
            p95=cuts[94],
            p99=cuts[98],
            p50_after_block=quantiles(after_block, n=2, method="inclusive")[0],
            cpu_micros=watch.sample(len(numbers)).cpu_micros,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """How many events, and how many per second; 0: each waits until the one before it was handled."""

    count: int
    pace: int

    @property
    def numbers(self) -> range:
        return range(_WARM_UP + self.count)

    def pause(self, number: int, start: float) -> float:
        """Seconds until this event's turn, by the plan and not by the event before it."""
        return 0.0 if not self.pace else start + number / self.pace - time.perf_counter()

    def __str__(self) -> str:
        return f"{self.pace:,}/s" if self.pace else "one at a time"


def beside(measure: str, variant: str, rival: str, ours: list[Latency], theirs: list[Latency]) -> Line:
    return Line(
        measure=measure,
        variant=variant,
        rival=rival,
        unit="ms p50",
        ours=Spread.of([round_.p50 for round_ in ours]),
        theirs=Spread.of([round_.p50 for round_ in theirs]),
        ratio=Spread.of([their.p50 / our.p50 for our, their in zip(ours, theirs, strict=True)]),
        cpu_ours=Spread.of([round_.cpu_micros for round_ in ours]),
        cpu_theirs=Spread.of([round_.cpu_micros for round_ in theirs]),
        goal=Goal("figure", target=0.2, aim=0.1),
        details={
            who: {
                name: Spread.of([getattr(round_, name) for round_ in rounds])
                for name in ("p95", "p99", "p50_after_block")
            }
            for who, rounds in (("ours", ours), ("theirs", theirs))
        },
    )


def pace(plan: Plan, write: Callable[[int], None], arrived: SimpleQueue[None]) -> None:
    start = time.perf_counter()
    for number in plan.numbers:
        if (pause := plan.pause(number, start)) > 0:
            time.sleep(pause)
        write(number)
        if not plan.pace:
            arrived.get(timeout=_PATIENCE)
    for _ in plan.numbers if plan.pace else ():
        arrived.get(timeout=_PATIENCE)


class Arrivals:
    """Handled events, counted from any thread and awaited on the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[None] = asyncio.Queue()

    def add(self) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, None)

    async def next(self) -> None:
        await asyncio.wait_for(self._queue.get(), _PATIENCE)


async def pace_async(plan: Plan, write: Callable[[int], Any], arrived: Arrivals) -> None:
    start = time.perf_counter()
    for number in plan.numbers:
        if (pause := plan.pause(number, start)) > 0:
            await asyncio.sleep(pause)
        await write(number)
        if not plan.pace:
            await arrived.next()
    for _ in plan.numbers if plan.pace else ():
        await arrived.next()
