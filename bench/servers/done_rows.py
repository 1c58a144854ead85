"""Whether a table full of delivered events slows delivery down."""

from __future__ import annotations

from pathlib import Path

from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.places import Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes


def postgres_done_rows(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog among many DONE rows, beside one in a table of its own."""
    rows = sizes.server_backlog
    with Postgres.opened() as empty, Postgres.opened() as full, Team() as team:
        full.fill_done(sizes.done_rows)
        rivals: dict[str, Rival[Sample]] = {
            "alone": lambda _: team.drained(empty, rows, Job(empty.url, "psycopg")),
            "among": lambda _: team.drained(full, rows, Job(full.url, "psycopg"), is_cleared=False),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "postgres_done_rows",
            f"{rows:,} rows among {sizes.done_rows:,} DONE",
            samples["among"],
            samples["alone"],
            rival="an empty table",
            unit="rows/s",
            goals=[Goal("P9", "ratio", 0.95)],
        )
    ]
