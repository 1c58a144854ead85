"""An outbox on Redis beside one on PostgreSQL, in one run, with the settings that the servers have."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from aftercommit import Outbox
from bench import hand as work
from bench.paced import Latency, Plan, beside
from bench.redis.drains import WORKER, job
from bench.redis.latency import threads as hot
from bench.redis.place import Redis
from bench.results import Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.clients import WARM_UP, threads
from bench.servers.latency import Writing
from bench.servers.places import Postgres
from bench.servers.team import Team
from bench.servers.worker import Job
from bench.sizes import Sizes

_MEASURE = "redis_beside_postgres"


def redis_beside_postgres(sizes: Sizes, workshop: Path) -> list[Line]:
    """Written one by one, drained, and delivered hot; in threads."""
    with Redis.opened() as place, Postgres.opened() as other:
        return [
            *_writes(place, other, sizes, workshop),
            _drain(place, other, sizes, workshop),
            _latency(place, other, sizes, workshop),
        ]


class Writer:
    """One event and nothing else, in a transaction of its own."""

    def __init__(self, outbox: Outbox, *, in_block: bool) -> None:
        self._outbox = outbox
        self._in_block = in_block

    def write(self, number: int) -> None:
        if not self._in_block:
            self._outbox.write("OrderPlaced", work.payload(number))
            return
        with self._outbox.transaction():
            self._outbox.write("OrderPlaced", work.payload(number))

    def close(self) -> None: ...


def _writes(place: Redis, other: Postgres, sizes: Sizes, workshop: Path) -> list[Line]:
    def written(is_redis: bool, clients: int, _: Path) -> Sample:
        (place if is_redis else other).clear()
        outbox = Outbox(place.url, table=place.table) if is_redis else Outbox(other.url)
        count = sizes.server_transactions
        watch = threads(lambda: Writer(outbox, in_block=not is_redis), clients, count)
        outbox.close()
        found = place.pending() if is_redis else other.count("1 = 1")
        assert found == clients * WARM_UP + count
        return watch.sample(count)

    lines = []
    for clients in (sizes.clients[0], sizes.clients[-1]):
        rivals: dict[str, Rival[Sample]] = {
            "redis": partial(written, True, clients),
            "postgres": partial(written, False, clients),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
        name = f"write, {clients} client{'s' * (clients > 1)}"
        lines.append(_line(name, "events/s", samples))
    return lines


def _drain(place: Redis, other: Postgres, sizes: Sizes, workshop: Path) -> Line:
    rows = sizes.server_backlog
    with Team(WORKER) as on_redis, Team() as on_postgres:
        deleting = Job(other.url, "psycopg", options={"delete_completed": True})
        rivals: dict[str, Rival[Sample]] = {
            "redis": lambda _: on_redis.drained(place, rows, job(place, "threads")),
            "postgres": lambda _: on_postgres.drained(other, rows, deleting),
        }
        samples = in_turn(rivals, sizes.rounds, workshop)
    return _line(f"drain, done rows deleted, {rows:,} rows", "rows/s", samples)


def _line(name: str, unit: str, samples: dict[str, list[Sample]]) -> Line:
    return compared(_MEASURE, name, samples["redis"], samples["postgres"], rival="PostgreSQL", unit=unit)


def _latency(place: Redis, other: Postgres, sizes: Sizes, workshop: Path) -> Line:
    """At the fastest pace. On PostgreSQL a business row is written as well, before the clock starts."""
    rate = max(sizes.paces)
    plan = Plan(sizes.paces[rate] // 2, rate)
    rivals: dict[str, Rival[Latency]] = {"redis": partial(hot, plan, place), "postgres": Writing(other, plan).threads}
    samples = in_turn(rivals, sizes.rounds, workshop)
    return beside(_MEASURE, f"hot, {plan}", f"PostgreSQL, {plan}", samples["redis"], samples["postgres"])
