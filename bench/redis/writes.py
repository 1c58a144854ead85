"""How fast events are written to Redis, beside a bare EVALSHA of the script that appends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand as work
from bench.redis.hand import AsyncRedisHand, RedisHand
from bench.redis.place import Redis
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.clients import WARM_UP, tasks, threads
from bench.sizes import Sizes

_GOALS: Final = (Goal("P16", "ratio", 0.8),)


def redis_write(sizes: Sizes, workshop: Path) -> list[Line]:
    """`write()` outside of a block, which appends at once. The outbox is not started: nobody delivers meanwhile."""
    lines = []
    with Redis.opened() as place:
        for clients in (sizes.clients[0], sizes.clients[-1]):
            # One takes a tenth of what it takes where a commit waits for the disk.
            count = 3 * sizes.server_transactions
            rivals: dict[str, Rival[Sample]] = {
                "threads": partial(_in_threads, place, _outbox, clients, count),
                "asyncio": partial(_in_tasks, place, _async_outbox, clients, count),
                "hand threads": partial(_in_threads, place, _by_hand, clients, count),
                "hand asyncio": partial(_in_tasks, place, _async_by_hand, clients, count),
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [
                compared(
                    "redis_write",
                    f"{name}, {clients} client{'s' * (clients > 1)}",
                    samples[name],
                    samples[f"hand {name}"],
                    rival="EVALSHA by hand",
                    unit="events/s",
                    goals=_GOALS,
                )
                for name in ("threads", "asyncio")
            ]
    return lines


class Writer:
    """A client of one outbox, which has the connections."""

    def __init__(self, outbox: Any) -> None:
        self._outbox = outbox

    def write(self, number: int) -> None:
        self._outbox.write("OrderPlaced", work.payload(number))

    def close(self) -> None: ...


class AsyncWriter(Writer):
    """The same, awaited."""

    async def write(self, number: int) -> None:  # type: ignore[override]
        await self._outbox.write("OrderPlaced", work.payload(number))

    async def close(self) -> None: ...  # type: ignore[override]


def _outbox(place: Redis) -> tuple[Callable[[], Any], Callable[[], None]]:
    outbox = Outbox(place.url, table=place.table)
    return lambda: Writer(outbox), outbox.close


def _by_hand(place: Redis) -> tuple[Callable[[], Any], Callable[[], None]]:
    return lambda: RedisHand(place.url, place.table).open(), lambda: None


def _in_threads(place: Redis, team: Any, clients: int, count: int, _: Path) -> Sample:
    place.clear()
    opens, close = team(place)
    watch = threads(opens, clients, count)
    close()
    assert place.pending() == clients * WARM_UP + count
    return watch.sample(count)


def _async_outbox(place: Redis) -> tuple[Callable[[], Any], Callable[[], Any]]:
    outbox = AsyncOutbox(place.url, table=place.table)

    async def opens() -> AsyncWriter:
        return AsyncWriter(outbox)

    return opens, outbox.close


def _async_by_hand(place: Redis) -> tuple[Callable[[], Any], Callable[[], Any]]:
    async def close() -> None: ...

    return lambda: AsyncRedisHand(place.url, place.table).open(), close


def _in_tasks(place: Redis, team: Any, clients: int, count: int, _: Path) -> Sample:
    async def work_() -> Sample:
        opens, close = team(place)
        watch = await tasks(opens, clients, count)
        await close()
        return watch.sample(count)

    place.clear()
    sample = asyncio.run(work_())
    assert place.pending() == clients * WARM_UP + count
    return sample
