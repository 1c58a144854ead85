"""What the answer of a receiver means for the event."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import httpx

from aftercommit.errors import MessageRefused
from aftercommit.events.outcome import DeadLetter, RetryAfterError
from aftercommit.relays.outage import away
from aftercommit.relays.webhooks.targets import origin_of

#: The times that a receiver may ask for. One that asks for none at all would be called without a pause, for ever.
SHORTEST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(hours=1)

#: Statuses with which it asks for time: for all events, and for this one.
_NOT_NOW: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LATER: Final = HTTPStatus.REQUEST_TIMEOUT

#: Characters of a body that are quoted.
_QUOTED: Final = 200


def meaning(answer: httpx.Response, body: bytes, origin: str, *, now: datetime) -> BaseException | None:
    """None: the receiver has it."""
    status = answer.status_code
    if 200 <= status < 300:
        return None
    said = f"{origin} answered {status}{_phrase(status)}"
    if 300 <= status < 400:
        where = _led_to(answer)
        return MessageRefused(f"{said}, which leads to {where}", fix="use that address; redirects are not followed")
    if status == HTTPStatus.GONE:
        return DeadLetter(f"{said}: it wants no more of these", fix="send it no more: outbox.relay(…, only=…)")
    wait = retry_after(answer.headers.get("retry-after"), now=now)
    if wait is not None and status in _NOT_NOW:
        return away(origin, said, wait)
    if wait is not None and status == _LATER:
        return RetryAfterError(wait, said)
    text = re.sub(r"\s+", " ", body.decode("utf-8", "replace")).strip()[:_QUOTED]
    return MessageRefused(f"{said}: {text}" if text else said, fix="see what it wants of this event, and why")


def retry_after(value: str | None, *, now: datetime) -> timedelta | None:
    """Seconds or a date, within bounds; None for what is neither."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        wait = timedelta(seconds=int(value))
    else:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        wait = (date if date.tzinfo else date.replace(tzinfo=UTC)) - now
    return min(max(wait, SHORTEST), LONGEST)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _led_to(answer: httpx.Response) -> str:
    """Without what may be a secret in it."""
    try:
        return origin_of(httpx.URL(answer.headers.get("location", ""))) or "a place on the same host"
    except (httpx.InvalidURL, ValueError):
        return "no address"
