"""Whether delivery keeps up with many writers that never pause, and what it takes from them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench.handlers import handle, handle_async
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers import clients, drivers
from bench.servers.drivers import Driver
from bench.servers.hand_postgres import BUSINESS, numbered
from bench.servers.places import Postgres
from bench.servers.team import until
from bench.servers.teams import AsyncOwned, Owned
from bench.sizes import Sizes

_KEYS: Final = 1_000


def postgres_sustained(sizes: Sizes, workshop: Path) -> list[Line]:
    """From write to DONE, until the last is DONE, beside the same writers and no delivery."""
    return _lines("postgres_sustained", ("psycopg", "psycopg async", "asyncpg"), {}, sizes, workshop)


def postgres_ordered_sustained(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same, in order, over a thousand keys."""
    return _lines("postgres_ordered_sustained", ("psycopg",), {"ordered": True}, sizes, workshop)


def _lines(measure: str, names: tuple[str, ...], options: dict[str, Any], sizes: Sizes, workshop: Path) -> list[Line]:
    lines = []
    number = sizes.clients[-1]
    with Postgres.opened() as place:
        place.set_ordered(bool(options))
        for name in names:
            contest = Contest(place, drivers.named(place, name), number, sizes.sustained, options)
            rivals: dict[str, Rival[Sample]] = {
                "delivered": partial(contest.round, True),
                "written": partial(contest.round, False),
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines.append(
                compared(
                    measure,
                    f"{name}, {number} writers for {sizes.sustained:g} s",
                    samples["delivered"],
                    samples["written"],
                    rival="a writer-only outbox",
                    unit="events/s",
                    goals=[] if options else [Goal("P7", "ratio", 0.90)],
                    details={"backlog": contest.backlog()},
                )
            )
    return lines


class Contest:
    """The same writers on one driver, with delivery in their process or without."""

    def __init__(self, place: Postgres, driver: Driver, number: int, seconds: float, options: dict[str, Any]) -> None:
        self._place = place
        self._driver = driver
        self._number = number
        self._seconds = seconds
        self._options = options
        #: Events that were not DONE when the last was written, and how many were written.
        self._left: list[int] = []
        self._written: list[int] = []

    def backlog(self) -> dict[str, float]:
        """As medians: a delivery that falls behind leaves a good part of all."""
        return {"at_the_end": median(self._left), "written": median(self._written)}

    def round(self, delivers: bool, _: Path) -> Sample:
        self._place.clear()
        self._place.tidy()
        if self._driver.is_async:
            return asyncio.run(self._in_loop(delivers))
        with self._outbox(Outbox, handle, delivers) as outbox, Stopwatch() as watch:
            clients.threads(lambda: Keyed(Owned(outbox, BUSINESS), self._options), self._number, seconds=self._seconds)
            self._note_end(delivers)
            until(lambda: not (delivers and self._place.is_pending()))
        return self._checked(watch, delivers)

    async def _in_loop(self, delivers: bool) -> Sample:
        business = numbered(BUSINESS) if self._driver.name == "asyncpg" else BUSINESS

        async def opens() -> Any:
            return Keyed(AsyncOwned(outbox, business), self._options)

        async with self._outbox(AsyncOutbox, handle_async, delivers) as outbox:
            with Stopwatch() as watch:
                await clients.tasks(opens, self._number, seconds=self._seconds)
                self._note_end(delivers)
                while delivers and self._place.is_pending():  # noqa: ASYNC110  (the table is the only witness)
                    await asyncio.sleep(0.005)
        return self._checked(watch, delivers)

    def _outbox(self, kind: Any, handler: Any, delivers: bool) -> Any:
        if not delivers:
            return kind.writer_only(self._driver.url, wakeups=False, **self._options)
        return kind(self._driver.url, **self._options).register("OrderPlaced", handler)

    def _note_end(self, delivers: bool) -> None:
        if delivers:
            self._left.append(self._place.count("status <> 1"))

    def _checked(self, watch: Stopwatch, delivers: bool) -> Sample:
        written = self._place.count("1 = 1")
        assert self._place.count(f"status = {int(delivers)}") == written
        self._written.append(written)
        return watch.sample(written)


class Keyed:
    """A writer whose events have keys where the outbox is ordered."""

    def __init__(self, writer: Any, options: dict[str, Any]) -> None:
        self.close = writer.close
        self.write = partial(_keyed, writer) if options else writer.write


def _keyed(writer: Any, number: int) -> Any:
    return writer.write(number, key=f"key-{number % _KEYS}")
