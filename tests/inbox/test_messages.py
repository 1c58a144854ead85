"""What comes from brokers and in requests, as one kind of value."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from subprocess import run
from types import SimpleNamespace
from typing import Any

import aio_pika
import msgspec
import pytest
from aio_pika.message import IncomingMessage
from confluent_kafka import Message as KafkaMessage
from nats.aio.msg import Msg
from standardwebhooks.webhooks import Webhook

from aftercommit import InvalidMessage, InvalidOption, InvalidSignature, MessageTooLarge
from aftercommit.inbox.messages import ReceivedMessage, from_amqp, from_kafka, from_nats, from_redis
from aftercommit.inbox.webhooks import from_http, from_webhook

DATA = b'{"order": 7}'
ATTRIBUTES = {
    "specversion": "1.0",
    "id": "01J",
    "source": "/shop",
    "type": "OrderPlaced",
    "partitionkey": "customer 1 ü",
    "time": "2026-01-02T03:04:05Z",
}
ENCODED = {**ATTRIBUTES, "partitionkey": "customer%201%20%C3%BC"}
STRUCTURED = msgspec.json.encode({**ATTRIBUTES, "datacontenttype": "application/json", "data": msgspec.Raw(DATA)})
STRUCTURED_TYPE = "application/cloudevents+json; charset=utf-8"


def kafka(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    pairs = [*((f"ce_{name}", value.encode()) for name, value in headers.items()), ("content-type", kind.encode())]
    return from_kafka(
        KafkaMessage(topic="orders", value=body, key=b"customer 1 \xc3\xbc", headers=[*pairs, ("own", b"x")])
    )


def amqp(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    return from_amqp(incoming({**{f"cloudEvents_{k}": v for k, v in headers.items()}, "own": "x"}, body, kind))


def incoming(headers: dict[str, Any], body: bytes, kind: str | None, message_id: str | None = None) -> Any:
    properties = aio_pika.Message(body, headers=headers, content_type=kind, message_id=message_id).properties
    delivered = SimpleNamespace(
        body=body,
        header=SimpleNamespace(properties=properties),
        delivery=SimpleNamespace(consumer_tag="", delivery_tag=1, redelivered=False, exchange="", routing_key="orders"),
        channel=None,
        delivery_tag=1,
        consumer_tag="",
        exchange="",
        routing_key="orders",
        redelivered=False,
        message_count=None,
    )
    return IncomingMessage(delivered, no_ack=True)  # type: ignore[arg-type]


def pika(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    own = {**{f"cloudEvents:{k}": v for k, v in headers.items()}, "own": "x"}
    return from_amqp(SimpleNamespace(headers=own, content_type=kind, message_id=None), body)


def nats(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    own = {f"ce-{name}": value for name, value in headers.items()}
    return from_nats(Msg(None, data=body, headers={**own, "content-type": kind, "own": "x"}))  # type: ignore[arg-type]


def redis(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    fields = {**headers, "data": body, "datacontenttype": kind, "header:own": "x"}
    return from_redis((b"1-0", {name.encode(): value for name, value in fields.items()}))


def http(headers: dict[str, str], body: bytes, kind: str) -> ReceivedMessage:
    own = {f"Ce-{name}": value for name, value in headers.items()}
    return from_http({**own, "Content-Type": kind, "own": "x"}, body, secret=None)


@pytest.mark.parametrize("way", [kafka, amqp, pika, nats, redis, http])
def test_a_cloud_event_is_the_same_whichever_way_it_came(way: Any) -> None:
    encoded = way in (nats, http)
    binary = way(ENCODED if encoded else ATTRIBUTES, DATA, "application/json")
    structured = way({}, STRUCTURED, STRUCTURED_TYPE)

    for message in (binary, structured):
        assert (message.id, message.type, message.source) == ("01J", "OrderPlaced", "/shop")
        assert message.key == "customer 1 ü"
        assert message.attributes == ATTRIBUTES
        assert message.data == DATA
        assert message.json() == {"order": 7}
        assert message.content_type == "application/json"
        assert message.headers == {"own": "x"}


@pytest.mark.parametrize("way", [kafka, amqp, pika, nats, redis, http])
def test_a_message_without_an_id_is_refused(way: Any) -> None:
    with pytest.raises(InvalidMessage, match="no id"):
        way({}, DATA, "application/json")


def test_what_is_no_cloud_event_has_the_id_of_its_broker() -> None:
    assert from_amqp(incoming({}, DATA, None, "m-1")).id == "m-1"
    found = from_nats(Msg(None, data=DATA, headers={"Nats-Msg-Id": "m-2"}))  # type: ignore[arg-type]
    assert (found.id, found.type, found.key, found.content_type) == ("m-2", None, None, "application/json")
    assert from_http({"webhook-id": "m-3"}, DATA, secret=None).id == "m-3"


@pytest.mark.parametrize(
    ("said", "kind", "data"),
    [
        ({"data_base64": b64encode(b"\xff\x00").decode()}, "image/png", b"\xff\x00"),
        ({"data": "hello"}, "text/plain", b"hello"),
        ({"data": "hello"}, "application/json", b'"hello"'),
        ({}, "application/json", b""),
        ({"data": None}, "application/json", b"null"),
    ],
)
def test_structured_data_comes_out_as_it_was(said: dict[str, Any], kind: str, data: bytes) -> None:
    body = msgspec.json.encode({**ATTRIBUTES, "datacontenttype": kind, "sequence": 5, "ok": True, **said})
    message = http({}, body, STRUCTURED_TYPE)
    assert (message.data, message.content_type) == (data, kind)
    assert (message.attributes["sequence"], message.attributes["ok"]) == ("5", "true")


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"id": "x", "data_base64": 5}', b'{"id":"x","data_base64":"?"}'])
def test_what_only_calls_itself_a_cloud_event_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidMessage):
        http({}, body, STRUCTURED_TYPE)
    with pytest.raises(InvalidMessage, match="batch"):
        http({}, b"[]", "application/cloudevents-batch+json")


def test_data_that_is_no_json_is_told_with_the_message() -> None:
    with pytest.raises(InvalidMessage, match="01J"):
        kafka(ATTRIBUTES, b"{", "application/json").json()

    class Order(msgspec.Struct):
        order: int

    assert kafka(ATTRIBUTES, DATA, "application/json").json(Order) == Order(7)


def test_an_error_of_kafka_is_no_message() -> None:
    with pytest.raises(InvalidMessage, match="nobody there"):
        from_kafka(SimpleNamespace(error=lambda: "nobody there"))


def test_no_library_of_a_broker_is_loaded() -> None:
    program = "import sys, aftercommit.inbox.messages; print(*sys.modules)"
    loaded = run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aio_pika", "confluent_kafka", "nats", "redis", "standardwebhooks", "sqlalchemy", "asyncio"} & set(
        loaded
    )


# ---------------------------------------------------------------- webhooks

SECRET = "whsec_" + b64encode(b"a secret of twenty-four!").decode()


def signed(body: bytes = DATA, *, ago: int = 0, secret: str = SECRET, message_id: str = "01J") -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": Webhook(secret).sign(message_id, at, body.decode()),
        "Content-Type": "application/json",
    }


def test_a_signed_request_is_a_message() -> None:
    headers = {**signed(), **{f"ce-{name}": value for name, value in ENCODED.items()}}
    message = from_http(headers, DATA, secret=SECRET)
    assert (message.id, message.type, message.json()) == ("01J", "OrderPlaced", {"order": 7})
    assert from_http(signed(STRUCTURED) | {"content-type": STRUCTURED_TYPE}, STRUCTURED, secret=SECRET).key


def test_secrets_may_change() -> None:
    new = "whsec_" + b64encode(b"another of twenty-four!!").decode()
    assert from_http(signed(secret=new), DATA, secret=[SECRET, new]).id == "01J"
    both = signed() | {
        "Webhook-Signature": f"{signed(secret=new)['Webhook-Signature']} {signed()['Webhook-Signature']}"
    }
    assert from_http(both, DATA, secret=SECRET).id == "01J"


def test_the_signed_id_counts_and_no_other() -> None:
    """Else a request that somebody has seen could be sent again under a new id."""
    headers = signed() | {"ce-id": "02J", "ce-type": "OrderPlaced"}
    assert from_http(headers, DATA, secret=SECRET).id == "01J"


OTHER = "whsec_" + b64encode(b"somebody else's secret!!").decode()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        signed(secret=OTHER),
        signed(b'{"order": 8}'),
        signed() | {"Webhook-Id": "02J"},
        signed() | {"Webhook-Timestamp": str(int(datetime.now(UTC).timestamp()) - 9)},
        signed() | {"Webhook-Timestamp": "9" * 40},
        signed() | {"Webhook-Timestamp": "now"},
        signed() | {"Webhook-Signature": "v1"},
        signed() | {"Webhook-Signature": "v1,ä v1,===== v2,x"},
        {name: value for name, value in signed().items() if name != "Webhook-Id"},
    ],
)
def test_a_bad_signature_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidSignature) as refused:
        from_http(headers, DATA, secret=SECRET)
    assert SECRET not in str(refused.value)


def test_an_old_request_is_refused() -> None:
    for ago in (301, -301):
        with pytest.raises(InvalidSignature, match="further"):
            from_http(signed(ago=ago), DATA, secret=SECRET)
    assert from_http(signed(ago=301), DATA, secret=SECRET, tolerance="10m")


def test_a_body_that_is_no_text_is_signed_all_the_same() -> None:
    import hmac

    body, at = b"\xff\x00", int(datetime.now(UTC).timestamp())
    signature = b64encode(hmac.digest(b"key", f"01J.{at}.".encode() + body, "sha256")).decode()
    headers = {"webhook-id": "01J", "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}
    assert from_http(headers, body, secret=b"key").data == body
    with pytest.raises(InvalidSignature):
        from_http(headers, b"\xff\x01", secret=b"key")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_ä", b"", [], [b""], [5]])
def test_a_secret_that_is_none_is_refused_and_not_said(secret: Any) -> None:
    with pytest.raises(InvalidOption, match="secret"):
        from_http(signed(), DATA, secret=secret)


def scope_of(headers: dict[str, str]) -> dict[str, Any]:
    return {"type": "http", "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]}


def receiving(*parts: dict[str, Any]) -> Any:
    waiting = list(parts)

    async def receive() -> Any:
        return waiting.pop(0)

    return receive


def test_a_request_of_asgi_is_read_in_parts_and_no_further_than_it_may_be() -> None:
    def parts(*bodies: bytes) -> list[dict[str, Any]]:
        return [{"type": "http.request", "body": body, "more_body": body is not bodies[-1]} for body in bodies]

    async def scenario() -> None:
        whole = parts(DATA[:5], DATA[5:])
        assert (await from_webhook(scope_of(signed()), receiving(*whole), secret=SECRET)).data == DATA
        with pytest.raises(MessageTooLarge):
            await from_webhook(scope_of(signed()), receiving(whole[0]), secret=SECRET, max_size=4)
        with pytest.raises(MessageTooLarge):  # told before anything is read
            await from_webhook(scope_of({"content-length": "99"}), receiving(), secret=SECRET, max_size=4)
        with pytest.raises(MessageTooLarge):
            from_http(signed(), DATA, secret=SECRET, max_size=4)
        with pytest.raises(InvalidSignature):
            await from_webhook(scope_of({}), receiving(*parts(DATA)), secret=SECRET)
        with pytest.raises(InvalidMessage, match="gone"):
            await from_webhook(scope_of(signed()), receiving({"type": "http.disconnect"}), secret=SECRET)

    asyncio.run(scenario())
