"""What it takes from writers to tell other processes of their events."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aftercommit import Outbox
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers import teams
from bench.servers.clients import WARM_UP, threads
from bench.servers.hand_postgres import BUSINESS
from bench.servers.places import Postgres
from bench.sizes import Sizes


def postgres_wakeups(sizes: Sizes, workshop: Path) -> list[Line]:
    """A process that only writes, with as many clients as there are, beside the same with `wakeups=False`.

    Nobody delivers, so that only the telling differs."""
    number, transactions = sizes.clients[-1], 3 * sizes.server_transactions
    with Postgres.opened() as place:
        rivals: dict[str, Rival[Sample]] = {
            "on": partial(_round, place, number, transactions, True),
            "off": partial(_round, place, number, transactions, False),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    return [
        compared(
            "postgres_wakeups",
            f"psycopg, transaction(), {number} clients, wake-ups on",
            samples["on"],
            samples["off"],
            rival="wake-ups off",
            unit="tx/s",
            goals=[Goal("P9b", "ratio", 0.97)],
        )
    ]


def _round(place: Postgres, number: int, transactions: int, is_on: bool, _: Path) -> Sample:
    place.clear()
    with Outbox.writer_only(place.url, wakeups=is_on) as outbox:
        watch = threads(lambda: teams.Owned(outbox, BUSINESS), number, transactions)
    assert place.count("1 = 1") == number * WARM_UP + transactions
    return watch.sample(transactions)
