"""Places on real brokers that relays send to, and what was stored there, seen by somebody else."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import aio_pika
import nats

from aftercommit.relays import Nats, RabbitMQ, RedisStreams, Relay, Route
from aftercommit.relays.testing import Stored
from tests import redis_servers


class Places(ABC):
    """Of one broker, with names of this test's own; gone with `close`."""

    def __init__(self, url: str, port: int) -> None:
        parts = urlsplit(url)
        self.url, self.host, self.port = url, parts.hostname or "localhost", parts.port or port
        self.prefix = f"aftercommit-{uuid4().hex[:12]}"
        self.count = 0

    def at(self, host: str, port: int) -> str:
        """The same login, elsewhere."""
        parts = urlsplit(self.url)
        login = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{login}@{host}:{port}" if login else f"{host}:{port}").geturl()

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}-{self.count}"

    @abstractmethod
    def relay(self, host: str | None = None, port: int | None = None, **options: Any) -> Relay: ...

    @abstractmethod
    def make(self) -> Any: ...

    @abstractmethod
    def nowhere(self) -> Any: ...

    @abstractmethod
    def stored(self, place: Any) -> list[Stored]: ...

    @abstractmethod
    def close(self) -> None: ...


class RabbitmqPlaces(Places):
    """Durable queues."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 5672)
        self.seen: dict[str, list[Stored]] = {}

    def relay(self, host: str | None = None, port: int | None = None, **options: Any) -> Relay:
        given = {"connect_timeout": "2s", "confirm_timeout": "2s", **options}
        return RabbitMQ(self.at(host or self.host, port or self.port), **given)

    def make(self) -> Any:
        name = self.name()
        self.seen[name] = []
        self._ask(lambda channel: channel.declare_queue(name, durable=True))
        return name

    def nowhere(self) -> Any:
        return Route(f"{self.prefix}-no-exchange", "nobody")

    def stored(self, place: str) -> list[Stored]:
        async def take(channel: Any) -> None:
            queue = await channel.get_queue(place, ensure=False)
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                self.seen[place].append(_from_rabbitmq(message))

        self._ask(take)
        return self.seen[place]

    def close(self) -> None:
        async def delete(channel: Any) -> None:
            for name in self.seen:
                await channel.queue_delete(name)

        self._ask(delete)

    def _ask(self, what: Callable[[Any], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            async with await aio_pika.connect(self.url) as connection:
                return await what(await connection.channel())

        return asyncio.run(ask())


def _from_rabbitmq(message: Any) -> Stored:
    headers = {name: value for name, value in message.headers.items() if not name.startswith("cloudEvents_")}
    prefix = "cloudEvents_"
    attributes = {name.removeprefix(prefix): message.headers[name] for name in message.headers if name not in headers}
    assert message.delivery_mode == 2
    return Stored(message.message_id, message.body, message.content_type, attributes, headers)


class NatsPlaces(Places):
    """A stream of its own for each subject."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 4222)
        self.streams: list[str] = []

    def relay(self, host: str | None = None, port: int | None = None, **options: Any) -> Relay:
        given = {"connect_timeout": "2s", "ack_timeout": "2s", **options}
        return Nats(self.at(host or self.host, port or self.port), **given)

    def make(self) -> Any:
        return self.make_with()

    def make_with(self, **settings: Any) -> str:
        name = self.name()
        self.streams.append(name)
        self._ask(lambda client: client.jetstream().add_stream(name=name, subjects=[f"{name}.it"], **settings))
        return f"{name}.it"

    def nowhere(self) -> Any:
        return f"{self.prefix}.nobody"

    def stored(self, place: str) -> list[Stored]:
        async def take(client: Any) -> list[Stored]:
            stream = client.jetstream()
            state = (await stream.stream_info(place.removesuffix(".it"))).state
            numbers = range(state.first_seq, state.last_seq + 1) if state.messages else ()
            found = [await stream.get_msg(place.removesuffix(".it"), number) for number in numbers]
            return [_from_nats(each) for each in found]

        return self._ask(take)

    def close(self) -> None:
        async def delete(client: Any) -> None:
            for name in self.streams:
                await client.jetstream().delete_stream(name)

        self._ask(delete)

    def _ask(self, what: Callable[[Any], Awaitable[Any]]) -> Any:
        async def ask() -> Any:
            client = await nats.connect(self.url)
            try:
                return await what(client)
            finally:
                await client.close()

        return asyncio.run(ask())


def _from_nats(message: Any) -> Stored:
    headers = dict(message.headers or {})
    own = {name: headers.pop(name) for name in ("Nats-Msg-Id", "content-type") if name in headers}
    attributes = {name[3:]: unquote(headers.pop(name)) for name in tuple(headers) if name.startswith("ce-")}
    return Stored(own.get("Nats-Msg-Id"), message.data or b"", own.get("content-type"), attributes, headers)


class RedisPlaces(Places):
    """A stream for each place."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 6379)
        self.keys: list[str] = []

    def relay(self, host: str | None = None, port: int | None = None, **options: Any) -> Relay:
        given = {"connect_timeout": "2s", "answer_timeout": "2s", **options}
        return RedisStreams(self.at(host or self.host, port or self.port), **given)

    def make(self) -> Any:
        self.keys.append(self.name())
        return self.keys[-1]

    def nowhere(self) -> Any:
        """A key that is no stream."""
        key = self.make()
        with redis_servers.connected(self.url) as client:
            client.set(key, "a text")
        return key

    def stored(self, place: str) -> list[Stored]:
        with redis_servers.connected(self.url) as client:
            return [_from_redis(fields) for _, fields in client.xrange(place)]

    def close(self) -> None:
        with redis_servers.connected(self.url) as client:
            for key in self.keys:
                client.unlink(key)


def _from_redis(fields: dict[bytes, bytes]) -> Stored:
    named = {name.decode(): value for name, value in fields.items()}
    body, kind = named.pop("data"), named.pop("datacontenttype").decode()
    headers = {name[7:]: named.pop(name).decode() for name in tuple(named) if name.startswith("header:")}
    attributes = {name: value.decode() for name, value in named.items()}
    return Stored(attributes.get("id"), body, kind, attributes, headers)
