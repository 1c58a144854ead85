"""Whether delivery keeps up with many writers, and what it takes from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers import clients, drivers, teams
from bench.servers.drivers import Driver
from bench.servers.hand_postgres import BUSINESS, numbered
from bench.servers.places import Postgres
from bench.sizes import Sizes
from bench.writes import nothing, nothing_async

_DRIVERS: Final = ("psycopg", "psycopg async", "asyncpg")

#: Seconds between two looks whether all is delivered.
_LOOK: Final = 0.005


def postgres_sustained(sizes: Sizes, workshop: Path) -> list[Line]:
    """From write to DONE with many writers, until the last is DONE, beside the same writers and no delivery."""
    lines = []
    number = sizes.clients[-1]
    with Postgres.opened() as place:
        for name in _DRIVERS:
            contest = Contest(place, drivers.named(place, name), number, 2 * sizes.server_transactions)
            rivals: dict[str, Rival[Sample]] = {
                "delivered": partial(contest.round, True),
                "written": partial(contest.round, False),
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            line = compared(
                "postgres_sustained",
                f"{name}, {number} writers",
                samples["delivered"],
                samples["written"],
                rival="a writer-only outbox",
                unit="events/s",
                goal=Goal("ratio", target=0.90),
            )
            lines.append(replace(line, details={**line.details, "backlog": contest.backlog()}))
    return lines


class Contest:
    """The same writers on one driver, with delivery in their process or without."""

    def __init__(self, place: Postgres, driver: Driver, number: int, transactions: int) -> None:
        self._place = place
        self._driver = driver
        self._number = number
        self._transactions = transactions
        #: Events that were not DONE half way, and when the last was written.
        self._halves: list[int] = []
        self._ends: list[int] = []

    def backlog(self) -> dict[str, float]:
        """Not DONE half way and at the end, as medians: a delivery that falls behind has twice as many at the end."""
        return {"half_way": median(self._halves), "at_the_end": median(self._ends)}

    def round(self, delivers: bool, _: Path) -> Sample:
        self._place.clear()
        self._place.tidy()
        if self._driver.is_async:
            return asyncio.run(self._in_loop(delivers))
        outbox = _outbox(Outbox, self._driver, nothing, delivers)
        if delivers:
            outbox.start()
        with Stopwatch() as watch:
            clients.threads(lambda: self._watched(teams.Owned(outbox, BUSINESS), delivers), self._number, self._count)
            self._note_end(delivers)
            while delivers and self._place.is_pending():
                time.sleep(_LOOK)
        outbox.close()
        return self._checked(watch, delivers)

    async def _in_loop(self, delivers: bool) -> Sample:
        outbox = _outbox(AsyncOutbox, self._driver, nothing_async, delivers)
        if delivers:
            await outbox.start()
        business = numbered(BUSINESS) if self._driver.name == "asyncpg" else BUSINESS

        async def opens() -> Any:
            return self._watched(teams.AsyncOwned(outbox, business), delivers)

        with Stopwatch() as watch:
            await clients.tasks(opens, self._number, self._count)
            self._note_end(delivers)
            while delivers and self._place.is_pending():  # noqa: ASYNC110  (the table is the only witness)
                await asyncio.sleep(_LOOK)
        await outbox.close()
        return self._checked(watch, delivers)

    @property
    def _count(self) -> int:
        return self._transactions - self._number * clients.WARM_UP

    def _watched(self, writer: Any, delivers: bool) -> Any:
        """Whoever writes the middle one looks how many wait."""
        write, middle = writer.write, self._transactions // 2

        def watching(number: int) -> Any:
            if delivers and number == middle:
                self._halves.append(self._place.count("status <> 1"))
            return write(number)

        writer.write = watching
        return writer

    def _note_end(self, delivers: bool) -> None:
        if delivers:
            self._ends.append(self._place.count("status <> 1"))

    def _checked(self, watch: Stopwatch, delivers: bool) -> Sample:
        assert self._place.count(f"status = {int(delivers)}") == self._transactions
        return watch.sample(self._transactions)


def _outbox(kind: Callable[..., Any], driver: Driver, handler: Callable[[Any], Any], delivers: bool) -> Any:
    if not delivers:
        return kind.writer_only(driver.url)
    return kind(driver.url).register("OrderPlaced", handler)
