"""One request, one answer: no redirects, cookies or proxies, and no more of the answer than is looked at."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import httpcore
import httpx

from aftercommit.errors import InvalidOption
from aftercommit.events.names import shown
from aftercommit.relays.webhooks.guard import Guard, GuardedNetwork

#: Of an answer's body. A connection whose answer is longer is not used again.
MOST_BYTES: Final = 16_384

#: Seconds for a body, once the status is known: nothing depends on it.
BODY_TIMEOUT: Final = 1.0

#: Seconds after which an idle connection is closed: before most servers do so, for what is sent at that very moment
#: may get no answer.
IDLE: Final = 4.0


class Transport(httpx.AsyncBaseTransport):
    """Keeps connections to the hosts that it has called."""

    def __init__(self, context: ssl.SSLContext, guard: Guard) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=IDLE,
            network_backend=GuardedNetwork(guard),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method.encode(),
                url=target,
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Incoming(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


class Outgoing(httpx.AsyncByteStream):
    """The body of a request, which knows whether anybody has begun to send it."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_begun = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        yield self._body


class _Incoming(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


async def beginning_of(answer: httpx.Response) -> bytes:
    """The first bytes of a body, as they came: nothing is unpacked. What cannot be read any more is left out."""
    read = b""
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in answer.aiter_raw():
                read += part
                if len(read) > MOST_BYTES:
                    break
    return read[:MOST_BYTES]


def context_of(verify: Any) -> ssl.SSLContext:
    """What `verify=` says: the public authorities, those of a file, a context of the user's own, or none."""
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify=verify, trust_env=False)
    try:
        path = os.fspath(verify)
        return ssl.create_default_context(**{"capath" if os.path.isdir(path) else "cafile": path})
    except (TypeError, OSError) as error:
        raise InvalidOption(
            f"verify is {shown(verify)}: {error}",
            fix="pass a file of authorities, an ssl.SSLContext, or False to take any certificate",
        ) from None
