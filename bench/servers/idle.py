"""What an instance costs that has nothing to do."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.results import Goal, Line, Spread
from bench.servers.places import Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

#: Drivers, and whether the outbox is ordered.
_KINDS: Final = (("psycopg", False), ("asyncpg", False), ("psycopg", True), ("asyncpg", True))

#: Seconds of a first, short life, which costs a start and an end.
_SHORT: Final = 1.0

#: Processor time of an instance's life once it had started, and transactions by its sessions.
Cost = tuple[float, int]


def postgres_idle(sizes: Sizes, _: Path) -> list[Line]:
    """Instances in processes and databases of their own, side by side: a long life, less what a short one cost."""
    with ExitStack() as stack:
        places = [stack.enter_context(Postgres.opened()) for _ in _KINDS]
        team = stack.enter_context(Team())
        jobs = []
        for place, (driver, ordered) in zip(places, _KINDS, strict=True):
            place.set_ordered(ordered)
            jobs.append(Job(place.url, driver, ordered=ordered))
        short = _lives(team, places, jobs, _SHORT)
        long = _lives(team, places, jobs, _SHORT + sizes.idle)
    return [
        _line(driver, ordered, less, more, sizes.idle)
        for (driver, ordered), less, more in zip(_KINDS, short, long, strict=True)
    ]


def _lives(team: Team, places: list[Postgres], jobs: list[Job], seconds: float) -> list[Cost]:
    before = [place.committed() for place in places]
    workers = team.take(*jobs)
    for worker in workers:
        worker.go()
    time.sleep(_SHORT)
    started = [worker.report().cpu for worker in workers]
    time.sleep(seconds - _SHORT)
    spent = [worker.stop().cpu - cpu for worker, cpu in zip(workers, started, strict=True)]
    after = [place.committed() for place in places]
    return [(cpu, more - less) for cpu, less, more in zip(spent, before, after, strict=True)]


def _line(driver: str, ordered: bool, short: Cost, long: Cost, seconds: float) -> Line:
    return Line(
        measure="postgres_idle",
        variant=f"{driver}{', ordered' if ordered else ''}, idle for {seconds:.0f} s",
        rival="",
        unit="transactions/s",
        ours=Spread.of([(long[1] - short[1]) / seconds]),
        goals=(Goal("P10", "figure", 1.0), Goal("P10", "rest", 0.2)),
        details={"rest": long[0] / seconds * 100, "rest_unit": "% of a core"},
    )
