"""Whether more instances deliver more when a handler takes its time."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.places import Place, Postgres
from bench.servers.team import Team, until
from bench.servers.worker import Job
from bench.sizes import Sizes

#: Seconds that the handler waits for something else.
_WAIT: Final = 0.02

#: More rows, for each of them, than it delivers while it is looked at, and holds in memory.
_ROWS: Final = 2_400

#: Instances, and what they should reach beside one.
_TARGETS: Final = {2: 1.9, 4: 3.5}

#: Instances of an ordered outbox find each other quickly, so that each has its share when the clock starts.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "unordered": {"drain_timeout": 0},
    "ordered": {"drain_timeout": 0, "heartbeat_interval": "100ms", "rebalance_interval": "100ms"},
}


def postgres_instances(sizes: Sizes, workshop: Path) -> list[Line]:
    """Events per second of two and four processes beside one, each with four workers."""
    lines = []
    with Postgres.opened() as place, Team() as team:
        for kind, options in _KINDS.items():
            place.set_ordered(kind == "ordered")
            job = Job(place.url, "psycopg", ordered=kind == "ordered", options=options, handler="wait", wait=_WAIT)
            rivals: dict[str, Rival[Sample]] = {
                str(number): partial(_round, team, place, sizes.window, [job] * number) for number in (1, *_TARGETS)
            }
            samples = in_turn(rivals, sizes.rounds, workshop)
            lines += [
                compared(
                    "postgres_instances",
                    f"{kind}, {number} instances, handler of {_WAIT * 1e3:.0f} ms",
                    samples[str(number)],
                    samples["1"],
                    rival="one instance",
                    unit="rows/s",
                    goals=[Goal("P5", "ratio", target)],
                )
                for number, target in _TARGETS.items()
            ]
    return lines


def _round(team: Team, place: Place, seconds: float, jobs: list[Job], _: Path) -> Sample:
    """What is delivered within a window, once all of them are at work."""
    place.fill(_ROWS * len(jobs), keys=1_000)
    busy = team.take(*jobs)
    for worker in busy:
        worker.go()
    until(lambda: place.holders() == len(jobs))
    before, began = place.count("status = 1"), time.perf_counter()
    cpu = sum(worker.report().cpu for worker in busy)
    time.sleep(seconds)
    done, wall = place.count("status = 1") - before, time.perf_counter() - began
    cpu = sum(worker.report().cpu for worker in busy) - cpu
    place.run("UPDATE outbox_event SET status = 1 WHERE locked_by IS NULL AND status = 0")
    for worker in busy:
        worker.stop()
    return Sample(done, wall, cpu)
