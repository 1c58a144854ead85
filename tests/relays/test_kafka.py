"""Kafka: what its delivery reports mean, and that what was given up is not sent later."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError

from aftercommit import DeadLetter, InvalidOption, Unavailable
from aftercommit.errors import MessageRefused
from aftercommit.relays import Kafka
from tests.relays.kafka_cluster import Cluster
from tests.relays.kit import message, opened
from tests.support import Collector, World


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def lost() -> Iterator[Cluster]:
    """A cluster of the test's own, which may go down."""
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def opens() -> Iterator[Any]:
    made: list[Any] = []

    def opens(cluster: Cluster, **settings: Any) -> Any:
        made.append(opened(Kafka(cluster.servers, **settings)))
        return made[-1]

    yield opens
    for relay in made:
        relay.close()


def test_a_confirmed_message_is_stored_as_a_cloudevent_with_its_key(cluster: Cluster, opens: Any) -> None:
    relay, topic = opens(cluster), cluster.topic()
    headers = {"tenant": "é", "ce_id": "forged", "traceparent": "00-1"}
    sent = [
        message(relay, '{"n": 1}', to=topic, key="a", headers=headers),
        message(relay, b"\xff\x00", to=topic, content_type="image/png"),
        message(relay, '{"n": 3}', to=topic, layout="structured"),
    ]

    assert relay.publish(sent) == [None, None, None]

    first, second, third = cluster.read(topic, 3)
    assert (first.key(), first.value()) == (b"a", b'{"n": 1}')
    told = first.headers()
    assert len(dict(told)) == len(told), "no name twice"
    assert {**dict(told), "ce_time": b""} == {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_id": sent[0].id.encode(),
        "ce_source": b"/tests",
        "ce_type": b"OrderPlaced",
        "ce_time": b"",
        "ce_subject": b"a",
        "ce_partitionkey": b"a",
        "ce_traceparent": b"00-1",
        "tenant": "é".encode(),
        "traceparent": b"00-1",
    }
    assert (second.key(), second.value(), dict(second.headers())["content-type"]) == (None, b"\xff\x00", b"image/png")
    assert dict(third.headers()) == {"content-type": b"application/cloudevents+json"}


def test_a_message_too_large_is_a_dead_letter_and_takes_no_other_with_it(cluster: Cluster, opens: Any) -> None:
    """The client refuses the first. Of a batch that a broker refuses, each is sent alone."""
    relay, topic = opens(cluster, message_max_bytes=2_000, linger_ms=50), cluster.topic()
    small = [message(relay, f'"{n}"', to=topic) for n in range(3)]
    cluster.fail_next([KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE])

    answers = relay.publish([message(relay, f'"{"x" * 3_000}"', to=topic), *small])

    assert isinstance(answers[0], DeadLetter)
    assert "message_max_bytes" in answers[0].fix
    assert [type(answer) for answer in answers[1:]] == [DeadLetter, type(None), type(None)]
    assert sorted(each.value() for each in cluster.read(topic, 2)) == [b'"1"', b'"2"']


def test_a_topic_that_is_not_there_is_a_failure_that_says_so(cluster: Cluster, opens: Any) -> None:
    relay, topic = opens(cluster), cluster.topic()
    cluster.set_error(topic, KafkaError.UNKNOWN_TOPIC_OR_PART)
    relay._settings["topic.metadata.propagation.max.ms"] = 100
    relay.close()
    relay.open()

    (answer,) = relay.publish([message(relay, to=topic)])

    assert isinstance(answer, MessageRefused)
    assert f"has no topic '{topic}'" in str(answer)


def test_a_cluster_that_is_away_costs_no_attempt_and_gets_nothing_that_was_given_up(lost: Cluster, opens: Any) -> None:
    relay, topic = opens(lost), lost.topic()
    assert relay.publish([message(relay, '"before"', to=topic)]) == [None]
    lost.go_down()

    answers = relay.publish([message(relay, '"given up"', to=topic) for _ in range(3)])

    assert [type(answer) for answer in answers] == [Unavailable] * 3
    assert answers[0].destination == lost.servers
    assert "_TRANSPORT" in str(answers[0].__cause__) or "_ALL_BROKERS_DOWN" in str(answers[0].__cause__)
    lost.come_up()
    assert relay.publish([message(relay, '"after"', to=topic)]) == [None]
    assert [each.value() for each in lost.read(topic, 2)] == [b'"before"', b'"after"']


def test_a_connection_that_is_cut_while_a_message_is_in_flight_repeats_it_once(lost: Cluster, opens: Any) -> None:
    """An idempotent producer asks again, under the same number."""
    relay, topic = opens(lost), lost.topic()
    lost.fail_next([KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT])

    assert relay.publish([message(relay, f'"{n}"', to=topic) for n in range(5)]) == [None] * 5

    assert [each.value() for each in lost.read(topic, 5)] == [f'"{n}"'.encode() for n in range(5)]


