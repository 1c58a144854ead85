"""Where a webhook goes: a URL taken apart, what may be shown of it, and its login."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote

import httpx

from aftercommit.errors import AddressRefused, InvalidOption
from aftercommit.relays.webhooks.guard import Guard

_FIX: Final = 'pass a URL: "https://receiver.example/hooks"'


@dataclass(frozen=True, slots=True)
class Target:
    """Where a message goes. Paths and queries may be secrets: only the origin is ever shown."""

    origin: str
    url: httpx.URL = field(repr=False)
    #: The value of Authorization, from a login in the URL.
    login: str | None = field(repr=False, default=None)


def target_of(given: Any, guard: Guard) -> Target:
    """Refuses what can be refused before the name of the host is looked up."""
    if not isinstance(given, str):
        raise InvalidOption(f"the URL of a webhook is a {type(given).__name__}", fix=_FIX)
    try:
        url = httpx.URL(given)
        origin = origin_of(url)
        port = url.port
    except (httpx.InvalidURL, ValueError):
        raise InvalidOption("the URL of a webhook cannot be read", fix=_FIX) from None
    if url.scheme not in ("http", "https") or not url.host or port == 0:
        raise InvalidOption(f"the URL of a webhook has the scheme {url.scheme!r} and the host {url.host!r}", fix=_FIX)
    _check_literal(url.host, guard)
    login = None
    if url.userinfo:
        login = "Basic " + b64encode(unquote(url.userinfo.decode()).encode()).decode()
    return Target(origin, url.copy_with(userinfo=b"", fragment=None), login)


def _check_literal(host: str, guard: Guard) -> None:
    try:
        address = ip_address(host)
    except ValueError:
        return
    try:
        guard.check(host, [address])
    except AddressRefused as error:
        raise InvalidOption(f"the URL of a webhook: {error.message}", fix=error.fix) from None


def origin_of(url: httpx.URL) -> str:
    """Scheme, host and port; empty for a URL without a host."""
    if not url.host:
        return ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port is not None else "")
