"""How soon after its commit an event reaches its handler.

The clock starts when the statement COMMIT has returned, in whatever thread it ran, and ends with the handler's first
line. Beside it: the same two inserts by hand, then the bare hand-off of the runtime to somebody who waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.paced import Arrivals, Latency, Plan, Times, beside, now, pace, pace_async
from bench.results import Goal, Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.sizes import Sizes

_GOALS: Final = (Goal("P6", "figure", 0.10), Goal("P6", "p99", 0.6))


def sqlite_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """Both runtimes, in the long form with either colour of handler; one event at a time and at the fastest pace."""
    rate = max(sizes.paces)
    lines = []
    for plan in (Plan(sizes.single, 0), Plan(sizes.paces[rate] // 2, rate)):
        rivals: dict[str, Rival[Latency]] = {
            "SimpleQueue to a parked thread": partial(_hand_threads, plan),
            "asyncio.Queue to a parked task": partial(_hand_asyncio, plan),
            "threads, sync handler": partial(_threads, plan, is_async=False),
            "asyncio, async handler": partial(_asyncio, plan, is_async=True),
        }
        if sizes.has_more:
            rivals["threads, async handler"] = partial(_threads, plan, is_async=True)
            rivals["asyncio, sync handler"] = partial(_asyncio, plan, is_async=False)
        samples = in_turn(rivals, sizes.rounds, workshop)
        bare = list(rivals)[:2]
        for name in list(rivals)[2:]:
            rival = bare[name.startswith("asyncio")]
            # The target is for a handler of the runtime's own colour.
            goals = _GOALS if name in ("threads, sync handler", "asyncio, async handler") else ()
            lines.append(
                beside(
                    "sqlite_latency", f"{name}, {plan}", f"{rival}, {plan}", samples[name], samples[rival], goals=goals
                )
            )
    return lines


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
        pace(plan, write, arrived)
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
                await pace_async(plan, write, arrived)
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
        pace(plan, write, arrived)
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
            await pace_async(plan, write, arrived)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return watch

    try:
        return times.latency(asyncio.run(whole()))
    finally:
        thread.shutdown()
        connection.close()
