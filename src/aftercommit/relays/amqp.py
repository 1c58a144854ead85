"""How messages go to RabbitMQ: exchanges and their channels, properties, and what AMQP has no room for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from aftercommit.errors import InvalidOption, MissingDriver
from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter
from aftercommit.relays.message import Message

try:
    import aio_pika
    from aiormq import exceptions, spec
except ImportError as error:
    raise MissingDriver(f"aio-pika is not installed ({error})", fix='pip install "aftercommit[rabbitmq]"') from error

__all__ = ["ExchangeChannel", "Route", "amqp_name", "connect", "exceptions", "properties_of", "refuse_unsendable"]

#: Before the names of attributes, as the AMQP binding of CloudEvents says it.
PREFIX: Final = "cloudEvents_"

#: Bytes of a name in AMQP.
_LONGEST_NAME: Final = 255

#: Headers that mean something to RabbitMQ: it would send the message elsewhere as well, or close the channel.
_COMMANDS: Final = frozenset({"CC", "BCC"})


@dataclass(frozen=True, slots=True)
class Route:
    """An exchange, "" for the default one, and a routing key."""

    exchange: str
    key: str


class OwnConnection(aio_pika.Connection):
    """One that its owner closes. The driver's would begin to close itself when it is collected, with no loop around."""

    def __del__(self) -> None:
        """Nothing."""


async def connect(url: str, timeout: float, **options: Any) -> Any:
    return await aio_pika.connect(url, timeout=timeout, connection_class=OwnConnection, **options)


class ExchangeChannel:
    """A channel for one exchange: the broker closes a channel for whatever is wrong, and others are not to suffer."""

    def __init__(self, exchange: str, kind: str | None) -> None:
        """Of the exchange where it is to be declared; else it has to be there."""
        self.exchange = exchange
        self.users = 0
        self._kind = kind
        self._opening = asyncio.Lock()
        self._channel: Any = None

    async def publish(self, connection: Any, routing_key: str, message: Message, timeout: float) -> None:
        """Until the broker has it. Raises what the driver raises."""
        channel = self._channel
        if channel is None or channel.is_closed:
            channel = await self._open(connection)
        await channel.basic_publish(
            message.body,
            exchange=self.exchange,
            routing_key=routing_key,
            properties=properties_of(message),
            mandatory=True,
            timeout=timeout,
            wait=False,
        )

    async def _open(self, connection: Any) -> Any:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                channel = connection.channel(publisher_confirms=True, on_return_raises=True)
                await channel
                self._kept, under = channel, await channel.get_underlay_channel()
                if self.exchange:
                    # Asked before anything is sent: the broker closes the connection for what is still on its way to a
                    # channel that it has closed.
                    given = {"passive": True} if self._kind is None else {"exchange_type": self._kind, "durable": True}
                    await under.exchange_declare(self.exchange, **given)
                self._channel = under
            return self._channel

    async def close(self) -> None:
        if self._channel is not None and not self._channel.is_closed:
            await self._kept.close()


def properties_of(message: Message) -> Any:
    """As the AMQP binding of CloudEvents says it; a user's header gives way to an attribute of the same name."""
    headers: dict[str, Any] = dict(message.headers)
    for name, value in message.attributes.items():
        headers[PREFIX + name] = value
    return spec.Basic.Properties(
        content_type=message.content_type,
        delivery_mode=2,
        headers=headers,
        message_id=message.id,
        timestamp=message.event.occurred_at,
    )


def refuse_unsendable(message: Message) -> None:
    """What the driver or the broker would close the connection for."""
    size = 0
    for name, value in message.headers.items():
        if name in _COMMANDS:
            raise DeadLetter(f"the header {name} is a command to RabbitMQ: rename it")
        if len(name.encode()) > _LONGEST_NAME:
            raise DeadLetter(
                f"the header name {name[:40]}… is longer than {_LONGEST_NAME} bytes, which AMQP cannot carry"
            )
        size += len(name.encode()) + len(value.encode())
    if size > 100_000:
        raise DeadLetter(f"the headers have {size} bytes, and a frame of AMQP has room for 131,072 in all")
    if len(message.content_type.encode()) > _LONGEST_NAME:
        raise DeadLetter("the content type is longer than 255 bytes, which AMQP cannot carry")


def amqp_name(given: Any, what: str) -> str:
    if not isinstance(given, str) or len(given.encode()) > _LONGEST_NAME:
        raise InvalidOption(f"the {what} is {shown(given)}", fix=f"a text of at most {_LONGEST_NAME} bytes")
    return given
