"""From what users pass to write() to an envelope: a ready one, a type and a payload, or an object of their own.

`Composer(PayloadTypes(serializer), context_providers)`: the types are the outbox's own, shared with its handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

from aftercommit.errors import InvalidEvent, InvalidName, InvalidPayload
from aftercommit.events.context import ContextProvider, Providers, as_headers, checked, refuse_reserved
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import EventEnvelope, establish
from aftercommit.events.fields import UNSET, check_size, headers_of, payload_of, plain_content_type, read_only
from aftercommit.events.names import GLOBAL, name_of
from aftercommit.events.payloads import Encoded, PayloadTypes

#: Tells a payload that was not given from None, which is refused with a hint.
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "…"})()

_NAMES: Final = (str, Enum)
_BUFFERS: Final = (bytes, bytearray, memoryview)


class Composer:
    """Makes envelopes: with the payload encoded once, and the context of the moment among the headers."""

    def __init__(self, payloads: PayloadTypes | None = None, providers: Iterable[ContextProvider] = ()) -> None:
        self._payloads = PayloadTypes() if payloads is None else payloads
        self._providers = Providers(providers)

    def compose(
        self,
        event: object,
        payload: object = MISSING,
        *,
        key: str | int | UUID | None = None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | int | UUID | None = None,
        tenant_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        context: Mapping[str, str] | None = None,
        available_at: datetime | None = None,
        deliver_after: Duration | None = None,
    ) -> EventEnvelope:
        """Validated and encoded; raises before any transaction is touched."""
        if isinstance(event, EventEnvelope):
            return self._ready(
                event,
                payload,
                key=key,
                aggregate_type=aggregate_type,
                aggregate_id=aggregate_id,
                tenant_id=tenant_id,
                headers=headers,
                context=context,
                available_at=available_at,
                deliver_after=deliver_after,
            )
        encoded = self._named(event, payload) if isinstance(event, _NAMES) else self._of_object(event, payload)
        check_size(encoded.payload)
        envelope = EventEnvelope.__new__(EventEnvelope)
        establish(
            envelope,
            encoded.event_type,
            encoded.payload,
            encoded.content_type,
            encoded.payload_version,
            None,
            None,
            GLOBAL if aggregate_type is None else aggregate_type,
            aggregate_id,
            tenant_id,
            encoded.key if key is None else key,
            self._carrying(headers, encoded.context, context),
            UNSET if available_at is None else available_at,
            UNSET if deliver_after is None else deliver_after,
        )
        return envelope

    def _ready(self, event: EventEnvelope, payload: object, **fields: object) -> EventEnvelope:
        given = [name for name, value in fields.items() if value is not None]
        if payload is not MISSING or given:
            names = ", ".join([*(["payload"] if payload is not MISSING else []), *given])
            raise InvalidEvent(
                f"write(envelope) was given {names} as well", fix="set it on the envelope: envelope.replace(…)"
            )
        captured = as_headers(self._providers.capture()) if self._providers else None
        # What the envelope carries already was set on purpose, and wins.
        return event.replace(headers={**captured, **event.headers}) if captured else event

    def _named(self, event_type: str | Enum, payload: object) -> Encoded:
        if payload is MISSING:
            raise InvalidPayload(
                f"write({event_type!r}) was given no payload",
                fix=f"write({event_type!r}, payload); JSON null is 'null'",
            )
        if payload is None:
            raise InvalidPayload("the payload is None", fix="pass a payload; JSON null is the text 'null'")
        name = name_of(event_type, "event_type", 128)
        if isinstance(payload, str):
            ready = payload_of(payload, UNSET)
        elif isinstance(payload, _BUFFERS):
            ready = payload_of(UNSET, payload)
        else:
            return self._payloads.encode_as(name, payload)
        return Encoded(name, ready, plain_content_type(ready), self._payloads.version_of(name), None, None)

    def _of_object(self, event: object, payload: object) -> Encoded:
        kind = type(event)
        if kind.__module__ == "builtins" or isinstance(event, type):
            raise InvalidName(
                f"write() got {event!r}, which names no event type",
                fix='name the type: write("OrderPlaced", payload), or pass an object of a class of your own',
            )
        if payload is not MISSING:
            raise InvalidPayload(
                f"write({kind.__name__}(…)) was given a payload as well", fix="the object is the payload; leave it out"
            )
        return self._payloads.encode(event)

    def _carrying(
        self, headers: Mapping[str, str] | None, declared: Mapping[str, str] | None, context: Mapping[str, str] | None
    ) -> Mapping[str, str]:
        """Headers with context among them: from providers, then the class, then the caller; the last one wins."""
        if headers:
            refuse_reserved(headers)
        if not self._providers and declared is None and context is None:
            return headers_of(headers)
        stored = as_headers(self._providers.capture())
        if declared is not None:
            stored.update(as_headers(checked(declared)))
        stored.update(headers_of(headers))
        if context is not None:
            stored.update(as_headers(checked(context)))
        return read_only(stored)
