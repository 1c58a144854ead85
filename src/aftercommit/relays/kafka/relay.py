"""The relay to Apache Kafka: an event is done when all in-sync replicas of its partition have it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from aftercommit.errors import InvalidOption, MissingDriver
from aftercommit.events.names import shown
from aftercommit.relays.kafka.options import Settings, delivery_timeout, settings_of, without_secrets
from aftercommit.relays.message import Message
from aftercommit.relays.outage import away
from aftercommit.relays.relay import Relay

try:
    from confluent_kafka import KafkaError, KafkaException
except ImportError as error:
    raise MissingDriver(
        f"confluent-kafka is not installed ({error})", fix='pip install "aftercommit[kafka]"'
    ) from error

from aftercommit.relays.kafka.line import Line, Report, check
from aftercommit.relays.kafka.reports import TOO_LARGE, Reports, meaning

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

#: Seconds between two looks at whether waiting still makes sense, and at whether there is room in the queue.
_LOOK: Final = 0.5
_ROOM: Final = 0.01

#: Seconds that reports may come after the time in which librdkafka gives up on a message.
_SLACK: Final = 2.0


class Kafka(Relay):
    """Publishes to topics of Apache Kafka, and of what speaks its protocol.

    >>> from aftercommit import Outbox
    >>> from aftercommit.relays import Kafka
    >>> outbox = Outbox("sqlite://")
    >>> outbox.relay(Kafka("localhost:9092", compression_type="zstd"), topic="orders")
    <handler kafka>

    The key of a message is that of its event. Settings are those of librdkafka: `sasl_username=` for `sasl.username`,
    or all of them as `config={"sasl.username": …}`. `enable.idempotence` and `acks=all` are always on.
    """

    name: ClassVar[str] = "kafka"
    words: ClassVar[tuple[str, ...]] = ("topic",)

    def __init__(
        self, servers: str | Iterable[str], *, config: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        self._settings: Settings = settings_of(servers, config or {}, settings)
        self._timeout = delivery_timeout(self._settings)
        try:
            check(self._settings)
        except (KafkaException, TypeError, ValueError) as error:
            said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise InvalidOption(
                f"Kafka() takes no such setting: {without_secrets(said, self._settings)}",
                fix="name it as librdkafka does, with _ for each dot: linger_ms=5, sasl_mechanism='PLAIN'",
            ) from None

    def __repr__(self) -> str:
        return f"Kafka({self.where!r})"

    @property
    def where(self) -> str:
        return str(self._settings["bootstrap.servers"])

    def place(self, given: Any) -> str:
        """The name of a topic."""
        if not isinstance(given, str) or not _TOPIC.fullmatch(given) or given in (".", ".."):
            raise InvalidOption(
                "no topic was given" if given is None else f"{shown(given)} is no name of a topic",
                fix='topic="orders", or topic=lambda event: …: up to 249 letters, digits, dots, dashes and underscores',
            )
        return given

    def open(self) -> None:
        self._line = Line(self._settings)
        self._lock = threading.Lock()
        #: Sends each message as a batch of its own; made when a batch was too large for a broker.
        self._single: Line | None = None

    def close(self) -> None:
        self._line.close()
        if self._single is not None:
            self._single.close()

    def publish(self, messages: Sequence[Message]) -> list[BaseException | None]:
        answers = self._publish(self._line, messages)
        # A broker measures the batch that messages came in. Which of them is too large, each has to show alone.
        suspects = [number for number, answer in enumerate(answers) if isinstance(answer, TooLargeTogether)]
        if suspects:
            alone = self._publish(self._one_by_one(), [messages[number] for number in suspects])
            for number, answer in zip(suspects, alone, strict=True):
                answers[number] = answer.verdict if isinstance(answer, TooLargeTogether) else answer
        return answers

    def _one_by_one(self) -> Line:
        with self._lock:
            if self._single is None or self._single.is_broken:
                broken, self._single = self._single, Line({**self._settings, "batch.num.messages": 1})
                if broken is not None:
                    broken.close()
            return self._single

    def _publish(self, line: Line, messages: Sequence[Message]) -> list[BaseException | None]:
        reports = Reports(len(messages))
        refused = {}
        began = time.monotonic()
        for number, message in enumerate(messages):
            try:
                self._hand_over(line, message, partial(reports.add, number), began)
            except KafkaException as error:  # refused here, and no broker was asked
                refused[number] = error.args[0]
                reports.add(number, None)
        self._wait(line, reports, began)
        if line.is_broken:
            self.is_lost = True  # the next messages go through a new one
        came = reports.all()
        return [
            self._refused(refused[number], message)
            if number in refused
            else self._answer(line, came[number], message)
            if number in came
            else away(self.where, "no report came in time")
            for number, message in enumerate(messages)
        ]

    def _hand_over(self, line: Line, message: Message, report: Report, began: float) -> None:
        """As soon as there is room for it."""
        key = None if message.key is None else message.key.encode()
        while True:
            try:
                line.send(message.to, value=message.body, key=key, headers=headers_of(message), report=report)
            except BufferError:
                if self._is_late(began) or line.is_broken or line.is_away(began):
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
                time.sleep(_ROOM)
            else:
                return

    def _wait(self, line: Line, reports: Reports, began: float) -> None:
        """Until each message has its report. What cannot be sent now is taken back, so that it is not sent later."""
        while not reports.wait(_LOOK):
            if self._is_late(began):
                line.take_back(in_flight=True)
                reports.wait(_SLACK)
                return
            if line.is_broken or line.is_away(began):
                line.take_back()

    def _is_late(self, began: float) -> bool:
        return time.monotonic() - began > self._timeout + _SLACK

    def _answer(self, line: Line, report: KafkaError | None, message: Message) -> BaseException | None:
        if report is None:
            return None
        verdict = meaning(report, message.to, self.where, line.said)
        return TooLargeTogether(verdict) if report.code() in TOO_LARGE else verdict

    def _refused(self, error: KafkaError, message: Message) -> BaseException | None:
        return meaning(error, message.to, self.where, "")


class TooLargeTogether(Exception):
    """What a broker said of a whole batch."""

    def __init__(self, verdict: BaseException | None) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


def headers_of(message: Message) -> list[tuple[str, bytes]]:
    """As the Kafka binding of CloudEvents has them; what it gives a name to cannot be said by the user's own."""
    headers = [("content-type", message.content_type.encode())]
    headers += [(f"ce_{name}", value.encode()) for name, value in message.attributes.items()]
    known = {name for name, _ in headers}
    return headers + [(name, value.encode()) for name, value in message.headers.items() if name not in known]
