"""The headers of a request: CloudEvents' as their HTTP binding has them, and what a user may add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aftercommit.errors import InvalidOption
from aftercommit.events.outcome import DeadLetter
from aftercommit.relays.headers import checked_name, header_value, percent_encoded
from aftercommit.relays.message import Message

_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")

#: What the request itself is made of.
_OF_HTTP: Final = frozenset(
    (
        *("connection", "content-encoding", "content-length", "expect", "host", "keep-alive", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)

#: What says whose message this is, and where it came from.
_OF_MESSAGE: Final = re.compile(r"content-type|accept-encoding|(?:ce|webhook)-.*")


def fixed_headers(given: Mapping[str, str] | None) -> dict[str, str]:
    """What every request has, checked when the relay is declared. Values may be secrets, and are not said."""
    fixed: dict[str, Any] = {name.lower(): value for name, value in (given or {}).items()}
    for name, value in fixed.items():
        if not _is_name(name) or name in _OF_HTTP or _OF_MESSAGE.fullmatch(name):
            raise InvalidOption(f"headers has {name!r}, which is no header of yours to set", fix="leave it out")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InvalidOption(
                f"headers has a value for {name!r} that cannot be sent", fix="pass a str of printable ASCII"
            )
    return fixed


def _is_name(name: str) -> bool:
    try:
        return bool(checked_name(name))
    except DeadLetter:
        return False


def headers_of(message: Message) -> dict[str, str]:
    """Of one message. What says whose message it is cannot be said by the user's own."""
    headers = {_own(name): header_value(value) for name, value in message.headers.items()}
    headers = {name: value for name, value in headers.items() if not _OF_MESSAGE.fullmatch(name)}
    headers["content-type"] = header_value(message.content_type)
    for name, value in message.attributes.items():
        headers[f"ce-{name}"] = percent_encoded(value)
    return headers


def _own(name: str) -> str:
    lower = checked_name(name).lower()
    if lower in _OF_HTTP:
        raise DeadLetter(
            f"the event has a header {name!r}, which belongs to HTTP itself",
            fix="rename it, or shape the message: outbox.relay(…, message=lambda event: Outgoing(headers={…}))",
        )
    return lower
