"""How soon after its commit on a server an event reaches its handler.

The clock starts when the driver has the server's answer to COMMIT, and ends with the handler's first line. Beside it:
the same two inserts by hand, then the bare hand-off to somebody who waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import asyncpg
import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.paced import Arrivals, Latency, Plan, Times, beside, now, pace, pace_async
from bench.results import Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.hand_postgres import BUSINESS, numbered
from bench.servers.places import Postgres
from bench.sizes import Sizes

_POOL = {"min_size": 4, "max_size": 10}


def postgres_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """At each pace, on each driver."""
    lines = []
    with Postgres.opened() as place:
        for rate, count in sizes.paces.items():
            plan = Plan(count, rate)
            rivals: dict[str, Rival[Latency]] = {
                "psycopg": partial(threads, plan, place),
                "psycopg async": partial(loop, psycopg_tasks, plan, place),
                "asyncpg": partial(loop, asyncpg_tasks, plan, place),
                "hand psycopg": partial(hand_threads, plan, place),
                "hand psycopg async": partial(loop, partial(_hand_tasks, "psycopg async"), plan, place),
                "hand asyncpg": partial(loop, partial(_hand_tasks, "asyncpg"), plan, place),
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [
                beside("postgres_latency", f"{name}, {plan}", "a parked thread or task", samples[name], samples[rival])
                for rival in samples
                if (name := rival.removeprefix("hand ")) != rival
            ]
    return lines


# ---------------------------------------------------------------- ours


def key_of(number: int, keys: int | None) -> str | None:
    """One of so many, in an ordered outbox; 0: no key there. None: an outbox without order."""
    return f"key-{number % keys}" if keys else None


def threads(plan: Plan, place: Postgres, _: Path, keys: int | None = None) -> Latency:
    times, arrived, answered = Times(), SimpleQueue[None](), threading.local()

    class Stamped(psycopg.Connection[Any]):
        """Notes for each thread when its last statement was answered: at the end of a block, its COMMIT."""

        def wait(self, *arguments: Any, **options: Any) -> Any:
            answer = super().wait(*arguments, **options)
            answered.at = now()
            return answer

    def handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.put(None)

    def write(number: int) -> None:
        with outbox.transaction() as tx:
            tx.execute(BUSINESS, hand.order(number))
            times.ids[number] = outbox.write("OrderPlaced", hand.payload(number), key=key_of(number, keys))
        times.left[number] = now()
        times.committed[number] = answered.at

    place.clear()
    with ConnectionPool(place.url, connection_class=Stamped, **_POOL) as pool:
        outbox = Outbox(pool, ordered=keys is not None).register("OrderPlaced", handler)
        with outbox, Stopwatch() as watch:
            pace(plan, write, arrived)
    return times.latency(watch)


def loop(work: Any, plan: Plan, place: Postgres, _: Path, **options: Any) -> Latency:
    place.clear()
    times = Times()
    return times.latency(asyncio.run(work(plan, place, times, **options)))


async def psycopg_tasks(plan: Plan, place: Postgres, times: Times, keys: int | None = None) -> Stopwatch:
    committed: list[int] = []

    class Stamped(psycopg.AsyncConnection[Any]):
        """Notes the end of each transaction of several statements; the outbox's own are single ones here."""

        async def wait(self, *arguments: Any, **options: Any) -> Any:
            was_open = self.pgconn.transaction_status == TransactionStatus.INTRANS
            answer = await super().wait(*arguments, **options)
            if was_open and self.pgconn.transaction_status == TransactionStatus.IDLE:
                committed.append(now())
            return answer

    async with AsyncConnectionPool(place.url, connection_class=Stamped, **_POOL) as pool:
        return await _tasks(plan, pool, BUSINESS, times, committed, keys)


async def asyncpg_tasks(plan: Plan, place: Postgres, times: Times, keys: int | None = None) -> Stopwatch:
    committed: list[int] = []
    business = numbered(BUSINESS)

    class Stamped(asyncpg.Connection):  # type: ignore[misc]
        """Notes the end of each transaction in which a business row was written."""

        async def execute(self, query: str, *arguments: Any, **options: Any) -> Any:
            answer = await super().execute(query, *arguments, **options)
            if query == "COMMIT" and (session := self.get_server_pid()) in writing:
                committed.append(now())
                writing.remove(session)
            return answer

    writing: set[int] = set()

    def note(connection: Any) -> None:
        writing.add(connection.get_server_pid())

    async with asyncpg.create_pool(place.url, connection_class=Stamped, **_POOL) as pool:
        return await _tasks(plan, pool, business, times, committed, keys, note)


async def _tasks(
    plan: Plan,
    pool: Any,
    business: str,
    times: Times,
    committed: list[int],
    keys: int | None,
    note: Callable[[Any], None] = lambda _: None,
) -> Stopwatch:
    arrived = Arrivals()

    async def handler(event: Any) -> None:
        times.began[event.event_id] = now()
        arrived.add()

    async def write(number: int) -> None:
        async with outbox.transaction() as tx:
            note(tx.connection)
            await tx.execute(business, hand.order(number))
            times.ids[number] = await outbox.write("OrderPlaced", hand.payload(number), key=key_of(number, keys))
        times.left[number] = now()
        times.committed[number] = committed[-1]

    outbox = AsyncOutbox(pool, ordered=keys is not None).register("OrderPlaced", handler)
    async with outbox:
        with Stopwatch() as watch:
            await pace_async(plan, write, arrived)
    return watch


# ---------------------------------------------------------------- by hand


def hand_threads(plan: Plan, place: Postgres, _: Path) -> Latency:
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


async def _hand_tasks(driver: str, plan: Plan, place: Postgres, times: Times) -> Stopwatch:
    arrived, handed = Arrivals(), asyncio.Queue[str]()
    by_hand = await drivers.named(place, driver).hand().open()

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
