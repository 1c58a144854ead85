"""How fast processes of their own deliver a backlog in Redis, beside the same scripts in a bare pipelined loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.redis.place import Redis
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

#: What delivers from Redis, for a team.
WORKER: Final = "bench.redis.worker"

_COLOURS: Final = ("threads", "asyncio")


def redis_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog from NEW to nothing: what is done is deleted, as it is by default on Redis."""
    rows = sizes.server_backlog // 3
    with Redis.opened() as place, Team(WORKER) as team:
        rivals: dict[str, Rival[Sample]] = {}
        for colour in _COLOURS:
            rivals[colour] = partial(_round, team, place, rows, job(place, colour))
            rivals[f"hand {colour}"] = partial(_round, team, place, rows, job(place, colour, who="hand"))
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "redis_drain",
            f"{colour}, default options, {rows:,} rows",
            samples[colour],
            samples[f"hand {colour}"],
            rival="pipelined loop by hand, batch 500",
            unit="rows/s",
            goals=[Goal("P16", "ratio", 0.6)],
        )
        for colour in _COLOURS
    ]


def job(place: Redis, colour: str, **rest: Any) -> Job:
    return Job(place.url, colour, options={"table": place.table}, **rest)


def _round(team: Team, place: Redis, rows: int, each: Job, _: Path) -> Sample:
    return team.drained(place, rows, each)
