"""Many plain objects of one class on their way to events: encoded in one go, with ids in a row. Each event is what it
would be alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from aftercommit.errors import InvalidPayload
from aftercommit.events.codec import Payload, encode_objects, fitting_json, load_part
from aftercommit.events.envelope import Draft, EventEnvelope
from aftercommit.events.fields import MAX_PAYLOAD_BYTES, NO_HEADERS, check_size
from aftercommit.events.ids import new_ids
from aftercommit.events.names import GLOBAL, text_of


def encoder_of_many(kind: type, encode: Callable[[Any], Payload]) -> Callable[[Sequence[Any]], Sequence[Payload]]:
    """Many objects of the class as `encode`, its encoder, has each of them. It may say less of what is wrong."""
    if not (isinstance(encode, partial) and encode.func is fitting_json):
        return lambda values: list(map(encode, values))
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind, dec_hook=load_part)
    decode_lines = decoder.decode_lines

    def encode_all(values: Sequence[Any]) -> Sequence[Payload]:
        lines = encode_objects(values)
        texts = lines.decode().split("\n")
        texts.pop()  # behind the last end of a line
        # JSON has ends of lines only where somebody put them in as a raw part. Then nobody knows whose text is whose.
        if not len(texts) == len(decode_lines(lines)) == len(values):
            raise InvalidPayload("one of them is not on one line", fix="encode it alone")
        if b"null" in lines:  # which may be NaN
            return [encode(value) if "null" in text else text for value, text in zip(values, texts, strict=True)]
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
