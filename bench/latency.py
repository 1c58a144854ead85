"""How soon after its commit an event reaches its handler.

The clock starts when the statement COMMIT has returned, in whatever thread it ran, and ends with the handler's first
line. Beside it: the same two inserts by hand, then the bare hand-off of the runtime to somebody who waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import quantiles
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.results import Goal, Line, Spread
from bench.rounds import Rival, Stopwatch, in_turn
from bench.sizes import Sizes

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


def latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """Both runtimes, both colours of handler, one event at a time and paced."""
    paces = {0: sizes.single, **sizes.paces}
    lines = []
    for pace, count in paces.items():
        plan = Plan(count, pace)
        rivals: dict[str, Rival[Latency]] = {
            "SimpleQueue to a parked thread": partial(_hand_threads, plan),
            "asyncio.Queue to a parked task": partial(_hand_asyncio, plan),
            "threads, sync handler": partial(_threads, plan, is_async=False),
            "threads, async handler": partial(_threads, plan, is_async=True),
            "asyncio, sync handler": partial(_asyncio, plan, is_async=False),
            "asyncio, async handler": partial(_asyncio, plan, is_async=True),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
        bare = list(rivals)[:2]
        for name in list(rivals)[2:]:
            rival = bare[name.startswith("asyncio")]
            lines.append(_line(f"{name}, {plan}", rival, samples[name], samples[rival]))
    return lines


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


def _line(variant: str, rival: str, ours: list[Latency], theirs: list[Latency]) -> Line:
    return Line(
        measure="latency",
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


# ---------------------------------------------------------------- ours


def _stamped(path: Path, times: Times) -> Callable[[], sqlite3.Connection]:
    """Opens connections that note when the transaction of a business row was committed."""

    class Stamped(sqlite3.Connection):
        order: int | None = None

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            cursor = super().execute(sql, parameters)
            if sql is hand.BUSINESS:
                self.order = parameters[0]
            elif sql == "COMMIT" and self.order is not None:
                times.committed[self.order], self.order = now(), None
            return cursor

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, check_same_thread=False, factory=Stamped)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    return connect


def _threads(plan: Plan, folder: Path, *, is_async: bool) -> Latency:
    times, arrived = Times(), SimpleQueue[None]()

    def handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.put(None)

    async def async_handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.put(None)

    def write(number: int) -> None:
        with outbox.transaction() as tx:
            tx.execute(hand.BUSINESS, hand.order(number))
            times.ids[number] = outbox.write("OrderPlaced", hand.payload(number))
        times.left[number] = now()

    outbox = Outbox(_stamped(hand.new_database(folder), times))
    outbox.register("OrderPlaced", async_handler if is_async else handler)
    with outbox, Stopwatch() as watch:
        _pace(plan, write, arrived)
    return times.latency(watch)


def _asyncio(plan: Plan, folder: Path, *, is_async: bool) -> Latency:
    times = Times()

    async def whole() -> Stopwatch:
        arrived = Arrivals()

        def handler(event: Any) -> None:
            times.began[event.event_id] = now()
            arrived.add()

        async def async_handler(event: Any) -> None:
            times.began[event.event_id] = now()
            arrived.add()

        async def write(number: int) -> None:
            async with outbox.transaction() as tx:
                await tx.execute(hand.BUSINESS, hand.order(number))
                times.ids[number] = await outbox.write("OrderPlaced", hand.payload(number))
            times.left[number] = now()

        outbox = AsyncOutbox(_stamped(hand.new_database(folder), times))
        outbox.register("OrderPlaced", async_handler if is_async else handler)
        async with outbox:
            with Stopwatch() as watch:
                await _pace_async(plan, write, arrived)
        return watch

    return times.latency(asyncio.run(whole()))


# ---------------------------------------------------------------- by hand


def _hand_threads(plan: Plan, folder: Path) -> Latency:
    times, arrived, handed = Times(), SimpleQueue[None](), SimpleQueue[str | None]()
    connection = hand.connect(hand.new_database(folder))

    def parked() -> None:
        while (event_id := handed.get()) is not None:
            times.began[event_id] = now()
            arrived.put(None)

    def write(number: int) -> None:
        event_id = times.ids[number] = str(number)
        hand.write(connection, number)
        times.committed[number] = now()
        handed.put(event_id)
        times.left[number] = now()

    thread = threading.Thread(target=parked)
    thread.start()
    with Stopwatch() as watch:
        _pace(plan, write, arrived)
    handed.put(None)
    thread.join()
    connection.close()
    return times.latency(watch)


def _hand_asyncio(plan: Plan, folder: Path) -> Latency:
    times = Times()
    connection, thread = hand.connect(hand.new_database(folder)), ThreadPoolExecutor(1)

    def commit(number: int) -> None:
        connection.execute("COMMIT")
        times.committed[number] = now()

    async def whole() -> Stopwatch:
        arrived, handed = Arrivals(), asyncio.Queue[str]()
        hop = partial(asyncio.get_running_loop().run_in_executor, thread)

        async def parked() -> None:
            while True:
                event_id = await handed.get()
                times.began[event_id] = now()
                arrived.add()

        async def write(number: int) -> None:
            event_id = times.ids[number] = str(number)
            await hop(connection.execute, "BEGIN IMMEDIATE")
            await hop(connection.execute, hand.BUSINESS, hand.order(number))
            await hop(hand.insert_event, connection, number)
            await hop(commit, number)
            handed.put_nowait(event_id)
            times.left[number] = now()

        task = asyncio.create_task(parked())
        with Stopwatch() as watch:
            await _pace_async(plan, write, arrived)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return watch

    try:
        return times.latency(asyncio.run(whole()))
    finally:
        thread.shutdown()
        connection.close()


# ---------------------------------------------------------------- pacing


def _pace(plan: Plan, write: Callable[[int], None], arrived: SimpleQueue[None]) -> None:
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


async def _pace_async(plan: Plan, write: Callable[[int], Any], arrived: Arrivals) -> None:
    start = time.perf_counter()
    for number in plan.numbers:
        if (pause := plan.pause(number, start)) > 0:
            await asyncio.sleep(pause)
        await write(number)
        if not plan.pace:
            await arrived.next()
    for _ in plan.numbers if plan.pace else ():
        await arrived.next()
