"""An instance of a fleet that keeps order, whose events go to a broker; the journal has each message that was sent."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from inspect import iscoroutinefunction
from itertools import count
from typing import Any, TypeAlias

from tests.promises import instance  # first: it sets the clocks before the library reads one

from aftercommit import MetricsExporter, Unavailable  # isort: skip
from aftercommit.delivery import circuits
from aftercommit.relays import Kafka, Message, Nats, RabbitMQ, RedisStreams, Relay
from tests.promises.journal import Journal
from tests.promises.relayed import SENT_BY

KINDS: dict[str, type[Relay]] = {"rabbitmq": RabbitMQ, "nats": Nats, "redis": RedisStreams, "kafka": Kafka}

Answers: TypeAlias = Sequence[BaseException | None]

#: Of the connections of this process.
_numbers = count(1)


class Instance(instance.Instance):
    """A relay for its handler."""

    def _register(self, spec: dict[str, Any]) -> None:
        given = spec["relay"]
        relay = watched(KINDS[given["kind"]], self.journal)(given["url"], **given["settings"])
        self.outbox.relay(relay, to=given["to"], batch=given["batch"], timeout="60s")


def watched(kind: type[Relay], journal: Journal) -> type[Relay]:
    """The same relay, in its colour. A message says which connection it went through."""

    class Watched(kind):  # type: ignore[misc, valid-type]
        connection = ""

        def _begins(self) -> None:
            self.connection = f"{os.getpid()}.{next(_numbers)}"
            journal.say("opened", self.connection)

        def _sends(self, messages: Sequence[Message]) -> Sequence[Message]:
            self._say("sent", messages)
            return [replace(each, headers={**each.headers, SENT_BY: self.connection}) for each in messages]

        def _heard(self, messages: Sequence[Message], answers: Answers) -> Answers:
            for message, answer in zip(messages, answers, strict=True):
                kind = "stored" if answer is None else "away" if isinstance(answer, Unavailable) else "refused"
                self._say(kind, [message])
            return answers

        def _say(self, kind: str, messages: Sequence[Message]) -> None:
            for each in messages:
                journal.say(kind, f"{self.connection}/{each.key}", json.loads(each.body)["n"])

    if not iscoroutinefunction(kind.publish):

        class Plain(Watched):
            def open(self) -> None:
                self._begins()
                super().open()

            def publish(self, messages: Sequence[Message]) -> Answers:
                try:
                    return self._heard(messages, super().publish(self._sends(messages)))
                except Unavailable:
                    self._say("away", messages)
                    raise

        return Plain

    class Async(Watched):
        async def open(self) -> None:
            self._begins()
            await super().open()

        async def publish(self, messages: Sequence[Message]) -> Answers:
            try:
                return self._heard(messages, await super().publish(self._sends(messages)))
            except Unavailable:
                self._say("away", messages)
                raise

    return Async


class Losses(MetricsExporter):
    """Says when somebody finds that an event was taken from it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def lease_lost(self, event_type: str, handler_id: str) -> None:
        self._journal.say("lost", event_type)


def main(spec: dict[str, Any]) -> None:
    # A broker that is back is tried within the test.
    circuits.FIRST_PAUSE, circuits.LONGEST_PAUSE = 0.1, 0.5  # type: ignore[misc]
    if spec["handler"]:
        spec["options"]["metrics"] = Losses(Journal(instance.worker.Path(spec["folder"]) / "journal"))
    instance.worker.main(spec, Instance)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
