"""The parts of an event that have rules of their own: payload, headers and schedule, each checked as it is given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from aftercommit.errors import (
    InvalidEvent,
    InvalidHeaders,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    PayloadTooLarge,
)
from aftercommit.events.codec import Payload, checked_json
from aftercommit.events.durations import duration
from aftercommit.events.names import is_utf8, plain, shown

#: The specification's limit. Every retry reads the payload again, and brokers refuse larger messages by default.
MAX_PAYLOAD_BYTES: Final = 1_048_576

#: Tells a keyword that was not given from one that was given as None, which the rules refuse.
UNSET: Final[Any] = type("Unset", (), {"__repr__": lambda _: "…"})()

#: What text and bytes are when nobody says more.
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def payload_of(text: Any, binary: Any) -> Payload:
    """The one payload that was given."""
    if (text is UNSET) == (binary is UNSET):
        given = "both payload_json and payload_bytes were given" if text is not UNSET else "no payload was given"
        raise InvalidPayload(given, fix="pass exactly one of payload_json=… and payload_bytes=…")
    return binary_payload(binary) if text is UNSET else text_payload(text)


def binary_payload(value: Any) -> bytes:
    """Bytes within the limit; a copy of a buffer that its owner may change."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidPayload(f"payload_bytes is {_kind(value)}", fix="pass bytes")
    _refuse_size(memoryview(value).nbytes)
    return bytes(value)


def text_payload(value: Any) -> str:
    """JSON text within the limit."""
    if not isinstance(value, str):
        raise InvalidPayload(f"payload_json is {_kind(value)}", fix="pass JSON text; write() encodes objects")
    check_size(value)
    return checked_json(value)


def check_size(payload: Payload) -> None:
    """Refuse what is over the limit."""
    # No character takes more than four bytes, so those of a short text need not be counted.
    if len(payload) * 4 > MAX_PAYLOAD_BYTES:
        _refuse_size(len(payload.encode("utf-8", "surrogatepass")) if isinstance(payload, str) else len(payload))


def _refuse_size(size: int) -> None:
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size:,} bytes, the limit is {MAX_PAYLOAD_BYTES:,}",
            fix="store the bulk elsewhere and send a reference to it",
        )


def headers_of(headers: Any, field: str = "headers", entry: str = "header") -> Mapping[str, str]:
    """A read-only copy of a mapping from strings to strings."""
    if headers is None:
        return NO_HEADERS
    if not isinstance(headers, Mapping):
        raise InvalidHeaders(f"{field} is {_kind(headers)}", fix="pass a dict of strings")
    for name, value in headers.items():
        if not (type(name) is type(value) is str and name and name.isascii() and value.isascii()):
            _check_header(name, value, field, entry)
    return read_only({plain(name): plain(value) for name, value in headers.items()})


def read_only(headers: Mapping[str, str]) -> Mapping[str, str]:
    """A view that nobody can change."""
    return MappingProxyType(headers) if headers else NO_HEADERS


def _check_header(name: Any, value: Any, field: str, entry: str) -> None:
    if name is None:
        raise InvalidHeaders(f"{field} cannot contain null keys (a {entry} name is None)", fix=f"name every {entry}")
    if not isinstance(name, str) or not name:
        raise InvalidHeaders(
            f"the {entry} name {shown(name)} is no text", fix=f"use non-empty strings as {entry} names"
        )
    if not isinstance(value, str):
        raise InvalidHeaders(
            f"the {entry} {name!r} is {shown(value)} of type {type(value).__name__}",
            fix=f"pass str({name}) or leave it out",
        )
    if not is_utf8(name) or not is_utf8(value):
        raise InvalidHeaders(f"the {entry} {name!r} has a lone surrogate", fix="clean the text first")


def schedule_of(occurred: datetime, available_at: Any, deliver_after: Any) -> tuple[timedelta | None, datetime | None]:
    """The delay, if one was given, and the time that it or `available_at` means; None and None for at once."""
    if available_at is not UNSET and deliver_after is not UNSET:
        raise InvalidSchedule(
            f"both available_at={shown(available_at)} and deliver_after={shown(deliver_after)} were given",
            fix="pass available_at or deliver_after, not both",
        )
    if deliver_after is not UNSET:
        return _delayed(occurred, deliver_after)
    if available_at is UNSET:
        return None, None
    due = utc_of(available_at, "available_at")
    if due < occurred:
        raise InvalidSchedule(
            f"available_at must not be before occurred_at ({due.isoformat()} < {occurred.isoformat()})",
            fix="leave available_at out to deliver at once",
        )
    return None, due


def _delayed(occurred: datetime, deliver_after: Any) -> tuple[timedelta, datetime]:
    try:
        delay = duration(deliver_after, name="deliver_after", positive=True)
        return delay, occurred + delay
    except InvalidOption as error:
        raise InvalidSchedule(
            f"{error.message.rstrip('.')}; deliver_after must be positive",
            fix='pass a positive timedelta, seconds or "30s", or leave it out to deliver at once',
        ) from error
    except OverflowError as error:
        raise InvalidSchedule(
            f"deliver_after={shown(deliver_after)} ends after the year 9999", fix="pass a shorter delay"
        ) from error


def utc_of(value: Any, field: str) -> datetime:
    """The same instant in UTC; a time without a zone could mean any."""
    if not isinstance(value, datetime):
        raise InvalidSchedule(
            f"{field} is {shown(value)} of type {type(value).__name__}",
            fix=f"pass {field} as a datetime with a time zone",
        )
    if value.utcoffset() is None:
        raise InvalidSchedule(
            f"{field} {value.isoformat()} has no time zone", fix="use datetime.now(UTC) or .replace(tzinfo=…)"
        )
    try:
        moved: datetime = value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidSchedule(
            f"{field} {value.isoformat()} is outside the years 1 to 9999 in UTC", fix=f"pass {field} in UTC"
        ) from error
    return moved


def _kind(value: object) -> str:
    # Without the value: a payload stays out of messages.
    return "None" if value is None else f"of type {type(value).__name__}"


def plain_content_type(payload: Payload) -> str:
    """What a payload is when nobody says more."""
    return JSON if isinstance(payload, str) else OCTETS


def version_of(value: object) -> int:
    """A payload version: counted from 1, small enough for every database."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31 - 1:
        raise InvalidEvent(f"payload_version is {value!r}", fix="pass an int from 1 on")
    return value
