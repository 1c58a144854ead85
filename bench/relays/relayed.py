"""How fast a backlog in PostgreSQL reaches a broker, beside the broker's own client in a loop by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from bench.relays.brokers import BROKERS, Broker
from bench.relays.worker import RelayJob
from bench.results import Goal, Line, compared
from bench.rounds import Rival, Sample, in_turn
from bench.servers.drains import WARM_UP
from bench.servers.places import Postgres
from bench.servers.team import Team
from bench.sizes import Sizes

#: What relays, for a team.
WORKER: Final = "bench.relays.worker"


def rabbitmq_relay(sizes: Sizes, workshop: Path) -> list[Line]:
    """To a durable queue, confirmed."""
    return _relayed("rabbitmq", sizes, workshop)


def nats_relay(sizes: Sizes, workshop: Path) -> list[Line]:
    """To a stream, acknowledged."""
    return _relayed("nats", sizes, workshop)


def redis_relay(sizes: Sizes, workshop: Path) -> list[Line]:
    """To a stream."""
    return _relayed("redis", sizes, workshop)


def kafka_relay(sizes: Sizes, workshop: Path) -> list[Line]:
    """To a topic of librdkafka's mock cluster, acknowledged; the other process on these cores."""
    return _relayed("kafka", sizes, workshop)


def _relayed(name: str, sizes: Sizes, workshop: Path) -> list[Line]:
    rows, broker = sizes.server_backlog // 3, BROKERS[name]()
    broker.ask("make")
    try:
        with Postgres.opened() as place, Team(WORKER) as team:

            def rivals(rows: int) -> dict[str, Rival[Sample]]:
                return {
                    who: partial(_round, team, place, broker, rows, RelayJob(place.url, name, broker.name, who))
                    for who in ("hand", "asyncio", "threads")
                }

            samples = in_turn(rivals(rows), sizes.rounds, workshop, warm_up=rivals(min(rows, WARM_UP)))
    finally:
        broker.ask("drop")
    return [
        compared(
            f"{name}_relay",
            f"{colour}, default options, {rows:,} rows",
            samples[colour],
            samples["hand"],
            rival="client in a loop by hand, asyncpg, 100 at once",
            unit="events/s",
            goals=[Goal("relay", "ratio", 0.6)],
        )
        for colour in ("asyncio", "threads")
    ]


def _round(team: Team, place: Postgres, broker: Broker, rows: int, job: RelayJob, _: Path) -> Sample:
    sample = team.drained(place, rows, job)
    assert broker.ask("count") == rows
    return sample
