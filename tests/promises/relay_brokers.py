"""Brokers that relays are tortured on: where processes find them, how they are hurt, and what they have in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from aftercommit.relays.testing import Stored, Wire
from tests import brokers, redis_servers, servers
from tests.promises.relayed import SENT_BY, Copy
from tests.relays.kafka_cluster import Cluster
from tests.relays.places import NatsPlaces, Places, RabbitmqPlaces, RedisPlaces

PLACES: dict[str, type[Places]] = {"rabbitmq": RabbitmqPlaces, "nats": NatsPlaces, "redis": RedisPlaces}  # type: ignore[type-abstract]

#: Silence that no test outlives: a broker may be slow, and that is no fault of anybody's.
PATIENT = {
    "rabbitmq": {"connect_timeout": "10s", "confirm_timeout": "50s"},
    "nats": {"connect_timeout": "10s", "ack_timeout": "50s"},
    "redis": {"connect_timeout": "10s", "answer_timeout": "50s"},
    "kafka": {"delivery_timeout_ms": 50_000, "reconnect_backoff_max_ms": 200},
}


class Broker:
    """One place on a broker, behind a wire."""

    def __init__(self, kind: str, places: Places, wire: Wire, server: servers.PrivateServer | None) -> None:
        self.kind = kind
        self.wire = wire
        self._places = places
        self._server = server
        self._place = places.make()

    def relay(self) -> dict[str, Any]:
        """For the processes."""
        url = self._places.at(self.wire.host, self.wire.port)
        return {"kind": self.kind, "url": url, "to": self._place, "settings": PATIENT[self.kind]}

    def restart(self) -> None:
        """Killed, and started again."""
        assert self._server is not None
        self._server.stop(immediate=True)
        self._server.start()

    def copies(self) -> list[Copy]:
        return [_copy(each) for each in self._places.stored(self._place)]


def _copy(stored: Stored) -> Copy:
    return Copy(stored.headers[SENT_BY], stored.attributes["partitionkey"], json.loads(stored.body)["n"])


class KafkaBroker:
    """A topic with some partitions on the mock cluster."""

    kind = "kafka"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topic = cluster.topic(partitions=4)

    def relay(self) -> dict[str, Any]:
        return {"kind": "kafka", "url": self._cluster.servers, "to": self._topic, "settings": PATIENT["kafka"]}

    def copies(self) -> list[Copy]:
        return [
            Copy(dict(each.headers())[SENT_BY].decode(), each.key().decode(), json.loads(each.value())["n"])
            for each in self._cluster.read(self._topic, 0)
        ]


def private(kind: str) -> servers.PrivateServer:
    """What such a server has confirmed is there after it was killed."""
    match kind:
        case "rabbitmq":
            return brokers.PrivateRabbitmq()
        case "nats":
            return brokers.PrivateNats()
        case _:
            return redis_servers.PrivateRedis(appendonly="yes", appendfsync="always")


@contextmanager
def on_broker(kind: str, server: servers.PrivateServer | None, url: str) -> Iterator[Broker]:
    with ExitStack() as stack:
        places = PLACES[kind](url)  # type: ignore[call-arg]
        wire = stack.enter_context(Wire(places.host, places.port))
        stack.callback(places.close)
        yield Broker(kind, places, wire, server)
