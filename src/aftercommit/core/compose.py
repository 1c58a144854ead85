"""From what users pass to write() to an envelope: a ready one, a type and a payload, or an object of their own."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from aftercommit.codec import encode_json, encode_payload
from aftercommit.errors import InvalidEvent, InvalidName, InvalidPayload
from aftercommit.event import EventEnvelope

#: Tells a payload that was not given from None, which is refused with a hint.
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "…"})()


class Composer:
    """Makes envelopes. It knows the classes it has seen: two of one name would be one type in the table."""

    def __init__(self) -> None:
        self._classes: dict[str, type] = {}

    def compose(self, event: object, payload: object = MISSING, **fields: Any) -> EventEnvelope:
        """Validated and encoded; raises before any transaction is touched."""
        given = {name: value for name, value in fields.items() if value is not None}
        if isinstance(event, EventEnvelope):
            return self._ready(event, payload, given)
        if isinstance(event, str | Enum):
            return self._named(event, payload, given)
        return self._of_object(event, payload, given)

    def _ready(self, event: EventEnvelope, payload: object, given: dict[str, Any]) -> EventEnvelope:
        if payload is not MISSING or given:
            names = ", ".join([*(["payload"] if payload is not MISSING else []), *given])
            raise InvalidEvent(
                f"write(envelope) was given {names} as well", fix="set it on the envelope: envelope.replace(…)"
            )
        return event

    def _named(self, event_type: str | Enum, payload: object, given: dict[str, Any]) -> EventEnvelope:
        if payload is MISSING:
            raise InvalidPayload(
                f"write({event_type!r}) was given no payload",
                fix=f"write({event_type!r}, payload); JSON null is 'null'",
            )
        # Text is checked by the envelope, and need not be twice.
        encoded = payload if isinstance(payload, str) else encode_payload(payload)
        if isinstance(encoded, str):
            return EventEnvelope(event_type, payload_json=encoded, **given)
        return EventEnvelope(event_type, payload_bytes=encoded, **given)

    def _of_object(self, event: object, payload: object, given: dict[str, Any]) -> EventEnvelope:
        kind = type(event)
        if isinstance(event, type) or kind.__module__ == "builtins":
            raise InvalidName(
                f"write() got {event!r}, which names no event type",
                fix='name the type: write("OrderPlaced", payload), or pass an object of a class of your own',
            )
        if payload is not MISSING:
            raise InvalidPayload(
                f"write({kind.__name__}(…)) was given a payload as well", fix="the object is the payload; leave it out"
            )
        known = self._classes.setdefault(kind.__name__, kind)
        if known is not kind:
            raise InvalidName(
                f"two classes are named {kind.__name__}: {known.__module__}.{known.__qualname__} and "
                f"{kind.__module__}.{kind.__qualname__}; in the table they would be one type",
                fix='rename one, or name the type: write("OtherName", payload)',
            )
        return EventEnvelope(kind.__name__, payload_json=encode_json(event), **given)
