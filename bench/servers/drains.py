"""How fast a backlog on a server is delivered to a handler that does nothing."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from aftercommit import AsyncOutbox, Outbox
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.drivers import Driver
from bench.servers.places import Mysql, Place, Postgres
from bench.sizes import Sizes
from bench.writes import nothing, nothing_async

#: The outbox's default, and what the hand-written loop is tuned to.
_BATCH_SIZES: Final = (50, 500)
_TUNED: Final = 500

#: Seconds between two looks whether a started outbox is through.
_LOOK: Final = 0.005

#: Seconds until an outbox that is not through fails the run.
_PATIENCE: Final = 300


def postgres_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog from NEW to DONE, beside a loop that claims 500, calls a function per row and marks the group."""
    with Postgres.opened() as place:
        return _drain("postgres_drain", place, Goal("ratio", target=0.80), sizes, workshop)


def mysql_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _drain("mysql_drain", place, Goal("ratio", target=0.70), sizes, workshop)


def _drain(measure: str, place: Place, goal: Goal, sizes: Sizes, workshop: Path) -> list[Line]:
    lines = []
    for driver in drivers.of(place):
        contest = Contest(place, driver, sizes.server_backlog)
        rivals: dict[str, Rival[Sample]] = {"hand": contest.by_hand(_TUNED)}
        for batch_size in _BATCH_SIZES:
            rivals |= {
                f"drain(), batch {batch_size}": contest.drained(batch_size=batch_size),
                f"started, batch {batch_size}": contest.started(batch_size=batch_size),
            }
        samples = in_turn(contest.counted(rivals), sizes.rounds, workshop)
        lines += [
            contest.line(measure, name, samples[name], samples["hand"], f"loop, batch {_TUNED}", goal)
            for name in samples
            if name != "hand"
        ]
    return lines


def postgres_delete(sizes: Sizes, workshop: Path) -> list[Line]:
    """`delete_completed` beside rows that are kept; by hand as well."""
    lines = []
    with Postgres.opened() as place:
        for driver in drivers.of(place):
            contest = Contest(place, driver, sizes.server_backlog)
            samples = in_turn(
                {
                    "kept": contest.drained(batch_size=_TUNED),
                    "deleted": contest.drained(batch_size=_TUNED, delete_completed=True),
                    "hand, kept": contest.by_hand(_TUNED),
                    "hand, deleted": contest.by_hand(_TUNED, deletes=True),
                },
                sizes.rounds,
                workshop,
            )
            goal, measure = Goal("ratio", target=1.3), "postgres_delete"
            for name, ours, theirs, mark in (
                ("drain(), deleted / kept", "deleted", "kept", goal),
                ("by hand, deleted / kept", "hand, deleted", "hand, kept", None),
                ("drain() / by hand, both deleted", "deleted", "hand, deleted", None),
            ):
                lines.append(contest.line(measure, name, samples[ours], samples[theirs], name, mark))
    return lines


class Contest:
    """Rivals on one driver and one backlog, which is laid out anew for each of their rounds."""

    def __init__(self, place: Place, driver: Driver, rows: int, *, is_cleared: bool = True) -> None:
        self._place = place
        self._driver = driver
        self._rows = rows
        self._is_cleared = is_cleared
        self._transactions: dict[str, list[float]] = defaultdict(list)
        #: By the server, in the last round.
        self._committed: int | None = None

    # ------------------------------------------------------------ rivals

    def by_hand(self, batch_size: int, **options: Any) -> Rival[Sample]:
        return partial(self._round, partial(self._by_hand, batch_size, options))

    def drained(self, **options: Any) -> Rival[Sample]:
        """`drain()` of an outbox that is not started."""
        return partial(self._round, partial(self._by_outbox, options, False))

    def started(self, **options: Any) -> Rival[Sample]:
        """A started outbox until nothing is left."""
        return partial(self._round, partial(self._by_outbox, options, True))

    def counted(self, rivals: dict[str, Rival[Sample]]) -> dict[str, Rival[Sample]]:
        """The same, and how many transactions the server committed per event.

        Its housekeeping counts as well, which is little beside many events; a started outbox is looked at, so it is not
        counted."""

        def counting(name: str, rival: Rival[Sample], folder: Path) -> Sample:
            sample = rival(folder)
            if self._committed is not None:
                self._transactions[name].append(self._committed / sample.units)
            return sample

        return {
            name: rival if name.startswith("started") else partial(counting, name, rival)
            for name, rival in rivals.items()
        }

    def line(
        self, measure: str, name: str, ours: list[Sample], theirs: list[Sample], rival: str, goal: Goal | None
    ) -> Line:
        line = compared(measure, f"{self._driver.name}, {name}", ours, theirs, rival=rival, unit="rows/s", goal=goal)
        if name not in self._transactions:
            return line
        per_event = {who: median(self._transactions[who]) for who in (name, "hand")}
        counts = {"ours": per_event[name], "theirs": per_event["hand"]}
        return replace(line, details={**line.details, "transactions_per_event": counts})

    # ------------------------------------------------------------ a round

    def _round(self, work: Any, _: Path) -> Sample:
        self._place.fill(self._rows, is_cleared=self._is_cleared)
        before = self._place.transactions
        watch = asyncio.run(work()) if self._driver.is_async else work()
        after = self._place.transactions
        self._committed = None if before is None or after is None else after - before
        assert not self._place.is_pending()
        assert self._place.count("status = 3") == 0
        return watch.sample(self._rows)

    def _by_hand(self, batch_size: int, options: dict[str, Any]) -> Any:
        if self._driver.is_async:
            return self._by_hand_async(batch_size, options)
        by_hand = self._driver.hand().open()
        with Stopwatch() as watch:
            rows = by_hand.drain(batch_size, nothing, **options)
        by_hand.close()
        assert rows == self._rows
        return watch

    async def _by_hand_async(self, batch_size: int, options: dict[str, Any]) -> Stopwatch:
        by_hand = await self._driver.hand().open()
        with Stopwatch() as watch:
            rows = await by_hand.drain(batch_size, nothing_async, **options)
        await by_hand.close()
        assert rows == self._rows
        return watch

    def _by_outbox(self, options: dict[str, Any], is_started: bool) -> Any:
        if self._driver.is_async:
            return self._by_async_outbox(options, is_started)
        outbox = Outbox(self._driver.url, **options).register("OrderPlaced", nothing)
        outbox.stats()  # so that it is connected, as the other one is
        with Stopwatch() as watch:
            if is_started:
                outbox.start()
                while self._place.is_pending():
                    time.sleep(_LOOK)
            else:
                assert outbox.drain(_PATIENCE).is_complete
        outbox.close()
        return watch

    async def _by_async_outbox(self, options: dict[str, Any], is_started: bool) -> Stopwatch:
        outbox = AsyncOutbox(self._driver.url, **options).register("OrderPlaced", nothing_async)
        await outbox.stats()
        with Stopwatch() as watch:
            if is_started:
                await outbox.start()
                while self._place.is_pending():  # noqa: ASYNC110  (the table is the only witness)
                    await asyncio.sleep(_LOOK)
            else:
                assert (await outbox.drain(_PATIENCE)).is_complete
        await outbox.close()
        return watch
