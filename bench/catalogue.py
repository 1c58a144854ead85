"""Every measure by name, and which of them a run takes. A new one is a line here and a function of its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

#: Part of every run; of a run that says so (`--only`, `--long`); of the run beside other libraries.
When = Literal["always", "on request", "peers"]


@dataclass(frozen=True, slots=True)
class Measure:
    """The function `name` of a module. Drivers are extras, so modules are imported by whoever runs them.

    The words of its name are the servers that it needs, among others; the first is the one that it is about.
    """

    name: str
    title: str
    module: str
    when: When = "always"

    @property
    def words(self) -> list[str]:
        return self.name.split("_")

    @property
    def server(self) -> str:
        return self.words[0]


MEASURES: Final = (
    Measure("postgres_write", "PostgreSQL: a business row and an event in one transaction", "bench.servers.writes"),
    Measure("postgres_write_all", "PostgreSQL: a hundred events in one transaction", "bench.servers.batches"),
    Measure("postgres_drain", "PostgreSQL: drain of the large backlog, one process and two", "bench.servers.drains"),
    Measure("postgres_drivers", "PostgreSQL: drain on each driver, default options", "bench.servers.drains"),
    Measure("postgres_ordered_drain", "PostgreSQL: drain in order", "bench.servers.ordered", "on request"),
    Measure("postgres_delete", "PostgreSQL: drain, deleted rows and no leases", "bench.servers.deletes", "on request"),
    Measure("postgres_together", "PostgreSQL: many events in one call", "bench.servers.together", "on request"),
    Measure("postgres_latency", "PostgreSQL: commit to handler in one process", "bench.servers.latency"),
    Measure("postgres_ordered_latency", "PostgreSQL: commit to handler in order", "bench.servers.ordered"),
    Measure("postgres_apart", "PostgreSQL: commit in one process, handler in another", "bench.servers.apart"),
    Measure("postgres_sustained", "PostgreSQL: writers that never pause", "bench.servers.sustained"),
    Measure(
        "postgres_ordered_sustained",
        "PostgreSQL: writers that never pause, in order",
        "bench.servers.sustained",
        "on request",
    ),
    Measure("postgres_wakeups", "PostgreSQL: what wake-ups take from writers", "bench.servers.wakeups"),
    Measure("postgres_instances", "PostgreSQL: more instances", "bench.servers.instances"),
    Measure("postgres_done_rows", "PostgreSQL: drain among delivered events", "bench.servers.done_rows"),
    Measure("postgres_memory", "PostgreSQL: memory while very many events wait", "bench.servers.memory"),
    Measure("postgres_idle", "PostgreSQL: an instance with nothing to do", "bench.servers.idle"),
    Measure("postgres_account", "PostgreSQL: what one event costs the server", "bench.servers.account"),
    Measure("postgres_tail", "PostgreSQL: the tail of the log beside the poller", "bench.servers.tails"),
    Measure("postgres_session", "PostgreSQL: a SQLAlchemy session", "bench.servers.sessions", "on request"),
    Measure(
        "postgres_effects",
        "PostgreSQL: transactional handlers beside two transactions",
        "bench.servers.effects",
        "on request",
    ),
    Measure("mysql_write", "MariaDB: a business row and an event in one transaction", "bench.servers.writes"),
    Measure("mysql_drain", "MariaDB: drain on each driver, default options", "bench.servers.drains"),
    Measure("mysql_write_all", "MariaDB: a hundred events in one transaction", "bench.servers.batches", "on request"),
    Measure("mysql_ordered_drain", "MariaDB: drain in order", "bench.servers.ordered", "on request"),
    Measure("redis_write", "Redis: an event", "bench.redis.writes"),
    Measure("redis_drain", "Redis: drain, default options", "bench.redis.drains"),
    Measure("redis_latency", "Redis: append to handler in one process", "bench.redis.latency"),
    Measure("redis_apart", "Redis: append in one process, handler in another", "bench.redis.apart", "on request"),
    Measure("redis_beside_postgres", "Redis beside PostgreSQL", "bench.redis.beside", "on request"),
    Measure("rabbitmq_relay", "RabbitMQ: events of PostgreSQL that are relayed", "bench.relays.relayed", "on request"),
    Measure("nats_relay", "NATS JetStream: events of PostgreSQL that are relayed", "bench.relays.relayed"),
    Measure(
        "redis_relay", "Redis Streams: events of PostgreSQL that are relayed", "bench.relays.relayed", "on request"
    ),
    Measure(
        "kafka_relay",
        "Kafka (mock cluster): events of PostgreSQL that are relayed",
        "bench.relays.relayed",
        "on request",
    ),
    Measure("sqlite_write", "SQLite: a business row and an event in one transaction, threads", "bench.writes"),
    Measure("sqlite_write_asyncio", "SQLite: the same under asyncio", "bench.writes"),
    Measure("sqlite_write_all", "SQLite: a hundred events in one transaction", "bench.writes"),
    Measure("sqlite_drain", "SQLite: drain", "bench.drains"),
    Measure("sqlite_latency", "SQLite: commit to handler", "bench.latency"),
    Measure("sqlite_session", "SQLite: a SQLAlchemy session", "bench.sessions", "on request"),
    Measure("import_time", "Import", "bench.imports"),
    Measure(
        "postgres_peers_write",
        "Other libraries: a row and an event in a transaction",
        "bench.peers.writes",
        "peers",
    ),
    Measure("postgres_peers_drain", "Other libraries: drain", "bench.peers.drains", "peers"),
    Measure("postgres_peers_ordered", "Other libraries: drain in order", "bench.peers.drains", "peers"),
    Measure("postgres_peers_latency", "Other libraries: commit to handler", "bench.peers.latency", "peers"),
)


def named(name: str) -> Measure:
    return next(measure for measure in MEASURES if measure.name == name)


def taken(*, only: list[str] | None = None, is_long: bool = False, peers: bool = False) -> Iterator[Measure]:
    """What a run does, in the order of the list."""
    for measure in MEASURES:
        if only:
            if measure.name in only:
                yield measure
        elif (measure.when == "peers") is peers and (is_long or measure.when != "on request"):
            yield measure
