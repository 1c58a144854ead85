"""What order per key costs: a backlog beside one without order, the way from a commit, and a second instance."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.paced import Latency, Plan, beside
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import drivers
from bench.servers.drains import Contest
from bench.servers.latency import asyncpg_tasks, loop, psycopg_tasks, threads
from bench.servers.places import Mysql, Place, Postgres
from bench.servers.processes import round_of
from bench.sizes import Sizes

_KEYS: Final = 1_000

#: The outbox's default, and what the hand-written loop is tuned to.
_BATCH_SIZES: Final = (50, 500)

#: Rows of each round in which a handler waits for 5 ms: one instance with four workers takes some seconds for them.
_WAITING_ROWS: Final = 4_000


class Keyed:
    """A place whose backlog has keys, and whose table is ordered or not."""

    def __init__(self, place: Place, *, ordered: bool) -> None:
        self._place = place
        self._ordered = ordered

    def fill(self, rows: int, **options: Any) -> None:
        place = self._place
        place.run(f"UPDATE outbox_schema SET value = '{int(self._ordered)}' WHERE name = 'ordered'")
        place.fill(rows, **options)
        number = f"(position %% {_KEYS})" if isinstance(place, Mysql) else f"(position % {_KEYS})"
        place.run(f"UPDATE outbox_event SET event_key = concat('key-', {number}), partition_no = {number} % 256")
        place.tidy()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


def postgres_ordered_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog of a thousand keys, in order, beside the same one without order."""
    with Postgres.opened() as place:
        return _drain("postgres_ordered_drain", place, sizes, workshop)


def mysql_ordered_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """The same on MySQL or MariaDB."""
    with Mysql.opened() as place:
        return _drain("mysql_ordered_drain", place, sizes, workshop)


def _drain(measure: str, place: Place, sizes: Sizes, workshop: Path) -> list[Line]:
    lines = []
    for driver in drivers.of(place):
        contests: dict[bool, Any] = {
            ordered: Contest(Keyed(place, ordered=ordered), driver, sizes.server_backlog)  # type: ignore[arg-type]
            for ordered in (True, False)
        }
        rivals: dict[str, Rival[Sample]] = {}
        for batch_size in _BATCH_SIZES:
            for ordered, contest in contests.items():
                options = {"batch_size": batch_size, "ordered": ordered}
                name = f"batch {batch_size}{'' if ordered else ', unordered'}"
                rivals[f"drain(), {name}"] = contest.drained(**options)
                rivals[f"started, {name}"] = contest.started(**options)
        samples = in_turn(rivals, sizes.rounds, workshop)
        lines += [
            compared(
                measure,
                f"{driver.name}, {name}",
                samples[name],
                samples[f"{name}, unordered"],
                rival="without order",
                unit="rows/s",
                goal=Goal("ratio", target=0.60),
            )
            for name in samples
            if not name.endswith("unordered")
        ]
    return lines


def postgres_ordered_latency(sizes: Sizes, workshop: Path) -> list[Line]:
    """From the commit to the handler on the instance that owns the key, beside the hot path of a keyless event."""
    lines = []
    with Postgres.opened() as place:
        place.run("UPDATE outbox_schema SET value = '1' WHERE name = 'ordered'")
        plan = Plan(sizes.paces[200], 200)
        ways: dict[str, Any] = {
            "psycopg": partial(threads, plan, place),
            "psycopg async": partial(loop, psycopg_tasks, plan, place),
            "asyncpg": partial(loop, asyncpg_tasks, plan, place),
        }
        rivals: dict[str, Rival[Latency]] = {}
        for name, way in ways.items():
            rivals[name] = partial(way, keys=50)
            rivals[f"{name}, keyless"] = partial(way, keys=0)
        samples = in_turn(rivals, sizes.rounds, workshop)
        for name in ways:
            line = beside(
                "postgres_ordered_latency",
                f"{name}, {plan}",
                "a keyless event",
                samples[name],
                samples[f"{name}, keyless"],
            )
            lines.append(replace(line, goal=Goal("figure", target=2.0)))
    return lines


def postgres_ordered_fleet(sizes: Sizes, workshop: Path) -> list[Line]:
    """Two instances beside one, when the handler waits for 5 ms."""
    lines = []
    rows = min(_WAITING_ROWS, sizes.server_backlog)
    with Postgres.opened() as place:
        keyed: Any = Keyed(place, ordered=True)
        for driver in ("psycopg", "asyncpg"):
            rivals: dict[str, Rival[Sample]] = {
                f"{number} instances": partial(round_of, keyed, rows, "ordered", driver, number) for number in (1, 2)
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines.append(
                compared(
                    "postgres_ordered_fleet",
                    f"{driver}, two / one",
                    samples["2 instances"],
                    samples["1 instances"],
                    rival="one instance",
                    unit="rows/s",
                    goal=Goal("ratio", target=1.6),
                )
            )
    return lines
