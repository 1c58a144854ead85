"""Redis Streams, by redis-py: an entry for each message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from aftercommit.errors import InvalidOption, MessageRefused, MissingDriver
from aftercommit.events.durations import Duration, seconds_of
from aftercommit.events.names import shown
from aftercommit.events.outcome import Unavailable
from aftercommit.events.redact import error_text
from aftercommit.relays.message import Message
from aftercommit.relays.relay import Relay

try:
    import redis
    from redis import asyncio as driver
    from redis import exceptions
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise MissingDriver(f"redis-py is not installed ({error})", fix='pip install "aftercommit[redis]"') from error

#: The field of the body, and before the names of headers; attributes have their own names.
BODY: Final = "data"
HEADER: Final = "header:"
TYPE: Final = "datacontenttype"

#: Answers of a server that is there and takes nothing now, whatever the entry is.
_NOT_NOW: Final = (
    *("OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY"),
)
_CODES: Final = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
    exceptions.TryAgainError: "TRYAGAIN",
}

Answer = BaseException | None


class RedisStreams(Relay):
    """Appends to streams: `to=`, or `stream=`, is the key of one or a function of the event.

    An entry has the payload as `data`, its content type as `datacontenttype`, a field for each attribute of
    CloudEvents, and `header:…` for each header. `maxlen=` trims the stream, approximately. Done means that the server
    has it: what it keeps through a crash is a matter of its own settings (`appendfsync`). Further options are those of
    redis-py.
    """

    name: ClassVar[str] = "redis-streams"
    words: ClassVar[tuple[str, ...]] = ("stream",)

    def __init__(
        self,
        url: str = "redis://localhost:6379",
        *,
        maxlen: int | None = None,
        connect_timeout: Duration = "5s",
        answer_timeout: Duration = "10s",
        **options: Any,
    ) -> None:
        given: Any = maxlen
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
            raise InvalidOption(f"maxlen is {shown(maxlen)}", fix="how many entries a stream keeps, or leave it out")
        self._url = url
        self._where = _where(url)
        self._trim = [] if maxlen is None else ["MAXLEN", "~", maxlen]
        self._options: dict[str, Any] = {
            "socket_connect_timeout": seconds_of(connect_timeout, name="connect_timeout", positive=True),
            "socket_timeout": seconds_of(answer_timeout, name="answer_timeout", positive=True),
            **options,
        }
        self._client: Any = None

    @property
    def where(self) -> str:
        return self._where

    def place(self, given: Any) -> str:
        if not isinstance(given, str) or not given:
            raise InvalidOption(f"to of RedisStreams is {shown(given)}", fix='the key of a stream: to="orders"')
        return given

    async def open(self) -> None:
        # One try for each: what is sent again after its answer was lost would be there twice.
        self._client = driver.Redis.from_url(self._url, retry=Retry(NoBackoff(), 0), **self._options)
        await self._client.ping()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def publish(self, messages: Sequence[Message]) -> Sequence[Answer]:
        pipeline = self._client.pipeline(transaction=False)
        for message in messages:
            pipeline.execute_command("XADD", message.to, *self._trim, "*", *fields_of(message))
        try:
            replies = await pipeline.execute(raise_on_error=False)
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise Unavailable(self.where) from error
        return [self._judged(reply) for reply in replies]

    def _judged(self, reply: Any) -> Answer:
        if not isinstance(reply, Exception):
            return None
        text = error_text(reply)
        if _code_of(reply) in _NOT_NOW:
            self.is_lost = True  # another server may be the primary by now
            away = Unavailable(self.where)
            away.__cause__ = reply
            return away
        refused = MessageRefused(f"{self.where}: {text}", fix="see what the key is, and what the user may do with it")
        refused.__cause__ = reply
        return refused


def fields_of(message: Message) -> list[str | bytes]:
    """Names and values, in turns."""
    fields: list[str | bytes] = []
    for pairs, prefix in ((message.attributes, ""), (message.headers, HEADER)):
        fields += _flat(pairs, prefix)
    return [*fields, TYPE, message.content_type, BODY, message.body]


def _flat(pairs: Mapping[str, str], prefix: str) -> list[str]:
    return [text for name, value in pairs.items() for text in (prefix + name, value)]


def _code_of(error: Exception) -> str:
    """The driver cuts off some of them, and makes classes of them."""
    named = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "")
    return named or str(error).partition(" ")[0]


def _where(url: str) -> str:
    try:
        options: dict[str, Any] = redis.connection.parse_url(url)
    except (ValueError, TypeError):
        raise InvalidOption("the URL of RedisStreams cannot be read", fix="redis://user:password@host:6379/0") from None
    if "path" in options:
        return f"Redis at {options['path']}, database {options.get('db') or 0}"
    return f"Redis at {options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db') or 0}"
