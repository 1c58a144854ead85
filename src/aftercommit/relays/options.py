"""The keywords of `outbox.relay()`, and the handler that comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypedDict

from aftercommit.errors import InvalidOption, did_you_mean
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.names import shown
from aftercommit.events.payloads import PayloadTypes
from aftercommit.events.retry_settings import Retry
from aftercommit.relays.cloudevents import MessageMaker, Shape, default_source
from aftercommit.relays.line import Line, line_of
from aftercommit.relays.only import only
from aftercommit.relays.publisher import Publisher
from aftercommit.relays.relay import Relay

#: How many events go to the broker together, and how long the first of them waits for others.
BATCH: Final = 100
LINGER: Final = "2ms"

#: Seconds for which a broker may be silent.
TIMEOUT: Final = 30.0


class RelayOptions(TypedDict, total=False):
    """The keywords of `relay()`. Those of the handler are handed on to it."""

    #: Where messages go: a value that the relay knows, or a function of the event that gives one.
    to: Any
    #: The same, in the words of relays that have them.
    topic: Any
    queue: Any
    subject: Any
    stream: Any
    url: Any
    #: A class, a name or a pattern ("invoice.*"), or a list of those; every event when it is left out.
    only: Any
    #: What CloudEvents say of where they come from: a URI reference. "/aftercommit/" and the table when it is left out.
    source: str
    #: "binary" (CloudEvents beside the payload), "structured" (one JSON text), or "plain" (no CloudEvents).
    format: str
    #: A function of the event that gives the body of its message, or an `Outgoing`.
    message: Shape
    #: The most events that are sent together.
    batch: int
    #: How long the first of them waits for others.
    linger: Duration
    #: The longest that sending some of them may take.
    timeout: Duration
    #: As of a handler.
    id: str
    aliases: Iterable[str]
    retry: Retry
    concurrency: int
    rate: str
    aggregate_type: str | Enum


#: What says where messages go.
_PLACES: Final = ("to", "topic", "queue", "subject", "stream", "url")

#: What is handed on.
_OF_HANDLERS: Final = ("aliases", "retry", "concurrency", "rate", "aggregate_type")


class Relaying:
    """One declared relay: its line, the function of its handler, and the handler's options."""

    def __init__(
        self, relay: Any, options: dict[str, Any], payloads: PayloadTypes, *, table: str, is_ordered: bool
    ) -> None:
        if not isinstance(relay, Relay):
            raise InvalidOption(
                f"relay() got {shown(relay)}, which is no relay",
                fix='outbox.relay(RabbitMQ("amqp://…"), to=…), or an object of your own subclass of Relay',
            )
        _refuse_unknown(options)
        route = relay.route(_place(relay, options))
        make = MessageMaker(
            route,
            source=options.get("source", default_source(table)),
            layout=options.get("format", "binary"),
            shape=options.get("message"),
        )
        self.line: Line = line_of(relay)
        self.function = Publisher(self.line, make, is_ordered=is_ordered).function()
        self.options: dict[str, Any] = {
            "id": options.get("id", relay.name),
            "batch": options.get("batch", BATCH),
            "linger": options.get("linger", LINGER),
            "timeout": options.get("timeout", TIMEOUT),
            "destination": _destination(relay, route),
            **{name: options[name] for name in _OF_HANDLERS if name in options},
        }
        supports = only(options.get("only"), payloads)
        if supports is not None:
            self.options["supports"] = supports


def _refuse_unknown(options: dict[str, Any]) -> None:
    known = RelayOptions.__annotations__
    for name, value in options.items():
        if name not in known:
            raise InvalidOption(f"relay() has no option {name}={shown(value)}", fix=did_you_mean(name, known))


def _place(relay: Relay, options: dict[str, Any]) -> Any:
    """What `to=`, or the relay's own word for it, says; None when nothing does."""
    given = [name for name in _PLACES if name in options]
    words = ("to", *relay.words)
    for name in given:
        if name not in words:
            raise InvalidOption(
                f"{relay.name} has no {name}={shown(options[name])}",
                fix=f"say where messages go with {' or '.join(f'{word}=' for word in words)}",
            )
    if len(given) > 1:
        raise InvalidOption(f"{' and '.join(f'{name}=' for name in given)} both say where messages go", fix="give one")
    return options[given[0]] if given else None


def _destination(relay: Relay, route: Callable[[EventEnvelope], Any]) -> str | Callable[[EventEnvelope], str]:
    """One for all, or where a relay talks to several, that of the event."""
    if type(relay).destination is Relay.destination:
        return relay.where
    return lambda event: relay.destination(route(event))
