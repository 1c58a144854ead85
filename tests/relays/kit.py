"""Messages for relays that are called by hand."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from aftercommit import EventEnvelope
from aftercommit.relays import Message, Relay
from aftercommit.relays.cloudevents import MessageMaker


def message(
    relay: Relay,
    payload: str | bytes = '{"id": 7}',
    *,
    to: Any = None,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    layout: str = "binary",
    event_type: str = "OrderPlaced",
    content_type: str | None = None,
) -> Message:
    """As an outbox would make it."""
    body = {"payload_json": payload} if isinstance(payload, str) else {"payload_bytes": payload}
    more = {} if content_type is None else {"content_type": content_type}
    event = EventEnvelope(event_type, **body, key=key, headers=headers or {}, **more)
    return MessageMaker(relay.route(to), source="/tests", layout=layout)(event)


def opened(relay: Any) -> Any:
    """The copy that an outbox would work with, of a relay whose methods are plain."""
    relay = copy(relay)
    relay.open()
    return relay
