"""NATS JetStream, by nats-py: a message is done when a stream has acknowledged it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar, Final

import msgspec

from aftercommit.errors import InvalidOption, MessageRefused, MissingDriver
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter, Unavailable
from aftercommit.events.redact import error_text
from aftercommit.relays.headers import checked_name, header_value, percent_encoded, place_of
from aftercommit.relays.message import Message
from aftercommit.relays.relay import Relay

try:
    from nats import errors
    from nats.aio.client import Client
except ImportError as error:
    raise MissingDriver(f"nats-py is not installed ({error})", fix='pip install "aftercommit[nats]"') from error

#: Before the names of attributes, as the NATS binding of CloudEvents says it.
PREFIX: Final = "ce-"

#: Headers of this beginning are commands to the server: one of them empties the stream.
_COMMANDS: Final = "nats-"

#: Subjects that messages can be published to: no wildcards, no white space, no empty parts.
_SUBJECT: Final = re.compile(r"[^\s*>.]+(?:\.[^\s*>.]+)*")

#: The server's numbers of what is wrong with a message for ever, and of a server that has no room.
_TOO_LARGE: Final = 10054
_SMALLER: Final = "raise max_payload or max_msg_size there, or send less by message="
_NO_ROOM: Final = frozenset({10023, 10028, 10047, 10077, 10122})

Answer = BaseException | None


class PubAck(msgspec.Struct):
    """What a stream answers."""

    stream: str = ""
    error: dict[str, Any] | None = None


class Acknowledgements:
    """Answers on the way, by the subject that each was asked to come to. A connection that is lost answers nothing."""

    def __init__(self, prefix: str) -> None:
        self.subject = f"{prefix}.*"
        self._prefix = prefix
        self._numbers = count()
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def expect(self) -> tuple[str, asyncio.Future[Any]]:
        reply = f"{self._prefix}.{next(self._numbers)}"
        answer = self._waiting[reply] = asyncio.get_running_loop().create_future()
        return reply, answer

    async def come(self, message: Any) -> None:
        waiting = self._waiting.pop(message.subject, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def forget(self, reply: str) -> None:
        self._waiting.pop(reply, None)

    def lose(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()


class Nats(Relay):
    """Publishes to JetStream: `to=`, or `subject=`, is a subject or a function of the event.

    `Nats-Msg-Id` is the event's id, so that a stream drops what comes twice within its duplicate window; two relays
    into one stream are told apart by `message_id_prefix`. Streams are not made: a subject that none takes is a failure
    of that message. Further options are those of `nats.connect`.
    """

    name: ClassVar[str] = "nats"
    words: ClassVar[tuple[str, ...]] = ("subject",)

    def __init__(
        self,
        servers: str | Sequence[str] = "nats://localhost:4222",
        *,
        connect_timeout: Duration = "5s",
        ack_timeout: Duration = "10s",
        message_id_prefix: str = "",
        **options: Any,
    ) -> None:
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        if not all(self._servers) or not self._servers:
            raise InvalidOption(f"the servers of Nats are {shown(servers)}", fix='Nats("nats://localhost:4222")')
        self._where = "NATS at " + ", ".join(place_of(each, 4222) for each in self._servers)
        self._connect_timeout = seconds_of(connect_timeout, name="connect_timeout", positive=True)
        self._ack_timeout = seconds_of(ack_timeout, name="ack_timeout", positive=True)
        self._prefix = header_value(message_id_prefix)
        self._options = options
        self._client: Any = None

    @property
    def where(self) -> str:
        return self._where

    def place(self, given: Any) -> str:
        if not isinstance(given, str) or not _SUBJECT.fullmatch(given):
            raise InvalidOption(f"to of Nats is {shown(given)}", fix='a subject without wildcards: to="shop.orders"')
        return given

    async def open(self) -> None:
        self._client = Client()
        await self._client.connect(
            self._servers,
            connect_timeout=self._connect_timeout,
            # A connection that is made anew by the driver keeps what was not sent, and sends it after its time.
            allow_reconnect=False,
            disconnected_cb=self._lost,
            closed_cb=self._lost,
            error_cb=self._failed,
            **self._options,
        )
        self._acks = Acknowledgements(self._client.new_inbox())
        await self._client.subscribe(self._acks.subject, cb=self._acks.come, pending_msgs_limit=-1)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _lost(self) -> None:
        self.is_lost = True
        acks = getattr(self, "_acks", None)
        if acks is not None:
            acks.lose()

    async def _failed(self, error: Exception) -> None:
        """The driver would print it."""

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        answers: list[Answer] = [None] * len(messages)
        asked: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        try:
            for number, message in enumerate(messages):
                reply, answer = self._acks.expect()
                asked[number] = reply, answer
                try:
                    await self._client.publish(message.to, message.body, reply, headers_of(message, self._prefix))
                except Exception as error:
                    answer.set_result(self._judged(error, message))
            if asked:
                await asyncio.wait([answer for _, answer in asked.values()], timeout=self._ack_timeout)
        finally:
            for reply, _ in asked.values():
                self._acks.forget(reply)
        for number, (_, answer) in asked.items():
            if answer.done():
                answers[number] = self._read(answer.result(), messages[number])
            else:
                self.is_lost = True
                answers[number] = self._away(f"no acknowledgement within {self._ack_timeout:g} s")
        return answers

    def _read(self, answer: Any, message: Message) -> Answer:
        """What has come to the reply subject."""
        if isinstance(answer, BaseException):
            return answer
        if answer is None:
            return self._away("the connection was lost")
        if (answer.headers or {}).get("Status") == "503":
            return MessageRefused(
                f"{self.where} has no stream that takes the subject {message.to}",
                fix="make one whose subjects it is among: nats stream add",
            )
        try:
            ack = msgspec.json.decode(answer.data, type=PubAck)
        except msgspec.DecodeError as error:
            return MessageRefused(f"{self.where} gave no acknowledgement: {error_text(error)}", fix="see its log")
        if ack.error is not None:
            return self._refused(ack.error)
        return None if ack.stream else MessageRefused(f"{self.where} named no stream", fix="see its log")

    def _refused(self, error: dict[str, Any]) -> BaseException:
        number, text = error.get("err_code"), f"{error.get('description')} ({error.get('err_code')})"
        if number == _TOO_LARGE:
            return DeadLetter(f"the stream takes no message of this size: {text}", fix=_SMALLER)
        if number in _NO_ROOM or error.get("code") == 503:
            return self._away(text)
        return MessageRefused(f"{self.where}: {text}", fix="see the settings of the stream")

    def _judged(self, error: Exception, message: Message) -> BaseException:
        """An error of the driver, before anything was sent."""
        if isinstance(error, DeadLetter):
            return error
        if isinstance(error, errors.MaxPayloadError):
            return DeadLetter(f"{self.where} takes no message of {len(message.body)} bytes", fix=_SMALLER)
        if self._client.is_closed or isinstance(error, OSError | errors.ConnectionClosedError):
            self.is_lost = True
            return self._away(error_text(error))
        return error

    def _away(self, why: str) -> Unavailable:
        away = Unavailable(self.where)
        away.__cause__ = ConnectionError(why)
        return away


def headers_of(message: Message, prefix: str) -> dict[str, str]:
    """As the NATS binding of CloudEvents says it: attributes are encoded as in HTTP."""
    headers: dict[str, str] = {}
    for name, value in message.headers.items():
        if name.lower().startswith(_COMMANDS):
            raise DeadLetter(f"the header {name} is a command to NATS", fix="rename it")
        headers[checked_name(name)] = header_value(value)
    headers["Nats-Msg-Id"] = prefix + header_value(message.id)
    headers["content-type"] = header_value(message.content_type)
    for name, value in message.attributes.items():
        headers[PREFIX + name] = percent_encoded(value)
    return headers
