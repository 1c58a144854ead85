"""How soon after a commit other libraries call a handler in the same process."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.paced import Arrivals, Latency, Plan, Times, beside, now, pace_async
from bench.peers import Guests, Peer
from bench.peers.peer import parse
from bench.results import Goal, Line
from bench.rounds import Rival, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.latency import Writing
from bench.servers.places import Postgres
from bench.sizes import Sizes

_OURS: Final = ("psycopg", "asyncpg")

#: Seconds between two claims of the hand-written loop that found nothing.
_POLL: Final = 0.001


def postgres_peers_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """At 200 events per second; by hand: a loop that claims every millisecond."""
    plan = Plan(sizes.paces[200], 200)
    with Postgres.opened() as place:
        guests = Guests(place)
        rivals: dict[str, Rival[Any]] = {name: Writing(place, plan).by(name) for name in _OURS}
        rivals["loop by hand"] = partial(_by_hand, place, plan)
        for name, each in guests.here.items():
            rivals[name] = guests.guarded(name, partial(_theirs, each, plan))
        samples = in_turn(rivals, sizes.rounds, workshop)
    lines = [
        beside(
            "postgres_peers_latency",
            f"{name}, {plan}",
            rival,
            samples[name],
            samples[rival],
            goals=[Goal("P6", "ratio", 5)] if rival in guests.here else [],
        )
        for name in _OURS
        for rival in ("loop by hand", *guests.whole())
    ]
    return guests.noted(lines)


def _theirs(library: Peer, plan: Plan, _: Path) -> Latency:
    times = Times()

    async def whole() -> Stopwatch:
        arrived = Arrivals()

        def handler(payload: dict[str, Any]) -> None:
            times.began[str(payload["order"])] = now()
            arrived.add()

        async def write(number: int) -> None:
            times.ids[number] = str(number)
            await writer.write(number)
            times.committed[number] = times.left[number] = now()
            library.committed()

        writer = await library.writer()
        async with library.serving(handler):
            await write(-1)  # so that it is known to listen
            await arrived.next()
            with Stopwatch() as watch:
                await pace_async(plan, write, arrived)
        await writer.close()
        return watch

    library.place.clear()
    asyncio.run(library.fill(0))
    return times.latency(asyncio.run(whole()))


def _by_hand(place: Postgres, plan: Plan, _: Path) -> Latency:
    times = Times()

    async def whole() -> Stopwatch:
        arrived, driver = Arrivals(), drivers.named(place, "asyncpg")
        writer, reader = await driver.hand().open(), await driver.hand().open()

        async def handler(text: str) -> None:
            times.began[str(parse(text)["order"])] = now()
            arrived.add()

        async def claim() -> None:
            while True:
                await reader.drain(500, handler)
                await asyncio.sleep(_POLL)

        async def write(number: int) -> None:
            times.ids[number] = str(number)
            await writer.write(number)
            times.committed[number] = times.left[number] = now()

        task = asyncio.create_task(claim())
        with Stopwatch() as watch:
            await pace_async(plan, write, arrived)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.close()
        await reader.close()
        return watch

    place.clear()
    return times.latency(asyncio.run(whole()))
