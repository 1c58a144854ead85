"""How soon after the answer to its append an event reaches its handler, beside the bare hand-off to somebody who waits.

The clock starts when the store's own link has the server's answer, and ends with the handler's first line.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from aftercommit.stores.redis.aio import AsyncLink
from aftercommit.stores.redis.scripts import Script
from aftercommit.stores.redis.threads import BlockingLink
from bench import hand as work
from bench.paced import Arrivals, Latency, Plan, Times, beside, now, pace, pace_async
from bench.redis.hand import AsyncRedisHand, RedisHand
from bench.redis.place import Redis
from bench.results import Goal, Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.sizes import Sizes

_GOALS: Final = (Goal("P16", "figure", 0.15),)


def redis_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """In each colour, one event at a time and at the fastest pace."""
    rate = max(sizes.paces)
    lines = []
    with Redis.opened() as place:
        for plan in (Plan(sizes.single, 0), Plan(sizes.paces[rate] // 2, rate)):
            rivals: dict[str, Rival[Latency]] = {
                "threads": partial(threads, plan, place),
                "asyncio": partial(_loop, tasks, plan, place),
                "hand threads": partial(_hand_threads, plan, place),
                "hand asyncio": partial(_loop, _hand_tasks, plan, place),
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            for name in ("threads", "asyncio"):
                rival = "a parked thread" if name == "threads" else "a parked task"
                theirs = samples[f"hand {name}"]
                lines.append(
                    beside("redis_latency", f"{name}, {plan}", f"{rival}, {plan}", samples[name], theirs, goals=_GOALS)
                )
    return lines


@contextmanager
def stamped(link: type, append: Script, answered: dict[int, int], who: Callable[[], int]) -> Iterator[None]:
    """Note for each writer when the link had the answer to its last append."""
    original = link.call  # type: ignore[attr-defined]

    async def call(self: Any, *commands: Any) -> Any:
        replies = await original(self, *commands)
        if append.sha in commands[0]:
            answered[who()] = now()
        return replies

    link.call = call  # type: ignore[attr-defined]
    try:
        yield
    finally:
        link.call = original  # type: ignore[attr-defined]


def threads(plan: Plan, place: Redis, _: Path) -> Latency:
    times, arrived, answered = Times(), SimpleQueue[None](), dict[int, int]()

    def handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.put(None)

    def write(number: int) -> None:
        times.ids[number] = outbox.write("OrderPlaced", work.payload(number))
        times.left[number] = now()
        times.committed[number] = answered[threading.get_ident()]

    place.clear()
    with stamped(BlockingLink, place.scripts["append"], answered, threading.get_ident):
        outbox = Outbox(place.url, table=place.table).register("OrderPlaced", handler)
        with outbox, Stopwatch() as watch:
            pace(plan, write, arrived)
    return times.latency(watch)


def _loop(run: Any, plan: Plan, place: Redis, _: Path) -> Latency:
    place.clear()
    times = Times()
    return times.latency(asyncio.run(run(plan, place, times)))


async def tasks(plan: Plan, place: Redis, times: Times) -> Stopwatch:
    arrived, answered = Arrivals(), dict[int, int]()

    async def handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.add()

    async def write(number: int) -> None:
        times.ids[number] = await outbox.write("OrderPlaced", work.payload(number))
        times.left[number] = now()
        times.committed[number] = answered[0]

    # One writer, whose commits are tasks of their own.
    with stamped(AsyncLink, place.scripts["append"], answered, lambda: 0):
        outbox = AsyncOutbox(place.url, table=place.table).register("OrderPlaced", handler)
        async with outbox:
            with Stopwatch() as watch:
                await pace_async(plan, write, arrived)
    return watch


# ---------------------------------------------------------------- by hand


def _hand_threads(plan: Plan, place: Redis, _: Path) -> Latency:
    place.clear()
    times, arrived, handed = Times(), SimpleQueue[None](), SimpleQueue[str | None]()
    writer = RedisHand(place.url, place.table).open()

    def parked() -> None:
        while (event_id := handed.get()) is not None:
            times.began[event_id] = now()
            arrived.put(None)

    def write(number: int) -> None:
        event_id = times.ids[number] = str(number)
        writer.write(number)
        times.committed[number] = now()
        handed.put(event_id)
        times.left[number] = now()

    thread = threading.Thread(target=parked)
    thread.start()
    with Stopwatch() as watch:
        pace(plan, write, arrived)
    handed.put(None)
    thread.join()
    writer.close()
    return times.latency(watch)


async def _hand_tasks(plan: Plan, place: Redis, times: Times) -> Stopwatch:
    arrived, handed = Arrivals(), asyncio.Queue[str]()
    writer = await AsyncRedisHand(place.url, place.table).open()

    async def parked() -> None:
        while True:
            event_id = await handed.get()
            times.began[event_id] = now()
            arrived.add()

    async def write(number: int) -> None:
        event_id = times.ids[number] = str(number)
        await writer.write(number)
        times.committed[number] = now()
        handed.put_nowait(event_id)
        times.left[number] = now()

    task = asyncio.create_task(parked())
    with Stopwatch() as watch:
        await pace_async(plan, write, arrived)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await writer.close()
    return watch
