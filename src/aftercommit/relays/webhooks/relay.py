"""The relay to webhooks: an event is done when its receiver has answered with 2xx."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from aftercommit.errors import AddressRefused, InvalidOption, MessageRefused, MissingDriver
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.relays.message import Message
from aftercommit.relays.outage import away
from aftercommit.relays.relay import Relay

try:
    import httpcore
    import httpx
    import standardwebhooks  # noqa: F401  (loaded by what is imported below)
except ImportError as error:
    raise MissingDriver(f"{error.name} is not installed", fix='pip install "aftercommit[webhook]"') from error

from aftercommit.relays.webhooks.answers import meaning
from aftercommit.relays.webhooks.guard import Guard
from aftercommit.relays.webhooks.headers import fixed_headers, headers_of
from aftercommit.relays.webhooks.signatures import Secrets, Signatures
from aftercommit.relays.webhooks.targets import Target, target_of
from aftercommit.relays.webhooks.transport import Outgoing, Transport, beginning_of, context_of

#: Seconds for a connection, TLS included.
CONNECT_TIMEOUT: Final = 5.0

#: Hosts of which it is known when they have answered.
MOST_HOSTS: Final = 10_000


class Webhook(Relay):
    """Posts events to URLs, signed by the rules of Standard Webhooks.

    >>> from aftercommit import Outbox
    >>> from aftercommit.relays import Webhook
    >>> outbox = Outbox("sqlite://")
    >>> outbox.relay(Webhook("https://receiver.example/hooks", secret="whsec_c2VjcmV0IG9mIHR3ZW50eS1mb3VyIQ=="))
    <handler webhook>

    Without a URL, `outbox.relay(…, url=lambda event: …)` says where each event goes. Private addresses are refused
    after the look-up of the name, unless `allow_private` is True or names their network. `timeout` is for one request,
    as a whole; `concurrency` is how many of one call are under way at the same time.
    """

    name: ClassVar[str] = "webhook"
    words: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        url: str | None = None,
        *,
        secret: Secrets | None = None,
        timeout: Duration = "15s",
        allow_private: bool | str | Iterable[str] = False,
        verify: bool | str | os.PathLike[str] | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
        concurrency: int = 20,
    ) -> None:
        self._guard = Guard(allow_private)
        self._target = None if url is None else target_of(url, self._guard)
        self._signatures = Signatures(secret)
        self._timeout = seconds_of(timeout, name="timeout", positive=True)
        self._context = context_of(verify)
        self._headers = fixed_headers(headers)
        if concurrency < 1:
            raise InvalidOption(f"concurrency is {concurrency!r}", fix="pass an int of at least 1")
        self._concurrency = concurrency

    def __repr__(self) -> str:
        return f"Webhook({'' if self._target is None else repr(self._target.origin)})"

    @property
    def where(self) -> str:
        return "webhooks" if self._target is None else self._target.origin

    def place(self, given: Any) -> Target:
        """A URL; the relay's own when there is none."""
        if given is not None:
            return target_of(given, self._guard)
        if self._target is None:
            raise InvalidOption("no URL was given", fix='Webhook("https://…"), or relay(…, url=lambda event: …)')
        return self._target

    def destination(self, place: Any) -> str:
        """Each host has a circuit of its own."""
        return str(place.origin)

    def open(self) -> None:
        self._transport = Transport(self._context, self._guard)
        #: When each host has answered last.
        self._heard: dict[str, float] = {}

    async def close(self) -> None:
        await self._transport.aclose()

    async def publish(self, messages: Sequence[Message]) -> list[BaseException | None]:
        """All of them are for one host, so a slow one keeps nobody else from a place."""
        places = asyncio.Semaphore(self._concurrency)
        if len(messages) == 1:
            return [await self._post(messages[0], places)]
        return await asyncio.gather(*(self._post(message, places) for message in messages))

    async def _post(self, message: Message, places: asyncio.Semaphore) -> BaseException | None:
        target: Target = message.to
        try:
            async with asyncio.timeout(self._timeout / 2):
                await places.acquire()
        except TimeoutError:
            return away(target.origin, "it is too slow for all that is sent to it")
        try:
            body = Outgoing(message.body)
            return await self._exchange(self._request(message, body), body, target.origin)
        except Exception as error:  # of a function of the user's, or a message that cannot be sent
            return error
        finally:
            places.release()

    async def _exchange(self, request: httpx.Request, body: Outgoing, origin: str) -> BaseException | None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._transport.handle_async_request(request)
            self._note(origin)
            try:
                beginning = await beginning_of(answer)
            finally:
                await answer.aclose()
        except AddressRefused as error:
            return error
        except TimeoutError:
            return self._silent(origin, body, began, f"no answer within {self._timeout:g} s")
        except httpcore.LocalProtocolError as error:
            return MessageRefused(f"the message for {origin} makes no request: {error}", fix="shape it: message=")
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            return self._silent(origin, body, began, f"{type(error).__name__}: {error}")
        return meaning(answer, beginning, origin, now=datetime.now(UTC))

    def _note(self, origin: str) -> None:
        if len(self._heard) >= MOST_HOSTS:
            self._heard.clear()
        self._heard[origin] = time.monotonic()

    def _silent(self, origin: str, body: Outgoing, began: float, what: str) -> BaseException:
        """A host that has answered others meanwhile is there: it is this event that it has no answer to."""
        if body.is_begun and self._heard.get(origin, 0.0) >= began:
            return MessageRefused(f"{origin}: {what}", fix="see what it does with this event")
        return away(origin, what)

    def _request(self, message: Message, body: Outgoing) -> httpx.Request:
        target: Target = message.to
        now = datetime.now(UTC)
        headers = {"user-agent": "aftercommit", **self._headers, **headers_of(message)}
        if target.login is not None:
            headers["authorization"] = target.login
        headers |= self._signatures.headers(message.event, message.body, at=now)
        headers |= {"host": target.url.netloc.decode(), "content-length": str(len(message.body))}
        headers["accept-encoding"] = "identity"
        timeouts = {"timeout": {"connect": min(CONNECT_TIMEOUT, self._timeout)}}
        return httpx.Request("POST", target.url, headers=headers, stream=body, extensions=timeouts)
