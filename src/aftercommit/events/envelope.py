"""The event as it travels: an immutable envelope around one encoded payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from operator import attrgetter
from typing import Any, NoReturn
from uuid import UUID

from aftercommit.errors import PayloadNotText
from aftercommit.events.codec import Payload
from aftercommit.events.durations import Duration
from aftercommit.events.fields import (
    NO_HEADERS,
    UNSET,
    headers_of,
    payload_of,
    plain_content_type,
    read_only,
    schedule_of,
    utc_of,
    version_of,
)
from aftercommit.events.ids import new_id
from aftercommit.events.names import GLOBAL, name_of, text_of


class EventStatus(IntEnum):
    """Where a row stands. DONE and DEAD are terminal; only a replay moves a DEAD row."""

    NEW = 0
    DONE = 1
    RETRY = 2
    DEAD = 3


#: In the order in which they are filled in.
_FIELDS = (
    "event_id",
    "event_type",
    "payload",
    "content_type",
    "payload_version",
    "occurred_at",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "headers",
    "available_at",
    "deliver_after",
    "explicit_key",
    "unique_key",
)

#: What a copy takes over whatever else is changed.
_KEPT = (
    *("event_id", "event_type", "occurred_at", "aggregate_type", "aggregate_id", "tenant_id", "headers", "unique_key"),
)


class Draft:
    """An envelope that can still be filled in: its fields, and no rule against setting them."""

    __slots__ = (*_FIELDS, "key")


class EventEnvelope(Draft):
    """One event: what happened, to what, with its payload encoded once. Immutable, validated on construction.

    >>> event = EventEnvelope("UserCreated", payload_json='{"id": 1}', aggregate_type="User", aggregate_id=1)
    >>> event.payload_bytes
    b'{"id": 1}'
    """

    __slots__ = ()

    event_id: str
    event_type: str
    #: JSON text or bytes, exactly as stored; see payload_json and payload_bytes.
    payload: Payload
    #: How the payload is encoded: JSON for text and octets for bytes unless a serializer says otherwise.
    content_type: str
    #: The version of the payload's type, for upcasters.
    payload_version: int
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
    #: The ordering key: as given, else `aggregate_type/aggregate_id`, else None (no order).
    key: str | None
    #: While an event with the same one is not done, this one is not written; None where nothing is asked.
    unique_key: str | None

    def __init__(
        self,
        event_type: str | Enum,
        *,
        payload_json: str = UNSET,
        payload_bytes: bytes | bytearray | memoryview = UNSET,
        event_id: str | None = None,
        occurred_at: datetime | None = None,
        aggregate_type: str | Enum = GLOBAL,
        aggregate_id: str | int | UUID | None = None,
        tenant_id: str | None = None,
        key: str | int | UUID | None = None,
        headers: Mapping[str, str] | None = None,
        available_at: datetime = UNSET,
        deliver_after: Duration = UNSET,
        content_type: str | None = None,
        payload_version: int = 1,
        unique_key: str | int | UUID | None = None,
    ) -> None:
        payload = payload_of(payload_json, payload_bytes)
        establish(
            self,
            name_of(event_type, "event_type", 128),
            payload,
            plain_content_type(payload) if content_type is None else name_of(content_type, "content_type", 128),
            version_of(payload_version),
            event_id,
            occurred_at,
            aggregate_type,
            aggregate_id,
            tenant_id,
            key,
            headers_of(headers),
            available_at,
            deliver_after,
            unique_key,
        )

    @classmethod
    def of_json(cls, event_type: str | Enum, payload_json: str) -> EventEnvelope:
        """The short form: a type and JSON text."""
        return cls(event_type, payload_json=payload_json)

    @classmethod
    def restore(
        cls, event_id: str, event_type: str, payload: Payload, content_type: str, payload_version: int,
        occurred_at: datetime, aggregate_type: str, aggregate_id: str | None, tenant_id: str | None, key: str | None,
        headers: Mapping[str, str], available_at: datetime | None, unique_key: str | None = None,
    ) -> EventEnvelope:  # fmt: skip
        """An envelope from a stored row, as it is: rules that held at write() are not asked again."""
        # As in `establish`, and without the rules: each row that is claimed comes by here.
        draft: Any = object.__new__(Draft)
        draft.event_id, draft.event_type, draft.payload = event_id, event_type, payload
        draft.content_type, draft.payload_version, draft.occurred_at = content_type, payload_version, occurred_at
        draft.aggregate_type, draft.aggregate_id, draft.tenant_id = aggregate_type, aggregate_id, tenant_id
        draft.headers, draft.unique_key = read_only(headers) if headers else NO_HEADERS, unique_key
        draft.available_at, draft.deliver_after, draft.explicit_key = available_at, None, key
        draft.key = f"{aggregate_type}/{aggregate_id}" if key is None and aggregate_id is not None else key
        draft.__class__ = EventEnvelope
        restored: EventEnvelope = draft
        return restored

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
        fields: dict[str, Any] = {name: getattr(self, name) for name in _KEPT} | {"key": self.explicit_key}
        if not changes.keys() & {"payload_json", "payload_bytes"}:
            fields["payload_json" if isinstance(self.payload, str) else "payload_bytes"] = self.payload
            fields |= {"content_type": self.content_type, "payload_version": self.payload_version}
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

    def __copy__(self) -> EventEnvelope:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EventEnvelope:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # By hand: a view of headers cannot be pickled, and fields cannot be set one by one.
        fields = {name: getattr(self, name) for name in _FIELDS}
        return _revived, (type(self), fields | {"headers": dict(self.headers)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventEnvelope) and _compared(self) == _compared(other)

    def __hash__(self) -> int:
        return hash(self.event_id)

    def __repr__(self) -> str:
        # The payload stays out: envelopes end up in log lines.
        return f"EventEnvelope({self.event_type!r}, event_id={self.event_id!r}, key={self.key!r})"


def establish(
    envelope: Draft,
    event_type: str,
    payload: Payload,
    content_type: str,
    payload_version: int,
    event_id: str | None,
    occurred_at: datetime | None,
    aggregate_type: str | Enum,
    aggregate_id: str | int | UUID | None,
    tenant_id: str | None,
    key: str | int | UUID | None,
    headers: Mapping[str, str],
    available_at: datetime,
    deliver_after: Duration,
    unique_key: str | int | UUID | None = None,
) -> EventEnvelope:
    """Fill in a new event, by its rules; type, payload, version and headers are known to be right.

    By position: write() is in a hurry. As a draft, which is then sealed: setting fields one by one past the rule costs
    five times as much.
    """
    occurred = datetime.now(UTC) if occurred_at is None else utc_of(occurred_at, "occurred_at")
    delay, due = None, None
    if available_at is not UNSET or deliver_after is not UNSET:
        delay, due = schedule_of(occurred, available_at, deliver_after)
    event_id = new_id() if event_id is None else name_of(event_id, "event_id", 36)
    if aggregate_type is not GLOBAL:
        aggregate_type = name_of(aggregate_type, "aggregate_type", 64)
    if aggregate_id is not None:
        aggregate_id = text_of(aggregate_id, "aggregate_id", 128)
    if tenant_id is not None:
        tenant_id = name_of(tenant_id, "tenant_id", 64)
    # A key is given to most events, and most are plain text.
    if key is not None and not (type(key) is str and 0 < len(key) <= 255 and key.isprintable()):
        key = text_of(key, "key", 255)
    if unique_key is not None:
        unique_key = text_of(unique_key, "unique_key", 255)
    draft: Any = envelope
    if type(envelope) is EventEnvelope:
        _set(envelope, "__class__", Draft)
    elif type(envelope) is not Draft:
        draft = Draft()  # a subclass of somebody's has room for more, so that it cannot become one
    draft.event_id = event_id
    draft.event_type = event_type
    draft.payload = payload
    draft.content_type = content_type
    draft.payload_version = payload_version
    draft.occurred_at = occurred
    draft.aggregate_type = aggregate_type
    draft.aggregate_id = aggregate_id
    draft.tenant_id = tenant_id
    draft.headers = headers
    draft.available_at = due
    draft.deliver_after = delay
    draft.explicit_key = key
    draft.unique_key = unique_key
    draft.key = f"{aggregate_type}/{aggregate_id}" if key is None and aggregate_id is not None else key
    if draft is envelope:
        draft.__class__ = EventEnvelope
    else:
        for name in Draft.__slots__:
            _set(envelope, name, getattr(draft, name))
    return envelope  # type: ignore[return-value]


#: Equal events are due at the same time and have the same key, however that was said.
_compared = attrgetter(*[name for name in _FIELDS if name not in ("deliver_after", "explicit_key")], "key")

_set = object.__setattr__


def _revived(kind: type[EventEnvelope], fields: dict[str, Any]) -> EventEnvelope:
    envelope = object.__new__(kind)
    key, aggregate_type, aggregate_id = fields["explicit_key"], fields["aggregate_type"], fields["aggregate_id"]
    if key is None and aggregate_id is not None:
        key = f"{aggregate_type}/{aggregate_id}"
    # What was pickled by a release without unique keys has none.
    whole = {"unique_key": None} | fields | {"headers": read_only(fields["headers"]), "key": key}
    for name, value in whole.items():
        _set(envelope, name, value)
    return envelope
