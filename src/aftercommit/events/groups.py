"""Many plain objects of one class on their way to events: encoded with as few calls as there can be, with ids in a row.
Each event is what it would be alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aftercommit.events.codec import Payload, encode_object, fitting_json
from aftercommit.events.envelope import Draft, EventEnvelope
from aftercommit.events.fields import MAX_PAYLOAD_BYTES, NO_HEADERS, check_size
from aftercommit.events.ids import new_ids
from aftercommit.events.names import GLOBAL, text_of


def encoder_of_many(encode: Callable[[Any], Payload]) -> Callable[[Sequence[Any]], list[Payload]]:
    """Many objects of a class as `encode`, its encoder, has each of them. It may say less of what is wrong."""
    if not (isinstance(encode, partial) and encode.func is fitting_json):
        return lambda values: list(map(encode, values))
    (decode,) = encode.args

    def encode_all(values: Sequence[Any]) -> list[Payload]:
        # One after the other: the memory of what is decoded is used again at once. All lines of JSON decoded in one
        # call took half as long again where the caches were cold.
        texts: list[Payload] = []
        for value in values:
            encoded = encode_object(value)
            decode(encoded)
            texts.append(encode(value) if b"null" in encoded else encoded.decode())  # which may be NaN
        return texts

    return encode_all


def plain_events(
    event_type: str, payloads: Sequence[Payload], content_type: str, version: int, keys: Sequence[Any]
) -> list[EventEnvelope]:
    """An event of each, at once, with nothing beside its payload but a key. As `establish` does it, and once for all
    what is the same for all."""
    if max(map(len, payloads)) * 4 > MAX_PAYLOAD_BYTES:
        for payload in payloads:
            check_size(payload)
    occurred, new = datetime.now(UTC), object.__new__
    events: list[EventEnvelope] = []
    for event_id, payload, own in zip(new_ids(len(payloads)), payloads, keys, strict=True):
        is_plain = own is None or (type(own) is str and 0 < len(own) <= 255 and own.isprintable())
        key = own if is_plain else text_of(own, "key", 255)
        draft: Any = new(Draft)
        draft.event_id = event_id
        draft.event_type = event_type
        draft.payload = payload
        draft.content_type = content_type
        draft.payload_version = version
        draft.occurred_at = occurred
        draft.aggregate_type = GLOBAL
        draft.headers = NO_HEADERS
        draft.aggregate_id = draft.tenant_id = draft.available_at = draft.deliver_after = draft.unique_key = None
        draft.explicit_key = draft.key = key
        draft.__class__ = EventEnvelope
        events.append(draft)
    return events
