"""Events at a pace, and the time from each commit to its handler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from queue import SimpleQueue
from statistics import median
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
    """One round: milliseconds from each commit to its handler, and the processor time per event."""

    waits: list[float]
    #: The median from the end of the caller's block; below zero when the handler was faster than the way back.
    p50_after_block: float
    cpu_micros: float

    def percentile(self, share: float) -> float:
        return percentile(self.waits, share)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that is not exceeded by that share of them."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


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
        return Latency(waits, median(after_block), watch.sample(len(numbers)).cpu_micros)


@dataclass(frozen=True, slots=True)
class Plan:
    """How many events, and how many per second; 0: each waits until the one before it was handled."""

    count: int
    pace: int

    @property
    def numbers(self) -> range:
        return range(_WARM_UP + self.count)

    @property
    def warming_up(self) -> Plan:
        """A short one at the same pace."""
        return replace(self, count=_WARM_UP)

    def pause(self, number: int, start: float) -> float:
        """Seconds until this event's turn, by the plan and not by the event before it."""
        return 0.0 if not self.pace else start + number / self.pace - time.perf_counter()

    def __str__(self) -> str:
        return f"{self.pace:,}/s" if self.pace else "one at a time"


def beside(
    measure: str,
    variant: str,
    rival: str,
    ours: list[Latency],
    theirs: list[Latency] | None = None,
    *,
    goals: Sequence[Goal] = (),
) -> Line:
    """A line of p50, with the other percentiles in its details. p99.9 is taken over all rounds together."""
    p50 = [round_.percentile(0.5) for round_ in ours]
    line = Line(
        measure=measure,
        variant=variant,
        rival=rival,
        unit="ms p50",
        ours=Spread.of(p50),
        cpu_ours=Spread.of([round_.cpu_micros for round_ in ours]),
        goals=tuple(goals),
        details={"p99": tail(ours)["p99"], "ours": tail(ours)},
    )
    if theirs is None:
        return line
    beside = [round_.percentile(0.5) for round_ in theirs]
    return replace(
        line,
        theirs=Spread.of(beside),
        ratio=Spread.of([their / our for our, their in zip(p50, beside, strict=True)]),
        cpu_theirs=Spread.of([round_.cpu_micros for round_ in theirs]),
        details={**line.details, "theirs": tail(theirs)},
    )


def tail(rounds: list[Latency]) -> dict[str, float]:
    """Medians over the rounds; so rare an event as the last one needs all of them at once."""
    waits = [wait for round_ in rounds for wait in round_.waits]
    return {
        "p95": median([round_.percentile(0.95) for round_ in rounds]),
        "p99": median([round_.percentile(0.99) for round_ in rounds]),
        "p99.9": percentile(waits, 0.999),
        "events": len(waits),
        "p50_after_block": median([round_.p50_after_block for round_ in rounds]),
    }


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
