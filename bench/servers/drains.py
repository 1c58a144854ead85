"""How fast a backlog on a server is delivered to a handler that parses the JSON, in processes of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import drivers
from bench.servers.places import Mysql, Place, Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

#: What helps a drain: claims that begin large, and room for more of them.
TUNED: Final[dict[str, Any]] = {"batch_size": 500, "cold_queue_capacity": 5_000}

#: Keys of a backlog that is drained in order.
KEYS: Final = 1_000

#: Rows of the first, dropped round, at most.
WARM_UP: Final = 2_000

#: What the hand-written loop is tuned to.
LOOP: Final = "loop by hand, batch 500"


def postgres_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """The large backlog with psycopg and default options: by hand, in one process and two, and in order.

    All of them get the same rows of a thousand keys, which mean nothing to the unordered ones."""
    rows, size, unit = sizes.main_backlog, f"{sizes.main_backlog:,} rows", "rows/s"
    with Postgres.opened() as place, Team() as team:
        hand, ours = Job(place.url, "psycopg", who="hand"), Job(place.url, "psycopg")
        jobs = {"hand": [hand], "ours": [ours], "two": [ours] * 2, "ordered": [Job(place.url, "psycopg", ordered=True)]}

        def rivals(rows: int) -> dict[str, Rival[Sample]]:
            return {name: partial(_keyed, team, place, each, rows) for name, each in jobs.items()}

        samples = in_turn(rivals(rows), sizes.rounds, workshop, warm_up=rivals(min(rows, WARM_UP)))
    return [
        compared(
            "postgres_drain",
            f"{variant}, {size}",
            samples[name],
            samples[beside],
            rival=LOOP if beside == "hand" else "one process, no order",
            unit=unit,
            goals=goals,
        )
        for variant, name, beside, goals in (
            ("default options", "ours", "hand", [Goal("P3", "ratio", 0.80), Goal("P15", "cpu", 2.5)]),
            ("two processes", "two", "ours", [Goal("P5", "ratio", 1.6)]),
            (f"in order, {KEYS:,} keys", "ordered", "ours", [Goal("P8", "ratio", 0.75)]),
        )
    ]


def _keyed(team: Team, place: Place, jobs: list[Job], rows: int, _: Path) -> Sample:
    place.set_ordered(jobs[0].ordered)
    return team.drained(place, rows, *jobs, keys=KEYS)


def postgres_drivers(sizes: Sizes, workshop: Path) -> list[Line]:
    """Each driver with default options; the long form has psycopg tuned as well."""
    with Postgres.opened() as place:
        return _each("postgres_drivers", place, sizes.main_backlog, sizes, workshop, Goal("P3", "ratio", 0.80))


def mysql_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _each("mysql_drain", place, sizes.server_backlog, sizes, workshop, Goal("P12", "ratio", 0.70))


def _each(measure: str, place: Place, rows: int, sizes: Sizes, workshop: Path, goal: Goal) -> list[Line]:
    names = [driver.name for driver in drivers.of(place)]
    ours = {f"{name}, default options": (name, Job(place.url, name)) for name in names}
    if sizes.has_more:
        ours[f"{names[0]}, tuned"] = (names[0], Job(place.url, names[0], options=TUNED))
    jobs = {name: Job(place.url, name, who="hand") for name in names} | {name: job for name, (_, job) in ours.items()}
    with Team() as team:

        def rivals(rows: int) -> dict[str, Rival[Sample]]:
            return {name: _round(team, place, rows, job) for name, job in jobs.items()}

        samples = in_turn(rivals(rows), sizes.rounds, workshop, warm_up=rivals(min(rows, WARM_UP)))
    return [
        compared(
            measure,
            f"{variant}, {rows:,} rows",
            samples[variant],
            samples[name],
            rival=LOOP,
            unit="rows/s",
            goals=[] if variant.endswith("tuned") else [goal, Goal("P15", "cpu", 2.5)],
        )
        for variant, (name, _) in ours.items()
    ]


def _round(team: Team, place: Place, rows: int, job: Job) -> Rival[Sample]:
    return lambda _: team.drained(place, rows, job)
