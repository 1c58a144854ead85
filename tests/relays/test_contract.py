"""The contract of relays on real brokers. Those that are restarted, or take little, are private ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from aftercommit.relays import Relay
from aftercommit.relays.testing import RelayContract, Stored
from tests import brokers, conftest, redis_servers, servers
from tests.relays.places import NatsPlaces, Places, RabbitmqPlaces, RedisPlaces

#: Tests that stop their broker, or want one that is set up for them.
PRIVATE = ("test_a_broker_that_was_killed", "test_a_message_that_is_too_large")


class OnABroker(RelayContract):
    """Where a relay and its places come from."""

    places_of: ClassVar[type[Places]]
    shared: ClassVar[str]
    private: servers.PrivateServer | None
    places: Places

    @pytest.fixture(scope="class")
    @classmethod
    def private_broker(cls) -> Iterator[Any]:
        yield from conftest.started(cls.make_private)

    @classmethod
    def make_private(cls) -> servers.PrivateServer:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def broker(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.private = None
        if request.node.name.startswith(PRIVATE):
            self.private = request.getfixturevalue("private_broker")
        url = conftest.server(self.shared) if self.private is None else self.private.url
        self.places = self.places_of(url)  # type: ignore[call-arg]
        yield
        self.places.close()

    @property
    def address(self) -> tuple[str, int]:
        return self.places.host, self.places.port

    def make_relay(self, host: str, port: int) -> Relay:
        return self.places.relay(host, port)

    def make_place(self) -> Any:
        return self.places.make()

    def make_nowhere(self) -> Any:
        return self.places.nowhere()

    def stored(self, place: Any) -> list[Stored]:
        return self.places.stored(place)

    def restart(self) -> None:
        assert self.private is not None
        self.private.stop(immediate=True)
        self.private.start()


class TestRabbitMQ(OnABroker):
    places_of = RabbitmqPlaces
    shared = "rabbitmq"

    @classmethod
    def make_private(cls) -> servers.PrivateServer:
        return brokers.PrivateRabbitmq(max_message_size="400000")

    def too_large(self) -> bytes:
        return b"x" * 500_000


class TestNats(OnABroker):
    places_of = NatsPlaces
    shared = "nats"

    @classmethod
    def make_private(cls) -> servers.PrivateServer:
        return brokers.PrivateNats(max_payload="400000")

    def too_large(self) -> bytes:
        return b"x" * 500_000

    def copies(self, sent: int) -> int:
        return 1  # the server knows them by their ids


class TestRedisStreams(OnABroker):
    places_of = RedisPlaces
    shared = "redis"

    @classmethod
    def make_private(cls) -> servers.PrivateServer:
        return redis_servers.PrivateRedis(appendonly="yes", appendfsync="always")
