"""Rows and values: how a row becomes an event again. Times are integer microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from aftercommit.errors import UndecodableRow
from aftercommit.events.claims import Claimed, ClaimRequest, Lease, RowKey, Undecodable
from aftercommit.events.columns import CLAIMED, COLUMNS
from aftercommit.events.envelope import EventEnvelope, EventStatus
from aftercommit.events.fields import NO_HEADERS
from aftercommit.events.headers import JSON_HEADERS, Headers
from aftercommit.events.order import KeyClaimRequest, OrderKey
from aftercommit.events.records import EventRecord, Summary, TypeSummary

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: For times in UTC that a driver reads without a zone.
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)

_names: Final = msgspec.json.Decoder(tuple[str, ...])

#: Nothing waits longer, and every database's calendar reaches as far from today in both directions.
_FOR_EVER: Final = timedelta(days=2000 * 365)


@lru_cache(maxsize=128)  # nearly always the lock timeout
def to_micros(value: timedelta) -> int:
    """A duration as statements take it."""
    return min(value, _FOR_EVER) // _MICROSECOND


def instant_to_micros(value: datetime) -> int:
    return (value - _EPOCH) // _MICROSECOND


def instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def in_utc(value: datetime) -> datetime:
    """With its zone. By adding, because `replace` costs six times as much, and each event has two times."""
    return _EPOCH + (value - _NAIVE_EPOCH)


class Times(NamedTuple):
    """Instants as the columns of a database have them; and headers, as the outbox wants them."""

    write: Callable[[datetime], Any]
    read: Callable[[Any], datetime]
    #: Before every row.
    earliest: Any
    headers: Headers = JSON_HEADERS


#: Integers that count microseconds since the epoch.
IN_MICROS: Final = Times(instant_to_micros, instant, -(2**62))

#: The database's own type for times; read in UTC without a zone, so that no session's zone can shift them.
IN_UTC: Final = Times(lambda value: value, in_utc, datetime.min.replace(tzinfo=UTC))


#: Stands between texts that are sent as one. JSON has it escaped, and never as a space.
BETWEEN: Final = "\x1f"

_CLAIMED: Final = [column.name for column in CLAIMED]

#: A named tuple without its own, slower way to be made.
_tuple: Final = tuple.__new__

#: Where the rows of a claim have them.
POSITION: Final = _CLAIMED.index("position")
EVENT_ID: Final = _CLAIMED.index("event_id")
EVENT_KEY: Final = _CLAIMED.index("event_key")
AVAILABLE_AT: Final = _CLAIMED.index("available_at")
NOW: Final = len(_CLAIMED) + 2
#: Where a database tells it in the same answer.
NEXT_DUE: Final = NOW + 1


#: A held row as group statements take it.
HELD_COLUMNS: Final = ("event_id", "handler_id", "owner", "epoch", "delay", "error", "counted", "done")
HeldRow = tuple[str, str, str, int, int | None, str | None, int | None, str | None]


def held_row(lease: Lease, counted: int = 0) -> HeldRow:
    """Of a lease alone, without an outcome."""
    return (*lease.key, lease.owner, lease.epoch, None, None, counted, None)


def as_group(values: Sequence[object]) -> str:
    """Many values as one parameter."""
    return msgspec.json.encode(values).decode()


def all_claimed(rows: list[Any], request: ClaimRequest, times: Times) -> list[Claimed | Undecodable]:
    """What a claim saw, in order of position. The list is used up: each row goes when it has become an event, so that
    the garbage collector, which looks at all that the program has, is called half as often."""
    now = rows[0][NOW]
    now = instant(now) if isinstance(now, int) else times.read(now)
    rows.sort(key=itemgetter(POSITION), reverse=True)
    return [claimed_of(rows.pop(), request, times, now) for _ in range(len(rows))]


def claimed_of(
    row: Sequence[Any],
    request: ClaimRequest | KeyClaimRequest,
    times: Times,
    now: datetime,
    order_key: OrderKey | None = None,
) -> Claimed | Undecodable:
    """A row that a claim saw at `now`, under the lease that the claim gives it."""
    (
        position, event_id, handler_id, event_type, aggregate_type, aggregate_id, tenant_id, event_key,
        payload, payload_bytes, content_type, payload_version, headers, done_handlers, attempts, abandoned,
        occurred_at, scheduled_at, created_at, _, unique_key, epoch, is_takeover, _, *_,
    ) = row  # fmt: skip
    lease = Lease(_tuple(RowKey, (event_id, handler_id)), request.owner, epoch + 1, request.deadline)
    try:
        born = times.read(created_at)
        # Spelled out: each row that is delivered comes by here.
        if (
            type(event_type) is bytes or type(aggregate_type) is bytes or type(content_type) is bytes
            or type(aggregate_id) is bytes or type(tenant_id) is bytes or type(event_key) is bytes
            or type(unique_key) is bytes
        ):  # fmt: skip
            raise UndecodableRow("a name of the event is no text", fix="mend the row, then replay it")
        is_text = isinstance(payload, str)
        if not (payload_bytes is None if is_text else payload is None and isinstance(payload_bytes, bytes)):
            raise UndecodableRow(
                f"the payload columns hold {type(payload).__name__} and {type(payload_bytes).__name__}",
                fix="a row has text in payload, or bytes in payload_bytes",
            )
        event = EventEnvelope.restore(
            event_id, event_type, payload if is_text else payload_bytes, content_type, payload_version,
            times.read(occurred_at), aggregate_type, aggregate_id, tenant_id, event_key,
            times.headers.decode(headers) if headers else NO_HEADERS,
            None if scheduled_at is None else times.read(scheduled_at), unique_key,
        )  # fmt: skip
        return Claimed(
            event, lease, position, born, attempts, abandoned,
            () if done_handlers is None else _done_handlers(done_handlers),
            bool(is_takeover) or abandoned > 0, now - born, order_key,
        )  # fmt: skip
    except (UndecodableRow, TypeError, OverflowError) as error:
        return Undecodable(lease, error, order_key)


def _done_handlers(text: str) -> tuple[str, ...]:
    try:
        return _names.decode(text)
    except msgspec.DecodeError as error:
        raise UndecodableRow(
            f"done_handlers is no JSON list of names ({error})", fix="mend the row, then replay it"
        ) from error


_RECORDED: Final = [column.name for column in COLUMNS]


def record_of(row: Sequence[Any], times: Times) -> EventRecord:
    """A row with all its columns, for people. What cannot be read is left out: it may be why the event is dead."""
    values = dict(zip(_RECORDED, row, strict=True))
    try:
        headers = times.headers.decode(values["headers"]) if values["headers"] else {}
    except UndecodableRow:
        headers = {}

    def at(name: str) -> datetime | None:
        try:
            return None if values[name] is None else times.read(values[name])
        except (TypeError, ValueError, OverflowError):
            return None

    return EventRecord(
        event_id=values["event_id"],
        handler_id=values["handler_id"],
        event_type=values["event_type"],
        aggregate_type=values["aggregate_type"],
        aggregate_id=values["aggregate_id"],
        tenant_id=values["tenant_id"],
        key=values["event_key"],
        payload=values["payload"] if values["payload"] is not None else values["payload_bytes"],
        headers=headers,
        attempts=values["attempts"],
        last_error=values["last_error"] or "",
        created_at=times.read(values["created_at"]),
        position=values["position"],
        status=EventStatus(values["status"]),
        abandoned=values["abandoned"],
        partition=values["partition_no"],
        content_type=values["content_type"],
        payload_version=values["payload_version"],
        occurred_at=at("occurred_at"),
        scheduled_at=at("scheduled_at"),
        available_at=times.read(values["available_at"]),
        done_at=at("done_at"),
        locked_by=values["locked_by"] or None,
        lease_until=at("lease_until"),
        unique_key=values["unique_key"],
    )


def summary_of(counts: Iterable[tuple[str, str, int, int, int | None]], limit: int) -> Summary:
    """Of (event type, handler, status, count, microseconds since the first fell due): not due yet when below zero."""
    found: dict[tuple[str, str], TypeSummary] = {}
    seen = {"pending": 0, "dead": 0}
    for event_type, handler_id, status, count, due in counts:
        before = found.get((event_type, handler_id), TypeSummary(event_type, handler_id))
        name = EventStatus(status).name.lower()
        seen["dead" if name == "dead" else "pending"] += count
        ages = [] if due is None or due < 0 else [timedelta(microseconds=int(due))]
        ages += [] if before.oldest_due is None else [before.oldest_due]
        more: dict[str, Any] = {name: getattr(before, name) + count}
        found[event_type, handler_id] = replace(before, **more, oldest_due=max(ages, default=None))
    return Summary(tuple(found[key] for key in sorted(found)), max(seen.values()) >= limit)
