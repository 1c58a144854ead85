"""What many events at once cost on a server."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench import hand
from bench.results import Goal, Line, compared
from bench.rounds import Sample, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.drivers import Driver
from bench.servers.places import Mysql, Place, Postgres
from bench.sizes import Sizes
from bench.writes import OrderPlaced

_BATCH: Final = 100

#: Batches before the clock runs.
_WARM_UP: Final = 6


def postgres_write_all(sizes: Sizes, workshop: Path) -> list[Line]:
    """`write_all` of 100 objects in a transaction of its own, beside one insert of 100 rows."""
    with Postgres.opened() as place:
        return _lines("postgres_write_all", place, sizes, workshop)


def mysql_write_all(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _lines("mysql_write_all", place, sizes, workshop)


def _lines(measure: str, place: Place, sizes: Sizes, workshop: Path) -> list[Line]:
    lines = []
    for driver in drivers.of(place):
        samples = in_turn(
            {
                "hand": partial(_round, place, driver, sizes.batches, _by_hand),
                "ours": partial(_round, place, driver, sizes.batches, _by_outbox),
            },
            sizes.rounds,
            workshop,
        )
        lines.append(
            compared(
                measure,
                f"{driver.name}, {_BATCH} events per transaction",
                samples["ours"],
                samples["hand"],
                rival=f"one insert of {_BATCH} rows",
                unit="events/s",
                goals=[Goal("P2", "ratio", 0.85)],
            )
        )
    return lines


def _round(place: Place, driver: Driver, batches: int, work: Any, _: Path) -> Sample:
    place.clear()
    contents = [OrderPlaced(**hand.payload(number)) for number in range(_BATCH)]
    watch = work(driver, batches, contents)
    assert place.count("1 = 1") == (_WARM_UP + batches) * _BATCH
    return watch.sample(batches * _BATCH)


def _by_hand(driver: Driver, batches: int, contents: list[OrderPlaced]) -> Stopwatch:
    if driver.is_async:
        return asyncio.run(_by_hand_async(driver, batches, contents))
    by_hand = driver.hand().open()
    for number in range(_WARM_UP):
        by_hand.write_all(contents, number * _BATCH)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + batches):
            by_hand.write_all(contents, number * _BATCH)
    by_hand.close()
    return watch


async def _by_hand_async(driver: Driver, batches: int, contents: list[OrderPlaced]) -> Stopwatch:
    by_hand = await driver.hand().open()
    for number in range(_WARM_UP):
        await by_hand.write_all(contents, number * _BATCH)
    with Stopwatch() as watch:
        for number in range(_WARM_UP, _WARM_UP + batches):
            await by_hand.write_all(contents, number * _BATCH)
    await by_hand.close()
    return watch


def _by_outbox(driver: Driver, batches: int, contents: list[OrderPlaced]) -> Stopwatch:
    if driver.is_async:
        return asyncio.run(_by_async_outbox(driver, batches, contents))
    outbox = Outbox(driver.url)

    def write() -> None:
        with outbox.transaction():
            outbox.write_all(contents)

    for _ in range(_WARM_UP):
        write()
    with Stopwatch() as watch:
        for _ in range(batches):
            write()
    outbox.close()
    return watch


async def _by_async_outbox(driver: Driver, batches: int, contents: list[OrderPlaced]) -> Stopwatch:
    outbox = AsyncOutbox(driver.url)

    async def write() -> None:
        async with outbox.transaction():
            await outbox.write_all(contents)

    for _ in range(_WARM_UP):
        await write()
    with Stopwatch() as watch:
        for _ in range(batches):
            await write()
    await outbox.close()
    return watch
