"""What it gives to take many events at once: a handler of batches beside one that gets each event alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from bench.results import Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.places import Place, Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

#: Events in one call at most.
_BATCH: Final = 100

#: Where a call costs what a question to a neighbour costs, whatever is in it.
_ROUND_TRIP: Final = 0.001

#: What the handler does: how it is called, and what a job says of it.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "parses the JSON": {},
    "waits 1 ms a call": {"handler": "wait", "wait": _ROUND_TRIP},
}


def postgres_together(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog, to a handler whose calls cost nothing and to one whose calls cost a round trip."""
    rows = sizes.server_backlog
    with Postgres.opened() as place, Team() as team:
        rivals: dict[str, Rival[Sample]] = {}
        for kind, of in _KINDS.items():
            rivals[kind] = _round(team, place, rows, Job(place.url, "psycopg", batch=_BATCH, **of))
            rivals[f"{kind}, alone"] = _round(team, place, rows, Job(place.url, "psycopg", **of))
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "postgres_together",
            f"batches of {_BATCH}, {kind}",
            samples[kind],
            samples[f"{kind}, alone"],
            rival="one event a call",
            unit="rows/s",
        )
        for kind in _KINDS
    ]


def _round(team: Team, place: Place, rows: int, job: Job) -> Rival[Sample]:
    return lambda _: team.drained(place, rows, job)
