"""How soon an event reaches a worker process after a commit in another process, which only writes."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from aftercommit import Outbox
from bench import hand
from bench.paced import Latency, Plan, Times, beside, now, pace
from bench.results import Goal, Line
from bench.rounds import Stopwatch, in_turn
from bench.servers.hand_postgres import BUSINESS
from bench.servers.places import Postgres
from bench.servers.stamps import ThreadStamps
from bench.servers.team import Team, Worker, until
from bench.servers.worker import Job
from bench.sizes import Sizes

#: The worker's driver, and whether the outbox is ordered; the writer is psycopg's.
_KINDS: Final = {
    "psycopg": ("psycopg", False),
    "asyncpg": ("asyncpg", False),
    "psycopg, ordered": ("psycopg", True),
}


def postgres_apart(sizes: Sizes, workshop: Path) -> list[Line]:
    """At each pace; every worker has a database of its own and stays up from round to round."""
    lines = []
    with ExitStack() as stack:
        places = {name: stack.enter_context(Postgres.opened()) for name in _KINDS}
        for name, place in places.items():
            place.set_ordered(_KINDS[name][1])
        team = stack.enter_context(Team())
        jobs = [
            Job(places[name].url, driver, ordered=ordered, handler="note") for name, (driver, ordered) in _KINDS.items()
        ]
        workers = dict(zip(_KINDS, team.take(*jobs), strict=True))
        for worker in workers.values():
            worker.go()
        for rate, count in sizes.paces.items():
            plan = Plan(count, rate)
            rivals, warm_up = (
                {name: partial(_round, places[name], workers[name], each, _KINDS[name][1]) for name in _KINDS}
                for each in (plan, plan.warming_up)
            )
            samples = in_turn(rivals, sizes.rounds, workshop, warm_up=warm_up)
            lines += [
                beside("postgres_apart", f"{name}, {plan}", "", samples[name], goals=[Goal("P6c", "figure", 3.0)])
                for name in samples
            ]
        for worker in workers.values():
            worker.stop()
    return lines


class Nobody:
    """Arrivals are known at the end only, from the other process."""

    def get(self, timeout: float) -> None:
        """At once."""


def _round(place: Postgres, worker: Worker, plan: Plan, ordered: bool, _: Path) -> Latency:
    times, stamps = Times(), ThreadStamps()

    def write(number: int) -> None:
        key = f"key-{number % 50}" if ordered else None
        with outbox.transaction() as tx:
            tx.execute(BUSINESS, hand.order(number))
            times.ids[number] = outbox.write("OrderPlaced", hand.payload(number), key=key)
        times.committed[number], times.left[number] = stamps.last(), now()

    place.clear()
    with stamps.pool(place.url) as pool, Outbox.writer_only(pool, ordered=ordered) as outbox:
        with Stopwatch() as watch:
            pace(plan, write, Nobody())  # type: ignore[arg-type]
        until(lambda: not place.is_pending())
    times.began.update(worker.report().began)
    return times.latency(watch)
