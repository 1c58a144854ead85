"""Rows and values: how an event becomes arguments of a script, and what a script returns an event again. Times are
integer microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from aftercommit.errors import UndecodableRow
from aftercommit.events.claims import Claimed, ClaimRequest, Lease, NewEvent, RowKey, Undecodable
from aftercommit.events.codec import decode_headers, encode_headers
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.order import KeyClaimRequest, OrderKey
from aftercommit.events.outcome import Dead, Defer, Done, FailureNote, Outcome, Release, Retry
from aftercommit.events.records import EventRecord, Failure
from aftercommit.stores.redis.scripts import Word
from aftercommit.stores.sql.rows import instant, instant_to_micros, to_micros

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_names: Final = msgspec.json.Decoder(tuple[str, ...])

#: The fields of a row in their order, as `prelude.lua` numbers them. `False` stands for nothing.
ROW: Final = (
    "event_id", "handler_id", "lane", "event_type", "aggregate_type", "status", "attempts", "abandoned",
    "created_at", "available_at", "lease_epoch", "locked_by", "locked_at", "lease_until", "done_at", "last_error",
    "done_handlers", "has_own_envelope",
)  # fmt: skip

#: What rows of one event share, in order.
ENVELOPE: Final = (
    "payload", "content_type", "payload_version", "occurred_at", "scheduled_at", "aggregate_id", "tenant_id",
    "event_key", "headers",
)  # fmt: skip


def lane_of(partition: int, key: str) -> str:
    """What rows of one key are sorted under."""
    return f"{partition:03}{key}"


def order_key_of(lane: str) -> OrderKey:
    return OrderKey(int(lane[:3]), lane[3:])


def new_row(new: NewEvent) -> tuple[Word, ...]:
    """The arguments of `append` for one row."""
    event = new.event
    scheduled = None if event.available_at is None else instant_to_micros(event.available_at)
    # A delay is added to the server's clock; only an explicit time is taken as it is.
    is_given = scheduled is not None and event.deliver_after is None
    envelope = (
        event.payload,
        event.content_type,
        event.payload_version,
        instant_to_micros(event.occurred_at),
        scheduled,
        event.aggregate_id,
        event.tenant_id,
        event.key,
        encode_headers(event.headers) if event.headers else None,
    )
    return (
        event.event_id.encode(),
        new.handler_id.encode(),
        lane_of(new.partition, event.event_id if event.key is None else event.key).encode(),
        event.event_type.encode(),
        event.aggregate_type.encode(),
        _encode(envelope),
        scheduled if is_given and scheduled is not None else b"",
        0 if event.deliver_after is None else to_micros(event.deliver_after),
        b"" if new.owner is None else new.owner.encode(),
        to_micros(new.lock_timeout),
    )


def claimed_of(
    found: Sequence[Any], request: ClaimRequest | KeyClaimRequest, now: int, *, is_ordered: bool = False
) -> Claimed | Undecodable:
    """A row that a claim has leased."""
    position, packed, envelope, is_takeover = found
    row = dict(zip(ROW, _decode(packed), strict=True))
    key = order_key_of(row["lane"]) if is_ordered else None
    lease = Lease(RowKey(row["event_id"], row["handler_id"]), request.owner, row["lease_epoch"], request.deadline)
    try:
        return Claimed(
            event=_event_of(row, envelope),
            lease=lease,
            position=int(position),
            created_at=instant(row["created_at"]),
            attempts=row["attempts"],
            abandoned=row["abandoned"],
            done_handlers=_names.decode(row["done_handlers"]) if row["done_handlers"] else (),
            is_suspect=bool(is_takeover) or row["abandoned"] > 0,
            age=instant(now) - instant(row["created_at"]),
            order_key=key,
        )
    except (UndecodableRow, msgspec.DecodeError, TypeError, ValueError, OverflowError) as error:
        return Undecodable(lease, error, key)


def _event_of(row: dict[str, Any], envelope: bytes | None) -> EventEnvelope:
    if envelope is None:
        raise UndecodableRow("the event of the row is not there any more", fix="discard the row")
    kept = dict(zip(ENVELOPE, _decode(envelope), strict=True))
    if not isinstance(kept["payload"], str | bytes):
        raise UndecodableRow(f"the payload is a {type(kept['payload']).__name__}", fix="discard the row")
    return EventEnvelope.restore(
        event_id=row["event_id"],
        event_type=row["event_type"],
        payload=kept["payload"],
        content_type=kept["content_type"],
        payload_version=kept["payload_version"],
        occurred_at=instant(kept["occurred_at"]),
        aggregate_type=row["aggregate_type"],
        aggregate_id=kept["aggregate_id"],
        tenant_id=kept["tenant_id"],
        key=kept["event_key"],
        headers=decode_headers(kept["headers"]) if kept["headers"] else {},
        available_at=_instant_or_none(kept["scheduled_at"]),
    )


def _instant_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else instant(micros)


def whole_row(packed: bytes, envelope: bytes | None) -> dict[str, Any]:
    """All that is kept of a row, by name; `None` for nothing."""
    row = {name: None if value is False else value for name, value in zip(ROW, _decode(packed), strict=True)}
    kept = [None] * len(ENVELOPE) if envelope is None else _decode(envelope)
    return row | dict(zip(ENVELOPE, kept, strict=True))


def record_of(found: Sequence[Any]) -> EventRecord:
    """A row for people, as far as it can be read. One whose headers cannot be read is shown without them."""
    position, packed, envelope = found
    row = whole_row(packed, envelope)
    try:
        headers = decode_headers(row["headers"])
    except UndecodableRow:
        headers = {}
    return EventRecord(
        event_id=row["event_id"],
        handler_id=row["handler_id"],
        event_type=row["event_type"],
        aggregate_type=row["aggregate_type"],
        aggregate_id=row["aggregate_id"],
        tenant_id=row["tenant_id"],
        key=row["event_key"],
        payload=row["payload"] if row["payload"] is not None else b"",
        headers=headers,
        attempts=row["attempts"],
        last_error=row["last_error"] or "",
        created_at=instant(row["created_at"]),
        position=int(position),
        status=EventStatus(row["status"]),
        abandoned=row["abandoned"],
        partition=order_key_of(row["lane"]).partition,
        content_type=row["content_type"] or "",
        payload_version=row["payload_version"] or 1,
        occurred_at=instant(row["occurred_at"] or row["created_at"]),
        scheduled_at=_instant_or_none(row["scheduled_at"]),
        available_at=instant(int(row["available_at"])),
        done_at=_instant_or_none(row["done_at"]),
        locked_by=row["locked_by"] or None,
        lease_until=_instant_or_none(row["lease_until"]),
    )


def packed_notes(notes: Sequence[FailureNote]) -> bytes:
    """As `settle` takes them."""
    return _encode(
        [(each.attempt, each.handler, each.error_class, each.message, each.traceback or False) for each in notes]
    )


def failure_of(event_id: str, handler_id: str, note: Sequence[Any]) -> Failure:
    """One that `settle` has kept."""
    at, instance, attempt, handler, error_class, message, traceback = note
    return Failure(
        event_id, handler_id, instant(at), attempt, handler, instance, error_class, message, traceback or None
    )


def fence_words(lease: Lease) -> tuple[bytes, bytes, bytes, int]:
    return lease.key.event_id.encode(), lease.key.handler_id.encode(), lease.owner.encode(), lease.epoch


def outcome_words(outcome: Outcome) -> tuple[Word, ...]:
    """A kind, a number, an error, the handlers that are done, and how often it may fail."""
    match outcome:
        case Done():
            return b"done", 0, b"", b"", b""
        case Retry(delay, error, done, limit):
            return b"retry", to_micros(delay), error.encode(), _handlers(done), b"" if limit is None else limit
        case Defer(delay, done):
            return b"defer", to_micros(delay), b"", _handlers(done), b""
        case Dead(error, is_counted, done):
            return b"dead", int(is_counted), error.encode(), _handlers(done), b""
        case Release(was_started, done, is_suspect, was_marked):
            how = 1 if was_started else -2 if was_marked else -int(is_suspect)
            return b"release", how, b"", _handlers(done), b""


def _handlers(done: tuple[str, ...]) -> bytes:
    return msgspec.json.encode(done) if done else b""
