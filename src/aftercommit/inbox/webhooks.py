"""Webhooks as they come in: nobody is believed who cannot sign. Signatures are those of Standard Webhooks."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from aftercommit.errors import InvalidMessage, InvalidSignature, MessageTooLarge, MissingDriver
from aftercommit.events.durations import Duration, duration
from aftercommit.inbox.messages import ReceivedMessage, _headers, _message

try:
    from aftercommit.relays.webhooks.signatures import Secret, keys_of, signature
except ImportError as error:
    raise MissingDriver(
        f"standardwebhooks is not installed ({error})", fix='pip install "aftercommit[webhook]"'
    ) from error

#: What the largest payload of an outbox takes when it is sent as a structured event, in base64.
LARGEST: Final = 1_500_000

#: As Standard Webhooks recommend: long enough for clocks that are wrong, too short to collect old messages.
TOLERANCE: Final = timedelta(minutes=5)


def from_http(
    headers: Mapping[str, str] | Iterable[tuple[Any, Any]],
    body: bytes,
    *,
    secret: Secret | None,
    tolerance: Duration = TOLERANCE,
    max_size: int = LARGEST,
) -> ReceivedMessage:
    """A request of any framework, by its headers and its body as it came. Raises InvalidSignature when whoever sent
    it does not know the secret, or sent it longer ago than `tolerance`.

    With `secret=None` everybody is believed: for what somebody else has looked at before. The signature is over the
    id, the time and the body; CloudEvents' attributes in headers are not under it.
    """
    if len(body) > max_size:
        raise _too_large(max_size)
    pairs: Any = headers.items() if hasattr(headers, "items") else headers
    named = _headers(pairs)
    keys = () if secret is None else keys_of(secret)
    if secret is not None:
        _verify(named, bytes(body), keys, duration(tolerance, name="tolerance"))
    message = _message(named, ("ce-",), body, message_id=named.get("webhook-id"), is_encoded=True)
    # Of two ids it is the one that was signed: with another one beside it an old message could be made to look new.
    return message if secret is None else replace(message, id=named["webhook-id"])


async def from_webhook(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Any]],
    *,
    secret: Secret | None,
    tolerance: Duration = TOLERANCE,
    max_size: int = LARGEST,
) -> ReceivedMessage:
    """A request as ASGI has it: `await from_webhook(scope, receive, secret=…)`, and of Starlette or FastAPI
    `request.scope, request.receive`. It is read no further than `max_size`. Otherwise as `from_http`."""
    if scope["type"] != "http":
        raise InvalidMessage(f"the scope is of type {scope['type']!r}", fix="pass those of an HTTP request")
    length = next((value for name, value in scope["headers"] if name.lower() == b"content-length"), b"")
    if length.isdigit() and int(length) > max_size:
        raise _too_large(max_size)
    body = bytearray()
    while True:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise InvalidMessage("the client has gone before its request was whole", fix="nothing: it sends it again")
        body += part.get("body", b"")
        if len(body) > max_size:
            raise _too_large(max_size)
        if not part.get("more_body", False):
            break
    return from_http(scope["headers"], bytes(body), secret=secret, tolerance=tolerance, max_size=max_size)


def _verify(headers: Mapping[str, str], body: bytes, keys: Sequence[bytes], tolerance: timedelta) -> None:
    message_id, sent, signed = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (message_id and sent and signed):
        raise InvalidSignature(
            "the request is not signed: it lacks webhook-id, webhook-timestamp or webhook-signature",
            fix="answer 401; sign it as Standard Webhooks say",
        )
    if not sent.isascii() or not sent.isdigit() or len(sent) > 11:
        raise InvalidSignature("webhook-timestamp is no number of seconds", fix="answer 401")
    at = datetime.fromtimestamp(int(sent), UTC)
    if abs(datetime.now(UTC) - at) > tolerance:
        raise InvalidSignature(
            f"the request was signed at {at:%Y-%m-%d %H:%M:%S} UTC, which is further from now than {tolerance}",
            fix="answer 401; look at the clocks of both",
        )
    given = [each.partition(",")[2] for each in signed.split() if each.startswith("v1,")]
    for key in keys:
        expected = signature(key, message_id, at, body).partition(",")[2]
        if any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
            return
    raise InvalidSignature(
        "no signature of the request was made with this secret, over this body",
        fix="answer 401; pass the body as it came, not what was decoded from it",
    )


def _too_large(max_size: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the request has more than {max_size:,} bytes", fix="answer 413; or raise max_size, if the sender is known"
    )
