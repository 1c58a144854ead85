"""The event as it travels: an immutable envelope around one encoded payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, Final, NoReturn
from uuid import UUID

from aftercommit.codec import Payload, checked_json
from aftercommit.durations import Duration, duration
from aftercommit.errors import (
    InvalidHeaders,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    PayloadNotText,
    PayloadTooLarge,
)
from aftercommit.ids import new_id
from aftercommit.names import GLOBAL, is_utf8, name_of, text_of

#: The specification's limit. Every retry reads the payload again, and brokers refuse larger messages by default.
MAX_PAYLOAD_BYTES: Final = 1_048_576

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

#: Tells a keyword that was not given from one that was given as None, which the rules refuse.
_UNSET: Final[Any] = type("Unset", (), {"__repr__": lambda _: "…"})()


class EventStatus(IntEnum):
    """Where a row stands. DONE and DEAD are terminal; only a replay moves a DEAD row."""

    NEW = 0
    DONE = 1
    RETRY = 2
    DEAD = 3


class EventEnvelope:
    """One event: what happened, to what, with its payload encoded once. Immutable, validated on construction.

    >>> event = EventEnvelope("UserCreated", payload_json='{"id": 1}', aggregate_type="User", aggregate_id=1)
    >>> event.payload_bytes
    b'{"id": 1}'
    """

    __slots__ = (
        "aggregate_id",
        "aggregate_type",
        "available_at",
        "deliver_after",
        "event_id",
        "event_type",
        "explicit_key",
        "headers",
        "occurred_at",
        "payload",
        "tenant_id",
    )

    event_id: str
    event_type: str
    #: JSON text or bytes, exactly as stored; see payload_json and payload_bytes.
    payload: Payload
    #: The application's time, in UTC. Shown, never compared.
    occurred_at: datetime
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    headers: Mapping[str, str]
    #: When the application wants the event delivered; None for at once.
    available_at: datetime | None
    #: The delay as it was given; the database adds it to its own clock.
    deliver_after: timedelta | None
    explicit_key: str | None

    def __init__(
        self,
        event_type: str | Enum,
        *,
        payload_json: str = _UNSET,
        payload_bytes: bytes | bytearray | memoryview = _UNSET,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        aggregate_type: str | Enum = GLOBAL,
        aggregate_id: str | int | UUID | None = None,
        tenant_id: str | None = None,
        key: str | int | UUID | None = None,
        headers: Mapping[str, str] | None = None,
        available_at: datetime = _UNSET,
        deliver_after: Duration = _UNSET,
    ) -> None:
        occurred = datetime.now(UTC) if occurred_at is None else _utc(occurred_at, "occurred_at")
        delay, due = _schedule(occurred, available_at, deliver_after)
        _fill(
            self,
            event_id=new_id() if event_id is None else name_of(event_id, "event_id", 36),
            event_type=name_of(event_type, "event_type", 128),
            payload=_payload(payload_json, payload_bytes),
            occurred_at=occurred,
            aggregate_type=name_of(aggregate_type, "aggregate_type", 64),
            aggregate_id=None if aggregate_id is None else text_of(aggregate_id, "aggregate_id", 128),
            tenant_id=None if tenant_id is None else name_of(tenant_id, "tenant_id", 64),
            headers=_headers(headers),
            available_at=due,
            deliver_after=delay,
            explicit_key=None if key is None else text_of(key, "key", 255),
        )

    @classmethod
    def of_json(cls, event_type: str | Enum, payload_json: str) -> EventEnvelope:
        """The short form: a type and JSON text."""
        return cls(event_type, payload_json=payload_json)

    @classmethod
    def restore(
        cls,
        *,
        event_id: str,
        event_type: str,
        payload: Payload,
        occurred_at: datetime,
        aggregate_type: str,
        aggregate_id: str | None,
        tenant_id: str | None,
        key: str | None,
        headers: Mapping[str, str],
        available_at: datetime | None,
    ) -> EventEnvelope:
        """An envelope from a stored row, as it is: rules that held at write() are not asked again."""
        self = object.__new__(cls)
        _fill(
            self,
            event_id=event_id,
            event_type=event_type,
            payload=payload,
            occurred_at=occurred_at,
            aggregate_type=aggregate_type,
            aggregate_id=aggregate_id,
            tenant_id=tenant_id,
            headers=MappingProxyType(headers) if headers else _NO_HEADERS,
            available_at=available_at,
            deliver_after=None,
            explicit_key=key,
        )
        return self

    @property
    def key(self) -> str | None:
        """The ordering key: as given, else `aggregate_type/aggregate_id`, else None (no order)."""
        if self.explicit_key is not None or self.aggregate_id is None:
            return self.explicit_key
        return f"{self.aggregate_type}/{self.aggregate_id}"

    @property
    def payload_json(self) -> str:
        """The payload as text. Raises PayloadNotText for bytes that are not UTF-8."""
        if isinstance(self.payload, str):
            return self.payload
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            raise PayloadNotText(
                f"the payload of {self.event_type} {self.event_id} is binary ({error})", fix="use payload_bytes"
            ) from error

    @property
    def payload_bytes(self) -> bytes:
        """The payload as bytes; the UTF-8 of JSON text."""
        return self.payload.encode() if isinstance(self.payload, str) else self.payload

    @property
    def is_delayed(self) -> bool:
        """Asked to be delivered later than it occurred; such an event never takes the hot path."""
        return self.available_at is not None and self.available_at != self.occurred_at

    def replace(self, **changes: Any) -> EventEnvelope:
        """A copy with some constructor arguments changed, validated like a new envelope.

        A new payload takes the place of the old one whichever kind it is; so does a new schedule.
        """
        kind = "payload_json" if isinstance(self.payload, str) else "payload_bytes"
        fields: dict[str, Any] = {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "occurred_at": self.occurred_at,
            "aggregate_type": self.aggregate_type,
            "aggregate_id": self.aggregate_id,
            "tenant_id": self.tenant_id,
            "key": self.explicit_key,
            "headers": self.headers,
        }
        if not changes.keys() & {"payload_json", "payload_bytes"}:
            fields[kind] = self.payload
        if not changes.keys() & {"available_at", "deliver_after"}:
            if self.deliver_after is not None:
                fields["deliver_after"] = self.deliver_after
            elif self.available_at is not None:
                fields["available_at"] = self.available_at
        return EventEnvelope(**(fields | changes))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"an EventEnvelope cannot be changed; use envelope.replace({name}=…)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("an EventEnvelope cannot be changed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventEnvelope) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.event_id)

    def __repr__(self) -> str:
        # The payload stays out: envelopes end up in log lines.
        return f"EventEnvelope({self.event_type!r}, event_id={self.event_id!r}, key={self.key!r})"

    def _identity(self) -> tuple[object, ...]:
        return (
            self.event_id,
            self.event_type,
            self.payload,
            self.occurred_at,
            self.aggregate_type,
            self.aggregate_id,
            self.tenant_id,
            self.key,
            dict(self.headers),
            self.available_at,
        )


_set = object.__setattr__


def _fill(envelope: EventEnvelope, **fields: object) -> None:
    for name, value in fields.items():
        _set(envelope, name, value)


def _payload(text: Any, binary: Any) -> Payload:
    if (text is _UNSET) == (binary is _UNSET):
        given = "both payload_json and payload_bytes were given" if text is not _UNSET else "no payload was given"
        raise InvalidPayload(given, fix="pass exactly one of payload_json=… and payload_bytes=…")
    if binary is not _UNSET:
        if not isinstance(binary, bytes | bytearray | memoryview):
            raise InvalidPayload(f"payload_bytes is {_kind(binary)}", fix="pass bytes")
        if memoryview(binary).nbytes > MAX_PAYLOAD_BYTES:
            raise _too_large(memoryview(binary).nbytes)
        return bytes(binary)
    if not isinstance(text, str):
        raise InvalidPayload(f"payload_json is {_kind(text)}", fix="pass JSON text; write() encodes objects")
    # Characters bound bytes from both sides, so the exact length is counted only between the bounds.
    if len(text) > MAX_PAYLOAD_BYTES:
        raise _too_large(len(text))
    if len(text) * 4 > MAX_PAYLOAD_BYTES and (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_PAYLOAD_BYTES:
        raise _too_large(size)
    return checked_json(text)


def _too_large(size: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the payload has {size:,} bytes, the limit is {MAX_PAYLOAD_BYTES:,}",
        fix="store the bulk elsewhere and send a reference to it",
    )


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _headers(headers: Any) -> Mapping[str, str]:
    if not headers:
        if headers is None or isinstance(headers, Mapping):
            return _NO_HEADERS
        raise InvalidHeaders(f"headers is {_kind(headers)}", fix="pass a dict of strings")
    if not isinstance(headers, Mapping):
        raise InvalidHeaders(f"headers is {_kind(headers)}", fix="pass a dict of strings")
    for name, value in headers.items():
        if name is None:
            raise InvalidHeaders("headers cannot contain null keys (a header name is None)", fix="name every header")
        if not isinstance(name, str) or not name:
            raise InvalidHeaders(f"the header name {name!r} is no text", fix="use non-empty strings as header names")
        if not isinstance(value, str):
            raise InvalidHeaders(
                f"the header {name!r} is {value!r} of type {type(value).__name__}",
                fix=f"pass str({name}) or leave it out",
            )
        if not is_utf8(name) or not is_utf8(value):
            raise InvalidHeaders(f"the header {name!r} has a lone surrogate", fix="clean the text first")
    return MappingProxyType(dict(headers))


def _schedule(occurred: datetime, available_at: Any, deliver_after: Any) -> tuple[timedelta | None, datetime | None]:
    if available_at is not _UNSET and deliver_after is not _UNSET:
        raise InvalidSchedule(
            f"both available_at={available_at!r} and deliver_after={deliver_after!r} were given",
            fix="pass available_at or deliver_after, not both",
        )
    if deliver_after is not _UNSET:
        return _delayed(occurred, deliver_after)
    if available_at is _UNSET:
        return None, None
    due = _utc(available_at, "available_at")
    if due < occurred:
        raise InvalidSchedule(
            f"available_at must not be before occurred_at ({due.isoformat()} < {occurred.isoformat()})",
            fix="leave available_at out to deliver at once",
        )
    return None, due


def _delayed(occurred: datetime, deliver_after: Any) -> tuple[timedelta, datetime]:
    try:
        delay = duration(deliver_after, name="deliver_after")
        due = occurred + delay
    except (InvalidOption, OverflowError) as error:
        positive = " deliver_after must be positive" if isinstance(error, InvalidOption) else " it ends after year 9999"
        raise InvalidSchedule(
            f"deliver_after is {deliver_after!r};{positive}", fix='pass a positive timedelta, seconds or "30s"'
        ) from error
    if not delay:
        raise InvalidSchedule(
            f"deliver_after must be positive, it is {deliver_after!r}", fix="leave it out to deliver at once"
        )
    return delay, due


def _utc(value: Any, field: str) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidSchedule(f"{field} is {_kind(value)}", fix=f"pass {field} as a datetime with a time zone")
    if value.tzinfo is None:
        raise InvalidSchedule(
            f"{field} {value.isoformat()} has no time zone", fix="use datetime.now(UTC) or .replace(tzinfo=…)"
        )
    moved: datetime = value.astimezone(UTC)
    return moved
