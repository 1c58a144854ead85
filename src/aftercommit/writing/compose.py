"""From what users pass to write() to an envelope: a ready one, a type and a payload, or an object of their own.

`Composer(PayloadTypes(serializer), context_providers)`: the types are the outbox's own, shared with its handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from itertools import groupby
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

from aftercommit.errors import InvalidEvent, InvalidName, InvalidPayload
from aftercommit.events.codec import Payload, parse_json
from aftercommit.events.context import ContextProvider, Providers, as_headers, checked, refuse_reserved
from aftercommit.events.durations import Duration
from aftercommit.events.envelope import Draft, EventEnvelope, establish
from aftercommit.events.fields import (
    JSON,
    MAX_PAYLOAD_BYTES,
    NO_HEADERS,
    OCTETS,
    UNSET,
    binary_payload,
    check_size,
    headers_of,
    read_only,
    text_payload,
)
from aftercommit.events.groups import plain_events
from aftercommit.events.names import GLOBAL, name_of, plain
from aftercommit.events.payloads import Encoded, Kind, PayloadTypes

#: Tells a payload that was not given from None, which is refused with a hint.
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "…"})()

_NAMES: Final = (str, Enum)
_BUFFERS: Final = (bytes, bytearray, memoryview)


class WriteOptions(TypedDict, total=False):
    """What write() takes by name, beside the event, its payload and the transaction."""

    #: What the event is in order with.
    key: str | int | UUID | None
    aggregate_type: str | Enum | None
    aggregate_id: str | int | UUID | None
    tenant_id: str | None
    headers: Mapping[str, str] | None
    #: Restored around the handlers.
    context: Mapping[str, str] | None
    #: Not before this time; or not before this long after the write, on the database's clock.
    available_at: datetime | None
    deliver_after: Duration | None
    #: Not while another event with the same one is not done.
    unique_key: str | int | UUID | None


_OPTIONS: Final = tuple(WriteOptions.__annotations__)
_KNOWN: Final = frozenset(_OPTIONS)


class Composer:
    """Makes envelopes: with the payload encoded once, and the context of the moment among the headers."""

    def __init__(self, payloads: PayloadTypes | None = None, providers: Iterable[ContextProvider] = ()) -> None:
        self._payloads = PayloadTypes() if payloads is None else payloads
        self._providers = Providers(providers)
        self._has_providers = bool(self._providers)
        #: Classes whose objects were written as they are, and say nothing of their context.
        self._plain_kinds: dict[type, Kind] = {}

    def compose_all(self, events: Iterable[object]) -> list[EventEnvelope]:
        """As `compose` does it with each of them. One of a generator is composed before the next one is made."""
        known, composed = self._plain_kinds, list[EventEnvelope]()
        if isinstance(events, list | tuple):
            for of, run in groupby(events, type):
                group = list(run)
                if of not in known:
                    composed.append(self.compose(group.pop(0)))
                kind = known.get(of)
                composed += map(self.compose, group) if kind is None or not group else self._group(group, kind)
        else:
            for event in events:
                kind = known.get(type(event))
                composed.append(self.compose(event) if kind is None else self._plainly(event, kind))
        return composed

    def _group(self, events: Sequence[object], kind: Kind) -> list[EventEnvelope]:
        """Objects of one class that is known, with nothing beside them."""
        key_of, content_type, version = kind.marks.key, kind.serializer.content_type, kind.marks.version
        try:
            keys = [None] * len(events) if key_of is None else list(map(key_of, events))
            return plain_events(kind.name, kind.encode_all(events), content_type, version, keys)
        except Exception:  # one of them is refused, and says why when its turn comes
            return [self._plainly(event, kind) for event in events]

    def compose(self, event: object, payload: object = MISSING, **options: Unpack[WriteOptions]) -> EventEnvelope:
        """Validated and encoded; raises before any transaction is touched."""
        if not _KNOWN.issuperset(options):
            raise TypeError(f"write() got an unexpected keyword argument {min(options.keys() - _KNOWN)!r}")
        if isinstance(event, EventEnvelope):
            return self._ready(event, payload, options)
        encoded = self._named(event, payload) if isinstance(event, _NAMES) else self._of_object(event, payload)
        event_type, body, content_type, version, own_key, own_context = encoded
        if len(body) * 4 > MAX_PAYLOAD_BYTES:
            check_size(body)
        if not options and own_context is None and not self._has_providers:
            return establish(
                Draft(), event_type, body, content_type, version, None, None, GLOBAL, None, None, own_key, NO_HEADERS,
                UNSET, UNSET,
            )  # fmt: skip
        headers, context = options.get("headers"), options.get("context")
        if self._has_providers or own_context is not None or headers is not None or context is not None:
            carried = self._carrying(headers, own_context, context)
        else:
            carried = NO_HEADERS
        key, aggregate_type = options.get("key"), options.get("aggregate_type")
        available_at, deliver_after = options.get("available_at"), options.get("deliver_after")
        return establish(
            Draft(),
            event_type,
            body,
            content_type,
            version,
            None,
            None,
            GLOBAL if aggregate_type is None else aggregate_type,
            options.get("aggregate_id"),
            options.get("tenant_id"),
            own_key if key is None else key,
            carried,
            UNSET if available_at is None else available_at,
            UNSET if deliver_after is None else deliver_after,
            options.get("unique_key"),
        )

    def _plainly(self, event: object, kind: Kind) -> EventEnvelope:
        """An object whose class is known, with nothing beside it."""
        body, marks = kind.encode(event), kind.marks
        if len(body) * 4 > MAX_PAYLOAD_BYTES:
            check_size(body)
        return establish(
            Draft(), kind.name, body, kind.serializer.content_type, marks.version, None, None, GLOBAL, None, None,
            None if marks.key is None else marks.key(event), NO_HEADERS, UNSET, UNSET,
        )  # fmt: skip

    def _ready(self, event: EventEnvelope, payload: object, options: WriteOptions) -> EventEnvelope:
        given = [name for name in _OPTIONS if options.get(name) is not None]
        if payload is not MISSING or given:
            names = ", ".join([*(["payload"] if payload is not MISSING else []), *given])
            raise InvalidEvent(
                f"write(envelope) was given {names} as well", fix="set it on the envelope: envelope.replace(…)"
            )
        captured = as_headers(self._providers.capture()) if self._has_providers else None
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
        name = event_type
        if not (type(name) is str and 0 < len(name) <= 128 and name.isprintable()):
            name = name_of(event_type, "event_type", 128)
        ready: Payload
        if isinstance(payload, str):
            ready, content_type = plain(payload), JSON
            try:
                parse_json(ready.encode())
            except Exception:
                ready = text_payload(payload)  # which says what is wrong with it
        elif isinstance(payload, _BUFFERS):
            ready, content_type = binary_payload(payload), OCTETS
        else:
            return self._payloads.encode_as(name, payload)
        return Encoded(name, ready, content_type, self._payloads.versions.get(name, 1), None, None)

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
        encoded = self._payloads.encode(event)
        known = self._payloads.kind_of(kind)
        if known.marks.context is None and not self._has_providers:
            self._plain_kinds[kind] = known
        return encoded

    def _carrying(
        self, headers: Mapping[str, str] | None, declared: Mapping[str, str] | None, context: Mapping[str, str] | None
    ) -> Mapping[str, str]:
        """Headers with context among them: from providers, then the class, then the caller; the last one wins."""
        if headers:
            refuse_reserved(headers)
        if not self._has_providers and declared is None and context is None:
            return headers_of(headers)
        stored = as_headers(self._providers.capture())
        if declared is not None:
            stored.update(as_headers(checked(declared)))
        stored.update(headers_of(headers))
        if context is not None:
            stored.update(as_headers(checked(context)))
        return read_only(stored)
