"""Signatures by the rules of Standard Webhooks: who has the secret knows who sent it, when, and that it is whole."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from standardwebhooks.webhooks import Webhook as Signer

from aftercommit.errors import InvalidOption
from aftercommit.events.envelope import EventEnvelope

#: One, several while they change, or a function of the event that gives those of its receiver.
Secret: TypeAlias = str | bytes | Sequence[str | bytes]
Secrets: TypeAlias = Secret | Callable[[EventEnvelope], Secret | None]

_PREFIX: Final = "whsec_"
_FIX: Final = 'pass "whsec_" and the key in base64, or the key itself as bytes; several of them in a list'


class Signatures:
    """Signs with every secret that there is for an event."""

    def __init__(self, secret: Secrets | None) -> None:
        self._given = secret if callable(secret) else None
        self._keys = () if secret is None or callable(secret) else keys_of(secret)

    def headers(self, event: EventEnvelope, body: bytes, *, at: datetime) -> dict[str, str]:
        """The three headers; without a secret the two that tell repetitions apart."""
        headers = {"webhook-id": event.event_id, "webhook-timestamp": str(int(at.timestamp()))}
        keys = self._keys
        if self._given is not None:
            secret = self._given(event)
            keys = () if secret is None else keys_of(secret)
        if keys:
            headers["webhook-signature"] = " ".join(signature(key, event.event_id, at, body) for key in keys)
        return headers


def keys_of(secret: Any) -> tuple[bytes, ...]:
    """The keys of one secret or several. What is wrong with them is said without saying them."""
    several = (secret,) if isinstance(secret, str | bytes) else secret
    if not isinstance(several, Sequence) or not several:
        raise InvalidOption(f"secret is a {type(secret).__name__} that holds no secret", fix=_FIX)
    return tuple(map(_key, several))


def _key(secret: Any) -> bytes:
    if isinstance(secret, str):
        if secret.startswith("whsk_"):
            raise InvalidOption("secret is a private key, and webhooks are signed with shared secrets here", fix=_FIX)
        text = secret.removeprefix(_PREFIX).rstrip("=")
        try:
            secret = b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            raise InvalidOption("secret is a text that is no base64", fix=_FIX) from None
    if not isinstance(secret, bytes) or not secret:
        raise InvalidOption(f"secret is an empty text or a {type(secret).__name__}", fix=_FIX)
    return secret


def signature(key: bytes, message_id: str, at: datetime, body: bytes) -> str:
    """What the header says that one key has made."""
    try:
        return str(Signer(key).sign(message_id, at, body.decode()))
    except UnicodeDecodeError:  # that library knows text only; over bytes it is the same
        signed = f"{message_id}.{int(at.timestamp())}.".encode() + body
        return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}"