def test_after_a_fatal_error_the_next_messages_go_through_a_new_producer(lost: Cluster, opens: Any) -> None:
    relay, topic = opens(lost), lost.topic()
    relay.publish([message(relay, '"first"', to=topic)])
    lost.fail_next([KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER])

    (answer,) = relay.publish([message(relay, '"fatal"', to=topic)])
    (late,) = relay.publish([message(relay, '"late"', to=topic)])

    assert (type(answer), type(late), relay.is_lost) == (Unavailable, Unavailable, True)
    again = opens(lost)
    assert again.publish([message(again, '"after"', to=topic)]) == [None]
    assert [each.value() for each in lost.read(topic, 2)] == [b'"first"', b'"after"']


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"acks": 1}, "could be lost"),
        ({"enable_idempotence": False}, "could be lost"),
        ({"transactional_id": "x"}, "takes no transactional.id"),
        ({"message_timeout_ms": 0}, "for ever"),
        ({"linger": 5}, 'No such configuration property: "linger"'),
        ({"security_protocol": "SSL", "ssl_key_pem": "very secret"}, "ssl.key.pem"),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_they_are_declared(settings: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as refused:
        Kafka("localhost:9092", **settings)
    assert "very secret" not in str(refused.value)


def test_secrets_are_in_no_text() -> None:
    login = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "u",
        "sasl_password": "geheim",
    }
    relay = Kafka(["one:9092", "two:9092"], **login)
    assert repr(relay) == "Kafka('one:9092,two:9092')"
    with pytest.raises(InvalidOption, match="login in them") as refused:
        Kafka("u:geheim@localhost:9092")
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("topic", [None, "", "a b", "x" * 250, 7])
def test_what_is_no_name_of_a_topic_is_refused_when_it_is_declared(topic: Any) -> None:
    with pytest.raises(InvalidOption, match="topic"):
        Kafka("localhost:9092").route(topic)


def test_events_of_an_outbox_arrive_in_the_order_of_their_keys(cluster: Cluster, world: World) -> None:
    topic = cluster.topic(partitions=3)

    async def scenario() -> None:
        outbox = world.outbox(ordered=True)
        outbox.relay(Kafka(cluster.servers), topic=topic, only="Order*")
        others = Collector()
        outbox.handler("Other", id="other")(lambda event: others.add(event.event_type))
        async with outbox:
            async with outbox.transaction():
                for number in range(60):
                    await outbox.write("OrderPlaced", {"n": number}, key=f"k{number % 7}")
                await outbox.write("Other", {})
            await others.reach(1)
            await world.until_settled(61)

    world.run(scenario)

    seen: dict[bytes, list[int]] = {}
    for each in cluster.read(topic, 60):
        seen.setdefault(each.key(), []).append(int(each.value().split(b":")[1].strip(b" }")))
    assert len(seen) == 7
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(60))


class Breaking(Kafka):
    """Takes the cluster away when so many messages were handed over, and brings it back after a while."""

    def __init__(self, cluster: Cluster, outages: dict[int, float], **settings: Any) -> None:
        super().__init__(cluster.servers, **settings)
        self.cluster, self.outages, self.back = cluster, outages, list[threading.Timer]()
        self.count = count(1)

    def publish(self, messages: Any) -> Any:
        for _ in messages:
            pause = self.outages.pop(next(self.count), None)
            if pause is not None:
                self.cluster.go_down()
                self.back.append(threading.Timer(pause, self.cluster.come_up))
                self.back[-1].start()
        return super().publish(messages)


def test_order_per_key_outlives_outages_of_the_cluster(lost: Cluster, tmp_path: Path) -> None:
    """What was given up comes again, and never behind what was written after it."""
    world, topic = World("threads", tmp_path), lost.topic(partitions=4)
    outages = {100: 0.3, 250: 4.5, 400: 0.5}  # within the patience of the relay, and past it
    relay = Breaking(lost, outages, delivery_timeout_ms=5_000, reconnect_backoff_max_ms=100)

    async def scenario() -> None:
        outbox = world.outbox(ordered=True)
        outbox.relay(relay, topic=topic, batch=20)
        async with outbox.transaction():
            for number in range(600):
                await outbox.write("Counted", {"n": number}, key=f"k{number % 30}")
        async with outbox:
            await world.until_settled(600, timeout=60)

    world.run(scenario)
    for timer in relay.back:
        timer.join()
    assert not outages, "an outage met nobody"

    seen: dict[bytes, list[int]] = {}
    for each in lost.read(topic, 600):
        seen.setdefault(each.key(), []).append(json.loads(each.value())["n"])
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert {number for numbers in seen.values() for number in numbers} == set(range(600))
    assert all(row["attempts"] == 0 for row in world.rows())
