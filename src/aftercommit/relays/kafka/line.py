"""The line to a cluster: one producer, and the thread that serves its reports and callbacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from aftercommit.events.log import Log
from aftercommit.relays.kafka.options import Settings, without_secrets

log = Log("aftercommit.relays.kafka")

#: Seconds that one turn of the thread waits for something to serve; close() waits for its end.
TURN: Final = 0.1

#: Seconds without any confirmation, and with word of trouble, after which what waits is taken back.
PATIENCE: Final = 3.0

#: What says that brokers cannot be reached, or let nobody in.
TROUBLE: Final = frozenset(
    (
        *(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._SSL),
        *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),
    )
)

Report = Callable[[KafkaError | None], None]


class Line:
    """Connected in the background. `send` and `take_back` may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told_errors = settings.get("error_cb")
        #: What librdkafka said last of its brokers: the reason behind a message that timed out.
        self.said = ""
        #: Whether the producer has failed for good: it sends nothing any more.
        self.is_broken = False
        self._is_closing = False
        self._trouble_at = self._confirmed_at = float("-inf")
        self._producer = _producer({**settings, "error_cb": self._heard})
        # Not the thread of somebody who waits for reports: tokens of OAUTHBEARER are asked for while the line is idle.
        self._thread = threading.Thread(target=self._serve, name="aftercommit-kafka", daemon=True)
        self._thread.start()

    def send(self, topic: str, *, value: bytes, key: bytes | None, headers: list[Any], report: Report) -> None:
        """Hand a message over. Raises KafkaException when it is refused on the spot, BufferError without room."""

        def reported(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self._confirmed_at = time.monotonic()
            else:
                self._fail(error)
            report(error)

        self._producer.produce(topic, value=value, key=key, headers=headers, on_delivery=reported)

    def is_away(self, since: float) -> bool:
        """Whether somebody who has waited since then has heard of nothing but trouble for a while."""
        now = time.monotonic()
        return now - max(since, self._confirmed_at) >= PATIENCE and now - self._trouble_at < PATIENCE

    def take_back(self, *, in_flight: bool = False) -> None:
        """What waits is reported as purged and will not be sent. What is in flight may be stored all the same."""
        self._producer.purge(in_queue=True, in_flight=in_flight, blocking=False)

    def close(self) -> None:
        """Nobody waits for anything here any more."""
        self._is_closing = True
        self._thread.join(20 * TURN)
        if self._thread.is_alive():
            log.warning("a callback of the Kafka client does not return; its thread is left behind")
        else:
            del self._producer  # its connections end with it, and not when somebody collects garbage

    def _serve(self) -> None:
        while not self._is_closing:
            self._poll()
        self.take_back(in_flight=True)
        self._poll()  # for the reports of those

    def _poll(self) -> None:
        try:
            self._producer.poll(TURN)
        except KafkaException as error:  # what is fatal is raised as well
            self._fail(error.args[0])
        except Exception as error:
            log.warning("a callback of the Kafka client failed", error=error)

    def _heard(self, error: KafkaError) -> None:
        if error.code() in TROUBLE:
            self.said = self._text(error)
            self._trouble_at = time.monotonic()
        self._fail(error)
        if self._told_errors is not None:
            self._told_errors(error)

    def _fail(self, error: KafkaError) -> None:
        """A producer that has failed for good sends nothing any more: it is made anew."""
        if error.fatal() and not self.is_broken:
            self.is_broken, self.said = True, self._text(error)
            log.warning("the Kafka producer has failed for good and is made anew: %s", self.said)

    def _text(self, error: KafkaError) -> str:
        return without_secrets(f"{error.name()}: {error.str()}", self._settings)


class Whisper:
    """Where librdkafka logs: ours, at DEBUG. What follows from it for events is logged with them."""

    def log(self, _level: int, message: str, *values: object) -> None:
        log.debug(message, *values)


def _producer(settings: Settings) -> Producer:
    return Producer({"logger": Whisper(), **settings})


def check(settings: Settings) -> None:
    """Raise KafkaException for settings that no producer takes. Nobody is called: no broker, and no giver of tokens."""
    calling = ("bootstrap.servers", "test.mock.num.brokers", "sasl.oauthbearer.method", "error_cb")
    _producer({name: value for name, value in settings.items() if name not in calling})
