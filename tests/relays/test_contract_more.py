"""The contract of relays on a mock cluster of Kafka, a receiver of webhooks, and a mock of AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from aftercommit import Unavailable
from aftercommit.errors import MessageRefused
from aftercommit.relays import Relay, Sns, Sqs
from aftercommit.relays.testing import RelayContract, Stored, Wire
from aftercommit.relays.testing.contract import events
from tests.relays import more_places
from tests.relays.kafka_cluster import Cluster
from tests.relays.more_places import Aws, Inbox


class TestKafka(RelayContract):
    @pytest.fixture(autouse=True)
    def broker(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.cluster = Cluster()
        yield
        self.cluster.close()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.cluster.servers.rpartition(":")
        return host, int(port)

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        """Clients go where the cluster says that its broker is."""
        with super().wire() as wire:
            self.cluster.lead_to(wire.host, wire.port)
            yield wire
            self.cluster.lead_to(*self.address)

    def make_relay(self, host: str, port: int) -> Relay:
        return more_places.kafka(f"{host}:{port}", message_max_bytes=400_000)

    def make_place(self) -> str:
        return self.cluster.topic()

    def make_nowhere(self) -> str:
        topic = self.cluster.topic()
        self.cluster.set_error(topic, 3)  # UNKNOWN_TOPIC_OR_PART
        return topic

    def stored(self, place: str) -> list[Stored]:
        return more_places.kafka_stored(self.cluster, place)

    def too_large(self) -> bytes:
        return b"x" * 500_000

    def restart(self) -> None:
        self.cluster.go_down()
        self.cluster.come_up()


class TestWebhook(RelayContract):
    @pytest.fixture(autouse=True)
    def broker(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.inbox = Inbox()
        yield
        self.inbox.close()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.inbox.receiver.port

    def make_relay(self, host: str, port: int) -> Relay:
        is_direct = (host, port) == self.address
        return more_places.webhook(host, port, more_places.FOR_A_BUSY_ONE if is_direct else more_places.IN_VAIN)

    def make_place(self) -> str:
        return f"/{uuid4().hex}"

    def make_nowhere(self) -> str:
        return "/nowhere"

    def stored(self, place: str) -> list[Stored]:
        return self.inbox.stored(place)

    def test_connections_that_are_cut_lose_nothing_that_was_confirmed(self) -> None:
        """One that ends under an event, while others of the host have their answer, counts against the event."""
        place, waiting, confirmed = self.make_place(), events(120), set[str]()
        with self.wire() as wire, self.sending(place, wire=wire) as relay:
            for cut in range(100):
                if cut < 8:
                    wire.cut_after(300 + 700 * cut)
                answers = relay.send(*waiting[:40])
                for event, answer in zip(waiting[:40], answers, strict=True):
                    assert answer is None or isinstance(answer, Unavailable | MessageRefused), answer
                    if answer is None:
                        confirmed.add(event.event_id)
                assert confirmed <= set(self.ids(place))
                waiting = [event for event in waiting if event.event_id not in confirmed]
                if not waiting:
                    break
            assert wire.made > 4
        assert len(confirmed) == 120


class OnAws(RelayContract):
    kind: ClassVar[type[Any]]
    unfolds = False

    @pytest.fixture(scope="class")
    @classmethod
    def mock(cls) -> Iterator[Aws]:
        aws = Aws()
        yield aws
        aws.close()

    @pytest.fixture(autouse=True)
    def broker(self, mock: Aws) -> None:
        self.aws = mock
        self._last: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.aws.host, int(self.aws.port)

    def make_relay(self, host: str, port: int) -> Relay:
        return self.aws.relay(self.kind, self._last, f"http://{host}:{port}")  # type: ignore[no-any-return]

    def make_place(self) -> str:
        self._last = self.aws.queue() if self.kind is Sqs else self.aws.topic()
        return self._last

    def make_nowhere(self) -> str:
        place = self._last
        assert place is not None
        return f"{place}-not"

    def stored(self, place: str) -> list[Stored]:
        return self.aws.stored(place, unfolds=self.unfolds)

    def too_large(self) -> bytes:
        return b"\xff" * 900_000  # and a third more in base64

    def test_what_is_confirmed_is_stored_byte_for_byte(self) -> None:
        """Bytes that are no text in the base64 of one JSON text."""
        self.unfolds = True
        super().test_what_is_confirmed_is_stored_byte_for_byte()

    def test_an_event_goes_out_as_a_cloud_event(self) -> None:
        """It has more attributes than a message may have."""
        self.unfolds = True
        super().test_an_event_goes_out_as_a_cloud_event()

    def test_nobody_reads_its_login(self) -> None:
        self.make_place()
        super().test_nobody_reads_its_login()

    def test_order_in_fifo(self) -> None:
        place = self._last = self.aws.queue(is_fifo=True) if self.kind is Sqs else self.aws.topic(is_fifo=True)
        given = events(12, keys=3)
        with self.sending(place, ordered=True) as relay:
            assert relay.send(*given) == [None] * 12
        for key in {event.key for event in given}:
            ours = [event.event_id for event in given if event.key == key]
            assert [each for each in self.ids(place) if each in ours] == ours


class TestSqs(OnAws):
    kind = Sqs


class TestSns(OnAws):
    kind = Sns
