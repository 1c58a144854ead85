"""What order per key costs: a backlog beside one without order, and the way from a commit to its handler."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.paced import Latency, Plan, beside
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import drivers
from bench.servers.drains import KEYS
from bench.servers.latency import Writing
from bench.servers.places import Mysql, Place, Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

#: Keys while latency is looked at: few events have one of their own key before them.
_FEW_KEYS: Final = 50


def postgres_ordered_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog of a thousand keys in order on each driver, beside the same one without order; default options."""
    with Postgres.opened() as place:
        return _drain("postgres_ordered_drain", place, sizes, workshop)


def mysql_ordered_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _drain("mysql_ordered_drain", place, sizes, workshop)


def _drain(measure: str, place: Place, sizes: Sizes, workshop: Path) -> list[Line]:
    rows, names = sizes.server_backlog, [driver.name for driver in drivers.of(place)]

    def rival(team: Team, name: str, ordered: bool) -> Rival[Sample]:
        def drained(_: Path) -> Sample:
            place.set_ordered(ordered)
            return team.drained(place, rows, Job(place.url, name, ordered=ordered), keys=KEYS)

        return drained

    with Team() as team:
        rivals = {
            f"{name}{', unordered' * (not ordered)}": rival(team, name, ordered)
            for name in names
            for ordered in (True, False)
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            measure,
            f"{name}, {rows:,} rows, {KEYS:,} keys",
            samples[name],
            samples[f"{name}, unordered"],
            rival="without order",
            unit="rows/s",
            goals=[Goal("P8", "ratio", 0.75)],
        )
        for name in names
    ]


def postgres_ordered_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """From the commit to the handler on the instance that owns the key, with and without `serialize_keys`."""
    plan = Plan(sizes.paces[200], 200)
    options: dict[str, dict[str, Any]] = {
        "ordered": {"ordered": True},
        "serialize_keys": {"ordered": True, "serialize_keys": True},
    }
    with Postgres.opened() as place:
        place.set_ordered(True)

        def rivals(plan: Plan) -> dict[str, Rival[Latency]]:
            return {
                f"{driver}, {name}": Writing(place, plan, each, keys=_FEW_KEYS).by(driver)
                for driver in ("psycopg", "psycopg async", "asyncpg")
                for name, each in options.items()
                if sizes.has_more or driver == "psycopg" or name == "serialize_keys"
            }

        samples = in_turn(rivals(plan), sizes.rounds, workshop, warm_up=rivals(plan.warming_up))
    return [
        beside(
            "postgres_ordered_latency",
            f"{name}, {plan}",
            "",
            samples[name],
            goals=[Goal("P6b", "figure", 0.3)] if name.endswith("serialize_keys") else [],
        )
        for name in samples
    ]
