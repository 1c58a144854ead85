"""Delivery reports: waiting for those of one call, and what each of them means for its event."""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import Final

from confluent_kafka import KafkaError

from aftercommit.errors import MessageRefused
from aftercommit.events.outcome import DeadLetter
from aftercommit.relays.outage import away

TOO_LARGE: Final = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE))

#: What a broker says of a message that it will never take.
_NEVER: Final = {
    KafkaError.INVALID_RECORD: "the topic takes no such message, perhaps because it is compacted and wants a key",
    KafkaError.TOPIC_EXCEPTION: "no topic can have this name",
    KafkaError.INVALID_TIMESTAMP: "the topic does not take its time",
}

_NO_TOPIC: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
)

#: What says nothing of a message, but of the cluster or of the way to it.
_AWAY: Final = frozenset(
    (
        *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._SSL),
        *(KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._DESTROY),
        *(KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._QUEUE_FULL, KafkaError._FATAL),
        *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        *(KafkaError.NETWORK_EXCEPTION, KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE),
        *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.KAFKA_STORAGE_ERROR),
        *(KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        *(KafkaError.THROTTLING_QUOTA_EXCEEDED, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER),
        *(KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.INVALID_PRODUCER_ID_MAPPING),
    )
)


class Reports:
    """Those of the messages of one call, added from any thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._came: list[tuple[int, KafkaError | None]] = []
        self._all: SimpleQueue[None] = SimpleQueue()

    def add(self, number: int, error: KafkaError | None) -> None:
        self._came.append((number, error))
        if len(self._came) >= self._count:
            self._all.put(None)

    def wait(self, seconds: float) -> bool:
        """Whether all of them came in time."""
        try:
            self._all.get(timeout=max(0.0, seconds))
        except Empty:
            return False
        return True

    def all(self) -> dict[int, KafkaError | None]:
        """Those that came, by the number of the message."""
        return dict(self._came)


def meaning(error: KafkaError | None, topic: str, where: str, said: str) -> BaseException | None:
    """What a report means for its event; None: the brokers have it. `said` is the last word on the brokers."""
    if error is None:
        return None
    code, text = error.code(), f"{error.name()}: {error.str()}"
    if error.fatal() or code in _AWAY:
        return away(where, said if said and not error.fatal() else text)
    if code in TOO_LARGE:
        return DeadLetter(
            f"Kafka at {where} does not take a message of this size into {topic!r} ({text})",
            fix="store the bulk elsewhere and send a reference to it, or raise max.message.bytes of the topic and "
            "message_max_bytes= of the relay, and replay the event",
        )
    if code in _NEVER:
        return DeadLetter(
            f"Kafka at {where} refused the message for {topic!r}: {_NEVER[code]} ({text})",
            fix="mend the event or the settings of the topic, and replay it",
        )
    if code in _NO_TOPIC:
        return MessageRefused(
            f"Kafka at {where} has no topic {topic!r} ({text})",
            fix="create it, or let the brokers do so (auto.create.topics.enable); the event is tried again until then",
        )
    return MessageRefused(
        f"Kafka at {where} did not take the message for {topic!r} ({text})",
        fix="see what the user may do with the topic, and the log of the brokers",
    )
