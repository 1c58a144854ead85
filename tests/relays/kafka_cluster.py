"""A Kafka cluster in this process: the mock that librdkafka brings, which speaks the protocol over TCP."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka

_PRODUCER = 0

#: Number of a request in the protocol.
PRODUCE = 0


def _library() -> ctypes.CDLL:
    """The very library that the client uses; its mock is not part of what Python sees of it."""
    folder = Path(confluent_kafka.__file__).parent
    found = [*(folder.parent / "confluent_kafka.libs").glob("librdkafka*"), *folder.glob(".dylibs/librdkafka*")]
    rd = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    pointer, name = ctypes.c_void_p, ctypes.c_char_p
    for function, gives, takes in (
        ("conf_new", pointer, []),
        ("conf_set", ctypes.c_int, [pointer, name, name, name, ctypes.c_size_t]),
        ("new", pointer, [ctypes.c_int, pointer, name, ctypes.c_size_t]),
        ("destroy", None, [pointer]),
        ("mock_cluster_new", pointer, [pointer, ctypes.c_int]),
        ("mock_cluster_destroy", None, [pointer]),
        ("mock_cluster_bootstraps", name, [pointer]),
        ("mock_topic_create", ctypes.c_int, [pointer, name, ctypes.c_int, ctypes.c_int]),
        ("mock_topic_set_error", None, [pointer, name, ctypes.c_int]),
        ("mock_broker_set_down", ctypes.c_int, [pointer, ctypes.c_int32]),
        ("mock_broker_set_up", ctypes.c_int, [pointer, ctypes.c_int32]),
        ("mock_broker_set_host_port", ctypes.c_int, [pointer, ctypes.c_int32, name, ctypes.c_int]),
        ("mock_broker_set_rtt", ctypes.c_int, [pointer, ctypes.c_int32, ctypes.c_int]),
        ("mock_push_request_errors_array", None, [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.c_void_p]),
    ):
        bound = getattr(rd, f"rd_kafka_{function}")
        bound.restype, bound.argtypes = gives, takes
    return rd


class Cluster:
    """One broker. What it holds is lost with it."""

    def __init__(self) -> None:
        self._rd = _library()
        said = ctypes.create_string_buffer(512)
        config = self._rd.rd_kafka_conf_new()
        self._rd.rd_kafka_conf_set(config, b"log_level", b"0", said, 512)
        self._handle = self._rd.rd_kafka_new(_PRODUCER, config, said, 512)
        assert self._handle, said.value
        self._cluster = self._rd.rd_kafka_mock_cluster_new(self._handle, 1)
        self.servers = self._rd.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        self._rd.rd_kafka_mock_cluster_destroy(self._cluster)
        self._rd.rd_kafka_destroy(self._handle)

    def topic(self, partitions: int = 1) -> str:
        """A new one."""
        name = f"t-{uuid4().hex}"
        assert self._rd.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0
        return name

    def set_error(self, topic: str, code: int) -> None:
        """What the brokers say when they are asked for the topic."""
        self._rd.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def go_down(self) -> None:
        """No connection is open, and none is taken."""
        assert self._rd.rd_kafka_mock_broker_set_down(self._cluster, 1) == 0

    def come_up(self) -> None:
        assert self._rd.rd_kafka_mock_broker_set_up(self._cluster, 1) == 0

    def lead_to(self, host: str, port: int) -> None:
        """Where clients are told that the broker is."""
        assert self._rd.rd_kafka_mock_broker_set_host_port(self._cluster, 1, host.encode(), port) == 0

    def be_slow(self, milliseconds: int) -> None:
        """Each answer comes later by so much."""
        assert self._rd.rd_kafka_mock_broker_set_rtt(self._cluster, 1, milliseconds) == 0

    def fail_next(self, codes: Sequence[int], request: int = PRODUCE) -> None:
        """The next requests of the kind are answered so, and nothing is stored."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._rd.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(codes), array)

    def read(self, topic: str, count: int, timeout: float = 20.0) -> list[Any]:
        """The first messages of a topic, by partition and offset; more than `count` when there are."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "reader",
                "enable.partition.eof": True,
                "log_level": 0,
                "fetch.wait.max.ms": 10,
                "reconnect.backoff.max.ms": 200,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=timeout).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
            messages: list[Any] = []
            ended: set[int] = set()
            while len(messages) < count or len(ended) < len(partitions):
                message = consumer.poll(timeout)
                assert message is not None, f"{len(messages)} of {count} came"
                if message.error() is None:
                    messages.append(message)
                    ended.discard(message.partition())
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
            return sorted(messages, key=lambda each: (each.partition(), each.offset()))
        finally:
            consumer.close()
