"""From an event to a message, as CloudEvents 1.0 say it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias

import msgspec

from aftercommit.errors import InvalidOption
from aftercommit.events.context import split
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.fields import JSON, NO_HEADERS, headers_of
from aftercommit.events.names import GLOBAL, shown
from aftercommit.relays.message import Message, Outgoing

#: `binary`: the payload is the body and the attributes are beside it; `structured`: both are one JSON text; `plain`:
#: the payload and the user's headers, and no CloudEvent.
FORMATS: Final = ("binary", "structured", "plain")

STRUCTURED_TYPE: Final = "application/cloudevents+json"

#: Of the distributed tracing extension.
_TRACED: Final = ("traceparent", "tracestate")

#: The characters of RFC 3986, with whole percent-encodings.
_URI_REFERENCE: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")

Shape: TypeAlias = Callable[[EventEnvelope], "bytes | str | Outgoing"]


class MessageMaker:
    """Makes the messages of one relay."""

    def __init__(
        self,
        route: Callable[[EventEnvelope], Any],
        *,
        source: str,
        layout: str = "binary",
        shape: Shape | None = None,
    ) -> None:
        if layout not in FORMATS:
            raise InvalidOption(f"format is {layout!r}", fix=f"one of {', '.join(FORMATS)}")
        given: Any = shape
        if given is not None and (not callable(given) or iscoroutinefunction(given)):
            raise InvalidOption(
                f"message is {shown(shape)}, which is no plain function",
                fix="pass a function of the event that returns bytes or Outgoing(body=…, headers=…)",
            )
        self._route = route
        self._source = checked_source(source)
        self._layout = layout
        self._shape = shape

    def __call__(self, event: EventEnvelope) -> Message:
        """Raises what a function of the user's raises, or gives that makes no sense."""
        headers = split(event.headers)[0] if event.headers else NO_HEADERS
        body, content_type, key = event.payload_bytes, event.content_type, event.key
        if self._shape is not None:
            given = _checked(self._shape(event))
            body = body if given.body is None else given.body
            headers = headers if given.headers is None else headers_of(given.headers, "headers")
            content_type = given.content_type or content_type
            key = key if given.key is None else given.key
        attributes: Mapping[str, str] = NO_HEADERS
        if self._layout != "plain":
            attributes = attributes_of(event, self._source, key, headers)
            if self._layout == "structured":
                body, content_type = structured(attributes, body, content_type), STRUCTURED_TYPE
                attributes = NO_HEADERS
        return Message(event, event.event_id, body, content_type, attributes, headers, key, self._route(event))


def attributes_of(event: EventEnvelope, source: str, key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """What a CloudEvent says of an event. An attribute has to say something, so there are no empty ones."""
    attributes = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": source,
        "type": event.event_type,
        "time": event.occurred_at.isoformat().replace("+00:00", "Z"),
    }
    subject = event.aggregate_id or key
    if subject:
        attributes["subject"] = subject
    if key:
        attributes["partitionkey"] = key
    if event.aggregate_type != GLOBAL:
        attributes["aggregatetype"] = event.aggregate_type
    if event.tenant_id is not None:
        attributes["tenantid"] = event.tenant_id
    for name in _TRACED:
        if headers and headers.get(name):
            attributes[name] = headers[name]
    return attributes


def structured(attributes: Mapping[str, str], body: bytes, content_type: str) -> bytes:
    """The JSON event format. JSON stands in it as it was written; anything else in base64."""
    event: dict[str, Any] = {**attributes, "datacontenttype": content_type}
    if is_json(content_type) and _is_whole_json(body):
        event["data"] = msgspec.Raw(body)
    else:
        event["data_base64"] = b64encode(body).decode()
    return msgspec.json.encode(event)


def _is_whole_json(body: bytes) -> bool:
    """What calls itself JSON and is not would break the text that it stands in."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON or kind.endswith("+json")


def checked_source(source: Any) -> str:
    if not isinstance(source, str) or not _URI_REFERENCE.fullmatch(source):
        raise InvalidOption(
            f"source is {shown(source)}, which is no URI reference",
            fix='name where events come from: source="/shop/orders", or "https://shop.example/orders"',
        )
    return source


def default_source(table: str) -> str:
    """An outbox's table, as a path."""
    return f"/aftercommit/{table}"


def _checked(given: Any) -> Outgoing:
    if isinstance(given, Outgoing):
        return given
    if isinstance(given, str):
        return Outgoing(body=given.encode())
    if isinstance(given, bytes | bytearray | memoryview):
        return Outgoing(body=bytes(given))
    raise InvalidOption(
        f"message= gave {shown(given)} of type {type(given).__name__}", fix="return bytes, or Outgoing(body=…)"
    )
