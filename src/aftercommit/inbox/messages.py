"""What comes from a broker, as one kind of value: CloudEvents 1.0 in their binary and structured forms, and messages
that are none but have an id. No library of a broker is imported: its messages are looked at as they are."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from aftercommit.errors import InvalidMessage
from aftercommit.events.names import shown

#: The body is the whole event; of several events in one body nobody could say which has been consumed.
STRUCTURED: Final = "application/cloudevents+json"
_SEVERAL: Final = "application/cloudevents-batch"

JSON: Final = "application/json"


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message, whichever broker it came from. `id` is what `inbox.once()` wants."""

    id: str
    data: bytes = field(repr=False)
    content_type: str
    #: None where it is no CloudEvent.
    type: str | None = None
    source: str | None = None
    #: What the sender keeps in order.
    key: str | None = None
    #: All that a CloudEvent says of itself: `time`, `subject`, `traceparent`, extensions.
    attributes: Mapping[str, str] = field(default_factory=_nothing, repr=False)
    #: The others.
    headers: Mapping[str, str] = field(default_factory=_nothing, repr=False)

    @property
    def text(self) -> str:
        return self.data.decode()

    def json(self, into: Any = Any) -> Any:
        """The data, decoded; as an object of a class, and checked, if there is one to decode it into."""
        try:
            return msgspec.json.decode(self.data, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidMessage(
                f"the data of the message {self.id} cannot be decoded: {error}",
                fix=f"look at what sends it; its content type is {shown(self.content_type)}",
            ) from error


def from_kafka(message: Any) -> ReceivedMessage:
    """A `confluent_kafka.Message`: attributes are its headers `ce_…`, and its key is the key.

    A message without an id is refused: an offset would be another message's when the topic is made anew.
    """
    if (error := message.error()) is not None:
        raise InvalidMessage(
            f"the consumer was given an error instead of a message: {error}", fix="look at error() first"
        )
    headers = _headers(message.headers() or ())
    key = message.key()
    return _message(headers, ("ce_",), message.value() or b"", key=None if key is None else _text(key))


def from_amqp(message: Any, body: bytes | None = None) -> ReceivedMessage:
    """A message of aio-pika; or of pika the properties and the body. Attributes are its headers `cloudEvents_…` or
    `cloudEvents:…`; the id of any other message is its `message_id`."""
    headers = _headers((message.headers or {}).items())
    if message.content_type:
        headers["content-type"] = message.content_type
    data = message.body if body is None else body
    return _message(headers, ("cloudevents_", "cloudevents:"), data, message_id=message.message_id)


def from_nats(message: Any) -> ReceivedMessage:
    """A message of nats-py: attributes are its headers `ce-…`; the id of any other message is its `Nats-Msg-Id`."""
    headers = _headers((message.headers or {}).items())
    return _message(headers, ("ce-",), message.data, message_id=headers.get("nats-msg-id"), is_encoded=True)


def from_redis(entry: Any) -> ReceivedMessage:
    """An entry of a stream, as XREADGROUP gives it: `(id, fields)`, or the fields alone. What the relay has appended
    has the payload in `data`, attributes by their names, and headers as `header:…`."""
    fields = entry[1] if isinstance(entry, tuple | list) else entry
    named = {_text(name): value for name, value in fields.items()}
    data = named.pop("data", b"")
    headers = {name.removeprefix("header:"): value for name, value in named.items() if name.startswith("header:")}
    attributes = {f"ce-{name}": value for name, value in named.items() if not name.startswith("header:")}
    attributes["content-type"] = attributes.pop("ce-datacontenttype", "")
    return _message(_headers({**headers, **attributes}.items()), ("ce-",), data)


def _headers(pairs: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """By their names in small letters, as texts."""
    return {_text(name).lower(): _text(value) for name, value in pairs if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode(errors="replace")
    if hasattr(value, "isoformat"):  # AMQP has times
        return str(value.isoformat())
    return value if isinstance(value, str) else str(value)


def _message(
    headers: dict[str, str],
    prefixes: tuple[str, ...],
    data: bytes | str,
    *,
    key: str | None = None,
    message_id: object = None,
    is_encoded: bool = False,
) -> ReceivedMessage:
    """From the headers of a transport, of which those with a prefix are attributes. `is_encoded`: where a header holds
    ASCII only, everything else in it is percent-encoded."""
    body = data.encode() if isinstance(data, str) else bytes(data)
    content_type = headers.pop("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith(_SEVERAL):
        raise InvalidMessage("the body holds a batch of CloudEvents", fix="let them be sent one by one")
    attributes: dict[str, str] = {}
    for name in list(headers):
        if (prefix := next((each for each in prefixes if name.startswith(each)), None)) is not None:
            value = headers.pop(name)
            attributes[name.removeprefix(prefix)] = unquote(value) if is_encoded else value
    if kind == STRUCTURED:
        attributes, body, content_type = _structured(body)
    own_id = attributes.get("id") or (None if message_id is None else str(message_id))
    if not own_id:
        raise InvalidMessage(
            "the message has no id, so nobody can tell whether it comes again",
            fix="let the sender give it one (a relay of aftercommit does), or call once() with an id from its data",
        )
    return ReceivedMessage(
        id=own_id,
        data=body,
        content_type=content_type or JSON,
        type=attributes.get("type"),
        source=attributes.get("source"),
        key=key if key is not None else attributes.get("partitionkey"),
        attributes=MappingProxyType(attributes),
        headers=MappingProxyType(headers),
    )


def _structured(body: bytes) -> tuple[dict[str, str], bytes, str]:
    """The attributes, the data and its type, of an event that is one JSON object."""
    try:
        event = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        data = event.pop("data", None)
        in_base64 = event.pop("data_base64", None)
        said = {name: msgspec.json.decode(value) for name, value in event.items()}
        content_type = str(said.pop("datacontenttype", None) or JSON)
        attributes = {name: _attribute(value) for name, value in said.items() if value is not None}
        if in_base64 is not None:
            return attributes, b64decode(msgspec.json.decode(in_base64, type=str), validate=True), content_type
        if data is None:
            return attributes, b"", content_type
        raw = bytes(data)
        if raw.startswith(b'"') and not _is_json(content_type):  # a text, which JSON has put into quotation marks
            return attributes, msgspec.json.decode(raw, type=str).encode(), content_type
        return attributes, raw, content_type
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise InvalidMessage(
            f"the body calls itself a CloudEvent, and cannot be read as one: {error}", fix="look at what sends it"
        ) from error


def _attribute(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")
