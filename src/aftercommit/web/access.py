"""Who may see data over HTTP: whom the program lets in, else only whoever sits at this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from ipaddress import ip_address
from typing import Final, TypeAlias

from starlette.requests import Request

from aftercommit.events.log import Log
from aftercommit.events.redact import error_text

log = Log("aftercommit.web")

#: True lets a request see data. It alone decides; a coroutine function is awaited.
Access: TypeAlias = Callable[[Request], "bool | Awaitable[bool]"]

#: What a proxy adds. Behind one every client has the proxy's address.
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


async def may_see(access: Access | None, request: Request) -> bool:
    """An `access` that fails lets nobody in."""
    if access is None:
        return is_from_here(request)
    try:
        allowed = access(request)
        return (await allowed if isawaitable(allowed) else allowed) is True
    except Exception as error:
        log.error("access= failed, and the request is refused: %s", error_text(error), error=error)
        return False


def is_from_here(request: Request) -> bool:
    """A client on this machine that speaks to it by its own name, with no proxy between. The name is looked at because
    a page of somebody else's may lead a browser on this machine here under a name of its own."""
    if request.client is None or any(header in request.headers for header in _FORWARDED):
        return False
    return _is_loopback(request.client.host) and _is_loopback(request.url.hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # as a socket for both families names an IPv4 client
    return bool((mapped or address).is_loopback)
