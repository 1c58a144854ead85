"""RabbitMQ, by aio-pika: publisher confirms, and messages that nobody would get come back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from aftercommit.errors import InvalidOption, MessageRefused
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter, Unavailable
from aftercommit.events.redact import error_text
from aftercommit.relays.amqp import ExchangeChannel, Route, amqp_name, connect, exceptions, refuse_unsendable
from aftercommit.relays.headers import place_of
from aftercommit.relays.message import Message
from aftercommit.relays.relay import Relay

#: Exchanges that keep a channel open. Beyond them one that is not in use makes room.
_CHANNELS: Final = 100

#: Seconds between signs of life of the connection, where the URL says nothing.
_HEARTBEAT: Final = 20

Answer = BaseException | None


class RabbitMQ(Relay):
    """Publishes to RabbitMQ: `to=` is a routing key of `exchange`, a `Route`, or a function of the event.

    A message is done when the broker has confirmed it, which for a durable queue it does when the message is on disk. A
    message that no queue would get, and an exchange that is not there, are failures of that message, and tried again.
    With `declare="topic"` exchanges are made, durable, by the first message to them. Further options are those of
    `aio_pika.connect`, such as `ssl_context`.
    """

    name: ClassVar[str] = "rabbitmq"

    def __init__(
        self,
        url: str = "amqp://guest:guest@localhost/",
        *,
        exchange: str = "",
        declare: str | None = None,
        connect_timeout: Duration = "5s",
        confirm_timeout: Duration = "10s",
        **options: Any,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("amqp", "amqps"):
            raise InvalidOption(
                f"the URL of RabbitMQ begins with {shown(parts.scheme)}", fix="amqp://user:password@host:5672/vhost"
            )
        self._url = url
        self._where = _where(url)
        self._exchange = amqp_name(exchange, "exchange")
        self._declare = declare
        self._connect_timeout = seconds_of(connect_timeout, name="connect_timeout", positive=True)
        self._confirm_timeout = seconds_of(confirm_timeout, name="confirm_timeout", positive=True)
        self._options = options if "heartbeat" in parts.query else {"heartbeat": _HEARTBEAT, **options}
        self._connection: Any = None

    @property
    def where(self) -> str:
        return self._where

    def place(self, given: Any) -> Route:
        if isinstance(given, Route):
            return Route(amqp_name(given.exchange, "exchange"), amqp_name(given.key, "routing key"))
        if isinstance(given, str):
            return Route(self._exchange, amqp_name(given, "routing key"))
        raise InvalidOption(
            f"to of RabbitMQ is {shown(given)}", fix='a routing key: to="orders", or to=Route(exchange="shop", key="…")'
        )

    async def open(self) -> None:
        self._channels: dict[str, ExchangeChannel] = {}
        self._connection = await connect(self._url, self._connect_timeout, **self._options)
        self._connection.close_callbacks.add(self._lost)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    def _lost(self, *_: object) -> None:
        self.is_lost = True

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        by_exchange: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            by_exchange.setdefault(message.to.exchange, []).append(number)
        answers: list[Answer] = [None] * len(messages)
        sent = [self._publish_to(exchange, [messages[n] for n in found]) for exchange, found in by_exchange.items()]
        together = await asyncio.gather(*sent)
        for numbers, found in zip(by_exchange.values(), together, strict=True):
            for number, answer in zip(numbers, found, strict=True):
                answers[number] = answer
        return answers

    async def _publish_to(self, exchange: str, messages: Sequence[Message]) -> Sequence[Answer]:
        channel = await self._channel_of(exchange)
        channel.users += 1
        try:
            answers = await asyncio.gather(*[self._publish_one(channel, message) for message in messages])
            unknown = [number for number, answer in enumerate(answers) if isinstance(answer, _ChannelLost)]
            if unknown:
                await self._publish_alone(exchange, messages, answers, unknown)
        except Exception as error:
            return [self._judged(error, exchange)] * len(messages)
        finally:
            channel.users -= 1
        return [self._last(answer) if isinstance(answer, _ChannelLost) else answer for answer in answers]

    async def _publish_alone(
        self, exchange: str, messages: Sequence[Message], answers: list[Any], unknown: Sequence[int]
    ) -> None:
        """Nobody knows which of them, or of another call, the broker has closed the channel for. Each is sent again on
        a channel that has nothing else on it; those that were stored by then come twice."""
        alone = ExchangeChannel(exchange, self._declare)
        try:
            for number in unknown:
                answers[number] = await self._publish_one(alone, messages[number])
        finally:
            await alone.close()

    async def _publish_one(self, channel: ExchangeChannel, message: Message) -> Answer:
        try:
            refuse_unsendable(message)
            await channel.publish(self._connection, message.to.key, message, self._confirm_timeout)
        except Exception as error:
            return self._judged(error, channel.exchange)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._away(error)  # the driver has cancelled what waited for a lost connection
        return None

    async def _channel_of(self, exchange: str) -> ExchangeChannel:
        channel = self._channels.get(exchange)
        if channel is None:
            if len(self._channels) >= _CHANNELS:
                idle = next((each for each in self._channels.values() if not each.users), None)
                if idle is not None:
                    del self._channels[idle.exchange]
                    await idle.close()
            channel = self._channels.setdefault(exchange, ExchangeChannel(exchange, self._declare))
        return channel

    def _judged(self, error: Exception, exchange: str) -> BaseException:
        """What an error of the driver means for the message."""
        match error:
            case DeadLetter() | InvalidOption():
                return error
            case exceptions.PublishError():
                text = error_text(error)
                return _refused(
                    f"{self.where} has no queue for it: {text}", "bind a queue to the exchange for it", error
                )
            case exceptions.DeliveryError():
                return _refused(f"{self.where} did not store it: {error}", "see the log of the broker", error)
            case exceptions.ChannelNotFoundEntity():
                fix = 'make the exchange, or let it be made: RabbitMQ(…, declare="topic")'
                return _refused(f"{self.where}: {error_text(error)}", fix, error)
            case exceptions.ChannelPreconditionFailed() if "larger than" in str(error):
                dead = DeadLetter(f"{self.where} takes no message of this size: {error_text(error)}")
                return _ChannelLost(dead)
            case exceptions.ChannelClosed() | exceptions.AMQPChannelError():
                return _ChannelLost(_refused(f"{self.where}: {error_text(error)}", "see the log of the broker", error))
            case exceptions.ChannelInvalidStateError() if not self.is_lost:  # closed for another message
                away = Unavailable(self.where)
                away.__cause__ = error
                return _ChannelLost(away)
        is_loss = isinstance(error, exceptions.AMQPError | OSError | asyncio.TimeoutError | RuntimeError)
        return self._away(error) if is_loss else error

    def _last(self, answer: _ChannelLost) -> BaseException:
        """Of a message that was alone on its channel, and yet it was closed."""
        if isinstance(answer.reason, Unavailable):
            self.is_lost = True
        return answer.reason

    def _away(self, error: BaseException) -> Unavailable:
        self.is_lost = True
        away = Unavailable(self.where)
        away.__cause__ = error
        return away


class _ChannelLost(Exception):
    """The broker has closed the channel, perhaps for another message."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _refused(message: str, fix: str, cause: BaseException) -> MessageRefused:
    refused = MessageRefused(message, fix=fix)
    refused.__cause__ = cause
    return refused


def _where(url: str) -> str:
    parts = urlsplit(url)
    place = place_of(url, 5671 if parts.scheme == "amqps" else 5672)
    return f"RabbitMQ at {place}/{unquote(parts.path[1:])}"
