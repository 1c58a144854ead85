"""What a message is made of, which events a relay takes, and what is refused when it is declared."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from aftercommit import DuplicateHandler, EventEnvelope, InvalidOption, Outbox, outbox_event
from aftercommit.events.payloads import PayloadTypes
from aftercommit.relays import Message, Nats, Outgoing, RabbitMQ, Relay, Route
from aftercommit.relays.cloudevents import MessageMaker
from aftercommit.relays.headers import percent_encoded
from aftercommit.relays.only import only
from tests.support import Signal, World


class Kept(Relay):
    """Keeps what it gets."""

    name = "kept"
    where = "here"
    words = ("topic",)

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def publish(self, messages: Any) -> Any:
        self.messages += messages
        return [None] * len(messages)


def made(event: EventEnvelope, **options: Any) -> Message:
    return MessageMaker(lambda event: None, **{"source": "/shop", **options})(event)


def test_an_event_without_key_aggregate_and_tenant_says_nothing_of_them() -> None:
    message = made(EventEnvelope("OrderPlaced", payload_json="{}"))
    assert set(message.attributes) == {"specversion", "id", "source", "type", "time"}


def test_a_function_may_shape_the_message() -> None:
    event = EventEnvelope("OrderPlaced", payload_json='{"a": 1}', key="k", headers={"x": "1"})
    assert made(event, shape=lambda e: b"bytes").body == b"bytes"
    assert made(event, shape=lambda e: "text").body == b"text"
    shaped = made(event, shape=lambda e: Outgoing(content_type="text/plain", headers={"y": "2"}, key="other"))
    assert (shaped.body, shaped.content_type, dict(shaped.headers)) == (b'{"a": 1}', "text/plain", {"y": "2"})
    assert (shaped.key, shaped.attributes["partitionkey"]) == ("other", "other")
    with pytest.raises(InvalidOption, match="message= gave 7"):
        made(event, shape=lambda e: 7)


def test_json_that_is_none_does_not_break_a_structured_message() -> None:
    event = EventEnvelope("OrderPlaced", payload_bytes=b'{"a": ', content_type="application/json")
    body = json.loads(made(event, layout="structured").body)
    assert body["data_base64"] == "eyJhIjog"
    assert "data" not in body


def test_attributes_are_encoded_as_the_binding_for_http_says() -> None:
    assert percent_encoded("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"  # the example of the specification
    assert percent_encoded('a"b%\r\n') == "a%22b%25%0D%0A"
    assert percent_encoded("/plain?x=1&y#z") == "/plain?x=1&y#z"


# ---------------------------------------------------------------- only


@dataclass
class OrderPlaced:
    order: int


@outbox_event(type="order.paid")
@dataclass
class OrderPaid:
    order: int


@dataclass
class RushOrderPlaced(OrderPlaced):
    pass


class Kind(StrEnum):
    SENT = "invoice.sent"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (OrderPlaced, {"OrderPlaced", "RushOrderPlaced"}),
        ([OrderPaid, "InvoiceSent"], {"order.paid", "InvoiceSent"}),
        (OrderPlaced | OrderPaid, {"OrderPlaced", "RushOrderPlaced", "order.paid"}),
        (Kind.SENT, {"invoice.sent"}),
        ("invoice.*", {"invoice.sent", "invoice.paid"}),
        (["*.paid", "OrderPlace?"], {"order.paid", "invoice.paid", "OrderPlaced"}),
    ],
)
def test_only_takes_classes_names_and_patterns(given: Any, taken: set[str]) -> None:
    takes = only(given, PayloadTypes())
    assert takes is not None
    names = ("OrderPlaced", "RushOrderPlaced", "order.paid", "InvoiceSent", "invoice.sent", "invoice.paid", "Other")
    assert {name for name in names if takes(EventEnvelope(name, payload_json="1"))} == taken


# ---------------------------------------------------------------- declaring


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"too": "x"}, r"no option too='x'.*\n.*did you mean to\?"),
        ({"to": "x", "topic": "y"}, "to= and topic= both say where messages go"),
        ({"queue": "x"}, "kept has no queue='x'"),
        ({"only": []}, "only is empty"),
        ({"source": "no uri"}, "source is 'no uri'"),
        ({"source": ""}, "source is ''"),
        ({"format": "xml"}, "format is 'xml'"),
        ({"message": "x"}, "message is 'x', which is no plain function"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_what_makes_no_sense_is_refused_when_a_relay_is_declared(options: dict[str, Any], message: str) -> None:
    outbox = Outbox("sqlite://")
    with pytest.raises(InvalidOption, match=message):
        outbox.relay(Kept(), **options)
    assert outbox._router.resources == []


def test_a_relay_knows_where_it_can_send_to() -> None:
    outbox = Outbox("sqlite://")
    for place in (None, 7, "x" * 256):
        with pytest.raises(InvalidOption, match=r"to of RabbitMQ|routing key"):
            outbox.relay(RabbitMQ(), to=place)
    assert RabbitMQ(exchange="shop").place("key") == Route("shop", "key")
    with pytest.raises(InvalidOption, match=r"relay.. got 'kafka'"):
        outbox.relay("kafka")
    with pytest.raises(InvalidOption, match="begins with 'redis'"):
        RabbitMQ("redis://localhost")
    for make in (lambda: RabbitMQ("amqp://me:sec/ret@host"), lambda: Nats("nats://me:sec/ret@host")):
        with pytest.raises(InvalidOption, match="cannot be read") as caught:
            make()
        assert "sec" not in str(caught.value)


def test_a_second_relay_of_a_kind_needs_an_id() -> None:
    outbox = Outbox("sqlite://")
    assert outbox.relay(Kept()).id == "kept"
    with pytest.raises(DuplicateHandler):
        outbox.relay(Kept())
    assert outbox.relay(Kept(), id="kept-too").id == "kept-too"
    assert len(outbox._router.resources) == 2


# ---------------------------------------------------------------- life


def test_a_broker_that_does_not_answer_keeps_no_outbox_from_ending(world: World) -> None:
    """Nor from starting: connections are made beside it."""
    began, ended = Signal(), Signal()

    class Hanging(Kept):
        async def open(self) -> None:  # type: ignore[override]
            began.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.relay(Hanging())
        await outbox.start()
        await began.wait()
        await outbox.close()
        assert ended.is_set

    world.run(scenario)
