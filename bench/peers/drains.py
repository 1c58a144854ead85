"""How fast other libraries deliver a backlog, in one process and in two."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from bench.peers import Guests, Peer, strict
from bench.peers.worker import PeerJob
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers.places import Postgres
from bench.servers.team import Team, until
from bench.servers.worker import Job
from bench.sizes import Sizes

_OURS: Final = ("psycopg", "asyncpg")


def postgres_peers_drain(sizes: Sizes, workshop: Path) -> list[Line]:
    """Ours with default options beside the hand-written loop and beside each of them."""
    rows = sizes.server_backlog
    with Postgres.opened() as place, ExitStack() as stack:
        guests, team = Guests(place), stack.enter_context(Team())
        teams = {name: stack.enter_context(Team("bench.peers.worker")) for name in guests.here}
        jobs = {name: Job(place.url, name) for name in _OURS} | {"hand": Job(place.url, "asyncpg", who="hand")}
        rivals: dict[str, Rival[Any]] = {}
        for number in (1, 2):
            for name, job in jobs.items():
                rivals[f"{name} {number}"] = partial(_ours, team, place, rows, [job] * number)
            for name, each in guests.here.items():
                few = sizes.peer_backlog if each.is_slow else rows
                rival = partial(_theirs, teams[name], each, PeerJob(place.url, name), few, number)
                rivals[f"{name} {number}"] = guests.guarded(name, rival)
        samples = in_turn(rivals, sizes.rounds, workshop)
    goals = {name: guests.here[name].goal for name in guests.whole()}
    return guests.noted(list(_lines(samples, goals)))


def _lines(samples: dict[str, list[Any]], goals: dict[str, float]) -> Iterable[Line]:
    for number, name, rival in product((1, 2), _OURS, ("hand", *goals)):
        theirs = samples[f"{rival} {number}"]
        yield compared(
            "postgres_peers_drain",
            f"{name}, {number} process{'es' * (number > 1)}",
            samples[f"{name} {number}"],
            theirs,
            rival="loop by hand" if rival == "hand" else f"{rival}, {theirs[0].units:,} rows",
            unit="rows/s",
            goals=[Goal("P3", "ratio", goals[rival])] if rival in goals and number == 1 else [],
        )


def postgres_peers_ordered(sizes: Sizes, workshop: Path) -> list[Line]:
    """In order over a thousand keys, beside the one of them that keeps such an order too."""
    rows = sizes.server_backlog
    with Postgres.opened() as place, Team() as team, Team("bench.peers.worker") as others:
        other = strict(place)
        asyncio.run(other.set_up())
        place.set_ordered(True)
        rivals: dict[str, Rival[Sample]] = {
            name: partial(_ours, team, place, rows, [Job(place.url, name, ordered=True)], keys=1_000) for name in _OURS
        }
        rivals["strict"] = partial(_theirs, others, other, PeerJob(place.url, "txoutbox", is_strict=True), rows, 1)
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "postgres_peers_ordered",
            f"{name}, {rows:,} rows, 1,000 keys",
            samples[name],
            samples["strict"],
            rival="txoutbox, strict order",
            unit="rows/s",
            goals=[Goal("P8", "ratio", 1.5)],
        )
        for name in _OURS
    ]


def _ours(team: Team, place: Postgres, rows: int, jobs: list[Job], _: Path, **filling: Any) -> Sample:
    return team.drained(place, rows, *jobs, **filling)


def _theirs(team: Team, library: Peer, job: PeerJob, rows: int, number: int, _: Path) -> Sample:
    asyncio.run(library.fill(rows))
    library.place.run("CHECKPOINT")
    busy = team.take(*[job] * number)
    with Stopwatch() as watch:
        for worker in busy:
            worker.go()
        until(lambda: not library.is_pending())
    return Sample(rows, watch.wall, sum(worker.stop().cpu for worker in busy))
