"""How soon after its commit on a server an event reaches its handler.

The clock starts when the driver has the server's answer to COMMIT, and ends with the handler's first line. Beside it:
the same two inserts by hand, then the bare hand-off to somebody who waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.paced import Arrivals, Latency, Plan, Times, beside, now, pace, pace_async
from bench.results import Goal, Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.hand_postgres import BUSINESS, numbered
from bench.servers.places import Postgres
from bench.servers.stamps import ASYNC_STAMPS, ThreadStamps
from bench.sizes import Sizes

GOALS: Final = (Goal("P6", "figure", 0.10), Goal("P6", "p99", 0.6))


def postgres_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """At each pace, on each driver; the bare hand-off once for each runtime."""
    lines = []
    with Postgres.opened() as place:
        for rate, count in sizes.paces.items():
            plan = Plan(count, rate)
            samples = in_turn(_rivals(place, plan), sizes.rounds, workshop, warm_up=_rivals(place, plan.warming_up))
            lines += [
                beside(
                    "postgres_latency", f"{name}, {plan}", f"{bare}, {plan}", samples[name], samples[bare], goals=GOALS
                )
                for name, bare in (
                    ("psycopg", "a parked thread"),
                    ("psycopg async", "a parked task"),
                    ("asyncpg", "a parked task"),
                )
            ]
    return lines


def _rivals(place: Postgres, plan: Plan) -> dict[str, Rival[Latency]]:
    return {
        **{name: Writing(place, plan).by(name) for name in ("psycopg", "psycopg async", "asyncpg")},
        "a parked thread": partial(_hand_threads, plan, place),
        "a parked task": partial(_hand_tasks, plan, place),
    }


# ---------------------------------------------------------------- ours


@dataclass(frozen=True, slots=True)
class Writing:
    """A program that writes at a pace through a pool of its own, and delivers what it wrote."""

    place: Postgres
    plan: Plan
    options: dict[str, Any] = field(default_factory=dict)
    #: So many keys; 0: none.
    keys: int = 0

    def _key(self, number: int) -> str | None:
        return f"key-{number % self.keys}" if self.keys else None

    def threads(self, _: Path) -> Latency:
        times, arrived, stamps = Times(), SimpleQueue[None](), ThreadStamps()

        def handler(event: Any) -> None:
            times.began[event.event_id] = now()
            arrived.put(None)

        def write(number: int) -> None:
            with outbox.transaction() as tx:
                tx.execute(BUSINESS, hand.order(number))
                times.ids[number] = outbox.write("OrderPlaced", hand.payload(number), key=self._key(number))
            times.left[number] = now()
            times.committed[number] = stamps.last()

        self.place.clear()
        with stamps.pool(self.place.url) as pool:
            outbox = Outbox(pool, **self.options).register("OrderPlaced", handler)
            with outbox, Stopwatch() as watch:
                pace(self.plan, write, arrived)
        return times.latency(watch)

    def loop(self, driver: str, _: Path) -> Latency:
        self.place.clear()
        return asyncio.run(self._tasks(driver))

    async def _tasks(self, driver: str) -> Latency:
        times, arrived, stamps = Times(), Arrivals(), ASYNC_STAMPS[driver]()
        business = numbered(BUSINESS) if driver == "asyncpg" else BUSINESS

        async def handler(event: Any) -> None:
            times.began[event.event_id] = now()
            arrived.add()

        async def write(number: int) -> None:
            async with outbox.transaction() as tx:
                stamps.note(tx.connection)
                await tx.execute(business, hand.order(number))
                times.ids[number] = await outbox.write("OrderPlaced", hand.payload(number), key=self._key(number))
            times.left[number] = now()
            times.committed[number] = stamps.last()

        async with stamps.pool(self.place.url) as pool:
            outbox = AsyncOutbox(pool, **self.options).register("OrderPlaced", handler)
            async with outbox:
                with Stopwatch() as watch:
                    await pace_async(self.plan, write, arrived)
        return times.latency(watch)

    def by(self, driver: str) -> Callable[[Path], Latency]:
        return self.threads if driver == "psycopg" else partial(self.loop, driver)


# ---------------------------------------------------------------- by hand


def _hand_threads(plan: Plan, place: Postgres, _: Path) -> Latency:
    place.clear()
    times, arrived, handed = Times(), SimpleQueue[None](), SimpleQueue[str | None]()
    by_hand = drivers.named(place, "psycopg").hand().open()

    def parked() -> None:
        while (event_id := handed.get()) is not None:
            times.began[event_id] = now()
            arrived.put(None)

    def write(number: int) -> None:
        event_id = times.ids[number] = str(number)
        by_hand.write(number)
        times.committed[number] = now()
        handed.put(event_id)
        times.left[number] = now()

    thread = threading.Thread(target=parked)
    thread.start()
    with Stopwatch() as watch:
        pace(plan, write, arrived)
    handed.put(None)
    thread.join()
    by_hand.close()
    return times.latency(watch)


def _hand_tasks(plan: Plan, place: Postgres, _: Path) -> Latency:
    place.clear()
    times = Times()
    return times.latency(asyncio.run(_hand_in_loop(plan, place, times)))


async def _hand_in_loop(plan: Plan, place: Postgres, times: Times) -> Stopwatch:
    arrived, handed = Arrivals(), asyncio.Queue[str]()
    by_hand = await drivers.named(place, "asyncpg").hand().open()

    async def parked() -> None:
        while True:
            event_id = await handed.get()
            times.began[event_id] = now()
            arrived.add()

    async def write(number: int) -> None:
        event_id = times.ids[number] = str(number)
        await by_hand.write(number)
        times.committed[number] = now()
        handed.put_nowait(event_id)
        times.left[number] = now()

    task = asyncio.create_task(parked())
    with Stopwatch() as watch:
        await pace_async(plan, write, arrived)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await by_hand.close()
    return watch
