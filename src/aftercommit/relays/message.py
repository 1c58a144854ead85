"""What a relay sends: an event as a message, in no broker's words yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aftercommit.events.envelope import EventEnvelope


@dataclass(frozen=True, slots=True)
class Message:
    """One event, ready to be sent."""

    event: EventEnvelope
    #: The event's own: the same in every delivery, so that consumers know what they have seen.
    id: str
    body: bytes
    content_type: str
    #: Those of CloudEvents but `datacontenttype`, which `content_type` is. Empty where the body holds them.
    attributes: Mapping[str, str]
    #: The user's own, and those of trace context.
    headers: Mapping[str, str]
    #: Messages of one key arrive in the order of writing, where the outbox keeps order.
    key: str | None
    #: Where it goes, as the relay's `place` gave it.
    to: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What `message=` may give for an event, to shape its message; what is left out is the event's."""

    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    key: str | None = None
