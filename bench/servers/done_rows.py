"""Whether a table full of delivered events slows delivery down."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.results import Goal, Line
from bench.rounds import in_turn
from bench.servers import drivers
from bench.servers.drains import Contest
from bench.servers.places import Postgres
from bench.sizes import Sizes

_BATCH: Final = 500


def postgres_done_rows(sizes: Sizes, workshop: Path) -> list[Line]:
    """A backlog among many DONE rows, beside one in a table of its own; the hand-written loop for comparison."""
    with Postgres.opened() as empty, Postgres.opened() as full:
        full.fill_done(sizes.done_rows)
        alone = Contest(empty, drivers.named(empty, "psycopg"), sizes.server_backlog)
        among = Contest(full, drivers.named(full, "psycopg"), sizes.server_backlog, is_cleared=False)
        samples = in_turn(
            {
                "alone": alone.drained(batch_size=_BATCH),
                "among": among.drained(batch_size=_BATCH),
                "hand, alone": alone.by_hand(_BATCH),
                "hand, among": among.by_hand(_BATCH),
            },
            sizes.rounds,
            workshop,
        )
    beside = f"{sizes.done_rows:,} DONE rows / none"
    goal, measure = Goal("ratio", target=0.95), "postgres_done_rows"
    return [
        among.line(measure, f"drain(), {beside}", samples["among"], samples["alone"], "an empty table", goal),
        among.line(
            measure, f"by hand, {beside}", samples["hand, among"], samples["hand, alone"], "an empty table", None
        ),
    ]
