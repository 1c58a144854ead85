"""What it saves to delete delivered events, and how near a leased drain comes to a loop that holds no leases."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench.handlers import parse
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, Stopwatch, in_turn
from bench.servers import drivers
from bench.servers.places import Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes


def postgres_delete(sizes: Sizes, workshop: Path) -> list[Line]:
    """`delete_completed` beside rows that are kept; kept rows beside a loop that locks, handles and marks a batch in
    one transaction, which a slow handler would hold open."""
    rows, measure, unit = sizes.server_backlog, "postgres_delete", "rows/s"
    with Postgres.opened() as place, Team() as team:
        rivals: dict[str, Rival[Sample]] = {
            "kept": lambda _: team.drained(place, rows, Job(place.url, "psycopg")),
            "deleted": lambda _: team.drained(
                place, rows, Job(place.url, "psycopg", options={"delete_completed": True})
            ),
            "hand, deleted": partial(_by_hand, place, rows, "delete"),
            "hand, locked": partial(_by_hand, place, rows, "lock"),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            measure,
            "deleted",
            samples["deleted"],
            samples["kept"],
            rival="kept",
            unit=unit,
            goals=[Goal("P4", "ratio", 1.3)],
        ),
        compared(
            measure, "deleted", samples["deleted"], samples["hand, deleted"], rival="loop by hand, deleted", unit=unit
        ),
        compared(
            measure, "kept", samples["kept"], samples["hand, locked"], rival="one transaction for a batch", unit=unit
        ),
    ]


def _by_hand(place: Postgres, rows: int, marks: str, _: Path) -> Sample:
    place.fill(rows)
    by_hand = drivers.named(place, "psycopg").hand().open()
    with Stopwatch() as watch:
        drained = by_hand.drain(500, parse, marks=marks)
    by_hand.close()
    assert drained == rows
    assert not place.is_pending()
    return watch.sample(rows)
